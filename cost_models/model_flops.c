#include "cost_models/model_flops.h"

enum { PASSES = 3 }; /* the backward pass computes two products for each of the forward pass */

static bool is_param(const dtp_graph *g, dtp_tensor_id t)
{
    return g->tensors[t].kind == DTP_TENSOR_PARAM;
}

/* Multiplications and additions of a product by a parameter. */
static double of_product(const dtp_graph *g, const dtp_node *node, const dtp_op_call *call)
{
    dtp_work work;
    bool by_param = false;
    for (int32_t i = 0; i < node->n_in; i++) {
        by_param = by_param || is_param(g, node->in[i]);
    }
    if (!by_param || node->n_in < 2) {
        return 0.0;
    }
    dtp_call_work(call, &work);
    return work.cls == DTP_WORK_GEMM ? work.flops : 0.0;
}

/* Of the two products of attention, as if no mask left anything out. */
static double of_attention(const dtp_op_call *call)
{
    const dtp_dim_id query = (dtp_dim_id)dtp_call_int(call, "query");
    const dtp_dim_id key = (dtp_dim_id)dtp_call_int(call, "key");
    const dtp_ttype *k = &call->in[1];
    const int32_t axis = dtp_ttype_find(k, key >= 0 ? key : query);
    const double keys = axis >= 0 ? (double)k->dims[axis].size : 0.0;
    return 2.0 * keys *
           ((double)dtp_ttype_elems(&call->in[0]) + (double)dtp_ttype_elems(&call->out[0]));
}

dtp_model_flops dtp_model_flops_of(const dtp_graph *model)
{
    dtp_model_flops out = {0};
    for (dtp_node_id n = 0; n < model->n_nodes; n++) {
        const dtp_node *node = &model->nodes[n];
        dtp_call_types types;
        const dtp_op_call call = dtp_node_call(model, node, &types);
        if (node->phase != DTP_FORWARD) {
            continue;
        }
        if ((node->op->flags & DTP_OP_LOOKUP) != 0 && is_param(model, node->in[0])) {
            const int64_t ids = dtp_ttype_elems(&call.in[1]);
            out.tokens = ids > out.tokens ? ids : out.tokens;
        } else if ((node->op->flags & DTP_OP_CONTRACTION) != 0) {
            out.flops += PASSES * of_product(model, node, &call);
        } else if ((node->op->flags & DTP_OP_ATTENTION) != 0) {
            out.flops += PASSES * of_attention(&call);
        }
    }
    return out;
}

double dtp_mfu(const dtp_model_flops *of, const dtp_machine *machine, dtp_arithmetic arithmetic,
               int32_t devices, double step_s)
{
    const double peak = machine->flops[arithmetic] / machine->peak_share;
    return peak > 0.0 && step_s > 0.0 ? of->flops / (peak * devices * step_s) : 0.0;
}

void dtp_predict_throughput(const dtp_graph *model, const dtp_machine *machine,
                            const dtp_precision *precision, int32_t devices, dtp_prediction *out)
{
    const dtp_arithmetic arithmetic = dtp_product_arithmetic(precision->compute, precision->tf32);
    const dtp_model_flops of = dtp_model_flops_of(model);
    if (of.tokens > 0 && out->step_time_s > 0.0) {
        out->tokens_per_s = (double)of.tokens / out->step_time_s;
        out->mfu = dtp_mfu(&of, machine, arithmetic, devices, out->step_time_s);
    }
}
