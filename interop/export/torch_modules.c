/* Under module styles values are local tensors between modules, and redistributed by the hooks of
 * modules alone. So a plan is one of styles only if, over every tensor dim, each value arrives at
 * its readers as the hook of the module that makes it leaves it, and every op between modules may
 * be computed on the shards. If not, placements say the plan, and DTensor's dispatch finds what has
 * to be sent. */
#include "interop/export/torch_modules.h"

#include <string.h>

const char *dtp_torch_style(dtp_module_style style)
{
    static const char *const names[DTP_N_MODULE_STYLES] = {
        [DTP_MODULE_COLWISE] = "colwise",   [DTP_MODULE_COLWISE_GATHER] = "colwise",
        [DTP_MODULE_ROWWISE] = "rowwise",   [DTP_MODULE_EMBEDDING_ROWWISE] = "rowwise",
        [DTP_MODULE_SEQUENCE] = "sequence",
    };
    return names[style];
}

static bool same(const dtp_placement *a, const dtp_placement *b)
{
    return a->kind == b->kind && a->axis == b->axis;
}

static bool is_forward_value(const dtp_graph *g, dtp_tensor_id t)
{
    const dtp_node_id n = g->tensors[t].producer;
    return n >= 0 && g->nodes[n].phase == DTP_FORWARD && dtp_graph_param_of(g, t) < 0;
}

/* ---- what mesh dims do ---- */

static bool is_idle(const dtp_placements *p, int32_t m)
{
    const dtp_layout *kept = p->plan->sharding.layouts;
    bool idle = true;
    for (dtp_tensor_id t = 0; t < p->graph->n_tensors; t++) {
        const dtp_tensor_kind kind = p->graph->tensors[t].kind;
        if (kind == DTP_TENSOR_PARAM || kind == DTP_TENSOR_INPUT || is_forward_value(p->graph, t)) {
            idle = idle && kept[t].placement[m].kind == DTP_REPLICATE &&
                   p->uses.made[t].placement[m].kind == DTP_REPLICATE &&
                   p->uses.read[t].placement[m].kind == DTP_REPLICATE;
        }
    }
    return idle;
}

/* Whether all layouts of a value split the batch dim over m, or, where it has none, nothing. */
static bool has_batch_split(const dtp_placements *p, dtp_tensor_id t, dtp_dim_id batch, int32_t m)
{
    const dtp_layout *of[] = {&p->plan->sharding.layouts[t], &p->uses.made[t], &p->uses.read[t]};
    const int32_t axis = dtp_ttype_find(&p->graph->tensors[t].type, batch);
    bool fits = true;
    for (int32_t i = 0; i < 3; i++) {
        const dtp_placement *at = &of[i]->placement[m];
        fits = fits && (axis >= 0 ? at->kind == DTP_SHARD && at->axis == axis
                                  : at->kind != DTP_SHARD && !p->uses.several[t]);
    }
    return fits;
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
    for (dtp_tensor_id t = 0; t < g->n_tensors && batch >= 0 && fits; t++) {
        if (g->tensors[t].kind == DTP_TENSOR_PARAM) {
            fits = p->uses.read[t].placement[m].kind == DTP_REPLICATE;
        } else if (g->tensors[t].kind == DTP_TENSOR_INPUT || is_forward_value(g, t)) {
            fits = has_batch_split(p, t, batch, m);
        }
    }
    return fits && batch >= 0;
}

/* ---- values over the tensor dims ---- */

/* Over all tensor dims a layout is the same, and splits are nested in mesh order. */
static bool is_uniform(const dtp_torch_plan *t, const dtp_layout *layout)
{
    bool uniform = true;
    int32_t last = -1;
    for (int32_t m = t->m; m < layout->n_mesh; m++) {
        const dtp_placement *at = &layout->placement[m];
        if (t->dim[m] == DTP_TORCH_TENSOR) {
            uniform = uniform && same(at, &layout->placement[t->m]) &&
                      (at->kind != DTP_SHARD || at->order > last);
            last = at->order;
        }
    }
    return uniform;
}

static const dtp_placement *read_of(const dtp_torch_plan *t, dtp_tensor_id v)
{
    return &t->p->uses.read[v].placement[t->m];
}

static const dtp_placement *made_of(const dtp_torch_plan *t, dtp_tensor_id v)
{
    return &t->p->uses.made[v].placement[t->m];
}

/* As a value comes to its readers. */
static const dtp_placement *arrives(const dtp_torch_plan *t, dtp_tensor_id v)
{
    return dtp_placements_maker(t->p, v) != NULL ? read_of(t, v) : made_of(t, v);
}

/* Notes an axis of ours as one of the module's tensor: those before `lead` are its own, the one at
 * `lead` is its last. False when it is another, or the module has another one elsewhere. */
static bool note(dtp_torch_side *side, const dtp_placement *at, int32_t lead)
{
    dtp_placement theirs = *at;
    if (at->kind == DTP_SHARD && at->axis >= lead) {
        theirs.axis = -1;
    }
    const bool fits = at->kind != DTP_PARTIAL && (at->kind != DTP_SHARD || at->axis <= lead) &&
                      (!side->seen || same(&theirs, &side->at));
    *side = (dtp_torch_side){true, theirs};
    return fits;
}

/* Whether a node between modules may be computed on the shards of what it reads. */
static bool is_local(dtp_torch_plan *t, const dtp_node *node)
{
    const dtp_graph *g = t->p->graph;
    dtp_call_types types;
    dtp_op_call call = dtp_node_call(g, node, &types);
    const uint32_t flags = (uint32_t)node->op->flags;
    bool local = true;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_tensor_id param = dtp_graph_param_of(g, node->in[i]);
        const dtp_tensor_id v = param >= 0 ? param : node->in[i];
        const dtp_placement *at = read_of(t, v);
        if (at->kind != DTP_SHARD || (flags & DTP_OP_ELEMENTWISE) != 0) {
            local = local && at->kind != DTP_PARTIAL;
            continue;
        }
        const dtp_dim_id d = types.in[i].dims[at->axis].id;
        if ((flags & DTP_OP_ATTENTION) != 0) {
            local = local && d != dtp_call_dim(&call, "query") && d != dtp_call_dim(&call, "key") &&
                    d != dtp_call_dim(&call, "feature");
        } else if ((flags & DTP_OP_SOFTMAX_LOSS) != 0) {
            t->loss_module = dtp_placements_maker(t->p, v);
            local = local && i == 0 && d == dtp_call_dim(&call, "over") && t->loss_module != NULL;
        } else {
            local = local && (flags & DTP_OP_NORM) != 0 && node->n_in > 1 &&
                    dtp_ttype_find(&types.in[i == 0 ? 1 : 0], d) < 0;
        }
    }
    return local;
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
static bool check_operands(dtp_torch_plan *t, const dtp_node *node, const char *module,
                           dtp_torch_module *io, bool styled)
{
    bool fits = true;
    for (int32_t i = 0; i < node->n_in && fits; i++) {
        const dtp_tensor_id v = node->in[i];
        const dtp_node_id producer = t->p->graph->tensors[v].producer;
        const char *maker = producer >= 0 ? dtp_placements_module(t->p, producer) : NULL;
        if (dtp_graph_param_of(t->p->graph, v) >= 0 ||
            (styled && maker != NULL && strcmp(maker, module) == 0)) {
            continue;
        }
        fits = !t->p->uses.several[v] && is_uniform(t, &t->p->uses.read[v]) &&
               is_uniform(t, &t->p->uses.made[v]);
        fits = fits && (styled ? note(&io->input, arrives(t, v), io->in_lead)
                               : same(arrives(t, v), read_of(t, v)));
    }
    return fits;
}

static bool check_node(dtp_torch_plan *t, const dtp_node *node, const char *module, int32_t index)
{
    dtp_torch_module none = {0}, *io = index >= 0 ? &t->io[index] : &none;
    const bool styled = index >= 0 && dtp_torch_style(t->styles.modules[index].style) != NULL;
    const dtp_tensor_id out = node->out[0];
    const char *maker = dtp_placements_maker(t->p, out);
    if (styled && (node->op->flags & DTP_OP_ELEMENTWISE) == 0) {
        find_leads(t->p->graph, node, io);
    }
    if (!check_operands(t, node, module, io, styled) || (!styled && !is_local(t, node))) {
        return false;
    }
    if ((node->op->flags & DTP_OP_SOFTMAX_LOSS) != 0 || (styled && maker == NULL)) {
        return true;
    }
    if (maker == NULL || (!styled && same(made_of(t, out), read_of(t, out)))) {
        return made_of(t, out)->kind != DTP_PARTIAL && is_uniform(t, &t->p->uses.made[out]);
    }
    return (styled || note(&io->made, made_of(t, out), DTP_MAX_RANK)) &&
           note(&io->output, read_of(t, out), styled ? io->lead : DTP_MAX_RANK);
}

/* The module of a name among the styles; -1: NULL. */
static dtp_status find_module(dtp_torch_plan *t, const char *module, int32_t *out, dtp_err *err)
{
    const dtp_placed of = {.module = module};
    *out = -1;
    return module == NULL ? DTP_OK : dtp_module_styles_index(&t->styles, &of, out, err);
}

/* Who reads what modules make; readers in common matter for what is whole. */
static dtp_status count_readers(dtp_torch_plan *t, dtp_err *err)
{
    const dtp_graph *g = t->p->graph;
    int32_t *count;
    DTP_TRY(DTP_NEW(t->p->arena, count, g->n_tensors, err));
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        int32_t reader, maker;
        DTP_TRY(find_module(t, dtp_placements_module(t->p, n), &reader, err));
        for (int32_t i = 0; i < g->nodes[n].n_in && g->nodes[n].phase == DTP_FORWARD; i++) {
            const dtp_tensor_id v = g->nodes[n].in[i];
            DTP_TRY(find_module(t, dtp_placements_maker(t->p, v), &maker, err));
            if (maker < 0 || dtp_graph_param_of(g, v) >= 0) {
                continue;
            }
            dtp_torch_module *io = &t->io[maker];
            const bool styled =
                reader >= 0 && dtp_torch_style(t->styles.modules[reader].style) != NULL;
            count[v]++;
            io->readers = count[v] > io->readers ? count[v] : io->readers;
            io->loose = io->loose || !styled || arrives(t, v)->kind != DTP_REPLICATE;
        }
    }
    return DTP_OK;
}

static dtp_status check_values(dtp_torch_plan *t, bool *fits, dtp_err *err)
{
    const dtp_graph *g = t->p->graph;
    for (int32_t i = 0; i < t->p->n_inputs && *fits; i++) {
        *fits = !dtp_splits_over(&t->p->inputs[i].kept, t->m);
    }
    for (dtp_node_id n = 0; n < g->n_nodes && *fits; n++) {
        const dtp_node *node = &g->nodes[n];
        const char *module = dtp_placements_module(t->p, n);
        int32_t index = -1;
        if (node->phase != DTP_FORWARD || dtp_graph_param_of(g, node->out[0]) >= 0) {
            continue;
        }
        DTP_TRY(find_module(t, module, &index, err));
        *fits = check_node(t, node, module, index);
    }
    return *fits ? count_readers(t, err) : DTP_OK;
}

/* ---- parameters ---- */

/* PyTorch's layers keep [out, in], tables [rows, features]. */
static bool has_their_axis(const dtp_torch_plan *t, int32_t i)
{
    const dtp_placed *of = &t->p->params[i];
    const dtp_placement *at = &of->read.placement[t->m];
    const dtp_node_id reader = t->p->uses.reader[of->of[0]];
    const bool lookup = (t->p->graph->nodes[reader].op->flags & DTP_OP_LOOKUP) != 0;
    const bool rows = t->styles.wanted[i] == DTP_MODULE_ROWWISE ||
                      t->styles.wanted[i] == DTP_MODULE_EMBEDDING_ROWWISE;
    return at->kind != DTP_SHARD || of->type.rank == 1 ||
           (of->type.rank == 2 && at->axis == (rows != lookup ? 1 : 0));
}

/* Whether a parameter is covered by its module's style, or read by an op that may be computed on
 * what it reads. */
static bool check_param(dtp_torch_plan *t, int32_t i)
{
    const dtp_placed *of = &t->p->params[i];
    const dtp_module_style style = t->styles.modules[t->styles.of[i]].style;
    const dtp_module_style wanted = t->styles.wanted[i];
    const dtp_node_id reader = t->p->uses.reader[of->of[0]];
    t->moved[i] =
        !same(&of->kept.placement[t->m], &of->read.placement[t->m]) || !is_uniform(t, &of->kept);
    if (reader < 0 || t->p->uses.several[of->of[0]] || of->n_of > 1 || !is_uniform(t, &of->read)) {
        return false;
    }
    if (dtp_torch_style(style) != NULL) {
        return dtp_module_style_fits(style, wanted) && has_their_axis(t, i);
    }
    if (wanted != DTP_MODULE_WHOLE && wanted != DTP_MODULE_REPLICATE) {
        t->moved[i] = true;
        return (t->p->graph->nodes[reader].op->flags & (DTP_OP_ELEMENTWISE | DTP_OP_NORM)) != 0;
    }
    return true;
}

dtp_layout dtp_torch_gradient(const dtp_torch_plan *t, int32_t param)
{
    const dtp_placed *of = &t->p->params[param];
    const dtp_node_id reader = t->p->uses.reader[of->of[0]];
    dtp_layout out = of->read;
    for (int32_t m = 0; m < out.n_mesh; m++) {
        const bool sums = t->dim[m] == DTP_TORCH_DATA ||
                          (t->dim[m] == DTP_TORCH_TENSOR && reader >= 0 &&
                           dtp_node_splits_values(t->p, &t->p->graph->nodes[reader], m));
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
    t->styles = (dtp_module_styles){.p = p, .m = t->m, .patterns = patterns, .reads = true};
    DTP_TRY(dtp_module_styles_find(&t->styles, err));
    DTP_TRY(DTP_NEW(p->arena, t->io, p->n_params + p->n_activations + 1, err));
    t->loss_module = NULL;
    t->modules = true;
    for (int32_t i = 0; i < p->n_params && t->m >= 0 && t->modules; i++) {
        t->modules = check_param(t, i);
    }
    return t->m >= 0 ? check_values(t, &t->modules, err) : DTP_OK;
}

dtp_status dtp_torch_plan_make(const dtp_placements *p, dtp_torch_plan *out, dtp_err *err)
{
    *out = (dtp_torch_plan){.p = p, .m = -1};
    DTP_TRY(DTP_NEW(p->arena, out->sharded, p->n_params + 1, err));
    DTP_TRY(DTP_NEW(p->arena, out->moved, p->n_params + 1, err));
    for (int32_t m = p->plan->mesh.n_dims - 1; m >= 0; m--) {
        out->dim[m] = is_idle(p, m)   ? DTP_TORCH_IDLE
                      : is_data(p, m) ? DTP_TORCH_DATA
                                      : DTP_TORCH_TENSOR;
        out->m = out->dim[m] == DTP_TORCH_TENSOR ? m : out->m;
    }
    DTP_TRY(check_modules(out, true, err));
    if (!out->modules) {
        DTP_TRY(check_modules(out, false, err));
    }
    if (out->modules) {
        find_sharded(out);
    }
    for (int32_t m = 0; m < p->plan->mesh.n_dims && !out->modules; m++) {
        bool fed = p->n_inputs > 0;
        for (int32_t i = 0; i < p->n_inputs; i++) {
            const dtp_placement *at = &p->inputs[i].kept.placement[m];
            fed = fed && at->kind == DTP_SHARD && at->axis == 0;
        }
        out->dim[m] = fed ? DTP_TORCH_DATA : DTP_TORCH_TENSOR;
    }
    return DTP_OK;
}
