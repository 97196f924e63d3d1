/* Propagation of layouts through a graph (spmd/propagate/propagate.h). */
#include "spmd/propagate/propagate.h"

#include <string.h>

#include "core/transform/microbatch.h"
#include "spmd/propagate/propagate_internal.h"
#include "core/plan/sharding_microbatch.h"

bool dtp_pin_agrees(const dtp_pin *pin, const dtp_layout *layout)
{
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const bool spoken_of = pin->dims == 0 || (pin->dims >> m & 1U) != 0;
        if (spoken_of && memcmp(&pin->layout.placement[m], &layout->placement[m],
                                sizeof pin->layout.placement[m]) != 0) {
            return false;
        }
    }
    return true;
}

/* Copies of a tensor in the layouts it has been brought to so far, its own among them; the lowering
 * finds and uses the same ones. */
typedef struct versions {
    int32_t n, capacity;
    int32_t old; /* made before this phase: a recomputation does not read them */
    dtp_layout *layouts;
} versions;

/* What is decided about a tensor beforehand. */
typedef struct given {
    const dtp_layout *pinned;      /* its layout, NULL = free */
    dtp_mesh_set pinned_dims;      /* ... on these mesh dims, 0 = on all */
    const dtp_layout *replacement; /* value of an update: the layout of the target; PyTorch: that of
                                      the operand whose gradient it is a share of */
} given;

typedef struct propagation {
    const dtp_graph *g;
    const dtp_mesh *mesh;
    const dtp_propagate_options *o;
    dtp_sharding *out;
    dtp_arena *scratch;
    versions *versions; /* by tensor */
    given *given;       /* by tensor */
    bool *gradient;     /* by tensor: gradient of a parameter */
    int32_t *first_pin; /* by tensor: chains of pins in their order, -1 = end */
    int32_t *next_pin;
    dtp_inner_pricer pricer;
    dtp_known_decisions *known;
} propagation;

/* ---- what is given ---- */

static bool reads(const dtp_node *node, dtp_tensor_id t)
{
    for (int32_t i = 0; i < node->n_in; i++) {
        if (node->in[i] == t) {
            return true;
        }
    }
    return false;
}

static dtp_status take_pins(propagation *w, dtp_err *err)
{
    for (int32_t t = 0; t < w->g->n_tensors; t++) {
        w->first_pin[t] = -1;
    }
    for (int32_t i = 0; i < w->o->n_pins; i++) {
        const dtp_pin *pin = &w->o->pins[i];
        if (pin->tensor < 0 || pin->tensor >= w->g->n_tensors || pin->node >= w->g->n_nodes) {
            return DTP_FAIL(err, DTP_INVALID, "pin %d: there is no tensor %d or no node %d", i,
                            pin->tensor, pin->node);
        }
        const dtp_graph_tensor *t = &w->g->tensors[pin->tensor];
        dtp_status s = dtp_layout_check(&pin->layout, w->mesh, &t->type, err);
        if (s == DTP_OK && pin->node >= 0 && !reads(&w->g->nodes[pin->node], pin->tensor)) {
            s = DTP_FAIL(err, DTP_INVALID, "node '%s' does not read it",
                         w->g->nodes[pin->node].name);
        }
        DTP_TRY(dtp_err_prefixed(s, err, "pin %d of tensor '%s'", i, t->name));
    }
    for (int32_t i = w->o->n_pins - 1; i >= 0; i--) {
        w->next_pin[i] = w->first_pin[w->o->pins[i].tensor];
        w->first_pin[w->o->pins[i].tensor] = i;
    }
    for (int32_t i = 0; i < w->o->n_pins; i++) {
        const dtp_pin *pin = &w->o->pins[i];
        if (pin->node >= 0) {
            continue;
        }
        const dtp_layout *before = w->given[pin->tensor].pinned;
        if (before != NULL && (!dtp_layout_equal(before, &pin->layout) ||
                               w->given[pin->tensor].pinned_dims != pin->dims)) {
            return DTP_FAIL(err, DTP_INVALID, "tensor '%s' is pinned to two layouts",
                            w->g->tensors[pin->tensor].name);
        }
        w->given[pin->tensor].pinned = &pin->layout;
        w->given[pin->tensor].pinned_dims = pin->dims;
    }
    return DTP_OK;
}

static dtp_status add_version(propagation *w, dtp_tensor_id t, const dtp_layout *layout,
                              dtp_err *err)
{
    versions *v = &w->versions[t];
    DTP_TRY(dtp_arena_grow(w->scratch, &v->layouts, v->n, v->n + 1, &v->capacity,
                           sizeof *v->layouts, err));
    v->layouts[v->n++] = *layout;
    return DTP_OK;
}

static dtp_status place_sources(propagation *w, dtp_err *err)
{
    for (int32_t t = 0; t < w->g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &w->g->tensors[t];
        w->out->layouts[t] = w->given[t].pinned != NULL
                                 ? *w->given[t].pinned
                                 : dtp_layout_replicated(tensor->type.rank, w->mesh->n_dims);
    }
    for (int32_t n = 0; n < w->g->n_nodes; n++) {
        const dtp_node *node = &w->g->nodes[n];
        for (int32_t i = 2; i < node->n_in && (node->op->flags & DTP_OP_UPDATE) != 0; i++) {
            const dtp_tensor_id t = node->in[i];
            const dtp_layout *param = &w->out->layouts[node->in[0]];
            if (w->g->tensors[t].kind == DTP_TENSOR_STATE) {
                w->out->layouts[t] = w->given[t].pinned == NULL
                                         ? *param
                                         : dtp_propagate__complete(w->given[t].pinned,
                                                                   w->given[t].pinned_dims, param);
            }
        }
    }
    for (int32_t t = 0; t < w->g->n_tensors; t++) {
        if (w->g->tensors[t].kind != DTP_TENSOR_VALUE) {
            DTP_TRY(add_version(w, t, &w->out->layouts[t], err));
        }
    }
    return DTP_OK;
}

/* ---- nodes ---- */

static const dtp_pin *node_pin(const propagation *w, dtp_node_id node, dtp_tensor_id t)
{
    int32_t i = w->o->pins != NULL ? w->first_pin[t] : -1;
    while (i >= 0 && w->o->pins[i].node != node) {
        i = w->next_pin[i];
    }
    return i >= 0 ? &w->o->pins[i] : NULL;
}

/* PyTorch: what a node was made to read elsewhere than where it was (a pin) goes back in the
 * backward pass. Notes for the nodes that differentiate it that their share of the gradient of such
 * an operand ends in the operand's own layout. They read the other operands of that node. */
static void return_gradient(propagation *w, const dtp_node *node)
{
    if (!w->o->torch || node->phase != DTP_BACKWARD || node->origin < 0) {
        return;
    }
    const dtp_node *forward = &w->g->nodes[node->origin];
    bool read[DTP_MAX_OP_IN] = {false}; /* by operand of the forward node, also computed again */
    for (int32_t k = 0; k < node->n_in; k++) {
        const dtp_tensor_id t = dtp_graph_repeated(w->g, node->in[k]);
        for (int32_t i = 0; i < forward->n_in; i++) {
            read[i] = read[i] || forward->in[i] == t;
        }
    }
    for (int32_t i = 0; i < forward->n_in; i++) {
        const dtp_tensor_id x = forward->in[i], dx = node->out[0];
        const bool moved = w->g->tensors[x].kind != DTP_TENSOR_PARAM && !read[i] &&
                           node_pin(w, node->origin, x) != NULL;
        if (moved && dtp_ttype_equal(&w->g->tensors[x].type, &w->g->tensors[dx].type) &&
            !dtp_layout_has_partial(&w->out->layouts[x])) {
            w->given[dx].replacement = &w->out->layouts[x];
        }
    }
}

/* The first of a tensor's versions that a node may read. */
static int32_t first_version(const propagation *w, const dtp_node *node, dtp_tensor_id t)
{
    return node->repeats ? w->versions[t].old : 0;
}

/* Notes the copies that a redistribution leaves behind. */
static dtp_status note_copies(propagation *w, dtp_tensor_id t, const dtp_layout *from,
                              const dtp_layout *to, int32_t first, dtp_err *err)
{
    const versions *v = &w->versions[t];
    dtp_steps steps;
    if (dtp_layout_equal(from, to)) {
        return DTP_OK;
    }
    for (int32_t i = first; i < v->n; i++) {
        if (dtp_layout_equal(&v->layouts[i], to)) {
            return DTP_OK;
        }
    }
    DTP_TRY(dtp_redistribute_by(w->o->redistributor, w->mesh, &w->g->tensors[t].type, from, to,
                                &steps, err));
    for (int32_t i = 0; i < steps.n; i++) {
        DTP_TRY(add_version(w, t, &steps.steps[i].after, err));
    }
    return DTP_OK;
}

static dtp_status note_result(propagation *w, const dtp_node *node, const dtp_node_layouts *l,
                              dtp_err *err)
{
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_tensor_id t = node->in[i];
        DTP_TRY(note_copies(w, t, &w->out->layouts[t], &l->in[i], first_version(w, node, t), err));
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        const dtp_tensor_id t = node->out[i];
        DTP_TRY(add_version(w, t, &l->out[i], err));
        w->out->layouts[t] =
            w->given[t].pinned != NULL
                ? dtp_propagate__complete(w->given[t].pinned, w->given[t].pinned_dims, &l->out[i])
            : w->given[t].replacement != NULL ? *w->given[t].replacement
                                              : l->out[i];
        DTP_TRY(note_copies(w, t, &l->out[i], &w->out->layouts[t], 0, err));
    }
    return DTP_OK;
}

/* Notes in which layout an update reads a gradient that no node of another phase reads: its
 * producer is to bring it there. */
static void note_gradient(propagation *w, dtp_node_id id, const dtp_node_layouts *l)
{
    const dtp_node *node = &w->g->nodes[id];
    for (int32_t k = 0; k < node->n_in; k++) {
        const dtp_tensor_id t = node->in[k];
        const dtp_node_id p = w->g->tensors[t].producer;
        bool alone = w->gradient[t] && w->given[t].pinned == NULL && p >= 0 &&
                     !dtp_is_accumulate(w->g, &w->g->nodes[p]);
        for (int32_t n = p + 1; n < w->g->n_nodes && alone; n++) {
            alone = w->g->nodes[n].phase == DTP_UPDATE || !reads(&w->g->nodes[n], t);
        }
        if (alone) {
            w->out->layouts[t] = l->in[k];
        }
    }
}

/* A sum over microbatches: accumulator and result lie as what is added, partial sums included, or
 * as the result is pinned. */
static dtp_status decide_sum(propagation *w, dtp_node_id id, dtp_err *err)
{
    const dtp_node *node = &w->g->nodes[id];
    const given *result = &w->given[node->out[0]];
    dtp_call_types types;
    const dtp_op_call call = dtp_node_call(w->g, node, &types);
    dtp_layout *accumulator = &w->out->layouts[node->in[0]];
    dtp_node_layouts layouts;
    *accumulator = w->out->layouts[node->in[1]];
    if (result->pinned != NULL) {
        *accumulator = dtp_propagate__complete(result->pinned, result->pinned_dims, accumulator);
    }
    dtp_accumulate_strategy(w->g, node, accumulator, &w->out->strategies[id]);
    const dtp_layout in[2] = {*accumulator, *accumulator};
    DTP_TRY(dtp_node_layouts_find(w->mesh, &call, NULL, &w->out->strategies[id], in, accumulator,
                                  &layouts, err));
    w->versions[node->in[0]].n = 0;
    DTP_TRY(add_version(w, node->in[0], accumulator, err));
    return note_result(w, node, &layouts, err);
}

/* The parts of a tensor that were cut out of it for its readers are cut out of what repeats it as
 * well: its readers in the backward pass find the versions that they would find without. */
static dtp_status repeat_parts(propagation *w, dtp_tensor_id t, dtp_tensor_id of, dtp_err *err)
{
    for (int32_t i = 0; i < w->versions[of].old; i++) {
        const dtp_layout *version = &w->versions[of].layouts[i];
        dtp_redistribution_price price;
        DTP_TRY(dtp_propagate__price(w->o, w->mesh, &w->g->tensors[t].type, &w->out->layouts[t],
                                     version, &price, err));
        if (price.possible && price.collectives == 0) {
            DTP_TRY(note_copies(w, t, &w->out->layouts[t], version, 0, err));
        }
    }
    return DTP_OK;
}

/* A recomputation runs as the node did that it repeats, and leaves its results where that did. */
static dtp_status decide_again(propagation *w, dtp_node_id id, dtp_err *err)
{
    const dtp_node *node = &w->g->nodes[id], *origin = &w->g->nodes[node->origin];
    dtp_call_types types;
    const dtp_op_call call = dtp_node_call(w->g, node, &types);
    dtp_layout in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
    dtp_node_layouts layouts;
    for (int32_t i = 0; i < node->n_in; i++) {
        in[i] = w->out->layouts[node->in[i]];
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        out[i] = w->out->layouts[origin->out[i]];
        w->given[node->out[i]] = (given){.replacement = &w->out->layouts[origin->out[i]]};
    }
    w->out->strategies[id] = w->out->strategies[node->origin];
    DTP_TRY(dtp_node_layouts_find(w->mesh, &call, NULL, &w->out->strategies[id], in, out, &layouts,
                                  err));
    DTP_TRY(note_result(w, node, &layouts, err));
    for (int32_t i = 0; i < node->n_out; i++) {
        DTP_TRY(repeat_parts(w, node->out[i], origin->out[i], err));
    }
    return DTP_OK;
}

static dtp_status decide(propagation *w, dtp_node_id id, dtp_err *err)
{
    const dtp_node *node = &w->g->nodes[id];
    if (node->repeats) {
        return decide_again(w, id, err);
    }
    if (dtp_is_accumulate(w->g, node)) {
        return decide_sum(w, id, err);
    }
    dtp_call_types types;
    dtp_op_call call = dtp_node_call(w->g, node, &types);
    dtp_operand operands[DTP_MAX_OP_IN];
    const dtp_layout *wanted[DTP_MAX_OP_OUT];
    dtp_mesh_set wanted_dims[DTP_MAX_OP_OUT];
    dtp_node_layouts layouts;
    return_gradient(w, node);
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_tensor_id t = node->in[i];
        const dtp_pin *pin = node_pin(w, id, t);
        const int32_t from = first_version(w, node, t);
        operands[i] = (dtp_operand){.at = &w->out->layouts[t],
                                    .n_versions = w->o->torch ? 0 : w->versions[t].n - from,
                                    .versions = w->versions[t].layouts + from,
                                    .pinned = pin != NULL ? &pin->layout : NULL,
                                    .pinned_dims = pin != NULL ? pin->dims : 0,
                                    .first = i};
        for (int32_t j = i - 1; j >= 0; j--) {
            operands[i].first = node->in[j] == t ? j : operands[i].first;
        }
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        const dtp_tensor_id t = node->out[i];
        wanted[i] = w->given[t].pinned != NULL ? w->given[t].pinned : w->given[t].replacement;
        wanted[i] = w->gradient[t] ? NULL : wanted[i];
        wanted_dims[i] = w->given[t].pinned_dims;
    }
    w->pricer.node = id;
    const dtp_decision d = {.mesh = w->mesh,
                            .call = &call,
                            .options = w->o,
                            .operands = operands,
                            .wanted = wanted,
                            .wanted_dims = wanted_dims,
                            .pricer = &w->pricer};
    DTP_TRY(dtp_propagate__decide(w->known, &d, &w->out->strategies[id], &layouts, err));
    DTP_TRY(note_result(w, node, &layouts, err));
    if ((node->op->flags & DTP_OP_UPDATE) != 0) {
        note_gradient(w, id, &layouts);
    }
    return DTP_OK;
}

/* Copies of parameters and states are not kept from one phase to the next; their own layout is the
 * first. */
static void new_phase(propagation *w)
{
    for (int32_t t = 0; t < w->g->n_tensors; t++) {
        const dtp_tensor_kind kind = w->g->tensors[t].kind;
        if (kind == DTP_TENSOR_PARAM || kind == DTP_TENSOR_STATE) {
            w->versions[t].n = 1;
        }
        w->versions[t].old = w->versions[t].n;
    }
}

/* Updates come before the other nodes of their phase, numbers of all gradients that they read:
 * those read a gradient where the update of its parameter does. Until a number is decided, it is
 * copied everywhere. */
static dtp_status decide_nodes(propagation *w, dtp_err *err)
{
    for (int32_t n = 0; n < w->g->n_nodes; n++) {
        if (n > 0 && w->g->nodes[n].phase != w->g->nodes[n - 1].phase) {
            new_phase(w);
        }
        if (w->g->nodes[n].phase != DTP_UPDATE) {
            DTP_TRY(dtp_err_prefixed(decide(w, n, err), err, "node '%s'", w->g->nodes[n].name));
        }
    }
    for (int32_t pass = 0; pass < 2; pass++) {
        for (int32_t n = 0; n < w->g->n_nodes; n++) {
            const dtp_node *node = &w->g->nodes[n];
            const bool update = (node->op->flags & DTP_OP_UPDATE) != 0;
            if (node->phase == DTP_UPDATE && update == (pass == 0)) {
                DTP_TRY(dtp_err_prefixed(decide(w, n, err), err, "node '%s'", node->name));
            }
        }
    }
    return DTP_OK;
}

static dtp_status run(propagation *w, dtp_arena *arena, dtp_err *err)
{
    const int32_t n_tensors = w->g->n_tensors, n_nodes = w->g->n_nodes;
    *w->out = (dtp_sharding){.mesh = *w->mesh, .n_tensors = n_tensors, .n_nodes = n_nodes};
    DTP_TRY(DTP_NEW(arena, w->out->layouts, n_tensors, err));
    DTP_TRY(DTP_NEW(arena, w->out->strategies, n_nodes, err));
    DTP_TRY(DTP_NEW(w->scratch, w->versions, n_tensors, err));
    DTP_TRY(DTP_NEW(w->scratch, w->given, n_tensors, err));
    DTP_TRY(DTP_NEW(w->scratch, w->gradient, n_tensors, err));
    DTP_TRY(DTP_NEW(w->scratch, w->first_pin, n_tensors, err));
    DTP_TRY(DTP_NEW(w->scratch, w->next_pin, w->o->n_pins, err));
    DTP_TRY(dtp_propagate__known_create(w->scratch, &w->known, err));
    for (int32_t i = 0; i < w->g->n_grads; i++) {
        w->gradient[w->g->grads[i].grad] = true;
    }
    DTP_TRY(take_pins(w, err));
    DTP_TRY(place_sources(w, err));
    for (int32_t i = 0; i < w->g->n_updates; i++) {
        const dtp_update *u = &w->g->updates[i];
        const dtp_layout *target = &w->out->layouts[u->target];
        if (w->given[u->value].pinned != NULL && w->given[u->value].pinned_dims == 0 &&
            !dtp_layout_equal(w->given[u->value].pinned, target)) {
            return DTP_FAIL(err, DTP_INVALID, "'%s' replaces '%s' but is pinned to another layout",
                            w->g->tensors[u->value].name, w->g->tensors[u->target].name);
        }
        w->given[u->value].replacement = target;
    }
    return decide_nodes(w, err);
}

dtp_status dtp_propagate(const dtp_graph *g, const dtp_mesh *mesh,
                         const dtp_propagate_options *options, dtp_arena *arena, dtp_sharding *out,
                         dtp_err *err)
{
    if (options->redistributor == NULL || options->price == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "a propagation without prices of redistributions");
    }
    propagation w = {.g = g,
                     .mesh = mesh,
                     .o = options,
                     .out = out,
                     .scratch = dtp_arena_create(),
                     .pricer = {.graph = g}};
    const dtp_status s = run(&w, arena, err);
    dtp_program_destroy(w.pricer.program);
    dtp_arena_destroy(w.scratch);
    return s;
}
