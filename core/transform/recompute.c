/* Recomputation: the backward pass of a block computes the block's intermediate results again
 * from what goes into the block, so that they need not be kept from the forward pass. */
#include "core/transform/recompute.h"

#include <string.h>

#include "core/graph/graph_copy.h"
#include "core/transform/recompute_items.h"

/* ---- what is recomputed ---- */

/* A group is one chosen instance; -1 = the node is in none. */
typedef struct remat_work {
    const dtp_graph *g;
    int32_t n_items, n_groups;
    dtp_remat_item *items;
    int32_t *group;       /* by node */
    int32_t *home;        /* by tensor: group of the forward node that makes it */
    bool *kept;           /* by tensor: a glob names its node, or something outside reads it */
    bool *again;          /* by tensor: recomputed */
    dtp_tensor_id *clone; /* by tensor: its recomputed copy in the new graph */
    dtp_node_id *place;   /* by group: the node before which its copies stand, -1 = no copies */
    dtp_graph_copy copy;
} remat_work;

/* The items as they are read; they were checked. */
static dtp_status read_items(remat_work *w, const dtp_remat *remat, dtp_arena *scratch,
                             dtp_err *err)
{
    w->n_items = remat->n;
    DTP_TRY(DTP_NEW(scratch, w->items, (size_t)remat->n, err));
    for (int32_t i = 0; i < remat->n; i++) {
        DTP_TRY(dtp_remat__read_item(remat->items[i], &w->items[i], err));
    }
    return DTP_OK;
}

static bool is_chosen(const remat_work *w, const dtp_node *node)
{
    bool chosen = false;
    for (int32_t i = 0; i < w->n_items && !chosen && node->phase != DTP_UPDATE; i++) {
        chosen = dtp_remat__is_of_item(w->g, node, &w->items[i]);
    }
    return chosen;
}

/* Numbers the chosen instances. Nodes of one instance of one phase mostly follow each other, so the
 * number is looked for backwards from the last one. */
static dtp_status find_groups(remat_work *w, dtp_arena *scratch, dtp_err *err)
{
    dtp_node_id *example;
    DTP_TRY(DTP_NEW(scratch, example, w->g->n_nodes, err));
    for (dtp_node_id n = 0; n < w->g->n_nodes; n++) {
        const dtp_node *node = &w->g->nodes[n];
        w->group[n] = -1;
        if (!is_chosen(w, node)) {
            continue;
        }
        int32_t k = w->n_groups - 1;
        while (k >= 0 && (w->g->nodes[example[k]].block != node->block ||
                          w->g->nodes[example[k]].instance != node->instance)) {
            k--;
        }
        w->group[n] = k >= 0 ? k : w->n_groups;
        if (k < 0) {
            example[w->n_groups++] = n;
        }
    }
    return DTP_OK;
}

static void find_kept(remat_work *w)
{
    const dtp_graph *g = w->g;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        bool kept = false;
        for (int32_t i = 0; i < w->n_items && w->group[n] >= 0; i++) {
            kept = kept || dtp_remat__keeps(g, &w->items[i], &g->nodes[n]);
        }
        for (int32_t i = 0; i < g->nodes[n].n_out; i++) {
            w->kept[g->nodes[n].out[i]] = kept;
        }
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_node_id p = g->tensors[t].producer;
        w->home[t] = p >= 0 && g->nodes[p].phase == DTP_FORWARD ? w->group[p] : -1;
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in; i++) {
            const dtp_tensor_id t = g->nodes[n].in[i];
            w->kept[t] = w->kept[t] || w->home[t] != w->group[n];
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        w->kept[g->outputs[i]] = true;
    }
    for (int32_t i = 0; i < g->n_updates; i++) {
        w->kept[g->updates[i].value] = true;
    }
    if (g->loss >= 0) {
        w->kept[g->loss] = true;
    }
}

/* From the reads of backward nodes back to what is needed to make them. */
static void find_again(remat_work *w)
{
    const dtp_graph *g = w->g;
    for (int32_t k = 0; k < w->n_groups; k++) {
        w->place[k] = -1;
    }
    for (dtp_node_id n = g->n_nodes - 1; n >= 0; n--) {
        const dtp_node *node = &g->nodes[n];
        bool needs = node->phase == DTP_BACKWARD;
        for (int32_t i = 0; i < node->n_out && !needs; i++) {
            needs = w->again[node->out[i]];
        }
        for (int32_t i = 0; i < node->n_in && needs && w->group[n] >= 0; i++) {
            const dtp_tensor_id t = node->in[i];
            if (w->home[t] == w->group[n] && !w->kept[t]) {
                w->again[t] = true;
                w->place[w->group[n]] = node->phase == DTP_BACKWARD ? n : w->place[w->group[n]];
            }
        }
    }
}

/* ---- the new graph ---- */

/* Copies of the forward nodes of a group that are recomputed. */
static dtp_status add_clones(remat_work *w, int32_t group, dtp_err *err)
{
    for (dtp_node_id n = 0; n < w->place[group]; n++) {
        const dtp_node *node = &w->g->nodes[n];
        dtp_tensor_id in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
        bool again = false;
        for (int32_t i = 0; i < node->n_out && w->group[n] == group; i++) {
            again = again || (w->again[node->out[i]] && node->phase == DTP_FORWARD);
        }
        if (!again) {
            continue;
        }
        dtp_node_spec spec = dtp_graph_copy_spec(&w->copy, n, in);
        spec.name = dtp_arena_printf(w->copy.to->arena, "remat.%s", node->name);
        DTP_TRY(DTP_MEMORY(err, spec.name));
        for (int32_t i = 0; i < node->n_in; i++) {
            in[i] = w->again[node->in[i]] ? w->clone[node->in[i]] : in[i];
        }
        spec.phase = DTP_BACKWARD;
        spec.origin = w->copy.node[n];
        spec.repeats = true;
        DTP_TRY(dtp_graph_add_node(w->copy.to, &spec, out, err));
        for (int32_t i = 0; i < node->n_out; i++) {
            w->clone[node->out[i]] = out[i];
        }
    }
    return DTP_OK;
}

/* Tensors come in the order of their ids, which keeps sources where they were. */
static dtp_status add_all(remat_work *w, dtp_err *err)
{
    for (dtp_tensor_id t = 0; t < w->g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &w->g->tensors[t];
        if (tensor->kind != DTP_TENSOR_VALUE) {
            DTP_TRY(dtp_graph_copy_source(&w->copy, t, NULL, err));
        } else if (tensor->out_index == 0) {
            dtp_node_id n = tensor->producer;
            const dtp_node *node = &w->g->nodes[n];
            dtp_tensor_id in[DTP_MAX_OP_IN];
            const int32_t group = w->group[n];
            if (group >= 0 && w->place[group] == n) {
                DTP_TRY(add_clones(w, group, err));
            }
            dtp_node_spec spec = dtp_graph_copy_spec(&w->copy, n, in);
            for (int32_t i = 0; i < node->n_in && node->phase == DTP_BACKWARD; i++) {
                in[i] = w->again[node->in[i]] ? w->clone[node->in[i]] : in[i];
            }
            DTP_TRY(dtp_graph_copy_node(&w->copy, n, &spec, err));
            for (int32_t i = 0; i < node->n_out && group >= 0 && node->phase == DTP_FORWARD; i++) {
                w->copy.to->tensors[w->copy.tensor[node->out[i]]].recomputed = true;
            }
        }
    }
    return dtp_graph_copy_results(&w->copy, err);
}

/* Groups, and which results are recomputed. */
static dtp_status analyse(remat_work *w, const dtp_remat *remat, dtp_arena *scratch, dtp_err *err)
{
    DTP_TRY(dtp_remat_check(remat, w->g, err));
    const size_t nodes = (size_t)w->g->n_nodes, tensors = (size_t)w->g->n_tensors;
    DTP_TRY(DTP_NEW(scratch, w->group, nodes, err));
    DTP_TRY(DTP_NEW(scratch, w->home, tensors, err));
    DTP_TRY(DTP_NEW(scratch, w->kept, tensors, err));
    DTP_TRY(DTP_NEW(scratch, w->again, tensors, err));
    DTP_TRY(DTP_NEW(scratch, w->clone, tensors, err));
    DTP_TRY(DTP_NEW(scratch, w->place, nodes, err));
    DTP_TRY(read_items(w, remat, scratch, err));
    DTP_TRY(find_groups(w, scratch, err));
    find_kept(w);
    find_again(w);
    return DTP_OK;
}

dtp_status dtp_remat_again(const dtp_graph *g, const dtp_remat *remat, dtp_arena *arena,
                           const bool **again, dtp_err *err)
{
    remat_work w = {.g = g};
    DTP_TRY(analyse(&w, remat, arena, err));
    *again = w.again;
    return DTP_OK;
}

static dtp_status build(remat_work *w, const dtp_remat *remat, dtp_arena *scratch, dtp_graph **out,
                        dtp_err *err)
{
    DTP_TRY(analyse(w, remat, scratch, err));
    DTP_TRY(dtp_graph_copy_begin(w->g, &w->copy, err));
    return dtp_graph_deliver(w->copy.to, add_all(w, err), out);
}

dtp_status dtp_graph_rematerialize(const dtp_graph *g, const dtp_remat *remat, dtp_graph **out,
                                   dtp_err *err)
{
    remat_work w = {.g = g};
    dtp_arena *scratch = dtp_arena_create();
    const dtp_status s = build(&w, remat, scratch, out, err);
    dtp_arena_destroy(scratch);
    return s;
}
