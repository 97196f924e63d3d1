/* Elementwise functions of one operand with up to two attributes, and their gradients. */
#include <math.h>

#include "executor/cpu/kernels.h"
#include "executor/cpu/nest.h"
#include "executor/cpu/simd.h"

/* n elements of x (gradients: and of dy) to y, all contiguous; a and b are the attributes. */
typedef struct row {
    int64_t n;
    const float *x, *dy;
    float *y;
    float a, b;
} row;

typedef void (*row_fn)(const row *r);

DTP_CPU_CLONES static void abs_row(const row *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        r->y[i] = fabsf(r->x[i]);
    }
}

/* NaN stays NaN. */
static void sign_row(const row *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        float x = r->x[i];
        r->y[i] = x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? 0.0f : x;
    }
}

DTP_CPU_CLONES static void reciprocal_row(const row *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        r->y[i] = 1.0f / r->x[i];
    }
}

static void sin_row(const row *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        r->y[i] = sinf(r->x[i]);
    }
}

static void cos_row(const row *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        r->y[i] = cosf(r->x[i]);
    }
}

static void log1p_row(const row *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        r->y[i] = log1pf(r->x[i]);
    }
}

static void expm1_row(const row *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        r->y[i] = expm1f(r->x[i]);
    }
}

/* log(1 + e^x) = max(x, 0) + log(1 + e^-|x|) */
static void softplus_row(const row *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        float x = r->x[i];
        r->y[i] = (x < 0.0f ? 0.0f : x) + log1pf(expf(-fabsf(x)));
    }
}

static void pow_row(const row *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        r->y[i] = powf(r->x[i], r->a);
    }
}

DTP_CPU_CLONES static void leaky_relu_row(const row *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        r->y[i] = r->x[i] > 0.0f ? r->x[i] : r->a * r->x[i];
    }
}

static void elu_row(const row *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        r->y[i] = r->x[i] > 0.0f ? r->x[i] : r->a * expm1f(r->x[i]);
    }
}

/* NaN stays NaN. */
DTP_CPU_CLONES static void clamp_row(const row *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        float x = r->x[i] < r->a ? r->a : r->x[i];
        r->y[i] = x > r->b ? r->b : x;
    }
}

DTP_CPU_CLONES static void leaky_relu_grad_row(const row *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        r->y[i] = r->x[i] > 0.0f ? r->dy[i] : r->a * r->dy[i];
    }
}

static void elu_grad_row(const row *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        r->y[i] = r->x[i] > 0.0f ? r->dy[i] : r->a * expf(r->x[i]) * r->dy[i];
    }
}

DTP_CPU_CLONES static void clamp_grad_row(const row *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        r->y[i] = r->x[i] >= r->a && r->x[i] <= r->b ? r->dy[i] : 0.0f;
    }
}

/* An attribute as f32; beyond its range, infinite: clamp's "no bound". */
static float attr_float(const dtp_op_call *call, const char *key)
{
    const double most = 3.4028234663852886e38;
    double v = key == NULL ? 0.0 : dtp_call_float(call, key);
    return v > most ? INFINITY : v < -most ? -INFINITY : (float)v;
}

typedef struct job {
    row_fn run;
    row row; /* data are the first elements of the tensors */
    int64_t step_x, step_dy;
} job;

static void piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const job *j = user;
    const bool grad = j->row.dy != NULL;
    row r = j->row;
    r.y += off[0];
    r.x += off[1];
    r.dy = grad ? r.dy + off[2] : NULL;
    r.n = n;
    if (j->step_x == 1 && (!grad || j->step_dy == 1)) {
        j->run(&r);
        return;
    }
    r.n = 1;
    for (int64_t i = 0; i < n; i++) {
        j->run(&r);
        r.y++;
        r.x += j->step_x;
        r.dy = grad ? r.dy + j->step_dy : NULL;
    }
}

/* The function of a row on all elements; a and b are keys of attributes, NULL: none. */
static dtp_status run_math(const dtp_kernel_args *args, row_fn run, const char *a, const char *b)
{
    const dtp_op_call *call = args->call;
    const bool grad = call->n_in == 2;
    const dtp_view *views[] = {&args->out[0], &args->in[0], grad ? &args->in[1] : NULL};
    job j = {.run = run,
             .row = {.x = views[1]->data,
                     .y = views[0]->data,
                     .a = attr_float(call, a),
                     .b = attr_float(call, b)}};
    dtp_nest nest;
    dtp_nest_like(&nest, grad ? 3 : 2, views);
    j.step_x = dtp_nest_step(&nest, 1);
    if (grad) {
        j.row.dy = views[2]->data;
        j.step_dy = dtp_nest_step(&nest, 2);
    }
    dtp_nest_each(&nest, args->threads, piece, &j);
    return DTP_OK;
}

/* Op and the attributes that its function takes. */
#define FUNCTIONS(X)                                                                               \
    X(abs, NULL, NULL)                                                                             \
    X(sign, NULL, NULL)                                                                            \
    X(reciprocal, NULL, NULL)                                                                      \
    X(sin, NULL, NULL)                                                                             \
    X(cos, NULL, NULL)                                                                             \
    X(log1p, NULL, NULL)                                                                           \
    X(expm1, NULL, NULL)                                                                           \
    X(softplus, NULL, NULL)                                                                        \
    X(pow, "exponent", NULL)                                                                       \
    X(leaky_relu, "slope", NULL)                                                                   \
    X(elu, "alpha", NULL)                                                                          \
    X(clamp, "low", "high")                                                                        \
    X(leaky_relu_grad, "slope", NULL)                                                              \
    X(elu_grad, "alpha", NULL)                                                                     \
    X(clamp_grad, "low", "high")

#define KERNEL(op, key_a, key_b)                                                                   \
    static dtp_status op##_kernel(const dtp_kernel_args *args, dtp_err *err)                       \
    {                                                                                              \
        (void)err;                                                                                 \
        return run_math(args, op##_row, key_a, key_b);                                             \
    }
FUNCTIONS(KERNEL)

#define ROW(op, key_a, key_b) {#op, op##_kernel, dtp_cpu_check_all_f32},
static const dtp_cpu_row rows[] = {FUNCTIONS(ROW)};
const dtp_cpu_family dtp_cpu_math = {rows, sizeof rows / sizeof rows[0]};
