/* Ops on truth values (bytes of 0 or 1). */
#include "executor/cpu/kernels.h"
#include "executor/cpu/nest.h"
#include "executor/cpu/reduce.h"

typedef enum logical { AND, OR, XOR, NOT } logical;

typedef struct job {
    logical op;
    const uint8_t *a, *b;
    uint8_t *y;
    int64_t step_a, step_b;
} job;

static void piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const job *j = user;
    const uint8_t *a = j->a + off[1], *b = j->op == NOT ? NULL : j->b + off[2];
    uint8_t *y = j->y + off[0];
    for (int64_t i = 0; i < n; i++) {
        uint8_t u = a[i * j->step_a] != 0, v = b != NULL && b[i * j->step_b] != 0;
        switch (j->op) {
        case AND:
            y[i] = u & v;
            break;
        case OR:
            y[i] = u | v;
            break;
        case XOR:
            y[i] = u ^ v;
            break;
        case NOT:
            y[i] = !u;
            break;
        }
    }
}

static dtp_status run_logical(const dtp_kernel_args *args, logical op)
{
    const int32_t n = args->call->n_in;
    const dtp_view *views[] = {&args->out[0], &args->in[0], n == 2 ? &args->in[1] : NULL};
    job j = {
        .op = op, .a = views[1]->data, .b = n == 2 ? views[2]->data : NULL, .y = views[0]->data};
    dtp_nest nest;
    dtp_nest_like(&nest, n + 1, views);
    j.step_a = dtp_nest_step(&nest, 1);
    j.step_b = n == 2 ? dtp_nest_step(&nest, 2) : 0;
    dtp_nest_each(&nest, args->threads, piece, &j);
    return DTP_OK;
}

#define KERNEL(op, function)                                                                       \
    static dtp_status op##_kernel(const dtp_kernel_args *args, dtp_err *err)                       \
    {                                                                                              \
        (void)err;                                                                                 \
        return run_logical(args, function);                                                        \
    }
KERNEL(logical_and, AND)
KERNEL(logical_or, OR)
KERNEL(logical_xor, XOR)
KERNEL(logical_not, NOT)

static dtp_status any_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_cpu_reduce_ints(DTP_FOLD_MAX, &args->in[0], &args->out[0]);
    return DTP_OK;
}

static dtp_status all_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_cpu_reduce_ints(DTP_FOLD_MIN, &args->in[0], &args->out[0]);
    return DTP_OK;
}

static const dtp_cpu_row rows[] = {
    {"logical_and", logical_and_kernel, NULL},
    {"logical_or", logical_or_kernel, NULL},
    {"logical_xor", logical_xor_kernel, NULL},
    {"logical_not", logical_not_kernel, NULL},
    {"any", any_kernel, NULL},
    {"all", all_kernel, NULL},
};
const dtp_cpu_family dtp_cpu_logical = {rows, sizeof rows / sizeof rows[0]};
