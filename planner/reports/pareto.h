/* Memory against time: plans for a row of memory limits, from the least that works to none, those
 * dropped that another plan beats in both. */
#ifndef DTP_PLANNER_PARETO_H
#define DTP_PLANNER_PARETO_H

#include "planner/variant_search.h"

enum { DTP_PARETO_TOP = 5 };

typedef struct dtp_pareto_tensor {
    const char *name; /* "(staging)" for buffers of no tensor */
    int64_t bytes;    /* in all its layouts */
} dtp_pareto_tensor;

typedef struct dtp_pareto_point {
    int64_t limit_bytes; /* under which it was found; 0 = none */
    dtp_plan *plan;
    int64_t needed_bytes; /* at the peak */
    int32_t n_top;
    dtp_pareto_tensor top[DTP_PARETO_TOP]; /* at the peak, largest first */
} dtp_pareto_point;

typedef struct dtp_pareto {
    dtp_arena *arena;
    int32_t n;
    dtp_pareto_point *points; /* most memory first; time rises as memory falls */
    int64_t least_bytes; /* the smallest limit that was found to work; 0: none was looked for */
    int64_t least_bound; /* none below this works; 0: not known */
} dtp_pareto;

/* At most max_points plans are made. The request's limit is the largest that is looked at, and its
 * objective is not used. DTP_INVALID for pins that cannot hold; n = 0 when nothing fits the limit.
 * Free with dtp_pareto_free, unless it failed. */
dtp_status dtp_pareto_find(const dtp_graph *g, const dtp_machine *machine,
                           const dtp_plan_request *request, dtp_plan_mode plan, int32_t max_points,
                           dtp_pareto *out, dtp_err *err) DTP_MUST_CHECK;
void dtp_pareto_free(dtp_pareto *p);

#endif
