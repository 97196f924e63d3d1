/* The forms in which a plan leaves: each a small writer over the placements
 * (interop/export/placements.h). */
#include "interop/export/forms.h"
#include "interop/export/torch_modules.h"

#include <string.h>

/* Bits of kinds: of what placements do not lose, of what JAX's names and PyTorch's modules make up
 * for, and of training, which rules and styles of parameters do not speak of. */
enum {
    OWN = 1 << DTP_LOST_PARTIAL | 1 << DTP_LOST_TERMS,
    MODULES = 1 << DTP_LOST_INSIDE | 1 << DTP_LOST_MESH_ORDER,
    TRAINING = 1 << DTP_LOST_GRADIENTS | 1 << DTP_LOST_STATES
};

const dtp_export_form dtp_export_forms[] = {
    {"placements", "every parameter, activation, input and output: dtp.placements/1",
     ~(uint32_t)OWN, 0, false, false, dtp_export__placements},
    {"torch", "placements, with what parallelize_module and fully_shard take: dtp.torch/1",
     ~(uint32_t)(OWN | MODULES), MODULES, true, false, dtp_export__torch},
    {"jax", "a PartitionSpec per parameter, and points to constrain, for JAX",
     ~(uint32_t)(MODULES | 1 << DTP_LOST_STATISTICS), 0, false, true, dtp_export__jax},
    {"hf", "a tp_plan of transformers' style names", TRAINING, 0, false, false, dtp_export__hf},
    {"rules", "logical axis rules (MaxText, flax)", TRAINING, 0, false, false, dtp_export__rules},
    {NULL, NULL, 0, 0, false, false, NULL},
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

/* The list "lost", and the end. */
static void write_lost(const dtp_lost *lost, dtp_json_writer *w)
{
    dtp_json_begin_array(w, "lost", false);
    for (int32_t k = 0; k < DTP_N_LOST; k++) {
        if (!lost->any[k]) {
            continue;
        }
        dtp_json_begin_object(w, NULL);
        dtp_json_write_string(w, "what", dtp_lost_name((dtp_lost_kind)k));
        dtp_json_write_string(w, "why", dtp_lost_why((dtp_lost_kind)k));
        dtp_json_write_string(w, "instead", dtp_lost_instead((dtp_lost_kind)k));
        dtp_json_begin_array(w, "names", true);
        for (int32_t i = 0; i < lost->n[k]; i++) {
            dtp_json_write_string(w, NULL, lost->names[k][i]);
        }
        dtp_json_end_array(w);
        dtp_json_end_object(w);
    }
    dtp_json_end_array(w);
    dtp_json_end_object(w);
    dtp_strbuf_add(&w->buf, "\n");
}

dtp_status dtp_export_write(const dtp_export_form *form, const dtp_placements *p,
                            dtp_json_writer *w, dtp_lost *lost, dtp_err *err)
{
    const uint32_t loses = form->loses | 1U << DTP_LOST_NAME;
    *lost = p->lost;
    for (int32_t k = 0; k < DTP_N_LOST; k++) {
        if ((loses >> k & 1U) == 0) {
            lost->any[k] = false;
            lost->n[k] = lost->capacity[k] = 0;
            lost->names[k] = NULL;
        }
    }
    DTP_TRY(form->write(p, w, lost, err));
    write_lost(lost, w);
    return DTP_OK;
}

dtp_status dtp_export_says_all(const dtp_export_form *form, const dtp_plan *plan,
                               const dtp_graph *graph, const dtp_names *names, dtp_said *how,
                               dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_placements placements;
    dtp_json_writer w = {0};
    dtp_lost lost = {0};
    dtp_status s = arena != NULL
                       ? dtp_placements_make(plan, graph, names, arena, &placements, err)
                       : DTP_FAIL(err, DTP_NOMEM, "out of memory for the form '%s'", form->name);
    s = s == DTP_OK ? dtp_export_write(form, &placements, &w, &lost, err) : s;
    *how = s == DTP_OK ? DTP_SAID : DTP_SAID_NOT;
    for (int32_t k = 0; k < DTP_N_LOST; k++) {
        const bool hint = k == DTP_LOST_NAME || k == DTP_LOST_STATISTICS;
        *how = !hint && lost.any[k] ? DTP_SAID_NOT : *how;
    }
    if (*how == DTP_SAID && form->has_modules) {
        dtp_torch_plan modules;
        s = dtp_torch_plan_make(&placements, &modules, err);
        *how = s == DTP_OK && !modules.by_modules ? DTP_SAID_PLACEMENTS : DTP_SAID;
    }
    dtp_strbuf_free(&w.buf);
    dtp_arena_destroy(arena);
    return s;
}

const char *dtp_export_placements_fail(const dtp_graph *model, const char *kind)
{
    const bool program = model->framework != NULL && strcmp(model->framework, "torch") == 0;
    bool attention = false;
    for (dtp_node_id n = 0; n < model->n_nodes; n++) {
        attention = attention || (model->nodes[n].op->flags & DTP_OP_ATTENTION) != 0;
    }
    return program && model->loss >= 0 ? "the module returns its loss, and views in its code may "
                                         "divide what is split, which "
                                         "DTensor refuses"
           : attention && strcmp(kind, "cpu") == 0
               ? "DTensor has no rule for the CPU's scaled_dot_product_attention"
               : NULL;
}
