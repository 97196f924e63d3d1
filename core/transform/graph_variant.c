#include "core/transform/graph_variant.h"

#include "core/transform/microbatch.h"

dtp_status dtp_graph_variant_parse(const dtp_variant_texts *texts, const dtp_graph *model,
                                   dtp_arena *arena, dtp_graph_variant *out, dtp_err *err)
{
    *out = (dtp_graph_variant){.micro_dim = -1};
    if (texts->precision != NULL) {
        DTP_TRY(dtp_precision_parse(texts->precision, &out->precision, err));
    }
    if (texts->remat != NULL) {
        DTP_TRY(dtp_remat_parse(texts->remat, model, arena, &out->remat, err));
    }
    return texts->microbatches == NULL
               ? DTP_OK
               : dtp_microbatches_parse(texts->microbatches, model, &out->micro_dim,
                                        &out->microbatches, err);
}

bool dtp_graph_variant_any(const dtp_graph_variant *variant)
{
    return variant->precision.compute != DTP_F32 || variant->remat.n > 0 ||
           variant->microbatches > 1;
}

/* The changed graph; NULL in *out when nothing changes. */
static dtp_status change(const dtp_graph *model, const dtp_graph_variant *c, dtp_graph **out,
                         dtp_err *err)
{
    dtp_graph *last = NULL, *next = NULL;
    dtp_status s = DTP_OK;
    if (c->precision.compute != DTP_F32) {
        DTP_TRY(dtp_graph_with_precision(model, &c->precision, &last, err));
    }
    if (c->remat.n > 0) {
        s = dtp_graph_rematerialize(last != NULL ? last : model, &c->remat, &next, err);
        dtp_graph_destroy(last);
        last = next;
    }
    if (s == DTP_OK && c->microbatches > 1) {
        next = NULL;
        s = dtp_graph_microbatched(last != NULL ? last : model, c->micro_dim, c->microbatches,
                                   &next, err);
        dtp_graph_destroy(last);
        last = next;
    }
    *out = last;
    return s;
}

dtp_status dtp_graph_with_variant(const dtp_graph *model, const dtp_graph_variant *variant,
                                  int32_t n_implementations,
                                  const dtp_implementation *implementations, dtp_graph **out,
                                  dtp_err *err)
{
    dtp_graph *changed = NULL;
    DTP_TRY(change(model, variant, &changed, err));
    if (changed == NULL) {
        return dtp_graph_with_implementations(model, n_implementations, implementations, out, err);
    }
    dtp_status s = dtp_implementations_apply(changed, n_implementations, implementations, err);
    if (s != DTP_OK) {
        dtp_graph_destroy(changed);
        return s;
    }
    *out = changed;
    return DTP_OK;
}

dtp_status dtp_graph_variant_copy(const dtp_graph_variant *from, dtp_arena *arena,
                                  dtp_graph_variant *out, dtp_err *err)
{
    const char **items = dtp_arena_alloc(arena, (size_t)from->remat.n, sizeof *items);
    bool ok = items != NULL;
    for (int32_t i = 0; i < from->remat.n && ok; i++) {
        items[i] = dtp_arena_strdup(arena, from->remat.items[i]);
        ok = items[i] != NULL;
    }
    *out = *from;
    out->remat.items = items;
    return ok ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for a list of blocks");
}
