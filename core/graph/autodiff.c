/* Reverse-mode differentiation on the graph: walks the forward nodes backwards, asks each op's vjp
 * hook for the nodes that carry the gradient on, and adds up contributions as they arrive. */
#include "core/graph/autodiff.h"

#include <stdio.h>

enum { NAME_BYTES = 640 };

/* ---- helpers for vjp hooks ---- */

/* Emits a backward node; the dims of its first output are those of `shape`, NULL: inferred. */
static dtp_status emit(dtp_vjp *v, const dtp_vjp_op *op, const dtp_ttype *shape,
                       dtp_tensor_id *outs, dtp_err *err)
{
    const dtp_node *n = &v->g->nodes[v->node];
    char name[NAME_BYTES];
    (void)snprintf(name, sizeof name, "grad.%s.%d", n->name, v->emitted++);
    dtp_node_spec spec = dtp_node_spec_init(name, op->name);
    spec.phase = DTP_BACKWARD;
    spec.origin = v->node;
    spec.block = n->block;
    spec.instance = n->instance;
    spec.n_in = op->n_in;
    spec.in = op->in;
    spec.n_attrs = op->n_attrs;
    spec.attrs = op->attrs;
    spec.out = shape;
    return dtp_graph_add_node(v->g, &spec, outs, err);
}

dtp_status dtp_vjp_emit_multi(dtp_vjp *v, const dtp_vjp_op *op, dtp_tensor_id *outs, dtp_err *err)
{
    return emit(v, op, NULL, outs, err);
}

dtp_status dtp_vjp_emit(dtp_vjp *v, const dtp_vjp_op *op, dtp_tensor_id like, dtp_tensor_id *out,
                        dtp_err *err)
{
    return emit(v, op, like >= 0 ? &v->g->tensors[like].type : NULL, out, err);
}

dtp_status dtp_vjp_emit_shaped(dtp_vjp *v, const char *op, int32_t n_in, const dtp_tensor_id *in,
                               const dtp_ttype *shape, dtp_tensor_id *out, dtp_err *err)
{
    return emit(v, &(dtp_vjp_op){.name = op, .n_in = n_in, .in = in}, shape, out, err);
}

dtp_ttype dtp_vjp_type(const dtp_vjp *v, dtp_tensor_id t)
{
    return v->g->tensors[t].type;
}

const dtp_attr *dtp_vjp_attr(const dtp_vjp *v, const char *key)
{
    const dtp_node *n = &v->g->nodes[v->node];
    return dtp_call_attr(&(dtp_op_call){.attrs = n->attrs, .n_attrs = n->n_attrs}, key);
}

dtp_status dtp_vjp_unbroadcast(dtp_vjp *v, dtp_tensor_id dy, dtp_tensor_id like, dtp_tensor_id *out,
                               dtp_err *err)
{
    const dtp_ttype *have = &v->g->tensors[dy].type;
    const dtp_ttype *want = &v->g->tensors[like].type;
    bool same = have->rank == want->rank;
    for (int32_t i = 0; i < have->rank && same; i++) {
        same = have->dims[i].id == want->dims[i].id;
    }
    if (same) {
        *out = dy;
        return DTP_OK;
    }
    return dtp_vjp_emit(v, &(dtp_vjp_op){"einsum", 1, &dy, 0, NULL}, like, out, err);
}

/* ---- the walk ---- */

typedef struct gradient_walk {
    dtp_graph *g;
    int32_t n_forward_tensors, n_forward_nodes;
    bool *wanted;         /* the tensor depends on something whose gradient is asked for */
    dtp_tensor_id *grads; /* by forward tensor: sum of the contributions so far, -1 = none */
} gradient_walk;

/* Marks what depends on a parameter that is trained or on one of `also`. */
static void mark_wanted(gradient_walk *w, int32_t n_also, const dtp_tensor_id *also)
{
    for (int32_t t = 0; t < w->n_forward_tensors; t++) {
        w->wanted[t] = dtp_tensor_trains(&w->g->tensors[t]);
    }
    for (int32_t i = 0; i < n_also; i++) {
        w->wanted[also[i]] = true;
    }
    for (int32_t n = 0; n < w->n_forward_nodes; n++) {
        const dtp_node *node = &w->g->nodes[n];
        bool any = false;
        for (int32_t i = 0; i < node->n_in; i++) {
            any = any || w->wanted[node->in[i]];
        }
        for (int32_t i = 0; i < node->n_out && any; i++) {
            if (dtp_dtype_is_float(w->g->tensors[node->out[i]].type.dtype)) {
                w->wanted[node->out[i]] = true;
            }
        }
    }
}

static dtp_status differentiate(gradient_walk *w, dtp_node_id id, dtp_err *err)
{
    const dtp_node *n = &w->g->nodes[id];
    dtp_tensor_id d_out[DTP_MAX_OP_OUT];
    dtp_vjp v = {.g = w->g, .node = id, .in = n->in, .out = n->out, .d_out = d_out};
    bool reached = false, needed = false;
    const int32_t n_in = n->n_in;
    for (int32_t i = 0; i < n->n_out; i++) {
        d_out[i] = w->grads[n->out[i]];
        reached = reached || d_out[i] >= 0;
    }
    for (int32_t i = 0; i < n_in; i++) {
        v.d_in[i] = -1;
        v.need[i] = w->wanted[n->in[i]];
        needed = needed || v.need[i];
    }
    if (!reached || !needed) {
        return DTP_OK;
    }
    if (n->op->vjp == NULL) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "node '%s': op '%s' is not differentiable: %s",
                        n->name, n->op->name, n->op->no_grad);
    }
    DTP_TRY(n->op->vjp(&v, err));
    for (int32_t i = 0; i < n_in; i++) {
        const dtp_tensor_id part = v.d_in[i], t = v.in[i];
        if (part < 0) {
            continue;
        }
        if (!dtp_ttype_equal(&w->g->tensors[part].type, &w->g->tensors[t].type)) {
            return DTP_FAIL(err, DTP_INTERNAL,
                            "node '%s': the gradient of operand %d has another type",
                            w->g->nodes[id].name, i);
        }
        if (v.need[i] && w->grads[t] < 0) {
            w->grads[t] = part;
        } else if (v.need[i]) {
            const dtp_tensor_id both[2] = {w->grads[t], part};
            DTP_TRY(dtp_vjp_emit(&v, &(dtp_vjp_op){"add", 2, both, 0, NULL}, t, &w->grads[t], err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_autodiff(dtp_graph *g, dtp_tensor_id loss, int32_t n_also, const dtp_tensor_id *also,
                        dtp_tensor_id *also_grads, dtp_err *err)
{
    const size_t n = (size_t)g->n_tensors;
    gradient_walk w = {.g = g,
                       .n_forward_tensors = g->n_tensors,
                       .n_forward_nodes = g->n_nodes,
                       .wanted = dtp_arena_alloc(g->arena, n, sizeof(bool)),
                       .grads = dtp_arena_alloc(g->arena, n, sizeof(dtp_tensor_id))};
    DTP_TRY(DTP_MEMORY(err, w.wanted, w.grads));
    for (size_t i = 0; i < n; i++) {
        w.grads[i] = -1;
    }
    mark_wanted(&w, n_also, also);
    /* The gradient of the loss is one. */
    const dtp_graph_tensor *t = &g->tensors[loss];
    if (t->type.rank != 0 || !dtp_dtype_is_float(t->type.dtype)) {
        char type[DTP_TTYPE_TEXT_BYTES];
        dtp_ttype_print(&t->type, &g->dims, type);
        return DTP_FAIL(err, DTP_INVALID, "the loss '%s' must be one number, it is %s", t->name,
                        type);
    }
    if (t->producer < 0) {
        return DTP_FAIL(err, DTP_INVALID, "the loss '%s' is not the output of a node", t->name);
    }
    char name[NAME_BYTES];
    (void)snprintf(name, sizeof name, "grad.%s", t->name);
    dtp_attr attrs[] = {dtp_attr_float("value", 1.0),
                        dtp_attr_int("dtype", (int64_t)t->type.dtype)};
    dtp_node_spec spec = dtp_node_spec_init(name, "constant");
    spec.n_attrs = 2;
    spec.attrs = attrs;
    spec.out = &t->type;
    spec.phase = DTP_BACKWARD;
    spec.origin = t->producer;
    DTP_TRY(dtp_graph_add_node(g, &spec, &w.grads[loss], err));
    for (dtp_node_id id = w.n_forward_nodes - 1; id >= 0; id--) {
        DTP_TRY(differentiate(&w, id, err));
    }
    for (int32_t i = 0; i < w.n_forward_tensors; i++) {
        if (dtp_tensor_trains(&g->tensors[i]) && w.grads[i] >= 0) {
            DTP_TRY(dtp_graph_add_grad(g, (dtp_param_grad){i, w.grads[i]}, err));
        }
    }
    for (int32_t i = 0; i < n_also; i++) {
        also_grads[i] = w.grads[also[i]];
    }
    return DTP_OK;
}
