/* einsum: the product of 1 to 16 operands, summed over the dims that the result lacks. */
#include "core/graph/ops/common.h"
#include "core/graph/ops/einsum_plan.h"

/* ---- inference ----------------------------------------------------------------------------------
 */

static dtp_status check_operands(const dtp_op_call *call, dtp_err *err)
{
    int32_t n_dims = 0;
    for (int32_t i = 0; i < call->n_in; i++) {
        DTP_TRY(dtp_op__need_float(call, i, err));
        DTP_TRY(dtp_op__same_dtype(call, i, 0, err));
        for (int32_t k = 0; k < call->in[i].rank; k++) {
            const dtp_tdim d = call->in[i].dims[k];
            DTP_TRY(dtp_op__same_size(call, i, d, err));
            n_dims += dtp_op__first_with(call, i, d.id) < 0 ? 1 : 0;
        }
    }
    if (n_dims > DTP_MAX_OP_DIMS) {
        return DTP_FAIL(err, DTP_INVALID, "the operands have %d different dims, at most %d fit",
                        n_dims, DTP_MAX_OP_DIMS);
    }
    return DTP_OK;
}

static dtp_status infer_einsum(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_dtype result;
    DTP_TRY(check_operands(call, err));
    DTP_TRY(dtp_op__result(call, call->in[0].dtype, &result, err));
    DTP_TRY(dtp_op__declared(has_out, result, out, err));
    for (int32_t k = 0; k < out->rank; k++) {
        const dtp_tdim d = out->dims[k];
        const int32_t in = dtp_op__first_with(call, call->n_in, d.id);
        if (in < 0) {
            return DTP_FAIL(err, DTP_INVALID,
                            "'out' has dim '%s', which no operand has (use broadcast)",
                            dtp_dims_name(call->dims, d.id));
        }
        if (dtp_ttype_size(&call->in[in], d.id) != d.size) {
            return DTP_FAIL(err, DTP_INVALID, "dim '%s' is %lld in operand %d but %lld in 'out'",
                            dtp_dims_name(call->dims, d.id),
                            (long long)dtp_ttype_size(&call->in[in], d.id), in, (long long)d.size);
        }
    }
    if (call->n_in < 3) {
        return DTP_OK;
    }
    /* Operands are multiplied from left to right, so there are intermediates. */
    dtp_einsum_plan plan;
    dtp_op_call typed = *call;
    typed.out = out;
    typed.n_out = 1;
    dtp_einsum_plan_make(&typed, &plan);
    if (plan.too_large) {
        return DTP_FAIL(err, DTP_RANGE,
                        "a product of the operands, taken from left to right, is too large");
    }
    return DTP_OK;
}

/* ---- rules and work -----------------------------------------------------------------------------
 */

static dtp_dim_role role_einsum(const dtp_op_call *call, dtp_dim_id d)
{
    const bool kept = dtp_ttype_find(&call->out[0], d) >= 0;
    return (dtp_dim_role){kept ? DTP_ROLE_PARALLEL : DTP_ROLE_REDUCED, DTP_REDUCE_SUM};
}

/* Matrix sizes are those of the product with the most multiplications. */
static void work_einsum(const dtp_op_call *call, dtp_work *out)
{
    dtp_einsum_plan plan;
    double most = 0.0;
    dtp_einsum_plan_make(call, &plan);
    *out = (dtp_work){.cls = DTP_WORK_MEMORY,
                      .flops = plan.flops,
                      .bytes = plan.inner_bytes,
                      .pack_bytes = plan.pack_bytes};
    for (int32_t i = 0; i < plan.n_steps; i++) {
        const dtp_einsum_gemm *g = &plan.steps[i].gemm;
        if (!plan.steps[i].is_gemm) {
            continue;
        }
        int64_t batch = 1;
        for (int32_t b = 0; b < g->n_batch; b++) {
            batch *= g->batch[b];
        }
        const double size = (double)batch * (double)g->m * (double)g->n * (double)g->k;
        if (size > most) {
            most = size;
            out->cls = DTP_WORK_GEMM;
            out->batch = batch;
            out->m = g->m;
            out->n = g->n;
            out->k = g->k;
            out->trans_a = g->trans_a;
            out->trans_b = g->trans_b;
        }
    }
}

static int64_t workspace_einsum(const dtp_op_call *call)
{
    dtp_einsum_plan plan;
    dtp_einsum_plan_make(call, &plan);
    return plan.workspace_bytes;
}

/* ---- gradient -----------------------------------------------------------------------------------
 */

/* The gradient of operand i is the einsum of dy with the other operands, repeated over the dims
 * that only operand i has. */
static dtp_status vjp_operand(dtp_vjp *v, dtp_tensor_id dy, int32_t i, int32_t n_in, dtp_err *err)
{
    const dtp_graph_tensor *tensors = v->g->tensors;
    const dtp_ttype *want = &tensors[v->in[i]].type;
    dtp_tensor_id in[DTP_MAX_OP_IN] = {dy};
    dtp_ttype covered = {.dtype = want->dtype};
    int32_t n = 1;
    for (int32_t k = 0; k < n_in; k++) {
        if (k != i) {
            in[n++] = v->in[k];
        }
    }
    for (int32_t d = 0; d < want->rank; d++) {
        bool found = false;
        for (int32_t k = 0; k < n && !found; k++) {
            found = dtp_ttype_find(&tensors[in[k]].type, want->dims[d].id) >= 0;
        }
        if (found) {
            covered.dims[covered.rank++] = want->dims[d];
        }
    }
    if (covered.rank == want->rank) {
        return dtp_vjp_emit(v, &(dtp_vjp_op){"einsum", n, in, 0, NULL}, v->in[i], &v->d_in[i], err);
    }
    dtp_tensor_id part = dy;
    if (n > 1) {
        DTP_TRY(dtp_vjp_emit_shaped(v, "einsum", n, in, &covered, &part, err));
    }
    return dtp_vjp_emit(v, &(dtp_vjp_op){"broadcast", 1, &part, 0, NULL}, v->in[i], &v->d_in[i],
                        err);
}

static dtp_status vjp_einsum(dtp_vjp *v, dtp_err *err)
{
    const int32_t n_in = v->g->nodes[v->node].n_in;
    const dtp_dtype dtype = v->g->tensors[v->in[0]].type.dtype;
    dtp_tensor_id dy; /* in the type of the operands */
    DTP_TRY(dtp_op__emit_cast(v, v->d_out[0], dtype, &dy, err));
    for (int32_t i = 0; i < n_in; i++) {
        if (v->need[i]) {
            DTP_TRY(vjp_operand(v, dy, i, n_in, err));
        }
    }
    return DTP_OK;
}

/* ---- row ----------------------------------------------------------------------------------------
 */

static const dtp_attr_spec EINSUM_ATTRS[] = {DTP_RESULT_ATTR, {.key = NULL}};

const dtp_op_def dtp_ops_einsum[] = {
    {
        DTP_ROW("einsum", "product of the operands summed over the dims that the result lacks", 1,
                DTP_MAX_OP_IN, 1),
        .flags = DTP_OP_CONTRACTION,
        .attrs = EINSUM_ATTRS,
        .infer = infer_einsum,
        .role = role_einsum,
        .linear = DTP_LINEAR_EACH,
        .work = work_einsum,
        .workspace = workspace_einsum,
        .vjp = vjp_einsum,
        .bench = {"rc | out=r", "rc | out=c", "rc | out=cr"},
        .mtf_class = "EinsumOperation",
    },
    {.name = NULL},
};
