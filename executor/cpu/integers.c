/* Binary elementwise ops on integers, with broadcasting by name; sums and products wrap around. */
#include "executor/cpu/integers.h"

#include "executor/cpu/kernels.h"
#include "executor/cpu/nest.h"

typedef struct job {
    dtp_cpu_int_function op;
    dtp_dtype dtype;
    int64_t step_a, step_b;
    const void *a, *b;
    void *y;
} job;

static int64_t apply(dtp_cpu_int_function op, int64_t a, int64_t b)
{
    switch (op) {
    case DTP_INT_ADD:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case DTP_INT_SUB:
        return (int64_t)((uint64_t)a - (uint64_t)b);
    case DTP_INT_MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case DTP_INT_MAX:
        return a > b ? a : b;
    case DTP_INT_MIN:
        return a < b ? a : b;
    }
    return 0;
}

static void piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const job *j = user;
    for (int64_t i = 0; i < n; i++) {
        int64_t a = dtp_cpu_int_at(j->dtype, j->a, off[1] + i * j->step_a);
        int64_t b = dtp_cpu_int_at(j->dtype, j->b, off[2] + i * j->step_b);
        dtp_cpu_int_set(j->dtype, j->y, off[0] + i, apply(j->op, a, b));
    }
}

void dtp_cpu_binary_ints(const dtp_kernel_args *args, dtp_cpu_int_function op)
{
    const dtp_view *views[] = {&args->out[0], &args->in[0], &args->in[1]};
    job j = {.op = op,
             .dtype = views[0]->local.dtype,
             .a = views[1]->data,
             .b = views[2]->data,
             .y = views[0]->data};
    dtp_nest nest;
    dtp_nest_like(&nest, 3, views);
    j.step_a = dtp_nest_step(&nest, 1);
    j.step_b = dtp_nest_step(&nest, 2);
    dtp_nest_each(&nest, args->threads, piece, &j);
}
