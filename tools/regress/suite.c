/* Reading and writing suites. */
#include "tools/regress/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "core/files/file_in.h"

enum { MAX_BYTES = 64 << 20 };

const char *const suite_group_names[SUITE_GROUPS] = {"options", "model", "machine", "layouts"};

static const char *const ROOT_KEYS[] = {"format", "two_sided", "tolerance", "cases", NULL};
static const char *const RECORDED_KEYS[] = {"metrics", "options", "model",
                                            "machine", "layouts", NULL};

int32_t suite_metric_at(const suite_metric *metrics, const char *name)
{
    int32_t m = 0;
    while (metrics[m].name != NULL && strcmp(metrics[m].name, name) != 0) {
        m++;
    }
    return metrics[m].name != NULL ? m : -1;
}

/* ---- facts ---- */

dtp_status suite_case_fail(suite *s, suite_case *c, const char *why, dtp_err *err)
{
    c->failure = dtp_arena_strdup(s->arena, why);
    return DTP_MEMORY(err, c->failure);
}

dtp_status suite_add_fact(suite *s, suite_result *r, suite_group group, const char *key,
                          const char *value, dtp_err *err)
{
    const int32_t n = r->n_facts[group];
    for (int32_t i = 0; i < n && group == SUITE_OPTIONS; i++) { /* an option may be given twice */
        suite_fact *same = &r->facts[group][i];
        if (strcmp(same->key, key) == 0) {
            same->value = dtp_arena_printf(s->arena, "%s %s", same->value, value);
            return DTP_MEMORY(err, same->value);
        }
    }
    if ((n & (n - 1)) == 0) { /* room for the next power of two */
        suite_fact *more = dtp_arena_alloc(s->arena, (size_t)(n == 0 ? 1 : 2 * n), sizeof *more);
        DTP_TRY(DTP_MEMORY(err, more));
        if (n > 0) {
            memcpy(more, r->facts[group], (size_t)n * sizeof *more);
        }
        r->facts[group] = more;
    }
    suite_fact *fact = &r->facts[group][n];
    fact->key = dtp_arena_strdup(s->arena, key);
    fact->value = dtp_arena_strdup(s->arena, value);
    DTP_TRY(DTP_MEMORY(err, fact->key, fact->value));
    r->n_facts[group]++;
    return DTP_OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const suite_fact *)a)->key, ((const suite_fact *)b)->key);
}

void suite_sort_facts(suite_result *r)
{
    for (int32_t group = 0; group < (int32_t)SUITE_GROUPS; group++) {
        if (r->n_facts[group] > 1) {
            qsort(r->facts[group], (size_t)r->n_facts[group], sizeof(suite_fact), by_key);
        }
    }
}

dtp_status suite_add_options(suite *s, suite_case *c, dtp_err *err)
{
    for (int32_t i = 1; i < c->n_args; i++) {
        if (strncmp(c->args[i], "--", 2) == 0) {
            const bool has_value = i + 1 < c->n_args && strncmp(c->args[i + 1], "--", 2) != 0;
            DTP_TRY(suite_add_fact(s, &c->now, SUITE_OPTIONS, c->args[i],
                                   has_value ? c->args[i + 1] : "given", err));
        }
    }
    return DTP_OK;
}

/* ---- reading ---- */

static dtp_status add_arg(suite_case *c, const dtp_json *at, const char *arg, dtp_err *err)
{
    if (c->n_args == SUITE_MAX_ARGS) {
        return dtp_json_fail(at, err, "more than %d arguments", SUITE_MAX_ARGS);
    }
    c->args[c->n_args++] = arg;
    return DTP_OK;
}

/* The value of an option, "--limit-s 5", "--untie" or a value for each of a list. */
static dtp_status add_option(suite *s, suite_case *c, const tool_option *o, const dtp_json *v,
                             dtp_err *err)
{
    const dtp_json_kind kind = dtp_json_kind_of(v);
    const char *text = NULL;
    double number = 0.0;
    bool on = false;
    if (tool_option_is_flag(o)) {
        DTP_TRY(dtp_json_bool(v, &on, err));
        return on ? add_arg(c, v, o->name, err) : DTP_OK;
    }
    if (kind == DTP_JSON_ARRAY && (o->kind == TOOL_LIST || o->kind == TOOL_OUT_LIST)) {
        for (int32_t i = 0; i < dtp_json_size(v); i++) {
            DTP_TRY(add_option(s, c, o, dtp_json_at(v, i), err));
        }
        return DTP_OK;
    }
    const bool numeric = o->kind == TOOL_INT || o->kind == TOOL_COUNT || o->kind == TOOL_REAL;
    if (numeric || (o->kind == TOOL_BYTES && kind == DTP_JSON_NUMBER)) {
        DTP_TRY(dtp_json_double(v, &number, err));
        text = dtp_arena_printf(s->arena, number == floor(number) ? "%.0f" : "%.15g", number);
        DTP_TRY(DTP_MEMORY(err, text));
    } else {
        DTP_TRY(dtp_json_string(v, &text, err));
    }
    DTP_TRY(add_arg(c, v, o->name, err));
    return add_arg(c, v, text, err);
}

/* The option whose name is that of a member, with '-' for '_'. */
static dtp_status find_option(const suite *s, const dtp_json *member, const tool_option **out,
                              dtp_err *err)
{
    char name[64];
    (void)snprintf(name, sizeof name, "--%s", dtp_json_key(member));
    for (char *at = name; *at != '\0'; at++) {
        *at = *at == '_' ? '-' : *at;
    }
    *out = tool_option_find(s->kind->command, name, strlen(name));
    return *out != NULL ? DTP_OK
                        : dtp_json_fail(member, err, "unknown key, which is no option of '%s'%s",
                                        tool_commands[s->kind->command].name,
                                        tool_hint_option(s->kind->command, name).text);
}

/* {"batch": 8}. */
static dtp_status add_dims(suite *s, suite_case *c, const dtp_json *dims, dtp_err *err)
{
    DTP_TRY(dtp_json_expect(dims, DTP_JSON_OBJECT, err));
    for (int32_t i = 0; i < dtp_json_size(dims); i++) {
        const dtp_json *dim = dtp_json_at(dims, i);
        int64_t size;
        DTP_TRY(dtp_json_int(dim, 1, INT64_MAX, &size, err));
        char *text = dtp_arena_printf(s->arena, "%s=%lld", dtp_json_key(dim), (long long)size);
        DTP_TRY(DTP_MEMORY(err, text));
        DTP_TRY(add_arg(c, dim, "--dim", err));
        DTP_TRY(add_arg(c, dim, text, err));
    }
    return DTP_OK;
}

static dtp_status read_recorded(suite *s, suite_case *c, const dtp_json *v, dtp_err *err)
{
    suite_result *r = &c->recorded;
    const dtp_json *metrics;
    DTP_TRY(dtp_json_expect(v, DTP_JSON_OBJECT, err));
    DTP_TRY(dtp_json_keys(v, RECORDED_KEYS, err));
    DTP_TRY(dtp_json_get_kind(v, "metrics", DTP_JSON_OBJECT, &metrics, err));
    r->there = true;
    for (int32_t i = 0; i < dtp_json_size(metrics); i++) {
        const dtp_json *value = dtp_json_at(metrics, i);
        const int32_t m = suite_metric_at(s->metrics, dtp_json_key(value));
        if (m >= 0) { /* one that this version does not know is left alone */
            DTP_TRY(dtp_json_double(value, &r->values[m], err));
        }
    }
    for (int32_t group = 0; group < (int32_t)SUITE_GROUPS; group++) {
        const dtp_json *facts = dtp_json_get(v, suite_group_names[group]);
        for (int32_t i = 0; facts != NULL && i < dtp_json_size(facts); i++) {
            const dtp_json *fact = dtp_json_at(facts, i);
            const char *text = NULL;
            DTP_TRY(dtp_json_string(fact, &text, err));
            DTP_TRY(suite_add_fact(s, r, (suite_group)group, dtp_json_key(fact), text, err));
        }
    }
    suite_sort_facts(r);
    return DTP_OK;
}

static dtp_status read_arguments(suite *s, suite_case *c, const dtp_json *v, dtp_err *err)
{
    static const char *const others[] = {"name", "model", "reference", "recorded", NULL};
    const dtp_json *recorded = dtp_json_get(v, "recorded");
    DTP_TRY(dtp_json_get_string(v, "model", &c->model, err));
    DTP_TRY(add_arg(c, v, c->model, err));
    for (int32_t i = 0; i < dtp_json_size(v); i++) {
        const dtp_json *member = dtp_json_at(v, i);
        const char *key = dtp_json_key(member), *text = NULL;
        const tool_option *option = NULL;
        int32_t k = 0;
        while (others[k] != NULL && strcmp(others[k], key) != 0) {
            k++;
        }
        if (others[k] != NULL) {
            continue;
        }
        if (strcmp(key, "dims") == 0) {
            DTP_TRY(add_dims(s, c, member, err));
        } else if (strcmp(key, "options") == 0) {
            DTP_TRY(dtp_json_expect(member, DTP_JSON_ARRAY, err));
            for (k = 0; k < dtp_json_size(member); k++) {
                DTP_TRY(dtp_json_string(dtp_json_at(member, k), &text, err));
                DTP_TRY(add_arg(c, member, text, err));
            }
        } else {
            DTP_TRY(find_option(s, member, &option, err));
            DTP_TRY(add_option(s, c, option, member, err));
        }
    }
    if (dtp_json_get(v, "machine") != NULL) {
        DTP_TRY(dtp_json_get_string(v, "machine", &c->machine, err));
    }
    if (dtp_json_get(v, "reference") != NULL) {
        DTP_TRY(dtp_json_get_string(v, "reference", &c->reference, err));
    }
    return recorded != NULL && dtp_json_kind_of(recorded) != DTP_JSON_NULL
               ? read_recorded(s, c, recorded, err)
               : DTP_OK;
}

/* A case must have a name; what else is wrong with it is its own failure. */
static dtp_status read_case(suite *s, suite_case *c, const dtp_json *v, dtp_err *err)
{
    dtp_err why = {0};
    DTP_TRY(dtp_json_expect(v, DTP_JSON_OBJECT, err));
    c->source = v;
    for (int32_t m = 0; m < SUITE_MAX_METRICS; m++) {
        c->recorded.values[m] = c->now.values[m] = (double)NAN;
    }
    DTP_TRY(dtp_json_get_string(v, "name", &c->name, err));
    const dtp_status status = read_arguments(s, c, v, &why);
    return status == DTP_OK      ? DTP_OK
           : status == DTP_NOMEM ? DTP_FAIL(err, DTP_NOMEM, "%s", why.msg)
                                 : suite_case_fail(s, c, why.msg, err);
}

static dtp_status read_all(suite *s, dtp_err *err)
{
    const dtp_json *root = dtp_json_root(s->doc), *list = NULL;
    DTP_TRY(dtp_json_format(root, s->kind->format, ROOT_KEYS, err));
    for (int32_t m = 0; s->metrics[m].name != NULL; m++) {
        s->tolerance[m] = s->metrics[m].tolerance;
    }
    if (dtp_json_get(root, "two_sided") != NULL) {
        DTP_TRY(dtp_json_get_bool(root, "two_sided", &s->two_sided, err));
    }
    const dtp_json *tolerance = dtp_json_get(root, "tolerance");
    for (int32_t i = 0; tolerance != NULL && i < dtp_json_size(tolerance); i++) {
        const dtp_json *v = dtp_json_at(tolerance, i);
        const int32_t m = suite_metric_at(s->metrics, dtp_json_key(v));
        if (m < 0 || !s->metrics[m].judged) {
            return dtp_json_fail(v, err, "there is no metric of this name that is judged");
        }
        DTP_TRY(dtp_json_double(v, &s->tolerance[m], err));
    }
    DTP_TRY(dtp_json_get_kind(root, "cases", DTP_JSON_ARRAY, &list, err));
    s->cases = dtp_arena_alloc(s->arena, (size_t)dtp_json_size(list) + 1, sizeof *s->cases);
    DTP_TRY(DTP_MEMORY(err, s->cases));
    for (int32_t i = 0; i < dtp_json_size(list); i++) {
        DTP_TRY(read_case(s, &s->cases[i], dtp_json_at(list, i), err));
        s->n++;
        for (int32_t k = 0; k < i; k++) {
            if (strcmp(s->cases[k].name, s->cases[i].name) == 0) {
                return dtp_json_fail(dtp_json_at(list, i), err, "a second case '%s'",
                                     s->cases[i].name);
            }
        }
    }
    return DTP_OK;
}

dtp_status suite_read(const char *file, const char *text, const suite_kind *kind, suite *out,
                      dtp_err *err)
{
    char *read = NULL;
    size_t n = text != NULL ? strlen(text) : 0;
    memset(out, 0, sizeof *out);
    out->file = file;
    out->kind = kind;
    out->metrics = kind->metrics;
    out->arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, out->arena));
    if (text == NULL) {
        DTP_TRY(dtp_file_read(file, MAX_BYTES, &read, &n, err));
    }
    dtp_status s = dtp_json_parse(file, text != NULL ? text : read, n, &out->doc, err);
    free(read);
    return s == DTP_OK ? read_all(out, err) : s;
}

void suite_free(suite *s)
{
    dtp_json_destroy(s->doc);
    dtp_arena_destroy(s->arena);
    s->doc = NULL;
    s->arena = NULL;
}

dtp_status suite_take_recorded(suite *s, const suite *from, dtp_err *err)
{
    for (int32_t i = 0; i < s->n; i++) {
        suite_result *to = &s->cases[i].recorded;
        int32_t k = 0;
        while (k < from->n && strcmp(from->cases[k].name, s->cases[i].name) != 0) {
            k++;
        }
        to->there = k < from->n && from->cases[k].recorded.there;
        memset(to->n_facts, 0, sizeof to->n_facts);
        if (!to->there) {
            continue;
        }
        const suite_result *r = &from->cases[k].recorded;
        memcpy(to->values, r->values, sizeof to->values);
        for (int32_t group = 0; group < (int32_t)SUITE_GROUPS; group++) {
            for (int32_t f = 0; f < r->n_facts[group]; f++) {
                DTP_TRY(suite_add_fact(s, to, (suite_group)group, r->facts[group][f].key,
                                       r->facts[group][f].value, err));
            }
        }
    }
    return DTP_OK;
}

/* ---- writing ---- */

static void write_value(dtp_json_writer *w, const char *key, const dtp_json *v, dtp_err *err,
                        dtp_status *status)
{
    const char *text = NULL;
    double number;
    bool on;
    switch (dtp_json_kind_of(v)) {
    case DTP_JSON_NULL:
        dtp_json_write_null(w, key);
        break;
    case DTP_JSON_BOOL:
        *status = *status == DTP_OK ? dtp_json_bool(v, &on, err) : *status;
        dtp_json_write_bool(w, key, *status == DTP_OK && on);
        break;
    case DTP_JSON_NUMBER:
        *status = *status == DTP_OK ? dtp_json_double(v, &number, err) : *status;
        dtp_json_write_double(w, key, *status == DTP_OK ? number : 0.0);
        break;
    case DTP_JSON_STRING:
        *status = *status == DTP_OK ? dtp_json_string(v, &text, err) : *status;
        dtp_json_write_string(w, key, text);
        break;
    case DTP_JSON_ARRAY:
        dtp_json_begin_array(w, key, true);
        for (int32_t i = 0; i < dtp_json_size(v); i++) {
            write_value(w, NULL, dtp_json_at(v, i), err, status);
        }
        dtp_json_end_array(w);
        break;
    case DTP_JSON_OBJECT:
        dtp_json_begin_object(w, key);
        for (int32_t i = 0; i < dtp_json_size(v); i++) {
            write_value(w, dtp_json_key(dtp_json_at(v, i)), dtp_json_at(v, i), err, status);
        }
        dtp_json_end_object(w);
        break;
    }
}

static void write_result(const suite *s, const suite_result *r, dtp_json_writer *w)
{
    dtp_json_begin_object(w, "recorded");
    dtp_json_begin_object(w, "metrics");
    for (int32_t m = 0; s->metrics[m].name != NULL; m++) {
        if (!isnan(r->values[m])) {
            dtp_json_write_double(w, s->metrics[m].name, r->values[m]);
        }
    }
    dtp_json_end_object(w);
    for (int32_t group = 0; group < (int32_t)SUITE_GROUPS; group++) {
        dtp_json_begin_object(w, suite_group_names[group]);
        for (int32_t f = 0; f < r->n_facts[group]; f++) {
            dtp_json_write_string(w, r->facts[group][f].key, r->facts[group][f].value);
        }
        dtp_json_end_object(w);
    }
    dtp_json_end_object(w);
}

dtp_status suite_write(const suite *s, dtp_strbuf *out, dtp_err *err)
{
    dtp_json_writer w = {0};
    dtp_status status = DTP_OK;
    const dtp_json *root = dtp_json_root(s->doc);
    dtp_json_begin_object(&w, NULL);
    dtp_json_write_string(&w, "format", s->kind->format);
    const dtp_json *tolerance = dtp_json_get(root, "tolerance");
    if (s->two_sided) {
        dtp_json_write_bool(&w, "two_sided", true);
    }
    if (tolerance != NULL) {
        write_value(&w, "tolerance", tolerance, err, &status);
    }
    dtp_json_begin_array(&w, "cases", false);
    for (int32_t i = 0; i < s->n; i++) {
        const suite_case *c = &s->cases[i];
        dtp_json_begin_object(&w, NULL);
        for (int32_t k = 0; k < dtp_json_size(c->source); k++) {
            const dtp_json *member = dtp_json_at(c->source, k);
            if (strcmp(dtp_json_key(member), "recorded") != 0) {
                write_value(&w, dtp_json_key(member), member, err, &status);
            }
        }
        if (c->now.there || c->recorded.there) { /* a case that failed keeps what it had */
            write_result(s, c->now.there ? &c->now : &c->recorded, &w);
        }
        dtp_json_end_object(&w);
    }
    dtp_json_end_array(&w);
    dtp_json_end_object(&w);
    dtp_strbuf_add(&w.buf, "\n");
    dtp_strbuf_join(out, &w.buf);
    return status != DTP_OK ? status
           : out->failed    ? DTP_FAIL(err, DTP_NOMEM, "no memory for the suite")
                            : DTP_OK;
}
