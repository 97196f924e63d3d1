/* Under module styles values are local tensors between modules, and redistributed by the hooks of
 * modules alone. So a plan is one of styles only if, over every tensor dim, each value arrives at
 * its readers as the hook of the module that makes it leaves it, and every op between modules may
 * be computed on the shards. If not, placements say the plan, and DTensor's dispatch finds what has
 * to be sent. */
#include "interop/export/torch_modules.h"

#include <string.h>

#include "core/graph/op_rules.h"

const char *dtp_torch_style(dtp_module_style style)
{
    static const char *const names[DTP_N_MODULE_STYLES] = {
        [DTP_MODULE_COLWISE] = "colwise",   [DTP_MODULE_COLWISE_GATHER] = "colwise",
        [DTP_MODULE_ROWWISE] = "rowwise",   [DTP_MODULE_EMBEDDING_ROWWISE] = "rowwise",
        [DTP_MODULE_SEQUENCE] = "sequence",
    };
    return names[style];
}

/* ---- values over one tensor dim ---- */

/* What is looked at: a tensor dim, and what modules do over it. */
typedef struct view {
    const dtp_placements *p;
    int32_t m;
    dtp_module_styles *styles;
    dtp_torch_module *io; /* by module of styles */
    const char *loss_module;
} view;

static const dtp_placement *read_of(const view *v, dtp_tensor_id t)
{
    return &v->p->uses.read[t].placement[v->m];
}

static const dtp_placement *made_of(const view *v, dtp_tensor_id t)
{
    return &v->p->uses.made[t].placement[v->m];
}

/* As a value comes to its readers. */
static const dtp_placement *arrives(const view *v, dtp_tensor_id t)
{
    return dtp_placements_maker(v->p, t) != NULL ? read_of(v, t) : made_of(v, t);
}

/* Notes an axis of ours as one of the module's tensor: those before `lead` are its own, the one at
 * `lead` is its last. False when it is another, or the module has another one elsewhere. */
static bool note(dtp_torch_side *side, const dtp_placement *at, int32_t lead)
{
    dtp_placement theirs = {.kind = at->kind, .axis = at->axis};
    if (at->kind == DTP_SHARD && at->axis >= lead) {
        theirs.axis = -1;
    }
    const bool fits = at->kind != DTP_PARTIAL && (at->kind != DTP_SHARD || at->axis <= lead) &&
                      (!side->seen || dtp_same_placement(&theirs, &side->at));
    *side = (dtp_torch_side){true, theirs};
    return fits;
}

/* Whether an op computes every part of what is split at an axis of operand i from that part alone,
 * wherever the part begins: its dim is one that no attribute names. */
static bool is_apart(const dtp_op_call *call, int32_t i, const dtp_placement *at)
{
    const dtp_dim_id d = call->in[i].dims[at->axis].id;
    dtp_sharding_rules rules;
    bool named = false, apart = false;
    for (const dtp_attr_spec *a = call->op->attrs; a != NULL && a->key != NULL; a++) {
        named = named || (a->kind == DTP_ATTR_DIM && dtp_call_dim(call, a->key) == d) ||
                a->kind == DTP_ATTR_DIMS;
    }
    dtp_sharding_rules_of(call, false, &rules);
    for (int32_t r = 1; r < rules.n; r++) {
        const dtp_sharding_rule *row = &rules.rows[r];
        apart = apart || (dtp_same_placement(&row->in[i], at) && row->out[0].kind == DTP_SHARD &&
                          !row->internal);
    }
    return apart && !named;
}

/* A value that gets a gradient and is read whole over the mesh dim. */
static bool is_whole_value(const view *v, dtp_tensor_id t)
{
    const dtp_graph_tensor *x = &v->p->graph->tensors[t];
    return x->producer >= 0 && v->p->graph->nodes[x->producer].n_in > 0 &&
           dtp_dtype_is_float(x->type.dtype) && dtp_graph_param_of(v->p->graph, t) < 0 &&
           read_of(v, t)->kind == DTP_REPLICATE;
}

/* Whether a node between modules may be computed on the shards of what it reads. Beside shards a
 * whole value has a gradient that is a sum over the ranks, which no hook makes. */
static bool is_local(view *v, const dtp_node *node)
{
    const dtp_graph *g = v->p->graph;
    dtp_call_types types;
    dtp_op_call call = dtp_node_call(g, node, &types);
    const uint32_t flags = (uint32_t)node->op->flags;
    bool local = true, split = false, whole = false;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_tensor_id param = dtp_graph_param_of(g, node->in[i]);
        const dtp_tensor_id t = param >= 0 ? param : node->in[i];
        const dtp_placement *at = read_of(v, t);
        split = split || at->kind == DTP_SHARD;
        whole = whole || is_whole_value(v, t);
        if (at->kind != DTP_SHARD || (flags & DTP_OP_ELEMENTWISE) != 0) {
            local = local && at->kind != DTP_PARTIAL;
            continue;
        }
        const dtp_dim_id d = types.in[i].dims[at->axis].id;
        if ((flags & DTP_OP_SOFTMAX_LOSS) != 0) {
            v->loss_module = dtp_placements_maker(v->p, t);
            local = local && i == 0 && d == dtp_call_dim(&call, "over") && v->loss_module != NULL;
        } else if ((flags & DTP_OP_NORM) != 0) {
            local = local && node->n_in > 1 && dtp_ttype_find(&types.in[i == 0 ? 1 : 0], d) < 0;
        } else {
            local = local && is_apart(&call, i, at);
        }
    }
    return local && !(split && whole);
}

/* Dims of the output, and of what is read, before those of the weight; of ops without one all. */
static void find_leads(const dtp_graph *g, const dtp_node *node, dtp_torch_module *io)
{
    io->lead = io->in_lead = DTP_MAX_RANK;
    if ((node->op->flags & (DTP_OP_CONTRACTION | DTP_OP_LOOKUP)) == 0 || node->n_in != 2) {
        return;
    }
    const int32_t x = dtp_graph_param_of(g, node->in[0]) >= 0 ? 1 : 0;
    const dtp_ttype *in = &g->tensors[node->in[x]].type, *out = &g->tensors[node->out[0]].type;
    io->lead = io->in_lead = 0;
    while (io->lead < out->rank && dtp_ttype_find(in, out->dims[io->lead].id) >= 0) {
        io->lead++;
    }
    while (io->in_lead < in->rank && dtp_ttype_find(out, in->dims[io->in_lead].id) >= 0) {
        io->in_lead++;
    }
}

/* What a node of a module reads: as it arrives, or as the hook of the module's style brings it. */
static bool check_operands(const view *v, const dtp_node *node, const char *module,
                           dtp_torch_module *io, bool styled)
{
    bool fits = true;
    for (int32_t i = 0; i < node->n_in && fits; i++) {
        const dtp_tensor_id t = node->in[i];
        const char *maker = dtp_placements_module(v->p, v->p->graph->tensors[t].producer);
        const bool inside = styled && maker != NULL && strcmp(maker, module) == 0;
        if (dtp_graph_param_of(v->p->graph, t) < 0 && !inside) {
            fits = !v->p->uses.several[t] &&
                   (styled ? note(&io->input, arrives(v, t), io->in_lead)
                           : dtp_same_placement(arrives(v, t), read_of(v, t)));
        }
    }
    return fits;
}

static bool check_node(view *v, const dtp_node *node, const char *module, int32_t index)
{
    dtp_torch_module none = {0}, *io = index >= 0 ? &v->io[index] : &none;
    const bool styled = dtp_torch_style(io->style) != NULL;
    const dtp_tensor_id out = node->out[0];
    const char *maker = dtp_placements_maker(v->p, out);
    if (styled && (node->op->flags & DTP_OP_ELEMENTWISE) == 0) {
        find_leads(v->p->graph, node, io);
    }
    if (!check_operands(v, node, module, io, styled) || (!styled && !is_local(v, node))) {
        return false;
    }
    if ((node->op->flags & DTP_OP_SOFTMAX_LOSS) != 0 || (styled && maker == NULL)) {
        return true;
    }
    if (maker == NULL || (!styled && dtp_same_placement(made_of(v, out), read_of(v, out)))) {
        return made_of(v, out)->kind != DTP_PARTIAL;
    }
    return (styled || note(&io->made, made_of(v, out), DTP_MAX_RANK)) &&
           note(&io->output, read_of(v, out), styled ? io->lead : DTP_MAX_RANK);
}

/* The module of a name among the styles; -1: NULL. */
static dtp_status find_module(dtp_module_styles *styles, const char *module, int32_t *out,
                              dtp_err *err)
{
    const dtp_placed of = {.module = module};
    *out = -1;
    return module == NULL ? DTP_OK : dtp_module_styles_index(styles, &of, out, err);
}

static dtp_status check_values(view *v, dtp_torch_plan *t, dtp_err *err)
{
    const dtp_graph *g = v->p->graph;
    bool *fits = &t->by_modules;
    for (int32_t i = 0; i < v->p->n_inputs && *fits; i++) {
        *fits = !dtp_splits_over(&v->p->inputs[i].kept, v->m);
        t->against = *fits ? NULL : v->p->inputs[i].name;
    }
    for (dtp_node_id n = 0; n < g->n_nodes && *fits; n++) {
        const char *module = dtp_placements_module(v->p, n);
        int32_t index;
        if (g->nodes[n].phase != DTP_FORWARD || dtp_graph_param_of(g, g->nodes[n].out[0]) >= 0) {
            continue;
        }
        DTP_TRY(find_module(v->styles, module, &index, err));
        *fits = check_node(v, &g->nodes[n], module, index);
        t->against = *fits ? NULL : g->tensors[g->nodes[n].out[0]].name;
    }
    return DTP_OK;
}

/* ---- parameters ---- */

/* PyTorch's layers keep [out, in], tables [rows, features]. */
static bool has_their_axis(const view *v, int32_t i)
{
    const dtp_placed *of = &v->p->params[i];
    const dtp_placement *at = &of->read.placement[v->m];
    const dtp_node *reader = &v->p->graph->nodes[of->reader];
    const bool lookup = (reader->op->flags & DTP_OP_LOOKUP) != 0;
    const bool rows = v->styles->wanted[i] == DTP_MODULE_ROWWISE ||
                      v->styles->wanted[i] == DTP_MODULE_EMBEDDING_ROWWISE;
    return at->kind != DTP_SHARD || of->type.rank == 1 ||
           (of->type.rank == 2 && at->axis == (rows != lookup ? 1 : 0));
}

/* Whether every part of a parameter is kept and read whole, beside values that are whole. */
static bool is_whole(const view *v, const dtp_placed *of)
{
    const dtp_placements *p = v->p;
    bool whole = true;
    for (int32_t i = 0; i < of->n_of; i++) {
        const dtp_tensor_id t = of->of[i];
        whole = whole && p->uses.reader[t] >= 0 && !p->uses.several[t] &&
                read_of(v, t)->kind == DTP_REPLICATE &&
                p->plan->sharding.layouts[t].placement[v->m].kind == DTP_REPLICATE &&
                !dtp_node_splits_values(p, &p->graph->nodes[p->uses.reader[t]], v->m);
    }
    return whole;
}

/* Whether a parameter is covered by its module's style, or read by an op that may be computed on
 * what it reads. */
static bool check_param(const view *v, int32_t i, bool *moved)
{
    const dtp_placed *of = &v->p->params[i];
    const dtp_module_style style = v->styles->modules[v->styles->of[i]].style;
    const dtp_module_style wanted = v->styles->wanted[i];
    if (of->reader < 0 || v->p->uses.several[of->of[0]] || (of->n_of > 1 && !is_whole(v, of))) {
        return false;
    }
    *moved = *moved || !dtp_same_placement(&of->kept.placement[v->m], &of->read.placement[v->m]);
    if (dtp_torch_style(style) != NULL) {
        return dtp_module_style_fits(style, wanted) && has_their_axis(v, i);
    }
    if (wanted != DTP_MODULE_WHOLE && wanted != DTP_MODULE_REPLICATE) {
        *moved = true;
        return (v->p->graph->nodes[of->reader].op->flags & (DTP_OP_ELEMENTWISE | DTP_OP_NORM)) != 0;
    }
    return true;
}

/* ---- all tensor dims ---- */

static bool same_side(const dtp_torch_side *a, const dtp_torch_side *b)
{
    return a->seen == b->seen && (!a->seen || dtp_same_placement(&a->at, &b->at));
}

/* What modules do over one more tensor dim: nothing, or the same as over those before. */
static bool merge(dtp_torch_plan *t, const view *v)
{
    bool fits = true;
    for (int32_t i = 0; i < v->styles->n; i++) {
        dtp_torch_module *to = &t->modules[i];
        const dtp_torch_module *io = &v->io[i];
        if (dtp_torch_style(io->style) == NULL && !io->made.seen) {
            continue;
        }
        const dtp_mesh_set dims = to->dims | 1U << v->m;
        fits = fits && (to->dims == 0 ||
                        (to->style == io->style && same_side(&to->input, &io->input) &&
                         same_side(&to->output, &io->output) && same_side(&to->made, &io->made)));
        *to = *io;
        to->dims = dims;
    }
    t->loss_module = v->loss_module != NULL ? v->loss_module : t->loss_module;
    return fits;
}

static dtp_status check_dim(dtp_torch_plan *t, int32_t m, bool patterns, dtp_err *err)
{
    const dtp_placements *p = t->p;
    t->styles = (dtp_module_styles){.p = p, .m = m, .patterns = patterns, .reads = true};
    view v = {.p = p, .m = m, .styles = &t->styles};
    DTP_TRY(dtp_module_styles_find(&t->styles, err));
    DTP_TRY(DTP_NEW(p->arena, v.io, p->n_params + p->n_tied + p->n_activations + 1, err));
    for (int32_t i = 0; i < t->styles.n; i++) {
        v.io[i].style = t->styles.modules[i].style;
    }
    for (int32_t i = 0; i < p->n_params + p->n_tied && t->by_modules; i++) {
        const bool tied = i >= p->n_params;
        t->by_modules = check_param(&v, i, &t->moved[i]) && !(tied && t->moved[i]);
        t->against = t->by_modules ? NULL : p->params[i].name;
    }
    DTP_TRY(check_values(&v, t, err));
    t->by_modules = t->by_modules && merge(t, &v);
    return DTP_OK;
}

/* Whether tensor dims split in mesh order, as one mesh dim made of several does. */
static bool check_orders(const dtp_torch_plan *t)
{
    const dtp_uses_of_layouts *uses = &t->p->uses;
    int32_t rank[DTP_MAX_MESH_DIMS];
    bool in_order = true;
    for (int32_t m = 0; m < t->p->plan->mesh.n_dims; m++) {
        rank[m] = t->dim[m] == DTP_TORCH_TENSOR ? m : -1;
    }
    for (dtp_tensor_id v = 0; v < t->p->graph->n_tensors; v++) {
        if (dtp_placements_is_value(t->p->graph, v)) {
            in_order = in_order && dtp_placements_in_order(&uses->read[v], rank) &&
                       dtp_placements_in_order(&uses->made[v], rank);
        }
    }
    for (int32_t i = 0; i < t->p->n_params; i++) {
        in_order = in_order && dtp_placements_in_order(&t->p->params[i].read, rank) &&
                   dtp_placements_in_order(&t->p->params[i].kept, rank);
    }
    return in_order;
}

/* The forward nodes that read a value. */
typedef struct readers {
    int32_t n;
    dtp_mesh_set dims; /* over which the modules of all have a style */
    bool others;       /* not all have one, over the same dims */
} readers;

static dtp_status find_readers(dtp_torch_plan *t, readers *of, dtp_err *err)
{
    const dtp_graph *g = t->p->graph;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        int32_t index;
        DTP_TRY(find_module(&t->styles, dtp_placements_module(t->p, n), &index, err));
        const dtp_torch_module *io = index >= 0 ? &t->modules[index] : NULL;
        const bool styled =
            io != NULL && dtp_torch_style(io->style) != NULL && io->style != DTP_MODULE_SEQUENCE;
        for (int32_t i = 0; i < g->nodes[n].n_in && g->nodes[n].phase == DTP_FORWARD; i++) {
            readers *r = &of[g->nodes[n].in[i]];
            r->others = r->others || !styled || (r->n > 0 && r->dims != io->dims);
            r->dims = styled ? io->dims : 0;
            r->n++;
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        of[g->outputs[i]].others = true;
    }
    return DTP_OK;
}

/* Outputs of modules that are read as DTensors: the gradients of their readers are summed before
 * they are reduced, to where the module made the output. */
static dtp_status find_dtensors(dtp_torch_plan *t, dtp_err *err)
{
    const dtp_graph *g = t->p->graph;
    readers *of;
    bool *not_all;
    DTP_TRY(DTP_NEW(t->p->arena, of, g->n_tensors, err));
    DTP_TRY(DTP_NEW(t->p->arena, not_all, t->styles.n + 1, err));
    DTP_TRY(find_readers(t, of, err));
    for (dtp_tensor_id v = 0; v < g->n_tensors; v++) {
        int32_t index;
        DTP_TRY(find_module(&t->styles,
                            dtp_placements_is_value(g, v) ? dtp_placements_maker(t->p, v) : NULL,
                            &index, err));
        if (index < 0 || of[v].n == 0) {
            continue;
        }
        dtp_torch_module *io = &t->modules[index];
        bool whole = true;
        for (int32_t m = 0; m < t->p->plan->mesh.n_dims; m++) {
            whole = whole && (t->dim[m] != DTP_TORCH_TENSOR ||
                              t->p->uses.read[v].placement[m].kind == DTP_REPLICATE);
        }
        const bool plain = !io->output.seen;
        const bool wanted = whole && !of[v].others && of[v].n > (plain ? 1 : 0) &&
                            of[v].dims != 0 && (io->dims == 0 || io->dims == of[v].dims);
        not_all[index] = not_all[index] || !wanted;
        io->dims = plain && dtp_torch_style(io->style) == NULL ? (not_all[index] ? 0 : of[v].dims)
                                                               : io->dims;
        io->dtensor = !not_all[index];
    }
    return DTP_OK;
}

dtp_layout dtp_torch_gradient(const dtp_torch_plan *t, int32_t param)
{
    const dtp_placed *of = &t->p->params[param];
    dtp_layout out = of->read;
    for (int32_t m = 0; m < out.n_mesh; m++) {
        const bool sums = t->dim[m] == DTP_TORCH_DATA ||
                          (t->dim[m] == DTP_TORCH_TENSOR && of->reader >= 0 &&
                           dtp_node_splits_values(t->p, &t->p->graph->nodes[of->reader], m));
        if (out.placement[m].kind != DTP_SHARD && sums) {
            out.placement[m] = (dtp_placement){.kind = DTP_PARTIAL};
        }
    }
    return out;
}

/* The data dims that split a parameter; *axis: which, -1: several. */
static dtp_mesh_set data_splits(const dtp_torch_plan *t, const dtp_placed *of, int32_t *axis)
{
    dtp_mesh_set set = 0;
    for (int32_t m = 0; m < of->kept.n_mesh; m++) {
        const dtp_placement *at = &of->kept.placement[m];
        if (t->dim[m] == DTP_TORCH_DATA && at->kind == DTP_SHARD) {
            *axis = set == 0 || *axis == at->axis ? at->axis : -1;
            set |= 1U << m;
        }
    }
    return set;
}

/* Parameters that the data dims split: those that are split over the dims of the first are
 * fully_shard's. */
static void find_sharded(dtp_torch_plan *t)
{
    for (int32_t i = 0; i < t->p->n_params; i++) {
        const dtp_placed *of = &t->p->params[i];
        int32_t axis = -1;
        const dtp_mesh_set set = data_splits(t, of, &axis);
        const bool can = axis >= 0 && !t->moved[i] &&
                         dtp_layout_is_even(&of->kept, &t->p->plan->mesh, &of->type);
        t->shard = t->shard == 0 && can ? set : t->shard;
        t->sharded[i] = set != 0 && can && set == t->shard;
        t->moved[i] = t->moved[i] || (set != 0 && !t->sharded[i]);
    }
}

/* ---- the plan ---- */

static dtp_status check_modules(dtp_torch_plan *t, bool patterns, dtp_err *err)
{
    const dtp_placements *p = t->p;
    DTP_TRY(DTP_NEW(p->arena, t->sharded, p->n_params + 1, err));
    DTP_TRY(DTP_NEW(p->arena, t->moved, p->n_params + p->n_tied + 1, err));
    DTP_TRY(DTP_NEW(p->arena, t->modules, p->n_params + p->n_tied + p->n_activations + 1, err));
    t->loss_module = t->against = NULL;
    t->by_modules = check_orders(t);
    for (int32_t m = 0; m < p->plan->mesh.n_dims && t->by_modules; m++) {
        DTP_TRY(t->dim[m] == DTP_TORCH_TENSOR ? check_dim(t, m, patterns, err) : DTP_OK);
    }
    return t->by_modules && t->styles.n > 0 ? find_dtensors(t, err) : DTP_OK;
}

dtp_status dtp_torch_plan_make(const dtp_placements *p, dtp_torch_plan *out, dtp_err *err)
{
    bool context = false;
    const dtp_target *target;
    DTP_TRY(dtp_target_find(p->plan->target, &target, err));
    *out = (dtp_torch_plan){.p = p, .fsdp = target->fsdp};
    for (int32_t m = 0; m < p->plan->mesh.n_dims; m++) {
        out->dim[m] = dtp_torch_dim_of(p, m);
        context = context || out->dim[m] == DTP_TORCH_CONTEXT;
    }
    DTP_TRY(check_modules(out, true, err));
    if (!out->by_modules) {
        DTP_TRY(check_modules(out, false, err));
    }
    if (out->by_modules) {
        find_sharded(out);
        dtp_torch_degrees_find(out);
        out->by_modules = !context;
    }
    for (int32_t m = 0; m < p->plan->mesh.n_dims && !out->by_modules; m++) {
        bool fed = p->n_inputs > 0;
        for (int32_t i = 0; i < p->n_inputs; i++) {
            const dtp_placement *at = &p->inputs[i].kept.placement[m];
            fed = fed && at->kind == DTP_SHARD && at->axis == 0;
        }
        out->dim[m] = fed ? DTP_TORCH_DATA : DTP_TORCH_TENSOR;
    }
    return DTP_OK;
}
