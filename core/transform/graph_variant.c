#include "core/transform/graph_variant.h"

#include "core/transform/microbatch.h"

dtp_status dtp_graph_variant_parse(const char *remat, const char *microbatches,
                                   const dtp_graph *model, dtp_arena *arena, dtp_graph_variant *out,
                                   dtp_err *err)
{
    *out = (dtp_graph_variant){.micro_dim = -1};
    if (remat != NULL) {
        DTP_TRY(dtp_remat_parse(remat, model, arena, &out->remat, err));
    }
    return microbatches == NULL ? DTP_OK
                                : dtp_microbatches_parse(microbatches, model, &out->micro_dim,
                                                         &out->microbatches, err);
}

bool dtp_graph_variant_any(const dtp_graph_variant *variant)
{
    return variant->remat.n > 0 || variant->microbatches > 1;
}

/* The changed graph; NULL in *out when nothing changes. */
static dtp_status change(const dtp_graph *model, const dtp_graph_variant *c, dtp_graph **out,
                         dtp_err *err)
{
    dtp_graph *again = NULL;
    *out = NULL;
    if (c->remat.n > 0) {
        DTP_TRY(dtp_graph_rematerialize(model, &c->remat, &again, err));
    }
    if (c->microbatches <= 1) {
        *out = again;
        return DTP_OK;
    }
    dtp_status s = dtp_graph_microbatched(again != NULL ? again : model, c->micro_dim,
                                          c->microbatches, out, err);
    dtp_graph_destroy(again);
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
