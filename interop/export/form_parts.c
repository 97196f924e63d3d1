/* What all forms begin with. */
#include "interop/export/forms.h"

void dtp_export__begin(const dtp_placements *p, const char *format, dtp_json_writer *w)
{
    dtp_json_begin_object(w, NULL);
    dtp_json_write_string(w, "format", format);
    dtp_json_write_string(w, "model", p->graph->name);
    if (p->names != NULL) {
        dtp_json_write_string(w, "framework", p->names->framework);
    }
    dtp_mesh_write(w, &p->plan->mesh);
}

void dtp_export__variant(const dtp_placements *p, dtp_json_writer *w)
{
    const dtp_graph_variant *variant = &p->plan->variant;
    char precision[DTP_PRECISION_TEXT_BYTES];
    dtp_precision_print(&variant->precision, precision);
    dtp_json_write_string(w, "precision", precision);
    dtp_json_write_int(w, "microbatches", p->graph->microbatches > 1 ? p->graph->microbatches : 1);
    if (p->graph->n_micro_dims > 0) {
        dtp_json_write_string(w, "microbatch_dim",
                              dtp_dims_name(&p->graph->dims, p->graph->micro_dims[0]));
    }
    dtp_json_begin_array(w, "recomputed", true);
    for (int32_t i = 0; i < variant->remat.n; i++) {
        dtp_json_write_string(w, NULL, variant->remat.items[i]);
    }
    dtp_json_end_array(w);
}
