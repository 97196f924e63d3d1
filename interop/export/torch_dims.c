/* What mesh dims do. */
#include "interop/export/torch_modules.h"

static bool is_idle(const dtp_placements *p, int32_t m)
{
    const dtp_layout *kept = p->plan->sharding.layouts;
    bool idle = true;
    for (dtp_tensor_id t = 0; t < p->graph->n_tensors; t++) {
        const dtp_tensor_kind kind = p->graph->tensors[t].kind;
        if (kind == DTP_TENSOR_PARAM || kind == DTP_TENSOR_INPUT ||
            dtp_placements_is_value(p->graph, t)) {
            idle = idle && kept[t].placement[m].kind == DTP_REPLICATE &&
                   p->uses.made[t].placement[m].kind == DTP_REPLICATE &&
                   p->uses.read[t].placement[m].kind == DTP_REPLICATE;
        }
    }
    return idle;
}

/* A dim under the names that relabels give it. */
enum { MAX_ALIASES = 8 };
typedef struct aliases {
    int32_t n;
    dtp_dim_id dims[MAX_ALIASES];
} aliases;

static int32_t find_axis(const dtp_ttype *type, const aliases *of)
{
    int32_t axis = -1;
    for (int32_t i = 0; i < of->n && axis < 0; i++) {
        axis = dtp_ttype_find(type, of->dims[i]);
    }
    return axis;
}

/* The name of the split dim behind a relabel, when it has another one there. */
static void add_alias(const dtp_placements *p, dtp_tensor_id t, int32_t m, aliases *of)
{
    const dtp_graph_tensor *out = &p->graph->tensors[t];
    const dtp_node *node = out->producer >= 0 ? &p->graph->nodes[out->producer] : NULL;
    const dtp_placement *at = &p->uses.made[t].placement[m];
    if (node != NULL && (node->op->flags & DTP_OP_RELABEL) != 0 && at->kind == DTP_SHARD &&
        of->n < MAX_ALIASES && find_axis(&out->type, of) < 0 &&
        find_axis(&p->graph->tensors[node->in[0]].type, of) >= 0) {
        of->dims[of->n++] = out->type.dims[at->axis].id;
    }
}

/* Whether a value is made of a parameter or a constant alone, one node behind the other: every rank
 * makes the part of it that goes with its part of the batch. */
static bool is_repeated(const dtp_graph *g, dtp_tensor_id t)
{
    while (g->tensors[t].producer >= 0 && g->nodes[g->tensors[t].producer].n_in == 1) {
        t = g->nodes[g->tensors[t].producer].in[0];
    }
    const dtp_node_id n = g->tensors[t].producer;
    return n >= 0 ? g->nodes[n].n_in == 0 : g->tensors[t].kind == DTP_TENSOR_PARAM;
}

/* Whether all layouts of a value split a dim over m, or, where it has none, nothing. */
static bool has_split(const dtp_placements *p, dtp_tensor_id t, const aliases *d, int32_t m)
{
    const dtp_layout *of[] = {&p->plan->sharding.layouts[t], &p->uses.made[t], &p->uses.read[t]};
    const int32_t axis = find_axis(&p->graph->tensors[t].type, d);
    const bool whole = axis >= 0 && is_repeated(p->graph, t);
    bool fits = true;
    for (int32_t i = 0; i < 3; i++) {
        const dtp_placement *at = &of[i]->placement[m];
        fits = fits && (whole && at->kind == DTP_REPLICATE ? true
                        : axis >= 0 ? at->kind == DTP_SHARD && at->axis == axis
                                    : at->kind != DTP_SHARD && !p->uses.several[t]);
    }
    return fits;
}

/* Whether m splits a dim of inputs and forward values, or of floats alone, and parameters are read
 * whole. */
static bool splits_dim(const dtp_placements *p, int32_t m, dtp_dim_id d, bool floats)
{
    const dtp_graph *g = p->graph;
    aliases of = {1, {d}};
    bool fits = true;
    for (dtp_tensor_id t = 0; t < g->n_tensors && fits; t++) {
        add_alias(p, t, m, &of);
        if (g->tensors[t].kind == DTP_TENSOR_PARAM) {
            fits = p->uses.read[t].placement[m].kind == DTP_REPLICATE;
        } else if ((g->tensors[t].kind == DTP_TENSOR_INPUT || dtp_placements_is_value(g, t)) &&
                   (!floats || dtp_dtype_is_float(g->tensors[t].type.dtype))) {
            fits = has_split(p, t, &of, m);
        }
    }
    return fits;
}

static bool is_context(const dtp_placements *p, int32_t m)
{
    const dtp_graph *g = p->graph;
    dtp_dim_id query = -1;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        dtp_call_types types;
        const dtp_op_call call = dtp_node_call(g, &g->nodes[n], &types);
        query =
            (g->nodes[n].op->flags & DTP_OP_ATTENTION) != 0 ? dtp_call_dim(&call, "query") : query;
    }
    return query >= 0 && splits_dim(p, m, query, true);
}

static bool is_data(const dtp_placements *p, int32_t m)
{
    const dtp_graph *g = p->graph;
    dtp_dim_id batch = -1;
    bool fits = true;
    for (int32_t i = 0; i < p->n_inputs; i++) {
        const dtp_ttype *type = &g->tensors[p->inputs[i].of[0]].type;
        batch = i == 0 && type->rank > 0 ? type->dims[0].id : batch;
        fits = fits && batch >= 0 && type->rank > 0 && type->dims[0].id == batch;
    }
    return fits && batch >= 0 && splits_dim(p, m, batch, false);
}

dtp_torch_dim dtp_torch_dim_of(const dtp_placements *p, int32_t m)
{
    return is_idle(p, m)      ? DTP_TORCH_IDLE
           : is_data(p, m)    ? DTP_TORCH_DATA
           : is_context(p, m) ? DTP_TORCH_CONTEXT
                              : DTP_TORCH_TENSOR;
}

/* ---- degrees ---- */

/* Whether parameters are split over a tensor dim, and kept as they are read. */
static bool has_styles(const dtp_placements *p, int32_t m)
{
    bool any = false, kept = true;
    for (int32_t i = 0; i < p->n_params; i++) {
        const dtp_placed *of = &p->params[i];
        any = any || dtp_splits_over(&of->read, m);
        kept = kept && dtp_same_placement(&of->kept.placement[m], &of->read.placement[m]);
    }
    return any && kept;
}

void dtp_torch_degrees_find(dtp_torch_plan *t)
{
    const dtp_mesh *mesh = &t->p->plan->mesh;
    int64_t n[4] = {1, 1, 1, 1};
    bool fits = true;
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        const bool shards = (t->shard & 1U << m) != 0;
        fits = fits && (t->dim[m] != DTP_TORCH_IDLE || mesh->sizes[m] == 1) &&
               (t->dim[m] != DTP_TORCH_TENSOR || has_styles(t->p, m));
        n[t->dim[m] == DTP_TORCH_TENSOR    ? 2
          : t->dim[m] == DTP_TORCH_CONTEXT ? 3
          : shards                         ? 0
                                           : 1] *= mesh->sizes[m];
    }
    for (int32_t i = 0; i < t->p->n_params; i++) {
        fits = fits && (t->shard == 0 || t->sharded[i]);
    }
    t->dp_shard = fits ? n[0] : 0;
    t->dp_replicate = fits ? n[1] : 0;
    t->tp = fits ? n[2] : 0;
    t->cp = fits ? n[3] : 0;
}
