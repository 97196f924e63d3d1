/* Where nodes and tensors lie.
 *
 *  1. Forward nodes get units (stage_choice.c): their own, the last of their operands, or, of what
 *     depends on inputs and parameters alone and has a gradient, the first of their readers.
 *  2. Backward nodes follow.
 *  3. What has no stage yet (free nodes) lies on every stage that reads it.
 *  4. Parameters lie where they are read, updates at the home of their parameter.
 *  5. Transfers: operands that the stage of their reader does not hold, and new values of copies.
 */
#include "core/transform/stages.h"

#include <string.h>

#include "core/base/safe_int.h"
#include "core/graph/graph_copy.h"
#include "core/transform/microbatch.h"

typedef struct stage_work {
    const dtp_graph *g;
    dtp_stages *s;
    int32_t *unit, *chunk; /* dtp_stage_units; `unit` then of nodes in no block, too */
    bool *has_grad;        /* by forward node */
    uint64_t *got;         /* by tensor: stages that receive it */
    dtp_tensor_id *target; /* by tensor: what it replaces, -1 = nothing */
    dtp_arena *arena;
} stage_work;

static int32_t first_stage(uint64_t on)
{
    int32_t s = 0;
    while (s < DTP_MAX_STAGES - 1 && !dtp_in_chunk(on, s)) {
        s++;
    }
    return s;
}

static uint64_t bit(int32_t s)
{
    return (uint64_t)1 << s;
}

static dtp_node_id maker(const dtp_graph *g, dtp_tensor_id t)
{
    return g->tensors[t].kind == DTP_TENSOR_VALUE ? g->tensors[t].producer : -1;
}

int32_t dtp_stage_slots(const dtp_graph *g, int32_t stage)
{
    const dtp_stages *s = g->stages;
    const int64_t others = s->n_chunks - s->n, behind = s->n - 1 - stage;
    const int64_t all = (int64_t)g->microbatches * (s->n_chunks / s->n);
    const int64_t slots = s->slots + others + behind * (others > 0 ? 2 : 1);
    return (int32_t)(slots < all ? slots : all);
}

dtp_status dtp_stages_mesh(const dtp_mesh *mesh, int32_t n_stages, dtp_mesh *out, dtp_err *err)
{
    static const char NAME[] = "stage";
    int64_t ranks = 0;
    *out = *mesh;
    if (n_stages < 2) {
        return DTP_OK;
    }
    if (mesh->n_dims == DTP_MAX_MESH_DIMS || !dtp_mul_i64(n_stages, dtp_mesh_ranks(mesh), &ranks) ||
        ranks > INT32_MAX) {
        return DTP_FAIL(err, DTP_INVALID,
                        "stages: %d of a mesh of %d ranks; the mesh may have %d dims beside them",
                        n_stages, dtp_mesh_ranks(mesh), DTP_MAX_MESH_DIMS - 1);
    }
    *out = (dtp_mesh){.n_dims = mesh->n_dims + 1};
    memcpy(out->names[0], NAME, sizeof NAME);
    out->sizes[0] = n_stages;
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        if (strcmp(mesh->names[m], NAME) == 0) {
            return DTP_FAIL(err, DTP_INVALID, "stages: the mesh may have no dim '%s'", NAME);
        }
        memcpy(out->names[m + 1], mesh->names[m], sizeof out->names[m + 1]);
        out->sizes[m + 1] = mesh->sizes[m];
    }
    return DTP_OK;
}

/* ---- nodes ---- */

static dtp_status place_forward(stage_work *w, dtp_err *err)
{
    const dtp_graph *g = w->g;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        const bool forward = node->phase == DTP_FORWARD, block = w->unit[n] >= 0;
        if (node->phase == DTP_BACKWARD && node->origin >= 0 && !node->repeats) {
            w->has_grad[node->origin] = true;
        }
        for (int32_t i = 0; i < node->n_in && forward; i++) {
            const dtp_node_id made = maker(g, node->in[i]);
            const int32_t unit = made >= 0 ? w->unit[made] : -1;
            if (block && unit >= 0 && w->chunk[unit] > w->chunk[w->unit[n]]) {
                return DTP_FAIL(err, DTP_UNSUPPORTED,
                                "stages: node '%s' on stage %d reads '%s' of stage %d", node->name,
                                w->chunk[w->unit[n]], g->tensors[node->in[i]].name, w->chunk[unit]);
            }
            w->unit[n] = !block && unit > w->unit[n] ? unit : w->unit[n];
        }
    }
    /* What lies on the first stage that reads it: behind its operands, so readers are known. */
    int32_t *first = w->s->part; /* by node: the first unit that reads it, plus 1; cleared again */
    for (dtp_node_id n = g->n_nodes - 1; n >= 0; n--) {
        const dtp_node *node = &g->nodes[n];
        const bool cast = (node->op->flags & DTP_OP_CAST) != 0 &&
                          g->tensors[node->in[0]].kind == DTP_TENSOR_PARAM;
        if (node->phase == DTP_FORWARD && w->unit[n] < 0 && w->has_grad[n] && !cast) {
            w->unit[n] = first[n] - 1;
        }
        first[n] = 0;
        for (int32_t i = 0; i < node->n_in && node->phase == DTP_FORWARD && w->unit[n] >= 0; i++) {
            const dtp_node_id made = maker(g, node->in[i]);
            if (made >= 0 && (first[made] == 0 || first[made] > w->unit[n] + 1)) {
                first[made] = w->unit[n] + 1;
            }
        }
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const bool placed = g->nodes[n].phase == DTP_FORWARD && w->unit[n] >= 0;
        w->s->on[n] = placed ? bit(w->chunk[w->unit[n]]) : 0;
    }
    return DTP_OK;
}

/* A gradient flows to earlier stages alone: a node is not behind one that makes its operand. */
static void place_backward(stage_work *w)
{
    const dtp_graph *g = w->g;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        uint64_t on = node->origin >= 0 ? w->s->on[node->origin] : 0;
        for (int32_t i = 0; i < node->n_in && node->phase == DTP_BACKWARD && !node->repeats; i++) {
            const dtp_node_id made = maker(g, node->in[i]);
            const bool flows = made >= 0 && g->nodes[made].phase == DTP_BACKWARD;
            if (flows && w->s->on[made] != 0 && (on == 0 || w->s->on[made] < on)) {
                on = w->s->on[made];
            }
        }
        w->s->on[n] = node->phase == DTP_BACKWARD ? on : w->s->on[n];
    }
}

/* Free nodes lie where they are read. */
static void place_free(stage_work *w, bool update)
{
    const dtp_graph *g = w->g;
    uint64_t *read = w->got; /* by tensor, so far; cleared again */
    for (dtp_node_id n = g->n_nodes - 1; n >= 0; n--) {
        const dtp_node *node = &g->nodes[n];
        uint64_t any = 0;
        for (int32_t i = 0; i < node->n_out; i++) {
            any |= read[node->out[i]];
            read[node->out[i]] = 0;
        }
        if ((node->phase == DTP_UPDATE) != update) {
            continue;
        }
        w->s->on[n] = w->s->on[n] != 0 ? w->s->on[n] : any != 0 ? any : 1;
        for (int32_t i = 0; i < node->n_in; i++) {
            read[node->in[i]] |= w->s->on[n];
        }
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        w->s->holds[t] |= g->tensors[t].kind == DTP_TENSOR_VALUE ? 0 : read[t];
        read[t] = 0;
    }
}

/* Updates follow the parameter that they read, or whose gradient they make, else the last of what
 * they read. */
static void place_update(stage_work *w)
{
    const dtp_graph *g = w->g;
    dtp_stages *s = w->s;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        uint64_t on = 0, home = 0;
        for (int32_t i = 0; i < node->n_in && node->phase == DTP_UPDATE; i++) {
            const dtp_node_id made = maker(g, node->in[i]);
            const bool one = made >= 0 && (g->nodes[made].n_in > 0);
            on = one && s->on[made] > on ? s->on[made] : on;
            if (g->tensors[node->in[i]].kind == DTP_TENSOR_PARAM && home == 0) {
                home = bit(first_stage(s->holds[node->in[i]]));
            }
        }
        for (int32_t k = 0; k < g->n_grads && node->phase == DTP_UPDATE && home == 0; k++) {
            home =
                maker(g, g->grads[k].grad) == n ? bit(first_stage(s->holds[g->grads[k].param])) : 0;
        }
        s->on[n] = node->phase != DTP_UPDATE ? s->on[n] : home != 0 ? home : on;
    }
}

/* ---- transfers ---- */

static dtp_status add_transfer(stage_work *w, const dtp_transfer *transfer, dtp_err *err)
{
    dtp_stages *s = w->s;
    DTP_TRY(DTP_ONE_MORE(w->arena, s->transfers, s->n_transfers, s->cap_transfers, err));
    s->transfers[s->n_transfers++] = *transfer;
    return DTP_OK;
}

/* An operand that the stage of its reader does not hold. */
static dtp_status receive(stage_work *w, dtp_node_id reader, dtp_tensor_id t, int32_t to,
                          dtp_err *err)
{
    const dtp_graph *g = w->g;
    dtp_stages *s = w->s;
    const dtp_node_id made = maker(g, t);
    const dtp_phase phase = made >= 0 ? g->nodes[made].phase : DTP_FORWARD;
    dtp_transfer transfer = {.tensor = t, .into = -1, .from = s->home[t], .to = to};
    const bool sum = made >= 0 && dtp_microbatch_part(g, t) != t;
    const bool update = g->nodes[reader].phase == DTP_UPDATE, up = to > transfer.from;
    if (update) {
        transfer.section =
            phase == DTP_UPDATE ? DTP_SECTION_UPDATE + s->part[made] : DTP_SECTION_BACKWARD;
        transfer.once = phase != DTP_UPDATE;
    } else {
        transfer.section = phase == DTP_FORWARD && up ? DTP_SECTION_FORWARD : DTP_SECTION_BACKWARD;
    }
    const bool may =
        update ? phase == DTP_UPDATE || sum : made >= 0 && (phase == DTP_FORWARD || !up);
    if (!may || sum != (update && phase != DTP_UPDATE)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "stages: node '%s' on stage %d reads '%s' of stage %d",
                        g->nodes[reader].name, to, g->tensors[t].name, transfer.from);
    }
    w->got[t] |= bit(to);
    return add_transfer(w, &transfer, err);
}

static dtp_status find_transfers(stage_work *w, dtp_err *err)
{
    const dtp_graph *g = w->g;
    dtp_stages *s = w->s;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        for (int32_t i = 0; i < node->n_in && node->phase == DTP_UPDATE; i++) {
            const dtp_node_id made = maker(g, node->in[i]);
            const bool here = made < 0 || (s->on[n] & ~s->on[made]) == 0;
            const bool later = made >= 0 && g->nodes[made].phase == DTP_UPDATE;
            const int32_t part = (later ? s->part[made] : 0) + (here ? 0 : 1);
            s->part[n] = part > s->part[n] ? part : s->part[n]; /* behind all that it receives */
        }
        s->n_parts = s->part[n] >= s->n_parts ? s->part[n] + 1 : s->n_parts;
        for (int32_t i = 0; i < node->n_in; i++) {
            const dtp_tensor_id t = node->in[i];
            uint64_t lacks = s->on[n] & ~(s->holds[t] | w->got[t]);
            for (int32_t to = 0; lacks >> to != 0; to++) {
                DTP_TRY(dtp_in_chunk(lacks, to) ? receive(w, n, t, to, err) : DTP_OK);
                lacks &= ~bit(to);
            }
        }
    }
    for (int32_t k = 0; k < g->n_updates; k++) { /* copies of parameters */
        const dtp_update *u = &g->updates[k];
        const uint64_t copies = s->holds[u->target] & ~bit(s->home[u->target]);
        for (int32_t to = 0; to < s->n_chunks; to++) {
            const dtp_transfer transfer = {.tensor = u->value,
                                           .into = u->target,
                                           .from = s->home[u->target],
                                           .to = to,
                                           .section = DTP_SECTION_UPDATE + s->n_parts - 1};
            DTP_TRY(dtp_in_chunk(copies, to) ? add_transfer(w, &transfer, err) : DTP_OK);
        }
    }
    return DTP_OK;
}

/* ---- entry ---- */

dtp_status dtp_stages_find(const dtp_graph *g, const dtp_stage_choice *choice, dtp_arena *arena,
                           dtp_stages *out, dtp_err *err)
{
    stage_work w = {.g = g, .s = out, .arena = arena};
    *out = (dtp_stages){.n = choice->n,
                        .n_chunks = dtp_stage_choice_chunks(choice),
                        .slots = choice->slots,
                        .n_parts = 1};
    if (g->loss < 0) {
        return DTP_FAIL(err, DTP_INVALID, "stages: '%s' is not trained", g->name);
    }
    DTP_TRY(dtp_stage_units(g, choice, arena, &w.unit, &w.chunk, err));
    DTP_TRY(DTP_NEW(arena, out->on, g->n_nodes, err));
    DTP_TRY(DTP_NEW(arena, out->part, g->n_nodes, err));
    DTP_TRY(DTP_NEW(arena, out->holds, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, out->home, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, w.has_grad, g->n_nodes, err));
    DTP_TRY(DTP_NEW(arena, w.got, g->n_tensors, err));
    DTP_TRY(place_forward(&w, err));
    place_backward(&w);
    place_free(&w, false);
    place_update(&w);
    place_free(&w, true);
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_node_id made = maker(g, t);
        out->holds[t] = made >= 0 ? out->on[made] : out->holds[t] != 0 ? out->holds[t] : 1;
        out->home[t] = first_stage(out->holds[t]);
    }
    return g->microbatches > 1 ? find_transfers(&w, err) : DTP_OK;
}

/* ---- gradients of several stages ---- */

/* The sum that a gradient is, on the way from its terms: casts and additions that nothing else
 * reads. */
typedef struct term_work {
    const dtp_graph *g;
    dtp_stages stages;
    int32_t *readers; /* by tensor */
    bool *dropped;    /* by node: of a sum that is split */
    dtp_graph_copy copy;
    int32_t n_split;
    int32_t *split; /* indices of g->grads */
} term_work;

/* Node that may be taken apart, of the gradient or of a part of it that one node reads; -1 =
 * none. */
static dtp_node_id linear(const term_work *w, dtp_tensor_id t, bool root)
{
    const dtp_node_id n = maker(w->g, t);
    const dtp_node *node = n >= 0 ? &w->g->nodes[n] : NULL;
    const bool may = node != NULL && node->phase == DTP_BACKWARD && !node->repeats &&
                     (root || w->readers[t] == 1) &&
                     (node->op->flags & (DTP_OP_CAST | DTP_OP_SUM)) != 0;
    return may ? n : -1;
}

/* Stages of the terms of t; marks the nodes of the sum when `mark`. */
static uint64_t stages_of_terms(const term_work *w, dtp_tensor_id t, bool root, bool mark)
{
    const dtp_node_id n = linear(w, t, root);
    uint64_t all = 0;
    if (n < 0) {
        return maker(w->g, t) >= 0 ? w->stages.on[maker(w->g, t)] : 0;
    }
    w->dropped[n] = w->dropped[n] || mark;
    for (int32_t i = 0; i < w->g->nodes[n].n_in; i++) {
        all |= stages_of_terms(w, w->g->nodes[n].in[i], false, mark);
    }
    return all;
}

/* The part of the sum t that stage s has, in the copy; -1: none. */
static dtp_status add_terms(term_work *w, dtp_tensor_id t, bool root, int32_t s, dtp_tensor_id *out,
                            dtp_err *err)
{
    const dtp_node_id n = linear(w, t, root);
    dtp_tensor_id in[DTP_MAX_OP_IN], terms[DTP_MAX_OP_IN];
    int32_t n_terms = 0;
    *out = -1;
    if (n < 0) {
        const dtp_node_id made = maker(w->g, t);
        *out = made >= 0 && dtp_in_chunk(w->stages.on[made], s) ? w->copy.tensor[t] : -1;
        return DTP_OK;
    }
    const bool cast = (w->g->nodes[n].op->flags & DTP_OP_CAST) != 0;
    for (int32_t i = 0; i < w->g->nodes[n].n_in; i++) {
        DTP_TRY(add_terms(w, w->g->nodes[n].in[i], false, s, &terms[n_terms], err));
        n_terms += terms[n_terms] >= 0 ? 1 : 0;
    }
    if (n_terms < 2 && !(cast && n_terms == 1)) {
        *out = n_terms == 1 ? terms[0] : -1;
        return DTP_OK;
    }
    dtp_node_spec spec = dtp_graph_copy_spec(&w->copy, n, in);
    spec.name = dtp_arena_printf(w->copy.to->arena, "stage%d.%s", s, w->g->nodes[n].name);
    spec.in = terms;
    spec.n_in = n_terms;
    DTP_TRY(DTP_MEMORY(err, spec.name));
    return dtp_graph_add_node(w->copy.to, &spec, out, err);
}

/* The gradient as a sum made by the update, the term of the last stage first. */
static dtp_status add_sum(term_work *w, const dtp_param_grad *pg, dtp_err *err)
{
    const uint64_t stages = stages_of_terms(w, pg->grad, true, false);
    const dtp_graph_tensor *grad = &w->g->tensors[pg->grad];
    dtp_tensor_id in[2] = {-1, -1};
    for (int32_t s = DTP_MAX_STAGES - 1; s >= 0; s--) {
        if (!dtp_in_chunk(stages, s)) {
            continue;
        }
        DTP_TRY(add_terms(w, pg->grad, true, s, &in[1], err));
        dtp_node_spec spec = dtp_node_spec_init(grad->name, "add");
        spec.n_in = 2;
        spec.in = in;
        spec.phase = DTP_UPDATE;
        spec.name = (stages & (bit(s) - 1)) == 0 /* the last one */
                        ? grad->name
                        : dtp_arena_printf(w->copy.to->arena, "stage%d.sum.%s", s, grad->name);
        DTP_TRY(DTP_MEMORY(err, spec.name));
        if (in[0] < 0) {
            in[0] = in[1];
        } else {
            DTP_TRY(dtp_graph_add_node(w->copy.to, &spec, &in[0], err));
        }
    }
    w->copy.tensor[pg->grad] = in[0];
    return DTP_OK;
}

static dtp_status copy_with_terms(term_work *w, dtp_err *err)
{
    const dtp_graph *g = w->g;
    bool summed = false;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        dtp_tensor_id in[DTP_MAX_OP_IN];
        if (tensor->kind != DTP_TENSOR_VALUE) {
            DTP_TRY(dtp_graph_copy_source(&w->copy, t, NULL, err));
            continue;
        }
        const bool update = g->nodes[tensor->producer].phase == DTP_UPDATE;
        for (int32_t k = 0; k < w->n_split && update && !summed; k++) {
            DTP_TRY(add_sum(w, &g->grads[w->split[k]], err));
        }
        summed = summed || update;
        if (tensor->out_index == 0 && !w->dropped[tensor->producer]) {
            const dtp_node_spec spec = dtp_graph_copy_spec(&w->copy, tensor->producer, in);
            DTP_TRY(dtp_graph_copy_node(&w->copy, tensor->producer, &spec, err));
        }
    }
    return dtp_graph_copy_results(&w->copy, err);
}

static dtp_status split_gradients(term_work *w, const dtp_stage_choice *choice, dtp_arena *scratch,
                                  dtp_graph **out, dtp_err *err)
{
    const dtp_graph *g = w->g;
    DTP_TRY(dtp_stages_find(g, choice, scratch, &w->stages, err));
    DTP_TRY(DTP_NEW(scratch, w->readers, g->n_tensors, err));
    DTP_TRY(DTP_NEW(scratch, w->dropped, g->n_nodes, err));
    DTP_TRY(DTP_NEW(scratch, w->split, g->n_grads, err));
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in; i++) { /* a backward reader needs it whole */
            w->readers[g->nodes[n].in[i]] += g->nodes[n].phase == DTP_UPDATE ? 0 : 1;
        }
    }
    for (int32_t k = 0; k < g->n_grads; k++) {
        const dtp_tensor_id t = g->grads[k].grad;
        const uint64_t stages = stages_of_terms(w, t, w->readers[t] == 0, false);
        if ((stages & (stages - 1)) != 0) {
            (void)stages_of_terms(w, t, true, true);
            w->split[w->n_split++] = k;
        }
    }
    if (w->n_split == 0) {
        return DTP_OK;
    }
    DTP_TRY(dtp_graph_copy_begin(g, &w->copy, err));
    return dtp_graph_deliver(w->copy.to, copy_with_terms(w, err), out);
}

dtp_status dtp_graph_with_stage_terms(const dtp_graph *g, const dtp_stage_choice *choice,
                                      dtp_graph **out, dtp_err *err)
{
    term_work w = {.g = g};
    dtp_arena *scratch = dtp_arena_create();
    *out = NULL;
    const dtp_status s = split_gradients(&w, choice, scratch, out, err);
    dtp_arena_destroy(scratch);
    return s;
}
