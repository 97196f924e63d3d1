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
 * Of several such dims the first of the parameter is taken unless dim=NAME says otherwise.
 */
#include <string.h>

#include "interop/styles/style_internal.h"

/* A parameter operand that a style applies to. */
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

static bool others_have(const target *t, dtp_dim_id d)
{
    for (int32_t i = 0; i < t->node->n_in; i++) {
        if (i != t->operand && dtp_ttype_find(type_of(t, t->node->in[i]), d) >= 0) {
            return true;
        }
    }
    return false;
}

/* Whether the style may split the parameter of an einsum over d: `rows` rowwise, else colwise. A
 * dim that operands and output share (experts) is a feature only if there is no other. */
static bool may_split(const target *t, dtp_dim_id d, bool rows, bool shared)
{
    const bool in_output = dtp_ttype_find(type_of(t, t->node->out[0]), d) >= 0;
    if (rows) {
        return !in_output;
    }
    return in_output && (shared || !others_have(t, d));
}

static dtp_status fail_dim(const target *t, const char *what, dtp_err *err)
{
    char type[DTP_TTYPE_TEXT_BYTES];
    const dtp_graph *g = t->job->g;
    dtp_ttype_print(type_of(t, t->param), &g->dims, type);
    return DTP_FAIL(err, DTP_INVALID, "parameter '%.100s' %.200s has no %s at node '%.100s'",
                    g->tensors[t->param].name, type, what, t->node->name);
}

/* The dim of an einsum's parameter that is split. */
static dtp_status einsum_axis(const target *t, bool rows, int32_t *axis, dtp_err *err)
{
    const char *name = t->job->style->dim;
    const dtp_ttype *type = type_of(t, t->param);
    for (int32_t shared = 0; shared <= 1; shared++) {
        for (int32_t a = 0; a < type->rank; a++) {
            const dtp_dim_id d = type->dims[a].id;
            const bool named =
                name == NULL || strcmp(name, dtp_dims_name(&t->job->g->dims, d)) == 0;
            if (named && may_split(t, d, rows, shared == 1)) {
                *axis = a;
                return DTP_OK;
            }
        }
    }
    return fail_dim(
        t, rows ? "contracted dim that could be split" : "output feature that could be split", err);
}

static dtp_status embedding_axis(const target *t, bool rows, int32_t *axis, dtp_err *err)
{
    const char *name = t->job->style->dim;
    const dtp_ttype *type = type_of(t, t->param);
    dtp_call_types types;
    dtp_op_call call = dtp_node_call(t->job->g, t->node, &types);
    const dtp_dim_id over = dtp_call_dim(&call, "over");
    for (int32_t a = 0; a < type->rank; a++) {
        const dtp_dim_id d = type->dims[a].id;
        if ((d == over) == rows &&
            (name == NULL || strcmp(name, dtp_dims_name(&t->job->g->dims, d)) == 0)) {
            *axis = a;
            return DTP_OK;
        }
    }
    return fail_dim(t, rows ? "such vocabulary dim" : "such feature dim", err);
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
    const char *op = t->node->op->name;
    if (strcmp(op, "einsum") == 0) {
        return einsum_axis(t, rows, axis, err);
    }
    if (strcmp(op, "embedding") == 0) {
        return embedding_axis(t, rows, axis, err);
    }
    if ((t->node->op->flags & DTP_OP_ELEMENTWISE) == 0) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s is for einsum, embedding and elementwise ops, but node '%.100s' which "
                        "reads '%.100s' is %s",
                        t->job->style->def->name, t->node->name, t->job->g->tensors[t->param].name,
                        op);
    }
    *axis = rows ? -1 : bias_axis(t);
    return DTP_OK;
}

static dtp_status pin_read(const target *t, dtp_tensor_id x, dtp_node_id reader, int32_t axis,
                           dtp_err *err)
{
    return axis >= 0 ? dtp_style__split(t->job, x, reader, axis, err)
                     : dtp_style__whole(t->job, x, reader, err);
}

/* The parameter: where it is stored, and where the node and its backward nodes read it. */
static dtp_status pin_param(const target *t, int32_t axis, dtp_err *err)
{
    const dtp_style_job *job = t->job;
    DTP_TRY(pin_read(t, t->param, -1, axis, err));
    DTP_TRY(pin_read(t, t->param, t->id, axis, err));
    for (int32_t i = job->gradients.first[t->id]; i < job->gradients.first[t->id + 1]; i++) {
        const dtp_node_id b = job->gradients.nodes[i];
        for (int32_t k = 0; k < job->g->nodes[b].n_in; k++) {
            if (job->g->nodes[b].in[k] == t->param) {
                DTP_TRY(pin_read(t, t->param, b, axis, err));
            }
        }
    }
    return DTP_OK;
}

/* Operands that have the dim of the parameter's `axis` are read split over it, others whole. */
static dtp_status pin_operands(const target *t, int32_t axis, dtp_err *err)
{
    const dtp_dim_id d = axis >= 0 ? type_of(t, t->param)->dims[axis].id : -1;
    for (int32_t i = 0; i < t->node->n_in; i++) {
        const dtp_tensor_id x = t->node->in[i];
        const int32_t a = d >= 0 ? dtp_ttype_find(type_of(t, x), d) : -1;
        if (x == t->param) {
            continue;
        }
        DTP_TRY(pin_read(t, x, t->id, a, err));
    }
    return DTP_OK;
}

/* output=NAME or output=replicated; *stated is false when the style does not say. */
static dtp_status stated_output(const target *t, int32_t *axis, bool *stated, dtp_err *err)
{
    const char *name = t->job->style->output;
    *stated = name != NULL;
    *axis = -1;
    if (name == NULL || strcmp(name, "replicated") == 0) {
        return DTP_OK;
    }
    *axis = dtp_style__axis(t->job->g, t->node->out[0], name);
    if (*axis < 0) {
        return DTP_FAIL(err, DTP_INVALID,
                        "output=%.60s: the output of node '%.100s' has no such dim", name,
                        t->node->name);
    }
    return DTP_OK;
}

static dtp_status apply_colwise(const target *t, dtp_err *err)
{
    int32_t axis, out_axis;
    bool stated;
    DTP_TRY(find_axis(t, false, &axis, err));
    DTP_TRY(stated_output(t, &out_axis, &stated, err));
    DTP_TRY(pin_param(t, axis, err));
    DTP_TRY(pin_operands(t, axis, err));
    if (!stated || !dtp_style__leaves(t->job, t->node->out[0])) {
        out_axis = axis < 0 ? -1
                            : dtp_ttype_find(type_of(t, t->node->out[0]),
                                             type_of(t, t->param)->dims[axis].id);
    }
    return pin_read(t, t->node->out[0], -1, out_axis, err);
}

static dtp_status apply_rowwise(const target *t, dtp_err *err)
{
    int32_t axis, out_axis;
    bool stated;
    DTP_TRY(find_axis(t, true, &axis, err));
    DTP_TRY(stated_output(t, &out_axis, &stated, err));
    DTP_TRY(pin_param(t, axis, err));
    if (axis >= 0) {
        DTP_TRY(pin_operands(t, axis, err));
    }
    DTP_TRY(pin_read(t, t->node->out[0], -1, out_axis, err));
    return out_axis >= 0 ? dtp_style__gradient(t->job, t->id, -1, err) : DTP_OK;
}

static dtp_status each_target(dtp_style_job *job, dtp_status (*apply)(const target *, dtp_err *),
                              dtp_err *err)
{
    int32_t found = 0;
    for (dtp_node_id n = 0; n < job->g->n_nodes; n++) {
        for (int32_t i = 0; i < job->g->nodes[n].n_in; i++) {
            const target t = {job, &job->g->nodes[n], n, i, job->g->nodes[n].in[i]};
            if (dtp_style__is_target(job, n, i)) {
                DTP_TRY(apply(&t, err));
                found++;
            }
        }
    }
    return found > 0 ? DTP_OK
                     : DTP_FAIL(err, DTP_INVALID, "no node that is matched reads a parameter");
}

dtp_status dtp_style__colwise(dtp_style_job *job, dtp_err *err)
{
    return each_target(job, apply_colwise, err);
}

/* The partial gradient of what the node reads is reduced to where that was: split if it was pinned
 * to a split (sequence), else whole. What is brought here split over a dim that it shares with the
 * parameter (experts) has no partial gradient; the gradient of the output is read split likewise.
 */
static dtp_status finish_operand(const target *t, dtp_tensor_id x, dtp_err *err)
{
    const dtp_placement *p = dtp_style__place(t->job, x, -1, t->job->m);
    const dtp_placement *read = dtp_style__place(t->job, x, t->id, t->job->m);
    const bool pinned = p != NULL && p->kind == DTP_SHARD;
    if (!pinned && read != NULL && read->kind == DTP_SHARD) {
        const dtp_dim_id d = type_of(t, x)->dims[read->axis].id;
        return dtp_style__gradient(t->job, t->id, dtp_ttype_find(type_of(t, t->node->out[0]), d),
                                   err);
    }
    return dtp_style__gradient(t->job, t->job->g->tensors[x].producer, pinned ? p->axis : -1, err);
}

static dtp_status finish_colwise(const target *t, dtp_err *err)
{
    for (int32_t i = 0; i < t->node->n_in; i++) {
        const dtp_graph_tensor *x = &t->job->g->tensors[t->node->in[i]];
        if (i != t->operand && x->producer >= 0 && x->out_index == 0) {
            DTP_TRY(finish_operand(t, t->node->in[i], err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_style__colwise_finish(dtp_style_job *job, dtp_err *err)
{
    return each_target(job, finish_colwise, err);
}

dtp_status dtp_style__rowwise(dtp_style_job *job, dtp_err *err)
{
    return each_target(job, apply_rowwise, err);
}
