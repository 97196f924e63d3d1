/* Outputs, precision, recomputation and microbatches of a graph, in this order. */
#include "core/transform/graph_variant.h"

#include "core/transform/microbatch.h"
#include "core/transform/regather.h"

dtp_status dtp_graph_variant_parse(const dtp_variant_texts *texts, const dtp_graph *model,
                                   dtp_arena *arena, dtp_graph_variant *out, dtp_err *err)
{
    *out = (dtp_graph_variant){.micro_dim = -1};
    if (texts->regather != NULL) {
        out->regather = dtp_arena_strdup(arena, texts->regather);
        DTP_TRY(DTP_MEMORY(err, out->regather));
    }
    if (texts->outputs != NULL) {
        DTP_TRY(dtp_outputs_parse(texts->outputs, model, arena, &out->outputs, err));
    }
    if (texts->precision != NULL) {
        DTP_TRY(dtp_precision_parse(texts->precision, &out->precision, err));
    }
    if (texts->remat != NULL) {
        DTP_TRY(dtp_remat_parse(texts->remat, model, arena, &out->remat, err));
    }
    if (texts->microbatches != NULL) {
        DTP_TRY(dtp_microbatches_parse(texts->microbatches, model, &out->micro_dim,
                                       &out->microbatches, err));
    }
    if (texts->stages == NULL) {
        return texts->slots == NULL ? DTP_OK
                                    : DTP_FAIL(err, DTP_INVALID, "slots are those of stages");
    }
    return dtp_stages_parse(texts->stages, texts->slots, model, arena, &out->stages, err);
}

bool dtp_graph_variant_any(const dtp_graph_variant *variant)
{
    return variant->outputs.chosen || !dtp_precision_is_f32(&variant->precision) ||
           variant->remat.n > 0 || variant->microbatches > 1 || variant->regather != NULL ||
           variant->stages.n > 1;
}

/* A step holds one microbatch of rows of the batch: such outputs are left out, unless they were
 * asked for. */
static dtp_status check_microbatched(const dtp_graph *g, const dtp_outputs *outputs, dtp_err *err)
{
    for (int32_t i = 0; i < outputs->n; i++) {
        if (dtp_graph_output(g, outputs->names[i]) < 0) {
            return DTP_FAIL(err, DTP_INVALID,
                            "outputs: '%s' has one row per row of the batch, and a step of "
                            "microbatches keeps no such output",
                            outputs->names[i]);
        }
    }
    return DTP_OK;
}

/* The changed graph; NULL in *out when nothing changes. */
static dtp_status change(const dtp_graph *model, const dtp_graph_variant *c, dtp_graph **out,
                         dtp_err *err)
{
    dtp_graph *last = NULL, *next = NULL;
    dtp_status s = DTP_OK;
    if (c->stages.n > 1 && (c->microbatches < 2 || model->loss < 0)) {
        return DTP_FAIL(err, DTP_INVALID,
                        model->loss < 0 ? "stages: '%s' is not trained"
                                        : "stages: '%s': %d stages need at least 2 microbatches",
                        model->name, c->stages.n);
    }
    if (c->stages.n > 1 && c->precision.compute == DTP_F16) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "stages: f16 has a loss scale, which stages do not share: use bf16 or f32");
    }
    if (c->outputs.chosen) {
        DTP_TRY(dtp_graph_with_outputs(model, &c->outputs, &last, err));
    }
    if (!dtp_precision_is_f32(&c->precision)) {
        s = dtp_graph_with_precision(last != NULL ? last : model, &c->precision, &next, err);
        dtp_graph_destroy(last);
        last = next;
    }
    if (s == DTP_OK && c->remat.n > 0) {
        next = NULL;
        s = dtp_graph_rematerialize(last != NULL ? last : model, &c->remat, &next, err);
        dtp_graph_destroy(last);
        last = next;
    }
    if (s == DTP_OK && c->stages.n > 1) {
        s = dtp_graph_with_stage_terms(last != NULL ? last : model, &c->stages, &next, err);
        if (s == DTP_OK && next != NULL) {
            dtp_graph_destroy(last);
            last = next;
        }
    }
    if (s == DTP_OK && c->microbatches > 1) {
        next = NULL;
        s = dtp_graph_microbatched(last != NULL ? last : model, c->micro_dim, c->microbatches,
                                   &next, err);
        dtp_graph_destroy(last);
        last = next;
        s = s == DTP_OK ? check_microbatched(last, &c->outputs, err) : s;
    }
    return dtp_graph_deliver(last, s, out);
}

dtp_status dtp_graph_with_variant(const dtp_graph *model, const dtp_graph_variant *variant,
                                  int32_t n_implementations,
                                  const dtp_implementation *implementations, dtp_graph **out,
                                  dtp_err *err)
{
    dtp_graph *changed = NULL;
    DTP_TRY(change(model, variant, &changed, err));
    dtp_status s = changed == NULL ? dtp_graph_with_implementations(model, n_implementations,
                                                                    implementations, &changed, err)
                                   : dtp_implementations_apply(changed, n_implementations,
                                                               implementations, err);
    if (s == DTP_OK && variant->stages.n > 1) {
        dtp_stages *stages;
        s = DTP_NEW(changed->arena, stages, 1, err);
        s = s == DTP_OK ? dtp_stages_find(changed, &variant->stages, changed->arena, stages, err)
                        : s;
        changed->stages = stages;
    }
    if (s == DTP_OK && variant->regather != NULL) {
        s = dtp_regather_mark(changed, variant->regather, err);
    }
    return dtp_graph_deliver(changed, s, out);
}

static dtp_status copy_texts(dtp_arena *arena, int32_t n, const char *const *from,
                             const char *const **out, dtp_err *err)
{
    const char **texts = dtp_arena_alloc(arena, (size_t)n, sizeof *texts);
    bool ok = texts != NULL;
    for (int32_t i = 0; i < n && ok; i++) {
        texts[i] = dtp_arena_strdup(arena, from[i]);
        ok = texts[i] != NULL;
    }
    *out = texts;
    return ok ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for a graph variant");
}

dtp_status dtp_graph_variant_copy(const dtp_graph_variant *from, dtp_arena *arena,
                                  dtp_graph_variant *out, dtp_err *err)
{
    *out = *from;
    if (from->regather != NULL) {
        out->regather = dtp_arena_strdup(arena, from->regather);
        DTP_TRY(DTP_MEMORY(err, out->regather));
    }
    DTP_TRY(copy_texts(arena, from->outputs.n, from->outputs.names, &out->outputs.names, err));
    DTP_TRY(copy_texts(arena, dtp_stage_choice_chunks(&from->stages), from->stages.borders,
                       &out->stages.borders, err));
    return copy_texts(arena, from->remat.n, from->remat.items, &out->remat.items, err);
}
