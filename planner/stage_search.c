/* The search for pipeline stages (stage_search.h). */
#include "planner/stage_search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/units.h"
#include "core/transform/microbatch.h"
#include "planner/mesh_search.h"
#include "planner/planning.h"
#include "planner/problem/tensors/compute_bound.h"
#include "planner/remat_choices.h"

enum { MAX_COUNT = 256, PER_STAGE = 4, N_REFINED = 3, MAX_SLOTS = 8 };
static const double GAIN = 1e-3; /* of the step, that a change must save */
/* The same of stages at all: they are harder to understand and to run, as more mesh dims are. */
static const double EARNED = 0.01;

/* A trial. */
typedef struct point {
    dtp_stage_choice stages; /* at least 2 */
    int32_t remat, count;    /* indices of the lists */
    const dtp_mesh *mesh;    /* NULL: the best one */
    double step_s;           /* INFINITY: no plan */
    const char *text;
    int32_t place; /* in the order of the search */
} point;

typedef struct stage_search {
    dtp_plan_mode mode;
    const dtp_graph *g;
    const dtp_machine *machine;
    const dtp_plan_request *request;
    const dtp_stage_search *what;
    dtp_arena *arena;
    int32_t n_remat, n_counts;
    dtp_remat *remat; /* in order of work */
    int32_t *counts;  /* of microbatches, ascending */
    int32_t n_tried, cap_tried;
    point *tried;
    int32_t n_without;
    const char **without;   /* what was tried without stages */
    bool any;               /* a point has the best plan: */
    point best;             /* without one, step_s is what it has to take less than */
    dtp_plan_result *found; /* the best plan */
} stage_search;

static dtp_graph_variant variant_of(const stage_search *s, const point *p)
{
    const dtp_graph_variant none = {.micro_dim = -1};
    dtp_graph_variant v = s->request->variant != NULL ? *s->request->variant : none;
    v.stages = p->stages;
    v.remat = s->remat[p->remat];
    v.microbatches = s->counts[p->count];
    return v;
}

/* ---- trials ---- */

static const char *text_of(const stage_search *s, const point *p)
{
    const dtp_variant_search rest = {.remat = s->what->remat,
                                     .microbatches = s->what->microbatches};
    const dtp_graph_variant v = variant_of(s, p);
    const char *text = dtp_variant_text(&rest, &v, s->arena);
    const bool plain = text != NULL && strcmp(text, "as it is") == 0;
    const char *slots =
        p->stages.slots > 1 ? dtp_arena_printf(s->arena, " --slots %d", p->stages.slots) : "";
    return text == NULL || slots == NULL
               ? NULL
               : dtp_arena_printf(s->arena, "--stages %s%s%s%s", dtp_stages_print(&p->stages).text,
                                  slots, plain ? "" : " ", plain ? "" : text);
}

static dtp_status note(stage_search *s, const point *p, const char *outcome, dtp_err *err)
{
    DTP_TRY(dtp_arena_grow(s->arena, &s->tried, s->n_tried, s->n_tried + 1, &s->cap_tried,
                           sizeof *s->tried, err));
    point *t = &s->tried[s->n_tried++];
    *t = *p;
    t->place = s->n_tried;
    t->text = outcome != NULL ? dtp_arena_printf(s->arena, "%s: %s", text_of(s, p), outcome) : NULL;
    DTP_TRY(DTP_MEMORY(err, t->text));
    dtp_log(s->request->options.ctx, DTP_LOG_INFO, "planner", "stages", "%s", t->text);
    return DTP_OK;
}

/* The request of a point. */
static dtp_plan_request request_of(const stage_search *s, const point *p,
                                   const dtp_graph_variant *v)
{
    dtp_plan_request r = *s->request;
    r.variant = v;
    r.options.mesh = p->mesh;
    r.options.devices = s->request->options.devices / p->stages.n;
    r.max_mesh_dims -= p->stages.n > 1 ? 1 : 0; /* stages are the other one */
    r.incumbent = NULL;
    r.find_limit = false;
    r.options.slack = 0.0; /* ties are broken when the best one is planned again */
    return r;
}

static dtp_status keep(stage_search *s, point *p, dtp_plan_result *next, dtp_err *err)
{
    char text[DTP_MESH_TEXT_BYTES];
    dtp_mesh *mesh;
    const dtp_plan *plan = next->plan;
    if (plan == NULL) {
        dtp_plan_result_free(next);
        return note(s, p, "nothing fits", err);
    }
    DTP_TRY(DTP_NEW(s->arena, mesh, 1, err));
    *mesh = plan->mesh;
    p->mesh = mesh;
    p->step_s = plan->predicted.step_time_s;
    dtp_mesh_print(mesh, text);
    DTP_TRY(note(s, p,
                 dtp_arena_printf(s->arena, "%s, %s%s%s", dtp_seconds(p->step_s).text,
                                  dtp_byte_count((double)plan->predicted.peak_bytes).text,
                                  mesh->n_dims > 0 ? " on " : "", text),
                 err));
    const bool taken = p->step_s < s->best.step_s;
    s->best = taken ? *p : s->best;
    s->any = s->any || taken;
    dtp_plan_result_keep(s->found, next, taken, 0.0);
    return DTP_OK;
}

/* Plans a point, fills its step and mesh, and keeps the better plan. */
static dtp_status try_point(stage_search *s, point *p, dtp_err *err)
{
    const dtp_graph_variant v = variant_of(s, p);
    dtp_plan_request r = request_of(s, p, &v);
    dtp_plan_result next;
    dtp_err why = {0};
    p->step_s = INFINITY;
    if (dtp_stopped(s->request->stop)) {
        return DTP_OK;
    }
    const char *text = text_of(s, p);
    dtp_plan_watch watch = {.variant = text, .best = s->found->plan};
    if (r.watch != NULL) {
        watch.progress = r.watch->progress;
        watch.user = r.watch->user;
        r.watch = &watch;
    }
    r.trial = r.brief = true;
    const dtp_status st = s->mode(s->g, s->machine, &r, &next, &why);
    if (st == DTP_OK) {
        return keep(s, p, &next, err);
    }
    if (st == DTP_STOPPED || (dtp_status_is_input(st) && (s->what->stages || s->n_tried > 0))) {
        return note(s, p, dtp_arena_printf(s->arena, "cannot be done: %s", why.msg), err);
    }
    return DTP_FAIL(err, st, "%s", why.msg);
}

/* ---- what is tried ---- */

static dtp_status list_choices(stage_search *s, dtp_err *err)
{
    const dtp_graph_variant *given = s->request->variant;
    s->n_remat = s->n_counts = 1;
    DTP_TRY(DTP_NEW(s->arena, s->remat, 1, err));
    DTP_TRY(DTP_NEW(s->arena, s->counts, 1, err));
    if (given != NULL) {
        s->remat[0] = given->remat;
        s->counts[0] = given->microbatches;
    }
    if (s->what->microbatches) { /* divisors of the batch, each about twice the one before */
        int32_t n = 0;
        DTP_TRY(dtp_microbatch_variants(s->g, MAX_COUNT, s->arena, &n, &s->counts, err));
        s->n_counts = 0;
        for (int32_t i = 0; i < n; i++) {
            if (i == 0 || s->counts[i] >= 2 * s->counts[s->n_counts - 1] || i + 1 == n) {
                s->counts[s->n_counts++] = s->counts[i];
            }
        }
    }
    return s->what->remat ? dtp_remat_choices(s->g, s->machine, s->request->target, s->arena,
                                              &s->n_remat, &s->remat, err)
                          : DTP_OK;
}

/* Index of the largest count that is not above `most`, at least 2. */
static int32_t count_index(const stage_search *s, int32_t most)
{
    int32_t k = 0;
    while (k + 1 < s->n_counts && (s->counts[k + 1] <= most || s->counts[k] < 2)) {
        k++;
    }
    return k;
}

/* The least step of any plan of a point, from its kernels; 0 when that is not known. */
static dtp_status bound_step(const stage_search *s, const point *p, double *seconds, dtp_err *err)
{
    const dtp_graph_variant v = variant_of(s, p);
    const dtp_plan_request r = request_of(s, p, &v);
    dtp_mesh *meshes = NULL;
    dtp_graph *changed = NULL;
    int32_t n = 1;
    double least = INFINITY;
    *seconds = 0.0;
    if (r.options.mesh == NULL) {
        DTP_TRY(dtp_mesh_factorisations(r.options.devices, r.max_mesh_dims, s->arena, &n, &meshes,
                                        err));
    }
    DTP_TRY(dtp_graph_with_variant(s->g, &v, 0, NULL, &changed, err));
    dtp_status st = DTP_OK;
    for (int32_t i = 0; i < n && st == DTP_OK; i++) {
        dtp_pricer pricer;
        double here = 0.0, update_s = 0.0;
        st = dtp_pricer_init(s->machine, meshes != NULL ? &meshes[i] : r.options.mesh, r.target,
                             &pricer, err);
        st = st == DTP_OK ? dtp_compute_bound(changed, &pricer, &here, &update_s, err) : st;
        least = here - update_s < least ? here - update_s : least;
    }
    dtp_graph_destroy(changed);
    *seconds = p->stages.chunks > 1 || s->what->stages
                   ? least / p->stages.n
                   : dtp_stages_bound(least, v.microbatches, p->stages.n);
    return st;
}

/* The first trials of a number of stages, unless no plan of it takes less than the best one: more
 * microbatches until something fits. */
static dtp_status start(stage_search *s, point *p, dtp_err *err)
{
    point fastest = *p;
    double least_s = INFINITY;
    fastest.remat = 0;
    fastest.step_s = p->step_s = INFINITY;
    p->remat = s->n_remat - 1;
    p->count = count_index(s, PER_STAGE * p->stages.n);
    for (int32_t k = s->n_counts - 1; k >= 0 && least_s >= s->best.step_s; k--) {
        point next = fastest;
        double bound_s = 0.0;
        dtp_err why = {0};
        next.count = k;
        if (isfinite(s->best.step_s) && (s->counts[k] > 1 || s->n_counts == 1)) {
            const bool known = bound_step(s, &next, &bound_s, &why) == DTP_OK;
            bound_s = known ? bound_s : 0.0;
            fastest = bound_s < least_s ? next : fastest;
            least_s = bound_s < least_s ? bound_s : least_s;
        }
    }
    if (isfinite(least_s) && least_s >= s->best.step_s) {
        return note(
            s, &fastest,
            dtp_arena_printf(s->arena, "dropped, kernels alone take %s", dtp_seconds(least_s).text),
            err);
    }
    const dtp_mesh *given = p->mesh;
    for (;;) {
        p->mesh = given;
        DTP_TRY(try_point(s, p, err));
        const int32_t next = count_index(s, PER_STAGE * s->counts[p->count]);
        if (isfinite(p->step_s) || next == p->count || dtp_stopped(s->request->stop)) {
            return DTP_OK;
        }
        p->count = next;
    }
}

/* ---- one quantity after the other ---- */

static dtp_status take_better(stage_search *s, point *p, point next, bool *better, dtp_err *err)
{
    DTP_TRY(try_point(s, &next, err));
    *better = next.step_s < p->step_s * (1.0 - GAIN);
    *p = *better ? next : *p;
    return DTP_OK;
}

static dtp_status refine_counts(stage_search *s, point *p, dtp_err *err)
{
    const int32_t from = p->count;
    for (int32_t step = 1; step >= -1 && p->count == from; step -= 2) {
        bool better = true;
        while (better) {
            point next = *p;
            next.count += step;
            better = false;
            if (next.count >= 0 && next.count < s->n_counts && s->counts[next.count] > 1) {
                DTP_TRY(take_better(s, p, next, &better, err));
            }
        }
    }
    return DTP_OK;
}

/* Twice the chunks on each stage, as long as that is faster. */
static dtp_status refine_chunks(stage_search *s, point *p, dtp_err *err)
{
    bool more = s->what->stages;
    while (more) {
        point next = *p;
        char text[24];
        (void)snprintf(text, sizeof text, "%dx%d", p->stages.n,
                       p->stages.chunks > 1 ? 2 * p->stages.chunks : 2);
        if (dtp_stages_parse(text, NULL, s->g, s->arena, &next.stages, NULL) != DTP_OK) {
            return DTP_OK; /* more chunks than there are instances of blocks */
        }
        next.stages.slots = p->stages.slots;
        DTP_TRY(take_better(s, p, next, &more, err));
    }
    return DTP_OK;
}

static dtp_status refine(stage_search *s, point *p, dtp_err *err)
{
    DTP_TRY(refine_counts(s, p, err));
    const int32_t remat = p->remat, slots = p->stages.slots, chunks = p->stages.chunks;
    int32_t low = 0;
    while (low < p->remat) { /* the least that fits is the fastest, by bisection */
        point next = *p;
        bool better;
        next.remat = (low + p->remat) / 2;
        DTP_TRY(take_better(s, p, next, &better, err));
        low = better ? low : next.remat + 1;
    }
    DTP_TRY(refine_chunks(s, p, err));
    bool more = s->what->slots;
    while (more && p->stages.slots < MAX_SLOTS) {
        point next = *p;
        next.stages.slots *= 2;
        DTP_TRY(take_better(s, p, next, &more, err));
    }
    return p->remat != remat || p->stages.slots != slots || p->stages.chunks != chunks
               ? refine_counts(s, p, err)
               : DTP_OK;
}

/* ---- all ---- */

static int faster(const void *x, const void *y)
{
    const point *a = x, *b = y;
    return a->step_s < b->step_s ? -1 : a->step_s > b->step_s ? 1 : a->place - b->place;
}

/* The starts: the given stages, or every number of them. */
static dtp_status list_starts(stage_search *s, int32_t *n, point **out, dtp_err *err)
{
    const dtp_plan_request *r = s->request;
    DTP_TRY(DTP_NEW(s->arena, *out, DTP_MAX_STAGES + 1, err));
    *n = 0;
    if (!s->what->stages) {
        (*out)[(*n)++] = (point){.stages = r->variant->stages, .mesh = r->options.mesh};
        return DTP_OK;
    }
    for (int32_t k = 2; k <= DTP_MAX_STAGES && k <= r->options.devices; k++) {
        point p = {.place = *n};
        char text[16];
        dtp_err why = {0};
        (void)snprintf(text, sizeof text, "%d", k);
        if (r->options.devices % k == 0 &&
            dtp_stages_parse(text, NULL, s->g, s->arena, &p.stages, &why) == DTP_OK) {
            p.stages.slots = r->variant->stages.slots;
            (*out)[(*n)++] = p;
        }
    }
    return DTP_OK;
}

/* The plan that there is without this search. */
static dtp_status plan_without(stage_search *s, dtp_err *err)
{
    const dtp_variant_search *w = &s->what->without;
    dtp_plan_request r = *s->request;
    dtp_graph_variant v = *r.variant;
    dtp_stop half = r.stop != NULL ? *r.stop : (dtp_stop){0};
    dtp_err why = {0};
    v.stages = (dtp_stage_choice){0};
    half.end_s -= half.end_s > 0.0 ? 0.5 * dtp_stop_left_s(&half) : 0.0;
    r.variant = &v;
    r.stop = &half;
    const dtp_status st = w->precision || w->remat || w->microbatches
                              ? dtp_plan_variants(s->mode, s->g, s->machine, &r, w, s->found, &why)
                              : s->mode(s->g, s->machine, &r, s->found, &why);
    if (st != DTP_OK && st != DTP_STOPPED) {
        return DTP_FAIL(err, st, "%s", why.msg);
    }
    const dtp_plan_result *found = s->found;
    const dtp_plan *plan = found->plan;
    s->best.step_s = plan != NULL ? plan->predicted.step_time_s * (1.0 - EARNED) : s->best.step_s;
    s->n_without = 1 + found->n_tried;
    DTP_TRY(DTP_NEW(s->arena, s->without, s->n_without, err));
    s->without[0] = st == DTP_STOPPED ? dtp_arena_printf(s->arena, "--stages 1: %s", why.msg)
                    : plan == NULL
                        ? "--stages 1: nothing fits"
                        : dtp_arena_printf(s->arena, "--stages 1: %s, %s",
                                           dtp_seconds(plan->predicted.step_time_s).text,
                                           dtp_byte_count((double)plan->predicted.peak_bytes).text);
    for (int32_t i = 0; i < found->n_tried; i++) {
        s->without[1 + i] = dtp_arena_printf(s->arena, "--stages 1 %s", found->tried[i]);
    }
    for (int32_t i = 0; i < s->n_without; i++) {
        DTP_TRY(DTP_MEMORY(err, s->without[i]));
    }
    return DTP_OK;
}

/* Plans a point with all solves, baselines and bounds, and keeps the result where it is better;
 * where nothing fits, the limit that its program of the least memory needs. */
static dtp_status plan_whole(stage_search *s, const point *p, dtp_err *err)
{
    const dtp_graph_variant v = variant_of(s, p);
    dtp_plan_request r = request_of(s, p, &v);
    dtp_plan_result next;
    dtp_err why = {0};
    if (dtp_stopped(s->request->stop)) {
        return s->found->arena != NULL
                   ? DTP_OK
                   : DTP_FAIL(err, DTP_STOPPED, "no plan was found: ended early (%s)",
                              dtp_stop_reasons[dtp_stop_why(s->request->stop)]);
    }
    r.options.slack = s->request->options.slack;
    r.brief = s->any;
    r.trial = r.find_limit = !s->any;
    const dtp_status st = s->mode(s->g, s->machine, &r, &next, &why);
    if (st == DTP_OK) {
        const double step_s =
            next.plan != NULL ? dtp_plan_fastest_found(next.plan).step_time_s : (double)INFINITY;
        const bool as_fast = s->any && step_s <= s->best.step_s * (1.0 + GAIN);
        const bool less = !s->any && (s->found->arena == NULL ||
                                      dtp_plan_result_better(s->request, &next, s->found));
        dtp_plan_result_keep(s->found, &next, as_fast || less, r.options.slack);
        return DTP_OK;
    }
    const bool known = s->any || s->found->arena != NULL;
    return st == DTP_STOPPED && known ? DTP_OK : DTP_FAIL(err, st, "%s", why.msg);
}

/* Where nothing fits: the smallest limit that one of the programs of the least memory needs, with
 * any number of stages, or none, each with what the last trial of it has. */
static dtp_status find_limit(stage_search *s, const point *starts, int32_t n, dtp_err *err)
{
    point without = {.stages.n = 1, .remat = s->n_remat - 1, .mesh = s->request->options.mesh};
    for (int32_t i = 0; i < n; i++) {
        without.count = starts[i].count > without.count ? starts[i].count : without.count;
    }
    for (int32_t i = s->what->stages ? -1 : 0; i < n && s->found->plan == NULL; i++) {
        DTP_TRY(plan_whole(s, i < 0 ? &without : &starts[i], err));
    }
    return DTP_OK;
}

/* The best one of all, that of the other kind, the rest of those with and without stages. */
static dtp_status copy_texts(const stage_search *s, dtp_arena *arena, int32_t *n, const char ***out,
                             dtp_err *err)
{
    const int32_t first =
        s->any && s->n_without > 0 ? 1 : 0; /* with stages, before those without */
    *n = s->n_tried + s->n_without;
    DTP_TRY(DTP_NEW(arena, *out, *n, err));
    for (int32_t i = 0; i < *n; i++) {
        const int32_t with = i < first ? i : i - (s->n_without > 0 ? 1 : 0);
        const bool is_with = i != first || s->n_without == 0;
        const char *text = !is_with            ? s->without[0]
                           : with < s->n_tried ? s->tried[with].text
                                               : s->without[1 + with - s->n_tried];
        (*out)[i] = dtp_arena_strdup(arena, text);
        DTP_TRY(DTP_MEMORY(err, (*out)[i]));
    }
    return DTP_OK;
}

static dtp_status run(stage_search *s, dtp_err *err)
{
    int32_t n = 0;
    point *starts = NULL;
    s->best.step_s = INFINITY;
    DTP_TRY(s->what->stages ? plan_without(s, err) : DTP_OK);
    DTP_TRY(list_choices(s, err));
    DTP_TRY(list_starts(s, &n, &starts, err));
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(start(s, &starts[i], err));
    }
    qsort(starts, (size_t)n, sizeof *starts, faster);
    for (int32_t i = 0; i < n && i < N_REFINED && isfinite(starts[i].step_s); i++) {
        DTP_TRY(refine(s, &starts[i], err));
    }
    if (s->any) {
        DTP_TRY(plan_whole(s, &s->best, err));
    } else if (s->found->plan == NULL) {
        DTP_TRY(find_limit(s, starts, n, err));
    }
    qsort(s->tried, (size_t)s->n_tried, sizeof *s->tried, faster);
    dtp_plan_result *r = s->found;
    if (r->arena == NULL) {
        r->arena = dtp_arena_create();
        DTP_TRY(DTP_MEMORY(err, r->arena));
    }
    DTP_TRY(copy_texts(s, r->arena, &r->n_tried, &r->tried, err));
    return r->plan != NULL ? copy_texts(s, r->plan->arena, &r->plan->n_tried, &r->plan->tried, err)
                           : DTP_OK;
}

dtp_status dtp_plan_stages(dtp_plan_mode mode, const dtp_graph *g, const dtp_machine *machine,
                           const dtp_plan_request *request, const dtp_stage_search *what,
                           dtp_plan_result *out, dtp_err *err)
{
    stage_search s = {
        .mode = mode, .g = g, .machine = machine, .request = request, .what = what, .found = out};
    memset(out, 0, sizeof *out);
    s.arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, s.arena));
    const dtp_status st = run(&s, err);
    dtp_arena_destroy(s.arena);
    if (st == DTP_OK && out->plan != NULL && dtp_stopped(request->stop)) {
        out->plan->certificate.ended = dtp_stop_why(request->stop);
    }
    if (st != DTP_OK) {
        dtp_plan_result_free(out);
    }
    return st;
}
