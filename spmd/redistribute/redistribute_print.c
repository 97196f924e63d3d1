#include "spmd/redistribute/redistribute_print.h"

const char *dtp_step_name(dtp_step_kind kind)
{
    static const char *const names[] = {
        [DTP_STEP_ALL_REDUCE] = "all_reduce", [DTP_STEP_REDUCE_SCATTER] = "reduce_scatter",
        [DTP_STEP_ALL_GATHER] = "all_gather", [DTP_STEP_ALL_TO_ALL] = "all_to_all",
        [DTP_STEP_SLICE] = "slice",           [DTP_STEP_SCALE] = "scale",
        [DTP_STEP_KEEP_FIRST] = "keep_first"};
    return names[kind];
}

void dtp_layout_trace(const dtp_layout *layout, dtp_strbuf *out)
{
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *p = &layout->placement[m];
        int32_t splits[DTP_MAX_MESH_DIMS];
        if (p->kind == DTP_PARTIAL) {
            dtp_strbuf_addf(out, "P(%s)", dtp_reduce_op_name((dtp_reduce_op)p->op));
        } else if (p->kind == DTP_REPLICATE) {
            dtp_strbuf_add(out, "R");
        } else if (dtp_layout_axis_splits(layout, p->axis, splits) > 1) {
            dtp_strbuf_addf(out, "S(%d)[%d]", p->axis, p->order);
        } else {
            dtp_strbuf_addf(out, "S(%d)", p->axis);
        }
    }
}

void dtp_steps_trace(const dtp_layout *from, const dtp_steps *steps, dtp_strbuf *out)
{
    dtp_layout_trace(from, out);
    for (int32_t i = 0; i < steps->n; i++) {
        dtp_strbuf_add(out, "\xe2\x86\x92");
        dtp_layout_trace(&steps->steps[i].after, out);
    }
}
