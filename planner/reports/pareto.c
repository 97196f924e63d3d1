/* Memory against time: plans for a row of memory limits, from the least that works to none,
 * those dropped that another plan beats in both. */
#include "planner/reports/pareto.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost_models/plan_lowering.h"
#include "spmd/program/peak.h"

typedef struct sweep {
    const dtp_graph *g;
    const dtp_machine *machine;
    dtp_plan_request request;
    dtp_plan_mode plan;
    dtp_pareto *out;
} sweep;

/* ---- tensors at the peak ---- */

static int by_bytes(const void *a, const void *b)
{
    const dtp_pareto_tensor *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1) : strcmp(x->name, y->name);
}

/* Lowers the plan of a point and sums what is at its peak by tensor; *g and *program are to be
 * destroyed. */
static dtp_status rank_tensors(const sweep *s, dtp_pareto_point *point, dtp_arena *scratch,
                               dtp_graph **g, dtp_program **program, dtp_err *err)
{
    dtp_plan_lowering lowering;
    dtp_peak peak;
    dtp_pareto_tensor *sums;
    DTP_TRY(dtp_plan_graph(point->plan, s->g, g, err));
    DTP_TRY(dtp_plan_lowering_init(&lowering, point->plan, err));
    DTP_TRY(dtp_lower(*g, &point->plan->sharding, &lowering.options, program, err));
    DTP_TRY(dtp_peak_find(*program, scratch, &peak, err));
    point->needed_bytes = peak.bytes;
    const int32_t n = (*g)->n_tensors;
    DTP_TRY(DTP_NEW(scratch, sums, n + 1, err));
    for (int32_t t = 0; t <= n; t++) {
        sums[t].name = t < n ? (*g)->tensors[t].name : "(staging)";
    }
    for (int32_t i = 0; i < peak.n; i++) {
        const dtp_tensor_id t = (*program)->values[peak.buffers[i].value].tensor;
        sums[t >= 0 ? t : n].bytes += peak.buffers[i].bytes;
    }
    qsort(sums, (size_t)n + 1, sizeof *sums, by_bytes);
    for (int32_t i = 0; i < DTP_PARETO_TOP && i <= n && sums[i].bytes > 0; i++) {
        point->top[i] = sums[i];
        point->top[i].name = dtp_arena_strdup(point->plan->arena, sums[i].name);
        DTP_TRY(DTP_MEMORY(err, point->top[i].name));
        point->n_top = i + 1;
    }
    return DTP_OK;
}

/* ---- the sweep ---- */

/* Plans under a limit and appends the point; *peak is that of the plan, 0 when nothing fits. */
static dtp_status try_limit(sweep *s, int64_t limit, dtp_plan_objective objective, int64_t *peak,
                            dtp_err *err)
{
    dtp_plan_result r;
    dtp_pareto *out = s->out;
    s->request.options.memory_limit_bytes = limit;
    s->request.options.objective = objective;
    *peak = 0;
    DTP_TRY(s->plan(s->g, s->machine, &s->request, &r, err));
    if (r.plan == NULL) {
        out->least_bytes = out->least_bytes == 0 ? r.smallest_peak_bytes : out->least_bytes;
        out->least_bound =
            r.smallest_bound > out->least_bound ? r.smallest_bound : out->least_bound;
        dtp_plan_result_free(&r);
        return DTP_OK;
    }
    dtp_pareto_point *point = &out->points[out->n++];
    *point = (dtp_pareto_point){.limit_bytes = limit, .plan = r.plan};
    *peak = r.plan->predicted.peak_bytes;
    r.plan = NULL;
    dtp_plan_result_free(&r);
    dtp_graph *g = NULL;
    dtp_program *program = NULL;
    dtp_arena *scratch = dtp_arena_create();
    const dtp_status status = rank_tensors(s, point, scratch, &g, &program, err);
    dtp_program_destroy(program);
    dtp_graph_destroy(g);
    dtp_arena_destroy(scratch);
    return status;
}

static int by_memory(const void *a, const void *b)
{
    const dtp_pareto_point *x = a, *y = b;
    const dtp_prediction *p = &x->plan->predicted, *q = &y->plan->predicted;
    if (p->peak_bytes != q->peak_bytes) {
        return p->peak_bytes > q->peak_bytes ? -1 : 1;
    }
    return p->step_time_s < q->step_time_s ? 1 : (q->step_time_s < p->step_time_s ? -1 : 0);
}

/* Limits fall by equal factors from what the fastest plan needs to the least that works, and below
 * what the last plan needed. */
static dtp_status sweep_limits(sweep *s, int64_t largest, int32_t max_points, dtp_err *err)
{
    int64_t peak, least = 0;
    DTP_TRY(try_limit(s, largest, DTP_OBJECTIVE_TIME, &peak, err));
    if (peak == 0) {
        return DTP_OK;
    }
    DTP_TRY(max_points > 1 ? try_limit(s, largest, DTP_OBJECTIVE_MEMORY, &least, err) : DTP_OK);
    s->out->least_bytes = least > 0 ? least : peak;
    const double ratio =
        least > 0 && least < peak ? pow((double)least / (double)peak, 1.0 / (max_points - 1)) : 1.0;
    double limit = (double)peak;
    for (int32_t i = 2; i < max_points && peak > least && least > 0; i++) {
        limit *= ratio;
        const int64_t below = peak - 1, wanted = (int64_t)limit;
        int64_t next;
        DTP_TRY(try_limit(s, wanted < below ? wanted : below, DTP_OBJECTIVE_TIME, &next, err));
        peak = next > 0 ? next : peak;
    }
    return DTP_OK;
}

dtp_status dtp_pareto_find(const dtp_graph *g, const dtp_machine *machine,
                           const dtp_plan_request *request, dtp_plan_mode plan, int32_t max_points,
                           dtp_pareto *out, dtp_err *err)
{
    sweep s = {.g = g, .machine = machine, .request = *request, .plan = plan, .out = out};
    s.request.options.slack = 0.0; /* memory is what is varied */
    *out = (dtp_pareto){.arena = dtp_arena_create()};
    if (out->arena != NULL) {
        out->points = dtp_arena_alloc(out->arena, (size_t)max_points + 2, sizeof *out->points);
    }
    dtp_status status = out->points != NULL
                            ? sweep_limits(&s, request->options.memory_limit_bytes, max_points, err)
                            : DTP_FAIL(err, DTP_NOMEM, "out of memory for %d plans", max_points);
    if (status != DTP_OK) {
        dtp_pareto_free(out);
        return status;
    }
    /* Least memory first; a plan stays if it is faster than all with no more memory. */
    double fastest = (double)INFINITY;
    int32_t at = out->n;
    qsort(out->points, (size_t)out->n, sizeof *out->points, by_memory);
    for (int32_t i = out->n - 1; i >= 0; i--) {
        dtp_pareto_point point = out->points[i];
        if (point.plan->predicted.step_time_s < fastest) {
            fastest = point.plan->predicted.step_time_s;
            out->points[--at] = point;
        } else {
            dtp_plan_destroy(point.plan);
        }
    }
    memmove(out->points, out->points + at, (size_t)(out->n - at) * sizeof *out->points);
    out->n -= at;
    return DTP_OK;
}

void dtp_pareto_free(dtp_pareto *p)
{
    for (int32_t i = 0; i < p->n && p->points != NULL; i++) {
        dtp_plan_destroy(p->points[i].plan);
    }
    dtp_arena_destroy(p->arena);
    memset(p, 0, sizeof *p);
}
