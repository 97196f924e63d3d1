/* The object "option_bounds" of dtp.plan/1: a list of numbers per choice. */
#include <inttypes.h>

#include "core/plan_internal.h"

enum { MAX_OPTIONS = 10000000 };

/* ---- writing ------------------------------------------------------------------------------------
 */

void dtp_plan__write_option_bounds(dtp_json_writer *w, const dtp_plan_option_bounds *bounds)
{
    dtp_json_begin_object(w, "option_bounds");
    dtp_json_write_int(w, "runs", bounds->runs);
    dtp_plan__write_hash(w, "options", bounds->options_hash);
    dtp_json_write_int(w, "cost_ps", bounds->cost_ps);
    dtp_json_write_int(w, "base_ps", bounds->base_ps);
    dtp_json_write_int(w, "unit_ps", bounds->unit_ps);
    dtp_json_begin_array(w, "above", false);
    for (int32_t i = 0; i < bounds->n; i++) {
        dtp_json_begin_array(w, NULL, true);
        for (int32_t k = bounds->first[i]; k < bounds->first[i + 1]; k++) {
            dtp_json_write_int(w, NULL, bounds->above[k]);
        }
        dtp_json_end_array(w);
    }
    dtp_json_end_array(w);
    dtp_json_end_object(w);
}

/* ---- reading ------------------------------------------------------------------------------------
 */

static dtp_status read_between(const dtp_json *v, const char *key, int64_t least, int64_t most,
                               int64_t *out, dtp_err *err)
{
    const dtp_json *value;
    DTP_TRY(dtp_json_require(v, key, &value, err));
    return dtp_json_int(value, least, most, out, err);
}

static dtp_status read_choice(const dtp_json *v, dtp_plan_option_bounds *bounds, dtp_err *err)
{
    int32_t at = bounds->first[bounds->n];
    for (int32_t k = 0; k < dtp_json_size(v); k++) {
        int64_t above;
        DTP_TRY(dtp_json_int(dtp_json_at(v, k), 0, DTP_PLAN_MOST_ABOVE, &above, err));
        bounds->above[at++] = (int32_t)above;
    }
    bounds->first[++bounds->n] = at;
    return DTP_OK;
}

/* How many options all choices have together. */
static dtp_status count_options(const dtp_json *list, int64_t *n, dtp_err *err)
{
    *n = 0;
    for (int32_t i = 0; i < dtp_json_size(list); i++) {
        const dtp_json *v = dtp_json_at(list, i);
        DTP_TRY(dtp_json_expect(v, DTP_JSON_ARRAY, err));
        *n += dtp_json_size(v);
    }
    return *n <= MAX_OPTIONS
               ? DTP_OK
               : dtp_json_fail(list, err, "%" PRId64 " options, the limit is %d", *n, MAX_OPTIONS);
}

static dtp_status read_choices(const dtp_json *root, dtp_arena *arena,
                               dtp_plan_option_bounds *bounds, dtp_err *err)
{
    const dtp_json *list;
    int64_t n;
    DTP_TRY(dtp_json_require(root, "above", &list, err));
    DTP_TRY(dtp_json_expect(list, DTP_JSON_ARRAY, err));
    DTP_TRY(count_options(list, &n, err));
    bounds->first = dtp_arena_alloc(arena, (size_t)dtp_json_size(list) + 1, sizeof *bounds->first);
    bounds->above = dtp_arena_alloc(arena, (size_t)n, sizeof *bounds->above);
    if (bounds->first == NULL || bounds->above == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the bounds of %" PRId64 " options", n);
    }
    for (int32_t i = 0; i < dtp_json_size(list); i++) {
        DTP_TRY(read_choice(dtp_json_at(list, i), bounds, err));
    }
    return DTP_OK;
}

dtp_status dtp_plan__read_option_bounds(const dtp_json *root, dtp_plan *plan, dtp_err *err)
{
    static const char *const keys[] = {"runs",    "options", "cost_ps", "base_ps",
                                       "unit_ps", "above",   NULL};
    const dtp_json *v = dtp_json_get(root, "option_bounds");
    dtp_plan_option_bounds *bounds = &plan->option_bounds;
    int64_t runs;
    if (v == NULL) {
        return DTP_OK;
    }
    if (plan->rules_mode || plan->objective != DTP_OBJECTIVE_TIME) {
        return dtp_json_fail(v, err, "only plans in tensor mode with objective time have this");
    }
    DTP_TRY(dtp_json_expect(v, DTP_JSON_OBJECT, err));
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(read_between(v, "runs", 0, INT32_MAX, &runs, err));
    bounds->runs = (int32_t)runs;
    DTP_TRY(dtp_plan__read_hash(v, "options", &bounds->options_hash, err));
    DTP_TRY(read_between(v, "cost_ps", 0, INT64_MAX / 2, &bounds->cost_ps, err));
    DTP_TRY(read_between(v, "base_ps", 0, bounds->cost_ps, &bounds->base_ps, err));
    DTP_TRY(
        read_between(v, "unit_ps", 1, INT64_MAX / 2 / DTP_PLAN_MOST_ABOVE, &bounds->unit_ps, err));
    return read_choices(v, plan->arena, bounds, err);
}
