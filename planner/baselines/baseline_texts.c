/* The styles that a recipe means for a graph. The instances of a repeated block share their styles:
 * numbers between dots become '*'. */
#include "planner/baselines/baseline_internal.h"

#include <string.h>

#include "core/base/strbuf.h"

/* ---- texts ---- */

/* "layers.17.mlp.w1" -> "layers.*.mlp.w1" */
static void add_pattern(dtp_strbuf *b, const char *name)
{
    for (const char *at = name; *at != '\0';) {
        const size_t len = strcspn(at, ".");
        const size_t digits = strspn(at, "0123456789");
        dtp_strbuf_addf(b, "%.*s", digits == len ? 1 : (int)len, digits == len ? "*" : at);
        at += len;
        if (*at == '.') {
            dtp_strbuf_add(b, ".");
            at++;
        }
    }
}

/* The name is also that of a module with nodes or parameters inside; what a node makes besides its
 * first output is no such name. */
static bool is_module(const dtp_graph *g, const char *name)
{
    const size_t n = strlen(name);
    bool found = false;
    for (int32_t i = 0; i < g->n_tensors && !found; i++) {
        const char *other = g->tensors[i].name;
        found = g->tensors[i].out_index == 0 && strncmp(other, name, n) == 0 && other[n] == '.';
    }
    return found;
}

/* Enters the text of b once and empties b. */
static dtp_status enter(dtp_baseline_writing *w, dtp_strbuf *b, dtp_err *err)
{
    int32_t at = 0;
    dtp_status s = DTP_OK;
    while (at < w->n && strcmp(w->texts[at], dtp_strbuf_text(b)) != 0) {
        at++;
    }
    if (at == w->n) {
        s = dtp_arena_grow(w->arena, &w->texts, w->n, w->n + 1, &w->capacity, sizeof *w->texts,
                           err);
    }
    if (at == w->n && s == DTP_OK) {
        w->texts[at] = b->failed ? NULL : dtp_arena_strdup(w->arena, dtp_strbuf_text(b));
        w->n++;
        s = w->texts[at] != NULL ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for styles");
    }
    dtp_strbuf_free(b);
    *b = (dtp_strbuf){0};
    return s;
}

/* "x+y" */
static void add_mesh_dims(const dtp_baseline_writing *w, int32_t from, int32_t to, dtp_strbuf *b)
{
    for (int32_t m = from; m < to; m++) {
        dtp_strbuf_addf(b, "%s%s", m > from ? "+" : "", w->mesh->names[m]);
    }
}

/* "PATTERN: STYLE(m, dim=D[, output=SEQUENCE])" for each mesh dim of [from, last]; d < 0: no dim.
 */
static dtp_status add_split(dtp_baseline_writing *w, const char *name, const char *style,
                            int32_t from, dtp_dim_id d, bool to_sequence, dtp_err *err)
{
    const dtp_dims *dims = &w->g->dims;
    const char *whole = is_module(w->g, name) ? "$" : "";
    for (int32_t m = from; m < w->mesh->n_dims; m++) {
        dtp_strbuf b = {0};
        add_pattern(&b, name);
        dtp_strbuf_addf(&b, "%s: %s(%s", whole, style, w->mesh->names[m]);
        if (d >= 0) {
            dtp_strbuf_addf(&b, ", dim=%s", dtp_dims_name(dims, d));
        }
        if (to_sequence) {
            dtp_strbuf_addf(&b, ", output=%s", dtp_dims_name(dims, w->dims.sequence));
        }
        dtp_strbuf_add(&b, ")");
        DTP_TRY(enter(w, &b, err));
    }
    return DTP_OK;
}

/* ---- data, ZeRO ---- */

bool dtp_baseline__is_expert_param(const dtp_baseline_writing *w, dtp_tensor_id t)
{
    const dtp_graph_tensor *p = &w->g->tensors[t];
    return w->r->experts && dtp_ttype_find(&p->type, w->dims.experts) == 0;
}

/* "**: zero3(x+y)"; with experts one style per parameter, those of experts over the mesh dims that
 * do not split the experts. */
static dtp_status add_zero(dtp_baseline_writing *w, dtp_err *err)
{
    for (int32_t t = 0; t < w->g->n_tensors; t++) {
        const int32_t to = dtp_baseline__is_expert_param(w, t) ? w->experts_from : w->data_to;
        dtp_strbuf b = {0};
        if (w->g->tensors[t].kind != DTP_TENSOR_PARAM || to == 0) {
            continue;
        }
        if (w->r->experts) {
            add_pattern(&b, w->g->tensors[t].name);
        } else {
            dtp_strbuf_add(&b, "**");
        }
        dtp_strbuf_addf(&b, ": zero%d(", w->r->zero);
        add_mesh_dims(w, 0, to, &b);
        dtp_strbuf_add(&b, ")");
        DTP_TRY(enter(w, &b, err));
    }
    return DTP_OK;
}

static dtp_status add_data(dtp_baseline_writing *w, dtp_err *err)
{
    dtp_strbuf b = {0};
    dtp_strbuf_add(&b, "**: data(");
    add_mesh_dims(w, 0, w->data_to, &b);
    dtp_strbuf_add(&b, ")");
    DTP_TRY(enter(w, &b, err));
    return w->r->zero > 0 ? add_zero(w, err) : DTP_OK;
}

/* ---- features ---- */

/* The dim of an einsum's parameter that is a feature or the vocabulary, and how it is used. */
static dtp_feature_use feature_use(const dtp_baseline_writing *w, const dtp_node *n,
                                   int32_t operand, dtp_dim_id *d)
{
    const dtp_ttype *type = &w->g->tensors[n->in[operand]].type;
    for (int32_t a = 0; a < type->rank; a++) {
        *d = type->dims[a].id;
        const dtp_feature_use use = dtp_baseline__use(w->g, n, operand, *d);
        if (w->dims.feature[*d] || (*d == w->dims.vocab && use == DTP_USE_MADE)) {
            return use;
        }
    }
    return DTP_USE_NONE;
}

static bool has_sequence(const dtp_baseline_writing *w, const dtp_node *n)
{
    return w->r->sequence && dtp_ttype_find(&w->g->tensors[n->out[0]].type, w->dims.sequence) >= 0;
}

/* A bias of a split feature. */
static dtp_status add_bias(dtp_baseline_writing *w, const dtp_node *n, int32_t operand,
                           dtp_err *err)
{
    const dtp_graph_tensor *p = &w->g->tensors[dtp_graph_param_of(w->g, n->in[operand])];
    for (int32_t a = 0; a < p->type.rank; a++) {
        const dtp_dim_id d = p->type.dims[a].id;
        if (w->dims.feature[d] || d == w->dims.vocab) {
            return add_split(w, p->name, "colwise", w->feature_from, d, false, err);
        }
    }
    return DTP_OK;
}

static dtp_status add_param_use(dtp_baseline_writing *w, const dtp_node *n, int32_t operand,
                                dtp_err *err)
{
    dtp_call_types types;
    const dtp_op_call call = dtp_node_call(w->g, n, &types);
    if ((n->op->flags & DTP_OP_CONTRACTION) != 0) {
        dtp_dim_id d;
        const dtp_feature_use use = feature_use(w, n, operand, &d);
        if (use == DTP_USE_MADE) {
            return add_split(w, n->name, "colwise", w->feature_from, d, false, err);
        }
        if (use == DTP_USE_CONTRACTED) {
            return add_split(w, n->name, "rowwise", w->feature_from, d, has_sequence(w, n), err);
        }
        return DTP_OK;
    }
    if ((n->op->flags & DTP_OP_LOOKUP) != 0 && w->dims.vocab >= 0 &&
        dtp_call_dim(&call, "over") == w->dims.vocab) {
        return add_split(w, n->name, "rowwise", w->feature_from, w->dims.vocab, has_sequence(w, n),
                         err);
    }
    return (n->op->flags & DTP_OP_ELEMENTWISE) != 0 ? add_bias(w, n, operand, err) : DTP_OK;
}

static dtp_status add_feature_node(dtp_baseline_writing *w, const dtp_node *n, dtp_err *err)
{
    const bool norm = (n->op->flags & DTP_OP_NORM) != 0;
    const bool cast = (n->op->flags & DTP_OP_CAST) != 0;
    for (int32_t k = 0; k < n->n_in && !norm && !cast; k++) {
        if (dtp_graph_param_of(w->g, n->in[k]) >= 0) {
            DTP_TRY(add_param_use(w, n, k, err));
        }
    }
    if (norm && has_sequence(w, n)) {
        return add_split(w, n->name, "sequence", w->feature_from, w->dims.sequence, false, err);
    }
    return (n->op->flags & DTP_OP_SOFTMAX_LOSS) != 0 && w->dims.vocab >= 0
               ? add_split(w, n->name, "loss_parallel", w->feature_from, -1, false, err)
               : DTP_OK;
}

/* ---- experts ---- */

static bool has(const dtp_baseline_writing *w, dtp_tensor_id t, dtp_dim_id d)
{
    return dtp_ttype_find(&w->g->tensors[t].type, d) >= 0;
}

/* What the experts make goes back to the rank of its row where their dim takes on another name. */
static dtp_status add_expert_node(dtp_baseline_writing *w, const dtp_node *n, dtp_err *err)
{
    const dtp_dim_id e = w->dims.experts;
    if ((n->op->flags & DTP_OP_RENAMES) != 0 && has(w, n->in[0], e) && !has(w, n->out[0], e) &&
        has(w, n->out[0], w->dims.batch)) {
        /* "PATTERN: prepare_output(m)=batch@m" */
        for (int32_t m = w->experts_from; m < w->mesh->n_dims; m++) {
            const char *name = w->mesh->names[m];
            dtp_strbuf b = {0};
            add_pattern(&b, n->name);
            dtp_strbuf_addf(&b, "%s: prepare_output(%s)=%s@%s", is_module(w->g, n->name) ? "$" : "",
                            name, dtp_dims_name(&w->g->dims, w->dims.batch), name);
            DTP_TRY(enter(w, &b, err));
        }
        return DTP_OK;
    }
    for (int32_t k = 0; k < n->n_in && (n->op->flags & DTP_OP_CONTRACTION) != 0; k++) {
        if (dtp_graph_param_of(w->g, n->in[k]) >= 0 &&
            dtp_baseline__use(w->g, n, k, w->dims.experts) == DTP_USE_SHARED) {
            DTP_TRY(add_split(w, n->name, "colwise", w->experts_from, w->dims.experts, false, err));
        }
    }
    return DTP_OK;
}

/* ---- all ---- */

/* The first instance of a repeated block stands for the others. */
dtp_status dtp_baseline__write(dtp_baseline_writing *w, dtp_err *err)
{
    for (int32_t i = 0; i < w->g->n_nodes && w->g->nodes[i].phase == DTP_FORWARD; i++) {
        const dtp_node *n = &w->g->nodes[i];
        const bool first = n->block < 0 || n->instance == 0;
        if (w->r->features && first) {
            DTP_TRY(add_feature_node(w, n, err));
        }
        if (w->r->experts && first) {
            DTP_TRY(add_expert_node(w, n, err));
        }
    }
    return w->r->data ? add_data(w, err) : DTP_OK;
}
