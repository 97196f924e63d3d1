/* Reference kernels of the elementwise ops. */
#include <math.h>
#include <string.h>

#include "executor/ref/index.h"
#include "executor/ref/kernels.h"

/* ---- one operand and its gradients -------------------------------------------------------------
 */

static double logistic(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* The inner tanh of the tanh form of gelu, and the derivative of its argument. */
static double gelu_tanh(double x)
{
    return tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x));
}

static double gelu_slope(double x)
{
    double t = gelu_tanh(x);
    double inner = sqrt(2.0 / acos(-1.0)) * (1.0 + 3.0 * 0.044715 * x * x);
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner;
}

static double neg(double x)
{
    return -x;
}

static double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}

static double square(double x)
{
    return x * x;
}

static double relu(double x)
{
    return x > 0.0 ? x : 0.0;
}

static double gelu(double x)
{
    return 0.5 * x * (1.0 + gelu_tanh(x));
}

static double silu(double x)
{
    return x * logistic(x);
}

static double tanh_grad(double y, double dy)
{
    return dy * (1.0 - y * y);
}

static double sigmoid_grad(double y, double dy)
{
    return dy * y * (1.0 - y);
}

static double relu_grad(double x, double dy)
{
    return x > 0.0 ? dy : 0.0;
}

static double gelu_grad(double x, double dy)
{
    return dy * gelu_slope(x);
}

static double silu_grad(double x, double dy)
{
    double s = logistic(x);
    return dy * (s + x * s * (1.0 - s));
}

static double add(double a, double b)
{
    return a + b;
}

static double sub(double a, double b)
{
    return a - b;
}

static double mul(double a, double b)
{
    return a * b;
}

static double divide(double a, double b)
{
    return a / b;
}

/* NaN wins, as an error must stay visible. */
static double larger(double a, double b)
{
    return isnan(a) || a >= b ? a : b;
}

static double smaller(double a, double b)
{
    return isnan(a) || a <= b ? a : b;
}

static dtp_status run_unary(const dtp_kernel_args *args, double (*f)(double))
{
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        dtp_ref__set(&args->out[0], &l, f(dtp_ref__get(&args->in[0], &l)));
    }
    return DTP_OK;
}

/* Integers, exactly; sums and products wrap around. */
static int64_t int_add(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t int_sub(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

static int64_t int_mul(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

static int64_t int_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t int_min(int64_t a, int64_t b)
{
    return a > b ? b : a;
}

static dtp_status run_binary(const dtp_kernel_args *args, double (*f)(double, double),
                             int64_t (*whole)(int64_t, int64_t))
{
    const dtp_view *x = args->in, *out = &args->out[0];
    const bool ints = !dtp_dtype_is_float(x[0].local.dtype);
    dtp_ref_loop l = dtp_ref__over(&out->local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        if (ints) {
            dtp_ref__set_int(out, &l,
                             whole(dtp_ref__get_int(&x[0], &l), dtp_ref__get_int(&x[1], &l)));
        } else {
            dtp_ref__set(out, &l, f(dtp_ref__get(&x[0], &l), dtp_ref__get(&x[1], &l)));
        }
    }
    return DTP_OK;
}

/* Op, function; op, function, that of integers; NULL: floats only. */
#define UNARY(X)                                                                                   \
    X(neg, neg)                                                                                    \
    X(exp, exp)                                                                                    \
    X(log, log)                                                                                    \
    X(sqrt, sqrt)                                                                                  \
    X(rsqrt, rsqrt)                                                                                \
    X(square, square)                                                                              \
    X(tanh, tanh)                                                                                  \
    X(sigmoid, logistic)                                                                           \
    X(relu, relu)                                                                                  \
    X(gelu, gelu)                                                                                  \
    X(silu, silu)
#define BINARY(X)                                                                                  \
    X(add, add, int_add)                                                                           \
    X(sub, sub, int_sub)                                                                           \
    X(mul, mul, int_mul)                                                                           \
    X(div, divide, NULL)                                                                           \
    X(max, larger, int_max)                                                                        \
    X(min, smaller, int_min)                                                                       \
    X(tanh_grad, tanh_grad, NULL)                                                                  \
    X(sigmoid_grad, sigmoid_grad, NULL)                                                            \
    X(relu_grad, relu_grad, NULL)                                                                  \
    X(gelu_grad, gelu_grad, NULL)                                                                  \
    X(silu_grad, silu_grad, NULL)

#define UNARY_KERNEL(op, f)                                                                        \
    static dtp_status run_##op(const dtp_kernel_args *args, dtp_err *err)                          \
    {                                                                                              \
        (void)err;                                                                                 \
        return run_unary(args, f);                                                                 \
    }
UNARY(UNARY_KERNEL)

#define BINARY_KERNEL(op, f, whole)                                                                \
    static dtp_status run_##op(const dtp_kernel_args *args, dtp_err *err)                          \
    {                                                                                              \
        (void)err;                                                                                 \
        return run_binary(args, f, whole);                                                         \
    }
BINARY(BINARY_KERNEL)

/* ---- with attributes ---------------------------------------------------------------------------
 */

static dtp_status run_scale(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    double factor = dtp_call_float(args->call, "factor");
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        dtp_ref__set(&args->out[0], &l, factor * dtp_ref__get(&args->in[0], &l));
    }
    return DTP_OK;
}

static dtp_status run_cast(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    bool same = args->in[0].local.dtype == args->out[0].local.dtype;
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        if (same) {
            dtp_ref__copy(&args->out[0], &l, &args->in[0], &l);
        } else {
            dtp_ref__set(&args->out[0], &l, dtp_ref__get(&args->in[0], &l));
        }
    }
    return DTP_OK;
}

static bool holds(const char *cmp, double a, double b)
{
    if (strcmp(cmp, "lt") == 0) {
        return a < b;
    }
    if (strcmp(cmp, "le") == 0) {
        return a <= b;
    }
    if (strcmp(cmp, "gt") == 0) {
        return a > b;
    }
    if (strcmp(cmp, "ge") == 0) {
        return a >= b;
    }
    return strcmp(cmp, "eq") == 0 ? a == b : a != b;
}

static dtp_status run_compare(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const char *cmp = dtp_ref__choice(args->call, "cmp");
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        double a = dtp_ref__get(&args->in[0], &l), b = dtp_ref__get(&args->in[1], &l);
        dtp_ref__set(&args->out[0], &l, holds(cmp, a, b) ? 1.0 : 0.0);
    }
    return DTP_OK;
}

static dtp_status run_select(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        bool c = dtp_ref__get(&args->in[0], &l) != 0.0;
        dtp_ref__copy(&args->out[0], &l, &args->in[c ? 1 : 2], &l);
    }
    return DTP_OK;
}

#define UNARY_ROW(op, f) {#op, run_##op},
#define BINARY_ROW(op, f, whole) {#op, run_##op},
const dtp_kernel dtp_ref__elementwise[] = {UNARY(UNARY_ROW) BINARY(BINARY_ROW){"scale", run_scale},
                                           {"cast", run_cast},
                                           {"compare", run_compare},
                                           {"select", run_select},
                                           {NULL, NULL}};
