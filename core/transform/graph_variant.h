/* What a plan may change about the graph of its model before tensors get layouts: outputs that are
 * kept, precision, recomputation, microbatches and stages, in this order: what no output needs is
 * changed by none, and core/transform/precision.h says why of the others. */
#ifndef DTP_CORE_TRANSFORM_GRAPH_VARIANT_H
#define DTP_CORE_TRANSFORM_GRAPH_VARIANT_H

#include "core/transform/outputs.h"
#include "core/transform/precision.h"
#include "core/transform/recompute.h"
#include "core/transform/stages.h"
#include "core/graph/implementation.h"

typedef struct dtp_graph_variant {
    dtp_outputs outputs;
    dtp_precision precision;
    dtp_remat remat;
    int32_t microbatches; /* 0 and 1: none */
    dtp_dim_id micro_dim; /* with microbatches > 1; -1: dtp_microbatch_dim */
    const char *regather; /* dtp_regather_mark; NULL: as the target has it */
    dtp_stage_choice stages;
} dtp_graph_variant;

/* A variant as texts: "logits", "bf16", "layer:0-3 keep=**.attn$", "4" or "batch=4",
 * "layers.*.norm_1", "layer:0,2" and "1f1b" (dtp_outputs_parse, dtp_precision_parse,
 * dtp_remat_parse, dtp_microbatches_parse, dtp_regather_mark, dtp_stages_parse); NULL: none. */
typedef struct dtp_variant_texts {
    const char *outputs, *precision, *remat, *microbatches, *regather, *stages, *slots;
} dtp_variant_texts;

/* What texts say. Texts of the result are from `arena`; what regather names is checked when the
 * graph is made. */
dtp_status dtp_graph_variant_parse(const dtp_variant_texts *texts, const dtp_graph *model,
                                   dtp_arena *arena, dtp_graph_variant *out,
                                   dtp_err *err) DTP_MUST_CHECK;
/* Whether they change anything. */
bool dtp_graph_variant_any(const dtp_graph_variant *variant);

/* The graph that programs are lowered from. It borrows from `model`, which must outlive it.
 * Settings refer to nodes of the changed graph. Without variant and implementations it is like the
 * model. Fails as dtp_graph_with_outputs, dtp_graph_with_precision, dtp_graph_rematerialize,
 * dtp_graph_microbatched, dtp_stages_find and dtp_graph_with_implementations; DTP_INVALID where
 * microbatches do not keep an output that was named, and for stages without microbatches or in
 * f16. */
dtp_status dtp_graph_with_variant(const dtp_graph *model, const dtp_graph_variant *variant,
                                  int32_t n_implementations,
                                  const dtp_implementation *implementations, dtp_graph **out,
                                  dtp_err *err) DTP_MUST_CHECK;

/* A copy whose texts are from `arena`. */
dtp_status dtp_graph_variant_copy(const dtp_graph_variant *from, dtp_arena *arena,
                                  dtp_graph_variant *out, dtp_err *err) DTP_MUST_CHECK;

#endif
