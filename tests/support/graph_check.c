/* Checks a finished graph from its data alone. */
#include "tests/support/graph_check.h"

#include <string.h>

#define BAD(err, ...) DTP_FAIL((err), DTP_INTERNAL, __VA_ARGS__)

static dtp_status check_tensor(const dtp_graph *g, dtp_tensor_id id, dtp_err *err)
{
    const dtp_graph_tensor *t = &g->tensors[id];
    if (t->type.rank < 0 || t->type.rank > DTP_MAX_RANK) {
        return BAD(err, "tensor '%s' has rank %d", t->name, t->type.rank);
    }
    for (int32_t i = 0; i < t->type.rank; i++) {
        dtp_tdim d = t->type.dims[i];
        if (d.id < 0 || d.id >= g->dims.n || d.size < 1) {
            return BAD(err, "tensor '%s': axis %d is dim %d of size %lld", t->name, i, d.id,
                       (long long)d.size);
        }
        if (dtp_ttype_find(&t->type, d.id) != i) {
            return BAD(err, "tensor '%s' has dim '%s' twice", t->name, g->dims.names[d.id]);
        }
    }
    if (dtp_graph_find(g, t->name) != id) {
        return BAD(err, "tensor '%s' is not found under its name", t->name);
    }
    if ((t->kind == DTP_TENSOR_VALUE) != (t->producer >= 0)) {
        return BAD(err, "tensor '%s' of kind %d has producer %d", t->name, (int)t->kind,
                   t->producer);
    }
    if (t->producer >= g->n_nodes) {
        return BAD(err, "tensor '%s' has producer %d of %d", t->name, t->producer, g->n_nodes);
    }
    if (t->producer >= 0) {
        const dtp_node *n = &g->nodes[t->producer];
        if (t->out_index < 0 || t->out_index >= n->n_out || n->out[t->out_index] != id) {
            return BAD(err, "tensor '%s' is not output %d of node '%s'", t->name, t->out_index,
                       n->name);
        }
    }
    return dtp_ttype_check_size(&t->type, err);
}

static dtp_status check_node(const dtp_graph *g, dtp_node_id id, dtp_err *err)
{
    const dtp_node *n = &g->nodes[id];
    dtp_call_types types;
    if (n->n_in < n->op->min_in || n->n_in > n->op->max_in || n->n_out != n->op->n_out) {
        return BAD(err, "%d operands and %d outputs", n->n_in, n->n_out);
    }
    for (int32_t i = 0; i < n->n_in; i++) {
        if (n->in[i] < 0 || n->in[i] >= g->n_tensors) {
            return BAD(err, "operand %d is tensor %d of %d", i, n->in[i], g->n_tensors);
        }
        if (g->tensors[n->in[i]].producer >= id) {
            return BAD(err, "operand '%s' is produced later", g->tensors[n->in[i]].name);
        }
    }
    dtp_op_call call = dtp_node_call(g, n, &types);
    dtp_ttype again[DTP_MAX_OP_OUT];
    memset(again, 0, sizeof again);
    again[0] = types.out[0];
    DTP_TRY(n->op->infer(&call, true, again, err));
    for (int32_t i = 0; i < n->n_out; i++) {
        if (!dtp_ttype_equal(&again[i], &types.out[i])) {
            return BAD(err, "output %d has another type than inference gives", i);
        }
    }
    if (n->phase == DTP_BACKWARD && (n->origin < 0 || n->origin >= id)) {
        return BAD(err, "backward node with origin %d", n->origin);
    }
    return DTP_OK;
}

dtp_status graph_check(const dtp_graph *g, dtp_err *err)
{
    for (int32_t i = 0; i < g->n_tensors; i++) {
        DTP_TRY(check_tensor(g, i, err));
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        DTP_TRY(dtp_err_prefixed(check_node(g, i, err), err, "node '%s' (%s)", g->nodes[i].name,
                                 g->nodes[i].op->name));
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i] < 0 || g->outputs[i] >= g->n_tensors) {
            return BAD(err, "output %d is tensor %d", i, g->outputs[i]);
        }
    }
    for (int32_t i = 0; i < g->n_updates; i++) {
        const dtp_graph_tensor *target = &g->tensors[g->updates[i].target];
        const dtp_graph_tensor *value = &g->tensors[g->updates[i].value];
        bool persistent = target->kind == DTP_TENSOR_PARAM || target->kind == DTP_TENSOR_STATE;
        if (!persistent || !dtp_ttype_equal(&target->type, &value->type)) {
            return BAD(err, "update of '%s' with '%s' does not fit", target->name, value->name);
        }
    }
    for (int32_t i = 0; i < g->n_grads; i++) {
        const dtp_graph_tensor *param = &g->tensors[g->grads[i].param];
        const dtp_graph_tensor *grad = &g->tensors[g->grads[i].grad];
        if (param->kind != DTP_TENSOR_PARAM || !dtp_ttype_equal(&param->type, &grad->type)) {
            return BAD(err, "gradient '%s' does not fit parameter '%s'", grad->name, param->name);
        }
    }
    if (g->loss >= 0 && g->tensors[g->loss].type.rank != 0) {
        return BAD(err, "the loss '%s' is not a scalar", g->tensors[g->loss].name);
    }
    return DTP_OK;
}
