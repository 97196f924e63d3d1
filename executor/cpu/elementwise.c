/* Arithmetic of one and two operands, and the gradients of functions. Every op is one row of a list
 * below: its name and its value. From the lists come
 * a vectorised function per op, its kernel and its row in the kernel table. Then compare, select,
 * the ops on truth values (bytes of 0 or 1), and conversion between element types. */
#include "executor/cpu/elementwise.h"

#include <string.h>

#include "executor/cpu/loops/halves.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/loops/simd.h"
#include "executor/cpu/loops/widen.h"
#include "executor/device/bound/elementwise.h"
#include "executor/device/convert.h"

enum { OPERANDS = DTP_ELEMENTWISE_IN };
typedef dtp_elementwise_run elementwise_run;
typedef dtp_elementwise_fn run_fn;

/* These know 16-bit floats. */
static void cast_run(const elementwise_run *run);
static void select_run(const elementwise_run *run);

typedef struct elementwise_job {
    run_fn fn;
    elementwise_run run; /* of all elements */
    dtp_nest nest;       /* views: output, operands */
    int32_t n_in;
    int64_t bytes[1 + OPERANDS]; /* of an element: output, operands */
    bool halves;                 /* there are 16-bit floats, which fn does not know */
} elementwise_job;

/* Calls fn for a block after the other, with 16-bit operands widened and the output narrowed. */
static void run_halves(const elementwise_job *job, const elementwise_run *whole)
{
    float in[OPERANDS][DTP_HALF_BLOCK], out[DTP_HALF_BLOCK];
    for (int64_t at = 0; at < whole->n; at += DTP_HALF_BLOCK) {
        elementwise_run run = *whole;
        char *to = (char *)whole->out + at * job->bytes[0];
        run.n = whole->n - at < DTP_HALF_BLOCK ? whole->n - at : DTP_HALF_BLOCK;
        for (int32_t k = 0; k < job->n_in; k++) {
            const dtp_dtype dtype = job->run.from[k];
            run.in[k] = (const char *)whole->in[k] + at * run.step[k] * job->bytes[k + 1];
            if (dtp_dtype_is_half(dtype)) {
                dtp_widen(dtype, run.step[k] == 0 ? 1 : run.n, run.in[k], run.step[k], in[k]);
                run.in[k] = in[k];
                run.step[k] = run.step[k] != 0;
            }
        }
        run.out = dtp_dtype_is_half(job->run.dtype) ? (void *)out : to;
        job->fn(&run);
        if (run.out != to) {
            dtp_narrow(job->run.dtype, run.n, out, to, 1);
        }
    }
}

static void run_piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const elementwise_job *job = user;
    elementwise_run run = job->run;
    run.n = n;
    run.out = (char *)run.out + off[0] * job->bytes[0];
    for (int32_t k = 0; k < job->n_in; k++) {
        run.in[k] = (const char *)run.in[k] + off[k + 1] * job->bytes[k + 1];
    }
    if (job->halves) {
        run_halves(job, &run);
    } else {
        job->fn(&run);
    }
}

/* Binds a kernel that calls fn for runs that cover the output. */
static dtp_status bind_runs(const dtp_kernel_args *args, run_fn fn, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    dtp_bound_elementwise b;
    elementwise_job *job;
    DTP_STATE(arena, state, job, err);
    dtp_bind_elementwise(args, &b);
    job->fn = fn;
    job->nest = b.nest;
    job->n_in = args->call->n_in;
    job->run = (elementwise_run){.a = b.a, .b = b.b, .dtype = args->out[0].local.dtype};
    job->halves = dtp_dtype_is_half(job->run.dtype);
    job->bytes[0] = dtp_dtype_bytes(job->run.dtype);
    for (int32_t k = 0; k < job->n_in; k++) {
        job->run.step[k] = dtp_nest_step(&job->nest, k + 1);
        job->run.from[k] = args->in[k].local.dtype;
        job->bytes[k + 1] = dtp_dtype_bytes(job->run.from[k]);
        job->halves = job->halves || dtp_dtype_is_half(job->run.from[k]);
    }
    job->halves = job->halves && fn != cast_run && fn != select_run;
    return DTP_OK;
}

static dtp_status elementwise_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    elementwise_job *job = args->state;
    (void)err;
    job->run.out = args->out[0].data;
    for (int32_t k = 0; k < job->n_in; k++) {
        job->run.in[k] = args->in[k].data;
    }
    dtp_nest_each(&job->nest, args->threads, run_piece, job);
    return DTP_OK;
}

/* gelu(x) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), which equals 0.5 x (1 + tanh u). */
DTP_CPU_INLINE float gelu_gate(float x)
{
    const float c = 1.5957691216057308f;  /* 2 sqrt(2/pi) */
    const float d = 0.07135481282742617f; /* ... * 0.044715 */
    return dtp_simd_sigmoid(x * (c + d * x * x));
}

DTP_CPU_INLINE float gelu_slope(float x)
{
    const float c = 1.5957691216057308f, d = 0.21406443848227851f; /* ..., 3 * 0.0713... */
    float s = gelu_gate(x);
    return s + x * s * (1.0f - s) * (c + d * x * x);
}

/* The share of a standard normal below x, and its density. */
DTP_CPU_INLINE float normal_below(float x)
{
    return 0.5f + 0.5f * dtp_simd_erf(x * 0.70710678118654752f);
}

DTP_CPU_INLINE float normal_density(float x)
{
    return 0.3989422804014327f * dtp_simd_exp(-0.5f * x * x);
}

DTP_CPU_INLINE float mod_of_both(float x, float y)
{
    const float r = fmodf(x, y);
    return r != 0.0f && (r < 0.0f) != (y < 0.0f) ? r + y : r == 0.0f ? copysignf(r, y) : r;
}

/* By 0: 0. -1 is apart, as the least integer has no opposite. */
static int64_t int_mod_of_both(int64_t x, int64_t y)
{
    const int64_t r = y == 0 || y == -1 ? 0 : x % y;
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

DTP_CPU_INLINE float silu_grad_of_both(float x, float dy)
{
    float s = dtp_simd_sigmoid(x);
    return dy * s * (1.0f + x * (1.0f - s));
}

/* x on the grid of an 8-bit float: the nearest one, the even one of two (docs/ops.md). 1.75 * 2^top
 * is its largest number, 2^(least - 127) its least normal one, `digits` its bits of mantissa. The
 * scale is the largest power of two that leaves amax at most the largest number. Adding 1.5 * 2^23
 * steps of the grid rounds. */
DTP_CPU_INLINE float quantized(float x, float amax, uint32_t top, uint32_t least, uint32_t digits)
{
    const uint32_t size = dtp_bits_of_float(amax) & 0x7fffffffu, floor = 0x2b800000u; /* 2^-40 */
    const uint32_t back = (((size < floor ? floor : size) + 0x1fffffu) >> 23) - top;
    const float most = dtp_float_of_bits((127u + top) << 23 | 0x600000u);
    float t = x * dtp_float_of_bits((254u - back) << 23);
    t = t > most ? most : t;
    t = t < -most ? -most : t;
    uint32_t unit = dtp_bits_of_float(t) & 0x7f800000u;
    unit = unit < least << 23 ? least << 23 : unit;
    const float shift = dtp_float_of_bits((unit + ((23u - digits) << 23)) | 0x400000u);
    const float scale = size < 0x7f800000u ? dtp_float_of_bits(back << 23) : NAN;
    return copysignf((t + shift) - shift, x) * scale;
}

/* Of x; a and b are the float attributes of the op. NaN stays NaN. */
#define UNARY(OP)                                                                                  \
    OP(scale, return x * a)                                                                        \
    OP(neg, return -x)                                                                             \
    OP(exp, return dtp_simd_exp(x))                                                                \
    OP(log, return logf(x))                                                                        \
    OP(sqrt, return sqrtf(x))                                                                      \
    OP(rsqrt, return 1.0f / sqrtf(x))                                                              \
    OP(square, return x * x)                                                                       \
    OP(tanh, return dtp_simd_tanh(x))                                                              \
    OP(sigmoid, return dtp_simd_sigmoid(x))                                                        \
    OP(relu, return x < 0.0f ? 0.0f : x)                                                           \
    OP(gelu, return x * gelu_gate(x))                                                              \
    OP(erf, return dtp_simd_erf(x))                                                                \
    OP(gelu_erf, return x * normal_below(x))                                                       \
    OP(silu, return x * dtp_simd_sigmoid(x))                                                       \
    OP(abs, return fabsf(x))                                                                       \
    OP(sign, return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? 0.0f : x)                     \
    OP(floor, return floorf(x))                                                                    \
    OP(reciprocal, return 1.0f / x)                                                                \
    OP(sin, return sinf(x))                                                                        \
    OP(cos, return cosf(x))                                                                        \
    OP(log1p, return log1pf(x))                                                                    \
    OP(expm1, return expm1f(x))                                                                    \
    OP(softplus, return (x < 0.0f ? 0.0f : x) + log1pf(expf(-fabsf(x))))                           \
    OP(pow, return powf(x, a))                                                                     \
    OP(leaky_relu, return x > 0.0f ? x : a * x)                                                    \
    OP(elu, return x > 0.0f ? x : a * expm1f(x))                                                   \
    OP(clamp, x = x < a ? a : x; return x > b ? b : x)

/* Of x and y. Gradients: x is the operand of the function or its result, y the cotangent. */
#define BINARY(OP)                                                                                 \
    OP(div, return x / y)                                                                          \
    OP(tanh_grad, return y * (1.0f - x * x))                                                       \
    OP(sigmoid_grad, return y * x * (1.0f - x))                                                    \
    OP(relu_grad, return x > 0.0f ? y : 0.0f)                                                      \
    OP(gelu_grad, return y * gelu_slope(x))                                                        \
    OP(silu_grad, return silu_grad_of_both(x, y))                                                  \
    OP(erf_grad, return y * 1.1283791670955126f * dtp_simd_exp(-x * x))                            \
    OP(gelu_erf_grad, return y * (normal_below(x) + x * normal_density(x)))                        \
    OP(leaky_relu_grad, return x > 0.0f ? y : a * y)                                               \
    OP(elu_grad, return x > 0.0f ? y : a * expf(x) * y)                                            \
    OP(clamp_grad, return x >= a && x <= b ? y : 0.0f)                                             \
    OP(quantize_e4m3, return quantized(x, y, 8, 121, 3))                                           \
    OP(quantize_e5m2, return quantized(x, y, 15, 113, 2))                                          \
    OP(in_training, (void)y; return x)                                                             \
    OP(follow, (void)x; return y)

/* Of floats, where a NaN on either side wins, and of integers, which wrap around. */
#define ARITHMETIC(OP)                                                                             \
    OP(add, return x + y, return (int64_t)((uint64_t)x + (uint64_t)y))                             \
    OP(sub, return x - y, return (int64_t)((uint64_t)x - (uint64_t)y))                             \
    OP(mul, return x * y, return (int64_t)((uint64_t)x * (uint64_t)y))                             \
    OP(max, return x > y || x != x ? x : y, return x > y ? x : y)                                  \
    OP(min, return x < y || x != x ? x : y, return x < y ? x : y)                                  \
    OP(mod, return mod_of_both(x, y), return int_mod_of_both(x, y))

#define LOOP(value)                                                                                \
    for (int64_t i = 0; i < n; i++) {                                                              \
        out[i] = value;                                                                            \
    }
#define SIMD_LOOP(value) _Pragma("omp simd") LOOP(value)

#define BIND(op, fn) DTP_BIND(op, bind_runs, fn)

#define UNARY_FUNCTIONS(op, value)                                                                 \
    DTP_CPU_INLINE float op##_value(float x, float a, float b)                                     \
    {                                                                                              \
        (void)a, (void)b;                                                                          \
        value;                                                                                     \
    }                                                                                              \
    DTP_CPU_CLONES static void op##_run(const elementwise_run *run)                                \
    {                                                                                              \
        const float *x = run->in[0], a = run->a, b = run->b;                                       \
        float *out = run->out;                                                                     \
        const int64_t n = run->n, step = run->step[0];                                             \
        if (step == 1) {                                                                           \
            SIMD_LOOP(op##_value(x[i], a, b))                                                      \
        } else {                                                                                   \
            LOOP(op##_value(x[i * step], a, b))                                                    \
        }                                                                                          \
    }                                                                                              \
    BIND(op, op##_run)

#define BINARY_RUN(op, value)                                                                      \
    DTP_CPU_INLINE float op##_value(float x, float y, float a, float b)                            \
    {                                                                                              \
        (void)a, (void)b;                                                                          \
        value;                                                                                     \
    }                                                                                              \
    DTP_CPU_CLONES static void op##_run(const elementwise_run *run)                                \
    {                                                                                              \
        const float *x = run->in[0], *y = run->in[1], a = run->a, b = run->b;                      \
        float *out = run->out;                                                                     \
        const int64_t n = run->n, sx = run->step[0], sy = run->step[1];                            \
        if (sx == 1 && sy == 1) {                                                                  \
            SIMD_LOOP(op##_value(x[i], y[i], a, b))                                                \
        } else if (sx == 1 && sy == 0) {                                                           \
            const float y0 = y[0];                                                                 \
            SIMD_LOOP(op##_value(x[i], y0, a, b))                                                  \
        } else if (sx == 0 && sy == 1) {                                                           \
            const float x0 = x[0];                                                                 \
            SIMD_LOOP(op##_value(x0, y[i], a, b))                                                  \
        } else {                                                                                   \
            LOOP(op##_value(x[i * sx], y[i * sy], a, b))                                           \
        }                                                                                          \
    }

#define BINARY_FUNCTIONS(op, value)                                                                \
    BINARY_RUN(op, value)                                                                          \
    BIND(op, op##_run)

#define ARITHMETIC_FUNCTIONS(op, value, int_value)                                                 \
    BINARY_RUN(op, value)                                                                          \
    static int64_t op##_int_value(int64_t x, int64_t y)                                            \
    {                                                                                              \
        int_value;                                                                                 \
    }                                                                                              \
    static void op##_int_run(const elementwise_run *run)                                           \
    {                                                                                              \
        const dtp_dtype t = run->dtype;                                                            \
        for (int64_t i = 0; i < run->n; i++) {                                                     \
            const int64_t x = dtp_element_int(t, run->in[0], i * run->step[0]);                    \
            const int64_t y = dtp_element_int(t, run->in[1], i * run->step[1]);                    \
            dtp_element_set_int(t, run->out, i, op##_int_value(x, y));                             \
        }                                                                                          \
    }                                                                                              \
    BIND(op, dtp_dtype_is_float(args->in[0].local.dtype) ? op##_run : op##_int_run)

UNARY(UNARY_FUNCTIONS)
BINARY(BINARY_FUNCTIONS)
ARITHMETIC(ARITHMETIC_FUNCTIONS)

void dtp_cpu_multiply(const dtp_nest *nest, int32_t threads, const dtp_dtype dtype[3],
                      const void *a, const void *b, void *y)
{
    const elementwise_job job = {
        .fn = mul_run,
        .run = {.in = {a, b},
                .step = {dtp_nest_step(nest, 1), dtp_nest_step(nest, 2)},
                .out = y,
                .dtype = dtype[0],
                .from = {dtype[1], dtype[2]}},
        .n_in = 2,
        .bytes = {dtp_dtype_bytes(dtype[0]), dtp_dtype_bytes(dtype[1]), dtp_dtype_bytes(dtype[2])},
        .halves = dtp_dtype_is_half(dtype[1])};
    dtp_nest_each(nest, threads, run_piece, &job);
}

void dtp_cpu_cast(const dtp_nest *nest, int32_t threads, dtp_dtype to, void *y, dtp_dtype from,
                  const void *x)
{
    const elementwise_job job = {
        .fn = cast_run,
        .run = {.in = {x}, .step = {dtp_nest_step(nest, 1)}, .out = y, .dtype = to, .from = {from}},
        .n_in = 1,
        .bytes = {dtp_dtype_bytes(to), dtp_dtype_bytes(from)}};
    dtp_nest_each(nest, threads, run_piece, &job);
}

/* ---- compare: two functions per relation, of floats and of integers ---- */

#define RELATIONS(OP)                                                                              \
    OP(lt, x < y)                                                                                  \
    OP(le, x <= y)                                                                                 \
    OP(gt, x > y)                                                                                  \
    OP(ge, x >= y)                                                                                 \
    OP(eq, x == y)                                                                                 \
    OP(ne, x != y)

#define RELATION_RUNS(name, holds)                                                                 \
    static void name##_floats(const elementwise_run *run)                                          \
    {                                                                                              \
        const float *a = run->in[0], *b = run->in[1];                                              \
        uint8_t *out = run->out;                                                                   \
        const int64_t n = run->n, sa = run->step[0], sb = run->step[1];                            \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const float x = a[i * sa], y = b[i * sb];                                              \
            out[i] = holds;                                                                        \
        }                                                                                          \
    }                                                                                              \
    static void name##_ints(const elementwise_run *run)                                            \
    {                                                                                              \
        const dtp_dtype ta = run->from[0], tb = run->from[1];                                      \
        uint8_t *out = run->out;                                                                   \
        for (int64_t i = 0; i < run->n; i++) {                                                     \
            const int64_t x = dtp_element_int(ta, run->in[0], i * run->step[0]);                   \
            const int64_t y = dtp_element_int(tb, run->in[1], i * run->step[1]);                   \
            out[i] = holds;                                                                        \
        }                                                                                          \
    }

RELATIONS(RELATION_RUNS)

#define RELATION_ROW(name, holds) {name##_ints, name##_floats},

/* Relations are in the order of the choices of "cmp". */
static dtp_status compare_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                               dtp_err *err)
{
    static const run_fn relations[][2] = {RELATIONS(RELATION_ROW)};
    const dtp_dtype a = args->in[0].local.dtype, b = args->in[1].local.dtype;
    const int floats = dtp_dtype_is_float(a) ? 1 : 0;
    if ((floats != 0) != dtp_dtype_is_float(b)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "compare on backend cpu: %s with %s",
                        dtp_dtype_name(a), dtp_dtype_name(b));
    }
    return bind_runs(args, relations[dtp_call_int(args->call, "cmp")][floats], arena, state, err);
}

/* ---- select: elements are copied without looking at their type ---- */

DTP_CPU_INLINE void select_bytes(const elementwise_run *run, int64_t bytes)
{
    const uint8_t *c = run->in[0];
    const char *a = run->in[1], *b = run->in[2];
    char *out = run->out;
    for (int64_t i = 0; i < run->n; i++) {
        const char *from =
            c[i * run->step[0]] ? a + i * run->step[1] * bytes : b + i * run->step[2] * bytes;
        memcpy(out + i * bytes, from, (size_t)bytes);
    }
}

DTP_CPU_CLONES static void select_floats(int64_t n, const uint8_t *c, const float *a,
                                         const float *b, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float u = a[i], v = b[i];
        y[i] = c[i] != 0 ? u : v;
    }
}

static void select_run(const elementwise_run *run)
{
    const int64_t *step = run->step;
    if (run->dtype == DTP_F32 && step[0] == 1 && step[1] == 1 && step[2] == 1) {
        select_floats(run->n, run->in[0], run->in[1], run->in[2], run->out);
        return;
    }
    switch (dtp_dtype_bytes(run->dtype)) {
    case 4:
        select_bytes(run, 4);
        break;
    case 8:
        select_bytes(run, 8);
        break;
    case 2:
        select_bytes(run, 2);
        break;
    default:
        select_bytes(run, 1);
        break;
    }
}

BIND(select, select_run)

/* ---- truth values ---- */

#define LOGICAL(OP)                                                                                \
    OP(logical_and, x &y)                                                                          \
    OP(logical_or, x | y)                                                                          \
    OP(logical_xor, x ^ y)                                                                         \
    OP(logical_not, !x)

#define LOGICAL_FUNCTIONS(op, value)                                                               \
    static void op##_run(const elementwise_run *run)                                               \
    {                                                                                              \
        const uint8_t *a = run->in[0], *b = run->in[1];                                            \
        uint8_t *out = run->out;                                                                   \
        for (int64_t i = 0; i < run->n; i++) {                                                     \
            const uint8_t x = a[i * run->step[0]] != 0, y = b != NULL && b[i * run->step[1]] != 0; \
            (void)y;                                                                               \
            out[i] = value;                                                                        \
        }                                                                                          \
    }                                                                                              \
    BIND(op, op##_run)

LOGICAL(LOGICAL_FUNCTIONS)

#define LOGICAL_ROW(op, value) {#op, elementwise_kernel, op##_bind, DTP_INTS},

/* ---- cast ---- */

static void cast_run(const elementwise_run *run)
{
    const dtp_dtype from = run->from[0], to = run->dtype;
    const int64_t step = run->step[0];
    const bool ints = !dtp_dtype_is_float(from) && !dtp_dtype_is_float(to);
    if (from == DTP_F32 && to == DTP_F32) {
        const float *x = run->in[0];
        float *y = run->out;
        for (int64_t i = 0; i < run->n; i++) {
            y[i] = x[i * step];
        }
        return;
    }
    if (from == DTP_F32 && dtp_dtype_is_half(to) && step == 1) {
        dtp_narrow(to, run->n, run->in[0], run->out, 1);
        return;
    }
    if (dtp_dtype_is_half(from) && to == DTP_F32) {
        dtp_widen(from, run->n, run->in[0], step, run->out);
        return;
    }
    for (int64_t i = 0; i < run->n; i++) {
        if (ints) {
            dtp_element_set_int(to, run->out, i, dtp_element_int(from, run->in[0], i * step));
        } else {
            dtp_element_set(to, run->out, i, dtp_element(from, run->in[0], i * step));
        }
    }
}

BIND(cast, cast_run)

/* Every pair of dtypes. Not in place when elements change their size. */
static dtp_status cast_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *x = &args->in[0], *y = &args->out[0];
    if (x->local.dtype != y->local.dtype) {
        return elementwise_kernel(args, err);
    }
    if (x->data != y->data) {
        dtp_view_copy(&y->local, y, x, args->threads);
    }
    return DTP_OK;
}

#define FUNCTION_RUN(op, ...) {#op, op##_run},
dtp_elementwise_fn dtp_cpu_function(const char *name)
{
    static const struct {
        const char *name;
        run_fn run;
    } runs[] = {{"cast", cast_run},
                UNARY(FUNCTION_RUN) BINARY(FUNCTION_RUN) ARITHMETIC(FUNCTION_RUN)};
    size_t i = 0;
    while (i < sizeof runs / sizeof runs[0] && strcmp(runs[i].name, name) != 0) {
        i++;
    }
    return i < sizeof runs / sizeof runs[0] ? runs[i].run : NULL;
}

#define FLOAT_ROW(op, ...) {#op, elementwise_kernel, op##_bind, DTP_FLOATS},
#define ROW(op, ...) {#op, elementwise_kernel, op##_bind, DTP_NUMBERS},

const dtp_kernel dtp_cpu_elementwise[] = {
    {"cast", cast_kernel, cast_bind, 0},
    {"compare", elementwise_kernel, compare_bind, DTP_NUMBERS},
    {"select", elementwise_kernel, select_bind, 0},
    LOGICAL(LOGICAL_ROW) UNARY(FLOAT_ROW) BINARY(FLOAT_ROW) ARITHMETIC(ROW){.op = NULL}};
