/* What moved between what was recorded and now, and why; as text, Markdown and JUnit's XML. */
#include <math.h>
#include <string.h>

#include "core/base/text.h"
#include "core/base/units.h"
#include "tools/regress/suite.h"
#include "tools/report.h"

enum { SHOWN_FACTS = 6, NAME_WIDTH = 28, LINE_BYTES = 2048 };

/* ---- metrics ---- */

static bool known(const suite_case *c, int32_t m)
{
    return c->recorded.there && c->now.there && !isnan(c->recorded.values[m]) &&
           !isnan(c->now.values[m]);
}

bool suite_has_changed(const suite *s, const suite_case *c, int32_t m)
{
    (void)s;
    return known(c, m) && c->now.values[m] != c->recorded.values[m];
}

bool suite_is_worse(const suite *s, const suite_case *c, int32_t m)
{
    const suite_metric *metric = &s->metrics[m];
    if (!known(c, m) || !metric->judged) {
        return false;
    }
    const double before = c->recorded.values[m], allowed = s->tolerance[m];
    const double most = metric->unit == SUITE_SHARE ? allowed : fabs(before) * allowed;
    const double more = c->now.values[m] - before;
    return more > most || (s->two_sided && -more > most);
}

bool suite_case_regressed(const suite *s, const suite_case *c)
{
    bool had = false, has = false, worse = false;
    for (int32_t m = 0; s->metrics[m].name != NULL; m++) {
        had = had || (c->recorded.there && !isnan(c->recorded.values[m]));
        has = has || (c->now.there && !isnan(c->now.values[m]));
        worse = worse || suite_is_worse(s, c, m);
    }
    return c->failure != NULL || (!s->updated && (worse || (had && c->now.there && !has)));
}

void suite_value_print(suite_unit unit, double value, dtp_strbuf *out)
{
    if (isnan(value)) {
        dtp_strbuf_add(out, "-");
        return;
    }
    switch (unit) {
    case SUITE_SECONDS:
        dtp_strbuf_add(out, dtp_seconds(value).text);
        break;
    case SUITE_BYTES:
        dtp_strbuf_add(out, dtp_byte_count(value).text);
        break;
    case SUITE_SHARE:
        dtp_strbuf_addf(out, "%.4f %%", 100.0 * value);
        break;
    case SUITE_NUMBER:
        dtp_strbuf_addf(out, "%.6g", value);
        break;
    }
}

/* ---- causes ---- */

static const suite_fact *fact_of(const suite_result *r, suite_group group, const char *key)
{
    for (int32_t i = 0; i < r->n_facts[group]; i++) {
        if (strcmp(r->facts[group][i].key, key) == 0) {
            return &r->facts[group][i];
        }
    }
    return NULL;
}

/* Text of a file on one line, without control characters. */
static void add_line(const char *text, dtp_strbuf *out)
{
    char line[LINE_BYTES];
    (void)dtp_one_line(text, line, sizeof line);
    dtp_strbuf_add(out, line);
}

/* "batch 4 -> 8"; NULL: it is not there. */
static void print_fact(int32_t n, const char *key, const char *then, const char *now,
                       dtp_strbuf *out)
{
    dtp_strbuf_add(out, n > 0 ? "; " : "");
    add_line(key, out);
    dtp_strbuf_add(out, " ");
    add_line(then != NULL ? then : "(not there)", out);
    dtp_strbuf_add(out, " -> ");
    add_line(now != NULL ? now : "(not there)", out);
}

/* Facts of a group that differ: "batch 4 -> 8; ..."; returns how many. */
static int32_t print_changes(const suite_case *c, suite_group group, dtp_strbuf *out)
{
    const suite_result *a = &c->recorded, *b = &c->now;
    int32_t n = 0;
    for (int32_t i = 0; i < b->n_facts[group]; i++) {
        const suite_fact *now = &b->facts[group][i], *then = fact_of(a, group, now->key);
        if (then != NULL && strcmp(then->value, now->value) == 0) {
            continue;
        }
        if (out != NULL && n < SHOWN_FACTS) {
            print_fact(n, now->key, then != NULL ? then->value : NULL, now->value, out);
        }
        n++;
    }
    for (int32_t i = 0; i < a->n_facts[group]; i++) {
        const suite_fact *then = &a->facts[group][i];
        if (fact_of(b, group, then->key) == NULL) {
            if (out != NULL && n < SHOWN_FACTS) {
                print_fact(n, then->key, then->value, NULL, out);
            }
            n++;
        }
    }
    if (out != NULL && n > SHOWN_FACTS) {
        dtp_strbuf_addf(out, "; and %d more", n - SHOWN_FACTS);
    }
    return n;
}

void suite_why(const suite *s, const suite_case *c, dtp_strbuf *out)
{
    static const char *const causes[SUITE_GROUPS] = {"the options of the case changed",
                                                     "the model changed", "the machine changed",
                                                     "layouts changed"};
    bool inputs = false, moved = false;
    if (c->failure != NULL) {
        dtp_strbuf_add(out, "it failed: ");
        add_line(c->failure, out);
        dtp_strbuf_add(out, "\n");
        return;
    }
    if (!c->recorded.there) {
        dtp_strbuf_add(out, s->updated ? "" : "not recorded yet (--update)\n");
        return;
    }
    for (int32_t m = 0; s->metrics[m].name != NULL; m++) {
        moved = moved || suite_has_changed(s, c, m);
    }
    for (int32_t group = 0; group < (int32_t)SUITE_LAYOUTS; group++) {
        if (print_changes(c, (suite_group)group, NULL) > 0) {
            inputs = true;
            dtp_strbuf_addf(out, "%s: ", causes[group]);
            print_changes(c, (suite_group)group, out);
            dtp_strbuf_add(out, "\n");
        }
    }
    const int32_t layouts = print_changes(c, SUITE_LAYOUTS, NULL);
    if (!inputs && (moved || layouts > 0)) {
        dtp_strbuf_addf(out, "options, model and machine are the same: this version %s\n",
                        layouts > 0 ? "plans otherwise" : "prices or measures otherwise");
    }
    if (layouts > 0) {
        dtp_strbuf_addf(out, "%s: ", causes[SUITE_LAYOUTS]);
        print_changes(c, SUITE_LAYOUTS, out);
        dtp_strbuf_add(out, "\n");
    }
}

/* ---- reports ---- */

static const char *verdict(const suite *s, const suite_case *c)
{
    bool moved = false;
    for (int32_t m = 0; s->metrics[m].name != NULL; m++) {
        moved = moved || suite_has_changed(s, c, m);
    }
    return c->failure != NULL                          ? "FAILED"
           : s->updated                                ? "recorded"
           : suite_case_regressed(s, c)                ? "WORSE"
           : !c->recorded.there                        ? "new"
           : moved                                     ? "moved"
           : print_changes(c, SUITE_LAYOUTS, NULL) > 0 ? "layout"
                                                       : "same";
}

/* "12.3 ms -> 14.1 ms (+14.6 %)" of a metric that changed. */
static void print_change(const suite *s, const suite_case *c, int32_t m, dtp_strbuf *out)
{
    const double before = c->recorded.values[m], now = c->now.values[m];
    suite_value_print(s->metrics[m].unit, before, out);
    dtp_strbuf_add(out, " -> ");
    suite_value_print(s->metrics[m].unit, now, out);
    if (before != 0.0 && s->metrics[m].unit != SUITE_SHARE) {
        dtp_strbuf_addf(out, " (%+.2f %%)", 100.0 * (now / before - 1.0));
    }
}

/* Every metric that changed, a line each. */
static void print_moves(const suite *s, const suite_case *c, const char *begin, dtp_strbuf *out)
{
    for (int32_t m = 0; s->metrics[m].name != NULL; m++) {
        if (suite_has_changed(s, c, m)) {
            dtp_strbuf_addf(out, "%s%s ", begin, s->metrics[m].name);
            print_change(s, c, m, out);
            dtp_strbuf_addf(out, "%s\n", suite_is_worse(s, c, m) ? ", more than allowed" : "");
        }
    }
}

/* The lines of `text`, each with something before it. */
static void add_lines(const char *text, const char *begin, dtp_strbuf *out)
{
    while (*text != '\0') {
        const size_t n = strcspn(text, "\n");
        dtp_strbuf_addf(out, "%s%.*s\n", begin, (int)n, text);
        text += n + (text[n] == '\n' ? 1 : 0);
    }
}

static void print_totals(const suite *s, dtp_strbuf *out)
{
    int32_t worse = 0, moved = 0, recorded = 0;
    for (int32_t i = 0; i < s->n; i++) {
        const char *v = verdict(s, &s->cases[i]);
        worse += suite_case_regressed(s, &s->cases[i]) ? 1 : 0;
        recorded += strcmp(v, "recorded") == 0 ? 1 : 0;
        moved += strcmp(v, "moved") == 0 || strcmp(v, "layout") == 0 ? 1 : 0;
    }
    dtp_strbuf_addf(out, "%d case%s: ", s->n, s->n == 1 ? "" : "s");
    if (s->updated) {
        dtp_strbuf_addf(out, "%d recorded, %d failed\n", recorded, worse);
    } else {
        dtp_strbuf_addf(out, "%d regressed, %d moved within tolerance\n", worse, moved);
    }
}

void suite_text(const suite *s, dtp_strbuf *out)
{
    dtp_strbuf_addf(out, "%-*s", NAME_WIDTH, "case");
    for (int32_t m = 0; s->metrics[m].name != NULL; m++) {
        if (s->metrics[m].shown) {
            dtp_strbuf_addf(out, " %10s", s->metrics[m].name);
        }
    }
    dtp_strbuf_add(out, "\n");
    for (int32_t i = 0; i < s->n; i++) {
        const suite_case *c = &s->cases[i];
        dtp_strbuf why = {0};
        char name[LINE_BYTES];
        (void)dtp_one_line(c->name, name, sizeof name);
        dtp_strbuf_addf(out, "%-*s", NAME_WIDTH, name);
        for (int32_t m = 0; s->metrics[m].name != NULL; m++) {
            dtp_strbuf value = {0};
            if (s->metrics[m].shown) {
                suite_value_print(s->metrics[m].unit, c->now.values[m], &value);
                dtp_strbuf_addf(out, " %10s", dtp_strbuf_text(&value));
            }
            out->failed = out->failed || value.failed;
            dtp_strbuf_free(&value);
        }
        dtp_strbuf_addf(out, "  %s\n", verdict(s, c));
        print_moves(s, c, "    ", out);
        suite_why(s, c, &why);
        add_lines(dtp_strbuf_text(&why), "    ", out);
        dtp_strbuf_free(&why);
    }
    print_totals(s, out);
}

/* Text of a file in a cell of a table: no markup, no mention of a user; lines as <br>. */
static void add_cell(const char *text, dtp_strbuf *out)
{
    for (; *text != '\0'; text++) {
        if (*text == '\n') {
            dtp_strbuf_add(out, text[1] != '\0' ? "<br>" : "");
        } else if (strchr("&<|`*_~[]\\#!$@", *text) != NULL) {
            dtp_strbuf_addf(out, "&#%d;%s", *text, *text == '@' ? "&#8203;" : "");
        } else {
            dtp_strbuf_addf(out, "%c", *text);
        }
    }
}

static void add_name(const char *name, dtp_strbuf *out)
{
    char line[LINE_BYTES];
    (void)dtp_one_line(name, line, sizeof line);
    add_cell(line, out);
}

/* "| case | verdict | what moved | why |" of a case. */
static void print_moved_row(const suite *s, const suite_case *c, dtp_strbuf *out)
{
    dtp_strbuf why = {0};
    const char *between = "";
    dtp_strbuf_add(out, "| ");
    add_name(c->name, out);
    dtp_strbuf_addf(out, " | %s | ", verdict(s, c));
    for (int32_t m = 0; s->metrics[m].name != NULL; m++) {
        if (suite_has_changed(s, c, m)) {
            dtp_strbuf_addf(out, "%s%s ", between, s->metrics[m].name);
            print_change(s, c, m, out);
            between = "<br>";
        }
    }
    suite_why(s, c, &why);
    dtp_strbuf_add(out, " | ");
    add_cell(dtp_strbuf_text(&why), out);
    dtp_strbuf_add(out, " |\n");
    dtp_strbuf_free(&why);
}

/* The values of all cases, folded. */
static void print_values(const suite *s, dtp_strbuf *out)
{
    dtp_strbuf rule = {0};
    dtp_strbuf_add(out, "\n<details><summary>all values</summary>\n\n| case | verdict |");
    for (int32_t m = 0; s->metrics[m].name != NULL; m++) {
        if (s->metrics[m].shown) {
            dtp_strbuf_addf(out, " %s |", s->metrics[m].name);
            dtp_strbuf_add(&rule, "--:|");
        }
    }
    dtp_strbuf_add(out, "\n|---|---|");
    dtp_strbuf_join(out, &rule);
    dtp_strbuf_add(out, "\n");
    for (int32_t i = 0; i < s->n; i++) {
        const suite_case *c = &s->cases[i];
        dtp_strbuf_add(out, "| ");
        add_name(c->name, out);
        dtp_strbuf_addf(out, " | %s |", verdict(s, c));
        for (int32_t m = 0; s->metrics[m].name != NULL; m++) {
            if (s->metrics[m].shown) {
                dtp_strbuf_add(out, " ");
                suite_value_print(s->metrics[m].unit, c->now.values[m], out);
                dtp_strbuf_add(out, " |");
            }
        }
        dtp_strbuf_add(out, "\n");
    }
    dtp_strbuf_add(out, "\n</details>\n");
}

void suite_markdown(const suite *s, dtp_strbuf *out)
{
    bool any = false;
    dtp_strbuf_add(out, "### ");
    add_name(s->file, out);
    dtp_strbuf_add(out, "\n\n");
    print_totals(s, out);
    for (int32_t i = 0; i < s->n; i++) {
        if (strcmp(verdict(s, &s->cases[i]), "same") != 0) {
            dtp_strbuf_add(
                out, any ? "" : "\n| case | verdict | what moved | why |\n|---|---|---|---|\n");
            any = true;
            print_moved_row(s, &s->cases[i], out);
        }
    }
    print_values(s, out);
}

static void add_xml_name(const char *name, dtp_strbuf *out)
{
    char line[LINE_BYTES];
    (void)dtp_one_line(name, line, sizeof line);
    dtp_strbuf_add_xml(out, line);
}

void suite_junit(const suite *s, dtp_strbuf *out)
{
    int32_t failures = 0;
    double seconds = 0.0;
    for (int32_t i = 0; i < s->n; i++) {
        failures += suite_case_regressed(s, &s->cases[i]) ? 1 : 0;
        seconds += s->cases[i].seconds;
    }
    dtp_strbuf_add(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"");
    add_xml_name(s->file, out);
    dtp_strbuf_addf(out,
                    "\" tests=\"%d\" failures=\"%d\" errors=\"0\" skipped=\"0\" time=\"%.3f\">\n",
                    s->n, failures, seconds);
    for (int32_t i = 0; i < s->n; i++) {
        const suite_case *c = &s->cases[i];
        dtp_strbuf why = {0};
        dtp_strbuf_add(out, "  <testcase classname=\"regress\" name=\"");
        add_xml_name(c->name, out);
        dtp_strbuf_addf(out, "\" time=\"%.3f\"", c->seconds);
        print_moves(s, c, "", &why);
        suite_why(s, c, &why);
        if (suite_case_regressed(s, c)) {
            dtp_strbuf_addf(out, ">\n    <failure message=\"%s\">", verdict(s, c));
            dtp_strbuf_add_xml(out, dtp_strbuf_text(&why));
            dtp_strbuf_add(out, "</failure>\n  </testcase>\n");
        } else if (why.len > 0) {
            dtp_strbuf_add(out, ">\n    <system-out>");
            dtp_strbuf_add_xml(out, dtp_strbuf_text(&why));
            dtp_strbuf_add(out, "</system-out>\n  </testcase>\n");
        } else {
            dtp_strbuf_add(out, "/>\n");
        }
        dtp_strbuf_free(&why);
    }
    dtp_strbuf_add(out, "</testsuite>\n");
}
