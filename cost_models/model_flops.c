#include "cost_models/model_flops.h"

#include <stdlib.h>

/* The backward pass computes two products for each of the forward pass, one where the parameter is
 * frozen, and none where no trained parameter is before the product. */
enum { FORWARD = 1, TO_INPUT = 2, TRAINED = 3 };

static bool is_param(const dtp_graph *g, dtp_tensor_id t)
{
    return g->tensors[t].kind == DTP_TENSOR_PARAM;
}

/* By node of the forward pass: whether gradients flow through it, some backward node differentiates
 * it; the caller frees it. NULL, which stands for all: the graph does not train, or no memory. */
static bool *find_differentiated(const dtp_graph *g)
{
    bool *of = g->loss >= 0 ? calloc((size_t)g->n_nodes + 1, sizeof *of) : NULL;
    for (dtp_node_id n = 0; n < g->n_nodes && of != NULL; n++) {
        if (g->nodes[n].phase == DTP_BACKWARD && g->nodes[n].origin >= 0) {
            of[g->nodes[n].origin] = true;
        }
    }
    return of;
}

/* Multiplications and additions of a product by a parameter, in all passes. */
static double of_product(const dtp_graph *g, const dtp_node *node, const dtp_op_call *call,
                         bool differentiated)
{
    dtp_work work;
    bool by_param = false, frozen = true;
    for (int32_t i = 0; i < node->n_in; i++) {
        by_param = by_param || is_param(g, node->in[i]);
        frozen = frozen && (!is_param(g, node->in[i]) || g->tensors[node->in[i]].frozen);
    }
    if (!by_param || node->n_in < 2) {
        return 0.0;
    }
    dtp_call_work(call, &work);
    const int passes = !frozen ? TRAINED : differentiated ? TO_INPUT : FORWARD;
    return work.cls == DTP_WORK_GEMM ? passes * work.flops : 0.0;
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
    bool *gradients = find_differentiated(model);
    for (dtp_node_id n = 0; n < model->n_nodes; n++) {
        const dtp_node *node = &model->nodes[n];
        dtp_call_types types;
        const dtp_op_call call = dtp_node_call(model, node, &types);
        const bool differentiated = gradients == NULL || gradients[n];
        if (node->phase != DTP_FORWARD) {
            continue;
        }
        if ((node->op->flags & DTP_OP_LOOKUP) != 0 && is_param(model, node->in[0])) {
            const int64_t ids = dtp_ttype_elems(&call.in[1]);
            out.tokens = ids > out.tokens ? ids : out.tokens;
        } else if ((node->op->flags & DTP_OP_CONTRACTION) != 0) {
            out.flops += of_product(model, node, &call, differentiated);
        } else if ((node->op->flags & DTP_OP_ATTENTION) != 0) {
            out.flops += (differentiated ? TRAINED : FORWARD) * of_attention(&call);
        }
    }
    free(gradients);
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
