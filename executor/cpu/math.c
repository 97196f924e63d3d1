/* Elementwise functions of one operand with up to two attributes, and their gradients. */
#include <math.h>
#include <string.h>

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

static const struct {
    const char *op;
    row_fn run;
    const char *a, *b; /* attributes, NULL: none */
} FUNCTIONS[] = {{"abs", abs_row, NULL, NULL},
                 {"sign", sign_row, NULL, NULL},
                 {"reciprocal", reciprocal_row, NULL, NULL},
                 {"sin", sin_row, NULL, NULL},
                 {"cos", cos_row, NULL, NULL},
                 {"log1p", log1p_row, NULL, NULL},
                 {"expm1", expm1_row, NULL, NULL},
                 {"softplus", softplus_row, NULL, NULL},
                 {"pow", pow_row, "exponent", NULL},
                 {"leaky_relu", leaky_relu_row, "slope", NULL},
                 {"elu", elu_row, "alpha", NULL},
                 {"clamp", clamp_row, "low", "high"},
                 {"leaky_relu_grad", leaky_relu_grad_row, "slope", NULL},
                 {"elu_grad", elu_grad_row, "alpha", NULL},
                 {"clamp_grad", clamp_grad_row, "low", "high"}};

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

static dtp_status math_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_op_call *call = args->call;
    const bool grad = call->n_in == 2;
    const dtp_view *views[] = {&args->out[0], &args->in[0], grad ? &args->in[1] : NULL};
    job j = {.row = {.x = views[1]->data, .y = views[0]->data}};
    for (size_t i = 0; i < sizeof FUNCTIONS / sizeof FUNCTIONS[0]; i++) {
        if (strcmp(FUNCTIONS[i].op, call->op->name) == 0) {
            j.run = FUNCTIONS[i].run;
            j.row.a = attr_float(call, FUNCTIONS[i].a);
            j.row.b = attr_float(call, FUNCTIONS[i].b);
        }
    }
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

static const dtp_cpu_row rows[] = {
    {"abs", math_kernel, dtp_cpu_check_all_f32},
    {"sign", math_kernel, dtp_cpu_check_all_f32},
    {"reciprocal", math_kernel, dtp_cpu_check_all_f32},
    {"sin", math_kernel, dtp_cpu_check_all_f32},
    {"cos", math_kernel, dtp_cpu_check_all_f32},
    {"log1p", math_kernel, dtp_cpu_check_all_f32},
    {"expm1", math_kernel, dtp_cpu_check_all_f32},
    {"softplus", math_kernel, dtp_cpu_check_all_f32},
    {"pow", math_kernel, dtp_cpu_check_all_f32},
    {"leaky_relu", math_kernel, dtp_cpu_check_all_f32},
    {"elu", math_kernel, dtp_cpu_check_all_f32},
    {"clamp", math_kernel, dtp_cpu_check_all_f32},
    {"leaky_relu_grad", math_kernel, dtp_cpu_check_all_f32},
    {"elu_grad", math_kernel, dtp_cpu_check_all_f32},
    {"clamp_grad", math_kernel, dtp_cpu_check_all_f32},
};
const dtp_cpu_family dtp_cpu_math = {rows, sizeof rows / sizeof rows[0]};
