/* Kernels of the ops on single elements and of copies, on shapes that take every way through them:
 * groups of elements with and without a rest, rows, broadcasts, transposition in tiles, wide words,
 * operands that are not aligned. Random values and conversions are bitwise those of the CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/arena.h"
#include "cuda_emu.h"
#include "executor/device/step_state.h"
#include "executor/cpu/cpu.h"
#include "executor/cuda/kernels/elementwise/optimizer.h"
#include "executor/device/convert.h"
#include "executor/ref/ref.h"
#include "tests/ops/against_ref.h"

static const dtp_dtype FLOATS[] = {DTP_F32, DTP_BF16, DTP_F16};
enum { N_FLOATS = sizeof FLOATS / sizeof FLOATS[0], SEEDS = 3 };

static const dtp_op_case CASES[] = {
    {.op = "exp", .in = {"a=1003"}},
    {.op = "gelu", .in = {"a=16,b=64"}},
    {.op = "gelu_erf", .in = {"a=16,b=64"}},
    {.op = "gelu_erf_grad", .in = {"a=24,b=64", "a=24,b=64"}},
    {.op = "mod", .in = {"a=9,b=64 pos", "b=64 pos"}},
    {.op = "mod", .in = {"a=33,b=7 ids:9", "b=7 ids:9"}},
    {.op = "clamp", .in = {"a=2051"}, .attrs = "low=-0.5; high=0.25"},
    {.op = "add", .in = {"a=9,b=64", "b=64"}},
    {.op = "add", .in = {"a=9,b=36", "a=9"}},
    {.op = "mul", .in = {"a=8,b=24", "b=24,a=8"}},
    {.op = "sub", .in = {"a=1001", "-"}},
    {.op = "div", .in = {"a=3,b=8,c=16", "a=3,c=16"}},
    {.op = "gelu_grad", .in = {"a=24,b=64", "a=24,b=64"}},
    {.op = "max", .in = {"a=33,b=7 ids:9", "b=7 ids:9"}},
    {.op = "min", .in = {"a=40,b=8 ids64:9", "b=8 ids64:9"}},
    {.op = "mul", .in = {"a=513 ids64:9", "- ids64:9"}},
    {.op = "compare", .in = {"a=16,b=64", "b=64"}, .attrs = "cmp=ge"},
    {.op = "compare", .in = {"a=517 ids:5", "a=517 ids:5"}, .attrs = "cmp=eq"},
    {.op = "logical_xor", .in = {"a=9,b=40 bool", "b=40 bool"}},
    {.op = "logical_not", .in = {"a=1031 bool"}},
    {.op = "select", .in = {"a=9,b=64 bool", "a=9,b=64", "b=64"}},
    {.op = "select", .in = {"a=515 bool", "a=515 ids64:9", "- ids64:9"}},
    {.op = "select", .in = {"a=515 bool", "a=515 bool", "a=515 bool"}},
    {.op = "cast", .in = {"a=16,b=64"}, .attrs = "dtype=f32", .no_fd = true},
    {.op = "cast", .in = {"a=1027"}, .attrs = "dtype=bf16", .no_fd = true},
    {.op = "cast", .in = {"a=9,b=64"}, .attrs = "dtype=f16", .no_fd = true},
    {.op = "cast", .in = {"a=520 ids64:9"}, .attrs = "dtype=bool"},
    {.op = "permute", .in = {"a=70,b=33"}, .out = "b=33,a=70"},
    {.op = "permute", .in = {"a=3,b=65,c=2,d=130"}, .out = "c=2,d=130,a=3,b=65"},
    {.op = "permute", .in = {"a=66,b=70 bool"}, .out = "b=70,a=66"},
    {.op = "permute", .in = {"a=40,b=50 ids64:9"}, .out = "b=50,a=40"},
    {.op = "permute", .in = {"a=4,b=6,c=5,d=16"}, .out = "a=4,c=5,b=6,d=16"},
    {.op = "permute", .in = {"a=4,b=64,c=3"}, .out = "c=3,a=4,b=64"},
    {.op = "broadcast", .in = {"a=20"}, .out = "a=20,b=64"},
    {.op = "broadcast", .in = {"a=20"}, .out = "b=33,a=20"},
    {.op = "broadcast", .in = {"- ids:9"}, .out = "a=1001"},
    {.op = "slice", .in = {"a=6,b=48"}, .attrs = "dim=b; start=8; stop=40"},
    {.op = "slice", .in = {"a=6,b=48"}, .attrs = "dim=b; start=2; stop=21"},
    {.op = "pad", .in = {"a=6,b=48"}, .attrs = "dim=b; before=16; after=64"},
    {.op = "pad", .in = {"a=6,b=47"}, .attrs = "dim=b; before=3; after=1"},
    {.op = "pad", .in = {"a=6,b=5,c=16 ids64:9"}, .attrs = "dim=b; before=3; after=1"},
    {.op = "concat", .in = {"a=6,b=48", "a=6,b=16", "a=6,b=7"}, .attrs = "dim=b"},
    {.op = "stack", .in = {"a=40,b=24", "a=40,b=24"}, .out = "a=40,b=24,s=2", .attrs = "dim=s"},
    {.op = "stack", .in = {"a=40,b=24", "a=40,b=24"}, .out = "b=24,s=2,a=40", .attrs = "dim=s"},
    {.op = "roll", .in = {"a=3,b=48,c=8"}, .attrs = "dim=b; shift=-17"},
    {.op = "reorder", .in = {"a=3,b=48,c=8"}, .attrs = "dim=b; chunks=4"},
    {.op = "reorder", .in = {"a=3,b=48"}, .attrs = "dim=b; chunks=3; inverse=1"},
    {.op = "iota", .in = {NULL}, .out = "a=7,b=130,c=3", .attrs = "dim=b; dtype=float"},
    {.op = "iota", .in = {NULL}, .out = "a=700", .attrs = "dim=a; dtype=f64"},
    {.op = "iota", .in = {NULL}, .out = "a=2,b=9", .attrs = "dim=a; dtype=bool"},
    {.op = "constant", .in = {NULL}, .out = "a=1031", .attrs = "value=-1.25; dtype=float"},
    {.op = "constant", .in = {NULL}, .out = "a=77", .attrs = "value=7e9; dtype=i64"},
    {.op = "constant", .in = {NULL}, .out = "a=77", .attrs = "value=1.3; dtype=f64"},
    {.op = "dropout", .in = {"a=7,b=90"}, .attrs = "rate=0.25"},
    {.op = "sgd", .in = {"a=4099", "a=4099"}, .attrs = "lr=0.1; weight_decay=0.01"},
    {.op = "momentum", .in = {"a=9,b=8", "a=9,b=8", "a=9,b=8"}, .attrs = "lr=0.1; momentum=0.9"},
    {.op = "adamw",
     .in = {"a=5000", "a=5000", "a=5000", "a=5000 pos", "- pos"},
     .attrs = "lr=0.1; weight_decay=0.01"},
    {.op = "accumulate", .in = {"a=8192", "a=8192"}},
    {.op = "accumulate", .in = {"a=1003 ids:9", "a=1003 ids:9"}},
    {.op = "accumulate", .in = {"a=4099 ids64:9", "a=4099 ids64:9"}},
};
enum { N_CASES = sizeof CASES / sizeof CASES[0] };

static dtp_backend *cuda, *cpu, *ref;

/* How a case is run. */
typedef struct setting {
    int64_t shift;                  /* elements that every tensor lies behind an aligned address */
    const int64_t *global, *offset; /* of the dims of all tensors; NULL: whole ones */
    dtp_step_record record;
} setting;

static setting plain_setting(void)
{
    setting s = {.record = dtp_step_record_init(7, 2)};
    s.record.microbatch = 1;
    return s;
}

enum { ROOM = 64 };

/* A tensor of a case on a backend; its bytes are those of `host` or no useful value. */
static void *put_tensor(dtp_backend *b, const dtp_ttype *type, const setting *s, const void *host,
                        dtp_view *view)
{
    const size_t bytes = (size_t)dtp_ttype_bytes(type),
                 shift = (size_t)(s->shift * dtp_dtype_bytes(type->dtype));
    void *memory = NULL, *fill = malloc(bytes + ROOM);
    assert_non_null(fill);
    memset(fill, 0xcb, bytes + ROOM);
    if (host != NULL) {
        memcpy((char *)fill + shift, host, bytes);
    }
    assert_int_equal(b->ops->alloc(b, bytes + ROOM, &memory, NULL), DTP_OK);
    assert_int_equal(b->ops->upload(b, memory, fill, bytes + ROOM, NULL), DTP_OK);
    free(fill);
    *view = dtp_view_whole(type);
    view->data = (char *)memory + shift;
    for (int32_t d = 0; d < type->rank && s->global != NULL; d++) {
        view->global[d] = s->global[d];
        view->offset[d] = s->offset[d];
    }
    return memory;
}

static void run_bound(dtp_backend *b, const dtp_op_call *call, const dtp_view *in,
                      const dtp_view *out, const dtp_step_record *record)
{
    dtp_kernel_args args = {.call = call, .in = in, .out = out};
    dtp_step_state state;
    dtp_arena *arena = dtp_arena_create();
    dtp_bound_kernel kernel;
    dtp_err err;
    dtp_status done = dtp_step_state_init(&state, b, 1, &err);
    dtp_step_state_link(&state, &args);
    state.record = *record;
    done = done == DTP_OK ? dtp_backend_bind(b, &args, arena, &kernel, &err) : done;
    done = done == DTP_OK ? dtp_step_state_put(&state, &err) : done;
    done = done == DTP_OK ? dtp_bound_kernel_run(&kernel, &err) : done;
    if (done == DTP_OK && b->ops->sync != NULL) {
        done = b->ops->sync(b, &err);
    }
    if (done != DTP_OK) {
        fail_msg("%s: %s", call->op->name, err.msg);
    }
    dtp_step_state_free(&state);
    dtp_arena_destroy(arena);
}

/* The outputs of a case, to be freed, and their bytes. `values` of operand 0 replace those of the
 * case when given. */
static void run_case(const dtp_op_case *c, dtp_dtype dtype, dtp_backend *b, const setting *s,
                     const double *values, void *out[DTP_MAX_OP_OUT], size_t *bytes)
{
    dtp_case_graph cg;
    dtp_call_types types;
    dtp_view in[DTP_MAX_OP_IN], to[DTP_MAX_OP_OUT];
    void *memory[DTP_MAX_OP_IN + DTP_MAX_OP_OUT];
    case_build(c, dtype, against_ref_seed, &cg);
    const dtp_node *node = &cg.g->nodes[cg.node];
    const dtp_op_call call = dtp_node_call(cg.g, node, &types);
    for (int32_t i = 0; i < call.n_in; i++) {
        const int64_t n = dtp_ttype_elems(&types.in[i]);
        void *host = malloc((size_t)dtp_ttype_bytes(&types.in[i]) + 1);
        assert_non_null(host);
        for (int64_t k = 0; k < n; k++) {
            dtp_element_set(types.in[i].dtype, host, k,
                            i == 0 && values != NULL ? values[k] : cg.values[i][k]);
        }
        memory[i] = put_tensor(b, &types.in[i], s, host, &in[i]);
        free(host);
    }
    for (int32_t o = 0; o < call.n_out; o++) {
        memory[call.n_in + o] = put_tensor(b, &types.out[o], s, NULL, &to[o]);
    }
    run_bound(b, &call, in, to, &s->record);
    for (int32_t o = 0; o < call.n_out; o++) {
        bytes[o] = (size_t)dtp_ttype_bytes(&types.out[o]);
        out[o] = malloc(bytes[o]);
        assert_non_null(out[o]);
        assert_int_equal(b->ops->download(b, out[o], to[o].data, bytes[o], NULL), DTP_OK);
    }
    for (int32_t i = 0; i < call.n_in + call.n_out; i++) {
        const dtp_ttype *type = i < call.n_in ? &types.in[i] : &types.out[i - call.n_in];
        b->ops->free(b, memory[i], (size_t)dtp_ttype_bytes(type) + ROOM);
    }
    for (int32_t o = call.n_out; o < DTP_MAX_OP_OUT; o++) {
        out[o] = NULL;
    }
    dtp_case_free(&cg);
}

static void release(void *out[DTP_MAX_OP_OUT])
{
    for (int32_t o = 0; o < DTP_MAX_OP_OUT; o++) {
        free(out[o]);
    }
}

/* Whether two runs give the same bits. */
static bool same(const dtp_op_case *c, dtp_dtype dtype, dtp_backend *a, const setting *of_a,
                 dtp_backend *b, const setting *of_b, const double *values)
{
    void *x[DTP_MAX_OP_OUT], *y[DTP_MAX_OP_OUT];
    size_t bytes[DTP_MAX_OP_OUT];
    bool equal = true;
    run_case(c, dtype, a, of_a, values, x, bytes);
    run_case(c, dtype, b, of_b, values, y, bytes);
    for (int32_t o = 0; o < DTP_MAX_OP_OUT && x[o] != NULL; o++) {
        equal = equal && memcmp(x[o], y[o], bytes[o]) == 0;
    }
    release(x);
    release(y);
    return equal;
}

static int make_backends(void **state)
{
    (void)state;
    assert_int_equal(dtp_backend_create("cuda", 1, &cuda, NULL), DTP_OK);
    assert_int_equal(dtp_backend_cpu_create(1, &cpu, NULL), DTP_OK);
    return dtp_backend_ref_create(&ref, NULL) == DTP_OK ? 0 : -1;
}

static int drop_backends(void **state)
{
    (void)state;
    assert_int_equal(cuda->allocated_bytes, 0);
    dtp_backend_destroy(cuda);
    dtp_backend_destroy(cpu);
    dtp_backend_destroy(ref);
    return 0;
}

static void test_elements__equal_ref_on_large_shapes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        cuda_emu_seed(seed);
        for (int32_t i = 0; i < N_CASES; i++) {
            against_ref_case(&CASES[i], FLOATS[seed % N_FLOATS], cuda, ref);
            against_ref_in_place(&CASES[i], FLOATS[seed % N_FLOATS], cuda, 0);
        }
    }
}

static void test_elements__need_no_alignment(void **state)
{
    const setting aligned = plain_setting();
    (void)state;
    for (int32_t i = 0; i < N_CASES; i++) {
        for (int32_t k = 0; k < N_FLOATS; k++) {
            setting shifted = aligned;
            shifted.shift = 1 + i % 4;
            if (!same(&CASES[i], FLOATS[k], cuda, &aligned, cuda, &shifted, NULL)) {
                fail_msg("'%s' (case %d) of %s depends on alignment", CASES[i].op, i,
                         dtp_dtype_name(FLOATS[k]));
            }
        }
    }
}

/* Of tensors that are whole, and of shards whose rows begin at multiples of four or do not. */
static void test_random__is_bitwise_that_of_the_cpu(void **state)
{
    static const dtp_op_case cases[] = {
        {.op = "dropout", .in = {"a=5,b=24"}, .attrs = "rate=0.3"},
        {.op = "uniform", .in = {NULL}, .out = "a=5,b=24", .attrs = "low=-1; high=2; dtype=float"},
        {.op = "normal", .in = {NULL}, .out = "a=5,b=24", .attrs = "stddev=0.02; dtype=float"},
        {.op = "dropout", .in = {"a=3,b=331"}, .attrs = "rate=0.3"},
        {.op = "uniform", .in = {NULL}, .out = "a=3,b=331", .attrs = "dtype=float"},
        {.op = "normal",
         .in = {NULL},
         .out = "a=3,b=331",
         .attrs = "mean=0.7; stddev=1.3; dtype=float"}};
    static const int64_t global[][2] = {{40, 1000}, {40, 1000}, {41, 1003}},
                         offset[][2] = {{8, 16}, {8, 17}, {9, 20}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t k = 0; k < N_FLOATS * 4; k++) {
            setting s = plain_setting();
            s.record.seed = 0x123456789abcdef0u;
            s.record.step = (int64_t)k;
            if (k % 4 > 0) {
                s.global = global[k % 4 - 1];
                s.offset = offset[k % 4 - 1];
            }
            if (!same(&cases[i], FLOATS[k / 4], cuda, &s, cpu, &s, NULL)) {
                fail_msg("'%s' (case %zu) of %s differs, shard %zu", cases[i].op, i,
                         dtp_dtype_name(FLOATS[k / 4]), k % 4);
            }
        }
    }
}

/* Roundings to 16 bits: ties, and what lies beside them by less than f32 can say. */
static void test_cast__is_bitwise_that_of_the_cpu(void **state)
{
    static const char *const names[] = {"f32", "f64", "bf16", "f16", "i32", "i64", "bool"};
    static const char *const kinds[] = {"a=16", "a=16 ids:9", "a=16 ids64:9", "a=16 bool"};
    static const double values[16] = {0.0,
                                      -1.0,
                                      1.00390625,
                                      1.00390625 + 0x1p-40,
                                      1.01171875 - 0x1p-40,
                                      1.00048828125,
                                      1.00048828125 + 0x1p-45,
                                      1.00146484375 - 0x1p-45,
                                      0x1p-25,
                                      3.0 * 0x1p-26,
                                      65519.0,
                                      65520.0,
                                      -1e6,
                                      2147483000.0,
                                      7.75,
                                      1e-3};
    const setting s = plain_setting();
    (void)state;
    for (size_t to = 0; to < sizeof names / sizeof names[0]; to++) {
        char attrs[32] = "dtype=";
        strcat(attrs, names[to]);
        for (size_t from = 0; from < 7; from++) {
            static const dtp_dtype floats[] = {DTP_F32, DTP_BF16, DTP_F16, DTP_F64};
            const dtp_op_case c = {
                .op = "cast", .in = {kinds[from < 4 ? 0 : from - 3]}, .attrs = attrs};
            if (!same(&c, from < 4 ? floats[from] : DTP_F32, cuda, &s, cpu, &s, values)) {
                fail_msg("cast from %zu to %s differs", from, names[to]);
            }
        }
    }
}

/* A tile that is read before it is written is seen. */
static void test_permute__needs_its_barrier(void **state)
{
    static const dtp_op_case c = {.op = "permute", .in = {"a=70,b=33"}, .out = "b=33,a=70"};
    const setting s = plain_setting();
    (void)state;
    cuda_emu_seed(5);
    cuda_emu_set_fault(CUDA_EMU_DROP_BARRIER, 1);
    const bool equal = same(&c, DTP_F32, cuda, &s, cpu, &s, NULL);
    cuda_emu_set_fault(CUDA_EMU_DROP_BARRIER, 0);
    assert_false(equal);
}

/* ---- updates ---- */

static void test_update__takes_the_first_microbatch_as_it_is(void **state)
{
    static const dtp_op_case c = {.op = "accumulate", .in = {"a=1003", "a=1003"}};
    setting s = plain_setting();
    double nan[1003];
    (void)state;
    for (size_t i = 0; i < sizeof nan / sizeof nan[0]; i++) {
        nan[i] = NAN; /* no sum so far */
    }
    s.record.microbatch = 0;
    assert_true(same(&c, DTP_F32, cuda, &s, cpu, &s, nan));
    assert_true(same(&c, DTP_BF16, cuda, &s, cpu, &s, nan));
}

enum { TENSORS = 67, LONGEST = 9001 };

/* p' = p - lr (g + decay p) of tensors of many sizes, one of them skipped, in few launches. */
static void test_update__takes_many_tensors(void **state)
{
    static float p[TENSORS][LONGEST], g[TENSORS][LONGEST];
    static dtp_bound_update updates[TENSORS];
    const dtp_step_record record = {.lr_scale = 0.5};
    const size_t bytes = sizeof p[0];
    dtp_step_state step;
    void *factor = NULL, *at = NULL;
    (void)state;
    assert_int_equal(cuda->ops->alloc(cuda, sizeof(float), &factor, NULL), DTP_OK);
    assert_int_equal(cuda->ops->upload(cuda, factor, &(float){0.0f}, sizeof(float), NULL), DTP_OK);
    for (int32_t t = 0; t < TENSORS; t++) {
        dtp_bound_update *u = &updates[t];
        *u =
            (dtp_bound_update){.rule = DTP_UPDATE_SGD, .dtype = DTP_F32, .lr = 0.5, .decay = 0.25f};
        u->n = t == 20 ? 0 : t == 30 ? LONGEST : t * 131;
        for (int64_t i = 0; i < LONGEST; i++) {
            p[t][i] = (float)(t + i);
            g[t][i] = t == 7 ? NAN : (float)(i - t);
        }
        assert_int_equal(cuda->ops->alloc(cuda, 2 * bytes, &at, NULL), DTP_OK);
        u->p_out = at;
        u->p = at;
        u->g = (char *)at + bytes;
        u->factor = t == 7 ? factor : NULL;
        assert_int_equal(cuda->ops->upload(cuda, at, p[t], bytes, NULL), DTP_OK);
        assert_int_equal(cuda->ops->upload(cuda, (char *)at + bytes, g[t], bytes, NULL), DTP_OK);
    }
    const uint64_t launches = cuda_emu_count().launches;
    assert_int_equal(dtp_step_state_init(&step, cuda, 0, NULL), DTP_OK);
    step.record = record;
    assert_int_equal(dtp_step_state_put(&step, NULL), DTP_OK);
    assert_int_equal(dtp_cuda_update_tensors((cudaStream_t)cuda->ops->queue->compute(cuda), TENSORS,
                                             updates, step.on_device),
                     cudaSuccess);
    assert_true(cuda_emu_count().launches - launches < 5);
    assert_int_equal(cuda->ops->sync(cuda, NULL), DTP_OK);
    dtp_step_state_free(&step);
    for (int32_t t = 0; t < TENSORS; t++) {
        float result[LONGEST];
        assert_int_equal(cuda->ops->download(cuda, result, updates[t].p_out, bytes, NULL), DTP_OK);
        for (int64_t i = 0; i < LONGEST; i++) {
            const float rate =
                i < updates[t].n && t != 7 ? 0.25f * (g[t][i] + 0.25f * p[t][i]) : 0.0f;
            assert_true(result[i] == p[t][i] - rate);
        }
        cuda->ops->free(cuda, updates[t].p_out, 2 * bytes);
    }
    cuda->ops->free(cuda, factor, sizeof(float));
}

/* Sums of columns by blocks of a few columns and by blocks of many: sizes that fill neither, each
 * side of the least number of terms, two summed dims, a factor, and columns enough for the latter.
 */
static void test_sums__of_columns_are_those_of_ref_in_any_order(void **state)
{
    static const dtp_op_case SUMS[] = {
        {.op = "einsum", .in = {"a=1033,b=45"}, .out = "b=45"},
        {.op = "einsum", .in = {"a=511,b=33"}, .out = "b=33"},
        {.op = "einsum", .in = {"a=512,b=32"}, .out = "b=32"},
        {.op = "einsum", .in = {"a=27,c=3,d=29,b=35"}, .out = "c=3,b=35"},
        {.op = "einsum", .in = {"a=601,b=37", "a=601,b=37"}, .out = "b=37"},
        {.op = "einsum", .in = {"a=523,b=8195"}, .out = "b=8195"},
    };
    const setting plain = plain_setting();
    (void)state;
    for (size_t i = 0; i < sizeof SUMS / sizeof SUMS[0]; i++) {
        const dtp_op_case *c = &SUMS[i];
        for (int32_t k = 0; k < N_FLOATS; k++) {
            void *first[DTP_MAX_OP_OUT], *again[DTP_MAX_OP_OUT];
            size_t bytes[DTP_MAX_OP_OUT];
            against_ref_case(c, FLOATS[k], cuda, ref);
            cuda_emu_seed(1);
            run_case(c, FLOATS[k], cuda, &plain, NULL, first, bytes);
            for (uint64_t seed = 2; seed < 2 + SEEDS; seed++) {
                cuda_emu_seed(seed);
                run_case(c, FLOATS[k], cuda, &plain, NULL, again, bytes);
                assert_memory_equal(first[0], again[0], bytes[0]);
                release(again);
            }
            release(first);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elements__equal_ref_on_large_shapes),
        cmocka_unit_test(test_elements__need_no_alignment),
        cmocka_unit_test(test_random__is_bitwise_that_of_the_cpu),
        cmocka_unit_test(test_cast__is_bitwise_that_of_the_cpu),
        cmocka_unit_test(test_permute__needs_its_barrier),
        cmocka_unit_test(test_sums__of_columns_are_those_of_ref_in_any_order),
        cmocka_unit_test(test_update__takes_the_first_microbatch_as_it_is),
        cmocka_unit_test(test_update__takes_many_tensors),
    };
    return cmocka_run_group_tests(tests, make_backends, drop_backends);
}
