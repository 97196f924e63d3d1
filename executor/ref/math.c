/* Reference kernels of the functions of core/graph/ops/unary.c and of the ops on truth values. */
#include <math.h>

#include "executor/ref/index.h"
#include "executor/ref/kernels.h"

/* ---- functions of x alone -----------------------------------------------------------------------
 */

static double sign(double x)
{
    return isnan(x) ? x : (double)((x > 0.0) - (x < 0.0));
}

static double reciprocal(double x)
{
    return 1.0 / x;
}

static double softplus(double x)
{
    return fmax(x, 0.0) + log1p(exp(-fabs(x)));
}

/* ---- functions of x and two attributes; gradients also take dy --------------------------------
 */

static double power(double x, double dy, double a, double b)
{
    (void)dy, (void)b;
    return pow(x, a);
}

static double leaky_relu(double x, double dy, double a, double b)
{
    (void)dy, (void)b;
    return x > 0.0 ? x : a * x;
}

static double leaky_relu_grad(double x, double dy, double a, double b)
{
    (void)b;
    return x > 0.0 ? dy : a * dy;
}

static double elu(double x, double dy, double a, double b)
{
    (void)dy, (void)b;
    return x > 0.0 ? x : a * expm1(x);
}

static double elu_grad(double x, double dy, double a, double b)
{
    (void)b;
    return x > 0.0 ? dy : a * exp(x) * dy;
}

static double clamp(double x, double dy, double a, double b)
{
    (void)dy;
    return isnan(x) ? x : fmin(fmax(x, a), b);
}

static double clamp_grad(double x, double dy, double a, double b)
{
    return x >= a && x <= b ? dy : 0.0;
}

/* An attribute; clamp's "no bound" is infinite. */
static double attr_float(const dtp_op_call *call, const char *key)
{
    double v = key == NULL ? 0.0 : dtp_call_float(call, key);
    return fabs(v) >= 1e308 ? copysign((double)INFINITY, v) : v;
}

static dtp_status run_plain(const dtp_kernel_args *args, double (*f)(double))
{
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        dtp_ref__set(&args->out[0], &l, f(dtp_ref__get(&args->in[0], &l)));
    }
    return DTP_OK;
}

/* key_a and key_b are attributes, NULL: none. */
static dtp_status run_full(const dtp_kernel_args *args, double (*f)(double, double, double, double),
                           const char *key_a, const char *key_b)
{
    const double a = attr_float(args->call, key_a), b = attr_float(args->call, key_b);
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        double x = dtp_ref__get(&args->in[0], &l);
        double dy = args->call->n_in == 2 ? dtp_ref__get(&args->in[1], &l) : 0.0;
        dtp_ref__set(&args->out[0], &l, f(x, dy, a, b));
    }
    return DTP_OK;
}

/* Op, function; op, function, attributes. */
#define PLAIN(X)                                                                                   \
    X(abs, fabs)                                                                                   \
    X(sign, sign)                                                                                  \
    X(sin, sin)                                                                                    \
    X(cos, cos)                                                                                    \
    X(reciprocal, reciprocal)                                                                      \
    X(log1p, log1p)                                                                                \
    X(expm1, expm1)                                                                                \
    X(softplus, softplus)
#define FULL(X)                                                                                    \
    X(pow, power, "exponent", NULL)                                                                \
    X(leaky_relu, leaky_relu, "slope", NULL)                                                       \
    X(elu, elu, "alpha", NULL)                                                                     \
    X(clamp, clamp, "low", "high")                                                                 \
    X(leaky_relu_grad, leaky_relu_grad, "slope", NULL)                                             \
    X(elu_grad, elu_grad, "alpha", NULL)                                                           \
    X(clamp_grad, clamp_grad, "low", "high")

#define PLAIN_KERNEL(op, f)                                                                        \
    static dtp_status run_##op(const dtp_kernel_args *args, dtp_err *err)                          \
    {                                                                                              \
        (void)err;                                                                                 \
        return run_plain(args, f);                                                                 \
    }
PLAIN(PLAIN_KERNEL)

#define FULL_KERNEL(op, f, a, b)                                                                   \
    static dtp_status run_##op(const dtp_kernel_args *args, dtp_err *err)                          \
    {                                                                                              \
        (void)err;                                                                                 \
        return run_full(args, f, a, b);                                                            \
    }
FULL(FULL_KERNEL)

/* ---- truth values -------------------------------------------------------------------------------
 */

/* `table` holds the result at bit a + 2 b; b is 0 when there is no operand 1. */
static dtp_status run_logical(const dtp_kernel_args *args, uint32_t table)
{
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        const uint32_t a = dtp_ref__get(&args->in[0], &l) != 0.0 ? 1 : 0;
        const bool b = args->call->n_in == 2 && dtp_ref__get(&args->in[1], &l) != 0.0;
        const bool r = (table >> (a + (b ? 2 : 0)) & 1U) != 0;
        dtp_ref__set(&args->out[0], &l, r ? 1.0 : 0.0);
    }
    return DTP_OK;
}

#define LOGICAL_KERNEL(op, table)                                                                  \
    static dtp_status run_##op(const dtp_kernel_args *args, dtp_err *err)                          \
    {                                                                                              \
        (void)err;                                                                                 \
        return run_logical(args, table);                                                           \
    }
LOGICAL_KERNEL(logical_and, 8U) /* a = b = 1 */
LOGICAL_KERNEL(logical_or, 14U)
LOGICAL_KERNEL(logical_xor, 6U)
LOGICAL_KERNEL(logical_not, 1U) /* a = 0 */

static dtp_status run_over(const dtp_kernel_args *args, bool any, dtp_err *err)
{
    (void)err;
    int32_t rows;
    dtp_ref_loop l = dtp_ref__rows(args->call, &args->in[0], &rows);
    for (bool go = dtp_ref__first(&l, 0, rows); go; go = dtp_ref__next(&l, 0, rows)) {
        bool r = !any;
        for (bool in = dtp_ref__first(&l, rows, l.n); in; in = dtp_ref__next(&l, rows, l.n)) {
            bool x = dtp_ref__get(&args->in[0], &l) != 0.0;
            r = any ? r || x : r && x;
        }
        dtp_ref__set(&args->out[0], &l, r ? 1.0 : 0.0);
    }
    return DTP_OK;
}

static dtp_status run_any(const dtp_kernel_args *args, dtp_err *err)
{
    return run_over(args, true, err);
}

static dtp_status run_all(const dtp_kernel_args *args, dtp_err *err)
{
    return run_over(args, false, err);
}

#define PLAIN_ROW(op, f) {#op, run_##op},
#define FULL_ROW(op, f, a, b) {#op, run_##op},
const dtp_kernel dtp_ref__math[] = {PLAIN(PLAIN_ROW) FULL(FULL_ROW){"logical_and", run_logical_and},
                                    {"logical_or", run_logical_or},
                                    {"logical_xor", run_logical_xor},
                                    {"logical_not", run_logical_not},
                                    {"any", run_any},
                                    {"all", run_all},
                                    {NULL, NULL}};
