/* dtrun bench --op and --collective: what one op or collective reaches, no machine file. */
#include "tools/dtrun/bench_alone.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/glob.h"
#include "core/base/units.h"
#include "core/graph/ops/op_table.h"
#include "tools/options.h"
#include "tools/report.h"

/* ---- what is asked for ---- */

static const char *name_of_op(int32_t i)
{
    return dtp_op_at(i)->name;
}

static const char *name_of_coll(int32_t i)
{
    return dtp_coll_name((dtp_coll_kind)i);
}

static dtp_status check_name(const char *option, const char *name, int32_t n,
                             const char *(*name_of)(int32_t i), dtp_err *err)
{
    dtp_near_names near = {0};
    dtp_strbuf text = {0};
    for (int32_t i = 0; i < n; i++) {
        if (strcmp(name, name_of(i)) == 0) {
            return DTP_OK;
        }
        dtp_near_names_offer(&near, name, name_of(i));
    }
    dtp_near_names_print(&near, &text);
    const dtp_status s = DTP_FAIL(err, DTP_INVALID, "%s: there is no '%.60s'%s", option, name,
                                  dtp_strbuf_text(&text));
    dtp_strbuf_free(&text);
    return s;
}

/* "A..B", or "A" alone. */
static dtp_status parse_sizes(const char *text, int64_t *least, int64_t *most, dtp_err *err)
{
    const char *dots = strstr(text, "..");
    char first[32];
    const size_t n = dots != NULL ? (size_t)(dots - text) : strlen(text);
    if (n >= sizeof first) {
        return DTP_FAIL(err, DTP_INVALID, "--sizes: '%.60s' is no range such as 8K..64M", text);
    }
    (void)snprintf(first, sizeof first, "%.*s", (int)n, text);
    DTP_TRY(tool_bytes_parse("--sizes", first, least, err));
    *most = *least;
    DTP_TRY(dots != NULL ? tool_bytes_parse("--sizes", dots + 2, most, err) : DTP_OK);
    return *least <= *most && *most <= DTP_BENCH_MOST_BYTES
               ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID,
                          "--sizes: '%.60s' does not rise, or ends above %d bytes", text,
                          DTP_BENCH_MOST_BYTES);
}

dtp_status dtrun_bench_alone_check(const tool_source *a, dtp_err *err)
{
    int64_t least, most;
    if (a->op != NULL && a->collective != NULL) {
        return DTP_FAIL(err, DTP_INVALID, "give --op or --collective, not both");
    }
    if (!dtrun_bench_is_alone(a)) {
        return a->sizes == NULL && !a->json
                   ? DTP_OK
                   : DTP_FAIL(err, DTP_INVALID, "--sizes and --json need --op or --collective");
    }
    if (a->output != NULL || a->name != NULL || a->tiny) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--output, --name and --tiny are of machine files; --op and --collective "
                        "write none");
    }
    DTP_TRY(a->op != NULL
                ? check_name("--op", a->op, dtp_op_count(), name_of_op, err)
                : check_name("--collective", a->collective, DTP_N_COLLS, name_of_coll, err));
    return a->sizes != NULL ? parse_sizes(a->sizes, &least, &most, err) : DTP_OK;
}

dtp_status dtrun_bench_alone_options(const tool_source *a, bool device, dtp_bench_scale *scale,
                                     dtp_bench_options *out, dtp_err *err)
{
    int64_t least, most;
    out->op = a->op;
    out->collective = a->collective;
    if (a->sizes != NULL) {
        DTP_TRY(parse_sizes(a->sizes, &least, &most, err));
        *scale = dtp_bench_scale_between(dtp_bench_scale_of(device, out->quick), least, most);
        out->scale = scale;
    }
    return DTP_OK;
}

/* ---- the report ---- */

typedef struct alone_report {
    const tool_source *alone;
    const dtp_samples *samples;
    int32_t n;
    const dtp_sample **rows;
    double bytes_per_s, flops_per_s[DTP_N_ARITHMETICS]; /* peaks; 0: none was measured */
} alone_report;

/* Of the bytes per second of a buffer what a link carries at least, by rank
 * (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md). */
static double bus_factor(dtp_coll_kind kind, int32_t ranks)
{
    const double most = (double)(ranks - 1) / ranks;
    return kind == DTP_PERMUTE ? 1.0 : kind == DTP_ALL_REDUCE ? 2.0 * most : most;
}

static void coll_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_sample *s = ((const alone_report *)user)->rows[i];
    const double rate = s->work.bytes / s->time_s;
    tool_row(rows,
             TOOL_FIELDS(FIELD_BYTES("bytes", (int64_t)s->work.bytes), FIELD_INT("ranks", s->ranks),
                         FIELD_REAL("time_us", 1e6 * s->time_s),
                         FIELD_REAL("algbw_GBps", 1e-9 * rate),
                         FIELD_REAL("busbw_GBps", 1e-9 * rate * bus_factor(s->coll, s->ranks))));
}

/* Shares of the peaks: of bytes per second, or of operations in that arithmetic. */
static void op_row(tool_rows *rows, const void *user, int32_t i)
{
    const alone_report *r = user;
    const dtp_sample *s = r->rows[i];
    const double bytes = s->work.bytes / s->time_s, flops = s->work.flops / s->time_s,
                 peak = r->flops_per_s[s->arithmetic];
    tool_row(rows,
             TOOL_FIELDS(FIELD_BYTES("bytes", (int64_t)s->work.bytes),
                         FIELD_TEXT("arithmetic", dtp_arithmetic_name(s->arithmetic)),
                         FIELD_REAL("time_us", 1e6 * s->time_s), FIELD_REAL("GBps", 1e-9 * bytes),
                         FIELD_REAL("of_copy", r->bytes_per_s > 0.0 ? bytes / r->bytes_per_s : 0.0),
                         FIELD_REAL("GFLOPps", 1e-9 * flops),
                         FIELD_REAL("of_product", peak > 0.0 ? flops / peak : 0.0)));
}

static bool is_row(const tool_source *a, const dtp_sample *s)
{
    const size_t n = a->op != NULL ? strlen(a->op) : 0;
    return a->op == NULL ? s->kind == DTP_SAMPLE_COLL
                         : s->kind != DTP_SAMPLE_MOVE && strncmp(s->name, a->op, n) == 0 &&
                               (s->name[n] == '\0' || s->name[n] == '.');
}

static dtp_status gather(const tool_source *a, const dtp_samples *samples, dtp_arena *arena,
                         alone_report *out, dtp_err *err)
{
    *out = (alone_report){.alone = a, .samples = samples};
    out->rows = dtp_arena_alloc(arena, (size_t)samples->n + 1, sizeof(const dtp_sample *));
    DTP_TRY(DTP_MEMORY(err, out->rows));
    for (int32_t i = 0; i < samples->n; i++) {
        const dtp_sample *s = &samples->items[i];
        if (s->kind == DTP_SAMPLE_MOVE) {
            out->bytes_per_s = fmax(out->bytes_per_s, s->work.bytes / s->time_s);
        } else if (s->kind == DTP_SAMPLE_GEMM) {
            double *peak = &out->flops_per_s[s->arithmetic];
            *peak = fmax(*peak, s->work.flops / s->time_s);
        }
        if (is_row(a, s)) {
            out->rows[out->n++] = s;
        }
    }
    return out->n > 0 ? DTP_OK
                      : DTP_FAIL(err, DTP_INVALID, "%s '%s': nothing to measure%s",
                                 a->op != NULL ? "--op" : "--collective",
                                 a->op != NULL ? a->op : a->collective,
                                 a->op != NULL ? ": it only renames, or no size fits"
                                               : " on one rank (--ranks)");
}

static void put_text(const alone_report *r, const char *backend, dtp_strbuf *out)
{
    static const tool_column op[] = {
        {"bytes", 12},  {"type", 6},     {"us", 12},         {"GB/s", 9},
        {"of copy", 9}, {"GFLOP/s", 10}, {"of product", 11}, {0}};
    static const tool_column coll[] = {{"bytes", 12},      {"ranks", 6},       {"us", 12},
                                       {"algbw GB/s", 11}, {"busbw GB/s", 11}, {0}};
    const tool_source *a = r->alone;
    dtp_strbuf_addf(out, "%s on %s, %d rank%s of %d thread%s\n",
                    a->op != NULL ? a->op : a->collective, backend, (int)r->samples->ranks,
                    r->samples->ranks == 1 ? "" : "s", (int)r->samples->threads,
                    r->samples->threads == 1 ? "" : "s");
    if (a->op != NULL) {
        tool_print_table(out, op, r->n, op_row, r);
    } else {
        tool_print_table(out, coll, r->n, coll_row, r);
    }
}

dtp_status dtrun_bench_alone_print(const tool_source *a, const char *backend,
                                   const dtp_samples *samples, dtp_err *err)
{
    alone_report r;
    dtp_json_writer w = {0};
    dtp_arena *arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, arena));
    dtp_status s = gather(a, samples, arena, &r, err);
    if (s == DTP_OK && a->json) {
        tool_report(&w, "dtp.bench/1",
                    TOOL_FIELDS(FIELD_TEXT("backend", backend), FIELD_INT("ranks", samples->ranks),
                                FIELD_INT("threads", samples->threads),
                                FIELD_TEXT_IF(a->op != NULL, "op", a->op),
                                FIELD_TEXT_IF(a->op == NULL, "collective", a->collective),
                                FIELD_LIST("rows", r.n, a->op != NULL ? op_row : coll_row, &r)));
    } else if (s == DTP_OK) {
        put_text(&r, backend, &w.buf);
    }
    s = s == DTP_OK ? (a->json ? tool_put : tool_put_text)(&w.buf, err) : s;
    dtp_strbuf_free(&w.buf);
    dtp_arena_destroy(arena);
    return s;
}
