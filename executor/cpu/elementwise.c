/* Arithmetic of one and two operands, and the gradients of functions. Every op is one row of a list
 * below: its name, its value, and the attributes that the value calls a and b. From the lists come
 * a vectorised function per op, its kernel and its row in the kernel table. */
#include "executor/cpu/elementwise.h"

#include "executor/cpu/kernels.h"
#include "executor/cpu/simd.h"

typedef struct elementwise_job {
    dtp_cpu_run_fn fn;
    dtp_cpu_run run; /* of all elements */
    int32_t n_in;
    int64_t bytes[1 + DTP_RUN_OPERANDS]; /* of an element: output, operands */
} elementwise_job;

static void run_piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const elementwise_job *job = user;
    dtp_cpu_run run = job->run;
    run.n = n;
    run.out = (char *)run.out + off[0] * job->bytes[0];
    for (int32_t k = 0; k < job->n_in; k++) {
        run.in[k] = (const char *)run.in[k] + off[k + 1] * job->bytes[k + 1];
    }
    job->fn(&run);
}

void dtp_cpu_elementwise_runs(const dtp_kernel_args *args, dtp_cpu_run_fn fn, float a, float b)
{
    const dtp_view *views[1 + DTP_RUN_OPERANDS] = {&args->out[0]};
    elementwise_job job = {.fn = fn, .n_in = args->call->n_in};
    job.run = (dtp_cpu_run){.out = views[0]->data,
                            .a = a,
                            .b = b,
                            .operands = args->in,
                            .dtype = views[0]->local.dtype};
    job.bytes[0] = dtp_dtype_bytes(job.run.dtype);
    for (int32_t k = 0; k < job.n_in; k++) {
        views[k + 1] = &args->in[k];
        job.run.in[k] = args->in[k].data;
        job.bytes[k + 1] = dtp_dtype_bytes(args->in[k].local.dtype);
    }
    dtp_nest nest;
    dtp_nest_like(&nest, 1 + job.n_in, views);
    for (int32_t k = 0; k < job.n_in; k++) {
        job.run.step[k] = dtp_nest_step(&nest, k + 1);
    }
    dtp_nest_each(&nest, args->threads, run_piece, &job);
}

/* An attribute as f32; beyond its range, infinite: clamp's "no bound". */
static float attribute(const dtp_op_call *call, const char *key)
{
    const double most = 3.4028234663852886e38;
    const double v = key == NULL ? 0.0 : dtp_call_float(call, key);
    return v > most ? INFINITY : v < -most ? -INFINITY : (float)v;
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

DTP_CPU_INLINE float silu_grad_of_both(float x, float dy)
{
    float s = dtp_simd_sigmoid(x);
    return dy * s * (1.0f + x * (1.0f - s));
}

/* Of x; a and b are the two attributes named. NaN stays NaN. */
#define UNARY(OP)                                                                                  \
    OP(scale, "factor", NULL, return x * a)                                                        \
    OP(neg, NULL, NULL, return -x)                                                                 \
    OP(exp, NULL, NULL, return dtp_simd_exp(x))                                                    \
    OP(log, NULL, NULL, return logf(x))                                                            \
    OP(sqrt, NULL, NULL, return sqrtf(x))                                                          \
    OP(rsqrt, NULL, NULL, return 1.0f / sqrtf(x))                                                  \
    OP(square, NULL, NULL, return x * x)                                                           \
    OP(tanh, NULL, NULL, return dtp_simd_tanh(x))                                                  \
    OP(sigmoid, NULL, NULL, return dtp_simd_sigmoid(x))                                            \
    OP(relu, NULL, NULL, return x < 0.0f ? 0.0f : x)                                               \
    OP(gelu, NULL, NULL, return x * gelu_gate(x))                                                  \
    OP(silu, NULL, NULL, return x * dtp_simd_sigmoid(x))                                           \
    OP(abs, NULL, NULL, return fabsf(x))                                                           \
    OP(sign, NULL, NULL, return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? 0.0f : x)         \
    OP(reciprocal, NULL, NULL, return 1.0f / x)                                                    \
    OP(sin, NULL, NULL, return sinf(x))                                                            \
    OP(cos, NULL, NULL, return cosf(x))                                                            \
    OP(log1p, NULL, NULL, return log1pf(x))                                                        \
    OP(expm1, NULL, NULL, return expm1f(x))                                                        \
    OP(softplus, NULL, NULL, return (x < 0.0f ? 0.0f : x) + log1pf(expf(-fabsf(x))))               \
    OP(pow, "exponent", NULL, return powf(x, a))                                                   \
    OP(leaky_relu, "slope", NULL, return x > 0.0f ? x : a * x)                                     \
    OP(elu, "alpha", NULL, return x > 0.0f ? x : a * expm1f(x))                                    \
    OP(clamp, "low", "high", x = x < a ? a : x; return x > b ? b : x)

/* Of x and y. Gradients: x is the operand of the function or its result, y the cotangent. */
#define BINARY(OP)                                                                                 \
    OP(div, NULL, NULL, return x / y)                                                              \
    OP(tanh_grad, NULL, NULL, return y * (1.0f - x * x))                                           \
    OP(sigmoid_grad, NULL, NULL, return y * x * (1.0f - x))                                        \
    OP(relu_grad, NULL, NULL, return x > 0.0f ? y : 0.0f)                                          \
    OP(gelu_grad, NULL, NULL, return y * gelu_slope(x))                                            \
    OP(silu_grad, NULL, NULL, return silu_grad_of_both(x, y))                                      \
    OP(leaky_relu_grad, "slope", NULL, return x > 0.0f ? y : a * y)                                \
    OP(elu_grad, "alpha", NULL, return x > 0.0f ? y : a * expf(x) * y)                             \
    OP(clamp_grad, "low", "high", return x >= a && x <= b ? y : 0.0f)

/* Of floats, where a NaN on either side wins, and of integers, which wrap around. */
#define ARITHMETIC(OP)                                                                             \
    OP(add, return x + y, return (int64_t)((uint64_t)x + (uint64_t)y))                             \
    OP(sub, return x - y, return (int64_t)((uint64_t)x - (uint64_t)y))                             \
    OP(mul, return x * y, return (int64_t)((uint64_t)x * (uint64_t)y))                             \
    OP(max, return x > y || x != x ? x : y, return x > y ? x : y)                                  \
    OP(min, return x < y || x != x ? x : y, return x < y ? x : y)

#define LOOP(value)                                                                                \
    for (int64_t i = 0; i < n; i++) {                                                              \
        out[i] = value;                                                                            \
    }
#define SIMD_LOOP(value) _Pragma("omp simd") LOOP(value)

#define KERNEL(op, key_a, key_b)                                                                   \
    static dtp_status op##_kernel(const dtp_kernel_args *args, dtp_err *err)                       \
    {                                                                                              \
        (void)err;                                                                                 \
        dtp_cpu_elementwise_runs(args, op##_run, attribute(args->call, key_a),                     \
                                 attribute(args->call, key_b));                                    \
        return DTP_OK;                                                                             \
    }

#define UNARY_FUNCTIONS(op, key_a, key_b, value)                                                   \
    DTP_CPU_INLINE float op##_value(float x, float a, float b)                                     \
    {                                                                                              \
        (void)a, (void)b;                                                                          \
        value;                                                                                     \
    }                                                                                              \
    DTP_CPU_CLONES static void op##_run(const dtp_cpu_run *run)                                    \
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
    KERNEL(op, key_a, key_b)

#define BINARY_RUN(op, value)                                                                      \
    DTP_CPU_INLINE float op##_value(float x, float y, float a, float b)                            \
    {                                                                                              \
        (void)a, (void)b;                                                                          \
        value;                                                                                     \
    }                                                                                              \
    DTP_CPU_CLONES static void op##_run(const dtp_cpu_run *run)                                    \
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

#define BINARY_FUNCTIONS(op, key_a, key_b, value)                                                  \
    BINARY_RUN(op, value)                                                                          \
    KERNEL(op, key_a, key_b)

#define ARITHMETIC_FUNCTIONS(op, value, int_value)                                                 \
    BINARY_RUN(op, value)                                                                          \
    static int64_t op##_int_value(int64_t x, int64_t y)                                            \
    {                                                                                              \
        int_value;                                                                                 \
    }                                                                                              \
    static void op##_int_run(const dtp_cpu_run *run)                                               \
    {                                                                                              \
        const dtp_dtype t = run->dtype;                                                            \
        for (int64_t i = 0; i < run->n; i++) {                                                     \
            const int64_t x = dtp_cpu_int_at(t, run->in[0], i * run->step[0]);                     \
            const int64_t y = dtp_cpu_int_at(t, run->in[1], i * run->step[1]);                     \
            dtp_cpu_int_set(t, run->out, i, op##_int_value(x, y));                                 \
        }                                                                                          \
    }                                                                                              \
    static dtp_status op##_kernel(const dtp_kernel_args *args, dtp_err *err)                       \
    {                                                                                              \
        (void)err;                                                                                 \
        bool floats = dtp_dtype_is_float(args->in[0].local.dtype);                                 \
        dtp_cpu_elementwise_runs(args, floats ? op##_run : op##_int_run, 0.0f, 0.0f);              \
        return DTP_OK;                                                                             \
    }

UNARY(UNARY_FUNCTIONS)
BINARY(BINARY_FUNCTIONS)
ARITHMETIC(ARITHMETIC_FUNCTIONS)

void dtp_cpu_multiply(const dtp_nest *nest, int32_t threads, const float *a, const float *b,
                      float *y)
{
    const elementwise_job job = {
        .fn = mul_run,
        .run = {.in = {a, b}, .step = {dtp_nest_step(nest, 1), dtp_nest_step(nest, 2)}, .out = y},
        .n_in = 2,
        .bytes = {sizeof *y, sizeof *a, sizeof *b}};
    dtp_nest_each(nest, threads, run_piece, &job);
}

#define FLOAT_ROW(op, ...) {#op, op##_kernel, dtp_cpu_check_all_f32},
#define ROW(op, ...) {#op, op##_kernel, dtp_cpu_check_f32},

static const dtp_cpu_row rows[] = {UNARY(FLOAT_ROW) BINARY(FLOAT_ROW) ARITHMETIC(ROW)};
const dtp_cpu_family dtp_cpu_elementwise = {rows, sizeof rows / sizeof rows[0]};
