/* Evaluation: the forward pass to the loss, without what only training has. */
#include "core/transform/evaluation.h"

#include <string.h>

#include "core/transform/mean_loss.h"
#include "core/transform/microbatch.h"
#include "core/transform/row_parts.h"

/* A tensor without a row for each row of the batch is one number, or a few, of the whole. */
static bool is_metric(const dtp_graph *g, dtp_tensor_id t)
{
    const dtp_ttype *type = &g->tensors[t].type;
    return type->dtype != DTP_BOOL && dtp_ttype_find(type, dtp_microbatch_dim(g)) < 0;
}

/* What is computed for output i of the graph, or of the model; -1: nothing. */
static dtp_tensor_id wanted_output(const dtp_graph *g, const dtp_graph *outputs_of, int32_t i)
{
    if (outputs_of != NULL) {
        return dtp_graph_find(g, outputs_of->tensors[outputs_of->outputs[i]].name);
    }
    return is_metric(g, g->outputs[i]) ? g->outputs[i] : -1;
}

/* needed: by tensor, of a node by its first output. */
static void mark_needed(const dtp_graph *g, const dtp_graph *outputs_of, bool *needed)
{
    const int32_t n_wanted = outputs_of != NULL ? outputs_of->n_outputs : g->n_outputs;
    needed[g->loss] = outputs_of == NULL;
    for (int32_t i = 0; i < n_wanted; i++) {
        const dtp_tensor_id t = wanted_output(g, outputs_of, i);
        if (t >= 0) {
            needed[t] = true;
        }
    }
    dtp_graph_mark_needed(g, true, needed);
}

/* A sum over microbatches is what one of them gives; what differs in training is the operand of
 * evaluation. */
static dtp_status copy_node(dtp_graph_copy *c, dtp_node_id n, dtp_err *err)
{
    const dtp_node *node = &c->from->nodes[n];
    const dtp_tensor_id t = c->from->nodes[n].out[0], part = dtp_microbatch_part(c->from, t);
    dtp_tensor_id in[DTP_MAX_OP_IN];
    if (part != t) {
        c->tensor[t] = c->tensor[part];
        return DTP_OK;
    }
    if ((node->op->flags & DTP_OP_IN_TRAINING) != 0) {
        c->tensor[t] = c->tensor[node->in[1]];
        return DTP_OK;
    }
    dtp_node_spec spec = dtp_graph_copy_spec(c, n, in);
    spec.name = dtp_microbatch_name(c->from, n);
    spec.phase = DTP_FORWARD;
    return dtp_graph_copy_node(c, n, &spec, err);
}

static dtp_status copy_needed(dtp_graph_copy *c, const bool *needed, dtp_err *err)
{
    const dtp_graph *from = c->from;
    for (dtp_tensor_id t = 0; t < from->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &from->tensors[t];
        if (tensor->kind != DTP_TENSOR_VALUE) {
            const bool stays = (needed[t] && !tensor->per_step) || tensor->kind == DTP_TENSOR_INPUT;
            DTP_TRY(stays ? dtp_graph_copy_source(c, t, NULL, err) : DTP_OK);
        } else if (tensor->out_index == 0 && needed[t]) {
            DTP_TRY(copy_node(c, tensor->producer, err));
        }
    }
    return DTP_OK;
}

/* ---- folds ---- */

int32_t dtp_evaluation_fold(const dtp_graph *evaluation, dtp_tensor_id t)
{
    int32_t fold = evaluation->n_folds - 1;
    while (fold >= 0 && evaluation->folds[fold].tensor != t) {
        fold--;
    }
    return fold;
}

typedef struct fold_work {
    dtp_graph *g;
    const dtp_row_part *part; /* by tensor; NULL: there is one batch */
    bool *wanted;             /* by tensor: folded, or computed from what is */
    dtp_row_fold *folds;
} fold_work;

static bool is_computed(const fold_work *w, dtp_tensor_id t)
{
    return w->part != NULL && w->part[t] == DTP_ROWS_RESULT;
}

/* Marks what the results are computed from, down to the folds. */
static void mark_wanted(fold_work *w)
{
    const dtp_graph *g = w->g;
    for (int32_t i = 0; i < g->n_results; i++) {
        w->wanted[g->results[i]] = true;
    }
    for (dtp_node_id n = g->n_nodes - 1; n >= 0; n--) {
        const dtp_node *node = &g->nodes[n];
        bool computed = false;
        for (int32_t i = 0; i < node->n_out; i++) {
            computed = computed || (w->wanted[node->out[i]] && is_computed(w, node->out[i]));
        }
        for (int32_t i = 0; i < node->n_in && computed; i++) {
            const dtp_node_id of = g->tensors[node->in[i]].producer;
            const bool constant =
                of >= 0 && g->nodes[of].n_in == 0 && (g->nodes[of].op->flags & DTP_OP_RANDOM) == 0;
            w->wanted[node->in[i]] = w->wanted[node->in[i]] || !constant; /* else computed anew */
        }
    }
}

static dtp_status add_folds(fold_work *w, dtp_err *err)
{
    dtp_graph *g = w->g;
    const int32_t n = g->n_tensors;
    DTP_TRY(DTP_NEW(g->arena, w->wanted, n, err));
    DTP_TRY(DTP_NEW(g->arena, w->folds, n, err));
    mark_wanted(w);
    for (dtp_tensor_id t = 0; t < n; t++) {
        if (!w->wanted[t] || is_computed(w, t)) {
            continue;
        }
        dtp_row_fold *fold = &w->folds[g->n_folds++];
        *fold = (dtp_row_fold){t, w->part != NULL ? w->part[t] : DTP_ROWS_WHOLE, -1};
        DTP_TRY(dtp_graph_add_output(g, t, err));
        if (fold->by == DTP_ROWS_WEIGHTED) {
            const dtp_node *node = &g->nodes[g->tensors[t].producer];
            dtp_node_spec spec = dtp_node_spec_init(node->name, node->op->name);
            spec.n_in = node->n_in;
            spec.in = node->in;
            spec.n_attrs = node->n_attrs;
            spec.attrs = node->attrs;
            spec.block = node->block;
            spec.instance = node->instance;
            const char *name = dtp_arena_printf(g->arena, "%s.count", node->name);
            DTP_TRY(dtp_graph_add_loss_count(g, &spec, name, g->tensors[t].type.dtype,
                                             &fold->weight, err));
            DTP_TRY(dtp_graph_add_output(g, fold->weight, err));
        }
    }
    g->folds = w->folds;
    return DTP_OK;
}

/* Loss and metrics, and how the rows make them; `scratch` is for what is found of tensors. */
static dtp_status find_folds(dtp_graph_copy *c, dtp_arena *scratch, dtp_err *err)
{
    dtp_graph *g = c->to;
    dtp_tensor_id *results;
    dtp_err why = {0};
    dtp_row_parts parts = {
        .g = g, .what = "evaluation", .dim = dtp_microbatch_dim(g), .count = 1, .folds = true};
    DTP_TRY(DTP_NEW(g->arena, results, c->from->n_outputs + 1, err));
    const dtp_status found = dtp_row_parts_find(&parts, scratch, &why);
    if (found == DTP_NOMEM) {
        return DTP_FAIL(err, DTP_NOMEM, "%s", why.msg);
    }
    if (found != DTP_OK) {
        g->whole_batch = dtp_arena_strdup(g->arena, why.msg);
        DTP_TRY(DTP_MEMORY(err, g->whole_batch));
    }
    g->n_row_dims = parts.n_dims;
    memcpy(g->row_dims, parts.dims, sizeof g->row_dims);
    results[g->n_results++] = g->loss;
    for (int32_t i = 0; i < c->from->n_outputs; i++) {
        const dtp_tensor_id of = c->from->outputs[i], t = c->tensor[of];
        const bool cut = found == DTP_OK && t >= 0 && parts.part[t] == DTP_ROWS_CUT;
        if (is_metric(c->from, of) && !cut) {
            results[g->n_results++] = t;
        }
    }
    g->results = results;
    fold_work w = {.g = g, .part = found == DTP_OK ? parts.part : NULL};
    return add_folds(&w, err);
}

/* Folds as parameters, then the nodes between them and the results. */
static dtp_status add_end(dtp_graph_copy *c, dtp_err *err)
{
    const dtp_graph *from = c->from;
    bool *needed;
    DTP_TRY(DTP_NEW(c->to->arena, needed, from->n_tensors, err));
    for (int32_t i = 0; i < from->n_results; i++) {
        needed[from->results[i]] = dtp_evaluation_fold(from, from->results[i]) < 0;
    }
    for (dtp_tensor_id t = from->n_tensors - 1; t >= 0; t--) {
        const dtp_node_id n = from->tensors[t].producer;
        const bool made = needed[t] && n >= 0 && dtp_evaluation_fold(from, t) < 0;
        for (int32_t i = 0; made && i < from->nodes[n].n_in; i++) {
            needed[from->nodes[n].in[i]] = true;
        }
    }
    for (dtp_tensor_id t = 0; t < from->n_tensors; t++) {
        const dtp_node_id n = from->tensors[t].producer;
        if (needed[t] && dtp_evaluation_fold(from, t) >= 0) {
            dtp_graph_tensor param = {.name = from->tensors[t].name,
                                      .kind = DTP_TENSOR_PARAM,
                                      .type = from->tensors[t].type};
            DTP_TRY(dtp_graph_add_tensor(c->to, &param, &c->tensor[t], err));
        } else if (needed[t] && c->node[n] < 0) {
            dtp_tensor_id in[DTP_MAX_OP_IN];
            const dtp_node_spec spec = dtp_graph_copy_spec(c, n, in);
            DTP_TRY(dtp_graph_copy_node(c, n, &spec, err));
        }
    }
    for (int32_t i = 0; i < from->n_results; i++) {
        const bool made = dtp_evaluation_fold(from, from->results[i]) < 0;
        DTP_TRY(made ? dtp_graph_add_output(c->to, c->tensor[from->results[i]], err) : DTP_OK);
    }
    return DTP_OK;
}

dtp_status dtp_graph_evaluation_end(const dtp_graph *evaluation, dtp_graph **out, dtp_err *err)
{
    const dtp_graph *g = evaluation;
    dtp_graph_copy c;
    bool any = false;
    for (int32_t i = 0; i < g->n_results; i++) {
        any = any || dtp_evaluation_fold(g, g->results[i]) < 0;
    }
    *out = NULL;
    if (!any) {
        return DTP_OK;
    }
    DTP_TRY(dtp_graph_copy_begin(g, &c, err));
    const dtp_status s = add_end(&c, err);
    return dtp_graph_deliver(c.to, s, out);
}

static dtp_status build(dtp_graph_copy *c, const dtp_graph *outputs_of, dtp_err *err)
{
    const dtp_graph *from = c->from;
    dtp_graph *to = c->to;
    const int32_t n = outputs_of != NULL ? outputs_of->n_outputs : from->n_outputs;
    bool *needed;
    DTP_TRY(DTP_NEW(to->arena, needed, from->n_tensors, err));
    mark_needed(from, outputs_of, needed);
    to->microbatches = to->n_micro_dims = 0; /* the sizes of the dims are those of one already */
    DTP_TRY(copy_needed(c, needed, err));
    for (int32_t i = 0; i < n && outputs_of != NULL; i++) {
        const dtp_tensor_id t = wanted_output(from, outputs_of, i);
        DTP_TRY(t >= 0 ? dtp_graph_add_output(to, c->tensor[t], err) : DTP_OK);
    }
    if (outputs_of == NULL) {
        to->loss = c->tensor[from->loss];
        dtp_arena *scratch = dtp_arena_create();
        const dtp_status s =
            scratch != NULL ? find_folds(c, scratch, err) : DTP_MEMORY(err, scratch);
        dtp_arena_destroy(scratch);
        DTP_TRY(s);
    }
    return dtp_graph_set_evaluation(to, err);
}

dtp_status dtp_graph_evaluation(const dtp_graph *g, const dtp_graph *outputs_of,
                                dtp_graph_copy *out, dtp_err *err)
{
    if (g->loss < 0) {
        return DTP_FAIL(err, DTP_INVALID, "the model '%s' has no loss to evaluate", g->name);
    }
    DTP_TRY(dtp_graph_copy_begin(g, out, err));
    const dtp_status s = build(out, outputs_of, err);
    if (s != DTP_OK) {
        dtp_graph_destroy(out->to);
        out->to = NULL;
    }
    return s;
}
