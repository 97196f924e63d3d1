/* Kernels whose meaning depends on where a shard lies (random values, ids, labels, positions), on
 * a CUDA device, the emulated one or a card, against the CPU backend, shard by shard. A kernel is
 * bound once for all shards of one size, so that it has to look at offsets when it runs; it runs
 * twice with different orders of threads and blocks, and the bits must be the same. Some cases are
 * large: rows of several words, sorts of several tiles, sums over several chunks. Usage:
 * test_cuda_shards [seed]
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/arena.h"
#include "core/layout/layout.h"
#include "executor/device/step_state.h"
#include "executor/cpu/cpu.h"
#include "executor/device/convert.h"
#include "executor/device/shard.h"
#include "spmd/target/target.h"
#include "tests/cuda/device_controls.h"
#include "tests/ops/cases.h"

/* `error` is relative to the largest element; 0: the same bits. */
typedef struct shard_case {
    dtp_op_case c;
    const char *dim;
    int32_t parts;
    uint32_t whole; /* operands that are not split, a set of bits */
    double error;
} shard_case;

enum { WEIGHTS = 1U << 2, SIDES = 2, OPERANDS = DTP_MAX_OP_IN + DTP_MAX_OP_OUT };

static const shard_case CASES[] = {
    {{.op = "dropout", .in = {"a=12,b=70"}, .attrs = "rate=0.25"}, "a", 4, 0, 0.0},
    {{.op = "dropout", .in = {"a=5,b=66"}, .attrs = "rate=0.5"}, "b", 3, 0, 0.0},
    {{.op = "uniform", .out = "a=9,b=14", .attrs = "low=-1; high=3; dtype=float"}, "b", 2, 0, 0.0},
    {{.op = "normal", .out = "a=6,b=7", .attrs = "dtype=float"}, "a", 3, 0, 1e-6},
    {{.op = "normal", .out = "a=3,b=7", .attrs = "dtype=float"}, "b", 4, 0, 1e-6},
    {{.op = "iota", .out = "a=3,b=10,c=2", .attrs = "dim=b; dtype=i64"}, "b", 4, 0, 0.0},
    {{.op = "iota", .out = "a=7", .attrs = "dim=a; dtype=float"}, "a", 2, 0, 0.0},
    {{.op = "one_hot", .in = {"a=9 ids:8"}, .out = "a=9,c=8", .attrs = "dim=c"}, "c", 2, 0, 0.0},
    {{.op = "one_hot",
      .in = {"a=9 ids64:3"},
      .out = "c=3,a=9",
      .attrs = "dim=c; on=0.75; off=-0.5"},
     "c",
     4,
     0,
     0.0},
    {{.op = "embedding", .in = {"v=12,d=16", "a=7,b=3 ids:12"}, .attrs = "over=v"}, "v", 3, 0, 0.0},
    {{.op = "embedding", .in = {"v=7,d=3", "a=9 ids64:7"}, .attrs = "over=v"}, "v", 2, 0, 0.0},
    {{.op = "embedding", .in = {"v=7,d=24", "a=9 ids:7"}, .attrs = "over=v"}, "d", 3, 0, 0.0},
    {{.op = "gather", .in = {"a=3,v=8,b=2", "k=5 ids:8"}, .attrs = "over=v"}, "v", 2, 0, 0.0},
    {{.op = "gather", .in = {"a=4,v=7", "a=4,k=4 ids:7"}, .attrs = "over=v"}, "a", 2, 0, 0.0},
    {{.op = "embedding_grad", .in = {"a=9,b=3 ids:8", "a=9,b=3,d=7"}, .attrs = "over=v; size=8"},
     "v",
     4,
     0,
     1e-6},
    {{.op = "embedding_grad", .in = {"a=2500 ids:60", "a=2500,d=5"}, .attrs = "over=v; size=60"},
     "v",
     7,
     0,
     1e-5},
    {{.op = "embedding_grad", .in = {"a=1100 ids64:2", "a=1100,d=3"}, .attrs = "over=v; size=2"},
     "v",
     1,
     0,
     1e-5},
    {{.op = "embedding_grad", .in = {"a=96 ids:1", "a=96,d=3"}, .attrs = "over=v; size=1"},
     "a",
     3,
     0,
     1e-5},
    {{.op = "scatter_add",
      .in = {"a=4,k=300 ids:6", "k=300,a=4,b=2"},
      .attrs = "over=v; along=k; size=6"},
     "v",
     2,
     0,
     1e-5},
    {{.op = "scatter_add",
      .in = {"a=300,k=4 ids64:9", "k=4,a=300 ids:1000"},
      .attrs = "over=v; along=a; size=9"},
     "v",
     2,
     0,
     0.0},
    {{.op = "scatter_add", .in = {"a=1030 ids:3", "a=1030"}, .attrs = "over=v; along=a; size=3"},
     "a",
     2,
     0,
     1e-5},
    {{.op = "rope", .in = {"b=2,a=12,f=8"}, .attrs = "position=a; feature=f"}, "a", 3, 0, 2e-6},
    {{.op = "rope",
      .in = {"a=12,b=40,f=4"},
      .attrs = "position=a; feature=f; order=zigzag; chunks=3; offset=5"},
     "a",
     2,
     0,
     2e-6},
    {{.op = "cross_entropy", .in = {"a=10,v=1031", "a=10 ids:1031"}, .attrs = "over=v"},
     "a",
     2,
     0,
     1e-5},
    {{.op = "cross_entropy",
      .in = {"a=5,v=1500", "a=5 ids:1500", "v=1500 weight"},
      .attrs = "over=v; smoothing=0.1; reduce=none; ignore=7"},
     "a",
     2,
     0,
     1e-5},
    {{.op = "cross_entropy", .in = {"v=37,a=5", "a=5 ids:37"}, .attrs = "over=v; reduce=sum"},
     "a",
     2,
     0,
     1e-5},
    {{.op = "cross_entropy_grad",
      .in = {"a=3,v=4101", "a=3 ids:4101", "a=3 pos", "-"},
      .attrs = "over=v"},
     "v",
     3,
     0,
     1e-5},
    {{.op = "cross_entropy_grad",
      .in = {"a=9,v=10", "a=9 ids:10", "a=9 pos", "a=9", "v=10 weight"},
      .attrs = "over=v; smoothing=0.2; reduce=none; ignore=4"},
     "v",
     4,
     1U << 4,
     1e-5},
    {{.op = "pick", .in = {"a=9,v=10", "a=9 ids:10"}, .attrs = "over=v"}, "v", 3, 0, 1e-6},
    {{.op = "pick",
      .in = {"v=20,a=9", "a=9 ids:20", "v=20 weight"},
      .attrs = "over=v; smoothing=0.2; ignore=1"},
     "v",
     2,
     WEIGHTS,
     1e-5},
    {{.op = "label_weight",
      .in = {"a=300,b=2 ids:4", "v=4 weight"},
      .attrs = "over=v; smoothing=0.2; ignore=1; dtype=float"},
     "a",
     2,
     0,
     1e-5},
    {{.op = "cross_entropy_finish", .in = {"a=600", "a=600 pos", "a=600"}}, "a", 2, 0, 1e-5},
};

/* A backend with buffers for the operands, then the outputs, and a bound kernel. */
typedef struct side {
    dtp_backend *b;
    dtp_view views[OPERANDS];
    void *workspace;
    int64_t workspace_bytes;
    dtp_arena *arena;
    dtp_step_state step;
    dtp_bound_kernel kernel;
} side;

typedef struct shards {
    const shard_case *c;
    dtp_case_graph cg;
    dtp_call_types global, local;
    dtp_op_call call;
    dtp_dim_id dim;
    side sides[SIDES];
} shards;

static uint64_t seed = 20240517;
static dtp_backend *backends[SIDES]; /* cpu, cuda */
static dtp_step_record record;

static int make_backends(void **state)
{
    dtp_err err;
    (void)state;
    record = dtp_step_record_init(7, 2);
    assert_int_equal(dtp_backend_cpu_create(1, &backends[0], NULL), DTP_OK);
    if (dtp_backend_create("cuda", 1, &backends[1], &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return 0;
}

static int drop_backends(void **state)
{
    (void)state;
    for (int32_t i = 0; i < SIDES; i++) {
        assert_int_equal(backends[i]->allocated_bytes, 0);
        dtp_backend_destroy(backends[i]);
    }
    return 0;
}

static const dtp_ttype *global_of(const shards *s, int32_t t)
{
    return t < s->call.n_in ? &s->global.in[t] : &s->global.out[t - s->call.n_in];
}

/* What part `p` has of operand or output t. */
static dtp_shard shard_of(const shards *s, int32_t t, int32_t p)
{
    const dtp_ttype *type = global_of(s, t);
    const int32_t axis = dtp_ttype_find(type, s->dim);
    dtp_shard shard = dtp_shard_whole(type);
    if (axis >= 0 && (s->c->whole >> t & 1U) == 0) {
        dtp_chunk(type->dims[axis].size, s->c->parts, p, &shard.offset[axis], &shard.size[axis]);
    }
    return shard;
}

static void start(shards *s, const shard_case *c, dtp_dtype dtype)
{
    memset(s, 0, sizeof *s);
    s->c = c;
    case_build(&c->c, dtype, seed, &s->cg);
    s->call = dtp_node_call(s->cg.g, &s->cg.g->nodes[s->cg.node], &s->global);
    s->local = s->global;
    s->call.in = s->local.in;
    s->call.out = s->local.out;
    s->dim = dtp_dims_find(&s->cg.g->dims, c->dim);
    assert_true(s->dim >= 0);
    for (int32_t i = 0; i < SIDES; i++) {
        side *e = &s->sides[i];
        e->b = backends[i];
        for (int32_t t = 0; t < s->call.n_in + s->call.n_out; t++) {
            const size_t bytes = (size_t)dtp_ttype_bytes(global_of(s, t));
            e->views[t] = dtp_view_whole(global_of(s, t));
            assert_int_equal(e->b->ops->alloc(e->b, bytes, &e->views[t].data, NULL), DTP_OK);
        }
    }
}

static void unbind(side *e)
{
    e->b->ops->free(e->b, e->workspace, (size_t)e->workspace_bytes);
    dtp_arena_destroy(e->arena);
    dtp_step_state_free(&e->step);
    memset(&e->step, 0, sizeof e->step);
    e->workspace = NULL;
    e->arena = NULL;
}

static void finish(shards *s)
{
    for (int32_t i = 0; i < SIDES; i++) {
        side *e = &s->sides[i];
        unbind(e);
        for (int32_t t = 0; t < s->call.n_in + s->call.n_out; t++) {
            e->b->ops->free(e->b, e->views[t].data, (size_t)dtp_ttype_bytes(global_of(s, t)));
        }
    }
    dtp_case_free(&s->cg);
}

/* Sizes and offsets of part p; whether sizes changed. */
static bool localise(shards *s, int32_t p)
{
    bool changed = p == 0;
    for (int32_t t = 0; t < s->call.n_in + s->call.n_out; t++) {
        const dtp_shard shard = shard_of(s, t, p);
        dtp_ttype *local = t < s->call.n_in ? &s->local.in[t] : &s->local.out[t - s->call.n_in];
        for (int32_t i = 0; i < local->rank; i++) {
            changed = changed || local->dims[i].size != shard.size[i];
            local->dims[i].size = shard.size[i];
        }
        for (int32_t i = 0; i < SIDES; i++) {
            s->sides[i].views[t].local = *local;
            memcpy(s->sides[i].views[t].offset, shard.offset, sizeof shard.offset);
        }
    }
    return changed;
}

static void bind(shards *s, side *e)
{
    dtp_err err;
    unbind(e);
    e->workspace_bytes = dtp_target_workspace(dtp_target_of_backend(e->b->ops->name), &s->call);
    assert_int_equal(e->b->ops->alloc(e->b, (size_t)e->workspace_bytes, &e->workspace, NULL),
                     DTP_OK);
    e->arena = dtp_arena_create();
    dtp_kernel_args args = {.call = &s->call,
                            .in = e->views,
                            .out = e->views + s->call.n_in,
                            .workspace = e->workspace,
                            .workspace_bytes = e->workspace_bytes};
    assert_int_equal(dtp_step_state_init(&e->step, e->b, 1, NULL), DTP_OK);
    e->step.record = record;
    dtp_step_state_link(&e->step, &args);
    if (dtp_backend_bind(e->b, &args, e->arena, &e->kernel, &err) != DTP_OK) {
        fail_msg("%s: %s", s->c->c.op, err.msg);
    }
}

/* What part p has of an operand, on both sides; outputs become bytes that are no useful value. */
static void load(const shards *s, int32_t p)
{
    for (int32_t t = 0; t < s->call.n_in + s->call.n_out; t++) {
        const dtp_ttype *type = global_of(s, t);
        const dtp_shard whole = dtp_shard_whole(type), shard = shard_of(s, t, p);
        const int64_t bytes = dtp_dtype_bytes(type->dtype);
        const size_t local = (size_t)(dtp_shard_elems(&shard) * bytes);
        char *all = malloc((size_t)dtp_ttype_bytes(type) + 1), *part = malloc(local + 1);
        assert_non_null(all);
        assert_non_null(part);
        memset(part, 0xcb, local);
        if (t < s->call.n_in) {
            for (int64_t i = 0; i < dtp_ttype_elems(type); i++) {
                dtp_element_set(type->dtype, all, i, s->cg.values[t][i]);
            }
            dtp_shard_copy(&shard, &whole, all, &shard, part, bytes);
        }
        for (int32_t i = 0; i < SIDES; i++) {
            dtp_backend *b = s->sides[i].b;
            assert_int_equal(b->ops->upload(b, s->sides[i].views[t].data, part, local, NULL),
                             DTP_OK);
        }
        free(all);
        free(part);
    }
}

static void run(const shards *s, side *e)
{
    dtp_err err;
    dtp_status status = dtp_step_state_put(&e->step, &err);
    status = status == DTP_OK ? dtp_bound_kernel_run(&e->kernel, &err) : status;
    status = status == DTP_OK ? dtp_bound_kernel_check(&e->kernel, &err) : status;
    if (status != DTP_OK) {
        fail_msg("%s on %s: %s", s->c->c.op, e->b->ops->name, err.msg);
    }
}

/* Output o of a side, in memory of the caller. */
static void *fetch(const shards *s, const side *e, int32_t o)
{
    const dtp_view *view = &e->views[s->call.n_in + o];
    const size_t bytes = (size_t)dtp_ttype_bytes(&view->local);
    void *host = malloc(bytes + 1);
    assert_non_null(host);
    assert_int_equal(e->b->ops->download(e->b, host, view->data, bytes, NULL), DTP_OK);
    return host;
}

static void compare(const shards *s, int32_t p, int32_t o, const void *cpu, const void *cuda)
{
    const dtp_ttype *type = &s->local.out[o];
    const double rounding = type->dtype == DTP_BF16 ? 0x1p-7 : type->dtype == DTP_F16 ? 0x1p-10 : 0;
    double size = 0.0, error = 0.0;
    for (int64_t i = 0; i < dtp_ttype_elems(type); i++) {
        const double a = dtp_element(type->dtype, cpu, i), b = dtp_element(type->dtype, cuda, i);
        size = fmax(size, fabs(a));
        error = isfinite(a) && isfinite(b) ? fmax(error, fabs(a - b)) : (double)INFINITY;
    }
    const double allowed = s->c->error > 0.0 ? (s->c->error + rounding) * size : 0.0;
    if (!(error <= allowed)) {
        fail_msg("%s (%s) of %s, part %d of %d of '%s': output %d is off by %g, allowed %g, seed "
                 "%llu",
                 s->c->c.op, s->c->c.attrs == NULL ? "" : s->c->c.attrs,
                 dtp_dtype_name(type->dtype), p, s->c->parts, s->c->dim, o, error, allowed,
                 (unsigned long long)seed);
    }
}

static void check_part(shards *s, int32_t p)
{
    side *cpu = &s->sides[0], *cuda = &s->sides[1];
    void *first[DTP_MAX_OP_OUT];
    load(s, p);
    run(s, cpu);
    run(s, cuda);
    for (int32_t o = 0; o < s->call.n_out; o++) {
        first[o] = fetch(s, cuda, o);
    }
    cuda_emu_seed(seed + (uint64_t)p + 1);
    run(s, cuda);
    for (int32_t o = 0; o < s->call.n_out; o++) {
        void *want = fetch(s, cpu, o), *again = fetch(s, cuda, o);
        compare(s, p, o, want, first[o]);
        if (memcmp(first[o], again, (size_t)dtp_ttype_bytes(&s->local.out[o])) != 0) {
            fail_msg("%s: output %d depends on the order of threads", s->c->c.op, o);
        }
        free(want);
        free(again);
        free(first[o]);
    }
}

static void test_shards__equal_cpu(void **state)
{
    static const dtp_dtype floats[] = {DTP_F32, DTP_BF16, DTP_F16};
    (void)state;
    for (size_t k = 0; k < sizeof CASES / sizeof CASES[0]; k++) {
        for (size_t d = 0; d < sizeof floats / sizeof floats[0]; d++) {
            shards s;
            start(&s, &CASES[k], floats[d]);
            for (int32_t p = 0; p < CASES[k].parts; p++) {
                const bool again = localise(&s, p);
                for (int32_t i = 0; again && i < SIDES; i++) {
                    bind(&s, &s.sides[i]);
                }
                check_part(&s, p);
            }
            finish(&s);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shards__equal_cpu)};
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    const int skipped = skip_without_card();
    return skipped != 0 ? skipped : cmocka_run_group_tests(tests, make_backends, drop_backends);
}
