/* What a plan says to another framework, under the framework's names and axes. */
#include "interop/export/placements.h"

#include <string.h>

#include "core/plan/sharding_microbatch.h"
#include "core/transform/microbatch.h"

/* A collection under construction. */
typedef struct collector {
    dtp_placements *p;
    const dtp_graph *g;
    const dtp_sharding *s;
    dtp_hash_table by_name; /* parameters of the framework */
    const char **theirs;    /* by tensor: name of a parameter */
} collector;

static dtp_status lose(const collector *c, dtp_lost_kind kind, const char *name, dtp_err *err)
{
    return dtp_lost_add(&c->p->lost, c->p->arena, kind, name, err);
}

/* ---- over the axes of the framework ---- */

/* Where a dim of ours lies: the axis of theirs, and its position among the merged dims. */
typedef struct spot {
    int32_t axis, depth;
    bool inner; /* a dim of more than one element is outside of it */
} spot;

static spot find_spot(const dtp_graph *g, const dtp_name_entry *e, const dtp_ttype *type,
                      dtp_dim_id d)
{
    spot at = {.axis = dtp_ttype_find(type, d)};
    for (int32_t a = 0; e != NULL && a < e->n_axes; a++) {
        bool inner = false;
        for (int32_t k = 0; k < e->axes[a].n; k++) {
            const dtp_dim_id here = dtp_dims_find(&g->dims, e->axes[a].dims[k]);
            if (here == d) {
                return (spot){.axis = a, .depth = k, .inner = inner};
            }
            inner = inner || dtp_ttype_size(type, here) > 1;
        }
    }
    return at;
}

/* The type over their axes, without the other parts of a fused one. */
static dtp_ttype their_type(const dtp_graph *g, const dtp_name_entry *e, const dtp_ttype *type)
{
    dtp_ttype out = *type;
    for (int32_t a = 0; e != NULL && a < e->n_axes; a++) {
        out.dims[a] = (dtp_tdim){dtp_dims_find(&g->dims, e->axes[a].dims[0]), 1};
        for (int32_t k = 0; k < e->axes[a].n; k++) {
            out.dims[a].size *= dtp_ttype_size(type, dtp_dims_find(&g->dims, e->axes[a].dims[k]));
        }
    }
    out.rank = e != NULL ? e->n_axes : type->rank;
    return out;
}

/* A layout of ours over their axes: splits of the dims merged in one axis become splits of it, the
 * outer dims first. *inner: one of them is of an inner dim. */
static dtp_layout their_layout(const dtp_graph *g, const dtp_name_entry *e, const dtp_ttype *type,
                               const dtp_layout *layout, bool *inner)
{
    dtp_layout out = dtp_layout_replicated(e != NULL ? e->n_axes : type->rank, layout->n_mesh);
    int32_t depth[DTP_MAX_MESH_DIMS] = {0};
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *p = &layout->placement[m];
        out.placement[m] = *p;
        if (p->kind == DTP_SHARD) {
            const spot at = find_spot(g, e, type, type->dims[p->axis].id);
            out.placement[m].axis = (int8_t)at.axis;
            depth[m] = at.depth * DTP_MAX_MESH_DIMS + p->order;
            *inner = *inner || at.inner;
        }
    }
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        int32_t before = 0;
        const dtp_placement *p = &out.placement[m];
        for (int32_t k = 0; k < layout->n_mesh && p->kind == DTP_SHARD; k++) {
            const dtp_placement *q = &out.placement[k];
            before += q->kind == DTP_SHARD && q->axis == p->axis && depth[k] < depth[m] ? 1 : 0;
        }
        out.placement[m].order = (int8_t)before;
    }
    return out;
}

bool dtp_placements_in_order(const dtp_layout *layout, const int32_t *rank)
{
    bool in_order = true;
    for (int32_t a = 0; a < layout->rank; a++) {
        int32_t dims[DTP_MAX_MESH_DIMS], last = -1;
        const int32_t n = dtp_layout_axis_splits(layout, a, dims);
        for (int32_t i = 0; i < n; i++) {
            const int32_t r = rank != NULL ? rank[dims[i]] : dims[i];
            in_order = in_order && (r < 0 || r > last);
            last = r < 0 ? last : r;
        }
    }
    return in_order;
}

static bool splits_axis(const dtp_layout *layout, int32_t axis)
{
    int32_t splits[DTP_MAX_MESH_DIMS];
    return axis >= 0 && dtp_layout_axis_splits(layout, axis, splits) > 0;
}

uint32_t dtp_placements_loses(const dtp_placements *p, dtp_tensor_id t, const dtp_layout *layout,
                              bool kept)
{
    const dtp_ttype *type = &p->graph->tensors[t].type;
    const dtp_name_entry *entry = p->entry[t];
    bool inner = false;
    const dtp_layout theirs = their_layout(p->graph, entry, type, layout, &inner);
    const bool fused = kept && entry != NULL && splits_axis(&theirs, entry->fused_axis);
    return (inner ? 1U << DTP_LOST_INNER_FACTOR : 0) | (fused ? 1U << DTP_LOST_FUSED : 0) |
           (dtp_placements_in_order(&theirs, NULL) ? 0 : 1U << DTP_LOST_MESH_ORDER) |
           (dtp_layout_is_even(layout, &p->plan->mesh, type) ? 0 : 1U << DTP_LOST_UNEVEN);
}

/* Fills in how a tensor of ours lies, and what is lost of it under `name`. */
static dtp_status place(collector *c, dtp_tensor_id t, dtp_placed *out, dtp_err *err)
{
    const dtp_ttype *type = &c->g->tensors[t].type;
    const dtp_layout *kept = &c->s->layouts[t], *read = &c->p->uses.read[t];
    const uint32_t lost =
        dtp_placements_loses(c->p, t, kept, true) | dtp_placements_loses(c->p, t, read, false);
    bool inner = false; /* noted above */
    out->type = their_type(c->g, out->entry, type);
    out->kept = their_layout(c->g, out->entry, type, kept, &inner);
    out->read = their_layout(c->g, out->entry, type, read, &inner);
    for (int32_t k = 0; k < DTP_N_LOST; k++) {
        DTP_TRY((lost >> k & 1U) != 0 ? lose(c, (dtp_lost_kind)k, out->name, err) : DTP_OK);
    }
    return c->p->uses.several[t] ? lose(c, DTP_LOST_READERS, out->name, err) : DTP_OK;
}

static dtp_status set_tensor(collector *c, dtp_tensor_id t, dtp_placed *out, dtp_err *err)
{
    dtp_tensor_id *of;
    DTP_TRY(DTP_NEW(c->p->arena, of, 1, err));
    *of = t;
    out->of = of;
    out->n_of = 1;
    out->reader = c->p->uses.reader[t];
    out->operand = c->p->uses.operand[t];
    return DTP_OK;
}

/* ---- parameters ---- */

/* The module of a name of theirs, NULL: it has none. */
static dtp_status module_of(const collector *c, const char *name, const char **out, dtp_err *err)
{
    const size_t n = dtp_names_module(name);
    *out = n == 0 ? NULL : dtp_arena_printf(c->p->arena, "%.*s", (int)n, name);
    return n == 0 ? DTP_OK : DTP_MEMORY(err, *out);
}

static bool is_frozen(const collector *c, dtp_tensor_id t)
{
    return c->g->loss >= 0 && c->g->tensors[t].frozen;
}

/* One more part of a fused parameter. */
static dtp_status add_part(collector *c, dtp_tensor_id t, dtp_placed *to, dtp_err *err)
{
    dtp_placed part = {.name = to->name, .entry = to->entry};
    dtp_tensor_id *of;
    DTP_TRY(dtp_names_find(c->p->names, c->g, t, c->p->arena, &part.entry, &part.name, err));
    if (to->entry->fused_axis < 0 || part.entry->fused_axis != to->entry->fused_axis) {
        return DTP_FAIL(err, DTP_INVALID, "%s: '%.100s' is the name of '%.100s' and of '%.100s'",
                        part.entry->place, to->name, c->g->tensors[to->of[0]].name,
                        c->g->tensors[t].name);
    }
    part.name = to->name;
    c->p->entry[t] = part.entry;
    DTP_TRY(place(c, t, &part, err));
    DTP_TRY(DTP_NEW(c->p->arena, of, to->n_of + 1, err));
    memcpy(of, to->of, (size_t)to->n_of * sizeof *of);
    of[to->n_of++] = t;
    to->of = of;
    const int32_t axis = to->entry->fused_axis;
    to->type.dims[axis].size += part.type.dims[axis].size;
    if (is_frozen(c, t) != to->frozen) {
        to->frozen = false;
        DTP_TRY(lose(c, DTP_LOST_FROZEN, to->name, err));
    }
    const bool same =
        dtp_layout_equal(&part.kept, &to->kept) && dtp_layout_equal(&part.read, &to->read);
    return same ? DTP_OK : lose(c, DTP_LOST_PARTS, to->name, err);
}

/* The parameter of a name, -1: there is none yet. */
static int32_t find_param(const collector *c, const char *name, uint32_t hash)
{
    uint32_t at = hash;
    int32_t i;
    do {
        i = dtp_hash_table_next(&c->by_name, hash, &at);
    } while (i >= 0 && strcmp(c->p->params[i].name, name) != 0);
    return i;
}

static dtp_status add_param(collector *c, dtp_tensor_id t, dtp_err *err)
{
    dtp_placements *p = c->p;
    dtp_placed *out = &p->params[p->n_params];
    out->name = c->g->tensors[t].name;
    if (p->names != NULL) {
        DTP_TRY(dtp_names_find(p->names, c->g, t, p->arena, &out->entry, &out->name, err));
        if (out->entry->buffer) { /* whole on every rank there */
            *out = (dtp_placed){0};
            return DTP_OK;
        }
        DTP_TRY(module_of(c, out->name, &out->module, err));
        DTP_TRY(out->entry->guessed ? lose(c, DTP_LOST_NAME, out->name, err) : DTP_OK);
    }
    const uint32_t hash = dtp_hash_fold(dtp_hash_text(DTP_HASH_SEED, out->name));
    const int32_t had = find_param(c, out->name, hash);
    c->theirs[t] = had >= 0 ? p->params[had].name : out->name;
    p->module[t] = out->module;
    p->entry[t] = out->entry;
    if (had >= 0) {
        *out = (dtp_placed){0};
        return add_part(c, t, &p->params[had], err);
    }
    DTP_TRY(dtp_hash_table_add(&c->by_name, p->arena, hash, p->n_params, err));
    p->n_params++;
    DTP_TRY(set_tensor(c, t, out, err));
    DTP_TRY(place(c, t, out, err));
    out->frozen = is_frozen(c, t);
    return p->uses.backward[t] ? lose(c, DTP_LOST_BACKWARD, out->name, err) : DTP_OK;
}

/* The other name of a parameter that is one of another module; NULL: none. Some files leave out the
 * name of the base model: "wte.weight" is no other module than "transformer.wte.weight". */
static const char *tied_name(const dtp_name_entry *entry)
{
    const char *found = NULL;
    for (int32_t k = 0; entry != NULL && k < entry->n_tied && found == NULL; k++) {
        const size_t n = strlen(entry->theirs), part = strlen(entry->tied[k]);
        const bool same = n > part && entry->theirs[n - part - 1] == '.' &&
                          strcmp(entry->theirs + n - part, entry->tied[k]) == 0;
        found = same ? NULL : entry->tied[k];
    }
    return found;
}

/* A parameter that has another name as well: its first reader of another op reads it there. */
static dtp_status add_tied(collector *c, const dtp_placed *of, dtp_err *err)
{
    const dtp_graph *g = c->g;
    const char *theirs = tied_name(of->entry);
    dtp_placed second = *of;
    for (dtp_node_id n = 0; n < g->n_nodes && theirs != NULL; n++) {
        const dtp_node *node = &g->nodes[n];
        for (int32_t i = 0; i < node->n_in && node->phase == DTP_FORWARD; i++) {
            if (dtp_uses_of_layouts_tensor(g, node, i) != of->of[0] ||
                node->op == g->nodes[of->reader].op) {
                continue;
            }
            DTP_TRY(dtp_names_fill(of->entry, g->tensors[of->of[0]].name, theirs, c->p->arena,
                                   &second.name, err));
            DTP_TRY(module_of(c, second.name, &second.module, err));
            second.reader = n;
            second.operand = i;
            c->p->tied[of->of[0]] = second.module;
            c->p->params[c->p->n_params + c->p->n_tied++] = second;
            return DTP_OK;
        }
    }
    return DTP_OK;
}

dtp_tensor_id dtp_placements_state_of(const dtp_graph *g, const dtp_node *node, int32_t operand)
{
    const dtp_graph_tensor *state = &g->tensors[node->in[operand]];
    dtp_tensor_id param = -1;
    for (int32_t i = 0; i < node->n_in && (node->op->flags & DTP_OP_UPDATE) != 0; i++) {
        param = g->tensors[node->in[i]].kind == DTP_TENSOR_PARAM ? node->in[i] : param;
    }
    return param >= 0 && state->kind == DTP_TENSOR_STATE &&
                   dtp_ttype_equal(&state->type, &g->tensors[param].type)
               ? param
               : -1;
}

bool dtp_placements_sums(const dtp_graph *g, const dtp_node *node)
{
    return node->phase != DTP_UPDATE && node->n_in > 1 && node->op->linear == DTP_LINEAR_JOINT &&
           !dtp_is_accumulate(g, node);
}

/* Gradients and optimizer states that lie otherwise than their parameters, and sums of terms that
 * are partial, which ranks add up once. In a program for a form the terms are reduced apart unless
 * they are kept partial. */
static dtp_status compare_training(collector *c, dtp_err *err)
{
    const dtp_graph *g = c->g;
    const bool made_for_form = c->p->plan->expressible.form != NULL;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        int32_t partial = 0;
        for (int32_t i = 0; i < node->n_in && dtp_placements_sums(g, node); i++) {
            const dtp_tensor_id t = node->in[i];
            partial +=
                dtp_layout_has_partial(made_for_form ? &c->s->layouts[t] : &c->p->uses.made[t]);
        }
        DTP_TRY(partial > 1 ? lose(c, DTP_LOST_TERMS, g->tensors[node->out[0]].name, err) : DTP_OK);
    }
    for (int32_t i = 0; i < g->n_grads; i++) {
        const dtp_param_grad *pg = &g->grads[i];
        if (!dtp_layout_equal(&c->s->layouts[pg->param], &c->s->layouts[pg->grad])) {
            DTP_TRY(lose(c, DTP_LOST_GRADIENTS, c->theirs[pg->param], err));
        }
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        for (int32_t i = 0; i < node->n_in; i++) {
            const dtp_tensor_id param = dtp_placements_state_of(g, node, i);
            if (param >= 0 &&
                !dtp_layout_equal(&c->s->layouts[param], &c->s->layouts[node->in[i]])) {
                DTP_TRY(lose(c, DTP_LOST_STATES, c->theirs[param], err));
            }
        }
    }
    return DTP_OK;
}

/* ---- values ---- */

const char *dtp_placements_module(const dtp_placements *p, dtp_node_id n)
{
    const dtp_node *node = n >= 0 ? &p->graph->nodes[n] : NULL;
    const char *found = NULL;
    for (int32_t i = 0; node != NULL && i < node->n_in; i++) {
        const dtp_tensor_id param = dtp_graph_param_of(p->graph, node->in[i]);
        const bool tied = param >= 0 && p->tied[param] != NULL && p->uses.reader[param] >= 0 &&
                          p->graph->nodes[p->uses.reader[param]].op != node->op;
        const char *module = tied ? p->tied[param] : param >= 0 ? p->module[param] : NULL;
        if (module != NULL && found != NULL && strcmp(module, found) != 0) {
            return NULL;
        }
        found = module != NULL ? module : found;
    }
    return found;
}

const char *dtp_placements_maker(const dtp_placements *p, dtp_tensor_id t)
{
    const char *module = dtp_placements_module(p, p->graph->tensors[t].producer);
    const char *next = dtp_placements_module(p, p->uses.reader[t]);
    return module != NULL && next != NULL && strcmp(module, next) == 0 ? NULL : module;
}

dtp_tensor_id dtp_placements_sum(const dtp_placements *p, dtp_tensor_id t)
{
    const dtp_node_id reader = p->uses.reader[t];
    const char *module = dtp_placements_module(p, p->graph->tensors[t].producer);
    const char *next = dtp_placements_module(p, reader);
    return module != NULL && next != NULL && strcmp(module, next) == 0
               ? p->graph->nodes[reader].out[0]
               : -1;
}

static dtp_status add_value(collector *c, dtp_tensor_id t, dtp_placed *list, int32_t *n,
                            dtp_err *err)
{
    dtp_placed *out = &list[(*n)++];
    out->name = c->g->tensors[t].name;
    out->module = dtp_placements_maker(c->p, t);
    DTP_TRY(set_tensor(c, t, out, err));
    return place(c, t, out, err);
}

bool dtp_placements_is_value(const dtp_graph *g, dtp_tensor_id t)
{
    const dtp_node_id n = g->tensors[t].producer;
    return n >= 0 && g->nodes[n].phase == DTP_FORWARD && dtp_graph_param_of(g, t) < 0;
}

/* A forward value that is brought to where it is kept, or from there to where it is read. */
static bool is_constrained(const collector *c, dtp_tensor_id t)
{
    const dtp_uses_of_layouts *u = &c->p->uses;
    const dtp_layout *kept = &c->s->layouts[t];
    return dtp_placements_is_value(c->g, t) &&
           (!dtp_layout_equal(&u->made[t], kept) || !dtp_layout_equal(&u->read[t], kept) ||
            u->several[t]);
}

/* The value for which a constraint speaks: where a module adds its bias to a product, the sum, if
 * it lies where the product is kept and read. */
static dtp_tensor_id constrained_value(const collector *c, dtp_tensor_id t)
{
    const dtp_tensor_id sum = dtp_placements_sum(c->p, t);
    const dtp_layout *kept = &c->s->layouts[t];
    return sum >= 0 && dtp_layout_equal(kept, &c->s->layouts[sum]) &&
                   dtp_layout_equal(kept, &c->p->uses.read[t])
               ? sum
               : t;
}

static dtp_status add_activations(collector *c, dtp_err *err)
{
    dtp_placements *p = c->p;
    const dtp_graph *g = c->g;
    bool *wanted;
    DTP_TRY(DTP_NEW(p->arena, wanted, g->n_tensors, err));
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        if (is_constrained(c, t)) {
            wanted[constrained_value(c, t)] = true;
        }
    }
    for (int32_t i = 0; i < p->n_outputs; i++) { /* their layouts are said there */
        wanted[p->outputs[i].of[0]] = false;
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        if (!wanted[t]) {
            continue;
        }
        DTP_TRY(add_value(c, t, p->activations, &p->n_activations, err));
        if (p->activations[p->n_activations - 1].module == NULL) {
            DTP_TRY(lose(c, DTP_LOST_INSIDE, g->tensors[t].name, err));
        }
    }
    return DTP_OK;
}

static dtp_status add_values(collector *c, dtp_err *err)
{
    dtp_placements *p = c->p;
    const dtp_graph *g = c->g;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].kind == DTP_TENSOR_INPUT) {
            DTP_TRY(add_value(c, t, p->inputs, &p->n_inputs, err));
            dtp_placed *input = &p->inputs[p->n_inputs - 1];
            input->type = dtp_microbatch_whole(g, &input->type);
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        DTP_TRY(add_value(c, g->outputs[i], p->outputs, &p->n_outputs, err));
    }
    if (g->loss >= 0 && dtp_graph_output(g, g->tensors[g->loss].name) < 0) {
        DTP_TRY(add_value(c, g->loss, p->outputs, &p->n_outputs, err));
    }
    return add_activations(c, err);
}

/* Names the statistics of rows that are split. */
static dtp_status lose_statistics(collector *c, dtp_err *err)
{
    const dtp_graph *g = c->g;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const bool in_training = (g->nodes[n].op->flags & DTP_OP_IN_TRAINING) != 0;
        const dtp_tensor_id s = in_training ? g->nodes[n].in[0] : -1;
        const dtp_node_id maker = s >= 0 ? g->tensors[s].producer : -1;
        bool split = false;
        for (int32_t m = 0; m < c->p->plan->mesh.n_dims && maker >= 0; m++) {
            const dtp_layout *rows = &c->s->layouts[g->nodes[maker].in[0]];
            split = split || (rows->placement[m].kind == DTP_SHARD &&
                              c->s->layouts[s].placement[m].kind != DTP_SHARD);
        }
        DTP_TRY(split ? lose(c, DTP_LOST_STATISTICS, g->tensors[s].name, err) : DTP_OK);
    }
    return DTP_OK;
}

/* What is lost of the plan as a whole. A plan for a form leaves steps and schedule to the
 * framework. */
static dtp_status lose_schedule(collector *c, dtp_err *err)
{
    const dtp_plan *plan = c->p->plan;
    bool steps = false;
    if (plan->expressible.form != NULL) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < plan->n_redistributions; i++) {
        steps = steps || plan->redistributions[i].n_steps > 1;
    }
    DTP_TRY(steps ? lose(c, DTP_LOST_STEPS, NULL, err) : DTP_OK);
    return plan->overlap.depth > 0 || plan->overlap.bucket_bytes > 0
               ? lose(c, DTP_LOST_OVERLAP, NULL, err)
               : DTP_OK;
}

dtp_status dtp_placements_make(const dtp_plan *plan, const dtp_graph *graph, const dtp_names *names,
                               dtp_arena *arena, dtp_placements *out, dtp_err *err)
{
    const dtp_graph *g = graph;
    collector c = {.p = out, .g = graph, .s = &plan->sharding};
    *out = (dtp_placements){.arena = arena, .plan = plan, .graph = graph, .names = names};
    DTP_TRY(dtp_uses_of_layouts_find(g, c.s, arena, &out->uses, err));
    DTP_TRY(DTP_NEW(arena, out->params, 2 * (size_t)g->n_tensors + 1, err));
    DTP_TRY(DTP_NEW(arena, out->activations, g->n_tensors + 1, err));
    DTP_TRY(DTP_NEW(arena, out->inputs, g->n_tensors + 1, err));
    DTP_TRY(DTP_NEW(arena, out->outputs, g->n_outputs + 1, err)); /* and the loss */
    DTP_TRY(DTP_NEW(arena, c.theirs, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, out->module, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, out->tied, g->n_tensors, err));
    out->entry = dtp_arena_alloc(arena, (size_t)g->n_tensors, sizeof(void *));
    DTP_TRY(DTP_MEMORY(err, out->entry));
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].kind == DTP_TENSOR_PARAM) {
            DTP_TRY(add_param(&c, t, err));
        }
    }
    for (int32_t i = 0; i < out->n_params; i++) {
        DTP_TRY(add_tied(&c, &out->params[i], err));
    }
    DTP_TRY(compare_training(&c, err));
    DTP_TRY(add_values(&c, err));
    DTP_TRY(lose_statistics(&c, err));
    return lose_schedule(&c, err);
}
