/* dtplan machines: the machines that have a name, the file of one with numbers set, or one beside
 * measurements. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/units.h"
#include "tools/dtplan/measured.h"
#include "tools/job.h"
#include "tools/machines.h"
#include "tools/report.h"
#include "tools/shipped.h"

typedef struct machines_command {
    tool_source source;
    dtp_machine *machine;
} machines_command;

static dtp_status list_machines(dtp_strbuf *text, dtp_err *err)
{
    char **names = NULL;
    DTP_TRY(tool_shipped_names(SHIPPED_MACHINES, &names, err));
    dtp_strbuf_addf(text, "%-12s %7s  %s\n", "name", "devices", "what");
    dtp_status s = DTP_OK;
    for (int32_t i = 0; names[i] != NULL && s == DTP_OK; i++) {
        dtp_machine *machine = NULL;
        s = tool_machine_read(names[i], true, &machine, err);
        if (s == DTP_OK) {
            dtp_strbuf_addf(text, "%-12s %7lld  %s\n", names[i],
                            (long long)dtp_machine_devices(machine), machine->provenance_host);
        }
        dtp_machine_destroy(machine);
    }
    tool_shipped_free(names);
    return s;
}

/* ---- --check ---- */

static double ratio(const tool_measured *r)
{
    return r->predicted_s / r->measured_s;
}

static int by_miss(const void *a, const void *b)
{
    const double x = fabs(log(ratio(a))), y = fabs(log(ratio(b)));
    return (x < y) - (x > y);
}

static int by_ratio(const void *a, const void *b)
{
    const double x = ratio(a), y = ratio(b);
    return (x > y) - (x < y);
}

/* Rows from `items` on, which are put in the order of their ratios. */
static void print_errors(const char *name, const char *class, tool_measured *items, int32_t n,
                         dtp_strbuf *out)
{
    double sum = 0.0;
    qsort(items, (size_t)n, sizeof *items, by_ratio);
    for (int32_t i = 0; i < n; i++) {
        sum += fabs(ratio(&items[i]) - 1.0);
    }
    dtp_strbuf_addf(out, "%-34s %-14s %5d %7.1f %% %7.3f\n", name, class, n, 100.0 * sum / n,
                    0.5 * (ratio(&items[(n - 1) / 2]) + ratio(&items[n / 2])));
}

static void measured_row(tool_rows *rows, const void *user, int32_t i)
{
    const tool_measured_rows *all = user;
    const tool_measured *r = &all->items[i];
    tool_row(rows,
             TOOL_FIELDS(FIELD_TEXT("group", r->group), FIELD_TEXT("size", all->classes[r->size]),
                         FIELD_TEXT("what", r->what), FIELD_REAL("measured_s", r->measured_s),
                         FIELD_REAL("predicted_s", r->predicted_s)));
}

static dtp_status check(const machines_command *c, dtp_json_writer *w, dtp_err *err)
{
    enum { WORST = 10 };
    dtp_strbuf *out = &w->buf;
    tool_measured_rows rows;
    DTP_TRY(tool_measured_read(c->source.check, c->machine, &rows, err));
    if (c->source.json) {
        tool_report(w, "dtp.check/1",
                    TOOL_FIELDS(FIELD_TEXT("machine", c->machine->name),
                                FIELD_INT("other_devices", rows.other_devices),
                                FIELD_INT("unhealthy", rows.unhealthy),
                                FIELD_INT("without_price", rows.unknown),
                                FIELD_LIST("rows", rows.n, measured_row, &rows)));
        return DTP_OK;
    }
    dtp_strbuf_addf(out, "%-34s %-14s %5s %9s %7s\n", "predicted / measured", "size", "rows",
                    "MAPE", "median");
    for (int32_t first = 0, end; first < rows.n; first = end) {
        tool_measured *r = &rows.items[first];
        for (end = first; end < rows.n && rows.items[end].size == r->size &&
                          strcmp(rows.items[end].group, r->group) == 0;) {
            end++;
        }
        print_errors(r->group, rows.classes[r->size], r, end - first, out);
    }
    print_errors("all", "", rows.items, rows.n, out);
    const struct {
        int32_t n;
        const char *why;
    } left_out[] = {{rows.other_devices, "of other devices"},
                    {rows.unhealthy, "of runs that were slow or forced an algorithm"},
                    {rows.unknown, "that the machine has no price of"}};
    for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++) {
        if (left_out[i].n > 0) {
            dtp_strbuf_addf(out, "without %d rows %s\n", left_out[i].n, left_out[i].why);
        }
    }
    qsort(rows.items, (size_t)rows.n, sizeof *rows.items, by_miss);
    dtp_strbuf_addf(out, "\n%-50s %10s %10s %7s\n", "the worst", "measured", "predicted", "ratio");
    for (int32_t i = 0; i < rows.n && i < WORST; i++) {
        const tool_measured *r = &rows.items[i];
        dtp_strbuf_addf(out, "%-50s %10s %10s %7.3f\n", r->what, dtp_seconds(r->measured_s).text,
                        dtp_seconds(r->predicted_s).text, ratio(r));
    }
    return DTP_OK;
}

/* ---- --nccl-tests ---- */

/* Takes from levels but one what others lent them: nothing was measured there. */
static void own_levels(dtp_machine *m, const dtp_level *but)
{
    for (int32_t l = 0; l < m->n_levels; l++) {
        if (m->levels[l].from != NULL && &m->levels[l] != but) {
            memset(m->levels[l].rates, 0, sizeof m->levels[l].rates);
        }
    }
}

static dtp_status find_level(const machines_command *c, dtp_strbuf *out, int32_t *level,
                             dtp_err *err)
{
    const dtp_machine *m = c->machine;
    const char *name = c->source.level;
    *level = m->n_levels == 1 && name == NULL ? 0 : -1;
    for (int32_t l = 0; l < m->n_levels && name != NULL; l++) {
        *level = strcmp(name, m->levels[l].name) == 0 ? l : *level;
    }
    if (*level < 0) {
        dtp_strbuf_add(out, m->n_levels > 0 ? "" : ", none");
        for (int32_t l = 0; l < m->n_levels; l++) {
            dtp_strbuf_addf(out, ", %s", m->levels[l].name);
        }
        return DTP_FAIL(err, DTP_INVALID, "--level %.80s: %s has the levels%s",
                        name != NULL ? name : "is missing", m->place, dtp_strbuf_text(out) + 1);
    }
    return DTP_OK;
}

/* Bus bandwidths of all-gathers, as nccl-tests count them, of groups that fill 2, 4, 8, ... members
 * of a level. */
static dtp_status draw_level(const machines_command *c, dtp_strbuf *out, dtp_err *err)
{
    enum { COLUMNS = 30 };
    const dtp_machine *m = c->machine;
    const double sizes[] = {1 << 20, 1 << 26, 1 << 30};
    int32_t level = -1, inside = 1;
    double full = 0.0;
    DTP_TRY(find_level(c, out, &level, err));
    const dtp_level *at = &m->levels[level];
    for (int32_t l = 0; l < level; l++) {
        inside *= m->levels[l].size;
    }
    dtp_strbuf_addf(out,
                    "all-gather over level '%s', GB/s of bus bandwidth; skew %.2f %% a doubling\n\n"
                    "%7s %7s %8s %8s %8s\n",
                    at->name, 100.0 * at->skew, "members", "ranks", "1 MiB", "64 MiB", "1 GiB");
    for (int32_t n = 2; n <= at->size; n *= 2) {
        dtp_group_shape g;
        double bus = 0.0;
        DTP_TRY(dtp_group_filling(m, level, n * inside, n, &g, err));
        dtp_strbuf_addf(out, "%7d %7d", n, g.ranks);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            const dtp_coll_call call = {DTP_ALL_GATHER, sizes[i], 0};
            const dtp_coll_time t = dtp_coll_time_of(m->levels, &g, &call);
            bus = 1e-9 * (g.ranks - 1.0) / g.ranks * sizes[i] / (t.start_s + t.transfer_s);
            dtp_strbuf_addf(out, " %8.1f", bus);
        }
        full = fmax(full, bus);
        dtp_strbuf_add(out, "  ");
        for (int32_t k = 0; k < (int32_t)(COLUMNS * bus / full + 0.5); k++) {
            dtp_strbuf_add(out, "#");
        }
        dtp_strbuf_add(out, "\n");
    }
    return DTP_OK;
}

static dtp_status fit(const machines_command *c, dtp_strbuf *product, dtp_strbuf *out, dtp_err *err)
{
    dtp_machine *m = c->machine;
    int32_t level = -1, n = 0;
    dtp_coll_sample *samples = NULL;
    double error = 0.0;
    char *text = NULL;
    DTP_TRY(find_level(c, out, &level, err));
    DTP_TRY(tool_nccl_tests_read(c->source.nccl_tests, c->source.collective, m, level, &n, &samples,
                                 err));
    DTP_TRY(dtp_level_fit(m->levels, level, n, samples, &error, err));
    own_levels(m, &m->levels[level]);
    DTP_TRY(dtp_machine_index(m, err));
    DTP_TRY(dtp_machine_write(m, &text, err));
    dtp_strbuf_add(product, text);
    free(text);
    dtp_strbuf_addf(out,
                    "level '%s', %d measurements, mean error %.1f %%\n\n%-20s %10s %10s %10s "
                    "%7s %9s\n",
                    m->levels[level].name, n, 100.0 * error, "collective", "start", "per rank",
                    "ramp", "share", "in switch");
    for (int32_t k = 0; k < DTP_N_COLLS; k++) {
        const dtp_coll_rate *r = &m->levels[level].rates[k];
        if (r->share > 0.0) {
            dtp_strbuf_addf(out, "%-20s %10s %10s %10s %7.3f", dtp_coll_name((dtp_coll_kind)k),
                            dtp_seconds(r->start_s).text, dtp_seconds(r->rank_s).text,
                            dtp_byte_count(r->ramp_bytes).text, r->share);
            dtp_strbuf_addf(out, r->in_switch < DTP_NO_SWITCH ? " %9.3f\n" : "\n", r->in_switch);
        }
    }
    return DTP_OK;
}

/* ---- command ---- */

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    machines_command *c = command;
    const tool_source *s = &c->source;
    dtp_json_writer w = {0};
    dtp_strbuf product = {0};
    const bool curve = s->level != NULL && s->nccl_tests == NULL;
    const bool question = s->check != NULL || s->nccl_tests != NULL || curve;
    if (operands[0] == NULL && !question && s->set.n == 0 && s->output == NULL &&
        s->level == NULL && s->collective == NULL && !s->json) {
        DTP_TRY(list_machines(&w.buf, err));
        return tool_put_text(&w.buf, err);
    }
    if (operands[0] == NULL || (s->check != NULL && (s->nccl_tests != NULL || s->output != NULL)) ||
        (s->nccl_tests == NULL && s->collective != NULL) ||
        (curve && (s->output != NULL || s->check != NULL)) || (s->check == NULL && s->json)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "name one machine; --check takes --json, --nccl-tests takes --level, "
                        "--collective and --output, --level alone prints a curve");
    }
    c->source.machine = operands[0];
    DTP_TRY(tool_machine_of(&c->source, &c->machine, err));
    if (!question) {
        char *text = NULL;
        own_levels(c->machine, NULL);
        DTP_TRY(dtp_machine_write(c->machine, &text, err));
        dtp_strbuf_add(&product, text);
        free(text);
        return s->output != NULL ? tool_put_in(s->output, &product, err) : tool_put(&product, err);
    }
    const dtp_status status = s->check != NULL ? check(c, &w, err)
                              : curve          ? draw_level(c, &w.buf, err)
                                               : fit(c, &product, &w.buf, err);
    if (status != DTP_OK) {
        dtp_strbuf_free(&w.buf);
        dtp_strbuf_free(&product);
        return status;
    }
    return s->nccl_tests != NULL ? tool_put_both(s->output, &product, &w.buf, true, err)
           : s->json             ? tool_put(&w.buf, err)
                                 : tool_put_text(&w.buf, err);
}

int dtplan_machines(int argc, char **argv)
{
    machines_command c = {0};
    const tool_call call = {TOOL_MACHINES, execute, &c, &c.source, NULL};
    const int code = tool_run(&call, argc, argv);
    dtp_machine_destroy(c.machine);
    return code;
}
