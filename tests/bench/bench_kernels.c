/* Speed of the CPU kernels at the sizes of a small GPT, against a plain memory copy of as many
 * bytes (on one thread, times the threads) and a plain product of the type measured in the same
 * process; convolutions on one thread also against oneDNN's. Not a test: prints a table. One thread
 * is timed by its processor time, which other programs on the machine do not stretch; more threads
 * by the clock. bench_kernels [THREADS] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/graph/graph.h"
#include "core/graph/ops/op_table.h"
#include "spmd/target/target.h"
#include "executor/device/backend.h"
#include "executor/cpu/gemm/blas.h"
#include "executor/cpu/gemm/gemm.h"
#include "tests/bench/bench_onednn.h"

enum { MAX_ATTRS = 16 };

typedef struct bench_op {
    const char *op;
    const char *attrs; /* "over=d size=50": names are dims, numbers are numbers */
    const char *in[6]; /* "b=16 d=384"; "i:b=16" are integers below 64 */
    const char *out;   /* declared output dims, NULL: inferred */
    double flops;      /* 0: memory-bound, reported in GB/s */
} bench_op;

static const bench_op BENCH[] = {
    {"gelu", "", {"n=2048 d=1536"}, NULL, 0},
    {"gelu_grad", "", {"n=2048 d=1536", "n=2048 d=1536"}, NULL, 0},
    {"add", "", {"n=2048 d=1536", "n=2048 d=1536"}, NULL, 0},
    {"add", "", {"n=2048 d=1536", "d=1536"}, NULL, 0},
    {"mul", "", {"n=2048 d=1536", "n=2048"}, NULL, 0},
    {"softmax", "over=d", {"n=2048 d=1536"}, NULL, 0},
    {"softmax_grad", "over=d", {"n=2048 d=1536", "n=2048 d=1536"}, NULL, 0},
    {"layer_norm", "over=d", {"n=2048 d=384", "d=384", "d=384"}, NULL, 0},
    {"layer_norm_grad",
     "over=d",
     {"n=2048 d=384", "d=384", "n=2048", "n=2048", "n=2048 d=384"},
     NULL,
     0},
    {"layer_norm", "over=d", {"n=8192 d=1536", "d=1536", "d=1536"}, NULL, 0},
    {"layer_norm_grad",
     "over=d",
     {"n=8192 d=1536", "d=1536", "n=8192", "n=8192", "n=8192 d=1536"},
     NULL,
     0},
    {"rms_norm", "over=d", {"n=2048 d=384", "d=384"}, NULL, 0},
    {"cross_entropy", "over=d", {"n=2048 d=256", "i:n=2048"}, NULL, 0},
    {"cross_entropy_grad", "over=d", {"n=2048 d=256", "i:n=2048", "n=2048", ""}, NULL, 0},
    {"cross_entropy", "over=d", {"n=256 d=50304", "i:n=256"}, NULL, 0},
    {"cross_entropy_grad", "over=d", {"n=256 d=50304", "i:n=256", "n=256", ""}, NULL, 0},
    {"adamw", "", {"n=4096 d=1024", "n=4096 d=1024", "n=4096 d=1024", "n=4096 d=1024"}, NULL, 0},
    {"reduce", "kind=0 over=n", {"n=8192 d=1024"}, NULL, 0},
    {"reduce", "kind=0 over=d", {"n=8192 d=1024"}, NULL, 0},
    {"einsum", "", {"n=8192 d=1024"}, "d=1024", 0},
    {"einsum", "", {"n=2048 d=1024"}, "d=1024 n=2048", 0},
    {"einsum", "", {"n=8192 d=1024", "n=8192 d=1024"}, "", 0},
    {"embedding", "over=v", {"v=256 d=384", "i:b=16 l=128"}, NULL, 0},
    {"embedding_grad", "over=v size=256", {"i:b=16 l=128", "b=16 l=128 d=384"}, NULL, 0},
    {"rope", "position=l feature=f base=10000", {"b=16 l=128 h=6 f=64"}, NULL, 0},
    {"dropout", "rate=0.1 stream=1", {"n=2048 d=1536"}, NULL, 0},
    {"einsum",
     "",
     {"b=16 l=128 d=384", "d=384 f=1536"},
     "b=16 l=128 f=1536",
     2.0 * 2048 * 384 * 1536},
    {"einsum",
     "",
     {"b=16 l=128 f=1536", "d=384 f=1536"},
     "b=16 l=128 d=384",
     2.0 * 2048 * 384 * 1536},
    {"einsum",
     "",
     {"b=16 l=128 d=384", "b=16 l=128 f=1536"},
     "d=384 f=1536",
     2.0 * 2048 * 384 * 1536},
    {"einsum",
     "",
     {"b=16 l=128 d=192", "d=192 h=6 f=32"},
     "b=16 l=128 h=6 f=32",
     2.0 * 2048 * 192 * 192},
    {"einsum",
     "",
     {"b=16 h=6 l=128 f=32", "b=16 h=6 m=128 f=32"},
     "b=16 h=6 l=128 m=128",
     2.0 * 96 * 128 * 128 * 32},
    {"attention",
     "query=l feature=f causal=1",
     {"b=16 l=128 h=6 f=32", "b=16 l=128 h=6 f=32", "b=16 l=128 h=6 f=32"},
     NULL,
     4.0 * 96 * 128 * 128 * 32},
    {"attention_grad",
     "query=l feature=f causal=1",
     {"b=16 l=128 h=6 f=32", "b=16 l=128 h=6 f=32", "b=16 l=128 h=6 f=32", "b=16 l=128 h=6 f=32",
      "b=16 l=128 h=6", "b=16 l=128 h=6 f=32"},
     NULL,
     10.0 * 96 * 128 * 128 * 32},
    {"attention",
     "query=l feature=f causal=1",
     {"b=2 l=1024 h=12 f=64", "b=2 l=1024 h=12 f=64", "b=2 l=1024 h=12 f=64"},
     NULL,
     4.0 * 24 * 1024 * 1024 * 64},
    {"attention_grad",
     "query=l feature=f causal=1",
     {"b=2 l=1024 h=12 f=64", "b=2 l=1024 h=12 f=64", "b=2 l=1024 h=12 f=64",
      "b=2 l=1024 h=12 f=64", "b=2 l=1024 h=12", "b=2 l=1024 h=12 f=64"},
     NULL,
     10.0 * 24 * 1024 * 1024 * 64},
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_kernels: %s\n", what);
    exit(1);
}

static double now_s(int32_t threads)
{
    struct timespec t;
    clock_gettime(threads > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int32_t read_dims(dtp_dims *dims, const char *text, dtp_tdim out[DTP_MAX_RANK])
{
    int32_t n = 0;
    char name[32];
    long long size;
    int used;
    while (sscanf(text, " %31[a-z]=%lld%n", name, &size, &used) == 2) {
        if (dtp_dims_intern(dims, name, 0, &out[n].id, NULL) != DTP_OK) {
            fail("out of memory");
        }
        out[n++].size = size;
        text += used;
    }
    return n;
}

/* All attributes of the op in spec order. */
static int32_t read_attrs(dtp_dims *dims, const dtp_op_def *op, const char *text, dtp_attr *out,
                          dtp_dim_id *ids, int32_t *ints)
{
    int32_t n = 0, used = 0;
    for (const dtp_attr_spec *s = op->attrs; s != NULL && s->key != NULL; s++, n++) {
        char pattern[32], value[32];
        out[n] = (dtp_attr){.key = s->key, .kind = s->kind, .i = (int64_t)s->def, .f = s->def};
        snprintf(pattern, sizeof pattern, "%s=", s->key);
        const char *at = strstr(text, pattern);
        if (s->kind == DTP_ATTR_INTS) {
            ints[n] = (int32_t)s->def;
            out[n].n = 1;
            out[n].ints = &ints[n];
        }
        if (at == NULL || sscanf(at + strlen(pattern), "%31s", value) != 1) {
            continue;
        }
        out[n].f = strtod(value, NULL);
        out[n].i = (int64_t)out[n].f;
        if (s->kind == DTP_ATTR_INTS) {
            ints[n] = (int32_t)out[n].i;
        }
        if (s->kind == DTP_ATTR_DIM || s->kind == DTP_ATTR_DIMS) {
            out[n].ids = &ids[used];
            for (char *name = strtok(value, ","); name != NULL; name = strtok(NULL, ",")) {
                if (dtp_dims_intern(dims, name, 0, &ids[used++], NULL) != DTP_OK) {
                    fail("out of memory");
                }
                out[n].n++;
            }
            out[n].i = out[n].ids[0];
        }
    }
    return n;
}

static void make_view(dtp_view *v, const dtp_ttype *type)
{
    memset(v, 0, sizeof *v);
    v->local = *type;
    for (int32_t i = 0; i < type->rank; i++) {
        v->global[i] = type->dims[i].size;
    }
    int64_t n = dtp_ttype_elems(type);
    v->data = aligned_alloc(64, (size_t)(dtp_ttype_bytes(type) + 127) / 64 * 64);
    for (int64_t i = 0; i < n && type->dtype == DTP_F32; i++) {
        ((float *)v->data)[i] = (float)(i * 7919 % 1999) / 1999.0f;
    }
    for (int64_t i = 0; i < n && type->dtype == DTP_BF16; i++) {
        ((uint16_t *)v->data)[i] = (uint16_t)(0x3f80 + i * 7919 % 127); /* from 1 to 2 */
    }
    for (int64_t i = 0; i < n && type->dtype == DTP_I32; i++) {
        ((int32_t *)v->data)[i] = (int32_t)(i * 7919 % 64);
    }
}

/* Best of some runs, in seconds. */
static double time_op(dtp_backend *b, const dtp_kernel_args *args, dtp_arena *arena)
{
    double best = 1e9, start = now_s(b->threads);
    dtp_err err;
    dtp_bound_kernel kernel;
    if (dtp_backend_bind(b, args, arena, &kernel, &err) != DTP_OK) {
        fail(err.msg);
    }
    for (int i = 0; i < 5 || (i < 1000 && now_s(b->threads) - start < 0.25); i++) {
        double t = now_s(b->threads);
        if (dtp_bound_kernel_run(&kernel, &err) != DTP_OK) {
            fail(err.msg);
        }
        t = now_s(b->threads) - t;
        best = t < best ? t : best;
    }
    return best;
}

/* GB/s, read plus written, of copying that moves `bytes`, on one thread times the number of
 * threads. */
static double measure_copy(int32_t threads, double bytes)
{
    size_t n = (size_t)(bytes / 2.0) / 64 * 64 + 64;
    char *a = aligned_alloc(64, n), *b = aligned_alloc(64, n);
    double best = 1e9, start = now_s(1);
    memset(a, 1, n);
    for (int i = 0; i < 3 || (i < 1000 && now_s(1) - start < 0.1); i++) {
        double t = now_s(1);
        memcpy(b, a, n);
        t = now_s(1) - t;
        best = t < best ? t : best;
        a[i % 64] = b[n - 1];
    }
    free(a);
    free(b);
    return 2.0 * (double)n / best * 1e-9 * (double)threads;
}

static double run_one(dtp_backend *b, const bench_op *bench, dtp_dtype dtype,
                      const double gemm_rate[2])
{
    dtp_graph *g;
    dtp_err err;
    dtp_ttype in[6], out[8];
    dtp_view in_views[6], out_views[8];
    dtp_attr attrs[MAX_ATTRS];
    dtp_dim_id ids[MAX_ATTRS];
    int32_t ints[MAX_ATTRS];
    memset(out, 0, sizeof out);
    memset(in, 0, sizeof in);
    if (dtp_graph_create("bench", dtp_builtin_ops(), &g, &err) != DTP_OK) {
        fail(err.msg);
    }
    dtp_op_call call = {
        .op = dtp_op_find(bench->op), .dims = &g->dims, .attrs = attrs, .in = in, .out = out};
    for (; call.n_in < 6 && bench->in[call.n_in] != NULL; call.n_in++) {
        const char *text = bench->in[call.n_in];
        bool whole = strncmp(text, "i:", 2) == 0;
        in[call.n_in].dtype = whole ? DTP_I32 : dtype;
        in[call.n_in].rank = read_dims(&g->dims, text + (whole ? 2 : 0), in[call.n_in].dims);
        make_view(&in_views[call.n_in], &in[call.n_in]);
    }
    call.n_attrs = read_attrs(&g->dims, call.op, bench->attrs, attrs, ids, ints);
    call.n_out = call.op->n_out;
    out[0].rank = bench->out != NULL ? read_dims(&g->dims, bench->out, out[0].dims) : 0;
    if (call.op->infer(&call, bench->out != NULL, out, &err) != DTP_OK) {
        fail(err.msg);
    }
    double bytes = 0.0;
    for (int32_t i = 0; i < call.n_in; i++) {
        bytes += (double)dtp_ttype_bytes(&in[i]);
    }
    for (int32_t i = 0; i < call.n_out; i++) {
        make_view(&out_views[i], &out[i]);
        bytes += (double)dtp_ttype_bytes(&out[i]);
    }
    int64_t workspace = dtp_target_workspace(&dtp_target_cpu, &call);
    dtp_step_record record = dtp_step_record_init(0, 0);
    record.microbatch = 1; /* `accumulate` adds */
    dtp_kernel_args args = {.call = &call,
                            .in = in_views,
                            .out = out_views,
                            .workspace_bytes = workspace,
                            .record = &record};
    args.workspace = aligned_alloc(64, (size_t)(workspace + 127) / 64 * 64);
    double t = time_op(b, &args, g->arena);
    double rate = (bench->flops > 0.0 ? bench->flops : bytes) / t * 1e-9;
    printf("%-20s %-25s %-4s %9.1f us %8.1f %s %5.2f of %s\n", bench->op, bench->in[0],
           dtp_dtype_name(dtype), t * 1e6, rate, bench->flops > 0.0 ? "GFLOP/s" : "GB/s   ",
           rate /
               (bench->flops > 0.0 ? gemm_rate[dtype != DTP_F32] : measure_copy(b->threads, bytes)),
           bench->flops > 0.0 ? "a product" : "copy");
    for (int32_t i = 0; i < call.n_in; i++) {
        free(in_views[i].data);
    }
    for (int32_t i = 0; i < call.n_out; i++) {
        free(out_views[i].data);
    }
    free(args.workspace);
    dtp_graph_destroy(g);
    return t;
}

/* Those of ResNets: batch, channels in and out, image, kernel, stride. */
static const bench_conv CONVS[] = {
    {'y', false, 8, 64, 64, 56, 3, 1},   {'y', false, 8, 128, 128, 28, 3, 1},
    {'y', false, 8, 256, 256, 14, 3, 1}, {'y', false, 8, 512, 512, 7, 3, 1},
    {'y', false, 8, 64, 128, 56, 3, 2},  {'y', false, 8, 256, 64, 56, 1, 1},
    {'y', false, 8, 3, 64, 224, 7, 2},
};

/* A convolution and its derivatives, beside those of oneDNN. */
static void run_conv(dtp_backend *b, bench_conv c, const double gemm_rate[2])
{
    static const char *const ops[] = {"conv", "conv_transpose", "conv_weight"};
    const int64_t places = (c.image + c.stride - 1) / c.stride;
    char x[64], w[64], y[64], attrs[64];
    snprintf(x, sizeof x, "n=%d c=%d h=%d w=%d", (int)c.batch, (int)c.in, (int)c.image,
             (int)c.image);
    snprintf(w, sizeof w, "o=%d c=%d p=%d q=%d", (int)c.out, (int)c.in, (int)c.kernel,
             (int)c.kernel);
    snprintf(y, sizeof y, "n=%d o=%d h=%d w=%d", (int)c.batch, (int)c.out, (int)places,
             (int)places);
    snprintf(attrs, sizeof attrs, "spatial=h,w kernel=p,q padding=1 stride=%d", (int)c.stride);
    for (int i = 0; i < 3; i++) {
        c.result = "yxw"[i];
        const bench_op op = {.op = ops[i],
                             .attrs = attrs,
                             .in = {i == 1 ? y : x, i == 2 ? y : w},
                             .out = i == 0   ? y
                                    : i == 1 ? x
                                             : w,
                             .flops = 2.0 * (double)(c.batch * c.in * c.out * places * places) *
                                      (double)(c.kernel * c.kernel)};
        const dtp_dtype dtype = c.bf16 ? DTP_BF16 : DTP_F32;
        const double own = run_one(b, &op, dtype, gemm_rate),
                     theirs = b->threads > 1 ? 0.0 : bench_onednn(&c);
        if (theirs > 0.0) {
            printf("%-51s %9.1f us %5.2f of it\n", "    by oneDNN in its own order", theirs * 1e6,
                   theirs / own);
        }
    }
}

static double measure_gemm(int32_t threads, dtp_dtype dtype)
{
    enum { N = 1024 };
    float *p = aligned_alloc(64, (size_t)3 * N * N * sizeof *p);
    double best = 1e9;
    for (int i = 0; i < 3 * N * N; i++) {
        p[i] = (float)(i % 17);
    }
    const dtp_gemm_desc g = {.m = N,
                             .n = N,
                             .k = N,
                             .alpha = 1.0f,
                             .lda = N,
                             .ldb = N,
                             .ldc = N,
                             .ab_type = dtype,
                             .c_type = dtype};
    dtp_scratch scratch = {0};
    const dtp_gemm_options options = {.threads = threads, .scratch = &scratch};
    dtp_gemm_plan *plan = NULL;
    dtp_err err;
    if (dtp_gemm_plan_create(&g, NULL, &options, &plan, &err) != DTP_OK) {
        fail(err.msg);
    }
    for (int i = 0; i < 10; i++) {
        double t = now_s(threads);
        dtp_gemm_plan_run(plan, p, p + N * N, p + 2 * N * N);
        t = now_s(threads) - t;
        best = t < best ? t : best;
    }
    dtp_gemm_plan_destroy(plan);
    free(p);
    return 2.0 * N * N * (double)N / best * 1e-9;
}

int main(int argc, char **argv)
{
    dtp_backend *b;
    int32_t threads = argc > 1 ? atoi(argv[1]) : 1;
    dtp_err err;
    if (dtp_backend_create("cpu", threads, &b, &err) != DTP_OK) {
        fail(err.msg);
    }
    const double copy = measure_copy(threads, 25165824.0);
    const double gemm[] = {measure_gemm(threads, DTP_F32), measure_gemm(threads, DTP_BF16)};
    printf("threads %d, OpenBLAS %s, copy %.1f GB/s, products %.1f (f32), %.1f (bf16) GFLOP/s\n",
           threads, dtp_blas_get()->corename(), copy, gemm[0], gemm[1]);
    for (size_t i = 0; i < sizeof BENCH / sizeof BENCH[0]; i++) {
        (void)run_one(b, &BENCH[i], DTP_F32, gemm);
    }
    for (size_t i = 0; i < 2 * (sizeof CONVS / sizeof CONVS[0]); i++) {
        bench_conv c = CONVS[i / 2];
        c.bf16 = i % 2 == 1;
        run_conv(b, c, gemm);
    }
    dtp_backend_destroy(b);
    return 0;
}
