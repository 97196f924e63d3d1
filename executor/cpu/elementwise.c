/* Unary and binary elementwise ops with broadcasting by name, and their gradients.
 *
 * Binary ops run over a nest (executor/cpu/nest.h); a row of it has element steps 1, 0 (broadcast)
 * or any other. */
#include "executor/cpu/elementwise.h"

#include <string.h>

#include "executor/cpu/integers.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/parallel.h"
#include "executor/cpu/simd.h"

typedef enum binary {
    ADD,
    SUB,
    MUL,
    DIV,
    MAX,
    MIN,
    TANH_GRAD,
    SIGMOID_GRAD,
    RELU_GRAD,
    GELU_GRAD,
    SILU_GRAD
} binary;

typedef enum unary {
    SCALE,
    NEG,
    EXP,
    LOG,
    SQRT,
    RSQRT,
    SQUARE,
    TANH,
    SIGMOID,
    RELU,
    GELU,
    SILU
} unary;

static const char *const binary_names[] = {"add",       "sub",       "mul",       "div",
                                           "max",       "min",       "tanh_grad", "sigmoid_grad",
                                           "relu_grad", "gelu_grad", "silu_grad"};
static const char *const unary_names[] = {"scale",  "neg",  "exp",     "log",  "sqrt", "rsqrt",
                                          "square", "tanh", "sigmoid", "relu", "gelu", "silu"};

static int32_t index_of(const char *name, const char *const *names, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

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
    switch (op) {
    case ADD:
        loops2(ADD, r);
        break;
    case SUB:
        loops2(SUB, r);
        break;
    case MUL:
        loops2(MUL, r);
        break;
    case DIV:
        loops2(DIV, r);
        break;
    case MAX:
        loops2(MAX, r);
        break;
    case MIN:
        loops2(MIN, r);
        break;
    case TANH_GRAD:
        loops2(TANH_GRAD, r);
        break;
    case SIGMOID_GRAD:
        loops2(SIGMOID_GRAD, r);
        break;
    case RELU_GRAD:
        loops2(RELU_GRAD, r);
        break;
    case GELU_GRAD:
        loops2(GELU_GRAD, r);
        break;
    case SILU_GRAD:
        loops2(SILU_GRAD, r);
        break;
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
    switch (op) {
    case SCALE:
        loop1(SCALE, n, x, y, factor);
        break;
    case NEG:
        loop1(NEG, n, x, y, factor);
        break;
    case EXP:
        loop1(EXP, n, x, y, factor);
        break;
    case LOG:
        loop1(LOG, n, x, y, factor);
        break;
    case SQRT:
        loop1(SQRT, n, x, y, factor);
        break;
    case RSQRT:
        loop1(RSQRT, n, x, y, factor);
        break;
    case SQUARE:
        loop1(SQUARE, n, x, y, factor);
        break;
    case TANH:
        loop1(TANH, n, x, y, factor);
        break;
    case SIGMOID:
        loop1(SIGMOID, n, x, y, factor);
        break;
    case RELU:
        loop1(RELU, n, x, y, factor);
        break;
    case GELU:
        loop1(GELU, n, x, y, factor);
        break;
    case SILU:
        loop1(SILU, n, x, y, factor);
        break;
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

static dtp_status check_binary(const dtp_op_call *call, dtp_err *err)
{
    return dtp_dtype_is_float(call->in[0].dtype) ? dtp_cpu_check_all_f32(call, err)
                                                 : dtp_cpu_check_binary_ints(call, err);
}

static dtp_status binary_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *views[] = {&args->out[0], &args->in[0], &args->in[1]};
    int32_t op = index_of(args->call->op->name, binary_names,
                          (int32_t)(sizeof binary_names / sizeof binary_names[0]));
    if (!dtp_dtype_is_float(views[1]->local.dtype)) {
        dtp_cpu_binary_ints(args);
        return DTP_OK;
    }
    dtp_nest nest;
    dtp_nest_like(&nest, 3, views);
    job2 job = {(binary)op,     dtp_nest_step(&nest, 1), dtp_nest_step(&nest, 2),
                views[1]->data, views[2]->data,          views[0]->data};
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

static dtp_status unary_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    int32_t op = index_of(args->call->op->name, unary_names,
                          (int32_t)(sizeof unary_names / sizeof unary_names[0]));
    const dtp_view *views[] = {&args->out[0], &args->in[0]};
    dtp_nest nest;
    dtp_nest_like(&nest, 2, views);
    job1 job = {(unary)op, 0.0f, dtp_nest_step(&nest, 1), views[1]->data, views[0]->data};
    if (op == (int32_t)SCALE) {
        job.factor = (float)dtp_call_float(args->call, "factor");
    }
    dtp_nest_each(&nest, args->threads, piece1, &job);
    return DTP_OK;
}

static const dtp_cpu_row rows[] = {
    {"add", binary_kernel, check_binary},
    {"sub", binary_kernel, check_binary},
    {"mul", binary_kernel, check_binary},
    {"div", binary_kernel, check_binary},
    {"max", binary_kernel, check_binary},
    {"min", binary_kernel, check_binary},
    {"tanh_grad", binary_kernel, check_binary},
    {"sigmoid_grad", binary_kernel, check_binary},
    {"relu_grad", binary_kernel, check_binary},
    {"gelu_grad", binary_kernel, check_binary},
    {"silu_grad", binary_kernel, check_binary},
    {"scale", unary_kernel, dtp_cpu_check_all_f32},
    {"neg", unary_kernel, dtp_cpu_check_all_f32},
    {"exp", unary_kernel, dtp_cpu_check_all_f32},
    {"log", unary_kernel, dtp_cpu_check_all_f32},
    {"sqrt", unary_kernel, dtp_cpu_check_all_f32},
    {"rsqrt", unary_kernel, dtp_cpu_check_all_f32},
    {"square", unary_kernel, dtp_cpu_check_all_f32},
    {"tanh", unary_kernel, dtp_cpu_check_all_f32},
    {"sigmoid", unary_kernel, dtp_cpu_check_all_f32},
    {"relu", unary_kernel, dtp_cpu_check_all_f32},
    {"gelu", unary_kernel, dtp_cpu_check_all_f32},
    {"silu", unary_kernel, dtp_cpu_check_all_f32},
};
const dtp_cpu_family dtp_cpu_elementwise = {rows, sizeof rows / sizeof rows[0]};
