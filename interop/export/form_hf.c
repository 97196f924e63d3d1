/* --as hf: a tp_plan of Hugging Face's transformers, module -> style, which `dtplan plan
 * --style-file` reads (interop/styles/styles_hf.c). It speaks of one mesh dim: of that over which
 * most parameters are split both where they are kept and where the forward pass reads them.
 * What a module's parameters do not agree on, and what no style says, is lost, under the
 * parameters' names. */
#include <string.h>

#include "interop/export/forms.h"
#include "interop/export/hf_flow.h"

typedef struct hf_plan {
    const dtp_placements *p;
    dtp_lost *lost;
    dtp_module_styles s;
    dtp_hf_flow flow;
} hf_plan;

/* transformers' name of what a module does. What the plan has whole is said, too: transformers
 * takes modules that are left out from the plan of the model's class. */
static const char *style_of(const dtp_hf_module *module)
{
    static const char *const names[] = {
        [DTP_HF_COLWISE] = "colwise",
        [DTP_HF_ROWWISE] = "rowwise",
        [DTP_HF_TABLE_ROWS] = "embedding_rowwise",
        [DTP_HF_TABLE_COLUMNS] = "embedding_colwise",
    };
    return module->act == DTP_HF_WHOLE
               ? (module->sums ? "replicated_with_grad_allreduce" : "replicate")
           : module->act == DTP_HF_COLWISE && module->gathers ? "colwise_gather_output"
           : module->act == DTP_HF_COLWISE && module->packed  ? "packed_colwise"
           : module->split_input                              ? "rowwise_split_input"
                                                              : names[module->act];
}

static int32_t choose_mesh_dim(const dtp_placements *p)
{
    int32_t best = -1, most = 0;
    for (int32_t m = 0; m < p->plan->mesh.n_dims; m++) {
        int32_t n = 0;
        for (int32_t i = 0; i < p->n_params; i++) {
            n += dtp_splits_over(&p->params[i].kept, m) && dtp_splits_over(&p->params[i].read, m)
                     ? 1
                     : 0;
        }
        if (n > 0 && n >= most) {
            best = m;
            most = n;
        }
    }
    return best;
}

static dtp_status lose(hf_plan *h, dtp_lost_kind kind, const char *name, dtp_err *err)
{
    return dtp_lost_add(h->lost, h->p->arena, kind, name, err);
}

/* What is split over other mesh dims. */
static dtp_status lose_other_dims(hf_plan *h, int32_t n, const dtp_placed *list, dtp_err *err)
{
    for (int32_t i = 0; i < n; i++) {
        for (int32_t m = 0; m < h->p->plan->mesh.n_dims; m++) {
            if (m != h->s.m && dtp_splits_over(&list[i].kept, m)) {
                DTP_TRY(lose(h, DTP_LOST_MESH_DIMS, list[i].name, err));
            }
        }
    }
    return DTP_OK;
}

/* Inputs, and values that modules make or the model gives, which the plan has in parts and
 * transformers whole. */
static dtp_status lose_values(hf_plan *h, dtp_err *err)
{
    const dtp_placements *p = h->p;
    const dtp_graph *g = p->graph;
    for (int32_t i = 0; i < p->n_inputs; i++) {
        if (dtp_splits_over(&p->inputs[i].kept, h->s.m)) {
            DTP_TRY(lose(h, DTP_LOST_OUTPUT, p->inputs[i].name, err));
        }
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const bool speaks = dtp_placements_is_value(g, t) && h->flow.split[t] < 0 &&
                            dtp_splits_over(&p->plan->sharding.layouts[t], h->s.m);
        if (speaks && dtp_placements_maker(p, t) != NULL) {
            DTP_TRY(lose(h, DTP_LOST_OUTPUT, g->tensors[t].name, err));
        }
    }
    return DTP_OK;
}

/* Parameters that are split in the plan and whole in transformers. */
static dtp_status lose_params(hf_plan *h, dtp_err *err)
{
    const dtp_placements *p = h->p;
    for (int32_t i = 0; i < p->n_params; i++) {
        const dtp_module_style style = h->s.modules[h->s.of[i]].style;
        const bool whole = style == DTP_MODULE_NONE || style == DTP_MODULE_BIAS ||
                           h->flow.modules[h->s.of[i]].act == DTP_HF_WHOLE;
        const dtp_placed *of = &p->params[i];
        bool split = dtp_splits_over(&of->kept, h->s.m) || dtp_splits_over(&of->read, h->s.m);
        for (int32_t k = 0; k < of->n_of; k++) {
            split = split || dtp_splits_over(&p->plan->sharding.layouts[of->of[k]], h->s.m);
        }
        if (whole && split) {
            DTP_TRY(lose(h, DTP_LOST_STYLE, p->params[i].name, err));
        }
    }
    return lose_values(h, err);
}

/* Parameters that are none of a layer, as those of experts, have keys of their own in the plans of
 * transformers' classes; they are whole. Each pattern once. */
static dtp_status write_others(const hf_plan *h, dtp_json_writer *w, dtp_err *err)
{
    const char **keys;
    int32_t n = 0;
    DTP_TRY(DTP_NEW(h->p->arena, keys, h->p->n_params + 1, err));
    for (int32_t i = 0; i < h->p->n_params && h->s.m >= 0 && h->p->names != NULL; i++) {
        int32_t k = 0;
        if (dtp_hf_is_layers(&h->p->params[i])) {
            continue;
        }
        DTP_TRY(dtp_module_pattern(h->p->params[i].name, h->p->arena, &keys[n], err));
        while (strcmp(keys[k], keys[n]) != 0) {
            k++;
        }
        if (k == n) {
            dtp_json_write_string(w, keys[n++], "replicate");
        }
    }
    return DTP_OK;
}

dtp_status dtp_export__hf(const dtp_placements *p, dtp_json_writer *w, dtp_lost *lost, dtp_err *err)
{
    hf_plan h = {.p = p, .lost = lost, .s = {.p = p, .m = choose_mesh_dim(p), .patterns = true}};
    DTP_TRY(dtp_module_styles_find(&h.s, err));
    if (h.s.m >= 0) {
        DTP_TRY(dtp_hf_flow_find(&h.s, &h.flow, err));
        DTP_TRY(lose_params(&h, err));
    }
    DTP_TRY(lose_other_dims(&h, p->n_params, p->params, err));
    DTP_TRY(lose_other_dims(&h, p->n_inputs, p->inputs, err));
    dtp_export__begin(p, "dtp.tp_plan/1", w);
    if (h.s.m >= 0) {
        dtp_json_write_string(w, "mesh_dim", p->plan->mesh.names[h.s.m]);
    } else {
        dtp_json_write_null(w, "mesh_dim");
    }
    dtp_json_begin_object(w, "tp_plan");
    for (int32_t i = 0; i < h.s.n && h.s.m >= 0; i++) {
        dtp_json_write_string(w, h.s.modules[i].key, style_of(&h.flow.modules[i]));
    }
    DTP_TRY(write_others(&h, w, err));
    dtp_json_end_object(w);
    return DTP_OK;
}
