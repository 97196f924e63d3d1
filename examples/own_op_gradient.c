/* Own ops, continued: "squared_distance" is described by the roles of its dims and has a gradient;
 * "local_mm" is opaque: the layouts in which its kernel may run are listed. Both run on virtual
 * ranks and are compared with one rank. Usage: own_op_gradient [RANKS] (default 4 virtual ranks),
 * or under mpirun with RANKS = the number of processes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "dtp/op.h"
#include "dtp/tape.h"
#include "dtp/world.h"

extern char **environ;

enum { POINTS = 8, CENTERS = 6, DIMS = 12 };

/* ---- squared_distance: out[m, n] = sum over d of (x[m, d] - c[n, d])^2 ---- */

/* The pieces of this rank; with d split, its part of the sum. */
static dtp_status run_squared_distance(const dtp_kernel_args *args, dtp_err *err)
{
    const float *x = args->in[0].data, *c = args->in[1].data;
    float *out = args->out[0].data;
    const int64_t m = args->in[0].local.dims[0].size, d = args->in[0].local.dims[1].size;
    const int64_t n = args->in[1].local.dims[0].size;
    if (args->in[0].local.dtype != DTP_F32) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "squared_distance has a kernel for f32 only");
    }
    for (int64_t i = 0; i < m * n; i++) {
        float sum = 0.0F;
        for (int64_t k = 0; k < d; k++) {
            const float difference = x[i / n * d + k] - c[i % n * d + k];
            sum += difference * difference;
        }
        out[i] = sum;
    }
    return DTP_OK;
}

/* d x = 2 (x * rowsum(dy) - dy c), and the same for c with dy transposed: made of built-in ops. */
static dtp_status gradient_of(dtp_vjp *v, int32_t i, dtp_err *err)
{
    const dtp_tensor_id x = v->in[i], other = v->in[1 - i], dy = v->d_out[0];
    const dtp_attr two = dtp_attr_float("factor", 2.0);
    dtp_ttype rows = dtp_vjp_type(v, x);
    dtp_tensor_id sums, scaled, product, difference;
    rows.rank = 1; /* the dim of points or centers */
    DTP_TRY(dtp_vjp_emit_shaped(v, "einsum", 1, &dy, &rows, &sums, err));
    const dtp_tensor_id by_rows[] = {x, sums}, with_other[] = {dy, other};
    DTP_TRY(dtp_vjp_emit(v, &(dtp_vjp_op){"mul", 2, by_rows, 0, NULL}, x, &scaled, err));
    DTP_TRY(dtp_vjp_emit(v, &(dtp_vjp_op){"einsum", 2, with_other, 0, NULL}, x, &product, err));
    const dtp_tensor_id both[] = {scaled, product};
    DTP_TRY(dtp_vjp_emit(v, &(dtp_vjp_op){"sub", 2, both, 0, NULL}, x, &difference, err));
    return dtp_vjp_emit(v, &(dtp_vjp_op){"scale", 1, &difference, 1, &two}, x, &v->d_in[i], err);
}

static dtp_status vjp_squared_distance(dtp_vjp *v, dtp_err *err)
{
    for (int32_t i = 0; i < 2; i++) {
        if (v->need[i]) {
            DTP_TRY(gradient_of(v, i, err));
        }
    }
    return DTP_OK;
}

static dtp_status register_squared_distance(dtp_op_set *set, dtp_err *err)
{
    static const dtp_letter_role roles[] = {{'m', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM},
                                            {'n', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM},
                                            {'d', DTP_ROLE_REDUCED, DTP_REDUCE_SUM}};
    dtp_custom_op op = dtp_custom_op_init("squared_distance", "md,nd->mn");
    op.summary = "squared Euclidean distances of all pairs of rows";
    op.n_roles = 3; /* a letter without one is never split */
    op.roles = roles;
    op.flops_per_point = 3.0;
    op.vjp = vjp_squared_distance;
    return dtp_custom_op_register(set, &op, err);
}

/* ---- local_mm: a product that runs in two layouts only ---- */

static dtp_status run_local_mm(const dtp_kernel_args *args, dtp_err *err)
{
    const float *a = args->in[0].data, *b = args->in[1].data;
    float *out = args->out[0].data;
    const int64_t m = args->in[0].local.dims[0].size, k = args->in[0].local.dims[1].size;
    const int64_t n = args->in[1].local.dims[1].size;
    (void)err;
    for (int64_t i = 0; i < m * n; i++) {
        out[i] = 0.0F;
        for (int64_t p = 0; p < k; p++) {
            out[i] += a[i / n * k + p] * b[p * n + i % n];
        }
    }
    return DTP_OK;
}

static dtp_status register_local_mm(dtp_op_set *set, dtp_err *err)
{
    static const char *const strategies[] = {"S1,S0->P(sum)", "S0,R->S0"};
    dtp_custom_op op = dtp_custom_op_init("local_mm", "mk,kn->mn");
    op.n_strategies = 2;
    op.strategies = strategies;
    op.flops_per_point = 2.0;
    op.no_grad = "the example does without";
    return dtp_custom_op_register(set, &op, err);
}

/* ---- using them ---- */

/* What rank 0 tells main. */
typedef struct outcome {
    float distances[POINTS * CENTERS], gradient[POINTS * DIMS], product[POINTS * CENTERS];
    long long collectives; /* of the opaque call */
    int done;
} outcome;

static dtp_status make(dtp_device_mesh *mesh, int64_t rows, int64_t columns, const char *layout,
                       uint32_t stream, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc desc;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, (int64_t[]){rows, columns}, layout, &desc, err));
    return dtp_tensor_normal(mesh, &desc, stream, 0.0, 1.0, out, err);
}

static dtp_status read_whole(dtp_tensor t, float *out, dtp_err *err)
{
    dtp_layout replicated;
    dtp_tensor whole;
    DTP_TRY(dtp_tensor_layout(t.mesh, 2, "replicated", &replicated, err));
    DTP_TRY(dtp_tensor_redistribute(t, &replicated, &whole, err));
    dtp_status s = dtp_tensor_read(whole, out, err);
    dtp_tensor_destroy(whole);
    return s;
}

/* Distances with the coordinates split, and the gradient of their mean. */
static dtp_status distances(dtp_device_mesh *mesh, outcome *out, dtp_err *err)
{
    dtp_tensor in[2], y, loss, gradient;
    dtp_tape *tape = NULL;
    const dtp_call call = {.op = "squared_distance", .dims = "md,nd->mn", .n_in = 2, .in = in};
    DTP_TRY(make(mesh, POINTS, DIMS, "P(None, 'x')", 1, &in[0], err));
    DTP_TRY(make(mesh, CENTERS, DIMS, "P(None, 'x')", 2, &in[1], err));
    DTP_TRY(dtp_tape_create(mesh, &tape, err));
    DTP_TRY(dtp_tape_watch(tape, in[0], err));
    DTP_TRY(dtp_tensor_call(&call, &y, err)); /* partial sums over x */
    DTP_TRY(dtp_tensor_mean(y, 0, NULL, false, &loss, err));
    DTP_TRY(dtp_tape_gradient(tape, loss, 1, in, &gradient, err));
    dtp_tape_destroy(tape);
    DTP_TRY(read_whole(y, out->distances, err));
    return read_whole(gradient, out->gradient, err);
}

/* Operands in layouts that the op does not list: they are redistributed. */
static dtp_status opaque(dtp_device_mesh *mesh, outcome *out, dtp_err *err)
{
    dtp_tensor in[2], y;
    const dtp_call call = {.op = "local_mm", .dims = "mk,kn->mn", .n_in = 2, .in = in};
    DTP_TRY(make(mesh, POINTS, DIMS, "P('x')", 3, &in[0], err));
    DTP_TRY(make(mesh, DIMS, CENTERS, "P(None, 'x')", 4, &in[1], err));
    dtp_device_mesh_reset_counts(mesh);
    DTP_TRY(dtp_tensor_call(&call, &y, err));
    const dtp_comm_count *counts;
    const int32_t n = dtp_device_mesh_counts(mesh, &counts);
    out->collectives = 0;
    for (int32_t i = 0; i < n; i++) {
        out->collectives += counts[i].count;
    }
    return read_whole(y, out->product, err);
}

static dtp_status use(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    outcome mine;
    DTP_TRY(distances(mesh, &mine, err));
    DTP_TRY(opaque(mesh, &mine, err));
    if (dtp_device_mesh_rank(mesh) == 0) {
        mine.done = 1;
        *(outcome *)user = mine;
    }
    return DTP_OK;
}

static int run(const dtp_op_set *set, int32_t ranks, const char *comm, outcome *out)
{
    static const dtp_kernel kernels[] = {{.op = "squared_distance", .run = run_squared_distance},
                                         {.op = "local_mm", .run = run_local_mm}};
    char mesh[32];
    dtp_err err = {0};
    dtp_world_options options = dtp_world_options_init();
    options.environment = environ;
    options.comm = comm;
    options.mesh.ops = set;
    options.n_kernels = 2;
    options.kernels = kernels;
    (void)snprintf(mesh, sizeof mesh, "x:%d", ranks);
    if (dtp_world_run(mesh, &options, use, out, &err) != DTP_OK) {
        (void)fprintf(stderr, "%s\n", err.msg);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

static double largest_difference(const float *a, const float *b, int n)
{
    double worst = 0.0;
    for (int i = 0; i < n; i++) {
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    }
    return worst;
}

static int compare(const dtp_op_set *set, int32_t ranks)
{
    outcome split = {.done = 0}, one = {.done = 0};
    if (run(set, ranks, NULL, &split) != EXIT_SUCCESS) {
        return EXIT_FAILURE;
    }
    if (!split.done) {
        return EXIT_SUCCESS; /* an MPI process other than the first */
    }
    if (run(set, 1, "self", &one) != EXIT_SUCCESS) {
        return EXIT_FAILURE;
    }
    const double y = largest_difference(split.distances, one.distances, POINTS * CENTERS);
    const double g = largest_difference(split.gradient, one.gradient, POINTS * DIMS);
    const double p = largest_difference(split.product, one.product, POINTS * CENTERS);
    (void)printf("squared_distance on %d ranks: %.1e from one rank, its gradient %.1e\n", ranks, y,
                 g);
    (void)printf("local_mm with other layouts: %.1e, %lld collectives\n", p, split.collectives);
    return y < 1e-4 && g < 1e-5 && p < 1e-4 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    const int32_t ranks = argc > 1 ? (int32_t)strtol(argv[1], NULL, 10) : 4;
    dtp_op_set *set = NULL;
    dtp_err err = {0};
    dtp_status s = dtp_op_set_create(dtp_builtin_ops(), &set, &err);
    s = s == DTP_OK ? register_squared_distance(set, &err) : s;
    s = s == DTP_OK ? register_local_mm(set, &err) : s;
    if (s != DTP_OK) {
        (void)fprintf(stderr, "%s\n", err.msg);
        return EXIT_FAILURE;
    }
    const int code = compare(set, ranks);
    dtp_op_set_destroy(set);
    return code;
}
