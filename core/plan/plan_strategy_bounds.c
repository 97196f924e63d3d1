/* The object "option_bounds" of dtp.plan/1: a text of numbers per choice. As JSON numbers they
 * would be most of the values of a large plan, and what reading it takes. */
#include <inttypes.h>

#include "core/plan/plan_internal.h"

enum { MAX_OPTIONS = 10000000 };

/* ---- writing ------------------------------------------------------------------------------------
 */

static void write_choice(dtp_json_writer *w, const dtp_plan_strategy_bounds *bounds, int32_t i)
{
    dtp_strbuf text = {0};
    for (int32_t k = bounds->first[i]; k < bounds->first[i + 1]; k++) {
        dtp_strbuf_addf(&text, "%s%" PRId32, k > bounds->first[i] ? " " : "", bounds->above[k]);
    }
    dtp_json_write_text(w, NULL, &text);
}

void dtp_plan__write_option_bounds(dtp_json_writer *w, const dtp_plan_strategy_bounds *bounds)
{
    dtp_json_begin_object(w, "option_bounds");
    dtp_json_write_int(w, "runs", bounds->runs);
    dtp_plan__write_hash(w, "options", bounds->options_hash);
    dtp_json_write_int(w, "cost_ps", bounds->cost_ps);
    dtp_json_write_int(w, "base_ps", bounds->base_ps);
    dtp_json_write_int(w, "unit_ps", bounds->unit_ps);
    dtp_json_begin_array(w, "above", false);
    for (int32_t i = 0; i < bounds->n; i++) {
        write_choice(w, bounds, i);
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

/* One number at *at, which redistributions behind it and a space. */
static dtp_status read_number(const dtp_json *v, const char **at, int32_t *out, dtp_err *err)
{
    const char *begin = *at, *end = begin;
    int64_t above = 0;
    while (*end >= '0' && *end <= '9' && above <= DTP_PLAN_MOST_ABOVE) {
        above = 10 * above + (*end++ - '0');
    }
    if (end == begin || above > DTP_PLAN_MOST_ABOVE || (*end != ' ' && *end != '\0')) {
        return dtp_json_fail(v, err,
                             "expected integers in 0..%d with a space between them at '%.20s'",
                             DTP_PLAN_MOST_ABOVE, begin);
    }
    *out = (int32_t)above;
    *at = *end == ' ' ? end + 1 : NULL;
    return DTP_OK;
}

static dtp_status read_choice(const dtp_json *v, dtp_plan_strategy_bounds *bounds, dtp_err *err)
{
    const char *at;
    int32_t k = bounds->first[bounds->n];
    DTP_TRY(dtp_json_string(v, &at, err));
    while (at != NULL) {
        DTP_TRY(read_number(v, &at, &bounds->above[k++], err));
    }
    bounds->first[++bounds->n] = k;
    return DTP_OK;
}

/* How many options all choices have together: one more than spaces. */
static dtp_status count_options(const dtp_json *list, int64_t *n, dtp_err *err)
{
    *n = 0;
    for (int32_t i = 0; i < dtp_json_size(list); i++) {
        const char *text;
        DTP_TRY(dtp_json_string(dtp_json_at(list, i), &text, err));
        (*n)++;
        for (const char *c = text; *c != '\0'; c++) {
            *n += *c == ' ' ? 1 : 0;
        }
    }
    return *n <= MAX_OPTIONS
               ? DTP_OK
               : dtp_json_fail(list, err, "%" PRId64 " options, the limit is %d", *n, MAX_OPTIONS);
}

static dtp_status read_choices(const dtp_json *root, dtp_arena *arena,
                               dtp_plan_strategy_bounds *bounds, dtp_err *err)
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
    dtp_plan_strategy_bounds *bounds = &plan->strategy_bounds;
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
