/* Lowering of a whole graph: resident and input values, every node in order, what must survive the
 * step, the updates; then the passes and the memory plan.
 */
#include "spmd/lower/lower.h"
#include "core/transform/regather.h"
#include "core/transform/stages.h"
#include "spmd/program/program_internal.h"

#include "spmd/lower/lower_internal.h"
#include "spmd/lower/redistribute_program.h"
#include "spmd/lower/overlap.h"
#include "spmd/lower/passes/passes.h"

dtp_lower_options dtp_lower_options_init(const dtp_redistributor *redistributor)
{
    return (dtp_lower_options){
        .merge_collectives = true,
        .overlap = {.bucket_bytes = DTP_BUCKET_BYTES, .once_bytes = INT64_MAX},
        .in_place = true,
        .redistributor = redistributor,
        .target = &dtp_target_cpu};
}

/* A lowering under way. */
typedef struct lowering {
    const dtp_graph *g;
    const dtp_sharding *s;
    const dtp_lower_options *options;
    dtp_program *p;
    dtp_arena *scratch;
    dtp_uses uses; /* with what is fetched */
    dtp_shared_copies shared;
    dtp_value_id *view; /* by tensor: the copy that nodes of this phase read, -1 = none yet */
    dtp_value_id *kept; /* by tensor: the copy of an earlier phase that may be that, -1 = none */
    bool *forgets;      /* as in dtp_lower_env */
    const dtp_stages *stages; /* of the graph, where one chunk is lowered; NULL: everything is */
    bool begun;               /* a node was lowered, */
    dtp_phase phase;          /* of the phase of the last one */
} lowering;

/* ---- what is needed ---- */

static dtp_status mark_uses(lowering *l, dtp_err *err)
{
    const dtp_graph *g = l->g;
    DTP_TRY(dtp_uses_find(g, l->scratch, &l->uses, err));
    for (int32_t i = 0; i < l->options->n_fetch; i++) {
        dtp_tensor_id t = l->options->fetch[i];
        if (t < 0 || t >= g->n_tensors) {
            return DTP_FAIL(err, DTP_INVALID, "fetch: there is no tensor %d", t);
        }
        l->uses.survives[t] = l->uses.needed[t] = true;
    }
    return DTP_OK;
}

/* ---- stages ---- */

/* Whether the program has a tensor, or, with `home`, the rest of the step needs its one. */
static bool is_here(const lowering *l, dtp_tensor_id t, bool home)
{
    const int32_t c = l->options->chunk;
    return l->stages == NULL ||
           (home ? l->stages->home[t] == c : dtp_in_chunk(l->stages->holds[t], c));
}

/* ---- values and nodes ---- */

static dtp_status add_tensor_value(dtp_program *p, dtp_tensor_id t, dtp_value_kind kind,
                                   const dtp_layout *layout, dtp_value_id *out, dtp_err *err)
{
    dtp_value v = dtp_program__value_init(p->graph->tensors[t].name, kind);
    v.type = dtp_target_type(p->target, p->graph, t);
    v.layout = *layout;
    DTP_TRY(dtp_program__add_value(p, &v, out, err));
    dtp_program__bind(p, t, *out);
    return DTP_OK;
}

/* The value from which nodes of a phase read the tensor; the first of them makes the copy. */
static dtp_status find_view(const lowering *l, const dtp_lower_env *env, dtp_node_id reader,
                            int32_t operand, dtp_value_id *out, dtp_err *err)
{
    const dtp_tensor_id t = l->g->nodes[reader].in[operand];
    const dtp_phase phase = l->g->nodes[reader].phase;
    *out = l->p->tensor_value[t];
    if (!dtp_sharding_has_replicas(l->s) ||
        dtp_layout_equal(&l->s->replicas[phase][t], &l->s->layouts[t])) {
        return DTP_OK;
    }
    const dtp_layout *to = &l->s->replicas[phase][t];
    if (l->view[t] < 0 && l->kept[t] >= 0 && !env->alone &&
        dtp_layout_equal(&l->p->values[l->kept[t]].layout, to)) {
        const dtp_shared_copy now = {
            .at = l->p->n_instrs, .node = reader, .phase = phase, .from = *out, .to = *to};
        DTP_TRY(dtp_lower__note_shared(env->shared, &now, err));
        l->view[t] = l->kept[t];
    }
    if (l->view[t] < 0) {
        DTP_TRY(dtp_lower__note(env, reader, operand, t, &l->s->layouts[t], to, err));
        DTP_TRY(dtp_redistribute_value(l->p, to, reader, phase, out, err));
        l->view[t] = *out;
    }
    *out = l->view[t];
    return DTP_OK;
}

dtp_status dtp_forgotten_find(const dtp_graph *g, const dtp_sharding *s, const dtp_target *target,
                              dtp_arena *arena, bool **out, dtp_err *err)
{
    const bool replicas = s == NULL || dtp_sharding_has_replicas(s);
    const bool *regather = s != NULL ? s->regather : NULL;
    const bool usual = target->regathers || replicas;
    bool *forgets, *root; /* root: a parameter outside of blocks, which FSDP gathers once */
    DTP_TRY(DTP_NEW(arena, forgets, (size_t)g->n_tensors + 1, err));
    DTP_TRY(DTP_NEW(arena, root, (size_t)g->n_tensors + 1, err));
    for (dtp_node_id n = 0; n < g->n_nodes && target->fsdp; n++) {
        const dtp_node *node = &g->nodes[n];
        for (int32_t i = 0; i < node->n_in && node->phase == DTP_FORWARD; i++) {
            root[node->in[i]] = root[node->in[i]] || node->block < 0;
        }
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        const bool param = dtp_graph_param_of(g, t) >= 0;
        forgets[t] = tensor->kind == DTP_TENSOR_STATE || replicas;
        if (!dtp_regather_applies(g, t)) {
            continue;
        }
        forgets[t] = regather != NULL ? regather[t]
                     : tensor->copies != DTP_COPIES_USUAL
                         ? tensor->copies == DTP_COPIES_AGAIN
                         : (param && !root[t]) || tensor->recomputed || usual;
    }
    *out = forgets;
    return DTP_OK;
}

/* What other chunks send are inputs, before the nodes are lowered; what is sent, behind them, stays
 * until its section has ended, that of the update for good. New values of copies of parameters
 * arrive in their buffers. */
static dtp_status lower_transfers(lowering *l, bool received, dtp_err *err)
{
    for (int32_t k = 0; l->stages != NULL && k < l->stages->n_transfers; k++) {
        const dtp_transfer *x = &l->stages->transfers[k];
        dtp_value_id *at = &l->p->tensor_value[x->tensor];
        const bool update = x->section >= DTP_SECTION_UPDATE;
        if ((received ? x->to : x->from) != l->options->chunk || x->into >= 0) {
            continue;
        }
        if (received) {
            DTP_TRY(add_tensor_value(l->p, x->tensor, DTP_VALUE_INPUT, &l->s->layouts[x->tensor],
                                     at, err));
            l->p->values[*at].arrives =
                x->once ? DTP_SECTION_UPDATE + 1 : x->section + (update ? 1 : 0);
            continue;
        }
        dtp_value *v = &l->p->values[*at];
        const bool lasts = (v->keep && v->sent == 0) || x->once || update;
        v->sent = lasts ? 0 : x->section + 1 > v->sent ? x->section + 1 : v->sent;
        v->keep = true;
    }
    return DTP_OK;
}

/* Lowers the next node; where it begins a phase, after what that means for copies. */
static dtp_status lower_next(lowering *l, dtp_lower_env *env, dtp_node_id n, dtp_err *err)
{
    const dtp_node *node = &l->g->nodes[n];
    dtp_value_id in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
    dtp_layout layouts[DTP_MAX_OP_OUT];
    dtp_lower_request r = {.strategy = &l->s->strategies[n], .in = in, .out_layouts = layouts};
    if (!l->begun || node->phase != l->phase) {
        env->since = l->p->n_values;
        for (int32_t t = 0; t < l->g->n_tensors; t++) {
            const bool made = l->begun && l->view[t] >= 0 &&
                              dtp_lower__may_keep(env, l->view[t], l->p->tensor_value[t]);
            l->kept[t] = !l->begun || l->forgets[t] ? -1 : made ? l->view[t] : l->kept[t];
            l->view[t] = -1;
        }
        l->begun = true;
        l->phase = node->phase;
    }
    for (int32_t i = 0; i < node->n_in; i++) {
        DTP_TRY(find_view(l, env, n, i, &in[i], err));
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        layouts[i] = l->s->layouts[node->out[i]];
        r.wanted |= l->uses.needed[node->out[i]] ? 1U << i : 0U;
    }
    DTP_TRY(dtp_lower__node(env, n, &r, out, err));
    for (int32_t i = 0; i < node->n_out; i++) {
        l->p->tensor_value[node->out[i]] = out[i];
    }
    return DTP_OK;
}

/* The sources and every node in order; `found` as in dtp_lower_env. */
static dtp_status lower_nodes(lowering *l, dtp_redistributions *found, dtp_err *err)
{
    const size_t n_tensors = (size_t)l->g->n_tensors + 1;
    DTP_TRY(DTP_NEW(l->scratch, l->view, n_tensors, err));
    DTP_TRY(DTP_NEW(l->scratch, l->kept, n_tensors, err));
    DTP_TRY(mark_uses(l, err));
    DTP_TRY(dtp_forgotten_find(l->g, l->s, l->options->target, l->scratch, &l->forgets, err));
    for (int32_t t = 0; t < l->g->n_tensors; t++) {
        const dtp_tensor_kind kind = l->g->tensors[t].kind;
        if (kind != DTP_TENSOR_VALUE && is_here(l, t, false)) {
            DTP_TRY(add_tensor_value(
                l->p, t, kind == DTP_TENSOR_INPUT ? DTP_VALUE_INPUT : DTP_VALUE_RESIDENT,
                &l->s->layouts[t], &l->p->tensor_value[t], err));
        }
    }
    dtp_lower_env env = {.p = l->p,
                         .graph = l->g,
                         .survives = l->uses.survives,
                         .forgets = l->forgets,
                         .replicas = dtp_sharding_has_replicas(l->s),
                         .alone = l->options->plain,
                         .shared = l->options->kept ? &l->shared : NULL,
                         .found = found};
    DTP_TRY(lower_transfers(l, true, err));
    const int32_t n_parts = l->stages != NULL ? l->stages->n_parts : 1;
    for (int32_t part = 0; part < n_parts; part++) { /* of the update; all else is in the first */
        for (dtp_node_id n = 0; n < l->g->n_nodes; n++) {
            const bool turn =
                l->stages == NULL ||
                (dtp_in_chunk(l->stages->on[n], l->options->chunk) && l->stages->part[n] == part);
            DTP_TRY(turn ? lower_next(l, &env, n, err) : DTP_OK);
        }
    }
    return lower_transfers(l, false, err);
}

/* The value of a tensor that a reader gets. Of a partial one that is fetched the latest version
 * that a node has had reduced, if there is one: a second reduction could round in another way than
 * what was used. What a step always gives is reduced anew, as the planner prices it. */
static dtp_value_id readable(const lowering *l, dtp_tensor_id t)
{
    const dtp_program *p = l->p;
    const dtp_value_id planned = p->tensor_value[t];
    bool output = t == l->g->loss || t == l->g->norm || t == l->g->grad_factor;
    for (int32_t i = 0; i < l->g->n_outputs; i++) {
        output = output || t == l->g->outputs[i];
    }
    if (l->options->keep_partial || !dtp_layout_has_partial(&p->values[planned].layout) || output) {
        return planned;
    }
    dtp_value_id v = p->tensor_latest[t];
    while (v >= 0 && dtp_layout_has_partial(&p->values[v].layout)) {
        v = p->values[v].previous;
    }
    return v >= 0 ? v : planned;
}

/* The passes that a program may run again, with other options. */
static dtp_status arrange(dtp_program *p, const dtp_lower_options *options, dtp_arena *scratch,
                          dtp_err *err)
{
    dtp_overlap overlap = options->overlap;
    DTP_TRY(dtp_program__run_once(p, &overlap.once_bytes, scratch, err));
    if (!options->plain) {
        DTP_TRY(dtp_program__place_casts(p, scratch, err));
    }
    if (options->overlap.bucket_bytes > 0) {
        DTP_TRY(dtp_program__bucket(p, options->overlap.bucket_bytes, scratch, err));
    }
    if (options->external) {
        DTP_TRY(dtp_program__externalize(p, err));
    }
    return dtp_program_overlap(p, &overlap, options->unplaced, err);
}

dtp_status dtp_program_arrange(dtp_program *p, const dtp_lower_options *options, dtp_err *err)
{
    dtp_program *unordered = p->unordered, *copy;
    dtp_arena *scratch = dtp_arena_create();
    dtp_status s = dtp_program__copy(unordered, &copy, err);
    if (s == DTP_OK) {
        *p = *copy;
        p->unordered = unordered;
        s = arrange(p, options, scratch, err);
    }
    dtp_arena_destroy(scratch);
    return s;
}

static dtp_status run_passes(dtp_program *p, const dtp_lower_options *options, dtp_arena *scratch,
                             dtp_err *err)
{
    const uint32_t fuse = options->plain ? 0 : p->target->fuse;
    const bool sink = options->merge_collectives && !p->target->terms_apart;
    if (!options->plain && p->target->loss_chunk > 0) {
        DTP_TRY(dtp_program__fuse_loss(p, scratch, err));
    }
    if ((fuse & (DTP_FUSE_PRODUCT | DTP_FUSE_BIAS)) != 0) {
        DTP_TRY(dtp_program__fuse_product(p, scratch, err));
    }
    if (fuse != 0) {
        DTP_TRY(sink ? dtp_program__sink_reductions(p, true, scratch, err) : DTP_OK);
        DTP_TRY(dtp_program__fuse(p, scratch, err));
    }
    DTP_TRY(dtp_program__resolve_updates(p, scratch, err));
    if (options->merge_collectives) {
        DTP_TRY(dtp_program__merge_collectives(p, scratch, err));
        DTP_TRY(sink ? dtp_program__sink_reductions(p, false, scratch, err) : DTP_OK);
        DTP_TRY(dtp_program__merge_collectives(p, scratch, err));
    }
    if (options->in_place) {
        DTP_TRY(dtp_program__in_place(p, scratch, err));
    }
    if ((fuse & DTP_FUSE_CAST) != 0) {
        DTP_TRY(dtp_program__fuse_casts(p, scratch, err));
    }
    DTP_TRY(options->kept ? dtp_program__copy(p, &p->unordered, err) : DTP_OK);
    return arrange(p, options, scratch, err);
}

/* The plain program of what was lowered: every node makes the copies that it shares with others. */
static dtp_status make_plain(lowering *l, dtp_err *err)
{
    int32_t from = 0, to = 0, made = l->p->n_instrs;
    dtp_program *p;
    dtp_instr *list;
    DTP_TRY(dtp_program__copy(l->p, &p, err));
    for (int32_t k = 0; k < l->shared.n; k++) {
        const dtp_shared_copy *s = &l->shared.items[k];
        dtp_value_id v = s->from;
        DTP_TRY(dtp_redistribute_value(p, &s->to, s->node, s->phase, &v, err));
        l->shared.items[k].end = p->n_instrs;
    }
    DTP_TRY(DTP_NEW(p->arena, list, p->n_instrs, err));
    for (int32_t k = 0; k <= l->shared.n; k++) {
        const bool last = k == l->shared.n;
        while (from < (last ? l->p->n_instrs : l->shared.items[k].at)) {
            list[to++] = p->instrs[from++];
        }
        while (!last && made < l->shared.items[k].end) {
            list[to++] = p->instrs[made++];
        }
    }
    p->instrs = list;
    p->cap_instrs = p->n_instrs;
    l->p->plain = p;
    return dtp_program__resolve_updates(p, l->scratch, err);
}

static dtp_status lower_all(lowering *l, dtp_err *err)
{
    DTP_TRY(lower_nodes(l, NULL, err));
    /* Marks what must survive the step; partial values are reduced first unless they may stay
     * so. */
    dtp_program *p = l->p;
    for (int32_t t = 0; t < l->g->n_tensors; t++) {
        if (!l->uses.survives[t] || !is_here(l, t, true)) {
            continue;
        }
        dtp_value_id v = readable(l, t);
        const dtp_layout layout = l->options->keep_partial
                                      ? p->values[v].layout
                                      : dtp_layout_without_partial(&p->values[v].layout);
        dtp_node_id producer = l->g->tensors[t].producer;
        dtp_phase phase = producer >= 0 ? l->g->nodes[producer].phase : DTP_FORWARD;
        phase = l->g->microbatches > 1 ? DTP_UPDATE : phase; /* after the last microbatch */
        DTP_TRY(dtp_redistribute_value(p, &layout, producer, phase, &v, err));
        p->tensor_value[t] = v;
        p->values[v].keep = true;
        p->values[v].sent = 0; /* it lasts longer */
    }
    /* What replaces a target: of an accumulator the value in its layout, from which a kept result
     * may have been made. */
    for (int32_t i = 0; i < l->g->n_updates; i++) {
        const dtp_update *u = &l->g->updates[i];
        if (!is_here(l, u->target, true)) {
            continue;
        }
        const dtp_value_id target = p->tensor_value[u->target];
        dtp_value_id v = l->g->tensors[u->target].per_step ? p->tensor_latest[u->value] : -1;
        while (v >= 0 && !dtp_layout_equal(&p->values[v].layout, &p->values[target].layout)) {
            v = p->values[v].previous;
        }
        DTP_TRY(dtp_arena_grow(p->arena, &p->updates, p->n_updates, p->n_updates + 1,
                               &p->cap_updates, sizeof *p->updates, err));
        p->updates[p->n_updates++] =
            (dtp_value_update){.target = target, .value = v >= 0 ? v : p->tensor_value[u->value]};
    }
    DTP_TRY(l->options->kept ? make_plain(l, err) : DTP_OK);
    return run_passes(l->p, l->options, l->scratch, err);
}

dtp_status dtp_lower(const dtp_graph *g, const dtp_sharding *s, const dtp_lower_options *options,
                     dtp_program **out, dtp_err *err)
{
    lowering l = {.g = g, .s = s, .options = options, .stages = g->stages};
    if (options == NULL || options->redistributor == NULL || options->target == NULL) {
        return DTP_FAIL(err, DTP_INVALID,
                        "a lowering without a target or one who plans its redistributions");
    }
    DTP_TRY(dtp_sharding_check(g, s, err));
    DTP_TRY(dtp_program_create(g, &s->mesh, options->target, &l.p, err));
    if (g->stages != NULL) {
        l.p->chunk = options->chunk;
        l.p->slots = dtp_stage_slots(g, dtp_chunk_stage(g, options->chunk));
    }
    l.p->redistributor = options->redistributor;
    l.p->plain_names = options->unplaced;
    l.p->joins = !options->plain && options->target->join > 0;
    l.scratch = l.shared.arena = dtp_arena_create();
    const dtp_status status = lower_all(&l, err);
    dtp_arena_destroy(l.scratch);
    if (status != DTP_OK) {
        dtp_program_destroy(l.p);
        return status;
    }
    *out = l.p;
    return DTP_OK;
}

dtp_status dtp_redistributions_find(const dtp_graph *g, const dtp_sharding *s,
                                    const dtp_redistributor *r, dtp_redistributions *out,
                                    dtp_err *err)
{
    const dtp_lower_options options = {.redistributor = r, .target = &dtp_target_cpu}; /* any */
    lowering l = {.g = g, .s = s, .options = &options, .scratch = dtp_arena_create()};
    *out = (dtp_redistributions){.arena = dtp_arena_create()};
    dtp_status status = DTP_MEMORY(err, l.scratch, out->arena);
    if (status == DTP_OK) {
        status = dtp_program_create(g, &s->mesh, options.target, &l.p, err);
    }
    if (status == DTP_OK) {
        l.p->redistributor = r;
        l.p->plain_names = true;
        status = lower_nodes(&l, out, err);
    }
    dtp_program_destroy(l.p);
    dtp_arena_destroy(l.scratch);
    return status;
}

void dtp_redistributions_free(dtp_redistributions *redistributions)
{
    dtp_arena_destroy(redistributions->arena);
    *redistributions = (dtp_redistributions){0};
}

/* ---- one redistribution ---- */

static dtp_status redistribute_tensor(dtp_program *p, const dtp_layout *from, const dtp_layout *to,
                                      const dtp_lower_options *options, dtp_err *err)
{
    dtp_value_id v;
    DTP_TRY(add_tensor_value(p, 0, DTP_VALUE_INPUT, from, &v, err));
    DTP_TRY(dtp_redistribute_value(p, to, -1, DTP_FORWARD, &v, err));
    p->tensor_value[0] = v;
    p->values[v].keep = true;
    dtp_arena *scratch = dtp_arena_create();
    const dtp_status s = run_passes(p, options, scratch, err);
    dtp_arena_destroy(scratch);
    return s;
}

dtp_status dtp_lower_redistribution(const dtp_graph *g, const dtp_mesh *mesh,
                                    const dtp_layout *from, const dtp_layout *to,
                                    const dtp_lower_options *options, dtp_program **out,
                                    dtp_err *err)
{
    dtp_program *p;
    if (g->n_tensors != 1 || g->tensors[0].kind != DTP_TENSOR_INPUT) {
        return DTP_FAIL(err, DTP_INVALID, "a redistribution has one tensor, an input");
    }
    DTP_TRY(dtp_layout_check(from, mesh, &g->tensors[0].type, err));
    DTP_TRY(dtp_layout_check(to, mesh, &g->tensors[0].type, err));
    DTP_TRY(dtp_program_create(g, mesh, options->target, &p, err));
    p->redistributor = options->redistributor;
    const dtp_status status = redistribute_tensor(p, from, to, options, err);
    if (status != DTP_OK) {
        dtp_program_destroy(p);
        return status;
    }
    *out = p;
    return DTP_OK;
}

/* ---- one node ---- */

/* The operand in this layout; two operands may share one. */
static dtp_status operand_value(dtp_program *p, dtp_tensor_id t, const dtp_layout *layout,
                                dtp_value_id *out, dtp_err *err)
{
    for (dtp_value_id v = p->tensor_latest[t]; v >= 0; v = p->values[v].previous) {
        if (dtp_layout_equal(&p->values[v].layout, layout)) {
            *out = v;
            return DTP_OK;
        }
    }
    const dtp_tensor_kind kind = p->graph->tensors[t].kind;
    const bool stays = kind == DTP_TENSOR_PARAM || kind == DTP_TENSOR_STATE;
    return add_tensor_value(p, t, stays ? DTP_VALUE_RESIDENT : DTP_VALUE_INPUT, layout, out, err);
}

dtp_status dtp_lower_node(dtp_program *p, dtp_node_id node, const dtp_strategy *strategy,
                          const dtp_layout *in_layouts, const dtp_layout *out_layouts,
                          const dtp_uses *uses, dtp_err *err)
{
    const dtp_node *n = &p->graph->nodes[node];
    dtp_value_id in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
    dtp_lower_env env = {
        .p = p, .graph = p->graph, .survives = uses != NULL ? uses->survives : NULL};
    dtp_lower_request r = {.strategy = strategy, .in = in, .out_layouts = out_layouts};
    for (int32_t i = 0; i < n->n_out; i++) {
        const bool needed = uses == NULL || uses->needed[n->out[i]];
        r.wanted |= needed && out_layouts != NULL ? 1U << i : 0U;
    }
    for (int32_t i = 0; i < n->n_in; i++) {
        DTP_TRY(operand_value(p, n->in[i], &in_layouts[i], &in[i], err));
        p->tensor_value[n->in[i]] = in[i];
    }
    DTP_TRY(dtp_lower__node(&env, node, &r, out, err));
    for (int32_t i = 0; i < n->n_out; i++) {
        p->tensor_value[n->out[i]] = out[i];
        p->values[out[i]].keep = true;
    }
    return DTP_OK;
}
