/* What all forms begin with. */
#include <string.h>

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

dtp_status dtp_export__numbered(const dtp_placed *of, dtp_arena *arena, const char **out,
                                dtp_err *err)
{
    *out = NULL;
    for (const char *at = of->name; *at != '\0';) {
        const size_t part = strcspn(at, "."), digits = strspn(at, "0123456789");
        if (part > 0 && digits == part && at > of->name) {
            *out = dtp_arena_printf(arena, "%.*s", (int)(at + part - of->name), of->name);
            return DTP_MEMORY(err, *out);
        }
        at += part + (at[part] == '.' ? 1 : 0);
    }
    return DTP_OK;
}
