/* What a training step of a model computes, whatever its layouts, recomputation or kernels: what
 * tokens per second and MFU are of (docs/cost-model.md, "Tokens and MFU"). */
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

/* ---- experts ---- */

/* By tensor: the top k whose indices it is made of alone (positions, masks, places in a queue), and
 * the top k by whose indices its rows were sent to experts. */
typedef struct routes {
    int32_t *index, *rows;
} routes;

enum { NO_ROUTE = -1, NO_INDEX = -2 }; /* NO_ROUTE: of an index: made of constants */

/* What a node makes of indices alone; NO_INDEX: it reads something else. */
static int32_t index_of(const dtp_graph *g, const routes *r, dtp_node_id n)
{
    const dtp_node *node = &g->nodes[n];
    int32_t of = NO_ROUTE;
    for (int32_t i = 0; i < node->n_in && of != NO_INDEX; i++) {
        const int32_t in = r->index[node->in[i]];
        of = in == NO_INDEX ? NO_INDEX : in > of ? in : of;
    }
    return node->op == dtp_op_set_find(g->ops, "topk") ? n : of;
}

/* Rows are sent by a gather, or by a product with a mask. They stay where they are in elementwise
 * ops, reshapes and products by parameters. */
static int32_t rows_of(const dtp_graph *g, const routes *r, dtp_node_id n)
{
    const dtp_node *node = &g->nodes[n];
    const bool sends = (node->op->flags & (DTP_OP_LOOKUP | DTP_OP_CONTRACTION)) != 0;
    int32_t index = NO_ROUTE, rows = NO_ROUTE;
    bool others = false; /* it reads rows that were not sent */
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_tensor_id t = node->in[i];
        index = r->index[t] > index ? r->index[t] : index;
        rows = r->rows[t] > rows ? r->rows[t] : rows;
        others = others || (r->rows[t] < 0 && r->index[t] == NO_INDEX && !is_param(g, t));
    }
    if (sends && index >= 0 && r->index[node->out[0]] == NO_INDEX) {
        return index;
    }
    const uint32_t keeps = DTP_OP_ELEMENTWISE | DTP_OP_RELABEL | DTP_OP_CAST | DTP_OP_CONTRACTION;
    return (node->op->flags & keeps) != 0 && !others ? rows : NO_ROUTE;
}

static void find_routes(const dtp_graph *g, routes *r)
{
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_node_id n = g->tensors[t].producer;
        r->index[t] = n >= 0 ? index_of(g, r, n) : NO_INDEX;
        r->rows[t] = NO_ROUTE;
        r->rows[t] = n >= 0 && g->tensors[t].out_index == 0 ? rows_of(g, r, n) : NO_ROUTE;
    }
}

/* The share of the rows of operand i of a product that tokens were sent to. */
static double used(const dtp_graph *g, const routes *r, const dtp_node *node, int32_t i)
{
    const dtp_tensor_id t = node->in[i];
    const int32_t top = r->rows != NULL ? r->rows[t] : NO_ROUTE;
    if (top < 0 || is_param(g, t)) {
        return 1.0;
    }
    const dtp_ttype *x = &g->tensors[t].type, *y = &g->tensors[node->out[0]].type;
    double rows = 1.0;
    for (int32_t d = 0; d < x->rank; d++) {
        rows *= dtp_ttype_find(y, x->dims[d].id) >= 0 ? (double)x->dims[d].size : 1.0;
    }
    const double chosen = (double)dtp_ttype_elems(&g->tensors[g->nodes[top].out[0]].type);
    return chosen < rows ? chosen / rows : 1.0;
}

/* ---- products ---- */

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

/* flops: of all slots. */
static void add_product(const dtp_graph *model, const routes *r, const dtp_node *node, double flops,
                        dtp_model_flops *out)
{
    double share = 1.0;
    for (int32_t i = 0; i < node->n_in && flops > 0.0; i++) {
        share *= used(model, r, node, i);
    }
    out->flops += share * flops;
    out->vain += (1.0 - share) * flops;
}

dtp_model_flops dtp_model_flops_of(const dtp_graph *model)
{
    dtp_model_flops out = {0};
    const size_t n_tensors = (size_t)model->n_tensors;
    bool *gradients = find_differentiated(model);
    int32_t *memory = calloc(2 * n_tensors + 1, sizeof *memory);
    routes r = {0};
    if (memory != NULL) { /* else all slots of experts count */
        r = (routes){memory, memory + n_tensors};
        find_routes(model, &r);
    }
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
            add_product(model, &r, node, of_product(model, node, &call, differentiated), &out);
        } else if ((node->op->flags & DTP_OP_ATTENTION) != 0) {
            out.flops += (differentiated ? TRAINED : FORWARD) * of_attention(&call);
        }
    }
    free(gradients);
    free(memory);
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
        out->vain = of.flops > 0.0 ? out->mfu * of.vain / of.flops : 0.0;
    }
}
