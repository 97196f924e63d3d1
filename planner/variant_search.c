/* The search for precision, recomputation and microbatches: a mode of planning plans for one
 * graph variant after the other, the best plan stays. */
#include "planner/variant_search.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/units.h"
#include "core/transform/microbatch.h"
#include "planner/mesh_search.h"
#include "planner/planning.h"
#include "planner/problem/tensors/compute_bound.h"
#include "planner/remat_choices.h"

enum { MAX_MICROBATCHES = 16 };

/* What came of a variant. */
typedef struct trial {
    const char *text;
    int32_t place; /* in the order of the search */
    bool planned;
    double value; /* of its plan: seconds or bytes, as the objective says */
} trial;

typedef struct search {
    dtp_plan_mode mode;
    const dtp_graph *g;
    const dtp_machine *machine;
    const dtp_plan_request *request;
    const dtp_variant_search *what;
    dtp_arena *arena; /* texts and variants while it runs */
    int32_t n, done;
    bool fits;         /* the last one that was tried */
    bool fits_without; /* one without recomputation and microbatches that are searched */
    dtp_graph_variant *variants;
    int32_t best_variant;
    trial *tried;       /* by variant that is done */
    dtp_plan incumbent; /* certificate and prediction of the plan of the model as it is */
    bool has_incumbent;
    dtp_plan_result *best;
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
    const dtp_precision all[] = {
        {DTP_F32, DTP_F32, false}, {DTP_BF16, DTP_BF16, false}, {DTP_BF16, DTP_F32, false}};
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

static dtp_status note(search *s, const char *what, const char *outcome, dtp_err *err)
{
    const char *text = what != NULL && outcome != NULL
                           ? dtp_arena_printf(s->arena, "%s: %s", what, outcome)
                           : NULL;
    DTP_TRY(DTP_MEMORY(err, text));
    s->tried[s->done] = (trial){.text = text, .place = s->done};
    s->done++;
    dtp_log(s->request->options.ctx, DTP_LOG_INFO, "planner", "variant", "%s", text);
    return DTP_OK;
}

/* The least over some meshes. */
static dtp_status least_over(const search *s, const dtp_graph *g, int32_t n, const dtp_mesh *meshes,
                             double *seconds, dtp_err *err)
{
    for (int32_t i = 0; i < n; i++) {
        dtp_pricer pricer;
        double here;
        DTP_TRY(dtp_pricer_init(s->machine, &meshes[i], s->request->target, &pricer, err));
        DTP_TRY(dtp_compute_bound(g, &pricer, &here, err));
        *seconds = i == 0 || here < *seconds ? here : *seconds;
    }
    return DTP_OK;
}

/* Seconds that the kernels of a changed graph take at least; 0 when that is not known. */
static dtp_status compute_bound(const search *s, const dtp_graph_variant *variant, double *seconds,
                                dtp_err *err)
{
    const dtp_plan_request *r = s->request;
    const dtp_mesh *meshes = r->options.mesh;
    dtp_mesh *all = NULL;
    dtp_graph *changed = NULL;
    int32_t n = 1;
    *seconds = 0.0;
    if (r->n_texts > 0 || r->options.objective != DTP_OBJECTIVE_TIME) {
        return DTP_OK;
    }
    if (meshes == NULL) {
        DTP_TRY(
            dtp_mesh_factorisations(r->options.devices, r->max_mesh_dims, s->arena, &n, &all, err));
        meshes = all;
    }
    DTP_TRY(dtp_graph_with_variant(s->g, variant, 0, NULL, &changed, err));
    dtp_status st = least_over(s, changed, n, meshes, seconds, err);
    dtp_graph_destroy(changed);
    return st;
}

static const char *describe(const search *s, const dtp_plan_result *r)
{
    if (r->plan != NULL) {
        return dtp_arena_printf(s->arena, "%s, %s",
                                dtp_seconds(r->plan->predicted.step_time_s).text,
                                dtp_byte_count((double)r->plan->predicted.peak_bytes).text);
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

static void keep_better(search *s, int32_t i, dtp_plan_result *next)
{
    const dtp_graph_variant *variant = &s->variants[i];
    if (is_plain(s->what, variant) && next->plan != NULL) {
        s->incumbent =
            (dtp_plan){.certificate = next->plan->certificate, .predicted = next->plan->predicted};
        s->has_incumbent = true;
    }
    const bool taken = dtp_plan_result_better(s->request, next, s->best);
    s->best_variant = taken ? i : s->best_variant;
    dtp_plan_result_keep(s->best, next, taken);
}

static dtp_status plan_one(search *s, int32_t i, const char *text, dtp_err *err)
{
    dtp_plan_request request = *s->request;
    dtp_plan_result next;
    request.variant = &s->variants[i];
    request.brief = true;
    request.incumbent = s->has_incumbent ? &s->incumbent : NULL;
    dtp_plan_watch watch = {.variant = text, .best = s->best->plan};
    if (request.watch != NULL) {
        watch.progress = request.watch->progress;
        watch.user = request.watch->user;
        request.watch = &watch;
    }
    DTP_TRY(s->mode(s->g, s->machine, &request, &next, err));
    dtp_status st = note(s, text, describe(s, &next), err);
    s->fits = next.plan != NULL;
    s->fits_without = s->fits_without || (s->fits && !saves_memory(s->what, request.variant));
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
        return note(
            s, text,
            dtp_arena_printf(s->arena, "dropped, kernels alone take %s", dtp_seconds(seconds).text),
            err);
    }
    st = st == DTP_OK ? plan_one(s, i, text, &why) : st;
    if (st == DTP_STOPPED && !(s->what->when_needed && s->best->plan == NULL)) {
        return note(s, text, why.msg, err);
    }
    if (st != DTP_OK && dtp_status_is_input(st) && (i > 0 || s->what->helps)) {
        return note(s, text, dtp_arena_printf(s->arena, "cannot be done: %s", why.msg), err);
    }
    return st == DTP_OK ? DTP_OK : DTP_FAIL(err, st, "%s", why.msg);
}

/* ---- all ---- */

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
    trial *best = &s->tried[s->best_variant];
    dtp_plan_request request = *s->request;
    best->text =
        dtp_arena_printf(s->arena, "%s; the limit named is that of this variant", best->text);
    best->planned = true; /* listed behind the model as it is */
    DTP_TRY(DTP_MEMORY(err, best->text));
    request.variant = &s->variants[s->best_variant];
    dtp_plan_result_free(s->best);
    return s->mode(s->g, s->machine, &request, s->best, err);
}

/* Of what is there to make a plan fit: a variant with more microbatches than one that fits is not
 * tried, as it is rarely faster. */
static bool is_needless(const search *s, int32_t i)
{
    return (s->what->when_needed && s->fits_without && saves_memory(s->what, &s->variants[i])) ||
           ((s->what->when_needed || s->what->helps) && s->fits && i > 0 &&
            s->variants[i].microbatches > s->variants[i - 1].microbatches);
}

static dtp_status run(search *s, dtp_err *err)
{
    dtp_plan_result *best = s->best;
    DTP_TRY(list_variants(s, err));
    for (int32_t i = 0; i < s->n; i++) {
        if (is_needless(s, i)) {
            continue;
        }
        s->fits = false;
        DTP_TRY(
            dtp_stopped(s->request->stop)
                ? note(s, dtp_variant_text(s->what, &s->variants[i], s->arena), "not reached", err)
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
