/* --as hf: a tp_plan of Hugging Face's transformers, module -> style, which `dtplan plan
 * --style-file` reads (interop/styles/styles_hf.c). It speaks of one mesh dim: of that over which
 * most parameters are split both where they are kept and where the forward pass reads them.
 * What a module's parameters do not agree on, and what no style says, is lost, under the
 * parameters' names. */
#include "interop/export/forms.h"
#include "interop/export/module_styles.h"

static const char *const STYLES[] = {
    /* NULL: the module is left out */
    [DTP_MODULE_NONE] = NULL,
    [DTP_MODULE_BIAS] = NULL,
    [DTP_MODULE_COLWISE] = "colwise",
    [DTP_MODULE_COLWISE_GATHER] = "colwise_gather_output",
    [DTP_MODULE_PACKED_COLWISE] = "packed_colwise",
    [DTP_MODULE_ROWWISE] = "rowwise",
    [DTP_MODULE_EMBEDDING_ROWWISE] = "embedding_rowwise",
    [DTP_MODULE_SEQUENCE] = "sequence_parallel",
    [DTP_MODULE_REPLICATE] = "replicate",
    [DTP_MODULE_WHOLE] = "replicate",
    [DTP_MODULE_GRADIENT_SUM] = "replicated_with_grad_allreduce",
};

typedef struct hf_plan {
    const dtp_placements *p;
    dtp_lost *lost;
    dtp_module_styles s;
} hf_plan;

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

/* What rowwise modules leave split. */
static dtp_status lose_outputs(hf_plan *h, dtp_err *err)
{
    const dtp_placements *p = h->p;
    for (int32_t i = 0; i < p->n_activations && h->s.m >= 0; i++) {
        const dtp_placed *t = &p->activations[i];
        int32_t module;
        if (t->module == NULL || !dtp_splits_over(&t->kept, h->s.m)) {
            continue;
        }
        DTP_TRY(dtp_module_styles_index(&h->s, t, &module, err));
        const dtp_module_style style = h->s.modules[module].style;
        if (style == DTP_MODULE_ROWWISE || style == DTP_MODULE_EMBEDDING_ROWWISE) {
            DTP_TRY(lose(h, DTP_LOST_OUTPUT, t->name, err));
        }
    }
    return DTP_OK;
}

static dtp_status lose_params(hf_plan *h, dtp_err *err)
{
    const dtp_placements *p = h->p;
    for (int32_t i = 0; i < p->n_params && h->s.m >= 0; i++) {
        if (STYLES[h->s.modules[h->s.of[i]].style] == NULL) {
            DTP_TRY(lose(h, DTP_LOST_STYLE, p->params[i].name, err));
        }
    }
    DTP_TRY(lose_other_dims(h, p->n_params, p->params, err));
    DTP_TRY(lose_other_dims(h, p->n_inputs, p->inputs, err));
    return lose_outputs(h, err);
}

dtp_status dtp_export__hf(const dtp_placements *p, dtp_json_writer *w, dtp_lost *lost, dtp_err *err)
{
    hf_plan h = {.p = p, .lost = lost, .s = {.p = p, .m = choose_mesh_dim(p), .patterns = true}};
    DTP_TRY(dtp_module_styles_find(&h.s, err));
    DTP_TRY(lose_params(&h, err));
    dtp_export__begin(p, "dtp.tp_plan/1", w);
    if (h.s.m >= 0) {
        dtp_json_write_string(w, "mesh_dim", p->plan->mesh.names[h.s.m]);
    } else {
        dtp_json_write_null(w, "mesh_dim");
    }
    dtp_json_begin_object(w, "tp_plan");
    for (int32_t i = 0; i < h.s.n; i++) {
        if (STYLES[h.s.modules[i].style] != NULL) {
            dtp_json_write_string(w, h.s.modules[i].key, STYLES[h.s.modules[i].style]);
        }
    }
    dtp_json_end_object(w);
    return DTP_OK;
}
