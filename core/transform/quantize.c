/* The graph is copied in the order of its ids; what a product reads is quantized where the first
 * one reads it. */
#include "core/transform/quantize.h"

#include "core/graph/graph_copy.h"

enum { ALIGNED = 16 };

typedef struct quantize_work {
    const dtp_graph *g;
    dtp_phase phase;
    dtp_graph_copy copy;
    dtp_node_id *reader; /* by tensor: the first node that wants it quantized, -1 = none */
    bool *shared;        /* by tensor: nodes of several instances of blocks do */
    dtp_tensor_id *made; /* by tensor: it quantized, -1 = not yet */
} quantize_work;

/* Whether a product computes in 8 bits. */
static bool is_quantized_product(const quantize_work *w, const dtp_node *node)
{
    const dtp_graph *g = w->g;
    if (node->phase != w->phase || (node->op->flags & DTP_OP_CONTRACTION) == 0 || node->n_in != 2 ||
        g->tensors[node->in[0]].type.dtype != DTP_BF16) {
        return false;
    }
    if (w->phase == DTP_BACKWARD) {
        return dtp_graph_is_quantized(g, node->in[0]) != dtp_graph_is_quantized(g, node->in[1]);
    }
    const bool weight[] = {dtp_graph_param_of(g, node->in[0]) >= 0,
                           dtp_graph_param_of(g, node->in[1]) >= 0};
    dtp_call_types types;
    const dtp_op_call call = dtp_node_call(g, node, &types);
    dtp_work work;
    dtp_call_work(&call, &work);
    return node->block >= 0 && weight[0] != weight[1] && work.cls == DTP_WORK_GEMM &&
           work.batch == 1 && work.m % ALIGNED == 0 && work.n % ALIGNED == 0 &&
           work.k % ALIGNED == 0;
}

/* Adds a node of one or two operands; *t is what it gives. */
static dtp_status add(quantize_work *w, dtp_node_spec *spec, const char *name, const char *op,
                      dtp_tensor_id *t, dtp_err *err)
{
    DTP_TRY(DTP_MEMORY(err, name));
    spec->name = name;
    spec->op = op;
    spec->def = NULL;
    spec->out = NULL;
    return dtp_graph_add_node(w->copy.to, spec, t, err);
}

/* Tensor t of g, quantized, beside the node of a spec that reads it. What the forward pass
 * quantized is quantized again, at the same scale. */
static dtp_status quantize(quantize_work *w, const dtp_node_spec *beside, dtp_tensor_id t,
                           dtp_tensor_id *out, dtp_err *err)
{
    const dtp_graph_tensor *tensor = &w->g->tensors[t];
    const bool forward = w->phase == DTP_FORWARD;
    const dtp_node *before =
        dtp_graph_is_quantized(w->g, t) ? &w->g->nodes[tensor->producer] : NULL;
    const char *op = before != NULL ? before->op->name
                     : forward      ? "quantize_e4m3"
                                    : "quantize_e5m2";
    const char *prefix = before != NULL ? "again" : forward ? "e4m3" : "e5m2";
    dtp_arena *arena = w->copy.to->arena;
    dtp_tensor_id in[2] = {w->copy.tensor[before != NULL ? before->in[0] : t],
                           before != NULL ? w->copy.tensor[before->in[1]] : -1};
    dtp_node_spec spec = *beside;
    spec.block = w->shared[t] ? -1 : spec.block;
    spec.instance = w->shared[t] ? 0 : spec.instance;
    spec.in = in;
    if (w->made[t] < 0 && before == NULL) {
        dtp_dim_id dims[DTP_MAX_RANK];
        for (int32_t i = 0; i < tensor->type.rank; i++) {
            dims[i] = tensor->type.dims[i].id;
        }
        const dtp_attr over = dtp_attr_dims("over", tensor->type.rank, dims);
        spec.n_in = spec.n_attrs = 1;
        spec.attrs = &over;
        DTP_TRY(
            add(w, &spec, dtp_arena_printf(arena, "amax.%s", tensor->name), "amax", &in[1], err));
    }
    if (w->made[t] < 0) {
        spec.n_in = 2;
        spec.n_attrs = 0;
        DTP_TRY(add(w, &spec, dtp_arena_printf(arena, "%s.%s", prefix, tensor->name), op,
                    &w->made[t], err));
    }
    *out = w->made[t];
    return DTP_OK;
}

static dtp_status copy_node(quantize_work *w, dtp_node_id n, dtp_err *err)
{
    const dtp_node *node = &w->g->nodes[n];
    dtp_tensor_id in[DTP_MAX_OP_IN];
    dtp_node_spec spec = dtp_graph_copy_spec(&w->copy, n, in);
    for (int32_t i = 0; i < node->n_in; i++) {
        if (w->reader[node->in[i]] >= 0 && is_quantized_product(w, node)) {
            DTP_TRY(quantize(w, &spec, node->in[i], &in[i], err));
        }
    }
    return dtp_graph_copy_node(&w->copy, n, &spec, err);
}

/* Fills reader and shared; false: no product is quantized. */
static bool find_readers(quantize_work *w)
{
    const dtp_graph *g = w->g;
    bool any = false;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        w->reader[t] = w->made[t] = -1;
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        const bool wants = is_quantized_product(w, node);
        for (int32_t i = 0; i < node->n_in && wants; i++) {
            const dtp_tensor_id t = node->in[i];
            const dtp_node *first = w->reader[t] >= 0 ? &g->nodes[w->reader[t]] : node;
            w->shared[t] =
                w->shared[t] || first->block != node->block || first->instance != node->instance;
            w->reader[t] = w->reader[t] >= 0 ? w->reader[t] : n;
            any = true;
        }
    }
    return any;
}

static dtp_status copy_all(quantize_work *w, dtp_err *err)
{
    for (dtp_tensor_id t = 0; t < w->g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &w->g->tensors[t];
        if (tensor->kind != DTP_TENSOR_VALUE) {
            DTP_TRY(dtp_graph_copy_source(&w->copy, t, NULL, err));
        } else if (tensor->out_index == 0) {
            DTP_TRY(copy_node(w, tensor->producer, err));
        }
    }
    return dtp_graph_copy_results(&w->copy, err);
}

static dtp_status build(quantize_work *w, dtp_arena *scratch, dtp_graph **out, dtp_err *err)
{
    const size_t n = (size_t)w->g->n_tensors;
    DTP_TRY(DTP_NEW(scratch, w->reader, n, err));
    DTP_TRY(DTP_NEW(scratch, w->shared, n, err));
    DTP_TRY(DTP_NEW(scratch, w->made, n, err));
    if (!find_readers(w) && w->phase == DTP_FORWARD) {
        return DTP_FAIL(err, DTP_INVALID,
                        "precision fp8: '%s' has no product of an activation and a weight in a "
                        "block whose sizes %d divides",
                        w->g->name, ALIGNED);
    }
    DTP_TRY(dtp_graph_copy_begin(w->g, &w->copy, err));
    return dtp_graph_deliver(w->copy.to, copy_all(w, err), out);
}

dtp_status dtp_graph_with_quantized(const dtp_graph *g, dtp_phase phase, dtp_graph **out,
                                    dtp_err *err)
{
    quantize_work w = {.g = g, .phase = phase};
    dtp_arena *scratch = dtp_arena_create();
    const dtp_status s = scratch == NULL ? DTP_FAIL(err, DTP_NOMEM, "out of memory for products")
                                         : build(&w, scratch, out, err);
    dtp_arena_destroy(scratch);
    return s;
}
