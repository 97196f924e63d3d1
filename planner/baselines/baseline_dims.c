/* A feature dim is made by the parameter of one einsum, contracted by that of another, and split
 * without communication by every node between: no op of the forward pass that has it needs it whole
 * or works inside on it (a norm over it, the feature of attention). Nodes are visited in order; a
 * parameter that contracts a feature dim is split by rows and makes none, so that in a chain of
 * einsums every second dim is split. Of several dims that one parameter makes, the first that
 * `parts` divides is taken (heads of keys before their groups).
 */
#include "core/graph/op_rules.h"
#include "planner/baselines/baseline_internal.h"

/* Facts by dim. */
typedef struct survey {
    const dtp_graph *g;
    int64_t parts;
    bool *made, *contracted, *whole, *taken; /* taken: decided, as a feature or against it */
    dtp_baseline_dims *out;
} survey;

static bool is_einsum_param(const dtp_graph *g, const dtp_node *n, int32_t operand)
{
    return n->phase == DTP_FORWARD && (n->op->flags & DTP_OP_CONTRACTION) != 0 &&
           dtp_graph_param_of(g, n->in[operand]) >= 0;
}

dtp_feature_use dtp_baseline__use(const dtp_graph *g, const dtp_node *n, int32_t operand,
                                  dtp_dim_id d)
{
    bool others = false;
    if (dtp_ttype_find(&g->tensors[n->in[operand]].type, d) < 0) {
        return DTP_USE_NONE;
    }
    for (int32_t i = 0; i < n->n_in; i++) {
        others = others || (i != operand && dtp_ttype_find(&g->tensors[n->in[i]].type, d) >= 0);
    }
    if (dtp_ttype_find(&g->tensors[n->out[0]].type, d) < 0) {
        return DTP_USE_CONTRACTED;
    }
    return others ? DTP_USE_SHARED : DTP_USE_MADE;
}

/* ---- what there is ---- */

/* Dims that no row of the op splits without work inside it. */
static void survey_rows(survey *s, const dtp_node *n)
{
    dtp_call_types types;
    dtp_sharding_rules rows;
    dtp_dim_id dims[DTP_MAX_OP_DIMS];
    const dtp_op_call call = dtp_node_call(s->g, n, &types);
    const int32_t n_dims = dtp_call_dims(&call, dims);
    dtp_sharding_rules_of(&call, false, &rows);
    for (int32_t i = 0; i < n_dims; i++) {
        bool free = false;
        for (int32_t r = 1; r < rows.n; r++) {
            const dtp_sharding_rule *row = &rows.rows[r];
            free = free || (!row->internal && !row->windows &&
                            (row->dim == dims[i] || row->out_dim == dims[i]));
        }
        s->whole[dims[i]] = s->whole[dims[i]] || !free;
    }
}

static void survey_graph(survey *s)
{
    for (int32_t i = 0; i < s->g->n_nodes && s->g->nodes[i].phase == DTP_FORWARD; i++) {
        const dtp_node *n = &s->g->nodes[i];
        dtp_call_types types;
        const dtp_op_call call = dtp_node_call(s->g, n, &types);
        if ((n->op->flags & DTP_OP_CONTRACTION) != 0) {
            for (int32_t operand = 0; operand < n->n_in; operand++) {
                const dtp_ttype *type = &s->g->tensors[n->in[operand]].type;
                for (int32_t a = 0; a < type->rank && is_einsum_param(s->g, n, operand); a++) {
                    const dtp_dim_id d = type->dims[a].id;
                    const dtp_feature_use use = dtp_baseline__use(s->g, n, operand, d);
                    s->made[d] = s->made[d] || use == DTP_USE_MADE;
                    s->contracted[d] = s->contracted[d] || use == DTP_USE_CONTRACTED;
                    if (use == DTP_USE_SHARED && s->out->experts < 0) {
                        s->out->experts = d;
                    }
                }
            }
        } else if ((n->op->flags & DTP_OP_ATTENTION) != 0 && s->out->sequence < 0) {
            s->out->sequence = dtp_call_dim(&call, "query");
        } else if ((n->op->flags & DTP_OP_SOFTMAX_LOSS) != 0) {
            s->out->vocab = dtp_call_dim(&call, "over");
        }
        survey_rows(s, n);
    }
    for (int32_t t = 0; t < s->g->n_tensors && s->out->batch < 0; t++) {
        const dtp_graph_tensor *x = &s->g->tensors[t];
        if (x->kind == DTP_TENSOR_INPUT && x->type.rank > 0) {
            s->out->batch = x->type.dims[0].id;
        }
    }
}

/* ---- deciding ---- */

/* The parameter contracts a feature dim. */
static bool by_rows(const survey *s, const dtp_node *n, int32_t operand)
{
    const dtp_ttype *type = &s->g->tensors[n->in[operand]].type;
    for (int32_t a = 0; a < type->rank; a++) {
        const dtp_dim_id d = type->dims[a].id;
        if (s->out->feature[d] && dtp_baseline__use(s->g, n, operand, d) == DTP_USE_CONTRACTED) {
            return true;
        }
    }
    return false;
}

/* One of the dims that the parameter makes becomes a feature, unless one is; the others never. */
static void decide(survey *s, const dtp_node *n, int32_t operand)
{
    const dtp_ttype *type = &s->g->tensors[n->in[operand]].type;
    bool found = by_rows(s, n, operand);
    dtp_tdim indivisible = {.id = -1};
    for (int32_t a = 0; a < type->rank; a++) {
        found = found || s->out->feature[type->dims[a].id];
    }
    for (int32_t a = 0; a < type->rank; a++) {
        const dtp_dim_id d = type->dims[a].id;
        if (dtp_baseline__use(s->g, n, operand, d) != DTP_USE_MADE || s->taken[d]) {
            continue;
        }
        s->taken[d] = true;
        if (found || !(s->made[d] && s->contracted[d] && !s->whole[d] && d != s->out->vocab)) {
            continue;
        }
        if (type->dims[a].size % s->parts == 0) {
            s->out->feature[d] = s->out->any_feature = found = true;
        } else if (indivisible.id < 0) {
            indivisible = type->dims[a];
        }
    }
    if (!found && indivisible.id >= 0) {
        s->out->indivisible = indivisible;
    }
}

static void decide_vocab(survey *s)
{
    const dtp_dim_id v = s->out->vocab;
    bool made = false;
    for (int32_t i = 0; i < s->g->n_nodes && v >= 0; i++) {
        const dtp_node *n = &s->g->nodes[i];
        for (int32_t k = 0; k < n->n_in; k++) {
            const dtp_ttype *type = &s->g->tensors[n->in[k]].type;
            if (is_einsum_param(s->g, n, k) && !by_rows(s, n, k) &&
                dtp_baseline__use(s->g, n, k, v) == DTP_USE_MADE) {
                made = dtp_ttype_size(type, v) % s->parts == 0;
            }
        }
    }
    s->out->vocab = made ? v : -1;
}

dtp_status dtp_baseline__dims(const dtp_graph *g, int64_t parts, dtp_arena *arena,
                              dtp_baseline_dims *out, dtp_err *err)
{
    const size_t n = (size_t)g->dims.n + 1;
    bool *flags = dtp_arena_alloc(arena, 5 * n, sizeof *flags);
    DTP_TRY(DTP_MEMORY(err, flags));
    *out = (dtp_baseline_dims){.batch = -1,
                               .sequence = -1,
                               .vocab = -1,
                               .experts = -1,
                               .feature = flags,
                               .indivisible = {.id = -1}};
    survey s = {.g = g,
                .parts = parts,
                .made = flags + n,
                .contracted = flags + 2 * n,
                .whole = flags + 3 * n,
                .taken = flags + 4 * n,
                .out = out};
    survey_graph(&s);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int32_t k = 0; k < g->nodes[i].n_in; k++) {
            if (is_einsum_param(g, &g->nodes[i], k)) {
                decide(&s, &g->nodes[i], k);
            }
        }
    }
    decide_vocab(&s);
    return DTP_OK;
}
