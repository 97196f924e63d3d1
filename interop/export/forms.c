#include "interop/export/forms.h"

#include <string.h>

const dtp_export_form dtp_export_forms[] = {
    {"placements", "every parameter, activation, input and output: dtp.placements/1",
     dtp_export__placements},
    {"torch", "placements, with what parallelize_module and fully_shard take: dtp.torch/1",
     dtp_export__torch},
    {"jax", "a PartitionSpec per parameter, and points to constrain, for JAX", dtp_export__jax},
    {"hf", "a tp_plan of transformers' style names", dtp_export__hf},
    {"rules", "logical axis rules (MaxText, flax)", dtp_export__rules},
    {NULL, NULL, NULL},
};

dtp_status dtp_export_form_find(const char *name, const dtp_export_form **out, dtp_err *err)
{
    dtp_strbuf known = {0};
    for (const dtp_export_form *f = dtp_export_forms; f->name != NULL; f++) {
        if (strcmp(f->name, name) == 0) {
            *out = f;
            dtp_strbuf_free(&known);
            return DTP_OK;
        }
        dtp_strbuf_addf(&known, "%s%s", known.len > 0 ? ", " : "", f->name);
    }
    const dtp_status s = known.failed
                             ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a list of forms")
                             : DTP_FAIL(err, DTP_INVALID, "there is no form '%.60s'; there are %s",
                                        name, dtp_strbuf_text(&known));
    dtp_strbuf_free(&known);
    return s;
}
