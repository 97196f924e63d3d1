/* What a module of transformers leaves under a tp_plan. */
#include "interop/export/hf_flow.h"

#include <string.h>

#include "core/graph/op_rules.h"

/* ---- modules and parameters ---- */

/* PyTorch's layers keep [out, in], tables [rows, features]. */
static bool has_their_axis(const dtp_placements *p, const dtp_placed *of, dtp_module_style wanted,
                           int32_t m)
{
    const dtp_placement *at = &of->read.placement[m];
    const bool lookup = (p->graph->nodes[of->reader].op->flags & DTP_OP_LOOKUP) != 0;
    const bool rows = wanted == DTP_MODULE_ROWWISE || wanted == DTP_MODULE_EMBEDDING_ROWWISE;
    return at->kind != DTP_SHARD || of->type.rank == 1 ||
           (of->type.rank == 2 && at->axis == (rows != lookup ? 1 : 0));
}

/* packed_colwise of transformers cuts two parts of one size. */
static bool is_pair(const dtp_placements *p, const dtp_placed *of)
{
    const dtp_ttype *a = &p->graph->tensors[of->of[0]].type;
    const dtp_ttype *b = &p->graph->tensors[of->of[of->n_of - 1]].type;
    bool same = of->n_of == 2 && a->rank == b->rank;
    for (int32_t i = 0; same && i < a->rank; i++) {
        same = a->dims[i].size == b->dims[i].size;
    }
    return same;
}

bool dtp_hf_is_layers(const dtp_placed *of)
{
    const char *leaf = strrchr(of->name, '.');
    leaf = leaf != NULL ? leaf + 1 : of->name;
    return strcmp(leaf, "weight") == 0 || strcmp(leaf, "bias") == 0;
}

/* Whether transformers cuts a parameter as the plan does, where its module's style splits it. */
static bool can_split(const dtp_module_styles *s, int32_t i)
{
    const dtp_placed *of = &s->p->params[i];
    const bool layers = s->p->names == NULL || dtp_hf_is_layers(of);
    return of->reader < 0 || !dtp_splits_over(&of->read, s->m) ||
           (layers && has_their_axis(s->p, of, s->wanted[i], s->m) &&
            (of->n_of == 1 || is_pair(s->p, of)));
}

static bool splits(dtp_module_style style)
{
    return dtp_module_style_is_colwise(style) || style == DTP_MODULE_ROWWISE ||
           style == DTP_MODULE_EMBEDDING_ROWWISE;
}

/* The axis of a parameter of ours that its module has parts of, -1: it is whole. */
static int32_t axis_of_param(const dtp_hf_flow *f, dtp_tensor_id param)
{
    const dtp_module_styles *s = f->s;
    const dtp_placement *at = &s->p->uses.read[param].placement[s->m];
    for (int32_t i = 0; i < s->p->n_params; i++) {
        for (int32_t k = 0; k < s->p->params[i].n_of; k++) {
            if (s->p->params[i].of[k] == param) {
                const int32_t module = s->of[i];
                return splits(s->modules[module].style) && !f->modules[module].refused &&
                               at->kind == DTP_SHARD
                           ? at->axis
                           : -1;
            }
        }
    }
    return -1;
}

/* ---- a node ---- */

typedef struct node_view {
    const dtp_node *node;
    dtp_op_call call;
    dtp_call_types types;
    int32_t at[DTP_MAX_OP_IN];          /* the axis of each operand that is split, -1: none */
    bool gradient[DTP_MAX_OP_IN];       /* it gets one */
    dtp_tensor_id param[DTP_MAX_OP_IN]; /* -1: a value */
    int32_t weight; /* the parameter that is split, of several axes or a table; -1: none */
    bool any;       /* some value is split */
    bool gather;    /* the values that are split have to be gathered before */
    int32_t out;    /* the axis of what it makes, -1: whole */
} node_view;

static void look_at(const dtp_hf_flow *f, const bool *learns, const dtp_node *node, node_view *v)
{
    const dtp_graph *g = f->s->p->graph;
    v->node = node;
    v->call = dtp_node_call(g, node, &v->types);
    v->weight = -1;
    v->out = -1;
    v->any = v->gather = false;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_tensor_id t = node->in[i];
        v->param[i] = dtp_graph_param_of(g, t);
        v->at[i] = v->param[i] >= 0 ? axis_of_param(f, v->param[i]) : f->split[t];
        v->gradient[i] =
            dtp_dtype_is_float(g->tensors[t].type.dtype) && (v->param[i] >= 0 || learns[t]);
        if (v->param[i] >= 0 && v->at[i] >= 0 && (node->op->flags & DTP_OP_ELEMENTWISE) == 0) {
            v->weight = i;
        }
        v->any = v->any || (v->param[i] < 0 && v->at[i] >= 0);
    }
}

/* A product or a look-up with a weight that is split. */
static void follow_weight(node_view *v, dtp_hf_module *module)
{
    const dtp_node *node = v->node;
    const dtp_dim_id d = v->types.in[v->weight].dims[v->at[v->weight]].id;
    const bool lookup = (node->op->flags & DTP_OP_LOOKUP) != 0;
    const int32_t out = dtp_ttype_find(&v->types.out[0], d);
    bool whole = false, along = true;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_dim_id of =
            i != v->weight && v->at[i] >= 0 ? v->types.in[i].dims[v->at[i]].id : -1;
        whole = whole || (i != v->weight && of < 0);
        along = along && (of < 0 || (of == d && out < 0 && !lookup));
    }
    module->act = lookup ? (out >= 0 ? DTP_HF_TABLE_COLUMNS : DTP_HF_TABLE_ROWS)
                         : (out >= 0 ? DTP_HF_COLWISE : DTP_HF_ROWWISE);
    module->split_input = module->split_input || (module->act == DTP_HF_ROWWISE && whole);
    v->gather = !along || (v->any && whole);
    v->out = module->act == DTP_HF_COLWISE && !module->gathers ? out : -1;
}

/* Whether a rule computes the parts of an op from the parts of its operands alone. */
static bool rule_fits(const node_view *v, const dtp_sharding_rule *rule)
{
    bool fits = !rule->internal;
    for (int32_t i = 0; i < v->node->n_in && fits; i++) {
        fits = v->at[i] >= 0 ? rule->in[i].kind == DTP_SHARD && rule->in[i].axis == v->at[i]
                             : rule->in[i].kind == DTP_REPLICATE;
    }
    for (int32_t i = 0; i < v->node->n_out && fits; i++) {
        fits = rule->out[i].kind == DTP_SHARD;
    }
    return fits;
}

/* Whether an attribute names the dim that is split: parts then are not like the whole. */
static bool is_named(const node_view *v)
{
    bool named = false;
    if ((v->node->op->flags & (DTP_OP_ELEMENTWISE | DTP_OP_NORM)) != 0) {
        return false;
    }
    for (const dtp_attr_spec *a = v->call.op->attrs; a != NULL && a->key != NULL; a++) {
        for (int32_t i = 0; i < v->node->n_in; i++) {
            named = named || a->kind == DTP_ATTR_DIMS ||
                    (a->kind == DTP_ATTR_DIM && v->at[i] >= 0 &&
                     dtp_call_dim(&v->call, a->key) == v->types.in[i].dims[v->at[i]].id);
        }
    }
    return named;
}

/* An op that knows of no ranks. Beside parts the gradient of a whole value is a sum, which only the
 * style of a norm makes, of its own parameters. */
static void follow_op(node_view *v, dtp_hf_module *module)
{
    dtp_sharding_rules rules;
    bool sums = false, fits = false;
    for (int32_t i = 0; i < v->node->n_in; i++) {
        const bool whole = v->at[i] < 0 && v->gradient[i];
        const bool norms = module != NULL && v->param[i] >= 0 && module->act == DTP_HF_WHOLE &&
                           (v->node->op->flags & DTP_OP_NORM) != 0;
        sums = sums || (whole && !norms);
    }
    if (!v->any) {
        return;
    }
    dtp_sharding_rules_of(&v->call, false, &rules);
    for (int32_t r = 1; r < rules.n && !fits; r++) {
        fits = rule_fits(v, &rules.rows[r]);
        v->out = fits ? rules.rows[r].out[0].axis : -1;
    }
    fits = fits && !sums && (v->node->op->flags & DTP_OP_SOFTMAX_LOSS) == 0 && !is_named(v);
    v->gather = !fits;
    v->out = fits ? v->out : -1;
    if (module != NULL && fits && module->act == DTP_HF_WHOLE) {
        module->sums = true;
    }
}

/* ---- the graph ---- */

typedef struct walk {
    dtp_hf_flow *f;
    int32_t *source; /* by tensor: the module that left it split, -1 */
    bool *learns;    /* by tensor: made from a parameter */
    bool changed;    /* a module gathers now, or is whole */
} walk;

static void gather(walk *w, dtp_tensor_id t)
{
    dtp_hf_module *from = &w->f->modules[w->source[t]];
    w->changed = w->changed || (from->packed ? !from->refused : !from->gathers);
    from->refused = from->refused || from->packed;
    from->gathers = true;
}

static dtp_status follow_node(walk *w, const dtp_node *node, dtp_node_id n, dtp_err *err)
{
    dtp_hf_flow *f = w->f;
    const char *name = dtp_placements_module(f->s->p, n);
    const dtp_placed of = {.module = name};
    int32_t index = -1, source = -1;
    node_view v;
    if (name != NULL) {
        DTP_TRY(dtp_module_styles_index(f->s, &of, &index, err));
    }
    look_at(f, w->learns, node, &v);
    for (int32_t i = 0; i < node->n_in; i++) {
        source = v.param[i] < 0 && v.at[i] >= 0 ? w->source[node->in[i]] : source;
    }
    dtp_hf_module *module = index >= 0 ? &f->modules[index] : NULL;
    if (v.weight >= 0 && module != NULL) {
        follow_weight(&v, module);
        source = index;
    } else if (module != NULL && module->act == DTP_HF_COLWISE &&
               (node->op->flags & DTP_OP_ELEMENTWISE) != 0) {
        for (int32_t i = 0; i < v.node->n_in; i++) { /* a bias is split as the sum, or whole */
            v.out = v.param[i] < 0 && v.at[i] >= 0
                        ? dtp_ttype_find(&v.types.out[0], v.types.in[i].dims[v.at[i]].id)
                        : v.out;
        }
    } else {
        follow_op(&v, module);
    }
    for (int32_t i = 0; i < node->n_in && v.gather; i++) {
        if (v.param[i] < 0 && v.at[i] >= 0) {
            gather(w, node->in[i]);
        }
    }
    bool learns = false;
    for (int32_t i = 0; i < node->n_in; i++) {
        learns = learns || v.gradient[i];
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        w->learns[node->out[i]] = learns;
        f->split[node->out[i]] = v.out;
        w->source[node->out[i]] = v.out >= 0 ? source : -1;
    }
    return DTP_OK;
}

static dtp_status follow(walk *w, dtp_err *err)
{
    const dtp_graph *g = w->f->s->p->graph;
    w->changed = false;
    for (int32_t i = 0; i < w->f->s->n; i++) {
        dtp_hf_module *module = &w->f->modules[i];
        module->act = DTP_HF_WHOLE;
        module->split_input = module->sums = false;
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        w->f->split[t] = w->source[t] = -1;
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        if (g->nodes[n].phase == DTP_FORWARD && dtp_graph_param_of(g, g->nodes[n].out[0]) < 0) {
            DTP_TRY(follow_node(w, &g->nodes[n], n, err));
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (w->f->split[g->outputs[i]] >= 0) {
            gather(w, g->outputs[i]);
        }
    }
    for (int32_t i = 0; i < w->f->s->n; i++) { /* a vector alone: transformers splits layers */
        dtp_hf_module *module = &w->f->modules[i];
        const bool alone = splits(w->f->s->modules[i].style) && module->act == DTP_HF_WHOLE;
        w->changed = w->changed || (alone && !module->refused);
        module->refused = module->refused || alone;
    }
    return DTP_OK;
}

/* The product whose values a router chooses by: no layer of transformers has a style for it. */
static dtp_status refuse_routers(dtp_hf_flow *f, dtp_err *err)
{
    const dtp_graph *g = f->s->p->graph;
    const dtp_op_def *topk = dtp_op_set_find(g->ops, "topk");
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        dtp_node_id at = node->phase == DTP_FORWARD && node->op == topk ? n : -1;
        while (at >= 0 && (g->nodes[at].op->flags & DTP_OP_CONTRACTION) == 0) {
            at = g->nodes[at].n_in > 0 ? g->tensors[g->nodes[at].in[0]].producer : -1;
        }
        const dtp_placed of = {.module = dtp_placements_module(f->s->p, at)};
        if (of.module != NULL) {
            int32_t index;
            DTP_TRY(dtp_module_styles_index(f->s, &of, &index, err));
            f->modules[index].refused = true;
        }
    }
    return DTP_OK;
}

dtp_status dtp_hf_flow_find(dtp_module_styles *s, dtp_hf_flow *out, dtp_err *err)
{
    const dtp_placements *p = s->p;
    walk w = {.f = out, .changed = true};
    *out = (dtp_hf_flow){.s = s};
    DTP_TRY(DTP_NEW(p->arena, out->modules, p->n_params + p->n_tied + p->n_activations + 1, err));
    DTP_TRY(DTP_NEW(p->arena, out->split, p->graph->n_tensors + 1, err));
    DTP_TRY(DTP_NEW(p->arena, w.source, p->graph->n_tensors + 1, err));
    DTP_TRY(DTP_NEW(p->arena, w.learns, p->graph->n_tensors + 1, err));
    for (int32_t i = 0; i < p->n_params; i++) {
        dtp_hf_module *module = &out->modules[s->of[i]];
        module->packed = module->packed || p->params[i].n_of > 1;
        module->refused = module->refused || !can_split(s, i);
        module->gathers = s->modules[s->of[i]].style == DTP_MODULE_COLWISE_GATHER;
    }
    DTP_TRY(refuse_routers(out, err));
    while (w.changed) {
        DTP_TRY(follow(&w, err));
    }
    return DTP_OK;
}
