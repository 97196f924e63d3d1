/* Reductions of gradients over ranks that wait for the last microbatch. A gradient is partial where
 * its node splits a dim that it sums over; sums of such gradients are formed from the parts. */
#include <string.h>

#include "core/transform/microbatch.h"
#include "core/graph/op_rules.h"
#include "core/plan/sharding_microbatch.h"

typedef struct deferral {
    const dtp_graph *g;
    dtp_sharding *s;
    int32_t *n_readers; /* by tensor */
} deferral;

bool dtp_is_accumulate(const dtp_graph *g, const dtp_node *node)
{
    return node->n_in == 2 && g->tensors[node->in[0]].per_step && node->phase != DTP_UPDATE;
}

/* A sum of parts is a part of the sum: the op is linear in all its operands together. */
static bool passes_sums(const dtp_node *node)
{
    return node->phase != DTP_UPDATE && node->n_out == 1 &&
           (node->op->linear == DTP_LINEAR_JOINT ||
            (node->op->linear == DTP_LINEAR_EACH && node->n_in == 1));
}

/* The one node that reads t, -1 = none or several reads. */
static dtp_node_id only_reader(const dtp_graph *g, dtp_tensor_id t)
{
    dtp_node_id found = -1;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in; i++) {
            if (g->nodes[n].in[i] == t && found >= 0) {
                return -1;
            }
            found = g->nodes[n].in[i] == t ? n : found;
        }
    }
    return found;
}

/* only: by tensor, the one node that reads it; NULL: not known. */
static dtp_deferral defers(const dtp_graph *g, const dtp_node_id *only, dtp_tensor_id t)
{
    dtp_deferral d = {.sum = -1, .first = true};
    if (g->microbatches > 1) {
        d.sum = only != NULL ? only[t] : only_reader(g, t);
    }
    while (d.sum >= 0 && !dtp_is_accumulate(g, &g->nodes[d.sum]) && passes_sums(&g->nodes[d.sum])) {
        d.first = d.first && g->nodes[d.sum].in[0] == t;
        t = g->nodes[d.sum].out[0];
        d.sum = only != NULL ? only[t] : only_reader(g, t);
    }
    d.sum = d.sum >= 0 && dtp_is_accumulate(g, &g->nodes[d.sum]) ? d.sum : -1;
    return d;
}

dtp_deferral dtp_microbatch_defers(const dtp_graph *g, dtp_tensor_id t)
{
    return defers(g, NULL, t);
}

dtp_status dtp_microbatch_deferrals(const dtp_graph *g, dtp_arena *arena, dtp_deferral **out,
                                    dtp_err *err)
{
    enum { NONE = -1, SEVERAL = -2 };
    dtp_node_id *only;
    DTP_TRY(DTP_NEW(arena, only, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, *out, g->n_tensors, err));
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        only[t] = NONE;
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in; i++) {
            dtp_node_id *reader = &only[g->nodes[n].in[i]];
            *reader = *reader == NONE ? n : SEVERAL;
        }
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        (*out)[t] = defers(g, only, t);
    }
    return DTP_OK;
}

static bool is_sum(const dtp_placement *p)
{
    return p->kind == DTP_PARTIAL && p->op == DTP_REDUCE_SUM;
}

/* Whether t can be left partial on mesh dim m, and with `apply` leaves it so. Sums nest as deep as
 * a tensor has uses; they are followed to a fixed depth. */
static bool leave_partial(deferral *w, dtp_tensor_id t, int32_t m, bool apply, int32_t depth);

static bool parts_of(deferral *w, const dtp_node *node, const dtp_sharding_rule *row, int32_t m,
                     bool apply, int32_t depth)
{
    bool all = row->linear;
    for (int32_t i = 0; i < node->n_in && all; i++) {
        all = !is_sum(&row->in[i]) || leave_partial(w, node->in[i], m, apply, depth + 1);
    }
    return all;
}

static bool leave_partial(deferral *w, dtp_tensor_id t, int32_t m, bool apply, int32_t depth)
{
    enum { MAX_DEPTH = 16 };
    const dtp_node_id p = w->g->tensors[t].producer;
    dtp_call_types types;
    dtp_sharding_rules set;
    if (p < 0 || depth > MAX_DEPTH || w->n_readers[t] != 1 ||
        w->s->layouts[t].placement[m].kind != DTP_REPLICATE) {
        return false;
    }
    const dtp_node *node = &w->g->nodes[p];
    const dtp_op_call call = dtp_node_call(w->g, node, &types);
    int32_t r = w->s->strategies[p].row[m];
    dtp_sharding_rules_of(&call, true, &set);
    bool ok = is_sum(&set.rows[r].out[w->g->tensors[t].out_index]);
    if (r == 0 && passes_sums(node)) {
        for (r = 1; r < set.n && !ok; r++) {
            ok = parts_of(w, node, &set.rows[r], m, false, depth);
        }
        r = ok ? r - 1 : 0;
        ok = ok && (!apply || parts_of(w, node, &set.rows[r], m, true, depth));
    }
    if (ok && apply) {
        w->s->strategies[p].row[m] = (int16_t)r;
        w->s->layouts[t].placement[m] = (dtp_placement){.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
    }
    return ok;
}

static bool row_keeps(const dtp_sharding_rule *row, const dtp_placement *place)
{
    if (place->kind == DTP_SHARD) {
        return !row->linear && row->in[0].kind == DTP_SHARD && row->in[0].axis == place->axis;
    }
    return is_sum(place) && row->linear && is_sum(&row->in[0]) && is_sum(&row->in[1]);
}

void dtp_accumulate_strategy(const dtp_graph *g, const dtp_node *node, dtp_layout *layout,
                             dtp_strategy *out)
{
    dtp_call_types types;
    dtp_sharding_rules set;
    const dtp_op_call call = dtp_node_call(g, node, &types);
    dtp_sharding_rules_of(&call, true, &set);
    *out = (dtp_strategy){0};
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        int32_t r = set.n - 1;
        while (r > 0 && !row_keeps(&set.rows[r], &layout->placement[m])) {
            r--;
        }
        out->row[m] = (int16_t)r;
        layout->placement[m] = r > 0 ? layout->placement[m] : (dtp_placement){0};
    }
}

dtp_status dtp_microbatch_defer(const dtp_graph *g, dtp_sharding *s, dtp_err *err)
{
    deferral w = {.g = g, .s = s};
    if (g->microbatches <= 1) {
        return DTP_OK;
    }
    dtp_arena *scratch = dtp_arena_create();
    if (scratch != NULL) {
        w.n_readers = dtp_arena_alloc(scratch, (size_t)g->n_tensors, sizeof *w.n_readers);
    }
    if (w.n_readers == NULL) {
        dtp_arena_destroy(scratch);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d tensors", g->n_tensors);
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in; i++) {
            w.n_readers[g->nodes[n].in[i]]++;
        }
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        if (!dtp_is_accumulate(g, node)) {
            continue;
        }
        dtp_layout *layout = &s->layouts[node->in[1]];
        for (int32_t m = 0; m < s->mesh.n_dims; m++) {
            (void)leave_partial(&w, node->in[1], m, true, 0);
        }
        dtp_accumulate_strategy(g, node, layout, &s->strategies[n]);
        s->layouts[node->in[0]] = *layout;
        s->layouts[node->out[0]] = *layout;
    }
    dtp_arena_destroy(scratch);
    return DTP_OK;
}
