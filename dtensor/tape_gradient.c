/* Gradients of a tape: the record is turned into a graph, differentiated by the autodiff of planned
 * graphs, and the nodes that this adds are run one by one, as calls on the tensors that are at
 * hand. A redistribution is a renaming in the graph; its gradient is brought back to the layout of
 * what was redistributed. */
#include <stdio.h>
#include <string.h>

#include "core/graph/autodiff.h"
#include "dtensor/tape_internal.h"

/* ---- the record as a graph ---- */

enum { NAME_BYTES = 48 };

/* A gradient under way. */
typedef struct playback {
    dtp_tape *tape;
    dtp_graph *g;
    dtp_tensor_id *ids;  /* by value of the tape: tensor of the graph, -1 = none yet */
    int32_t *entry_of;   /* by forward node: entry of a redistribution, else -1 */
    int32_t n_forward;   /* nodes of the record */
    int32_t n_tensors;   /* tensors of the graph, all of them */
    dtp_tensor *handles; /* by tensor of the graph: what it is, mesh NULL = not yet */
    bool *owned;         /* by tensor of the graph: the handle is this playback's */
    int32_t *last;       /* by tensor of the graph: the last node that reads it */
} playback;

static dtp_status named_type(dtp_graph *g, const dtp_ttype *from, const char *prefix,
                             dtp_ttype *out, dtp_err *err)
{
    *out = *from;
    for (int32_t k = 0; k < from->rank; k++) {
        char name[NAME_BYTES + 12];
        (void)snprintf(name, sizeof name, "%s%d", prefix, k);
        DTP_TRY(dtp_dims_intern(&g->dims, name, from->dims[k].size, &out->dims[k].id, err));
    }
    return DTP_OK;
}

/* A tensor with the dims of `of` under other names. */
static dtp_status add_rename(playback *p, const dtp_tensor_id *of, const char *prefix,
                             dtp_tensor_id *out, dtp_err *err)
{
    char name[NAME_BYTES + 8];
    dtp_ttype type;
    (void)snprintf(name, sizeof name, "%smove", prefix);
    dtp_node_spec spec = dtp_node_spec_init(name, "relabel");
    DTP_TRY(named_type(p->g, &p->g->tensors[*of].type, prefix, &type, err));
    spec.n_in = 1;
    spec.in = of;
    spec.out = &type;
    return dtp_graph_add_node(p->g, &spec, out, err);
}

/* What no recorded call made is an input; later contents of a variable are renamings of its first
 * ones, so that their gradients are added there. */
static dtp_status need_value(playback *p, int32_t v, dtp_err *err)
{
    char name[NAME_BYTES];
    const dtp_tensor t = p->tape->values[v].tensor;
    const int32_t first = p->tape->values[v].first;
    if (p->ids[v] >= 0) {
        return DTP_OK;
    }
    (void)snprintf(name, sizeof name, "v%d.", v);
    if (first >= 0) {
        DTP_TRY(need_value(p, first, err));
        return add_rename(p, &p->ids[first], name, &p->ids[v], err);
    }
    dtp_graph_tensor spec = {.name = name, .kind = DTP_TENSOR_INPUT};
    DTP_TRY(named_type(p->g, &t.mesh->slots[t.slot].type, name, &spec.type, err));
    return dtp_graph_add_tensor(p->g, &spec, &p->ids[v], err);
}

static dtp_status build(playback *p, dtp_err *err)
{
    dtp_arena *arena = p->g->arena;
    DTP_TRY(DTP_NEW(arena, p->ids, p->tape->n_values, err));
    for (int32_t v = 0; v < p->tape->n_values; v++) {
        p->ids[v] = -1;
    }
    for (int32_t i = 0; i < p->tape->n_entries; i++) {
        const dtp_tape_entry *e = &p->tape->entries[i];
        const int32_t n_in = e->call != NULL ? e->call->n_in : 1;
        const int32_t n_out = e->call != NULL ? e->call->op->n_out : 1;
        dtp_tensor_id in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
        char prefix[NAME_BYTES];
        (void)snprintf(prefix, sizeof prefix, "c%d.", i);
        for (int32_t k = 0; k < n_in; k++) {
            DTP_TRY(need_value(p, e->in[k], err));
            in[k] = p->ids[e->in[k]];
        }
        DTP_TRY(e->call != NULL ? dtp_canonical__add(e->call, p->g, prefix, in, out, err)
                                : add_rename(p, &p->ids[e->in[0]], prefix, out, err));
        for (int32_t k = 0; k < n_out; k++) {
            p->ids[e->out[k]] = out[k];
        }
    }
    p->n_forward = p->g->n_nodes;
    DTP_TRY(DTP_NEW(arena, p->entry_of, p->n_forward, err));
    for (int32_t n = 0; n < p->n_forward; n++) {
        p->entry_of[n] = -1;
    }
    for (int32_t i = 0; i < p->tape->n_entries; i++) {
        const dtp_tape_entry *e = &p->tape->entries[i];
        if (e->call == NULL) {
            p->entry_of[p->g->tensors[p->ids[e->out[0]]].producer] = i;
        }
    }
    return DTP_OK;
}

/* ---- playing ---- */

/* Marks the nodes that the gradients rest on, and when each tensor is read last. */
static dtp_status find_uses(playback *p, int32_t n, const dtp_tensor_id *wanted, bool **needed,
                            dtp_err *err)
{
    const dtp_graph *g = p->g;
    p->n_tensors = g->n_tensors;
    p->last = dtp_arena_alloc(g->arena, (size_t)g->n_tensors, sizeof *p->last);
    p->owned = dtp_arena_alloc(g->arena, (size_t)g->n_tensors, sizeof *p->owned);
    p->handles = dtp_arena_alloc(g->arena, (size_t)g->n_tensors, sizeof *p->handles);
    *needed = dtp_arena_alloc(g->arena, (size_t)g->n_nodes, sizeof **needed);
    DTP_TRY(DTP_MEMORY(err, p->last, p->owned, p->handles, *needed));
    for (int32_t i = 0; i < n; i++) {
        if (wanted[i] >= 0) {
            p->last[wanted[i]] = INT32_MAX;
        }
    }
    for (int32_t id = g->n_nodes - 1; id >= p->n_forward; id--) {
        const dtp_node *node = &g->nodes[id];
        for (int32_t i = 0; i < node->n_out; i++) {
            (*needed)[id] = (*needed)[id] || p->last[node->out[i]] > 0;
        }
        for (int32_t i = 0; i < node->n_in && (*needed)[id]; i++) {
            p->last[node->in[i]] = p->last[node->in[i]] > id ? p->last[node->in[i]] : id;
        }
    }
    for (int32_t v = 0; v < p->tape->n_values; v++) {
        if (p->ids[v] >= 0) {
            p->handles[p->ids[v]] = p->tape->values[v].tensor;
        }
    }
    return DTP_OK;
}

/* The dims get other names and nothing else. */
static bool only_renames(const dtp_graph *g, const dtp_node *node)
{
    const dtp_ttype *a = &g->tensors[node->in[0]].type, *b = &g->tensors[node->out[0]].type;
    bool same = (node->op->flags & DTP_OP_RELABEL) != 0 && a->rank == b->rank;
    for (int32_t k = 0; same && k < a->rank; k++) {
        same = a->dims[k].size == b->dims[k].size;
    }
    return same;
}

static dtp_status compute(playback *p, dtp_node_id id, dtp_tensor *outs, dtp_err *err)
{
    const dtp_node *node = &p->g->nodes[id];
    dtp_tensor in[DTP_MAX_OP_IN] = {0};
    dtp_canonical_call c;
    for (int32_t i = 0; i < node->n_in; i++) {
        in[i] = p->handles[node->in[i]];
    }
    if (node->n_in == 0) {
        /* A tensor without operands: filled, replicated. */
        const dtp_ttype *type = &p->g->tensors[node->out[0]].type;
        dtp_tensor_desc desc = {.dtype = type->dtype, .rank = type->rank};
        if ((node->op->flags & DTP_OP_CONSTANT) == 0) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "a gradient needs '%s'", node->op->name);
        }
        for (int32_t k = 0; k < type->rank; k++) {
            desc.shape[k] = type->dims[k].size;
        }
        desc.layout =
            dtp_layout_replicated(type->rank, dtp_device_mesh_dims(p->tape->mesh)->n_dims);
        double value = 0;
        for (int32_t i = 0; i < node->n_attrs; i++) {
            value = strcmp(node->attrs[i].key, "value") == 0 ? node->attrs[i].f : value;
        }
        return dtp_tensor_full(p->tape->mesh, &desc, value, outs, err);
    }
    if (only_renames(p->g, node)) {
        return dtp_tensor_share(in[0], outs, err);
    }
    DTP_TRY(dtp_canonical__of_node(p->g, node, in, &c, err));
    return dtp_canonical__run(&c, outs, err);
}

static void keep(playback *p, dtp_tensor_id t, dtp_tensor handle)
{
    p->handles[t] = handle;
    p->owned[t] = true;
}

static dtp_status run_node(playback *p, dtp_node_id id, dtp_err *err)
{
    dtp_tensor outs[DTP_MAX_OP_OUT];
    DTP_TRY(compute(p, id, outs, err));
    for (int32_t i = 0; i < p->g->nodes[id].n_out; i++) {
        keep(p, p->g->nodes[id].out[i], outs[i]);
    }
    return DTP_OK;
}

/* Where the gradient of a tensor in this layout goes. */
static dtp_layout gradient_layout(dtp_tensor t)
{
    return dtp_layout_without_partial(&t.mesh->slots[t.slot].layout);
}

/* Replaces the handle by one in the layout. */
static dtp_status bring(playback *p, dtp_tensor_id t, const dtp_layout *layout, dtp_err *err)
{
    dtp_tensor laid_out;
    const dtp_tensor have = p->handles[t];
    if (dtp_layout_equal(&have.mesh->slots[have.slot].layout, layout)) {
        return DTP_OK;
    }
    DTP_TRY(dtp_tensor_redistribute(have, layout, &laid_out, err));
    if (p->owned[t]) {
        dtp_tensor_destroy(have);
    }
    keep(p, t, laid_out);
    return DTP_OK;
}

/* The gradient of a redistribution goes where its operand was. */
static dtp_status redistribute_back(playback *p, dtp_node_id id, dtp_err *err)
{
    const dtp_node *node = &p->g->nodes[id];
    const bool renames = node->n_in == 1 && node->origin >= 0 && only_renames(p->g, node);
    const int32_t entry = renames ? p->entry_of[node->origin] : -1;
    if (entry < 0) {
        return DTP_OK;
    }
    const dtp_tensor operand = p->tape->values[p->tape->entries[entry].in[0]].tensor;
    const dtp_layout layout = gradient_layout(operand);
    return bring(p, node->out[0], &layout, err);
}

static void release(playback *p, dtp_tensor_id t)
{
    if (p->owned[t]) {
        dtp_tensor_destroy(p->handles[t]);
        p->owned[t] = false;
        p->handles[t] = (dtp_tensor){0};
    }
}

/* ---- gradients ---- */

static dtp_status hand_out(playback *p, dtp_tensor source, dtp_tensor_id grad, dtp_tensor *out,
                           dtp_err *err)
{
    dtp_layout layout = gradient_layout(source);
    if (grad < 0) {
        /* Gradients of what does not take part are zeros. */
        dtp_tensor_desc desc;
        DTP_TRY(dtp_tensor_describe(source, &desc, err));
        desc.layout = gradient_layout(source);
        return dtp_tensor_zeros(source.mesh, &desc, out, err);
    }
    const dtp_tensor have = p->handles[grad];
    const dtp_placement *places = have.mesh->slots[have.slot].layout.placement;
    for (int32_t m = 0; m < layout.n_mesh && p->tape->keep_partial; m++) {
        if (layout.placement[m].kind == DTP_REPLICATE && places[m].kind == DTP_PARTIAL) {
            layout.placement[m] = places[m];
        }
    }
    DTP_TRY(bring(p, grad, &layout, err));
    return dtp_tensor_share(p->handles[grad], out, err);
}

static dtp_status find_loss(const playback *p, dtp_tensor loss, dtp_tensor_id *out, dtp_err *err)
{
    dtp_tensor_slot *slot;
    DTP_TRY(dtp_tensor__slot(loss, "dtp_tape_gradient", &slot, err));
    const int32_t v = loss.mesh == p->tape->mesh ? dtp_tape__find(p->tape, loss) : -1;
    *out = v >= 0 ? p->ids[v] : -1;
    if (*out < 0 || p->g->tensors[*out].producer < 0) {
        return DTP_FAIL(err, DTP_INVALID,
                        "dtp_tape_gradient: the loss does not depend on a watched tensor");
    }
    if (slot->type.rank != 0) {
        char text[DTP_TENSOR_TEXT_BYTES];
        dtp_tensor_print(loss, text);
        return DTP_FAIL(err, DTP_INVALID,
                        "dtp_tape_gradient: the loss must be one number, it is "
                        "%.200s",
                        text);
    }
    return DTP_OK;
}

static dtp_status gradient(playback *p, dtp_tensor loss, int32_t n, const dtp_tensor *sources,
                           dtp_tensor *grads, dtp_err *err)
{
    dtp_tensor_id loss_id;
    bool *needed;
    dtp_tensor_id *also = dtp_arena_alloc(p->g->arena, (size_t)n, sizeof *also);
    dtp_tensor_id *wanted = dtp_arena_alloc(p->g->arena, (size_t)n, sizeof *wanted);
    DTP_TRY(DTP_MEMORY(err, also, wanted));
    DTP_TRY(build(p, err));
    for (int32_t i = 0; i < n; i++) {
        dtp_tensor_slot *slot;
        DTP_TRY(dtp_tensor__slot(sources[i], "dtp_tape_gradient", &slot, err));
        int32_t v = sources[i].mesh == p->tape->mesh ? dtp_tape__find(p->tape, sources[i]) : -1;
        if (v < 0 || !p->tape->values[v].depends) {
            return DTP_FAIL(err, DTP_INVALID, "dtp_tape_gradient: source %d is not watched", i);
        }
        v = p->tape->values[v].first >= 0 ? p->tape->values[v].first : v;
        DTP_TRY(need_value(p, v, err));
        also[i] = p->ids[v];
    }
    DTP_TRY(find_loss(p, loss, &loss_id, err));
    DTP_TRY(dtp_autodiff(p->g, loss_id, n, also, wanted, err));
    DTP_TRY(find_uses(p, n, wanted, &needed, err));
    for (int32_t id = p->n_forward; id < p->g->n_nodes; id++) {
        const dtp_node *node = &p->g->nodes[id];
        if (!needed[id]) {
            continue;
        }
        /* Operands that the record made on the way to a call (a dim of size 1 taken off). */
        for (int32_t i = 0; i < node->n_in; i++) {
            if (p->handles[node->in[i]].mesh == NULL) {
                DTP_TRY(run_node(p, p->g->tensors[node->in[i]].producer, err));
            }
        }
        DTP_TRY(run_node(p, id, err));
        DTP_TRY(redistribute_back(p, id, err));
        for (int32_t i = 0; i < node->n_in; i++) {
            if (p->last[node->in[i]] == id) {
                release(p, node->in[i]);
            }
        }
    }
    for (int32_t i = 0; i < n; i++) {
        dtp_status s = hand_out(p, sources[i], wanted[i], &grads[i], err);
        for (int32_t k = 0; k < i && s != DTP_OK; k++) {
            dtp_tensor_destroy(grads[k]);
        }
        DTP_TRY(s);
    }
    return DTP_OK;
}

dtp_status dtp_tape_gradient(dtp_tape *tape, dtp_tensor loss, int32_t n, const dtp_tensor *sources,
                             dtp_tensor *grads, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, tape));
    if (n > 0) {
        DTP_TRY(DTP_NOT_NULL(err, sources, grads));
    }
    playback p = {.tape = tape};
    DTP_TRY(dtp_graph_create("tape", tape->mesh->options.ops, &p.g, err));
    tape->paused = true;
    dtp_status s = gradient(&p, loss, n, sources, grads, err);
    tape->paused = false;
    for (int32_t t = 0; t < p.n_tensors; t++) {
        release(&p, t);
    }
    dtp_graph_destroy(p.g);
    return s;
}
