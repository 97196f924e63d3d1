/* cross_entropy, its gradient and parts, over rows that each have a label, bound for any device
 * (core/graph/ops/cross_entropy.h has the terms). */
#include "executor/device/bound/labels.h"

/* Without logits labels lie below the number of weights, if there are any. */
static int64_t classes_of(const dtp_kernel_args *args, const dtp_bound_labels *b)
{
    const dtp_view *logits = b->rows.views[DTP_LOSS_LOGITS];
    return b->rows.dims.n_over > 0 ? dtp_view_global(logits, b->rows.dims.over[0].id)
           : b->terms.weights >= 0 ? args->in[b->terms.weights].local.dims[0].size
                                   : INT64_MAX;
}

void dtp_bind_labels(const dtp_kernel_args *args, dtp_label_op op, dtp_bound_labels *b)
{
    const dtp_view *in = args->in, *out = args->out;
    const bool reduces = op == DTP_LABEL_cross_entropy || op == DTP_LABEL_cross_entropy_grad;
    const dtp_view *labels = &in[op == DTP_LABEL_label_weight ? 0 : 1];
    const dtp_view *views[DTP_LOSS_VIEWS] = {&in[0], labels, labels, &out[0], labels};
    if (op == DTP_LABEL_cross_entropy) {
        views[DTP_LOSS_LSE] = &out[1];
    } else if (op == DTP_LABEL_cross_entropy_grad) {
        views[DTP_LOSS_LSE] = &in[2];
        views[DTP_LOSS_LOSS] = &in[3];
        views[DTP_LOSS_DX] = &out[0];
    }
    *b = (dtp_bound_labels){.terms = dtp_loss_terms_of(args->call),
                            .reduce = reduces ? (int32_t)dtp_call_int(args->call, "reduce")
                                              : DTP_LOSS_NONE,
                            .factor = 1.0};
    dtp_bind_views(args->call, "over", DTP_LOSS_VIEWS, views, &b->rows);
    b->local = b->rows.dims.count;
    b->size = classes_of(args, b);
    if (b->reduce == DTP_LOSS_MEAN) {
        b->weighted = b->terms.weights >= 0 || b->terms.has_ignore;
        b->factor =
            1.0 / (double)dtp_view_global_rows(labels, labels->local.rank, labels->local.dims);
    }
}

int64_t dtp_labels_first(const dtp_bound_labels *b)
{
    return b->rows.dims.n_over > 0
               ? dtp_view_offset(b->rows.views[DTP_LOSS_LOGITS], b->rows.dims.over[0].id)
               : 0;
}
