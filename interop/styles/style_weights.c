/* The styles that split parameters.
 *
 * colwise: a parameter of an einsum is split over an output feature, a dim that the output has and
 * the other operands lack; what the node reads is whole and its output is split in the same way.
 * An elementwise parameter (a bias) is split as what it is added to. An embedding table is split
 * over its features. The gradient of what is read is partial and is reduced before the backward
 * nodes of whoever made it read it.
 *
 * rowwise: a parameter of an einsum is split over a contracted dim, one that the output lacks; the
 * other operands are read split over the same dim and the partial output is reduced, to whole or
 * (output=NAME) to a split of that dim. An elementwise parameter is whole. An embedding table is
 * split over the vocabulary.
 *
 * Of several such dims the first of the parameter with more than one element is taken unless
 * dim=NAME says otherwise.
 */
#include <string.h>

#include "interop/styles/style_internal.h"

/* A parameter operand that a style applies to, as the node reads it: perhaps cast. */
typedef struct target {
    dtp_style_job *job;
    const dtp_node *node;
    dtp_node_id id;
    int32_t operand;
    dtp_tensor_id param;
} target;

static const dtp_ttype *type_of(const target *t, dtp_tensor_id tensor)
{
    return &t->job->g->tensors[tensor].type;
}

/* A dim that operands and output of an einsum share (experts) is a feature only if there is no
 * other. */
int32_t dtp_style_axis(const dtp_graph *g, const dtp_node *node, int32_t operand, bool rows,
                       const char *dim)
{
    const dtp_ttype *type = &g->tensors[node->in[operand]].type;
    const bool lookup = (node->op->flags & DTP_OP_LOOKUP) != 0;
    dtp_call_types types;
    dtp_op_call call = dtp_node_call(g, node, &types);
    const dtp_dim_id over = lookup ? dtp_call_dim(&call, "over") : -1;
    if (lookup ? operand != 0 : (node->op->flags & DTP_OP_CONTRACTION) == 0) {
        return -1;
    }
    for (int32_t shared = 0; shared <= 1; shared++) {
        for (int32_t a = 0; a < type->rank; a++) {
            const dtp_dim_id d = type->dims[a].id;
            bool others = false;
            for (int32_t i = 0; i < node->n_in && shared == 0; i++) {
                others = others || (i != operand && dtp_ttype_find(&types.in[i], d) >= 0);
            }
            const bool made = lookup ? d != over : dtp_ttype_find(&types.out[0], d) >= 0;
            const bool meant =
                dim == NULL ? type->dims[a].size > 1 : strcmp(dim, dtp_dims_name(&g->dims, d)) == 0;
            if (meant && made != rows && (rows || lookup || !others)) {
                return a;
            }
        }
    }
    return -1;
}

static dtp_status fail_dim(const target *t, const char *what, dtp_err *err)
{
    char type[DTP_TTYPE_TEXT_BYTES];
    const dtp_graph *g = t->job->g;
    dtp_ttype_print(type_of(t, t->param), &g->dims, type);
    return DTP_FAIL(err, DTP_INVALID, "parameter '%.100s' %.200s has no %s at node '%.100s'",
                    g->tensors[t->param].name, type, what, t->node->name);
}

/* The dim of a bias that is split like what it is added to; -1 when that is not split. */
static int32_t bias_axis(const target *t)
{
    const dtp_graph *g = t->job->g;
    if (t->job->style->dim != NULL) {
        return dtp_style__axis(g, t->param, t->job->style->dim);
    }
    for (int32_t i = 0; i < t->node->n_in; i++) {
        const dtp_tensor_id x = t->node->in[i];
        const dtp_placement *p =
            i == t->operand ? NULL : dtp_style__place(t->job, x, -1, t->job->m);
        if (p != NULL && p->kind == DTP_SHARD) {
            return dtp_ttype_find(type_of(t, t->param), type_of(t, x)->dims[p->axis].id);
        }
    }
    return type_of(t, t->param)->rank > 0 ? 0 : -1;
}

static dtp_status find_axis(const target *t, bool rows, int32_t *axis, dtp_err *err)
{
    const dtp_op_def *op = t->node->op;
    const bool lookup = (op->flags & DTP_OP_LOOKUP) != 0 && t->operand == 0;
    if (lookup || (op->flags & DTP_OP_CONTRACTION) != 0) {
        *axis = dtp_style_axis(t->job->g, t->node, t->operand, rows, t->job->style->dim);
        return *axis >= 0 ? DTP_OK
                          : fail_dim(t,
                                     lookup ? (rows ? "such vocabulary dim" : "such feature dim")
                                     : rows ? "contracted dim that could be split"
                                            : "output feature that could be split",
                                     err);
    }
    if ((op->flags & DTP_OP_ELEMENTWISE) == 0) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s is for einsum, embedding and elementwise ops, but node '%.100s' which "
                        "reads '%.100s' is %s",
                        t->job->style->def->name, t->node->name, t->job->g->tensors[t->param].name,
                        op->name);
    }
    *axis = rows ? -1 : bias_axis(t);
    return DTP_OK;
}

static dtp_status apply(const target *t, dtp_err *err)
{
    const bool rows = t->job->style->def->rows;
    const dtp_tensor_id out = t->node->out[0];
    const char *output = t->job->style->output; /* a dim, or "replicated" */
    int32_t axis, out_axis = -1;
    DTP_TRY(find_axis(t, rows, &axis, err));
    if (output != NULL && strcmp(output, "replicated") != 0) {
        out_axis = dtp_style__axis(t->job->g, out, output);
        if (out_axis < 0) {
            return DTP_FAIL(err, DTP_INVALID,
                            "output=%.60s: the output of node '%.100s' has no such dim", output,
                            t->node->name);
        }
    }
    /* The parameter: where it is stored, and where the node and its backward nodes read it. */
    const dtp_style_job *job = t->job;
    DTP_TRY(dtp_style__pin_param(t->job, t->param, axis, err));
    DTP_TRY(dtp_style__pin(t->job, t->param, t->id, axis, err));
    for (int32_t i = job->gradients.first[t->id]; i < job->gradients.first[t->id + 1]; i++) {
        const dtp_node_id b = job->gradients.nodes[i];
        for (int32_t k = 0; k < job->g->nodes[b].n_in; k++) {
            const dtp_tensor_id x = job->g->nodes[b].in[k];
            if (dtp_graph_repeated(job->g, x) == t->param) {
                DTP_TRY(dtp_style__pin(t->job, x, b, axis, err));
            }
        }
    }
    if (!rows || axis >= 0) {
        /* operands that have the dim of `axis` are read split over it, others whole */
        const dtp_dim_id d = axis >= 0 ? type_of(t, t->param)->dims[axis].id : -1;
        for (int32_t i = 0; i < t->node->n_in; i++) {
            const dtp_tensor_id x = t->node->in[i];
            if (x != t->param) {
                const int32_t a = d >= 0 ? dtp_ttype_find(type_of(t, x), d) : -1;
                DTP_TRY(dtp_style__pin(t->job, x, t->id, a, err));
            }
        }
    }
    if (!rows && (output == NULL || !dtp_style__leaves(t->job, out))) {
        out_axis =
            axis < 0 ? -1 : dtp_ttype_find(type_of(t, out), type_of(t, t->param)->dims[axis].id);
    }
    DTP_TRY(dtp_style__pin(t->job, out, -1, out_axis, err));
    return rows && out_axis >= 0 ? dtp_style__gradient(t->job, t->id, -1, err) : DTP_OK;
}

/* The parameters that the node reads. */
static dtp_status each_target(dtp_style_job *job, dtp_node_id n, bool *applies,
                              dtp_status (*what)(const target *, dtp_err *), dtp_err *err)
{
    for (int32_t i = 0; i < job->g->nodes[n].n_in; i++) {
        const target t = {job, &job->g->nodes[n], n, i, job->g->nodes[n].in[i]};
        if (dtp_style__is_target(job, n, i)) {
            DTP_TRY(what(&t, err));
            *applies = true;
        }
    }
    return DTP_OK;
}

dtp_status dtp_style__weights(dtp_style_job *job, dtp_node_id n, bool *applies, dtp_err *err)
{
    return each_target(job, n, applies, apply, err);
}

/* The partial gradient of what the node reads is reduced to where that was: split if it was pinned
 * to a split (sequence), else whole. What is brought here split over a dim that it shares with the
 * parameter (experts) has no partial gradient; the gradient of the output is read split likewise.
 */
static dtp_status finish_colwise(const target *t, dtp_err *err)
{
    for (int32_t i = 0; i < t->node->n_in; i++) {
        const dtp_tensor_id x = t->node->in[i];
        const dtp_graph_tensor *tensor = &t->job->g->tensors[x];
        const dtp_placement *p = dtp_style__place(t->job, x, -1, t->job->m);
        const dtp_placement *read = dtp_style__place(t->job, x, t->id, t->job->m);
        const bool pinned = p != NULL && p->kind == DTP_SHARD;
        if (i == t->operand || tensor->producer < 0 || tensor->out_index != 0) {
            continue;
        }
        if (!pinned && read != NULL && read->kind == DTP_SHARD) {
            const dtp_dim_id d = type_of(t, x)->dims[read->axis].id;
            const int32_t axis = dtp_ttype_find(type_of(t, t->node->out[0]), d);
            DTP_TRY(dtp_style__gradient(t->job, t->id, axis, err));
        } else {
            DTP_TRY(dtp_style__gradient(t->job, tensor->producer, pinned ? p->axis : -1, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_style__weights_finish(dtp_style_job *job, dtp_node_id n, bool *applies, dtp_err *err)
{
    return each_target(job, n, applies, finish_colwise, err);
}
