#include "planner/reports/explain.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/names.h"
#include "cost_models/plan_lowering.h"
#include "cost_models/candidate.h"
#include "planner/reports/explain_internal.h"

enum { NEAR = 4 };

/* ---- names --------------------------------------------------------------------------------------
 */

static dtp_status find_name(dtp_explaining *e, dtp_err *err)
{
    const dtp_explain_request *r = e->request;
    const dtp_graph *g = r->graph;
    const char *nearest = NULL;
    int32_t best = NEAR;
    e->tensor = r->node ? -1 : dtp_graph_find(g, r->name);
    e->node = -1;
    for (int32_t n = 0; n < g->n_nodes && e->tensor < 0 && e->node < 0; n++) {
        e->node = strcmp(g->nodes[n].name, r->name) == 0 ? n : -1;
    }
    if (e->tensor >= 0 || e->node >= 0) {
        return DTP_OK;
    }
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const int32_t d = dtp_name_distance(r->name, g->tensors[t].name, best);
        if (d < best) {
            best = d;
            nearest = g->tensors[t].name;
        }
    }
    return DTP_FAIL(err, DTP_NOT_FOUND, "the model '%s' has no %s '%.200s'%s%s%s", g->name,
                    r->node ? "node" : "tensor or node", r->name,
                    nearest != NULL ? "; did you mean '" : "", nearest != NULL ? nearest : "",
                    nearest != NULL ? "'?" : "");
}

/* ---- order --------------------------------------------------------------------------------------
 */

static int64_t rank_of(const dtp_alternative *a)
{
    return a->apart || !a->priced ? INT64_MAX : dtp_cost_split_sum(&a->alone);
}

/* Allowed before excluded, then by what they cost alone, then by their text. */
static int compare_alternatives(const void *x, const void *y)
{
    const dtp_alternative *a = x, *b = y;
    const int excluded = (a->excluded != NULL) - (b->excluded != NULL);
    if (excluded != 0 || a->chosen != b->chosen) {
        return excluded != 0 ? excluded : (a->chosen ? -1 : 1);
    }
    const int64_t p = rank_of(a), q = rank_of(b);
    return p != q ? (p < q ? -1 : 1) : strcmp(a->text, b->text);
}

/* The steps of a plan in tensor mode are the cheapest on its own machine only, those of other plans
 * need not be on any. On its own machine the certificate says what it costs. */
static dtp_status price_plan(const dtp_explaining *e, dtp_err *err)
{
    const dtp_plan *plan = e->request->plan;
    dtp_plan_lowering lowering;
    if (e->request->plan_is_current && plan->objective == DTP_OBJECTIVE_TIME) {
        e->out->plan_ps = plan->certificate.cost;
        return DTP_OK;
    }
    DTP_TRY(dtp_plan_lowering_init(&lowering, plan, err));
    return dtp_additive_cost(e->request->graph, &e->pricer, &plan->sharding, lowering.redistributor,
                             &e->out->plan_ps, err);
}

static dtp_status explain(dtp_explaining *e, dtp_err *err)
{
    DTP_TRY(find_name(e, err));
    DTP_TRY(dtp_pricer_init(e->request->machine, &e->request->plan->mesh, &e->pricer, err));
    DTP_TRY(dtp_explain__find_selection(e, err));
    DTP_TRY(price_plan(e, err));
    DTP_TRY(dtp_explain__options(e, err));
    DTP_TRY(dtp_explain__excluded(e, err));
    qsort(e->out->alternatives, (size_t)e->out->n, sizeof *e->out->alternatives,
          compare_alternatives);
    return DTP_OK;
}

dtp_status dtp_explain(const dtp_explain_request *request, dtp_arena *arena, dtp_explanation *out,
                       dtp_err *err)
{
    dtp_explaining e = {.request = request, .arena = arena, .out = out};
    memset(out, 0, sizeof *out);
    out->name = request->name;
    dtp_status s = explain(&e, err);
    out->node = e.tensor < 0;
    dtp_explain__forget_problems(&e);
    return s;
}
