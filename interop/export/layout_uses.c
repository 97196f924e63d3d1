/* How nodes read and make tensors under a sharding. */
#include "core/plan/node_layouts.h"
#include "interop/export/placements.h"

/* As the lowering decides it: with replicas rows split in mesh order, else in the order in which
 * operands and outputs are kept. */
static dtp_status node_layouts(const dtp_graph *g, const dtp_sharding *s, dtp_node_id n,
                               dtp_node_layouts *out, dtp_err *err)
{
    const dtp_node *node = &g->nodes[n];
    const bool in_mesh_order = dtp_sharding_has_replicas(s);
    dtp_layout in[DTP_MAX_OP_IN], kept[DTP_MAX_OP_OUT];
    dtp_call_types types;
    dtp_op_call call = dtp_node_call(g, node, &types);
    for (int32_t i = 0; i < node->n_in; i++) {
        in[i] = in_mesh_order ? dtp_layout_replicated(types.in[i].rank, s->mesh.n_dims)
                              : s->layouts[node->in[i]];
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        kept[i] = s->layouts[node->out[i]];
    }
    return dtp_err_prefixed(dtp_node_layouts_find(&s->mesh, &call, NULL, &s->strategies[n], in,
                                                  in_mesh_order ? NULL : kept, out, err),
                            err, "node '%s' (%s)", node->name, node->op->name);
}

dtp_tensor_id dtp_uses_of_layouts_tensor(const dtp_graph *g, const dtp_node *node, int32_t operand)
{
    const dtp_tensor_id own = dtp_graph_repeated(g, node->in[operand]);
    const dtp_tensor_id param = dtp_graph_param_of(g, own);
    return param >= 0 && (node->op->flags & DTP_OP_CAST) != 0 ? -1 : param >= 0 ? param : own;
}

static void note_read(const dtp_graph *g, dtp_node_id n, int32_t operand, const dtp_layout *layout,
                      dtp_uses_of_layouts *uses)
{
    const dtp_node *node = &g->nodes[n];
    const dtp_tensor_id t = dtp_uses_of_layouts_tensor(g, node, operand);
    if (t < 0) {
        return;
    }
    const bool first = node->phase == DTP_FORWARD && uses->reader[t] < 0;
    if (first) {
        uses->reader[t] = n;
        uses->operand[t] = operand;
        uses->read[t] = *layout;
    }
    bool *differs = node->phase == DTP_FORWARD ? uses->several : uses->backward;
    differs[t] = differs[t] || (uses->reader[t] >= 0 && !dtp_layout_equal(&uses->read[t], layout));
}

dtp_status dtp_uses_of_layouts_find(const dtp_graph *g, const dtp_sharding *s, dtp_arena *arena,
                                    dtp_uses_of_layouts *uses, dtp_err *err)
{
    DTP_TRY(DTP_NEW(arena, uses->reader, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, uses->operand, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, uses->read, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, uses->made, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, uses->several, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, uses->backward, g->n_tensors, err));
    for (int32_t t = 0; t < g->n_tensors; t++) {
        uses->reader[t] = -1;
        uses->read[t] = uses->made[t] = s->layouts[t];
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        dtp_node_layouts l;
        if (node->phase == DTP_UPDATE) {
            continue;
        }
        DTP_TRY(node_layouts(g, s, n, &l, err));
        for (int32_t i = 0; i < node->n_in; i++) {
            note_read(g, n, i, &l.in[i], uses);
        }
        for (int32_t i = 0; i < node->n_out; i++) {
            uses->made[node->out[i]] = l.out[i];
        }
    }
    return DTP_OK;
}
