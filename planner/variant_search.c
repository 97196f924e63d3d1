/* The search for precision, recomputation and microbatches: a mode of planning plans for one
 * graph variant after the other, the best plan stays. */
#include "planner/variant_search.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/units.h"
#include "core/transform/microbatch.h"
#include "planner/mesh_search.h"
#include "planner/planning.h"
#include "planner/problem/tensors/compute_bound.h"
#include "planner/remat_choices.h"

enum { MAX_MICROBATCHES = 16 };

/* Where the mesh is searched, a variant is solved where its usual layouts take longer than those of
 * the best plan by no more than this share. */
static const double FAR = 0.05;
/* Share of the step that must be to gain for variants to be tried where the model fits. */
static const double EARNED = 0.01;

/* What came of a variant. */
typedef struct trial {
    const char *text;
    int32_t place; /* in the list of variants */
    bool planned;
    double value; /* of its plan: seconds or bytes, as the objective says */
} trial;

/* What usual layouts make of a variant. */
typedef struct usual {
    bool settled; /* it is noted: nothing of it is planned */
    bool fits;    /* seconds, bytes: of the fastest one */
    double seconds;
    int64_t bytes;
} usual;

typedef struct search {
    dtp_plan_mode mode;
    const dtp_graph *g;
    const dtp_machine *machine;
    const dtp_plan_request *request;
    const dtp_variant_search *what;
    dtp_arena *arena; /* texts and variants while it runs */
    int32_t n, done;
    int32_t n_counts;  /* variants that follow each other and differ in microbatches alone */
    bool *fits;        /* by variant: it has a plan */
    bool fits_without; /* one without recomputation and microbatches that are searched */
    bool binds;        /* memory keeps that one from a usual layout with a shorter step */
    dtp_graph_variant *variants;
    usual *usual; /* by variant */
    int32_t n_solved;
    int32_t best_variant;
    trial *tried;       /* by variant that is done */
    dtp_plan incumbent; /* certificate and prediction of the plan of the model as it is */
    bool has_incumbent;
    dtp_plan_result *best;
    bool best_is_usual; /* nothing was solved for it */
    int32_t n_meshes;   /* where usual layouts are tried; 0: the mesh of the request */
    dtp_mesh *meshes;
} search;

/* Whether it has recomputation or microbatches that are searched. */
static bool saves_memory(const dtp_variant_search *what, const dtp_graph_variant *variant)
{
    return (what->remat && variant->remat.n > 0) ||
           (what->microbatches && variant->microbatches > 1);
}

/* Whether it changes nothing that is searched: what is given is the same in all variants. */
static bool is_plain(const dtp_variant_search *what, const dtp_graph_variant *variant)
{
    return !(what->precision && !dtp_precision_is_f32(&variant->precision)) &&
           !saves_memory(what, variant);
}

/* Behind `text`; a shell takes what has blanks in quotes. */
static const char *remat_text(const dtp_remat *remat, const char *text, dtp_arena *arena)
{
    bool quoted = false;
    for (int32_t i = 0; i < remat->n; i++) {
        quoted = quoted || strchr(remat->items[i], ' ') != NULL;
    }
    text = dtp_arena_printf(arena, "%s --remat %s", text, quoted ? "'" : "");
    for (int32_t i = 0; i < remat->n && text != NULL; i++) {
        const bool last = i + 1 == remat->n;
        text = dtp_arena_printf(arena, "%s%s%s", text, remat->items[i],
                                !last    ? dtp_remat_separator(remat->items[i])
                                : quoted ? "'"
                                         : "");
    }
    return text;
}

const char *dtp_variant_text(const dtp_variant_search *what, const dtp_graph_variant *variant,
                             dtp_arena *arena)
{
    char precision[DTP_PRECISION_TEXT_BYTES];
    const char *text = "";
    if (is_plain(what, variant)) {
        return "as it is";
    }
    if (what->precision && !dtp_precision_is_f32(&variant->precision)) {
        dtp_precision_print(&variant->precision, precision);
        text = dtp_arena_printf(arena, " --precision %s", precision);
    }
    if (what->remat && variant->remat.n > 0 && text != NULL) {
        text = remat_text(&variant->remat, text, arena);
    }
    if (what->microbatches && variant->microbatches > 1 && text != NULL) {
        text = dtp_arena_printf(arena, "%s --microbatches %d", text, variant->microbatches);
    }
    return text != NULL ? text + 1 : NULL;
}

/* ---- the list of variants ---- */

static dtp_status list_variants(search *s, dtp_err *err)
{
    const dtp_graph_variant none = {.micro_dim = -1};
    const dtp_graph_variant given = s->request->variant != NULL ? *s->request->variant : none;
    const dtp_precision all[] = {{.compute = DTP_F32, .gradients = DTP_F32},
                                 {.compute = DTP_BF16, .gradients = DTP_BF16},
                                 {.compute = DTP_BF16, .gradients = DTP_F32}};
    const dtp_precision *precisions = s->what->precision ? all : &given.precision;
    dtp_remat one = given.remat, *remat = &one;
    int32_t count = given.microbatches, *counts = &count, n_remat = 1, n_counts = 1;
    const int32_t max =
        s->what->max_microbatches > 0 ? s->what->max_microbatches : MAX_MICROBATCHES;
    if (s->what->remat) {
        DTP_TRY(dtp_remat_choices(s->g, s->machine, s->request->target, s->arena, &n_remat, &remat,
                                  err));
    }
    if (s->what->microbatches) {
        DTP_TRY(dtp_microbatch_variants(s->g, max, s->arena, &n_counts, &counts, err));
    }
    const int32_t n_precisions = s->what->precision ? (int32_t)(sizeof all / sizeof *all) : 1;
    const size_t n = (size_t)n_precisions * (size_t)n_remat * (size_t)n_counts;
    DTP_TRY(DTP_NEW(s->arena, s->variants, n, err));
    DTP_TRY(DTP_NEW(s->arena, s->tried, n, err));
    DTP_TRY(DTP_NEW(s->arena, s->fits, n, err));
    DTP_TRY(DTP_NEW(s->arena, s->usual, n, err));
    s->n_counts = n_counts;
    for (int32_t i = 0; i < n_precisions * n_remat; i++) {
        for (int32_t k = 0; k < n_counts; k++) {
            const int32_t r = i % n_remat;
            const dtp_graph_variant c = {.outputs = given.outputs,
                                         .precision = precisions[i / n_remat],
                                         .remat = remat[r],
                                         .microbatches = counts[k],
                                         .micro_dim = given.micro_dim,
                                         .regather = given.regather};
            if (!s->what->helps || ((r == 0 || r == n_remat - 1) && !is_plain(s->what, &c))) {
                s->variants[s->n++] = c;
            }
        }
    }
    return DTP_OK;
}

/* ---- one variant ---- */

static dtp_status note(search *s, int32_t i, const char *what, const char *outcome, dtp_err *err)
{
    const char *text = what != NULL && outcome != NULL
                           ? dtp_arena_printf(s->arena, "%s: %s", what, outcome)
                           : NULL;
    DTP_TRY(DTP_MEMORY(err, text));
    s->tried[s->done] = (trial){.text = text, .place = i};
    s->done++;
    dtp_log(s->request->options.ctx, DTP_LOG_INFO, "planner", "variant", "%s", text);
    return DTP_OK;
}

/* Seconds that the kernels of a changed graph take at least on the mesh of the request; 0 when that
 * is not known. The search for a mesh has its own. */
static dtp_status compute_bound(const search *s, const dtp_graph_variant *variant, double *seconds,
                                dtp_err *err)
{
    const dtp_plan_request *r = s->request;
    dtp_graph *changed = NULL;
    dtp_pricer pricer;
    *seconds = 0.0;
    if (r->n_texts > 0 || r->options.objective != DTP_OBJECTIVE_TIME || r->options.mesh == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_pricer_init(s->machine, r->options.mesh, r->target, &pricer, err));
    DTP_TRY(dtp_graph_with_variant(s->g, variant, 0, NULL, &changed, err));
    const dtp_status st = dtp_compute_bound(changed, &pricer, seconds, NULL, err);
    *seconds *= 1.0 + pricer.skew; /* a share of all kernels */
    dtp_graph_destroy(changed);
    return st;
}

static const char *too_slow(const search *s, double kernels_s)
{
    return dtp_arena_printf(s->arena, "dropped, kernels alone take %s",
                            dtp_seconds(kernels_s).text);
}

static const char *describe(const search *s, const dtp_plan_result *r)
{
    if (r->plan != NULL) {
        return dtp_arena_printf(s->arena, "%s, %s",
                                dtp_seconds(r->plan->predicted.step_time_s).text,
                                dtp_byte_count((double)r->plan->predicted.peak_bytes).text);
    }
    if (!r->infeasible && r->kernels_s > 0.0) {
        return too_slow(s, r->kernels_s);
    }
    if (!r->infeasible) {
        return r->cut_bound > 0
                   ? dtp_arena_printf(s->arena, "dropped, no prices add up to less than %s",
                                      dtp_seconds(1e-12 * (double)r->cut_bound).text)
                   : "dropped, no prices add up to less than those without";
    }
    return r->needs != NULL ? dtp_arena_printf(s->arena, "infeasible, needs at least %s",
                                               dtp_byte_count((double)r->smallest_bound).text)
                            : "infeasible";
}

/* The search of a variant also has the usual layouts of that variant, unless it was ended. */
static bool is_taken(const search *s, int32_t i, const dtp_plan_result *next)
{
    const bool own = s->best_is_usual && s->best_variant == i;
    return own && next->plan != NULL && !dtp_stopped(s->request->stop)
               ? true
               : dtp_plan_result_better(s->request, next, s->best);
}

static void keep_better(search *s, int32_t i, dtp_plan_result *next)
{
    const dtp_graph_variant *variant = &s->variants[i];
    if (is_plain(s->what, variant) && next->plan != NULL) {
        s->incumbent =
            (dtp_plan){.certificate = next->plan->certificate, .predicted = next->plan->predicted};
        s->has_incumbent = true;
    }
    const bool taken = is_taken(s, i, next);
    s->best_variant = taken ? i : s->best_variant;
    s->best_is_usual = s->best_is_usual && !taken;
    dtp_plan_result_keep(s->best, next, taken, s->request->options.slack);
}

static dtp_plan_request request_of(const search *s, int32_t i, const char *text,
                                   dtp_plan_watch *watch)
{
    dtp_plan_request request = *s->request;
    request.variant = &s->variants[i];
    request.brief = true;
    request.best = s->best->plan;
    request.best_is_own = s->best->plan != NULL && s->best_variant == i;
    *watch = (dtp_plan_watch){.variant = text, .best = s->best->plan};
    if (request.watch != NULL) {
        watch->progress = request.watch->progress;
        watch->user = request.watch->user;
        request.watch = watch;
    }
    return request;
}

static dtp_status plan_one(search *s, int32_t i, const char *text, dtp_err *err)
{
    dtp_plan_watch watch;
    dtp_plan_request request = request_of(s, i, text, &watch);
    dtp_plan_result next;
    request.incumbent = s->has_incumbent ? &s->incumbent : NULL;
    if (s->n_meshes > 0 && s->n_solved > 0 && s->best->plan != NULL) {
        request.n_meshes = 1; /* the best one so far */
        request.meshes = &s->best->plan->mesh;
    }
    DTP_TRY(s->mode(s->g, s->machine, &request, &next, err));
    dtp_status st = note(s, i, text, describe(s, &next), err);
    s->n_solved++;
    s->fits[i] = next.plan != NULL;
    s->fits_without = s->fits_without || (s->fits[i] && !saves_memory(s->what, request.variant));
    if (st == DTP_OK && next.plan != NULL) {
        trial *t = &s->tried[s->done - 1];
        t->planned = true;
        t->value = request.options.objective == DTP_OBJECTIVE_TIME
                       ? next.plan->predicted.step_time_s
                       : (double)next.plan->predicted.peak_bytes;
    }
    keep_better(s, i, &next);
    return st;
}

static dtp_status try_variant(search *s, int32_t i, dtp_err *err)
{
    const dtp_graph_variant *variant = &s->variants[i];
    const char *text = dtp_variant_text(s->what, variant, s->arena);
    dtp_err why = {0};
    double seconds = 0.0;
    dtp_status st = s->best->plan != NULL ? compute_bound(s, variant, &seconds, &why) : DTP_OK;
    if (st == DTP_OK && s->best->plan != NULL && seconds >= s->best->plan->predicted.step_time_s) {
        return note(s, i, text, too_slow(s, seconds), err);
    }
    st = st == DTP_OK ? plan_one(s, i, text, &why) : st;
    if (st == DTP_STOPPED && !(s->what->when_needed && s->best->plan == NULL)) {
        return note(s, i, text, why.msg, err);
    }
    if (st != DTP_OK && dtp_status_is_input(st) && (i > 0 || s->what->helps)) {
        return note(s, i, text, dtp_arena_printf(s->arena, "cannot be done: %s", why.msg), err);
    }
    return st == DTP_OK ? DTP_OK : DTP_FAIL(err, st, "%s", why.msg);
}

/* ---- usual layouts ---- */

static bool same_but_microbatches(const dtp_graph_variant *a, const dtp_graph_variant *b)
{
    return a->remat.n == b->remat.n && a->remat.items == b->remat.items &&
           a->precision.compute == b->precision.compute &&
           a->precision.gradients == b->precision.gradients &&
           a->precision.tf32 == b->precision.tf32;
}

/* Notes whether memory binds a plan of the model as it is: a usual layout would take less by a
 * share, but needs too much. Then one of a variant may, with recomputation or microbatches. */
static void note_binding(search *s, const dtp_plan *plan)
{
    const double most_s = (1.0 - EARNED) * dtp_plan_fastest_found(plan).step_time_s;
    for (int32_t i = 0; i < plan->n_baselines && s->what->when_needed; i++) {
        const dtp_baseline *b = &plan->baselines[i];
        s->binds = s->binds || (b->legal && !dtp_plan_baseline_fits(plan, b) &&
                                b->predicted.step_time_s < most_s);
    }
}

/* Of what is there to make a plan fit: a variant with more microbatches than one that fits is not
 * tried, as it is rarely faster. */
static bool is_needless(const search *s, int32_t i)
{
    const bool fit = s->what->when_needed || s->what->helps;
    bool fewer = false;
    for (int32_t k = 0; k < i && fit; k++) {
        fewer = fewer || ((s->fits[k] || s->usual[k].fits) && !(k == 0 && s->binds) &&
                          s->variants[k].microbatches < s->variants[i].microbatches &&
                          same_but_microbatches(&s->variants[k], &s->variants[i]));
    }
    return fewer || (s->what->when_needed && s->fits_without && !s->binds &&
                     saves_memory(s->what, &s->variants[i]));
}

/* Also settles a variant of which no program fits, or whose kernels alone take as long as the best
 * plan so far. What cannot be made of the model is left to planning. */
static dtp_status try_usual(search *s, int32_t i, dtp_err *err)
{
    const char *text = dtp_variant_text(s->what, &s->variants[i], s->arena);
    dtp_plan_watch watch;
    dtp_plan_request request = request_of(s, i, text, &watch);
    dtp_plan_result next;
    dtp_err why = {0};
    usual *u = &s->usual[i];
    double kernels_s = 0.0;
    request.usual = true;
    request.n_meshes = s->n_meshes;
    request.meshes = s->meshes;
    dtp_status st =
        s->best->plan != NULL ? compute_bound(s, request.variant, &kernels_s, &why) : DTP_OK;
    if (st == DTP_OK && s->best->plan != NULL &&
        kernels_s >= s->best->plan->predicted.step_time_s) {
        u->settled = true;
        return note(s, i, text, too_slow(s, kernels_s), err);
    }
    st = st == DTP_OK ? s->mode(s->g, s->machine, &request, &next, &why) : st;
    if (st != DTP_OK) {
        return st == DTP_STOPPED || dtp_status_is_input(st) ? DTP_OK
                                                            : DTP_FAIL(err, st, "%s", why.msg);
    }
    u->settled = next.plan == NULL && (next.needs != NULL || next.kernels_s > 0.0);
    u->fits = next.plan != NULL;
    if (u->settled) {
        st = note(s, i, text, describe(s, &next), err);
    }
    if (u->fits) {
        u->seconds = dtp_plan_fastest_found(next.plan).step_time_s;
        u->bytes = next.plan->predicted.peak_bytes;
        if (!saves_memory(s->what, request.variant)) {
            note_binding(s, next.plan);
        }
    }
    const bool taken = dtp_plan_result_better(s->request, &next, s->best);
    s->best_variant = taken ? i : s->best_variant;
    s->best_is_usual = s->best_is_usual || (taken && u->fits);
    dtp_plan_result_keep(s->best, &next, taken, s->request->options.slack);
    return st;
}

/* The usual layouts of all variants that may have a plan worth it: the model as it is, then those
 * with fewest microbatches, as more are seldom faster, and of these the ones with most
 * recomputation: it fits where anything does, and its step is one that others have to beat. */
static dtp_status try_all_usual(search *s, dtp_err *err)
{
    const dtp_plan_request *r = s->request;
    const int32_t n_remat = s->n / s->n_counts;
    if (r->options.mesh == NULL) {
        const int64_t inner = s->machine->n_levels > 0 ? s->machine->levels[0].size : 1;
        DTP_TRY(dtp_mesh_usual(r->options.devices, inner, s->arena, &s->n_meshes, &s->meshes, err));
    }
    for (int32_t k = 0; k <= s->n; k++) { /* the first one is also in its place */
        const int32_t i =
            k == 0 ? 0 : (n_remat - 1 - (k - 1) % n_remat) * s->n_counts + (k - 1) / n_remat;
        const bool without = s->fits[0] || s->usual[0].fits;
        if (dtp_stopped(r->stop) || (s->what->when_needed && without && !s->binds)) {
            break;
        }
        const bool again = (i == 0 && k > 0) || s->usual[i].settled;
        DTP_TRY(again || is_needless(s, i) ? DTP_OK : try_usual(s, i, err));
    }
    return DTP_OK;
}

/* The fastest usual layouts first, else in the order of work. */
static dtp_status find_order(const search *s, int32_t **order, dtp_err *err)
{
    DTP_TRY(DTP_NEW(s->arena, *order, s->n, err));
    for (int32_t i = 0; i < s->n; i++) {
        const usual *u = &s->usual[i];
        int32_t at = i;
        for (; at > 0 && u->fits; at--) {
            const usual *before = &s->usual[(*order)[at - 1]];
            if (before->fits && before->seconds <= u->seconds) {
                break;
            }
            (*order)[at] = (*order)[at - 1];
        }
        (*order)[at] = i;
    }
    return DTP_OK;
}

/* What is said of a variant that is not planned; NULL: it is. Where the mesh is searched, the
 * first variant is planned on all meshes; after it those whose usual layouts are about as fast. On
 * a named mesh, where the model as it is has no plan, the fastest, and then those that are about as
 * fast as the best plan; where memory binds its plan, the first of those that are about as fast as
 * that, and then those that are faster than all plans. */
static const char *passed_over(const search *s, int32_t i)
{
    const usual *u = &s->usual[i];
    const bool ended = dtp_stopped(s->request->stop);
    const bool named = s->n_meshes == 0;
    const bool needed = s->binds || (s->what->when_needed && !s->fits_without);
    const bool later = (!named || needed) && s->n_solved > 0 && s->best->plan != NULL;
    const usual *best = &s->usual[s->best_variant];
    const double most_s = !later       ? 0.0
                          : named      ? s->best->plan->predicted.step_time_s
                          : best->fits ? best->seconds
                                       : (double)INFINITY;
    const double far = named && s->binds && s->n_solved > 1 ? 0.0 : FAR;
    const bool slow = later && u->fits && u->seconds > (1.0 + far) * most_s;
    if (!ended && !(later && !u->fits) && !slow) {
        return NULL;
    }
    return u->fits ? dtp_arena_printf(s->arena, "%s, %s by usual layouts, %s",
                                      dtp_seconds(u->seconds).text,
                                      dtp_byte_count((double)u->bytes).text,
                                      ended ? "not reached" : "not solved")
           : ended ? "not reached"
                   : "not solved, no usual layouts fit";
}

/* The model as it is, plans from the best on, the others in the order of the search. */
static int compare_trials(const void *x, const void *y)
{
    const trial *a = x, *b = y;
    if (a->place == 0 || b->place == 0 || a->planned != b->planned) {
        return a->place == 0 || (b->place != 0 && a->planned) ? -1 : 1;
    }
    if (a->planned && (a->value < b->value || a->value > b->value)) {
        return a->value < b->value ? -1 : 1;
    }
    return a->place < b->place ? -1 : 1;
}

static dtp_status copy_texts(const search *s, dtp_arena *arena, int32_t *n, const char ***out,
                             dtp_err *err)
{
    const char **texts = dtp_arena_alloc(arena, (size_t)s->done, sizeof *texts);
    bool ok = texts != NULL;
    for (int32_t i = 0; i < s->done && ok; i++) {
        texts[i] = dtp_arena_strdup(arena, s->tried[i].text);
        ok = texts[i] != NULL;
    }
    *n = ok ? s->done : 0;
    *out = texts;
    return ok ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for what was tried");
}

/* Nothing fits: the result is that of the variant whose best baseline needs least. */
static dtp_status explain(const search *s, dtp_err *err)
{
    trial *best = s->tried;
    while (best->place != s->best_variant) {
        best++;
    }
    dtp_plan_request request = *s->request;
    best->text =
        dtp_arena_printf(s->arena, "%s; the limit named is that of this variant", best->text);
    best->planned = true; /* listed behind the model as it is */
    DTP_TRY(DTP_MEMORY(err, best->text));
    request.variant = &s->variants[s->best_variant];
    dtp_plan_result_free(s->best);
    return s->mode(s->g, s->machine, &request, s->best, err);
}

static dtp_status run(search *s, dtp_err *err)
{
    dtp_plan_result *best = s->best;
    int32_t *order;
    DTP_TRY(list_variants(s, err));
    if (s->what->usual && s->what->when_needed && s->request->options.mesh != NULL) {
        DTP_TRY(try_variant(s, 0, err)); /* with a plan that memory does not bind it is enough */
        s->usual[0].settled = true;
        if (s->best->plan != NULL) {
            note_binding(s, s->best->plan);
        }
    }
    DTP_TRY(s->what->usual ? try_all_usual(s, err) : DTP_OK);
    DTP_TRY(find_order(s, &order, err));
    for (int32_t k = 0; k < s->n; k++) {
        const int32_t i = order[k];
        if (s->usual[i].settled || (!s->usual[i].fits && is_needless(s, i))) {
            continue;
        }
        const char *why = passed_over(s, i);
        DTP_TRY(why != NULL
                    ? note(s, i, dtp_variant_text(s->what, &s->variants[i], s->arena), why, err)
                    : try_variant(s, i, err));
    }
    if (best->plan == NULL && dtp_stopped(s->request->stop)) {
        return DTP_FAIL(err, DTP_STOPPED, "no plan was found: ended early (%s)",
                        dtp_stop_reasons[dtp_stop_why(s->request->stop)]);
    }
    if (best->plan == NULL && !s->what->helps) {
        DTP_TRY(explain(s, err));
    }
    if (best->arena == NULL) { /* no variant has a result to keep: all are refused */
        best->arena = dtp_arena_create();
        DTP_TRY(DTP_MEMORY(err, best->arena));
    }
    if (s->what->when_needed && s->done == 1 && best->plan != NULL) {
        return DTP_OK;
    }
    qsort(s->tried, (size_t)s->done, sizeof *s->tried, compare_trials);
    DTP_TRY(copy_texts(s, best->arena, &best->n_tried, &best->tried, err));
    return best->plan == NULL
               ? DTP_OK
               : copy_texts(s, best->plan->arena, &best->plan->n_tried, &best->plan->tried, err);
}

dtp_status dtp_plan_variants(dtp_plan_mode mode, const dtp_graph *g, const dtp_machine *machine,
                             const dtp_plan_request *request, const dtp_variant_search *what,
                             dtp_plan_result *out, dtp_err *err)
{
    search s = {.mode = mode, .g = g, .machine = machine, .request = request, .what = what};
    memset(out, 0, sizeof *out);
    s.best = out;
    s.arena = dtp_arena_create();
    dtp_status st =
        s.arena != NULL ? run(&s, err) : DTP_FAIL(err, DTP_NOMEM, "out of memory for a search");
    dtp_arena_destroy(s.arena);
    if (st == DTP_OK && out->plan != NULL) {
        out->plan->certificate.ended = dtp_stop_why(request->stop);
    }
    if (st != DTP_OK) {
        dtp_plan_result_free(out);
    }
    return st;
}
