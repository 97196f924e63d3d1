/* Work of the ranks in causal attention over a split sequence, contiguous against zigzag: the CPU
 * kernel is run on the queries of every rank, with all keys (gather) and with every chunk of keys
 * (ring, where a step takes as long as its slowest rank). Not a test: prints a table.
 * bench_context [RANKS [SEQUENCE]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/graph/graph.h"
#include "core/graph/ops/op_table.h"
#include "spmd/target/target.h"
#include "executor/cpu/cpu.h"

enum { HEADS = 4, FEATURES = 64, REPEATS = 3, MAX_RANKS = 64 };

static void must(dtp_status s, const dtp_err *err)
{
    if (s != DTP_OK) {
        fprintf(stderr, "bench_context: %s\n", err->msg);
        exit(1);
    }
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One kind of run: a node of attention_part on global types and its kernel. */
typedef struct bench {
    dtp_graph *g;
    dtp_backend *backend;
    dtp_dim_id cut; /* split over the ranks: queries, or the chunk dim */
    dtp_call_types types;
    dtp_op_call call;
} bench;

static dtp_tensor_id add_input(dtp_graph *g, const char *name, int32_t n, const char *const *dims,
                               const int64_t *sizes)
{
    dtp_graph_tensor spec = {.name = name, .kind = DTP_TENSOR_INPUT, .type = {.dtype = DTP_F32}};
    dtp_tensor_id out = -1;
    dtp_err err = {0};
    for (int32_t i = 0; i < n; i++) {
        spec.type.dims[i].size = sizes[i];
        must(dtp_dims_intern(&g->dims, dims[i], sizes[i], &spec.type.dims[i].id, &err), &err);
    }
    spec.type.rank = n;
    must(dtp_graph_add_tensor(g, &spec, &out, &err), &err);
    return out;
}

/* shift < 0: all keys at once. */
static void open_bench(bench *b, dtp_backend *backend, int64_t ranks, int64_t size, bool zigzag,
                       int64_t shift)
{
    const bool gather = shift < 0;
    static const char *const names[] = {"h", "c", "s", "f"}, *const key_names[] = {"h", "c", "t",
                                                                                   "f"};
    const int64_t chunks = gather ? 1 : ranks;
    const int64_t q[] = {HEADS, chunks, size / chunks, FEATURES};
    const int64_t kv[] = {HEADS, chunks, size / chunks, 2 * FEATURES};
    dtp_err err = {0};
    must(dtp_graph_create("bench", dtp_builtin_ops(), &b->g, &err), &err);
    const dtp_tensor_id in[] = {add_input(b->g, "q", 4, names, q),
                                add_input(b->g, "kv", 4, gather ? key_names : names, kv)};
    const dtp_dim_id s = dtp_dims_find(&b->g->dims, "s"), t = dtp_dims_find(&b->g->dims, "t");
    const dtp_dim_id c = dtp_dims_find(&b->g->dims, "c");
    const dtp_attr attrs[] = {dtp_attr_dim("query", s),
                              dtp_attr_dim("key", gather ? t : s),
                              dtp_attr_dim("feature", dtp_dims_find(&b->g->dims, "f")),
                              dtp_attr_int("order", zigzag ? 1 : 0),
                              dtp_attr_int("chunks", ranks),
                              dtp_attr_dim("chunk", c),
                              dtp_attr_int("shift", gather ? 0 : shift)};
    dtp_node_spec spec = dtp_node_spec_init("part", "attention_part");
    spec.n_in = 2;
    spec.in = in;
    spec.n_attrs = 7;
    spec.attrs = attrs;
    must(dtp_graph_add_node(b->g, &spec, NULL, &err), &err);
    b->call = dtp_node_call(b->g, &b->g->nodes[0], &b->types);
    b->backend = backend;
    b->cut = gather ? s : c;
}

/* The piece of an operand that the rank holds, filled. */
static dtp_view make_view(const bench *b, dtp_ttype *type, int64_t ranks, int64_t rank)
{
    dtp_view v = {.local = *type};
    for (int32_t i = 0; i < type->rank; i++) {
        v.global[i] = type->dims[i].size;
        if (type->dims[i].id == b->cut) {
            v.local.dims[i].size /= ranks;
            v.offset[i] = rank * v.local.dims[i].size;
        }
    }
    *type = v.local;
    int64_t n = dtp_ttype_elems(type);
    float *data = malloc((size_t)n * sizeof *data);
    for (int64_t i = 0; i < n && data != NULL; i++) {
        data[i] = (float)(i * 7919 % 1000) * 1e-3f;
    }
    v.data = data;
    return v;
}

static double time_rank(const bench *b, int64_t ranks, int64_t rank)
{
    bench local = *b;
    dtp_view in[2], out[2];
    dtp_err err = {0};
    double best = 1e9;
    local.call.in = local.types.in;
    local.call.out = local.types.out;
    for (int32_t i = 0; i < 2; i++) {
        in[i] = make_view(b, &local.types.in[i], ranks, rank);
        out[i] = make_view(b, &local.types.out[i], ranks, rank);
    }
    int64_t bytes = dtp_target_workspace(&dtp_target_cpu, &local.call);
    const dtp_step_record record = dtp_step_record_init(0, 0);
    dtp_kernel_args args = {.call = &local.call, .in = in, .out = out, .record = &record};
    dtp_bound_kernel kernel;
    args.workspace_bytes = bytes;
    args.workspace = aligned_alloc(64, (size_t)(bytes + 127) / 64 * 64);
    must(dtp_backend_bind(b->backend, &args, b->g->arena, &kernel, &err), &err);
    for (int32_t k = 0; k < REPEATS; k++) {
        double t = now_s();
        must(dtp_bound_kernel_run(&kernel, &err), &err);
        t = now_s() - t;
        best = t < best ? t : best;
    }
    for (int32_t i = 0; i < 2; i++) {
        free(in[i].data);
        free(out[i].data);
    }
    free(args.workspace);
    return best;
}

/* Adds up steps of the slowest rank; times of every rank add up in `by_rank`. */
static double measure(dtp_backend *backend, int64_t ranks, int64_t size, bool zigzag, bool ring,
                      double by_rank[MAX_RANKS])
{
    double total = 0.0;
    memset(by_rank, 0, MAX_RANKS * sizeof *by_rank);
    for (int64_t shift = ring ? 0 : -1; shift < (ring ? ranks : 0); shift++) {
        bench b;
        double slowest = 0.0;
        open_bench(&b, backend, ranks, size, zigzag, shift);
        for (int64_t r = 0; r < ranks; r++) {
            double t = time_rank(&b, ranks, r);
            by_rank[r] += t;
            slowest = t > slowest ? t : slowest;
        }
        total += slowest;
        dtp_graph_destroy(b.g);
    }
    return total;
}

int main(int argc, char **argv)
{
    const int64_t ranks = argc > 1 ? atoll(argv[1]) : 4, size = argc > 2 ? atoll(argv[2]) : 4096;
    dtp_backend *backend = NULL;
    dtp_err err = {0};
    if (ranks < 1 || ranks > MAX_RANKS || size < 1 || size % (2 * ranks) != 0) {
        fprintf(stderr,
                "bench_context: 1 to %d ranks, and a sequence that twice the ranks divide\n",
                MAX_RANKS);
        return 2;
    }
    must(dtp_backend_cpu_create(1, &backend, &err), &err);
    printf("%lld ranks, %lld positions, %d heads of %d features\n", (long long)ranks,
           (long long)size, HEADS, FEATURES);
    for (int32_t k = 0; k < 4; k++) {
        double by_rank[MAX_RANKS], low = 1e9, high = 0.0;
        double total = measure(backend, ranks, size, k % 2 == 1, k / 2 == 1, by_rank);
        for (int64_t r = 0; r < ranks; r++) {
            low = by_rank[r] < low ? by_rank[r] : low;
            high = by_rank[r] > high ? by_rank[r] : high;
        }
        printf("%-6s %-10s  time %8.2f ms  busiest rank %8.2f ms  idlest %8.2f ms  ratio %5.2f\n",
               k / 2 == 1 ? "ring" : "gather", k % 2 == 1 ? "zigzag" : "contiguous", total * 1e3,
               high * 1e3, low * 1e3, high / low);
    }
    dtp_backend_destroy(backend);
    return 0;
}
