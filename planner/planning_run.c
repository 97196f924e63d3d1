/* Planning on the mesh of a request, or on the best of all meshes: which are planned, which are
 * left out, and whose plan is taken (docs/how-a-plan-is-found.md). */
#include <inttypes.h>
#include <string.h>

#include "core/base/units.h"
#include "core/graph/graph.h"
#include "cost_models/node_price.h"
#include "planner/memory_floor.h"
#include "planner/mesh_search.h"
#include "planner/planning.h"
#include "planner/problem/tensors/compute_bound.h"

/* ---- mesh search ---- */

/* The share of the step that a mesh with more dims must save: more dims are harder to understand
 * and to run, and predictions are not so exact. */
static const double EARNED = 0.01;
/* Share of the step that is not worth another mesh: where kernels alone take as long as the best
 * plan, but for this, nothing is solved. */
static const double SLACK = 0.005;
/* A mesh is refined where its best plan takes longer than the best of all by less than this. */
static const double FAR = 0.02;

typedef struct search {
    const dtp_plan_request *request;
    int32_t n;
    dtp_mesh_report *reports; /* one per mesh, those with fewer dims first */
    int32_t skipped;
    double *kernels_s;      /* by mesh: kernels_of; 0: not known yet */
    double least_kernels_s; /* of meshes that are left out for it; 0: none is */
    dtp_plan_result *best;
} search;

static void report(const dtp_planning *p, const dtp_plan_result *result, dtp_mesh_report *out)
{
    out->outcome = p->pruned            ? DTP_MESH_PRUNED
                   : result->infeasible ? DTP_MESH_INFEASIBLE
                                        : DTP_MESH_PLANNED;
    out->bound = result->infeasible ? 0 : p->certificate.bound;
    if (result->plan != NULL) {
        out->bound = result->plan->certificate.bound;
        out->cost = result->plan->certificate.cost;
        out->step_time_s = result->plan->predicted.step_time_s;
    }
}

/* Whether a plan on mesh i takes the place of the best so far: with more dims it must be faster
 * than all plans on meshes with fewer, by a share. */
static bool is_taken(const search *s, int32_t i, const dtp_plan_result *next)
{
    const int32_t n_dims = s->reports[i].mesh.n_dims;
    bool earned = true;
    if (s->request->options.objective == DTP_OBJECTIVE_TIME && next->plan != NULL &&
        s->best->plan != NULL && s->best->plan->mesh.n_dims < n_dims) {
        for (int32_t k = 0; k < i; k++) {
            const dtp_mesh_report *r = &s->reports[k];
            earned =
                earned && (r->outcome != DTP_MESH_PLANNED || r->mesh.n_dims == n_dims ||
                           next->plan->predicted.step_time_s <= (1.0 - EARNED) * r->step_time_s);
        }
    }
    return earned && dtp_plan_result_better(s->request, next, s->best);
}

/* ---- meshes that are left out ---- */

/* Seconds that a plan on a mesh has to take less than; 0: any will do. */
static double to_beat(const search *s, const dtp_mesh *mesh)
{
    const dtp_plan_request *r = s->request;
    const dtp_plan *const others[] = {s->best->plan, r->best};
    double least = 0.0;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const dtp_plan *o = others[i];
        const double share = o == NULL || o->mesh.n_dims >= mesh->n_dims ? SLACK : EARNED;
        const double seconds = o != NULL ? (1.0 - share) * o->predicted.step_time_s : 0.0;
        least = o != NULL && (least <= 0.0 || seconds < least) ? seconds : least;
    }
    return least;
}

static bool same_sizes(const dtp_mesh *a, const dtp_mesh *b)
{
    return a->n_dims == b->n_dims &&
           memcmp(a->sizes, b->sizes, (size_t)a->n_dims * sizeof a->sizes[0]) == 0;
}

/* Whether a mesh of three and more dims has two that could be one: on that mesh one of the best
 * plans. Where meshes of fewer dims have no plan, any has. */
static bool refines_good(const search *s, int32_t i)
{
    const dtp_mesh *mesh = &s->reports[i].mesh;
    double best = 0.0;
    bool any = false;
    for (int32_t k = 0; k < i; k++) {
        const dtp_mesh_report *r = &s->reports[k];
        const bool fewer = r->outcome == DTP_MESH_PLANNED && r->mesh.n_dims < mesh->n_dims;
        best = fewer && (best <= 0.0 || r->step_time_s < best) ? r->step_time_s : best;
    }
    for (int32_t k = 0; k < i; k++) {
        const dtp_mesh_report *r = &s->reports[k];
        any = any || (r->outcome == DTP_MESH_PLANNED && dtp_mesh_refines(mesh, &r->mesh) &&
                      r->step_time_s <= (1.0 + FAR) * best);
    }
    return any || best <= 0.0;
}

/* Seconds that kernels alone take on mesh i at least, with what ranks wait for the slowest. */
static dtp_status kernels_of(search *s, const dtp_planning *p, int32_t i, double *seconds,
                             dtp_err *err)
{
    dtp_pricer pricer;
    if (s->kernels_s[i] <= 0.0) {
        DTP_TRY(dtp_pricer_init(p->machine, &s->reports[i].mesh, s->request->target, &pricer, err));
        DTP_TRY(dtp_compute_bound(p->graph, &pricer, &s->kernels_s[i], NULL, err));
        s->kernels_s[i] *= 1.0 + pricer.skew;
    }
    *seconds = s->kernels_s[i];
    return DTP_OK;
}

/* What is expected at best on mesh i from the best plan of this graph on mesh k: its kernels, less
 * what the bound says that they can take less on mesh i. */
static dtp_status expect(search *s, const dtp_planning *p, int32_t i, double *seconds, dtp_err *err)
{
    const dtp_plan_request *r = s->request;
    const dtp_plan *own = s->best->plan != NULL ? s->best->plan : r->best_is_own ? r->best : NULL;
    double there = 0.0;
    DTP_TRY(kernels_of(s, p, i, seconds, err));
    for (int32_t k = 0; own != NULL && k < s->n; k++) {
        if (same_sizes(&own->mesh, &s->reports[k].mesh)) {
            DTP_TRY(kernels_of(s, p, k, &there, err));
            const double all = own->predicted.compute_s + own->predicted.skew_s;
            const double less = there > *seconds ? there - *seconds : 0.0;
            *seconds = all - less > *seconds ? all - less : *seconds;
            break;
        }
    }
    return DTP_OK;
}

/* Whether no plan on mesh i is worth a solve; its report then says why. */
static dtp_status leave_out(search *s, const dtp_planning *p, int32_t i, bool *is, dtp_err *err)
{
    const dtp_plan_request *r = s->request;
    dtp_mesh_report *report = &s->reports[i];
    const double most = to_beat(s, &report->mesh);
    double kernels = 0.0;
    *is = false;
    if (r->options.objective != DTP_OBJECTIVE_TIME || r->n_texts > 0 ||
        (r->best_is_own && same_sizes(&r->best->mesh, &report->mesh))) {
        return DTP_OK;
    }
    *is = report->mesh.n_dims > 2 && !refines_good(s, i);
    if (!*is && most > 0.0) {
        DTP_TRY(expect(s, p, i, &kernels, err));
        *is = kernels >= most;
        s->least_kernels_s = *is && (s->least_kernels_s <= 0.0 || kernels < s->least_kernels_s)
                                 ? kernels
                                 : s->least_kernels_s;
    }
    report->outcome = *is ? DTP_MESH_LEFT_OUT : report->outcome;
    report->bound = *is ? dtp_picoseconds(kernels) : 0;
    return DTP_OK;
}

/* Plans on mesh i and keeps the better result. */
static dtp_status try_mesh(search *s, dtp_planning p, int32_t i, dtp_err *err)
{
    dtp_mesh_report *r = &s->reports[i];
    dtp_plan_result next;
    char text[DTP_MESH_TEXT_BYTES];
    dtp_err why = {0};
    const bool pinned = s->request->options.rules != NULL || s->request->n_texts > 0;
    p.incumbent = s->best->plan != NULL ? s->best->plan : s->request->incumbent;
    p.others = s->best->plan;
    dtp_mesh_print(&r->mesh, text);
    dtp_status status = dtp_planning_on_mesh(&p, &r->mesh, &next, &why);
    if (status == DTP_STOPPED) {
        r->outcome = DTP_MESH_ENDED;
        return DTP_OK;
    }
    if (dtp_lowering_refuses(status) && pinned && ++s->skipped < s->n) {
        r->outcome = DTP_MESH_SKIPPED;
        return DTP_OK;
    }
    if (status != DTP_OK) {
        return DTP_FAIL(err, status, "mesh '%s': %s", text, why.msg);
    }
    report(&p, &next, r);
    dtp_log(s->request->options.ctx, DTP_LOG_INFO, "planner", "mesh",
            "mesh='%s' outcome=%s bound=%" PRId64 " step_time_s=%g", text,
            dtp_mesh_outcome_name(r->outcome), r->bound, r->step_time_s);
    dtp_plan_result_keep(s->best, &next, is_taken(s, i, &next), s->request->options.slack);
    return DTP_OK;
}

static dtp_status search_meshes(const dtp_planning *p, dtp_arena *arena, dtp_plan_result *out,
                                dtp_err *err)
{
    search s = {.request = p->request, .best = out};
    const dtp_plan_request *r = p->request;
    const dtp_mesh *meshes = r->meshes;
    dtp_mesh *all = NULL;
    s.n = r->n_meshes;
    if (s.n == 0) {
        DTP_TRY(
            dtp_mesh_factorisations(r->options.devices, r->max_mesh_dims, arena, &s.n, &all, err));
        meshes = all;
    }
    DTP_TRY(DTP_NEW(arena, s.reports, s.n, err));
    DTP_TRY(DTP_NEW(arena, s.kernels_s, s.n, err));
    for (int32_t i = 0; i < s.n; i++) {
        s.reports[i] = (dtp_mesh_report){.mesh = meshes[i], .outcome = DTP_MESH_ENDED};
        bool out_of_it = dtp_stopped(r->stop);
        DTP_TRY(out_of_it ? DTP_OK : leave_out(&s, p, i, &out_of_it, err));
        DTP_TRY(out_of_it ? DTP_OK : try_mesh(&s, *p, i, err));
    }
    out->kernels_s = out->plan == NULL && !out->infeasible ? s.least_kernels_s : 0.0;
    DTP_TRY(out->plan == NULL ? dtp_stop_check(p->request->stop, err) : DTP_OK);
    if (out->arena == NULL) { /* no mesh has a result to keep: all are pruned */
        out->arena = dtp_arena_create();
    }
    out->meshes =
        out->arena != NULL ? dtp_arena_alloc(out->arena, (size_t)s.n, sizeof *out->meshes) : NULL;
    DTP_TRY(DTP_MEMORY(err, out->meshes));
    memcpy(out->meshes, s.reports, (size_t)s.n * sizeof *s.reports);
    out->n_meshes = s.n;
    return DTP_OK;
}

static dtp_status run(const dtp_planning *p, dtp_plan_result *out, dtp_err *err)
{
    if (p->request->options.mesh != NULL) {
        dtp_planning one = *p;
        one.incumbent = p->request->incumbent;
        return dtp_planning_on_mesh(&one, p->request->options.mesh, out, err);
    }
    dtp_arena *arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, arena));
    dtp_status s = search_meshes(p, arena, out, err);
    dtp_arena_destroy(arena);
    if (s != DTP_OK) {
        dtp_plan_result_free(out);
    }
    return s;
}

/* Whether there is no need to plan: no program of the graph keeps the limit. */
static dtp_status check_floor(const dtp_planning *p, const dtp_memory_floor *floor,
                              dtp_plan_result *out, dtp_err *err)
{
    const int64_t limit = p->request->options.memory_limit_bytes;
    if (limit == 0 || floor->bytes <= limit || p->request->find_limit) {
        return DTP_OK;
    }
    out->arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, out->arena));
    out->infeasible = true;
    out->smallest_bound = floor->bytes;
    out->needs = dtp_memory_floor_text(floor, out->arena);
    DTP_TRY(DTP_NEW(out->arena, out->conflict, 1, err));
    out->conflict[0] = dtp_arena_printf(out->arena, "memory %" PRId64, limit);
    out->n_conflict = 1;
    return DTP_MEMORY(err, out->needs, out->conflict[0]);
}

/* p->graph is what is planned. */
static dtp_status run_above_floor(const dtp_planning *p, dtp_plan_result *out, dtp_err *err)
{
    const dtp_plan_request *r = p->request;
    dtp_memory_floor floor;
    DTP_TRY(dtp_target_takes_graph(r->target, p->graph, err));
    const int32_t of_stage =
        r->options.mesh != NULL ? dtp_mesh_ranks(r->options.mesh) : r->options.devices;
    DTP_TRY(dtp_memory_floor_find(p->graph, r->target, dtp_graph_stages(p->graph) * of_stage,
                                  &floor, err));
    DTP_TRY(check_floor(p, &floor, out, err));
    const dtp_status s = out->infeasible ? DTP_OK : run(p, out, err);
    if (s == DTP_STOPPED) {
        dtp_err_prefix(err, "no plan was found, any needs %s",
                       dtp_byte_count((double)floor.bytes).text);
    } else if (s == DTP_OK && out->infeasible && out->smallest_bound < floor.bytes) {
        out->smallest_bound = floor.bytes;
    }
    return s;
}

dtp_status dtp_planning_run(const dtp_planner *planner, const dtp_graph *g,
                            const dtp_machine *machine, const dtp_plan_request *request,
                            dtp_plan_result *out, dtp_err *err)
{
    dtp_graph *changed = NULL;
    dtp_planning p = {
        .model = g, .graph = g, .machine = machine, .request = request, .planner = planner};
    memset(out, 0, sizeof *out);
    if (request->variant != NULL && dtp_graph_variant_any(request->variant)) {
        DTP_TRY(dtp_graph_with_variant(g, request->variant, 0, NULL, &changed, err));
        p.graph = changed;
    }
    const dtp_status s = run_above_floor(&p, out, err);
    dtp_graph_destroy(changed);
    if (s != DTP_OK) {
        dtp_plan_result_free(out);
    } else if (out->plan != NULL) {
        out->plan->certificate.ended = dtp_stop_why(request->stop);
    }
    return s;
}
