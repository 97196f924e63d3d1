/* Unary and binary elementwise ops with broadcasting by name, and their gradients.
 *
 * Binary ops run over a nest (executor/cpu/nest.h); a row of it has element steps 1, 0 (broadcast)
 * or any other. */
#include "executor/cpu/elementwise.h"

#include "executor/cpu/integers.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/parallel.h"
#include "executor/cpu/simd.h"

/* The ops: name, function. Those of numbers take integers too. */
#define NUMBER_OPS(X)                                                                              \
    X(add, ADD)                                                                                    \
    X(sub, SUB)                                                                                    \
    X(mul, MUL)                                                                                    \
    X(max, MAX)                                                                                    \
    X(min, MIN)
#define BINARY_OPS(X)                                                                              \
    X(div, DIV)                                                                                    \
    X(tanh_grad, TANH_GRAD)                                                                        \
    X(sigmoid_grad, SIGMOID_GRAD)                                                                  \
    X(relu_grad, RELU_GRAD)                                                                        \
    X(gelu_grad, GELU_GRAD)                                                                        \
    X(silu_grad, SILU_GRAD)
#define UNARY_OPS(X)                                                                               \
    X(scale, SCALE)                                                                                \
    X(neg, NEG)                                                                                    \
    X(exp, EXP)                                                                                    \
    X(log, LOG)                                                                                    \
    X(sqrt, SQRT)                                                                                  \
    X(rsqrt, RSQRT)                                                                                \
    X(square, SQUARE)                                                                              \
    X(tanh, TANH)                                                                                  \
    X(sigmoid, SIGMOID)                                                                            \
    X(relu, RELU)                                                                                  \
    X(gelu, GELU)                                                                                  \
    X(silu, SILU)

#define VALUE(op, function) function,
typedef enum binary { NUMBER_OPS(VALUE) BINARY_OPS(VALUE) } binary;
typedef enum unary { UNARY_OPS(VALUE) } unary;

/* gelu(x) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), which equals 0.5 x (1 + tanh u). */
DTP_CPU_INLINE float gelu_gate(float x)
{
    const float a = 1.5957691216057308f,
                b = 0.07135481282742617f; /* 2 sqrt(2/pi), ... * 0.044715 */
    return dtp_simd_sigmoid(x * (a + b * x * x));
}

DTP_CPU_INLINE float gelu_slope(float x)
{
    const float a = 1.5957691216057308f, b = 0.21406443848227851f; /* ..., 3 * 0.0713... */
    float s = gelu_gate(x);
    return s + x * s * (1.0f - s) * (a + b * x * x);
}

DTP_CPU_INLINE float apply2(binary op, float a, float b)
{
    float s;
    switch (op) {
    case ADD:
        return a + b;
    case SUB:
        return a - b;
    case MUL:
        return a * b;
    case DIV:
        return a / b;
    case MAX: /* a NaN on either side wins */
        return a > b || a != a ? a : b;
    case MIN:
        return a < b || a != a ? a : b;
    case TANH_GRAD:
        return b * (1.0f - a * a);
    case SIGMOID_GRAD:
        return b * a * (1.0f - a);
    case RELU_GRAD:
        return a > 0.0f ? b : 0.0f;
    case GELU_GRAD:
        return b * gelu_slope(a);
    case SILU_GRAD:
        s = dtp_simd_sigmoid(a);
        return b * s * (1.0f + a * (1.0f - s));
    }
    return 0.0f;
}

DTP_CPU_INLINE float apply1(unary op, float x, float factor)
{
    switch (op) {
    case SCALE:
        return x * factor;
    case NEG:
        return -x;
    case EXP:
        return dtp_simd_exp(x);
    case LOG:
        return logf(x);
    case SQRT:
        return sqrtf(x);
    case RSQRT:
        return 1.0f / sqrtf(x);
    case SQUARE:
        return x * x;
    case TANH:
        return dtp_simd_tanh(x);
    case SIGMOID:
        return dtp_simd_sigmoid(x);
    case RELU:
        return x < 0.0f ? 0.0f : x;
    case GELU:
        return x * gelu_gate(x);
    case SILU:
        return x * dtp_simd_sigmoid(x);
    }
    return 0.0f;
}

/* A row of two operands with steps sa, sb into a contiguous output. */
typedef struct row2 {
    int64_t n, sa, sb;
    const float *a, *b;
    float *y;
} row2;

DTP_CPU_INLINE void loops2(binary op, const row2 *r)
{
    const float *a = r->a, *b = r->b;
    float *y = r->y;
    int64_t n = r->n, sa = r->sa, sb = r->sb;
    if (sa == 1 && sb == 1) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            y[i] = apply2(op, a[i], b[i]);
        }
    } else if (sa == 1 && sb == 0) {
        float b0 = b[0];
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            y[i] = apply2(op, a[i], b0);
        }
    } else if (sa == 0 && sb == 1) {
        float a0 = a[0];
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            y[i] = apply2(op, a0, b[i]);
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            y[i] = apply2(op, a[i * sa], b[i * sb]);
        }
    }
}

DTP_CPU_CLONES static void run_row2(binary op, const row2 *r)
{
#define CASE2(op, function)                                                                        \
    case function:                                                                                 \
        loops2(function, r);                                                                       \
        break;
    switch (op) {
        NUMBER_OPS(CASE2)
        BINARY_OPS(CASE2)
    }
}

DTP_CPU_INLINE void loop1(unary op, int64_t n, const float *x, float *y, float factor)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = apply1(op, x[i], factor);
    }
}

DTP_CPU_CLONES static void run_row1(unary op, int64_t n, const float *x, float *y, float factor)
{
#define CASE1(op, function)                                                                        \
    case function:                                                                                 \
        loop1(function, n, x, y, factor);                                                          \
        break;
    switch (op) {
        UNARY_OPS(CASE1)
    }
}

typedef struct job2 {
    binary op;
    int64_t sa, sb;
    const float *a, *b;
    float *y;
} job2;

static void float_piece2(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const job2 *job = user;
    row2 r = {.n = n,
              .sa = job->sa,
              .sb = job->sb,
              .a = job->a + off[1],
              .b = job->b + off[2],
              .y = job->y + off[0]};
    run_row2(job->op, &r);
}

void dtp_cpu_multiply(const dtp_nest *nest, int32_t threads, const float *a, const float *b,
                      float *y)
{
    job2 job = {MUL, dtp_nest_step(nest, 1), dtp_nest_step(nest, 2), a, b, y};
    dtp_nest_each(nest, threads, float_piece2, &job);
}

static dtp_status check_number(const dtp_op_call *call, dtp_err *err)
{
    return dtp_dtype_is_float(call->in[0].dtype) ? dtp_cpu_check_all_f32(call, err) : DTP_OK;
}

static dtp_status binary_kernel(const dtp_kernel_args *args, binary op)
{
    const dtp_view *views[] = {&args->out[0], &args->in[0], &args->in[1]};
    dtp_nest nest;
    dtp_nest_like(&nest, 3, views);
    job2 job = {op,
                dtp_nest_step(&nest, 1),
                dtp_nest_step(&nest, 2),
                views[1]->data,
                views[2]->data,
                views[0]->data};
    dtp_nest_each(&nest, args->threads, float_piece2, &job);
    return DTP_OK;
}

typedef struct job1 {
    unary op;
    float factor;
    int64_t step; /* of x */
    const float *x;
    float *y;
} job1;

static void piece1(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const job1 *job = user;
    if (job->step == 1) {
        run_row1(job->op, n, job->x + off[1], job->y + off[0], job->factor);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        run_row1(job->op, 1, job->x + off[1] + i * job->step, job->y + off[0] + i, job->factor);
    }
}

static dtp_status unary_kernel(const dtp_kernel_args *args, unary op)
{
    const dtp_view *views[] = {&args->out[0], &args->in[0]};
    dtp_nest nest;
    dtp_nest_like(&nest, 2, views);
    job1 job = {op, 0.0f, dtp_nest_step(&nest, 1), views[1]->data, views[0]->data};
    if (op == SCALE) {
        job.factor = (float)dtp_call_float(args->call, "factor");
    }
    dtp_nest_each(&nest, args->threads, piece1, &job);
    return DTP_OK;
}

#define NUMBER_KERNEL(op, function)                                                                \
    static dtp_status op##_kernel(const dtp_kernel_args *args, dtp_err *err)                       \
    {                                                                                              \
        (void)err;                                                                                 \
        if (!dtp_dtype_is_float(args->in[0].local.dtype)) {                                        \
            dtp_cpu_binary_ints(args, DTP_INT_##function);                                         \
            return DTP_OK;                                                                         \
        }                                                                                          \
        return binary_kernel(args, function);                                                      \
    }
NUMBER_OPS(NUMBER_KERNEL)

#define KERNEL2(op, function)                                                                      \
    static dtp_status op##_kernel(const dtp_kernel_args *args, dtp_err *err)                       \
    {                                                                                              \
        (void)err;                                                                                 \
        return binary_kernel(args, function);                                                      \
    }
BINARY_OPS(KERNEL2)

#define KERNEL1(op, function)                                                                      \
    static dtp_status op##_kernel(const dtp_kernel_args *args, dtp_err *err)                       \
    {                                                                                              \
        (void)err;                                                                                 \
        return unary_kernel(args, function);                                                       \
    }
UNARY_OPS(KERNEL1)

#define NUMBER_ROW(op, function) {#op, op##_kernel, check_number},
#define FLOAT_ROW(op, function) {#op, op##_kernel, dtp_cpu_check_all_f32},
static const dtp_cpu_row rows[] = {NUMBER_OPS(NUMBER_ROW) BINARY_OPS(FLOAT_ROW)
                                       UNARY_OPS(FLOAT_ROW)};
const dtp_cpu_family dtp_cpu_elementwise = {rows, sizeof rows / sizeof rows[0]};
