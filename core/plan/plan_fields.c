#include "core/plan/plan_fields.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/plan/plan_internal.h"

enum { MAX_LIST = 100000 };

/* ---- small pieces ------------------------------------------------------------------------------
 */

static dtp_status read_text(const dtp_json *obj, const char *key, dtp_arena *arena,
                            const char **out, dtp_err *err)
{
    const dtp_json *v;
    DTP_TRY(dtp_json_require(obj, key, &v, err));
    DTP_TRY(dtp_json_string(v, out, err));
    *out = dtp_arena_strdup(arena, *out);
    return *out != NULL ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for '%s'", key);
}

static dtp_status read_count(const dtp_json *obj, const char *key, int64_t *out, dtp_err *err)
{
    const dtp_json *v;
    DTP_TRY(dtp_json_require(obj, key, &v, err));
    return dtp_json_int(v, 0, INT64_MAX, out, err);
}

/* A number >= 0. */
static dtp_status read_amount(const dtp_json *obj, const char *key, double *out, dtp_err *err)
{
    const dtp_json *v;
    DTP_TRY(dtp_json_require(obj, key, &v, err));
    DTP_TRY(dtp_json_double(v, out, err));
    return *out >= 0 ? DTP_OK : dtp_json_fail(v, err, "%g is negative", *out);
}

/* Index of a member's string among the NULL-terminated names. */
static dtp_status read_choice(const dtp_json *obj, const char *key, const char *const *names,
                              int32_t *out, dtp_err *err)
{
    const dtp_json *v;
    DTP_TRY(dtp_json_require(obj, key, &v, err));
    return dtp_json_choice(v, names, out, err);
}

/* ---- mesh, prediction, certificate -------------------------------------------------------------
 */

/* [["x", 2], ["y", 4]], checked by the mesh parser. */
static dtp_status read_mesh(const dtp_json *root, dtp_mesh *out, dtp_err *err)
{
    const dtp_json *v;
    dtp_mesh mesh = {0};
    char text[DTP_MESH_TEXT_BYTES];
    DTP_TRY(dtp_json_require(root, "mesh", &v, err));
    DTP_TRY(dtp_json_expect(v, DTP_JSON_ARRAY, err));
    if (dtp_json_size(v) > DTP_MAX_MESH_DIMS) {
        return dtp_json_fail(v, err, "%d mesh dims, the limit is %d", dtp_json_size(v),
                             DTP_MAX_MESH_DIMS);
    }
    for (int32_t m = 0; m < dtp_json_size(v); m++) {
        const dtp_json *pair = dtp_json_at(v, m);
        const char *name;
        DTP_TRY(dtp_json_expect(pair, DTP_JSON_ARRAY, err));
        if (dtp_json_size(pair) != 2) {
            return dtp_json_fail(pair, err, "expected [name, size]");
        }
        DTP_TRY(dtp_json_string(dtp_json_at(pair, 0), &name, err));
        DTP_TRY(dtp_json_int(dtp_json_at(pair, 1), 1, INT32_MAX, &mesh.sizes[m], err));
        if (name[0] == '\0' || strlen(name) >= DTP_MESH_NAME_BYTES || strpbrk(name, " ,.;:=\t")) {
            return dtp_json_fail(pair, err, "'%.60s' is not a name of a mesh dim", name);
        }
        memcpy(mesh.names[m], name, strlen(name) + 1);
        mesh.n_dims++;
    }
    dtp_mesh_print(&mesh, text);
    dtp_status s = dtp_mesh_parse(text, out, err);
    if (s != DTP_OK) {
        dtp_json_prefix(v, err);
    }
    return s;
}

static dtp_status read_collectives(const dtp_json *v, dtp_prediction *out, dtp_err *err)
{
    static const char *const fields[] = {"count", "bytes", NULL};
    const char *kinds[DTP_N_COLL_TOTALS + 1] = {NULL};
    for (int32_t i = 0; i < DTP_N_COLL_TOTALS; i++) {
        kinds[i] = dtp_plan__coll_name(i);
    }
    DTP_TRY(dtp_json_keys(v, kinds, err));
    for (int32_t i = 0; i < DTP_N_COLL_TOTALS; i++) {
        const dtp_json *total;
        out->collectives[i].kind = kinds[i];
        bool permute = i == DTP_N_COLL_TOTALS - 1; /* most plans have none and may leave it out */
        if (permute && dtp_json_get(v, kinds[i]) == NULL) {
            continue;
        }
        DTP_TRY(dtp_json_require(v, kinds[i], &total, err));
        DTP_TRY(dtp_json_keys(total, fields, err));
        DTP_TRY(read_count(total, "count", &out->collectives[i].count, err));
        DTP_TRY(read_count(total, "bytes", &out->collectives[i].bytes, err));
    }
    return DTP_OK;
}

/* The fields of a prediction; the caller has checked the keys. */
static dtp_status read_prediction(const dtp_json *v, bool times, dtp_prediction *out, dtp_err *err)
{
    const dtp_json *collectives;
    if (times) {
        DTP_TRY(read_amount(v, "step_time_s", &out->step_time_s, err));
        DTP_TRY(read_amount(v, "compute_s", &out->compute_s, err));
        DTP_TRY(read_amount(v, "comm_s", &out->comm_s, err));
        DTP_TRY(read_amount(v, "exposed_comm_s", &out->exposed_comm_s, err));
        DTP_TRY(read_amount(v, "cost_s", &out->cost_s, err));
    }
    DTP_TRY(read_count(v, "peak_bytes", &out->peak_bytes, err));
    DTP_TRY(dtp_json_require(v, "collectives", &collectives, err));
    return read_collectives(collectives, out, err);
}

static dtp_status read_predicted(const dtp_json *root, dtp_plan *plan, dtp_err *err)
{
    static const char *const keys[] = {"step_time_s", "compute_s",  "comm_s",      "exposed_comm_s",
                                       "cost_s",      "peak_bytes", "collectives", NULL};
    static const char *const no_times[] = {"peak_bytes", "collectives", NULL};
    const bool times = plan->machine != NULL;
    const dtp_json *v;
    DTP_TRY(dtp_json_require(root, "predicted", &v, err));
    DTP_TRY(dtp_json_keys(v, times ? keys : no_times, err));
    return read_prediction(v, times, &plan->predicted, err);
}

static dtp_status check_list(const dtp_json *v, dtp_json_kind kind, dtp_err *err)
{
    DTP_TRY(dtp_json_expect(v, kind, err));
    if (dtp_json_size(v) > MAX_LIST) {
        return dtp_json_fail(v, err, "more than %d entries", MAX_LIST);
    }
    return DTP_OK;
}

static dtp_status read_price(const dtp_json *v, dtp_arena *arena, dtp_shadow_price *out,
                             dtp_err *err)
{
    static const char *const keys[] = {"constraint", "relaxed_by_bytes", "saves_ps", "exact", NULL};
    const dtp_json *exact;
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(read_text(v, "constraint", arena, &out->constraint, err));
    DTP_TRY(read_count(v, "saves_ps", &out->saves_ps, err));
    DTP_TRY(dtp_json_require(v, "exact", &exact, err));
    DTP_TRY(dtp_json_bool(exact, &out->exact, err));
    return dtp_json_get(v, "relaxed_by_bytes") == NULL
               ? DTP_OK
               : read_count(v, "relaxed_by_bytes", &out->relaxed_by_bytes, err);
}

static dtp_status read_prices(const dtp_json *v, dtp_arena *arena, dtp_certificate *c, dtp_err *err)
{
    DTP_TRY(check_list(v, DTP_JSON_ARRAY, err));
    c->has_prices = true;
    c->n_prices = dtp_json_size(v);
    c->prices = dtp_arena_alloc(arena, (size_t)c->n_prices, sizeof *c->prices);
    if (c->prices == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a list of %d prices", c->n_prices);
    }
    for (int32_t i = 0; i < c->n_prices; i++) {
        DTP_TRY(read_price(dtp_json_at(v, i), arena, &c->prices[i], err));
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

/* Without it the plan is the cheapest one. */
static dtp_status read_least_cost(const dtp_json *v, dtp_certificate *c, dtp_err *err)
{
    c->least_cost = c->cost;
    if (dtp_json_get(v, "least_cost") == NULL) {
        return DTP_OK;
    }
    DTP_TRY(read_bound(v, "least_cost", c->cost, "cost", &c->least_cost, err));
    return c->least_cost >= c->bound
               ? DTP_OK
               : dtp_json_fail(dtp_json_get(v, "least_cost"), err,
                               "%" PRId64 " is below the bound, %" PRId64, c->least_cost, c->bound);
}

/* The bound without folding: both of its keys or none. */
static dtp_status read_unfolded(const dtp_json *v, const dtp_plan *plan, dtp_certificate *c,
                                dtp_err *err)
{
    const dtp_json *bound = dtp_json_get(v, "unfolded_bound"),
                   *gap = dtp_json_get(v, "unfolded_gap");
    if (bound == NULL && gap == NULL) {
        return DTP_OK;
    }
    if (plan->rules_mode || plan->objective != DTP_OBJECTIVE_TIME) {
        return dtp_json_fail(bound != NULL ? bound : gap, err,
                             "only plans in tensor mode with objective time have this");
    }
    c->has_unfolded = true;
    DTP_TRY(read_bound(v, "unfolded_bound", c->bound, "bound", &c->unfolded_bound, err));
    return read_gap(v, "unfolded_gap", c->least_cost, c->unfolded_bound, &c->unfolded_gap, err);
}

static dtp_status read_certificate(const dtp_json *root, dtp_plan *plan, dtp_err *err)
{
    static const char *const keys[] = {"status",         "cost",         "bound",      "gap",
                                       "solver",         "nodes",        "solve_s",    "prices",
                                       "unfolded_bound", "unfolded_gap", "least_cost", NULL};
    dtp_certificate *c = &plan->certificate;
    const dtp_json *v;
    int32_t status = 0;
    DTP_TRY(dtp_json_require(root, "certificate", &v, err));
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(read_choice(v, "status", dtp_plan__cert_statuses, &status, err));
    c->status = (dtp_cert_status)status;
    DTP_TRY(read_count(v, "cost", &c->cost, err));
    DTP_TRY(read_bound(v, "bound", c->cost, "cost", &c->bound, err));
    DTP_TRY(read_gap(v, "gap", c->cost, c->bound, &c->gap, err));
    DTP_TRY(read_least_cost(v, c, err));
    DTP_TRY(read_unfolded(v, plan, c, err));
    DTP_TRY(read_text(v, "solver", plan->arena, &c->solver, err));
    DTP_TRY(read_count(v, "nodes", &c->nodes, err));
    if (dtp_json_get(v, "solve_s") != NULL) {
        DTP_TRY(read_amount(v, "solve_s", &c->solve_s, err));
    }
    return dtp_json_get(v, "prices") == NULL
               ? DTP_OK
               : read_prices(dtp_json_get(v, "prices"), plan->arena, c, err);
}

/* ---- lists -------------------------------------------------------------------------------------
 */

/* A list of texts. */
static dtp_status read_texts(const dtp_json *v, dtp_arena *arena, int32_t *n, const char ***out,
                             dtp_err *err)
{
    DTP_TRY(check_list(v, DTP_JSON_ARRAY, err));
    const int32_t count = dtp_json_size(v);
    const char **list = dtp_arena_alloc(arena, (size_t)count, sizeof *list);
    if (list == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a list of %d texts", count);
    }
    for (int32_t i = 0; i < count; i++) {
        const char *text;
        DTP_TRY(dtp_json_string(dtp_json_at(v, i), &text, err));
        list[i] = dtp_arena_strdup(arena, text);
        if (list[i] == NULL) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for a list of %d texts", count);
        }
    }
    *n = count;
    *out = list;
    return DTP_OK;
}

static dtp_status read_pins(const dtp_json *root, dtp_plan *plan, dtp_err *err)
{
    const dtp_json *v;
    DTP_TRY(dtp_json_require(root, "pins", &v, err));
    return read_texts(v, plan->arena, &plan->n_pins, &plan->pins, err);
}

static dtp_status read_tried(const dtp_json *root, dtp_plan *plan, dtp_err *err)
{
    const dtp_json *v = dtp_json_get(root, "tried");
    return v == NULL ? DTP_OK : read_texts(v, plan->arena, &plan->n_tried, &plan->tried, err);
}

/* "rules" or "styles". */
static dtp_status read_source(const dtp_json *v, dtp_arena *arena, dtp_baseline *out, dtp_err *err)
{
    const dtp_json *styles = dtp_json_get(v, "styles");
    if (styles == NULL) {
        return read_text(v, "rules", arena, &out->rules, err);
    }
    if (dtp_json_get(v, "rules") != NULL) {
        return dtp_json_fail(styles, err, "a baseline has rules or styles, not both");
    }
    const char **texts = NULL;
    DTP_TRY(read_texts(styles, arena, &out->n_styles, &texts, err));
    out->styles = texts;
    return DTP_OK;
}

static dtp_status read_baseline(const dtp_json *v, dtp_arena *arena, dtp_baseline *out,
                                dtp_err *err)
{
    static const char *const keys[] = {
        "rules",  "styles", "legal",          "why",        "step_time_s", "compute_s",
        "comm_s", "cost_s", "exposed_comm_s", "peak_bytes", "collectives", "fits",
        NULL};
    static const char *const illegal_keys[] = {"rules", "styles", "legal", "why", NULL};
    const dtp_json *legal;
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(read_source(v, arena, out, err));
    DTP_TRY(dtp_json_require(v, "legal", &legal, err));
    DTP_TRY(dtp_json_bool(legal, &out->legal, err));
    out->name = dtp_arena_strdup(arena, dtp_json_key(v));
    if (out->name == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the baselines");
    }
    if (out->legal) {
        return read_prediction(v, true, &out->predicted, err);
    }
    DTP_TRY(dtp_json_keys(v, illegal_keys, err));
    return read_text(v, "why", arena, &out->why, err);
}

static dtp_status read_baselines(const dtp_json *root, dtp_plan *plan, dtp_err *err)
{
    const dtp_json *v;
    DTP_TRY(dtp_json_require(root, "baselines", &v, err));
    DTP_TRY(check_list(v, DTP_JSON_OBJECT, err));
    plan->baselines =
        dtp_arena_alloc(plan->arena, (size_t)dtp_json_size(v), sizeof *plan->baselines);
    if (plan->baselines == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the baselines");
    }
    for (int32_t i = 0; i < dtp_json_size(v); i++) {
        const dtp_json *fits = dtp_json_get(dtp_json_at(v, i), "fits");
        bool given = true;
        DTP_TRY(read_baseline(dtp_json_at(v, i), plan->arena, &plan->baselines[i], err));
        DTP_TRY(fits != NULL ? dtp_json_bool(fits, &given, err) : DTP_OK);
        if (given != dtp_plan_baseline_fits(plan, &plan->baselines[i])) {
            return dtp_json_fail(fits != NULL ? fits : dtp_json_at(v, i), err,
                                 "'fits' does not say whether the peak is within the memory limit");
        }
        plan->n_baselines++;
    }
    return DTP_OK;
}

dtp_status dtp_plan__read_hash(const dtp_json *obj, const char *key, uint64_t *out, dtp_err *err)
{
    static const char digits[] = "0123456789abcdef";
    const dtp_json *v;
    const char *text;
    DTP_TRY(dtp_json_require(obj, key, &v, err));
    DTP_TRY(dtp_json_string(v, &text, err));
    if (strlen(text) != 16 || text[strspn(text, digits)] != '\0') {
        return dtp_json_fail(v, err, "'%.40s' is not 16 hexadecimal digits", text);
    }
    *out = 0;
    for (int32_t i = 0; i < 16; i++) {
        *out = *out << 4 | (uint64_t)(strchr(digits, text[i]) - digits);
    }
    return DTP_OK;
}

static dtp_status read_hashes(const dtp_json *root, dtp_plan *plan, dtp_err *err)
{
    static const char *const keys[] = {"model", "machine", NULL};
    const dtp_json *v;
    DTP_TRY(dtp_json_require(root, "hashes", &v, err));
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(dtp_plan__read_hash(v, "model", &plan->model_hash, err));
    if (plan->machine == NULL) {
        static const char *const only[] = {"model", NULL};
        return dtp_json_keys(v, only, err);
    }
    return dtp_plan__read_hash(v, "machine", &plan->machine_hash, err);
}

/* ---- the whole ---------------------------------------------------------------------------------
 */

/* Absent: our own. A plan in rules mode has no other. */
static dtp_status read_redistribution(const dtp_json *root, dtp_plan *plan, dtp_err *err)
{
    static const char *const names[] = {"torch", NULL};
    const dtp_json *v = dtp_json_get(root, "redistribution");
    int32_t choice = 0;
    if (v == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_json_choice(v, names, &choice, err));
    if (plan->rules_mode) {
        return dtp_json_fail(v, err, "a plan in rules mode redistributes in our own way");
    }
    plan->redistribution = DTP_REDISTRIBUTION_TORCH;
    return DTP_OK;
}

static dtp_status read_header(const dtp_json *root, dtp_plan *plan, dtp_err *err)
{
    static const char *const modes[] = {"rules", "tensor", NULL};
    static const char *const objectives[] = {"time", "memory", NULL};
    const dtp_json *limit = dtp_json_get(root, "memory_limit_bytes");
    const dtp_json *uneven = dtp_json_get(root, "uneven");
    int32_t mode = 0, objective = 0;
    DTP_TRY(read_text(root, "model", plan->arena, &plan->model, err));
    plan->machine = NULL;
    if (dtp_json_get(root, "machine") != NULL) {
        DTP_TRY(read_text(root, "machine", plan->arena, &plan->machine, err));
    }
    DTP_TRY(read_mesh(root, &plan->mesh, err));
    DTP_TRY(read_choice(root, "mode", modes, &mode, err));
    DTP_TRY(read_choice(root, "objective", objectives, &objective, err));
    plan->rules_mode = mode == 0;
    plan->objective = objective == 0 ? DTP_OBJECTIVE_TIME : DTP_OBJECTIVE_MEMORY;
    if (limit != NULL) {
        DTP_TRY(dtp_json_int(limit, 1, INT64_MAX, &plan->memory_limit_bytes, err));
    }
    DTP_TRY(read_redistribution(root, plan, err));
    return uneven == NULL ? DTP_OK : dtp_json_bool(uneven, &plan->uneven, err);
}

dtp_status dtp_plan__fields(const dtp_json *root, dtp_plan *plan, dtp_err *err)
{
    static const char *const keys[] = {"format",
                                       "model",
                                       "machine",
                                       "mesh",
                                       "mode",
                                       "objective",
                                       "memory_limit_bytes",
                                       "uneven",
                                       "redistribution",
                                       "redistributions",
                                       "remat",
                                       "microbatches",
                                       "microbatch_dim",
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
    const dtp_json *format;
    const char *text;
    DTP_TRY(dtp_json_require(root, "format", &format, err));
    DTP_TRY(dtp_json_string(format, &text, err));
    if (strcmp(text, "dtp.plan/1") != 0) {
        return dtp_json_fail(format, err, "expected 'dtp.plan/1', found '%.80s'", text);
    }
    DTP_TRY(dtp_json_keys(root, keys, err));
    DTP_TRY(read_header(root, plan, err));
    DTP_TRY(read_predicted(root, plan, err));
    DTP_TRY(read_certificate(root, plan, err));
    DTP_TRY(read_pins(root, plan, err));
    DTP_TRY(read_tried(root, plan, err));
    DTP_TRY(read_baselines(root, plan, err));
    return read_hashes(root, plan, err);
}
