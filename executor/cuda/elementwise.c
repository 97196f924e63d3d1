/* Functions of elements (kernels/elementwise.h), compare, select and cast: bound as a nest of the
 * output and the operands. */
#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/elementwise/elementwise.h"
#include "executor/device/bound/elementwise.h"

static dtp_status bind_op(const dtp_kernel_args *args, int32_t op, dtp_arena *arena, void **state,
                          dtp_err *err)
{
    dtp_bound_elementwise b;
    dtp_cuda_elementwise_call *e;
    DTP_STATE(arena, state, e, err);
    dtp_bind_elementwise(args, &b);
    e->op = (dtp_cuda_op)op;
    e->n_in = args->call->n_in;
    e->a = b.a;
    e->b = b.b;
    for (int32_t k = 0; k <= e->n_in; k++) {
        e->dtype[k] = (int32_t)(k == 0 ? args->out[0] : args->in[k - 1]).local.dtype;
    }
    return dtp_cuda_nest_of(&b.nest, &e->nest, err);
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

#define BIND(op, ...) DTP_BIND(op, bind_op, DTP_CUDA_OP_##op)
DTP_CUDA_UNARY(BIND)
DTP_CUDA_BINARY(BIND)
DTP_CUDA_ARITHMETIC(BIND)
DTP_CUDA_LOGICAL(BIND)
BIND(select, NULL)
BIND(cast, NULL)

static dtp_status compare_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                               dtp_err *err)
{
    const int32_t relation = DTP_CUDA_OP_lt + (int32_t)dtp_call_int(args->call, "cmp");
    return bind_op(args, relation, arena, state, err);
}

#define FLOAT_ROW(op, ...) {#op, elementwise_kernel, op##_bind, DTP_FLOATS},
#define NUMBER_ROW(op, ...) {#op, elementwise_kernel, op##_bind, DTP_NUMBERS},
#define LOGICAL_ROW(op, ...) {#op, elementwise_kernel, op##_bind, DTP_DTYPE_BIT(DTP_BOOL)},

const dtp_kernel dtp_cuda_elementwise[] = {
    {"cast", cast_kernel, cast_bind, 0},
    {"compare", elementwise_kernel, compare_bind, DTP_NUMBERS},
    {"select", elementwise_kernel, select_bind, 0},
    DTP_CUDA_UNARY(FLOAT_ROW) DTP_CUDA_BINARY(FLOAT_ROW) DTP_CUDA_ARITHMETIC(NUMBER_ROW)
        DTP_CUDA_LOGICAL(LOGICAL_ROW){.op = NULL}};
