#include "executor/device/fused_product.h"

#include "core/base/arena.h"
#include "core/graph/ops/fused_ops.h"
#include "executor/device/backend.h"

typedef struct job {
    dtp_op_call product_call, expr_call;
    dtp_ttype types[DTP_FUSED_IN];
    dtp_view in[DTP_FUSED_IN]; /* of the expression */
    dtp_bound_kernel product, expr;
} job;

/* Data and offsets are those of this run. */
static void set_operands(job *j, const dtp_kernel_args *args)
{
    j->in[0] = args->out[0];
    for (int32_t i = 1; i < j->expr_call.n_in; i++) {
        j->in[i] = args->in[i + 1];
    }
}

dtp_status dtp_fused_product_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                  dtp_err *err)
{
    job *j;
    DTP_TRY(DTP_NEW(arena, j, 1, err));
    *state = j;
    j->product_call = dtp_fused_product_of(args->call);
    j->expr_call = dtp_fused_product_expression(args->call, j->types);
    set_operands(j, args);
    dtp_kernel_args product = *args, expr = *args;
    product.call = &j->product_call;
    expr.call = &j->expr_call;
    expr.in = j->in;
    expr.workspace = NULL;
    expr.workspace_bytes = 0;
    DTP_TRY(dtp_backend_bind(args->backend, &product, arena, &j->product, err));
    return dtp_backend_bind(args->backend, &expr, arena, &j->expr, err);
}

dtp_status dtp_fused_product_run(const dtp_kernel_args *args, dtp_err *err)
{
    job *j = args->state;
    set_operands(j, args);
    DTP_TRY(j->product.run(&j->product.args, err));
    return j->expr.run(&j->expr.args, err);
}
