/* Candidates of planning: decisions of a solver and baselines, and what is predicted of them, with
 * stages (cost_models/pipeline.h) or without. */
#ifndef DTP_COST_MODELS_CANDIDATE_H
#define DTP_COST_MODELS_CANDIDATE_H

#include "cost_models/predict.h"

typedef struct dtp_candidate {
    const char *name;       /* of a baseline; NULL for a solution */
    dtp_layout_rules rules; /* of layout rules */
    const char *rules_text; /* NULL: not made from layout rules */
    int32_t n_styles;
    const char *const *styles; /* what it was made from when not from rules */
    dtp_sharding sharding;     /* nothing in it: not made */
    dtp_arena *arena; /* of what is decided beside it (regather_choice.h); NULL: nothing is */
    const dtp_redistributor *redistributor; /* whose steps it is priced with */
    dtp_overlap overlap;
    bool legal;
    const char *why;          /* not legal: the reason */
    bool by_placements;       /* the form that is wanted says it by placements alone */
    int64_t cost_ps;          /* additive cost of the nodes, without passes */
    dtp_prediction predicted; /* of the final program */
} dtp_candidate;

/* Predicts c->sharding lowered by the options; fills redistributor, overlap, predicted and cost_ps.
 * Where it needs more than overlap.memory_bytes, what is gathered again is decided first.
 * *differs: `other` decides otherwise on some redistribution; else the program is also the one that
 * it would have made. */
dtp_status dtp_candidate_predict(const dtp_graph *g, const dtp_pricer *pricer,
                                 const dtp_lower_options *options, dtp_candidate *c,
                                 const dtp_redistributor *other, bool *differs,
                                 dtp_err *err) DTP_MUST_CHECK;

/* Predicts candidate->sharding, lowered with the redistributions of the generic machine, mostly
 * single all-reduces, which passes merge, and with those of options->redistributor, the machine's;
 * the candidate is the faster one. Fills redistributor, overlap, predicted and cost_ps. */
dtp_status dtp_candidate_faster(const dtp_graph *g, const dtp_pricer *pricer,
                                const dtp_lower_options *options, const dtp_redistributor *generic,
                                dtp_candidate *candidate, dtp_err *err) DTP_MUST_CHECK;

#endif
