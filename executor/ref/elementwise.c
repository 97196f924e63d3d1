/* Reference kernels of the elementwise ops. Functions are rows of lists: name, value; a and b are
 * the float attributes of the op. */
#include <math.h>
#include <string.h>

#include "core/graph/ops/fused_ops.h"
#include "core/graph/ops/op_table.h"
#include "executor/device/bound/elementwise.h"
#include "executor/ref/index.h"
#include "executor/ref/kernels.h"

static double logistic(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* The inner tanh of the tanh form of gelu, and the derivative of gelu. */
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

static double normal_below(double x)
{
    return 0.5 * erfc(-x / sqrt(2.0));
}

static double normal_density(double x)
{
    return exp(-0.5 * x * x) / sqrt(2.0 * acos(-1.0));
}

static double mod_of_both(double x, double y)
{
    const double r = fmod(x, y);
    return r == 0.0 ? copysign(0.0, y) : (r < 0.0) != (y < 0.0) ? r + y : r;
}

static int64_t int_mod_of_both(int64_t x, int64_t y)
{
    const int64_t r = y == 0 || y == -1 ? 0 : x % y;
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

static double silu_slope(double x)
{
    double s = logistic(x);
    return s + x * s * (1.0 - s);
}

/* x rounded to `digits` bits behind the leading one and to multiples of the least normal number
 * 2^least of that precision, at a scale, a power of two, at which amax is at most `most`. */
static double quantized(double x, double amax, double most, int least, int digits)
{
    int e;
    if (!isfinite(amax) || isnan(x)) {
        return (double)NAN;
    }
    (void)frexp(most / fmax(fabs(amax), 0x1p-40), &e);
    const double scale = ldexp(1.0, e - 1);
    const double t = fmin(fmax(x * scale, -most), most);
    (void)frexp(t, &e);
    const double step = ldexp(1.0, (e - 1 > least ? e - 1 : least) - digits);
    return nearbyint(t / step) * step / scale;
}

#define UNARY(OP)                                                                                  \
    OP(scale, return a * x)                                                                        \
    OP(neg, return -x)                                                                             \
    OP(exp, return exp(x))                                                                         \
    OP(log, return log(x))                                                                         \
    OP(sqrt, return sqrt(x))                                                                       \
    OP(rsqrt, return 1.0 / sqrt(x))                                                                \
    OP(square, return x * x)                                                                       \
    OP(tanh, return tanh(x))                                                                       \
    OP(sigmoid, return logistic(x))                                                                \
    OP(relu, return x <= 0.0 ? 0.0 : x)                                                            \
    OP(gelu, return 0.5 * x * (1.0 + gelu_tanh(x)))                                                \
    OP(erf, return erf(x))                                                                         \
    OP(gelu_erf, return x * normal_below(x))                                                       \
    OP(silu, return x * logistic(x))                                                               \
    OP(abs, return fabs(x))                                                                        \
    OP(sign, return isnan(x) ? x : (double)((x > 0.0) - (x < 0.0)))                                \
    OP(floor, return floor(x))                                                                     \
    OP(sin, return sin(x))                                                                         \
    OP(cos, return cos(x))                                                                         \
    OP(reciprocal, return 1.0 / x)                                                                 \
    OP(log1p, return log1p(x))                                                                     \
    OP(expm1, return expm1(x))                                                                     \
    OP(softplus, return fmax(x, 0.0) + log1p(exp(-fabs(x))))                                       \
    OP(pow, return pow(x, a))                                                                      \
    OP(leaky_relu, return x > 0.0 ? x : a * x)                                                     \
    OP(elu, return x > 0.0 ? x : a * expm1(x))                                                     \
    OP(clamp, return isnan(x) ? x : fmin(fmax(x, a), b))                                           \
    OP(logical_not, return x == 0.0 ? 1.0 : 0.0)

/* Of x and y. Gradients: x is the operand of the function or its result, y the cotangent. */
#define BINARY(OP)                                                                                 \
    OP(div, return x / y)                                                                          \
    OP(tanh_grad, return y * (1.0 - x * x))                                                        \
    OP(sigmoid_grad, return y * x * (1.0 - x))                                                     \
    OP(relu_grad, return x > 0.0 ? y : 0.0)                                                        \
    OP(gelu_grad, return y * gelu_slope(x))                                                        \
    OP(silu_grad, return y * silu_slope(x))                                                        \
    OP(erf_grad, return y * 2.0 / sqrt(acos(-1.0)) * exp(-x * x))                                  \
    OP(gelu_erf_grad, return y * (normal_below(x) + x * normal_density(x)))                        \
    OP(leaky_relu_grad, return x > 0.0 ? y : a * y)                                                \
    OP(elu_grad, return x > 0.0 ? y : a * exp(x) * y)                                              \
    OP(clamp_grad, return x >= a && x <= b ? y : 0.0)                                              \
    OP(quantize_e4m3, return quantized(x, y, 448.0, -6, 3))                                        \
    OP(quantize_e5m2, return quantized(x, y, 57344.0, -14, 2))                                     \
    OP(in_training, (void)y; return x)                                                             \
    OP(follow, (void)x; return y)

/* Of floats, and of integers, exactly: sums and products wrap around. In max and min NaN wins, as
 * an error must stay visible. */
#define ARITHMETIC(OP)                                                                             \
    OP(add, return x + y, return (int64_t)((uint64_t)x + (uint64_t)y))                             \
    OP(sub, return x - y, return (int64_t)((uint64_t)x - (uint64_t)y))                             \
    OP(mul, return x * y, return (int64_t)((uint64_t)x * (uint64_t)y))                             \
    OP(max, return isnan(x) || x >= y ? x : y, return x > y ? x : y)                               \
    OP(min, return isnan(x) || x <= y ? x : y, return x < y ? x : y)                               \
    OP(mod, return mod_of_both(x, y), return int_mod_of_both(x, y))                                \
    OP(logical_and, return 0.0, return x != 0 && y != 0)                                           \
    OP(logical_or, return 0.0, return x != 0 || y != 0)                                            \
    OP(logical_xor, return 0.0, return (x != 0) != (y != 0))

typedef double (*value_fn)(double x, double y, double a, double b);
typedef int64_t (*int_value_fn)(int64_t x, int64_t y);

static void run_function(const dtp_kernel_args *args, value_fn value)
{
    const bool two = args->call->n_in == 2;
    const double a = dtp_float_attr(args->call, 0), b = dtp_float_attr(args->call, 1);
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        double x = dtp_ref__get(&args->in[0], &l);
        double y = two ? dtp_ref__get(&args->in[1], &l) : 0.0;
        dtp_ref__set(&args->out[0], &l, value(x, y, a, b));
    }
}

static void run_ints(const dtp_kernel_args *args, int_value_fn value)
{
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        const int64_t x = dtp_ref__get_int(&args->in[0], &l);
        const int64_t y = dtp_ref__get_int(&args->in[1], &l);
        dtp_ref__set_int(&args->out[0], &l, value(x, y));
    }
}

#define FUNCTION(op, value)                                                                        \
    static double op##_value(double x, double y, double a, double b)                               \
    {                                                                                              \
        (void)y, (void)a, (void)b;                                                                 \
        value;                                                                                     \
    }                                                                                              \
    static dtp_status run_##op(const dtp_kernel_args *args, dtp_err *err)                          \
    {                                                                                              \
        (void)err;                                                                                 \
        run_function(args, op##_value);                                                            \
        return DTP_OK;                                                                             \
    }
#define ARITHMETIC_FUNCTION(op, value, int_value)                                                  \
    static double op##_value(double x, double y, double a, double b)                               \
    {                                                                                              \
        (void)x, (void)y, (void)a, (void)b;                                                        \
        value;                                                                                     \
    }                                                                                              \
    static int64_t op##_int_value(int64_t x, int64_t y)                                            \
    {                                                                                              \
        int_value;                                                                                 \
    }                                                                                              \
    static dtp_status run_##op(const dtp_kernel_args *args, dtp_err *err)                          \
    {                                                                                              \
        (void)err;                                                                                 \
        if (dtp_dtype_is_float(args->in[0].local.dtype)) {                                         \
            run_function(args, op##_value);                                                        \
        } else {                                                                                   \
            run_ints(args, op##_int_value);                                                        \
        }                                                                                          \
        return DTP_OK;                                                                             \
    }
UNARY(FUNCTION)
BINARY(FUNCTION)
ARITHMETIC(ARITHMETIC_FUNCTION)

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

static double cast_value(double x, double y, double a, double b)
{
    (void)y, (void)a, (void)b;
    return x;
}

#define NAMED_VALUE(name, ...) {#name, name##_value},
static value_fn find_value(const char *name)
{
    static const struct {
        const char *name;
        value_fn value;
    } values[] = {{"cast", cast_value},
                  UNARY(NAMED_VALUE) BINARY(NAMED_VALUE) ARITHMETIC(NAMED_VALUE)};
    size_t i = 0;
    while (i < sizeof values / sizeof values[0] && strcmp(values[i].name, name) != 0) {
        i++;
    }
    return i < sizeof values / sizeof values[0] ? values[i].value : NULL;
}

static dtp_status run_fused(const dtp_kernel_args *args, dtp_err *err)
{
    value_fn values[DTP_FUSED_STEPS];
    dtp_fused_expr e;
    DTP_TRY(dtp_fused_expr_of(args->call, &e, err));
    for (int32_t k = 0; k < e.n; k++) {
        values[k] = find_value(e.step[k].op->name);
        if (values[k] == NULL) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "backend ref has no function '%s'",
                            e.step[k].op->name);
        }
    }
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        double v[DTP_FUSED_IN + DTP_FUSED_STEPS] = {0};
        for (int32_t i = 0; i < args->call->n_in; i++) {
            v[i] = dtp_ref__get(&args->in[i], &l);
        }
        for (int32_t k = 0; k < e.n; k++) {
            const dtp_fused_step *s = &e.step[k];
            v[DTP_FUSED_IN + k] = values[k](v[s->arg[0]], v[s->arg[1]], s->constant, 0.0);
        }
        dtp_ref__set(&args->out[0], &l, v[DTP_FUSED_IN + e.n - 1]);
        if (e.also >= 0) {
            dtp_ref__set(&args->out[1], &l, v[DTP_FUSED_IN + e.also]);
        }
    }
    return DTP_OK;
}

/* The expression, then the kernel of the norm. */
static dtp_status run_fused_norm(const dtp_kernel_args *args, dtp_err *err)
{
    dtp_ttype types[3];
    const dtp_op_call *call = args->call, expr = dtp_fused_norm_expression(call),
                      norm = dtp_fused_norm_call(call, types);
    const dtp_view *x = &args->out[call->n_out - 1];
    dtp_view in[3] = {*x};
    dtp_kernel_args part = *args;
    const dtp_kernel *kernel = dtp_ref__norm;
    for (int32_t i = 1; i < norm.n_in; i++) {
        in[i] = args->in[expr.n_in + i - 1];
    }
    part.call = &expr;
    part.out = x;
    DTP_TRY(run_fused(&part, err));
    part.call = &norm;
    part.in = in;
    part.out = args->out;
    while (dtp_op_find(kernel->op) != norm.op) {
        kernel++;
    }
    return kernel->run(&part, err);
}

/* The product, then the expression in its place, then the sum. */
static dtp_status run_fused_product(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_kernel_fn einsum = dtp_ref__contract[0].run;
    const dtp_fused_product_kind kind = dtp_fused_product_kind_of(args->call->op);
    dtp_ttype types[DTP_FUSED_IN];
    dtp_view in[DTP_FUSED_IN] = {args->out[0]};
    const dtp_op_call product = dtp_fused_product_of(args->call);
    dtp_kernel_args part = *args;
    part.call = &product;
    DTP_TRY(einsum(&part, err));
    if (kind != DTP_FUSED_OPERAND_SUM) {
        const dtp_op_call expr = dtp_fused_product_expression(args->call, types);
        for (int32_t i = 1; i < expr.n_in; i++) {
            in[i] = args->in[i + 1];
        }
        part.call = &expr;
        part.in = in;
        DTP_TRY(run_fused(&part, err));
    }
    if (kind < DTP_FUSED_PRODUCT_SUM) {
        return DTP_OK;
    }
    const dtp_op_call sum = dtp_fused_product_sum(args->call);
    part.call = &sum;
    part.in = kind == DTP_FUSED_OPERAND_SUM ? &args->in[1] : args->out;
    part.out = &args->out[1];
    return einsum(&part, err);
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
    const char *cmp = dtp_call_choice(args->call, "cmp");
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

/* ---- truth values ---- */

static double any_row(const dtp_kernel_args *args, dtp_ref_loop *l, int32_t rows)
{
    double any = 0.0;
    for (bool in = dtp_ref__first(l, rows, l->n); in; in = dtp_ref__next(l, rows, l->n)) {
        any = dtp_ref__get(&args->in[0], l) != 0.0 ? 1.0 : any;
    }
    return any;
}

static double all_row(const dtp_kernel_args *args, dtp_ref_loop *l, int32_t rows)
{
    double all = 1.0;
    for (bool in = dtp_ref__first(l, rows, l->n); in; in = dtp_ref__next(l, rows, l->n)) {
        all = dtp_ref__get(&args->in[0], l) == 0.0 ? 0.0 : all;
    }
    return all;
}

DTP_REF_ROW_KERNEL(any)
DTP_REF_ROW_KERNEL(all)

#define ROW(name, ...) {.op = #name, .run = run_##name},
const dtp_kernel dtp_ref__elementwise[] = {{.op = "cast", .run = run_cast},
                                           {.op = "compare", .run = run_compare},
                                           {.op = "select", .run = run_select},
                                           {.op = "any", .run = run_any},
                                           {.op = "all", .run = run_all},
                                           {.op = "fused_elementwise", .run = run_fused},
                                           {.op = "fused_elementwise2", .run = run_fused},
                                           {.op = "fused_product", .run = run_fused_product},
                                           {.op = "fused_product2", .run = run_fused_product},
                                           {.op = "fused_product_sum", .run = run_fused_product},
                                           {.op = "fused_operand_sum", .run = run_fused_product},
                                           {.op = "fused_layer_norm", .run = run_fused_norm},
                                           {.op = "fused_rms_norm", .run = run_fused_norm},
                                           UNARY(ROW) BINARY(ROW) ARITHMETIC(ROW){.op = NULL}};
