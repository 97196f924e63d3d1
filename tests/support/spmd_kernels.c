/* Plain kernels for the interpreter of spmd_sim.h: one loop over all indices of a call. */
#include "tests/support/spmd_kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A call on one rank, and the space of all its dims. */
typedef struct kernel_call {
    dtp_op_call call;
    int32_t n_dims;
    dtp_tdim dims[DTP_MAX_OP_DIMS];
    double *const *in;
    double mean_factor; /* 1 / number of elements a mean runs over, globally */
    int64_t index[DTP_MAX_OP_DIMS];
} kernel_call;

static int64_t offset_of(const kernel_call *k, const dtp_ttype *t)
{
    int64_t flat = 0;
    for (int32_t i = 0; i < t->rank; i++) {
        int32_t d = 0;
        while (k->dims[d].id != t->dims[i].id) {
            d++;
        }
        flat = flat * t->dims[i].size + k->index[d];
    }
    return flat;
}

static void find_dims(kernel_call *k)
{
    dtp_dim_id ids[DTP_MAX_OP_DIMS];
    k->n_dims = dtp_call_dims(&k->call, ids);
    for (int32_t d = 0; d < k->n_dims; d++) {
        k->dims[d].id = ids[d];
        for (int32_t i = 0; i < k->call.n_in + k->call.n_out; i++) {
            const dtp_ttype *t = i < k->call.n_in ? &k->call.in[i] : &k->call.out[i - k->call.n_in];
            int32_t axis = dtp_ttype_find(t, ids[d]);
            if (axis >= 0) {
                k->dims[d].size = t->dims[axis].size;
            }
        }
    }
}

static int64_t count(const kernel_call *k)
{
    int64_t n = 1;
    for (int32_t d = 0; d < k->n_dims; d++) {
        n *= k->dims[d].size;
    }
    return n;
}

static void set_index(kernel_call *k, int64_t flat)
{
    for (int32_t d = k->n_dims - 1; d >= 0; d--) {
        k->index[d] = flat % k->dims[d].size;
        flat /= k->dims[d].size;
    }
}

static bool is_over(const kernel_call *k, dtp_dim_id id)
{
    const dtp_attr *over = dtp_call_attr(&k->call, "over");
    if (over->kind == DTP_ATTR_DIM) {
        return over->i == id;
    }
    for (int32_t i = 0; i < over->n; i++) {
        if (over->ids[i] == id) {
            return true;
        }
    }
    return false;
}

/* What f gives at the operands' values, summed over the `over` dims of the present row. */
static double row_sum(const kernel_call *k, double (*f)(double, double))
{
    kernel_call at = *k;
    double sum = 0;
    for (int64_t i = 0; i < count(k); i++) {
        bool same = true;
        set_index(&at, i);
        for (int32_t d = 0; d < k->n_dims; d++) {
            same = same && (at.index[d] == k->index[d] || is_over(k, k->dims[d].id));
        }
        if (same) {
            double x = k->in[0][offset_of(&at, &k->call.in[0])];
            double y = k->call.n_in > 1 ? k->in[1][offset_of(&at, &k->call.in[1])] : 0;
            sum += f(x, y);
        }
    }
    return sum;
}

static double exp_first(double x, double y)
{
    (void)y;
    return exp(x);
}

static double product(double x, double y)
{
    return x * y;
}

/* ---- bodies: operand values x at one index -> old value o of an output, its new value ---- */

typedef void (*body)(const kernel_call *k, const double *x, double *o);

static void k_einsum(const kernel_call *k, const double *x, double *o)
{
    double y = 1;
    for (int32_t i = 0; i < k->call.n_in; i++) {
        y *= x[i];
    }
    o[0] += y;
}

static void k_add(const kernel_call *k, const double *x, double *o)
{
    (void)k;
    o[0] = x[0] + x[1];
}

static void k_mul(const kernel_call *k, const double *x, double *o)
{
    (void)k;
    o[0] = x[0] * x[1];
}

static void k_copy(const kernel_call *k, const double *x, double *o)
{
    (void)k;
    o[0] = x[0];
}

static void k_constant(const kernel_call *k, const double *x, double *o)
{
    (void)x;
    o[0] = dtp_call_float(&k->call, "value");
}

static void k_scale(const kernel_call *k, const double *x, double *o)
{
    o[0] = x[0] * dtp_call_float(&k->call, "factor");
}

static void k_relu(const kernel_call *k, const double *x, double *o)
{
    (void)k;
    o[0] = x[0] > 0 ? x[0] : 0;
}

static void k_relu_grad(const kernel_call *k, const double *x, double *o)
{
    (void)k;
    o[0] = x[0] > 0 ? x[1] : 0;
}

static void k_reduce(const kernel_call *k, const double *x, double *o)
{
    switch (dtp_call_int(&k->call, "kind")) {
    case 0:
        o[0] += x[0];
        break;
    case 1:
        o[0] += x[0] * k->mean_factor;
        break;
    case 2:
        o[0] = fmax(o[0], x[0]);
        break;
    default:
        o[0] = fmin(o[0], x[0]);
        break;
    }
}

static void k_softmax(const kernel_call *k, const double *x, double *o)
{
    o[0] = exp(x[0]) / row_sum(k, exp_first);
}

static void k_softmax_grad(const kernel_call *k, const double *x, double *o)
{
    o[0] = x[0] * (x[1] - row_sum(k, product));
}

static void k_sum_exp(const kernel_call *k, const double *x, double *o)
{
    (void)k;
    o[0] += exp(x[0] - x[1]);
}

static void k_softmax_apply(const kernel_call *k, const double *x, double *o)
{
    (void)k;
    o[0] = exp(x[0] - x[1]) / x[2];
}

static void k_softmax_grad_apply(const kernel_call *k, const double *x, double *o)
{
    (void)k;
    o[0] = x[0] * (x[1] - x[2]);
}

static void k_sgd(const kernel_call *k, const double *x, double *o)
{
    o[0] = x[0] - dtp_call_float(&k->call, "lr") * x[1];
}

static void k_momentum(const kernel_call *k, const double *x, double *o)
{
    o[1] = dtp_call_float(&k->call, "momentum") * x[2] + x[1];
    o[0] = x[0] - dtp_call_float(&k->call, "lr") * o[1];
}

static const struct {
    const char *op;
    body run;
} KERNELS[] = {
    {"einsum", k_einsum},
    {"add", k_add},
    {"mul", k_mul},
    {"broadcast", k_copy},
    {"cast", k_copy},
    {"constant", k_constant},
    {"scale", k_scale},
    {"relu", k_relu},
    {"relu_grad", k_relu_grad},
    {"reduce", k_reduce},
    {"softmax", k_softmax},
    {"softmax_grad", k_softmax_grad},
    {"sum_exp", k_sum_exp},
    {"softmax_apply", k_softmax_apply},
    {"row_dot", k_einsum},
    {"softmax_grad_apply", k_softmax_grad_apply},
    {"sgd", k_sgd},
    {"momentum", k_momentum},
};

static body find_kernel(const char *op)
{
    for (size_t i = 0; i < sizeof KERNELS / sizeof KERNELS[0]; i++) {
        if (strcmp(KERNELS[i].op, op) == 0) {
            return KERNELS[i].run;
        }
    }
    (void)fprintf(stderr, "the test has no kernel for '%s'\n", op);
    abort();
}

static double start_value(const dtp_op_call *call)
{
    if (strcmp(call->op->name, "reduce") != 0) {
        return 0;
    }
    int64_t kind = dtp_call_int(call, "kind");
    return kind == 2 ? -INFINITY : (kind == 3 ? INFINITY : 0);
}

static void run_loop(kernel_call *k, double *const *result)
{
    body run = find_kernel(k->call.op->name);
    for (int64_t i = 0; i < count(k); i++) {
        double x[DTP_MAX_OP_IN], o[DTP_MAX_OP_OUT];
        set_index(k, i);
        for (int32_t a = 0; a < k->call.n_in; a++) {
            x[a] = k->in[a][offset_of(k, &k->call.in[a])];
        }
        for (int32_t a = 0; a < k->call.n_out; a++) {
            o[a] = result[a][offset_of(k, &k->call.out[a])];
        }
        run(k, x, o);
        for (int32_t a = 0; a < k->call.n_out; a++) {
            result[a][offset_of(k, &k->call.out[a])] = o[a];
        }
    }
}

void spmd_kernels_call(const dtp_op_call *call, double mean_factor, double *const *in,
                       double *const *out)
{
    kernel_call k = {.call = *call, .in = in, .mean_factor = mean_factor};
    double *result[DTP_MAX_OP_OUT];
    if (strcmp(call->op->name, "relabel") == 0) {
        memmove(out[0], in[0], (size_t)dtp_ttype_elems(&call->out[0]) * sizeof(double));
        return;
    }
    find_dims(&k);
    for (int32_t i = 0; i < call->n_out; i++) {
        int64_t n = dtp_ttype_elems(&call->out[i]);
        result[i] = malloc(((size_t)n + 1) * sizeof(double));
        for (int64_t e = 0; e < n; e++) {
            result[i][e] = start_value(call);
        }
    }
    run_loop(&k, result);
    for (int32_t i = 0; i < call->n_out; i++) {
        memcpy(out[i], result[i], (size_t)dtp_ttype_elems(&call->out[i]) * sizeof(double));
        free(result[i]);
    }
}

void spmd_kernels_run(const spmd_sim *sim, const dtp_instr *instr, int32_t rank, double *const *in,
                      double *const *out)
{
    dtp_call_types types;
    dtp_op_call call = dtp_instr_call(sim->p, instr, rank, &types);
    double factor = 1;
    if (strcmp(instr->op->name, "reduce") == 0) {
        factor = (double)dtp_ttype_elems(&sim->p->values[instr->out[0]].type) /
                 (double)dtp_ttype_elems(&sim->p->values[instr->in[0]].type);
    }
    spmd_kernels_call(&call, factor, in, out);
}
