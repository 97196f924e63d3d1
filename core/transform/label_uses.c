/* Labels that a loss ignores, such as -100, by the tensors whose elements become labels. */
#include "core/transform/label_uses.h"

#include "core/graph/ops/cross_entropy.h"

/* What operand i of a node may hold. Floats and what an op takes as any integer: everything. */
static dtp_label_use use_of(const dtp_graph *g, const dtp_node *node, int32_t i,
                            const dtp_label_use *uses)
{
    const dtp_dtype type = g->tensors[node->in[i]].type.dtype;
    const bool integer = !dtp_dtype_is_float(type) && type != DTP_BOOL;
    const dtp_label_use none = {0};
    if (i < dtp_op_moved(node->op, node->n_in)) {
        /* truth values are not the elements */
        const bool truth = g->tensors[node->out[0]].type.dtype == DTP_BOOL;
        return truth ? none : uses[node->out[0]];
    }
    const int64_t *label = dtp_loss_ignored(node->op, node->n_attrs, node->attrs);
    const bool checks = integer && (node->op->flags & DTP_OP_CHECKS_DATA) != 0;
    const dtp_label_use use = {label, label == NULL};
    return checks ? use : none;
}

void dtp_label_uses_find(const dtp_graph *g, dtp_label_use *out)
{
    for (dtp_node_id n = g->n_nodes - 1; n >= 0; n--) {
        const dtp_node *node = &g->nodes[n];
        for (int32_t i = 0; i < node->n_in; i++) {
            const dtp_label_use use = use_of(g, node, i, out);
            dtp_label_use *to = &out[node->in[i]];
            const bool both = to->ignored != NULL && use.ignored != NULL;
            to->bounded = to->bounded || use.bounded || (both && *to->ignored != *use.ignored);
            to->ignored = use.ignored != NULL ? use.ignored : to->ignored;
        }
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        out[t].ignored = out[t].bounded ? NULL : out[t].ignored;
    }
}
