/* An op of one's own: the L1 distance of every row of a to every row of b, "mk,nk->mn". From the
 * signature and "k is summed" follow its shapes and all its sharding rules; the kernel sees local
 * pieces only. The rule verifier proves the rules by running every one of them, and then a call on
 * a mesh leaves the result split over rows and, where k was split, partial. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "dtp/op.h"
#include "dtp/ops.h"
#include "dtp/world.h"

extern char **environ;

enum { M = 6, N = 4, K = 10 };

/* Elements of either float type: the verifier computes in f64, the cpu backend in f32. */
static double get(const dtp_view *v, int64_t i)
{
    return v->local.dtype == DTP_F64 ? ((const double *)v->data)[i]
                                     : (double)((const float *)v->data)[i];
}

static void put(const dtp_view *v, int64_t i, double value)
{
    if (v->local.dtype == DTP_F64) {
        ((double *)v->data)[i] = value;
    } else {
        ((float *)v->data)[i] = (float)value;
    }
}

static dtp_status distance_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *a = &args->in[0], *b = &args->in[1];
    const int64_t m = a->local.dims[0].size, k = a->local.dims[1].size, n = b->local.dims[0].size;
    (void)err;
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0.0;
            for (int64_t p = 0; p < k; p++) {
                sum += fabs(get(a, i * k + p) - get(b, j * k + p));
            }
            put(&args->out[0], i * n + j, sum);
        }
    }
    return DTP_OK;
}

static const dtp_kernel KERNELS[] = {{.op = "l1_distance", .run = distance_kernel}};

static dtp_status register_op(dtp_op_set *set, dtp_err *err)
{
    static const dtp_letter_role roles[] = {{'m', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM},
                                            {'n', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM},
                                            {'k', DTP_ROLE_REDUCED, DTP_REDUCE_SUM}};
    dtp_custom_op op = dtp_custom_op_init("l1_distance", "mk,nk->mn");
    op.summary = "L1 distance of every row of a to every row of b";
    op.n_roles = 3;
    op.roles = roles;
    op.flops_per_point = 3.0;
    op.no_grad = "not needed in this example";
    return dtp_custom_op_register(set, &op, err);
}

/* Every rule on 2, 3 and 4 ranks, every pair of rules on 2 x 2 and 2 x 3, sizes that do not divide.
 */
static dtp_status verify(const dtp_op_set *set, dtp_err *err)
{
    const dtp_op_case cases[] = {{.op = "l1_distance", .in = {"m=5,k=7", "n=3,k=7"}}};
    dtp_rule_verify_options options = dtp_rule_verify_options_init();
    dtp_rule_report report;
    options.n_cases = 1;
    options.cases = cases;
    options.ops = set;
    options.n_kernels = 1;
    options.kernels = KERNELS;
    DTP_TRY(dtp_rule_verify(dtp_op_set_find(set, "l1_distance"), &options, &report, err));
    if (!report.pass) {
        return DTP_FAIL(err, DTP_INTERNAL, "%s", report.first_wrong.msg);
    }
    (void)printf("%d rules, %lld programs equal the unsharded op\n", report.rules,
                 (long long)report.programs);
    return DTP_OK;
}

static dtp_status make(dtp_device_mesh *mesh, int64_t rows, const char *layout, uint32_t stream,
                       dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc desc;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, (int64_t[]){rows, K}, layout, &desc, err));
    return dtp_tensor_normal(mesh, &desc, stream, 0.0, 1.0, out, err);
}

/* The same by hand, from whole copies of the operands. */
static dtp_status largest_error(dtp_tensor a, dtp_tensor b, dtp_tensor distance, double *out,
                                dtp_err *err)
{
    float x[M * K], y[N * K], d[M * N];
    DTP_TRY(dtp_tensor_gather(a, -1, x, err));
    DTP_TRY(dtp_tensor_gather(b, -1, y, err));
    DTP_TRY(dtp_tensor_gather(distance, -1, d, err));
    *out = 0.0;
    for (int32_t i = 0; i < M * N; i++) {
        double sum = 0.0;
        for (int32_t p = 0; p < K; p++) {
            sum += fabs((double)x[i / N * K + p] - (double)y[i % N * K + p]);
        }
        *out = fmax(*out, fabs(sum - (double)d[i]));
    }
    return DTP_OK;
}

static dtp_status body(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    char text[DTP_TENSOR_TEXT_BYTES];
    dtp_tensor ab[2], partial, distance;
    dtp_layout rows;
    double error;
    (void)user;
    DTP_TRY(make(mesh, M, "0@x, 1@y", 1, &ab[0], err));
    DTP_TRY(make(mesh, N, "1@y", 2, &ab[1], err));
    const dtp_call call = {.op = "l1_distance", .dims = "mk,nk->mn", .n_in = 2, .in = ab};
    DTP_TRY(dtp_tensor_call(&call, &partial, err));
    dtp_tensor_print(partial, text);
    if (dtp_device_mesh_rank(mesh) == 0) {
        (void)printf("called: %s\n", text);
    }
    DTP_TRY(dtp_tensor_layout(mesh, 2, "0@x", &rows, err));
    DTP_TRY(dtp_tensor_redistribute(partial, &rows, &distance, err));
    DTP_TRY(largest_error(ab[0], ab[1], distance, &error, err));
    if (dtp_device_mesh_rank(mesh) == 0) {
        (void)printf("largest error: %.1e\n", error);
    }
    if (error > 1e-5) {
        return DTP_FAIL(err, DTP_INTERNAL, "the distances are off by %g", error);
    }
    dtp_tensor_destroy(ab[0]);
    dtp_tensor_destroy(ab[1]);
    dtp_tensor_destroy(partial);
    dtp_tensor_destroy(distance);
    return DTP_OK;
}

static dtp_status run(dtp_op_set *set, dtp_err *err)
{
    dtp_world_options options = dtp_world_options_init();
    DTP_TRY(register_op(set, err));
    DTP_TRY(verify(set, err));
    options.environment = environ;
    options.mesh.ops = set;
    options.n_kernels = 1;
    options.kernels = KERNELS;
    return dtp_world_run("x:2;y:2", &options, body, NULL, err);
}

int main(void)
{
    dtp_op_set *set = NULL;
    dtp_err err = {0};
    dtp_status s = dtp_op_set_create(dtp_builtin_ops(), &set, &err);
    if (s == DTP_OK) {
        s = run(set, &err);
    }
    dtp_op_set_destroy(set);
    if (s != DTP_OK) {
        (void)fprintf(stderr, "%s\n", err.msg);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
