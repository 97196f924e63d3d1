/* Redistributions through the whole path (program, runner, communicator), and as calls on
 * distributed tensors that make and free their results, beside the plain MPI collective that moves
 * the same bytes between contiguous buffers. All run in turns in one job; a figure is the median
 * over the repeats of the slowest rank's time. Not a test.
 * mpirun -n 2 bench_redistribute [PART OF A NAME]
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dtp/tensor.h"
#include "core/graph/ops/op_table.h"
#include "executor/comm/communicator.h"
#include "executor/run/runner.h"
#include "spmd/lower/redistribute_program.h"
#include "executor/cpu/cpu.h"

typedef enum plain_kind { GATHER, REDUCE, SCATTER, EXCHANGE } plain_kind;

typedef struct bench_case {
    const char *name;
    int32_t rank;
    const char *from, *to; /* layouts of dims a, b, c over x */
    plain_kind plain;
} bench_case;

static const bench_case CASES[] = {
    {"S0 -> R", 2, "a@x", "replicated", GATHER},
    {"S1 -> R", 2, "b@x", "replicated", GATHER},
    {"P -> R", 2, "+sum(x)", "replicated", REDUCE},
    {"P -> S0", 2, "+sum(x)", "a@x", SCATTER},
    {"P -> S1", 2, "+sum(x)", "b@x", SCATTER},
    {"S0 -> S1", 2, "a@x", "b@x", EXCHANGE},
    {"S1 -> S0", 2, "b@x", "a@x", EXCHANGE},
    {"S1 of 3 -> R", 3, "b@x", "replicated", GATHER},
    {"P -> S1 of 3", 3, "+sum(x)", "b@x", SCATTER},
    {"S1 of 3 -> S2", 3, "b@x", "c@x", EXCHANGE},
};

enum { MAX_REPEATS = 201 };

typedef struct world {
    dtp_mesh mesh;
    dtp_comm *comm;
    dtp_backend *backend;
    dtp_device_mesh *tensors;
    float *in, *out; /* of the plain collective */
    double worst, worst_call;
    const char *only; /* part of the names of the cases to run */
} world;

/* f32 tensors: square, or [16, m, 64]. */
static void shape_of(const bench_case *c, int64_t bytes, int64_t sizes[3])
{
    int64_t elems = bytes / (int64_t)sizeof(float), side = 1;
    while (side * side < elems) {
        side *= 2;
    }
    if (c->rank == 2) {
        sizes[0] = sizes[1] = side;
    } else {
        sizes[0] = 16;
        sizes[2] = 64;
        sizes[1] = elems / 1024;
    }
}

static void run_plain(const world *w, plain_kind kind, int64_t bytes)
{
    int ranks = w->comm->size;
    int n = (int)(bytes / (int64_t)sizeof(float));
    switch (kind) {
    case GATHER:
        MPI_Allgather(w->in, n / ranks, MPI_FLOAT, w->out, n / ranks, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case REDUCE:
        MPI_Allreduce(w->in, w->out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case SCATTER:
        MPI_Reduce_scatter_block(w->in, w->out, n / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    default:
        n /= ranks * ranks;
        MPI_Alltoall(w->in, n, MPI_FLOAT, w->out, n, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    }
}

static double slowest(double mine)
{
    double all = mine;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

/* One redistribution: bound to its buffers for good, and as a call. */
typedef struct job {
    dtp_runner *runner;
    dtp_tensor from;
    dtp_layout to;
} job;

static dtp_status call(const job *j, dtp_err *err)
{
    dtp_tensor out;
    DTP_TRY(dtp_tensor_redistribute(j->from, &j->to, &out, err));
    dtp_tensor_destroy(out);
    return DTP_OK;
}

static dtp_status measure(world *w, const bench_case *c, const job *j, int64_t bytes, dtp_err *err)
{
    static double plain[MAX_REPEATS], ours[MAX_REPEATS], calls[MAX_REPEATS];
    int repeats = bytes <= 1 << 20 ? MAX_REPEATS : bytes <= 16 << 20 ? 61 : 21;
    for (int i = -5; i < repeats; i++) {
        dtp_runner_times times;
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        run_plain(w, c->plain, bytes);
        double one = slowest(MPI_Wtime() - start);
        MPI_Barrier(MPI_COMM_WORLD);
        start = MPI_Wtime();
        DTP_TRY(dtp_runner_step(j->runner, 0, 0, &times, err));
        double other = slowest(MPI_Wtime() - start);
        MPI_Barrier(MPI_COMM_WORLD);
        start = MPI_Wtime();
        DTP_TRY(call(j, err));
        double third = slowest(MPI_Wtime() - start);
        if (i >= 0) {
            plain[i] = one;
            ours[i] = other;
            calls[i] = third;
        }
    }
    double a = median(plain, repeats), b = median(ours, repeats), d = median(calls, repeats);
    w->worst = a / b < w->worst ? a / b : w->worst;
    w->worst_call = a / d < w->worst_call ? a / d : w->worst_call;
    if (w->comm->rank == 0) {
        printf("| %-13s | %6lld KiB | %10.1f | %10.1f | %7.2f | %7.2f | %5.2f | %10.1f | %5.2f |\n",
               c->name, (long long)(bytes >> 10), a * 1e6, b * 1e6, (double)bytes / a * 1e-9,
               (double)bytes / b * 1e-9, a / b, d * 1e6, a / d);
        fflush(stdout);
    }
    return DTP_OK;
}

static dtp_status make_tensor(const world *w, const dtp_ttype *type, const dtp_layout *from,
                              dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc desc = {.dtype = type->dtype, .rank = type->rank, .layout = *from};
    for (int32_t i = 0; i < type->rank; i++) {
        desc.shape[i] = type->dims[i].size;
    }
    return dtp_tensor_iota(w->tensors, &desc, 0, 1, out, err);
}

/* Fills the inputs and runs; `made` is the program of the redistribution from -> to. */
static dtp_status run_job(world *w, const bench_case *c, const dtp_redistribute_job *made,
                          const dtp_ttype *type, const dtp_layout *layouts, dtp_err *err)
{
    const dtp_program *p = made->program;
    job j = {.to = layouts[1]};
    DTP_TRY(make_tensor(w, type, &layouts[0], &j.from, err));
    DTP_TRY(dtp_runner_create(p, w->backend, w->comm, NULL, &j.runner, err));
    dtp_status status = dtp_runner_prepare(j.runner, err);
    float *data = dtp_runner_view(j.runner, made->in)->data;
    for (int64_t i = 0; i < p->values[made->in].bytes / (int64_t)sizeof *data; i++) {
        data[i] = (float)(i % 1000);
    }
    if (status == DTP_OK) {
        status = measure(w, c, &j, dtp_ttype_bytes(type), err);
    }
    dtp_runner_destroy(j.runner);
    dtp_tensor_destroy(j.from);
    return status;
}

static dtp_status run_case(world *w, const bench_case *c, int64_t bytes, dtp_err *err)
{
    static const char *const names[] = {"a", "b", "c"};
    int64_t sizes[3];
    dtp_graph *g = NULL;
    dtp_layout layouts[2];
    dtp_steps steps;
    dtp_redistribute_job made = {0};
    dtp_ttype type = {.dtype = DTP_F32, .rank = c->rank};
    DTP_TRY(dtp_graph_create("bench", dtp_builtin_ops(), &g, err));
    shape_of(c, bytes, sizes);
    dtp_status s = DTP_OK;
    for (int32_t i = 0; i < c->rank && s == DTP_OK; i++) {
        type.dims[i].size = sizes[i];
        s = dtp_dims_intern(&g->dims, names[i], sizes[i], &type.dims[i].id, err);
    }
    s = s != DTP_OK ? s : dtp_layout_parse(c->from, &w->mesh, &type, &g->dims, &layouts[0], err);
    s = s != DTP_OK ? s : dtp_layout_parse(c->to, &w->mesh, &type, &g->dims, &layouts[1], err);
    s = s != DTP_OK ? s
                    : dtp_redistribute_plan(&w->mesh, &type, &layouts[0], &layouts[1],
                                            dtp_step_generic_price, NULL, &steps, err);
    s = s != DTP_OK ? s
                    : dtp_redistribute_program(g, &w->mesh, &dtp_target_cpu, &type, &layouts[0],
                                               &steps, &made, err);
    if (s == DTP_OK) {
        s = run_job(w, c, &made, &type, layouts, err);
        dtp_redistribute_job_free(&made);
    }
    dtp_graph_destroy(g);
    return s;
}

static dtp_status run_all(world *w, dtp_err *err)
{
    const int64_t most = 64 << 20;
    w->in = aligned_alloc(64, (size_t)most);
    w->out = aligned_alloc(64, (size_t)most);
    if (w->in == NULL || w->out == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "no memory for the buffers");
    }
    memset(w->in, 0, (size_t)most);
    memset(w->out, 0, (size_t)most);
    if (w->comm->rank == 0) {
        printf("| f32 tensor    | its size   | plain us   | ours us    | GB/s    | GB/s    | ratio "
               "| call us    | ratio |\n"
               "|---|---|---|---|---|---|---|---|---|\n");
    }
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        if (strstr(CASES[i].name, w->only) == NULL) {
            continue;
        }
        for (int64_t bytes = 64 << 10; bytes <= most; bytes *= 4) {
            DTP_TRY(run_case(w, &CASES[i], bytes, err));
        }
    }
    return DTP_OK;
}

static dtp_status run(world *w, dtp_err *err)
{
    char text[32];
    int ranks = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    (void)snprintf(text, sizeof text, "x:%d", ranks);
    DTP_TRY(dtp_mesh_parse(text, &w->mesh, err));
    DTP_TRY(dtp_backend_cpu_create(1, &w->backend, err));
    DTP_TRY(dtp_comm_mpi_create(&w->mesh, &w->comm, err));
    DTP_TRY(dtp_device_mesh_create(w->comm, w->backend, NULL, &w->tensors, err));
    return run_all(w, err);
}

int main(int argc, char **argv)
{
    world w = {.worst = 1e9, .worst_call = 1e9, .only = argc > 1 ? argv[1] : ""};
    dtp_err err = {0};
    MPI_Init(&argc, &argv);
    dtp_status status = run(&w, &err);
    if (status != DTP_OK) {
        fprintf(stderr, "%s\n", err.msg);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (w.comm->rank == 0) {
        printf("\nlowest ratio of bandwidths to plain: %.2f, of calls on tensors %.2f\n", w.worst,
               w.worst_call);
    }
    free(w.in);
    free(w.out);
    dtp_device_mesh_destroy(w.tensors);
    dtp_comm_destroy(w.comm);
    dtp_backend_destroy(w.backend);
    MPI_Finalize();
    return 0;
}
