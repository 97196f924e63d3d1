/* Settings: attributes that say how a node runs when it is split, not what it computes
 * (`implementation` in its spec). */
#include "core/graph/implementation.h"

#include <inttypes.h>
#include <string.h>

const dtp_attr_spec *dtp_implementation_spec(const dtp_op_def *op, const char *key)
{
    const dtp_attr_spec *spec = dtp_op_attr(op, key);
    return spec != NULL && spec->implementation ? spec : NULL;
}

/* Whether the op takes the attributes that a node has now. */
static dtp_status check(const dtp_graph *g, const dtp_node *node, dtp_err *err)
{
    dtp_call_types types;
    const dtp_op_call call = dtp_node_call(g, node, &types);
    dtp_ttype out[DTP_MAX_OP_OUT];
    memcpy(out, types.out, sizeof out);
    return dtp_err_prefixed(node->op->infer(&call, true, out, err), err, "node '%s' (%s)",
                            node->name, node->op->name);
}

dtp_status dtp_implementations_apply(dtp_graph *g, int32_t n,
                                     const dtp_implementation *implementations, dtp_err *err)
{
    for (int32_t i = 0; i < n; i++) {
        const dtp_implementation *implementation = &implementations[i];
        if (implementation->node < 0 || implementation->node >= g->n_nodes) {
            return DTP_FAIL(err, DTP_INVALID, "setting '%s': there is no node %d",
                            implementation->key, implementation->node);
        }
        dtp_node *node = &g->nodes[implementation->node];
        const dtp_attr_spec *spec = dtp_implementation_spec(node->op, implementation->key);
        int64_t choices = 0;
        while (spec != NULL && spec->choices[choices] != NULL) {
            choices++;
        }
        if (implementation->value < 0 || implementation->value >= choices) {
            return DTP_FAIL(err, DTP_INVALID, "node '%s' (%s) has no setting '%s' number %" PRId64,
                            node->name, node->op->name, implementation->key, implementation->value);
        }
        dtp_attr *attrs;
        DTP_TRY(DTP_NEW(g->arena, attrs, node->n_attrs, err));
        memcpy(attrs, node->attrs, (size_t)node->n_attrs * sizeof *attrs);
        attrs[spec - node->op->attrs].i = implementation->value;
        node->attrs = attrs;
        DTP_TRY(check(g, node, err));
    }
    return DTP_OK;
}

dtp_status dtp_graph_with_implementations(const dtp_graph *g, int32_t n,
                                          const dtp_implementation *implementations,
                                          dtp_graph **out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_graph *changed = arena == NULL ? NULL : dtp_arena_alloc(arena, 1, sizeof *changed);
    if (changed == NULL) {
        dtp_arena_destroy(arena);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a graph");
    }
    *changed = *g;
    changed->arena = arena;
    changed->cap_nodes = g->n_nodes;
    changed->cap_tensors = g->n_tensors;
    dtp_status s = DTP_NEW(arena, changed->nodes, g->n_nodes, err);
    s = s == DTP_OK ? DTP_NEW(arena, changed->tensors, g->n_tensors, err) : s;
    for (int32_t i = 0; i < g->n_nodes && s == DTP_OK; i++) {
        changed->nodes[i] = g->nodes[i];
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors && s == DTP_OK; t++) {
        changed->tensors[t] = g->tensors[t];
    }
    s = s == DTP_OK ? dtp_implementations_apply(changed, n, implementations, err) : s;
    return dtp_graph_deliver(changed, s, out);
}
