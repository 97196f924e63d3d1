/* A product and more (core/graph/ops/fused.c) by single kernels of the backend: the product, in
 * the result's memory, the expression in its place, the sum. */
#include "executor/device/fused_product.h"

#include "core/base/arena.h"
#include "core/graph/ops/fused_ops.h"
#include "executor/device/backend.h"

enum { PRODUCT, EXPRESSION, SUM, PARTS };

typedef struct job {
    dtp_fused_product_kind kind;
    dtp_ttype types[DTP_FUSED_IN];
    dtp_view in[DTP_FUSED_IN], of_sum; /* of the expression, of the sum */
    dtp_op_call call[PARTS];
    dtp_bound_kernel kernel[PARTS];
} job;

static bool has_part(const job *j, int32_t part)
{
    return part == PRODUCT ||
           (part == SUM ? j->kind >= DTP_FUSED_PRODUCT_SUM : j->kind != DTP_FUSED_OPERAND_SUM);
}

/* Data and offsets are those of this run; so is the workspace. */
static void set_operands(job *j, const dtp_kernel_args *args)
{
    j->in[0] = args->out[0];
    for (int32_t i = 2; i < args->call->n_in; i++) {
        j->in[i - 1] = args->in[i];
    }
    j->of_sum = j->kind == DTP_FUSED_OPERAND_SUM ? args->in[1] : args->out[0];
}

dtp_status dtp_fused_product_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                  dtp_err *err)
{
    job *j;
    DTP_TRY(DTP_NEW(arena, j, 1, err));
    *state = j;
    j->kind = dtp_fused_product_kind_of(args->call->op);
    set_operands(j, args);
    for (int32_t i = 0; i < PARTS; i++) {
        dtp_kernel_args part = *args;
        if (!has_part(j, i)) {
            continue;
        }
        j->call[i] = i == PRODUCT      ? dtp_fused_product_of(args->call)
                     : i == EXPRESSION ? dtp_fused_product_expression(args->call, j->types)
                                       : dtp_fused_product_sum(args->call);
        part.call = &j->call[i];
        part.in = i == PRODUCT ? args->in : i == EXPRESSION ? j->in : &j->of_sum;
        part.out = &args->out[i == SUM ? 1 : 0];
        DTP_TRY(dtp_backend_bind(args->backend, &part, arena, &j->kernel[i], err));
    }
    return DTP_OK;
}

dtp_status dtp_fused_product_run(const dtp_kernel_args *args, dtp_err *err)
{
    job *j = args->state;
    set_operands(j, args);
    for (int32_t i = 0; i < PARTS; i++) {
        if (has_part(j, i)) {
            j->kernel[i].args.workspace = args->workspace;
            DTP_TRY(j->kernel[i].run(&j->kernel[i].args, err));
        }
    }
    return DTP_OK;
}
