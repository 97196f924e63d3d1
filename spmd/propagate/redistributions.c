/* Walks the nodes as the lowering does, with the copies that earlier redistributions left
 * behind. */
#include "spmd/propagate/redistributions.h"

#include <string.h>

#include "core/plan/node_layouts.h"

/* Layouts in which there is a copy of a tensor. */
typedef struct copies {
    int32_t n, capacity;
    dtp_layout *layouts;
    int32_t old; /* made before this phase: a recomputation does not read them */
} copies;

typedef struct redistribution_walk {
    const dtp_graph *g;
    const dtp_sharding *s;
    const dtp_redistributor *r;
    dtp_arena *scratch;
    copies *copies; /* by tensor */
    bool *read;     /* by tensor: something reads it or it survives the step */
    dtp_redistributions *out;
} redistribution_walk;

static dtp_status add_copy(redistribution_walk *w, dtp_tensor_id t, const dtp_layout *layout,
                           dtp_err *err)
{
    copies *c = &w->copies[t];
    DTP_TRY(dtp_arena_grow(w->scratch, &c->layouts, c->n, c->n + 1, &c->capacity,
                           sizeof *c->layouts, err));
    c->layouts[c->n++] = *layout;
    return DTP_OK;
}

static bool has_copy(const redistribution_walk *w, const dtp_copy_info *r)
{
    const dtp_tensor_id t = r->tensor;
    const dtp_layout *layout = &r->to;
    const bool again = w->g->nodes[r->node].repeats;
    if (dtp_layout_equal(&r->from, layout)) {
        return true;
    }
    for (int32_t i = again ? w->copies[t].old : 0; i < w->copies[t].n; i++) {
        if (dtp_layout_equal(&w->copies[t].layouts[i], layout)) {
            return true;
        }
    }
    return false;
}

/* A redistribution that is made whatever copies there are. */
static dtp_status add_own(redistribution_walk *w, dtp_copy_info r, dtp_err *err)
{
    DTP_TRY(dtp_redistribute_by(w->r, &w->s->mesh, &w->g->tensors[r.tensor].type, &r.from, &r.to,
                                &r.steps, err));
    for (int32_t i = 0; i < r.steps.n; i++) {
        r.sends = r.sends || dtp_step_sends(&w->s->mesh, &r.steps.steps[i]);
        DTP_TRY(add_copy(w, r.tensor, &r.steps.steps[i].after, err));
    }
    dtp_redistributions *out = w->out;
    DTP_TRY(dtp_arena_grow(out->arena, &out->items, out->n, out->n + 1, &out->capacity,
                           sizeof *out->items, err));
    out->items[out->n++] = r;
    return DTP_OK;
}

static dtp_status add_redistribution(redistribution_walk *w, dtp_copy_info r, dtp_err *err)
{
    return has_copy(w, &r) ? DTP_OK : add_own(w, r, err);
}

static dtp_status visit(redistribution_walk *w, dtp_node_id id, dtp_err *err)
{
    const dtp_node *node = &w->g->nodes[id];
    dtp_node_layouts l;
    /* What the node's strategy means, as the lowering finds it. */
    const bool in_mesh_order = dtp_sharding_has_replicas(w->s);
    dtp_call_types types;
    dtp_op_call call = dtp_node_call(w->g, node, &types);
    dtp_layout in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
    for (int32_t i = 0; i < node->n_in; i++) {
        in[i] = in_mesh_order ? dtp_layout_replicated(types.in[i].rank, w->s->mesh.n_dims)
                              : w->s->layouts[node->in[i]];
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        out[i] = w->s->layouts[node->out[i]];
    }
    DTP_TRY(dtp_node_layouts_find(&w->s->mesh, &call, NULL, &w->s->strategies[id], in,
                                  in_mesh_order ? NULL : out, &l, err));
    for (int32_t i = 0; i < node->n_in; i++) {
        /* With replicas: the copy that the phase reads, once, and from there to the operand. */
        const dtp_tensor_id t = node->in[i];
        const bool replicas = dtp_sharding_has_replicas(w->s);
        dtp_copy_info r = {.node = id,
                           .operand = i,
                           .tensor = t,
                           .from = w->s->layouts[t],
                           .to = replicas ? w->s->replicas[node->phase][t] : l.in[i]};
        DTP_TRY(add_redistribution(w, r, err));
        bool there = !replicas || dtp_layout_equal(&r.to, &l.in[i]);
        for (int32_t j = 0; j < i && !there; j++) { /* an earlier operand is the same */
            there = node->in[j] == t && dtp_layout_equal(&l.in[j], &l.in[i]);
        }
        r.from = r.to;
        r.to = l.in[i];
        if (!there) {
            DTP_TRY(add_own(w, r, err));
        }
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        const dtp_tensor_id t = node->out[i];
        DTP_TRY(add_copy(w, t, &l.out[i], err));
        if (w->read[t]) {
            const dtp_copy_info r = {
                .node = id, .operand = -1, .tensor = t, .from = l.out[i], .to = w->s->layouts[t]};
            DTP_TRY(add_redistribution(w, r, err));
        }
    }
    return DTP_OK;
}

static dtp_status run(redistribution_walk *w, dtp_err *err)
{
    const size_t n = (size_t)w->g->n_tensors + 1;
    DTP_TRY(DTP_NEW(w->scratch, w->copies, n, err));
    DTP_TRY(DTP_NEW(w->scratch, w->read, n, err));
    const dtp_graph *g = w->g;
    for (int32_t id = 0; id < g->n_nodes; id++) {
        for (int32_t i = 0; i < g->nodes[id].n_in; i++) {
            w->read[g->nodes[id].in[i]] = true;
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        w->read[g->outputs[i]] = true;
    }
    for (int32_t i = 0; i < g->n_updates; i++) {
        w->read[g->updates[i].value] = true;
    }
    if (g->loss >= 0) {
        w->read[g->loss] = true;
    }
    for (int32_t t = 0; t < w->g->n_tensors; t++) {
        if (w->g->tensors[t].kind != DTP_TENSOR_VALUE) {
            DTP_TRY(add_copy(w, t, &w->s->layouts[t], err));
        }
    }
    for (int32_t id = 0; id < w->g->n_nodes; id++) {
        if (id > 0 && w->g->nodes[id].phase != w->g->nodes[id - 1].phase) {
            /* Copies of parameters and states are not kept from one phase to the next; with
             * replicas, no copies are: what remains is the tensor as it is kept. */
            for (int32_t t = 0; t < w->g->n_tensors; t++) {
                const dtp_tensor_kind kind = w->g->tensors[t].kind;
                const bool resident = kind == DTP_TENSOR_PARAM || kind == DTP_TENSOR_STATE;
                if ((resident || dtp_sharding_has_replicas(w->s)) && w->copies[t].n > 0) {
                    w->copies[t].n = 1;
                    w->copies[t].layouts[0] = w->s->layouts[t];
                }
                w->copies[t].old = w->copies[t].n;
            }
        }
        DTP_TRY(dtp_err_prefixed(visit(w, id, err), err, "node '%s'", w->g->nodes[id].name));
    }
    return DTP_OK;
}

dtp_status dtp_redistributions_find(const dtp_graph *g, const dtp_sharding *s,
                                    const dtp_redistributor *r, dtp_redistributions *out,
                                    dtp_err *err)
{
    *out = (dtp_redistributions){.arena = dtp_arena_create()};
    redistribution_walk w = {.g = g, .s = s, .r = r, .scratch = dtp_arena_create(), .out = out};
    dtp_status status = out->arena == NULL || w.scratch == NULL
                            ? DTP_FAIL(err, DTP_NOMEM, "out of memory for redistributions")
                            : run(&w, err);
    dtp_arena_destroy(w.scratch);
    return status;
}

void dtp_redistributions_free(dtp_redistributions *redistributions)
{
    dtp_arena_destroy(redistributions->arena);
    *redistributions = (dtp_redistributions){0};
}
