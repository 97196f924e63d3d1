/* Functions of elements (kernels/elementwise.h), compare, select and cast: bound as a nest of the
 * output and the operands. */
#include <math.h>
#include <string.h>

#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/elementwise/elementwise.h"

/* An attribute as f32; beyond its range, infinite: clamp's "no bound". */
static float attribute(const dtp_op_call *call, const char *key)
{
    const double most = 3.4028234663852886e38;
    const double v = key == NULL ? 0.0 : dtp_call_float(call, key);
    return v > most ? INFINITY : v < -most ? -INFINITY : (float)v;
}

static dtp_status bind_op(const dtp_kernel_args *args, dtp_cuda_op op, const char *key_a,
                          const char *key_b, dtp_arena *arena, void **state, dtp_err *err)
{
    const dtp_view *views[1 + DTP_CUDA_OPERANDS] = {&args->out[0]};
    dtp_cuda_elementwise_call *e;
    dtp_nest nest;
    DTP_CUDA_STATE(arena, state, e, err);
    e->op = op;
    e->n_in = args->call->n_in;
    e->a = attribute(args->call, key_a);
    e->b = attribute(args->call, key_b);
    e->dtype[0] = (int32_t)args->out[0].local.dtype;
    for (int32_t k = 0; k < e->n_in; k++) {
        views[k + 1] = &args->in[k];
        e->dtype[k + 1] = (int32_t)args->in[k].local.dtype;
    }
    dtp_nest_like(&nest, 1 + e->n_in, views);
    return dtp_cuda_nest_of(&nest, &e->nest, err);
}

static dtp_status elementwise_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_cuda_elementwise_call *e = args->state;
    const void *in[DTP_CUDA_OPERANDS] = {NULL};
    for (int32_t k = 0; k < e->n_in; k++) {
        in[k] = args->in[k].data;
    }
    if (e->nest.total > 0) {
        DTP_CUDA_TRY(err,
                     dtp_cuda_elementwise_run(dtp_cuda_stream(args), e, args->out[0].data, in));
    }
    return DTP_OK;
}

/* Every pair of dtypes. Not in place when elements change their size. */
static dtp_status cast_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *x = &args->in[0], *y = &args->out[0];
    if (x->local.dtype != y->local.dtype) {
        return elementwise_kernel(args, err);
    }
    return x->data == y->data
               ? DTP_OK
               : dtp_cuda_view_copy(dtp_cuda_stream(args), &y->local, y, 0, x, 0, err);
}

static dtp_status compare_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                               dtp_err *err)
{
#define CHOICE(cmp, value) {#cmp, DTP_CUDA_OP_##cmp},
    static const struct {
        const char *name;
        dtp_cuda_op op;
    } choices[] = {DTP_CUDA_RELATIONS(CHOICE)};
    const char *cmp = dtp_call_choice(args->call, "cmp");
    size_t i = 0;
    while (strcmp(cmp, choices[i].name) != 0) {
        i++;
    }
    return bind_op(args, choices[i].op, NULL, NULL, arena, state, err);
}

#define BIND(op, key_a, key_b)                                                                     \
    static dtp_status op##_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,       \
                                dtp_err *err)                                                      \
    {                                                                                              \
        return bind_op(args, DTP_CUDA_OP_##op, key_a, key_b, arena, state, err);                   \
    }
#define BIND_FUNCTION(op, key_a, key_b, value) BIND(op, key_a, key_b)
#define BIND_PLAIN(op, ...) BIND(op, NULL, NULL)
DTP_CUDA_UNARY(BIND_FUNCTION)
DTP_CUDA_BINARY(BIND_FUNCTION)
DTP_CUDA_ARITHMETIC(BIND_PLAIN)
DTP_CUDA_LOGICAL(BIND_PLAIN)
BIND(select, NULL, NULL)
BIND(cast, NULL, NULL)

#define FLOAT_ROW(op, ...) {#op, elementwise_kernel, op##_bind, DTP_CUDA_FLOATS},
#define NUMBER_ROW(op, ...) {#op, elementwise_kernel, op##_bind, DTP_CUDA_BOTH},
#define LOGICAL_ROW(op, ...) {#op, elementwise_kernel, op##_bind, DTP_DTYPE_BIT(DTP_BOOL)},

const dtp_kernel dtp_cuda_elementwise[] = {
    {"cast", cast_kernel, cast_bind, 0},
    {"compare", elementwise_kernel, compare_bind, DTP_CUDA_BOTH},
    {"select", elementwise_kernel, select_bind, 0},
    DTP_CUDA_UNARY(FLOAT_ROW) DTP_CUDA_BINARY(FLOAT_ROW) DTP_CUDA_ARITHMETIC(NUMBER_ROW)
        DTP_CUDA_LOGICAL(LOGICAL_ROW){.op = NULL}};
