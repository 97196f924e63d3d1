/* Why a tensor or node is as it is in a plan: the chosen way, every alternative with what it
 * would cost, and what excludes it. */
#include "planner/reports/explain.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/transform/microbatch.h"
#include "cost_models/comm_report.h"
#include "cost_models/plan_lowering.h"
#include "cost_models/predict.h"
#include "cost_models/timeline.h"
#include "planner/reports/explain_internal.h"
#include "planner/tensors/plan_tensor.h"
#include "planner/tensors/tying_bound.h"

enum {
    NEAR = 4,     /* edits within which a name is near another */
    MOST_RUNS = 4 /* groups of tying; beyond, every instance decides on its own */
};

/* ---- names ---- */

static dtp_status find_name(dtp_explaining *e, dtp_err *err)
{
    const dtp_explain_request *r = e->request;
    const dtp_graph *g = r->graph;
    const char *nearest = NULL;
    int32_t best = NEAR;
    e->tensor = r->node ? -1 : dtp_graph_find(g, r->name);
    e->node = e->tensor < 0 ? dtp_microbatch_node(g, r->name) : -1;
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

/* ---- problems ---- */

/* A tensor that is kept as an op leaves or reads it: that op decides. */
static dtp_status follow_tensor(dtp_explaining *e, const dtp_tensor_problem *p, dtp_err *err)
{
    const dtp_graph *g = e->request->graph;
    const dtp_tensor_id t = e->tensor;
    if (t < 0 || p->variable_of_tensor[t] >= 0) {
        return DTP_OK;
    }
    e->node = g->tensors[t].producer;
    for (int32_t n = 0; n < g->n_nodes && e->node < 0; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in; i++) {
            e->node = g->nodes[n].in[i] == t ? n : e->node;
        }
    }
    if (e->node < 0) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "nothing makes or reads tensor '%s'",
                        g->tensors[t].name);
    }
    e->tensor = -1;
    e->out->via = g->nodes[e->node].name;
    return DTP_OK;
}

static void forget_problems(dtp_explaining *e)
{
    dtp_tensor_problem_destroy(e->problem != e->free ? e->problem : NULL);
    dtp_tensor_problem_destroy(e->free);
    e->problem = e->free = NULL;
}

static dtp_status create_problem(dtp_explaining *e, bool pinned, dtp_tensor_problem **out,
                                 dtp_err *err)
{
    dtp_tensor_options options = dtp_tensor_options_init();
    options.runs = e->out->runs;
    options.uneven = e->request->plan->uneven;
    options.memory_bytes = e->request->plan->memory_limit_bytes;
    options.n_pins = pinned ? e->pins.n_pins : 0;
    options.pins = e->pins.pins;
    options.unpriced = !pinned;
    DTP_TRY(dtp_tensor_problem_create(e->request->graph, &e->pricer, &options, out, err));
    return *out != NULL ? follow_tensor(e, *out, err)
                        : DTP_FAIL(err, DTP_INTERNAL, "a selection problem is missing");
}

/* The first decision of the plan that the problem without tying does not have. */
static dtp_status fail_selection(const dtp_explaining *e, dtp_err *err)
{
    const dtp_graph *g = e->request->graph;
    const dtp_plan *plan = e->request->plan;
    const char *what = "a copy", *name = "some tensor";
    char text[DTP_STRATEGY_TEXT_BYTES] = "in a layout";
    for (int32_t t = g->n_tensors - 1; t >= 0; t--) {
        const int32_t c = e->problem->variable_of_tensor[t];
        if (c >= 0 && e->assignment[c] < 0) {
            what = "tensor";
            name = g->tensors[t].name;
            dtp_layout_print(&plan->sharding.layouts[t], &plan->mesh, &g->tensors[t].type, &g->dims,
                             text);
        }
    }
    for (int32_t n = g->n_nodes - 1; n >= 0; n--) {
        if (e->assignment[e->problem->variable_of_node[n]] < 0) {
            what = "node";
            name = g->nodes[n].name;
            dtp_strategy_print(g, n, &plan->mesh, &plan->sharding.strategies[n], text);
        }
    }
    return DTP_FAIL(err, DTP_UNSUPPORTED,
                    "the plan has what tensor mode does not choose from: %s '%.200s': %.300s", what,
                    name, text);
}

/* Finds the plan as an assignment of the problem that it was made from: tied in as many groups as
 * it needs, and in two where the certificate says so, though the layers may be alike. */
static dtp_status find_selection(dtp_explaining *e, dtp_err *err)
{
    const dtp_plan *plan = e->request->plan;
    bool found = false;
    DTP_TRY(dtp_pin_set_read(plan->n_pins, plan->pins, e->request->graph, &plan->mesh, e->arena,
                             &e->pins, err));
    DTP_TRY(dtp_runs_needed(e->request->graph, &plan->sharding, MOST_RUNS, &e->out->runs, err));
    const char *solver = plan->certificate.solver;
    if (e->out->runs == 1 && solver != NULL && strcmp(solver, DTP_SOLVER_TWO_GROUPS) == 0) {
        e->out->runs = 2;
    }
    for (;;) {
        forget_problems(e);
        DTP_TRY(create_problem(e, true, &e->problem, err));
        e->free = e->problem;
        if (e->pins.n_pins > 0) {
            e->free = NULL;
            DTP_TRY(create_problem(e, false, &e->free, err));
        }
        DTP_TRY(DTP_NEW(e->arena, e->assignment, e->problem->n_variables, err));
        DTP_TRY(DTP_NEW(e->arena, e->other, e->problem->n_variables, err));
        DTP_TRY(dtp_tensor_assignment(e->problem, &plan->sharding, e->assignment, &found, err));
        if (found || e->out->runs == 0) {
            return found ? DTP_OK : fail_selection(e, err);
        }
        e->out->runs = 0;
    }
}

/* ---- order ---- */

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

/* ---- communication ---- */

static int by_time(const void *x, const void *y)
{
    const dtp_explained_coll *a = x, *b = y;
    const double p = (double)a->times * (a->time.start_s + a->time.transfer_s);
    const double q = (double)b->times * (b->time.start_s + b->time.transfer_s);
    return p < q || p > q ? (p < q) - (p > q) : (int)a->kind - (int)b->kind;
}

/* The share of a START's operands, by bytes, that are the tensor's or, of a node, what it reads or
 * makes or sends inside of it; buckets have several. `tensor`: dtp_comm_tensors. */
static double share_of(const dtp_explaining *e, const dtp_program *p, const dtp_tensor_id *tensor,
                       const dtp_instr *instr)
{
    const bool bucket = instr->n_in > 1;
    double all = 0.0, own = 0.0;
    for (int32_t k = 0; k < instr->n_in && instr->kind == DTP_INSTR_START; k++) {
        const dtp_tensor_id t = tensor[instr->in[k]];
        const double bytes = (double)p->values[instr->in[k]].bytes;
        bool its = e->tensor >= 0
                       ? t == e->tensor || (k < instr->n_out && tensor[instr->out[k]] == e->tensor)
                       : instr->node == e->node && !bucket;
        if (e->tensor < 0 && bucket && t >= 0) {
            const dtp_node *node = &p->graph->nodes[e->node];
            its = p->graph->tensors[t].producer == e->node;
            for (int32_t i = 0; i < node->n_in; i++) {
                its = its || node->in[i] == t;
            }
        }
        all += bytes;
        own += its ? bytes : 0.0;
    }
    return own > 0.0 ? own / all : 0.0;
}

/* What a step pays of it: in the program as it runs, with buckets and overlap. */
static dtp_status find_paid(dtp_explaining *e, const dtp_plan_lowering *lowering, dtp_err *err)
{
    const bool overlaps = dtp_pricer_overlaps(&e->pricer);
    dtp_lower_options options = lowering->options;
    dtp_program *p = NULL;
    dtp_prediction predicted;
    dtp_schedule_result r;
    dtp_tensor_id *tensor = NULL;
    double *exposed_s = NULL;
    options.unplaced = true;
    DTP_TRY(dtp_lower(e->request->graph, &e->request->plan->sharding, &options, &p, err));
    dtp_status s = dtp_predict(&e->pricer, p, &predicted, err);
    s = s == DTP_OK ? DTP_NEW(e->arena, exposed_s, p->n_instrs, err) : s;
    s = s == DTP_OK ? dtp_comm_tensors(p, e->arena, &tensor, err) : s;
    if (s == DTP_OK && overlaps && !dtp_schedule_program(p, e->request->machine, &r, exposed_s)) {
        s = DTP_FAIL(err, DTP_NOMEM, "out of memory for a timeline of %d instructions",
                     p->n_instrs);
    }
    for (int32_t i = 0; s == DTP_OK && i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        const double share = share_of(e, p, tensor, instr);
        const double time_s = dtp_instr_runs(p, instr) * instr->time_s;
        e->out->comm_s += share * time_s;
        e->out->exposed_comm_s += share * (overlaps ? exposed_s[i] : time_s);
    }
    dtp_program_destroy(p);
    return s;
}

/* Collectives inside of the node or that move the tensor, in the plan without passes. */
static dtp_status find_colls(dtp_explaining *e, const dtp_plan_lowering *lowering, dtp_err *err)
{
    const dtp_lower_options plain = {.redistributor = lowering->options.redistributor,
                                     .target = lowering->options.target,
                                     .plain = true};
    dtp_explanation *out = e->out;
    dtp_program *p = NULL;
    dtp_tensor_id *tensor = NULL;
    DTP_TRY(dtp_lower(e->request->graph, &e->request->plan->sharding, &plain, &p, err));
    dtp_status s = DTP_NEW(e->arena, out->colls, p->n_instrs + 1, err);
    s = s == DTP_OK ? dtp_comm_tensors(p, e->arena, &tensor, err) : s;
    for (int32_t i = 0; s == DTP_OK && i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        if (!(share_of(e, p, tensor, instr) > 0.0)) {
            continue;
        }
        const dtp_explained_coll c = {
            instr->coll.kind, instr->coll.set,
            dtp_coll_full_bytes(instr->coll.kind, instr->coll.count, instr->coll.dtype,
                                e->pricer.groups[instr->coll.set].ranks),
            dtp_instr_runs(p, instr), dtp_price_coll_parts(&e->pricer, &instr->coll)};
        int32_t k = 0;
        while (k < out->n_colls &&
               (out->colls[k].kind != c.kind || out->colls[k].set != c.set ||
                out->colls[k].bytes < c.bytes || out->colls[k].bytes > c.bytes)) {
            k++;
        }
        if (k == out->n_colls) {
            out->colls[out->n_colls++] = c;
        } else {
            out->colls[k].times += c.times;
        }
    }
    dtp_program_destroy(p);
    if (s == DTP_OK && out->n_colls > 1) {
        qsort(out->colls, (size_t)out->n_colls, sizeof *out->colls, by_time);
    }
    return s;
}

static dtp_status explain(dtp_explaining *e, dtp_err *err)
{
    DTP_TRY(find_name(e, err));
    const dtp_plan *plan = e->request->plan;
    dtp_plan_lowering lowering;
    DTP_TRY(dtp_plan_lowering_init(&lowering, plan, err));
    DTP_TRY(dtp_pricer_init(e->request->machine, &plan->mesh, lowering.options.target, &e->pricer,
                            err));
    DTP_TRY(find_selection(e, err));
    /* The steps of a plan in tensor mode are the cheapest on its own machine only, those of other
     * plans need not be on any. On its own machine the certificate says what it costs. */
    e->out->plan_ps = plan->certificate.cost;
    if (!e->request->plan_is_current || plan->objective != DTP_OBJECTIVE_TIME) {
        DTP_TRY(dtp_additive_cost(e->request->graph, &e->pricer, &plan->sharding,
                                  lowering.redistributor, &e->out->plan_ps, err));
    }
    DTP_TRY(find_colls(e, &lowering, err));
    DTP_TRY(find_paid(e, &lowering, err));
    e->out->tied = dtp_tensor_is_tied(e->problem);
    e->out->pinned = e->pins.n_pins > 0;
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
    forget_problems(&e);
    return s;
}
