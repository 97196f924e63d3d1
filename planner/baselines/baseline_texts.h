/* The styles of a baseline's recipe as texts. */
#ifndef DTP_PLANNER_BASELINES_BASELINE_TEXTS_H
#define DTP_PLANNER_BASELINES_BASELINE_TEXTS_H

#include "planner/baselines/baseline_dims.h"
#include "planner/baselines/baseline_styles.h"

/* A recipe being written for a graph. Mesh dims are ranges: [from, to). */
typedef struct dtp_baseline_writing {
    const dtp_baseline_recipe *r;
    const dtp_graph *g;
    const dtp_mesh *mesh;
    dtp_arena *arena;
    dtp_baseline_dims dims;
    int32_t data_to;                    /* data: [0, data_to) */
    int32_t feature_from, experts_from; /* to the last */
    int32_t n, capacity;
    const char **texts;
    const char *why;
} dtp_baseline_writing;

/* A parameter of the experts, whose first dim counts them. */
bool dtp_baseline__is_expert_param(const dtp_baseline_writing *w, dtp_tensor_id t);
/* Fills w->texts, from w->arena. */
dtp_status dtp_baseline__write(dtp_baseline_writing *w, dtp_err *err) DTP_MUST_CHECK;

#endif
