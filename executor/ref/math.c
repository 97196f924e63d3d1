/* Reference kernels of the functions of core/graph/ops/unary.c and of the ops on truth values. */
#include <math.h>
#include <string.h>

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

typedef struct function {
    const char *op;
    double (*plain)(double x);                               /* of x alone, or else */
    double (*full)(double x, double dy, double a, double b); /* with attributes */
    const char *a, *b;                                       /* these; NULL: none */
} function;

static const function FUNCTIONS[] = {{"abs", fabs, NULL, NULL, NULL},
                                     {"sign", sign, NULL, NULL, NULL},
                                     {"sin", sin, NULL, NULL, NULL},
                                     {"cos", cos, NULL, NULL, NULL},
                                     {"reciprocal", reciprocal, NULL, NULL, NULL},
                                     {"log1p", log1p, NULL, NULL, NULL},
                                     {"expm1", expm1, NULL, NULL, NULL},
                                     {"softplus", softplus, NULL, NULL, NULL},
                                     {"pow", NULL, power, "exponent", NULL},
                                     {"leaky_relu", NULL, leaky_relu, "slope", NULL},
                                     {"elu", NULL, elu, "alpha", NULL},
                                     {"clamp", NULL, clamp, "low", "high"},
                                     {"leaky_relu_grad", NULL, leaky_relu_grad, "slope", NULL},
                                     {"elu_grad", NULL, elu_grad, "alpha", NULL},
                                     {"clamp_grad", NULL, clamp_grad, "low", "high"}};

/* An attribute; clamp's "no bound" is infinite. */
static double attr_float(const dtp_op_call *call, const char *key)
{
    double v = key == NULL ? 0.0 : dtp_call_float(call, key);
    return fabs(v) >= 1e308 ? copysign((double)INFINITY, v) : v;
}

static dtp_status run_function(const dtp_kernel_args *args, dtp_err *err)
{
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    size_t k = 0;
    while (k < sizeof FUNCTIONS / sizeof FUNCTIONS[0] &&
           strcmp(FUNCTIONS[k].op, args->call->op->name) != 0) {
        k++;
    }
    if (k == sizeof FUNCTIONS / sizeof FUNCTIONS[0]) {
        return DTP_FAIL(err, DTP_INTERNAL, "no function for '%s'", args->call->op->name);
    }
    const function *f = &FUNCTIONS[k];
    const double a = attr_float(args->call, f->a), b = attr_float(args->call, f->b);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        double x = dtp_ref__get(&args->in[0], &l);
        double dy = args->call->n_in == 2 ? dtp_ref__get(&args->in[1], &l) : 0.0;
        dtp_ref__set(&args->out[0], &l, f->plain != NULL ? f->plain(x) : f->full(x, dy, a, b));
    }
    return DTP_OK;
}

/* ---- truth values -------------------------------------------------------------------------------
 */

static dtp_status run_logical(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const char *op = args->call->op->name;
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        bool a = dtp_ref__get(&args->in[0], &l) != 0.0, r = !a;
        if (args->call->n_in == 2) {
            bool b = dtp_ref__get(&args->in[1], &l) != 0.0;
            r = strcmp(op, "logical_and") == 0  ? a && b
                : strcmp(op, "logical_or") == 0 ? a || b
                                                : a != b;
        }
        dtp_ref__set(&args->out[0], &l, r ? 1.0 : 0.0);
    }
    return DTP_OK;
}

static dtp_status run_over(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const bool any = strcmp(args->call->op->name, "any") == 0;
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

const dtp_kernel dtp_ref__math[] = {{"abs", run_function},
                                    {"sign", run_function},
                                    {"sin", run_function},
                                    {"cos", run_function},
                                    {"reciprocal", run_function},
                                    {"log1p", run_function},
                                    {"expm1", run_function},
                                    {"softplus", run_function},
                                    {"pow", run_function},
                                    {"leaky_relu", run_function},
                                    {"elu", run_function},
                                    {"clamp", run_function},
                                    {"leaky_relu_grad", run_function},
                                    {"elu_grad", run_function},
                                    {"clamp_grad", run_function},
                                    {"logical_and", run_logical},
                                    {"logical_or", run_logical},
                                    {"logical_xor", run_logical},
                                    {"logical_not", run_logical},
                                    {"any", run_over},
                                    {"all", run_over},
                                    {NULL, NULL}};
