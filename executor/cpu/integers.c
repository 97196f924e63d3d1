/* Binary elementwise ops on integers, with broadcasting by name; sums and products wrap around. */
#include "executor/cpu/integers.h"

#include <string.h>

#include "executor/cpu/kernels.h"
#include "executor/cpu/nest.h"

typedef enum binary { ADD, SUB, MUL, MAX, MIN } binary;

typedef struct job {
    binary op;
    dtp_dtype dtype;
    int64_t step_a, step_b;
    const void *a, *b;
    void *y;
} job;

static int64_t apply(binary op, int64_t a, int64_t b)
{
    switch (op) {
    case ADD:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case SUB:
        return (int64_t)((uint64_t)a - (uint64_t)b);
    case MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case MAX:
        return a > b ? a : b;
    case MIN:
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

/* The function of an op of integers; 5 when there is none. */
static int32_t function_of(const dtp_op_call *call)
{
    static const char *const names[] = {"add", "sub", "mul", "max", "min"};
    int32_t op = 0;
    while (op < 5 && strcmp(names[op], call->op->name) != 0) {
        op++;
    }
    return op;
}

dtp_status dtp_cpu_check_binary_ints(const dtp_op_call *call, dtp_err *err)
{
    return function_of(call) < 5
               ? DTP_OK
               : DTP_FAIL(err, DTP_UNSUPPORTED, "op '%s' on backend cpu: operand 0 has dtype %s",
                          call->op->name, dtp_dtype_name(call->in[0].dtype));
}

void dtp_cpu_binary_ints(const dtp_kernel_args *args)
{
    const dtp_view *views[] = {&args->out[0], &args->in[0], &args->in[1]};
    job j = {.dtype = views[0]->local.dtype,
             .a = views[1]->data,
             .b = views[2]->data,
             .y = views[0]->data};
    dtp_nest nest;
    dtp_nest_like(&nest, 3, views);
    j.op = (binary)function_of(args->call);
    j.step_a = dtp_nest_step(&nest, 1);
    j.step_b = dtp_nest_step(&nest, 2);
    dtp_nest_each(&nest, args->threads, piece, &j);
}
