/* The fields of dtp.plan/1 that do not depend on the graph. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/layout/placement_text.h"
#include "core/plan/plan_internal.h"

enum { MAX_LIST = 100000 };

/* ---- small pieces ---- */

static dtp_status read_text(const dtp_json *obj, const char *key, dtp_arena *arena,
                            const char **out, dtp_err *err)
{
    DTP_TRY(dtp_json_get_string(obj, key, out, err));
    *out = dtp_arena_line(arena, *out);
    return DTP_MEMORY(err, *out);
}

static dtp_status read_count(const dtp_json *obj, const char *key, int64_t *out, dtp_err *err)
{
    return dtp_json_get_int(obj, key, 0, INT64_MAX, out, err);
}

/* A number >= 0. */
static dtp_status read_amount(const dtp_json *obj, const char *key, double *out, dtp_err *err)
{
    DTP_TRY(dtp_json_get_double(obj, key, out, err));
    return *out >= 0 ? DTP_OK : dtp_json_fail(dtp_json_get(obj, key), err, "%g is negative", *out);
}

/* Sixteen hexadecimal digits in lower case. */
static dtp_status read_hash(const dtp_json *obj, const char *key, uint64_t *out, dtp_err *err)
{
    static const char digits[] = "0123456789abcdef";
    const char *text;
    DTP_TRY(dtp_json_get_string(obj, key, &text, err));
    if (strlen(text) != 16 || text[strspn(text, digits)] != '\0') {
        return dtp_json_fail(dtp_json_get(obj, key), err, "'%.40s' is not 16 hexadecimal digits",
                             text);
    }
    *out = 0;
    for (int32_t i = 0; i < 16; i++) {
        *out = *out << 4 | (uint64_t)(strchr(digits, text[i]) - digits);
    }
    return DTP_OK;
}

static dtp_status check_list(const dtp_json *v, dtp_json_kind kind, dtp_err *err)
{
    DTP_TRY(dtp_json_expect(v, kind, err));
    return dtp_json_size(v) <= MAX_LIST ? DTP_OK
                                        : dtp_json_fail(v, err, "more than %d entries", MAX_LIST);
}

dtp_status dtp_plan__texts(const dtp_json *v, dtp_arena *arena, int32_t *n, const char ***out,
                           dtp_err *err)
{
    DTP_TRY(check_list(v, DTP_JSON_ARRAY, err));
    const int32_t count = dtp_json_size(v);
    const char **list = dtp_arena_alloc(arena, (size_t)count, sizeof *list);
    DTP_TRY(DTP_MEMORY(err, list));
    for (int32_t i = 0; i < count; i++) {
        const char *text;
        DTP_TRY(dtp_json_string(dtp_json_at(v, i), &text, err));
        list[i] = dtp_arena_line(arena, text);
        DTP_TRY(DTP_MEMORY(err, list[i]));
    }
    *n = count;
    *out = list;
    return DTP_OK;
}

/* ---- prediction, certificate ---- */

/* What older plans do not say. */
static dtp_status read_compute(const dtp_json *v, dtp_prediction *out, dtp_err *err)
{
    const dtp_json *parts = dtp_json_get(v, "compute");
    const struct {
        const char *key;
        double *out;
    } amounts[] = {{"tokens_per_s", &out->tokens_per_s},
                   {"mfu", &out->mfu},
                   {"in_vain", &out->vain},
                   {"host_s", &out->host_s},
                   {"skew_s", &out->skew_s},
                   {"bubble_s", &out->bubble_s},
                   {"imbalance_s", &out->imbalance_s},
                   {"exposed_sends_s", &out->exposed_sends_s}};
    for (size_t i = 0; i < sizeof amounts / sizeof amounts[0]; i++) {
        if (dtp_json_get(v, amounts[i].key) != NULL) {
            DTP_TRY(read_amount(v, amounts[i].key, amounts[i].out, err));
        }
    }
    if (parts == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_json_expect(parts, DTP_JSON_OBJECT, err));
    DTP_TRY(dtp_json_keys(parts, dtp_plan__compute_parts, err));
    for (int32_t i = 0; i < DTP_N_COMPUTE_PARTS; i++) {
        DTP_TRY(read_amount(parts, dtp_plan__compute_parts[i], &out->compute_parts_s[i], err));
    }
    return DTP_OK;
}

/* The caller has checked the keys. */
static dtp_status read_prediction(const dtp_json *v, bool times, dtp_prediction *out, dtp_err *err)
{
    static const char *const fields[] = {"count", "bytes", NULL};
    const dtp_json *collectives;
    if (times) {
        DTP_TRY(read_amount(v, "step_time_s", &out->step_time_s, err));
        DTP_TRY(read_amount(v, "compute_s", &out->compute_s, err));
        DTP_TRY(read_amount(v, "comm_s", &out->comm_s, err));
        DTP_TRY(read_amount(v, "exposed_comm_s", &out->exposed_comm_s, err));
        DTP_TRY(read_compute(v, out, err));
    }
    DTP_TRY(read_count(v, "peak_bytes", &out->peak_bytes, err));
    if (dtp_json_get(v, "reserved_bytes") != NULL) {
        DTP_TRY(read_count(v, "reserved_bytes", &out->reserved_bytes, err));
    }
    DTP_TRY(dtp_json_require(v, "collectives", &collectives, err));
    DTP_TRY(dtp_json_keys(collectives, dtp_plan__collectives, err));
    for (int32_t i = 0; i < DTP_N_COLL_TOTALS; i++) {
        const char *kind = dtp_plan__collectives[i];
        const dtp_json *total;
        out->collectives[i].kind = kind;
        const bool permute =
            i == DTP_N_COLL_TOTALS - 1; /* most plans have none, may leave it out */
        if (permute && dtp_json_get(collectives, kind) == NULL) {
            continue;
        }
        DTP_TRY(dtp_json_require(collectives, kind, &total, err));
        DTP_TRY(dtp_json_keys(total, fields, err));
        DTP_TRY(read_count(total, "count", &out->collectives[i].count, err));
        DTP_TRY(read_count(total, "bytes", &out->collectives[i].bytes, err));
    }
    return DTP_OK;
}

static dtp_status read_prices(const dtp_json *list, dtp_arena *arena, dtp_certificate *c,
                              dtp_err *err)
{
    static const char *const keys[] = {"constraint", "relaxed_by_bytes", "saves_ps", "exact", NULL};
    DTP_TRY(check_list(list, DTP_JSON_ARRAY, err));
    c->has_prices = true;
    c->n_prices = dtp_json_size(list);
    DTP_TRY(DTP_NEW(arena, c->prices, c->n_prices, err));
    for (int32_t i = 0; i < c->n_prices; i++) {
        const dtp_json *v = dtp_json_at(list, i);
        dtp_shadow_price *price = &c->prices[i];
        DTP_TRY(dtp_json_keys(v, keys, err));
        DTP_TRY(read_text(v, "constraint", arena, &price->constraint, err));
        DTP_TRY(read_count(v, "saves_ps", &price->saves_ps, err));
        DTP_TRY(dtp_json_get_bool(v, "exact", &price->exact, err));
        if (dtp_json_get(v, "relaxed_by_bytes") != NULL) {
            DTP_TRY(read_count(v, "relaxed_by_bytes", &price->relaxed_by_bytes, err));
        }
    }
    return DTP_OK;
}

/* The share of the cost that is missing to a bound, which is not above the cost. */
static dtp_status read_gap(const dtp_json *v, const char *key, int64_t cost, int64_t bound,
                           double *gap, dtp_err *err)
{
    const double share = dtp_gap(cost, bound);
    DTP_TRY(read_amount(v, key, gap, err));
    if (fabs(*gap - share) > 1e-9) {
        return dtp_json_fail(dtp_json_get(v, key), err, "%g, but cost and bound give %g", *gap,
                             share);
    }
    return DTP_OK;
}

static dtp_status read_bound(const dtp_json *v, const char *key, int64_t most, const char *of,
                             int64_t *bound, dtp_err *err)
{
    DTP_TRY(read_count(v, key, bound, err));
    return *bound <= most
               ? DTP_OK
               : dtp_json_fail(dtp_json_get(v, key), err, "%" PRId64 " is above the %s, %" PRId64,
                               *bound, of, most);
}

static dtp_status read_certificate(const dtp_json *root, dtp_plan *plan, dtp_err *err)
{
    static const char *const keys[] = {
        "status", "cost",         "bound",      "gap",        "solver", "nodes",      "solve_s",
        "prices", "untied_bound", "untied_gap", "least_cost", "ended",  "step_bound", NULL};
    dtp_certificate *c = &plan->certificate;
    const dtp_json *v;
    int32_t status = 0, ended = 0;
    DTP_TRY(dtp_json_require(root, "certificate", &v, err));
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(dtp_json_get_choice(v, "status", dtp_plan__cert_statuses, &status, err));
    c->status = (dtp_cert_status)status;
    if (dtp_json_get(v, "ended") != NULL) {
        DTP_TRY(dtp_json_get_choice(v, "ended", dtp_stop_reasons + 1, &ended, err));
        c->ended = (dtp_stop_reason)(ended + 1);
    }
    DTP_TRY(read_count(v, "cost", &c->cost, err));
    DTP_TRY(read_bound(v, "bound", c->cost, "cost", &c->bound, err));
    DTP_TRY(read_gap(v, "gap", c->cost, c->bound, &c->gap, err));
    c->least_cost = c->cost; /* without the key the plan is the cheapest one */
    const dtp_json *least = dtp_json_get(v, "least_cost");
    if (least != NULL) {
        DTP_TRY(read_bound(v, "least_cost", c->cost, "cost", &c->least_cost, err));
        if (c->least_cost < c->bound) {
            return dtp_json_fail(least, err, "%" PRId64 " is below the bound, %" PRId64,
                                 c->least_cost, c->bound);
        }
    }
    const dtp_json *untied = dtp_json_get(v, "untied_bound"); /* it and its gap, or neither */
    untied = untied != NULL ? untied : dtp_json_get(v, "untied_gap");
    if (untied != NULL) {
        if (plan->rules_mode || plan->objective != DTP_OBJECTIVE_TIME) {
            return dtp_json_fail(untied, err,
                                 "only plans in tensor mode with objective time have this");
        }
        c->has_untied = true;
        DTP_TRY(read_bound(v, "untied_bound", c->bound, "bound", &c->untied_bound, err));
        DTP_TRY(read_gap(v, "untied_gap", c->least_cost, c->untied_bound, &c->untied_gap, err));
    }
    const dtp_json *step = dtp_json_get(v, "step_bound");
    if (step != NULL) {
        if (plan->rules_mode || plan->objective != DTP_OBJECTIVE_TIME) {
            return dtp_json_fail(step, err,
                                 "only plans in tensor mode with objective time have this");
        }
        DTP_TRY(read_bound(v, "step_bound", (int64_t)ceil(1e12 * plan->predicted.step_time_s),
                           "step, in picoseconds", &c->step_bound, err));
    }
    DTP_TRY(read_text(v, "solver", plan->arena, &c->solver, err));
    DTP_TRY(read_count(v, "nodes", &c->nodes, err));
    if (dtp_json_get(v, "solve_s") != NULL) {
        DTP_TRY(read_amount(v, "solve_s", &c->solve_s, err));
    }
    return dtp_json_get(v, "prices") == NULL
               ? DTP_OK
               : read_prices(dtp_json_get(v, "prices"), plan->arena, c, err);
}

/* ---- baselines ---- */

static dtp_status read_baseline(const dtp_json *v, dtp_plan *plan, dtp_baseline *out, dtp_err *err)
{
    static const char *const keys[] = {"rules",
                                       "styles",
                                       "legal",
                                       "why",
                                       "step_time_s",
                                       "compute_s",
                                       "compute",
                                       "tokens_per_s",
                                       "mfu",
                                       "host_s",
                                       "reserved_bytes",
                                       "comm_s",
                                       "cost_s",
                                       "exposed_comm_s",
                                       "peak_bytes",
                                       "collectives",
                                       "fits",
                                       "in_vain",
                                       "skew_s",
                                       "bubble_s",
                                       "imbalance_s",
                                       "exposed_sends_s",
                                       NULL};
    static const char *const illegal_keys[] = {"rules", "styles", "legal", "why", NULL};
    const dtp_json *styles = dtp_json_get(v, "styles"), *fits = dtp_json_get(v, "fits");
    DTP_TRY(dtp_json_keys(v, keys, err));
    if (styles == NULL) {
        DTP_TRY(read_text(v, "rules", plan->arena, &out->rules, err));
    } else {
        const char **texts = NULL;
        if (dtp_json_get(v, "rules") != NULL) {
            return dtp_json_fail(styles, err, "a baseline has rules or styles, not both");
        }
        DTP_TRY(dtp_plan__texts(styles, plan->arena, &out->n_styles, &texts, err));
        out->styles = texts;
    }
    DTP_TRY(dtp_json_get_bool(v, "legal", &out->legal, err));
    out->name = dtp_arena_line(plan->arena, dtp_json_key(v));
    DTP_TRY(DTP_MEMORY(err, out->name));
    if (out->legal) {
        DTP_TRY(read_prediction(v, true, &out->predicted, err));
    } else {
        DTP_TRY(dtp_json_keys(v, illegal_keys, err));
        DTP_TRY(read_text(v, "why", plan->arena, &out->why, err));
    }
    bool given = true;
    DTP_TRY(fits != NULL ? dtp_json_bool(fits, &given, err) : DTP_OK);
    return given == dtp_plan_baseline_fits(plan, out)
               ? DTP_OK
               : dtp_json_fail(fits != NULL ? fits : v, err,
                               "'fits' does not say whether the peak is within the memory limit");
}

/* ---- steps of redistributions ---- */

/* Layouts are written per mesh dim, as dtp_placements_print does: such a tensor may be a value
 * inside of a node, whose dims have no names that a plan could use. */

static dtp_status read_placements(const dtp_json *v, const dtp_mesh *mesh, const dtp_ttype *type,
                                  dtp_layout *out, dtp_err *err)
{
    const char *text;
    DTP_TRY(dtp_json_string(v, &text, err));
    DTP_TRY(dtp_json_prefixed(v, dtp_placements_parse(text, mesh, type, out, err), err));
    return dtp_json_prefixed(v, dtp_layout_check(out, mesh, type, err), err);
}

static dtp_status read_redistribution(const dtp_json *v, dtp_plan *plan, dtp_err *err)
{
    static const char *const keys[] = {"dtype", "shape", "from", "steps", NULL};
    const dtp_json *shape, *from, *steps;
    const char *dtype;
    dtp_plan_redistribution *r = &plan->redistributions[plan->n_redistributions];
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(dtp_json_get_string(v, "dtype", &dtype, err));
    DTP_TRY(dtp_json_prefixed(dtp_json_get(v, "dtype"), dtp_dtype_parse(dtype, &r->type.dtype, err),
                              err));
    DTP_TRY(dtp_json_get_kind(v, "shape", DTP_JSON_ARRAY, &shape, err));
    if (dtp_json_size(shape) > DTP_MAX_RANK) {
        return dtp_json_fail(shape, err, "%d dims, the limit is %d", dtp_json_size(shape),
                             DTP_MAX_RANK);
    }
    r->type.rank = dtp_json_size(shape);
    for (int32_t i = 0; i < r->type.rank; i++) {
        r->type.dims[i].id = i;
        DTP_TRY(dtp_json_int(dtp_json_at(shape, i), 1, INT64_MAX, &r->type.dims[i].size, err));
    }
    DTP_TRY(dtp_json_prefixed(shape, dtp_ttype_check_size(&r->type, err), err));
    DTP_TRY(dtp_json_require(v, "from", &from, err));
    DTP_TRY(read_placements(from, &plan->mesh, &r->type, &r->from, err));
    DTP_TRY(dtp_json_get_kind(v, "steps", DTP_JSON_ARRAY, &steps, err));
    const int32_t n = dtp_json_size(steps);
    if (n < 1 || n > DTP_PLAN_MAX_STEPS) {
        return dtp_json_fail(steps, err, "%d steps, expected 1 to %d", n, DTP_PLAN_MAX_STEPS);
    }
    dtp_layout *after;
    DTP_TRY(DTP_NEW(plan->arena, after, n, err));
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(read_placements(dtp_json_at(steps, i), &plan->mesh, &r->type, &after[i], err));
    }
    r->n_steps = n;
    r->after = after;
    if (dtp_layout_equal(&r->from, &after[n - 1])) {
        return dtp_json_fail(steps, err, "the steps lead back to where they start");
    }
    for (int32_t i = 0; i < plan->n_redistributions; i++) {
        if (dtp_plan_redistribution_is(&plan->redistributions[i], &r->type, &r->from,
                                       &after[n - 1])) {
            return dtp_json_fail(v, err, "the same redistribution as entry %d", i);
        }
    }
    plan->n_redistributions++;
    return DTP_OK;
}

static dtp_status read_redistributions(const dtp_json *root, dtp_plan *plan, dtp_err *err)
{
    const dtp_json *list = dtp_json_get(root, "redistributions");
    if (list == NULL) {
        return DTP_OK;
    }
    if (plan->redistribution == DTP_REDISTRIBUTION_TORCH) {
        return dtp_json_fail(list, err, "a plan with PyTorch's redistributions lists no steps");
    }
    plan->redistribution = DTP_REDISTRIBUTION_LISTED;
    DTP_TRY(dtp_json_expect(list, DTP_JSON_ARRAY, err));
    const int32_t n = dtp_json_size(list);
    if (n > DTP_PLAN_MAX_REDISTRIBUTIONS) {
        return dtp_json_fail(list, err, "%d entries, the limit is %d", n,
                             DTP_PLAN_MAX_REDISTRIBUTIONS);
    }
    DTP_TRY(DTP_NEW(plan->arena, plan->redistributions, n, err));
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(read_redistribution(dtp_json_at(list, i), plan, err));
    }
    return DTP_OK;
}

/* ---- the whole ---- */

static dtp_status read_overlap(const dtp_json *v, dtp_overlap *out, dtp_err *err)
{
    static const char *const keys[] = {"depth", "memory_bytes", NULL};
    int64_t depth = 0;
    DTP_TRY(dtp_json_expect(v, DTP_JSON_OBJECT, err));
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(dtp_json_get_int(v, "depth", 1, DTP_OVERLAP_MAX_DEPTH, &depth, err));
    out->depth = (int32_t)depth;
    return dtp_json_get_int(v, "memory_bytes", 1, INT64_MAX, &out->memory_bytes, err);
}

static dtp_status read_dims(const dtp_json *root, dtp_arena *arena, int32_t *n,
                            const dtp_dim_override **out, dtp_err *err)
{
    const dtp_json *list = dtp_json_get(root, "dims");
    dtp_dim_override *dims;
    *n = 0;
    *out = NULL;
    if (list == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_json_expect(list, DTP_JSON_OBJECT, err));
    DTP_TRY(DTP_NEW(arena, dims, dtp_json_size(list), err));
    for (int32_t i = 0; i < dtp_json_size(list); i++) {
        const dtp_json *v = dtp_json_at(list, i);
        DTP_TRY(dtp_json_int(v, 1, INT64_MAX, &dims[i].size, err));
        dims[i].name = dtp_arena_line(arena, dtp_json_key(v));
        DTP_TRY(DTP_MEMORY(err, dims[i].name));
    }
    *n = dtp_json_size(list);
    *out = dims;
    return DTP_OK;
}

static dtp_status read_forward(const dtp_json *root, bool *out, dtp_err *err)
{
    const dtp_json *v = dtp_json_get(root, "forward");
    *out = false;
    return v == NULL ? DTP_OK : dtp_json_bool(v, out, err);
}

static dtp_status read_freeze(const dtp_json *root, dtp_arena *arena, int32_t *n,
                              const char *const **out, dtp_err *err)
{
    const dtp_json *list = dtp_json_get(root, "freeze");
    const char **globs = NULL;
    *n = 0;
    DTP_TRY(list != NULL ? dtp_plan__texts(list, arena, n, &globs, err) : DTP_OK);
    *out = globs;
    return DTP_OK;
}

dtp_status dtp_plan_read_model(const char *file, const char *text, size_t len, dtp_arena *arena,
                               dtp_model_options *out, dtp_err *err)
{
    dtp_json_doc *doc = NULL;
    *out = dtp_model_options_init();
    DTP_TRY(dtp_json_parse(file, text, len, &doc, err));
    const dtp_json *root = dtp_json_root(doc);
    dtp_status s = read_dims(root, arena, &out->n_overrides, &out->overrides, err);
    s = s == DTP_OK ? read_forward(root, &out->forward_only, err) : s;
    s = s == DTP_OK ? read_freeze(root, arena, &out->n_freeze, &out->freeze, err) : s;
    dtp_json_destroy(doc);
    return s;
}

static dtp_status read_expressible(const dtp_json *v, dtp_plan *plan, dtp_err *err)
{
    static const char *const keys[] = {
        "form", "bounded",           "all_step_time_s",  "all_peak_bytes",
        "by",   "other_step_time_s", "other_peak_bytes", "failing",
        NULL};
    const dtp_json *bounded;
    dtp_plan_expressible *e = &plan->expressible;
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(read_text(v, "form", plan->arena, &e->form, err));
    DTP_TRY(dtp_json_require(v, "bounded", &bounded, err));
    DTP_TRY(dtp_json_bool(bounded, &e->bounded, err));
    DTP_TRY(read_amount(v, "all_step_time_s", &e->all_step_time_s, err));
    DTP_TRY(read_count(v, "all_peak_bytes", &e->all_peak_bytes, err));
    if (dtp_json_get(v, "by") != NULL) {
        DTP_TRY(read_text(v, "by", plan->arena, &e->by, err));
        DTP_TRY(read_amount(v, "other_step_time_s", &e->other_step_time_s, err));
        DTP_TRY(read_count(v, "other_peak_bytes", &e->other_peak_bytes, err));
        if (strcmp(e->by, "modules") != 0 && strcmp(e->by, "placements") != 0) {
            return dtp_json_fail(dtp_json_get(v, "by"), err,
                                 "'%s' is neither modules nor placements", e->by);
        }
    }
    return dtp_json_get(v, "failing") != NULL
               ? read_text(v, "failing", plan->arena, &e->failing, err)
               : DTP_OK;
}

/* Behind what is predicted of the plan. */
static dtp_status read_fastest(const dtp_json *v, dtp_plan *plan, dtp_err *err)
{
    static const char *const keys[] = {"slack", "step_time_s", "peak_bytes", NULL};
    dtp_plan_fastest *f = &plan->fastest;
    if (v == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(read_amount(v, "slack", &f->slack, err));
    DTP_TRY(read_amount(v, "step_time_s", &f->step_time_s, err));
    DTP_TRY(read_count(v, "peak_bytes", &f->peak_bytes, err));
    return f->step_time_s > 0.0 && f->step_time_s < plan->predicted.step_time_s
               ? DTP_OK
               : dtp_json_fail(dtp_json_get(v, "step_time_s"), err,
                               "%g is not below the plan's own step, %g", f->step_time_s,
                               plan->predicted.step_time_s);
}

static dtp_status read_header(const dtp_json *root, dtp_plan *plan, dtp_err *err)
{
    static const char *const modes[] = {"rules", "tensor", NULL};
    static const char *const choosers[] = {"torch", NULL};
    const dtp_json *limit = dtp_json_get(root, "memory_limit_bytes");
    const dtp_json *uneven = dtp_json_get(root, "uneven");
    const dtp_json *chooser = dtp_json_get(root, "redistribution"); /* absent: our own */
    const dtp_json *overlap = dtp_json_get(root, "overlap");
    const dtp_json *bucket = dtp_json_get(root, "bucket_bytes");
    const dtp_json *once = dtp_json_get(root, "once_bytes");
    int32_t mode = 0, objective = 0, torch = 0;
    DTP_TRY(read_text(root, "model", plan->arena, &plan->model, err));
    DTP_TRY(read_dims(root, plan->arena, &plan->n_dims, &plan->dims, err));
    DTP_TRY(read_forward(root, &plan->forward, err));
    DTP_TRY(read_freeze(root, plan->arena, &plan->n_freeze, &plan->freeze, err));
    plan->machine = NULL;
    if (dtp_json_get(root, "machine") != NULL) {
        DTP_TRY(read_text(root, "machine", plan->arena, &plan->machine, err));
    }
    if (dtp_json_get(root, "rates") != NULL) {
        DTP_TRY(read_text(root, "rates", plan->arena, &plan->rates, err));
    }
    if (dtp_json_get(root, "runtime") != NULL) {
        DTP_TRY(read_text(root, "runtime", plan->arena, &plan->runtime, err));
    }
    if (dtp_json_get(root, "target") != NULL) {
        DTP_TRY(read_text(root, "target", plan->arena, &plan->target, err));
    }
    DTP_TRY(dtp_mesh_read(root, &plan->mesh, err));
    DTP_TRY(dtp_json_get_choice(root, "mode", modes, &mode, err));
    DTP_TRY(dtp_json_get_choice(root, "objective", dtp_plan__objectives, &objective, err));
    plan->rules_mode = mode == 0;
    plan->objective = (dtp_plan_objective)objective;
    if (limit != NULL) {
        DTP_TRY(dtp_json_int(limit, 1, INT64_MAX, &plan->memory_limit_bytes, err));
    }
    const dtp_json *expressible = dtp_json_get(root, "expressible");
    DTP_TRY(expressible != NULL ? read_expressible(expressible, plan, err) : DTP_OK);
    if (chooser != NULL) {
        DTP_TRY(dtp_json_choice(chooser, choosers, &torch, err));
        if (plan->rules_mode) {
            return dtp_json_fail(chooser, err, "a plan in rules mode redistributes in our own way");
        }
        if (bucket != NULL) {
            return dtp_json_fail(bucket, err,
                                 "a plan with PyTorch's redistributions has no buckets");
        }
        plan->redistribution = DTP_REDISTRIBUTION_TORCH;
    }
    plan->overlap.bucket_bytes = chooser != NULL ? 0 : DTP_BUCKET_BYTES;
    if (overlap != NULL) {
        DTP_TRY(read_overlap(overlap, &plan->overlap, err));
    }
    if (bucket != NULL) {
        DTP_TRY(dtp_json_int(bucket, DTP_MIN_BUCKET_BYTES, DTP_MAX_BUCKET_BYTES,
                             &plan->overlap.bucket_bytes, err));
    }
    if (once != NULL) {
        DTP_TRY(dtp_json_int(once, 1, INT64_MAX, &plan->overlap.once_bytes, err));
    }
    return uneven == NULL ? DTP_OK : dtp_json_bool(uneven, &plan->uneven, err);
}

static const char *const predicted_keys[] = {"step_time_s",
                                             "compute_s",
                                             "comm_s",
                                             "exposed_comm_s",
                                             "cost_s",
                                             "peak_bytes",
                                             "collectives",
                                             "compute",
                                             "skew_s",
                                             "tokens_per_s",
                                             "mfu",
                                             "host_s",
                                             "reserved_bytes",
                                             "in_vain",
                                             "bubble_s",
                                             "imbalance_s",
                                             "exposed_sends_s",
                                             NULL};

dtp_status dtp_plan__fields(const dtp_json *root, dtp_plan *plan, dtp_err *err)
{
    static const char *const keys[] = {"format",
                                       "model",
                                       "dims",
                                       "forward",
                                       "freeze",
                                       "machine",
                                       "rates",
                                       "runtime",
                                       "target",
                                       "mesh",
                                       "mode",
                                       "objective",
                                       "memory_limit_bytes",
                                       "uneven",
                                       "expressible",
                                       "fastest",
                                       "redistribution",
                                       "redistributions",
                                       "overlap",
                                       "bucket_bytes",
                                       "once_bytes",
                                       "precision",
                                       "outputs",
                                       "remat",
                                       "regather",
                                       "microbatches",
                                       "microbatch_dim",
                                       "stages",
                                       "chunks",
                                       "slots",
                                       "rules",
                                       "predicted",
                                       "certificate",
                                       "pins",
                                       "tried",
                                       "baselines",
                                       "hashes",
                                       "settings",
                                       "strategies",
                                       "views",
                                       "tensors",
                                       NULL};
    static const char *const no_times[] = {"peak_bytes", "reserved_bytes", "collectives", NULL};
    static const char *const hash_keys[] = {"model", "machine", NULL};
    static const char *const model_only[] = {"model", NULL};
    const dtp_json *predicted, *pins, *hashes, *tried = dtp_json_get(root, "tried");
    DTP_TRY(dtp_json_format(root, "dtp.plan/1", keys, err));
    DTP_TRY(read_header(root, plan, err));
    const bool times = plan->machine != NULL;
    DTP_TRY(dtp_json_require(root, "predicted", &predicted, err));
    DTP_TRY(dtp_json_keys(predicted, times ? predicted_keys : no_times, err));
    DTP_TRY(read_prediction(predicted, times, &plan->predicted, err));
    DTP_TRY(read_fastest(dtp_json_get(root, "fastest"), plan, err));
    DTP_TRY(read_certificate(root, plan, err));
    DTP_TRY(dtp_json_require(root, "pins", &pins, err));
    DTP_TRY(dtp_plan__texts(pins, plan->arena, &plan->n_pins, &plan->pins, err));
    if (tried != NULL) {
        DTP_TRY(dtp_plan__texts(tried, plan->arena, &plan->n_tried, &plan->tried, err));
    }
    const dtp_json *v;
    DTP_TRY(dtp_json_require(root, "baselines", &v, err));
    DTP_TRY(check_list(v, DTP_JSON_OBJECT, err));
    DTP_TRY(DTP_NEW(plan->arena, plan->baselines, dtp_json_size(v), err));
    for (int32_t i = 0; i < dtp_json_size(v); i++) {
        DTP_TRY(read_baseline(dtp_json_at(v, i), plan, &plan->baselines[i], err));
        plan->n_baselines++;
    }
    DTP_TRY(dtp_json_require(root, "hashes", &hashes, err));
    DTP_TRY(dtp_json_keys(hashes, hash_keys, err));
    DTP_TRY(read_hash(hashes, "model", &plan->model_hash, err));
    DTP_TRY(times ? read_hash(hashes, "machine", &plan->machine_hash, err)
                  : dtp_json_keys(hashes, model_only, err));
    return read_redistributions(root, plan, err);
}
