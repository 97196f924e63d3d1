/* Memory of a rank over the step: areas by what holds it, and the largest buffers at the peak. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/base/units.h"
#include "cost_models/comm_report.h"
#include "spmd/program/peak.h"
#include "tools/dtplan/page/page.h"

enum {
    COLUMNS = 580,
    LEFT = 78,
    PLOT = 580,
    HEIGHT = 230,
    TOP = 64,
    LARGEST = 10,
    NAME_BYTES = 160
};

static const char *const classes[DTP_N_HELD] = {"m0", "m1", "m2", "m3", "m4", "m5", "m6"};

/* Buffers at the peak of tensors with one name but for the numbers of their blocks. */
typedef struct held_group {
    char name[NAME_BYTES];
    int32_t kind, n;
    int64_t bytes;
} held_group;

static int by_bytes(const void *a, const void *b)
{
    const held_group *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1) : strcmp(x->name, y->name);
}

/* The largest things at the peak, right of the areas. */
static dtp_status put_peak(const dtp_program *p, dtp_arena *arena, dtp_strbuf *out, dtp_err *err)
{
    dtp_peak peak;
    held_group *groups;
    int32_t n = 0;
    const double x = LEFT + PLOT + 34.0;
    DTP_TRY(dtp_peak_find(p, arena, &peak, err));
    DTP_TRY(DTP_NEW(arena, groups, peak.n + 1, err));
    if (peak.at < 0) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < peak.n; i++) {
        const dtp_value_id v = peak.buffers[i].value;
        const dtp_tensor_id t = p->values[v].tensor;
        char name[NAME_BYTES];
        int32_t k = 0;
        dtp_general_name(t >= 0 ? p->graph->tensors[t].name : p->values[v].name, name, sizeof name);
        while (k < n &&
               (strcmp(groups[k].name, name) != 0 || groups[k].kind != dtp_held_kind(p, v))) {
            k++;
        }
        if (k == n) {
            groups[n++].kind = dtp_held_kind(p, v);
            memcpy(groups[k].name, name, sizeof name);
        }
        groups[k].bytes += peak.buffers[i].bytes;
        groups[k].n++;
    }
    qsort(groups, (size_t)n, sizeof *groups, by_bytes);
    const dtp_instr *instr = &p->instrs[peak.at];
    dtp_strbuf line = {0};
    dtp_strbuf_addf(&line, "at the peak (%s, %s)", dtp_phase_name(instr->phase),
                    dtp_instr_name(instr));
    svg_text(out, x, TOP + 2.0, 's', SVG_WIDTH - x, "label", dtp_strbuf_text(&line));
    out->failed = out->failed || line.failed;
    dtp_strbuf_free(&line);
    for (int32_t k = 0; k < n && k < LARGEST; k++) {
        const double y = TOP + 26.0 + 21.0 * k;
        dtp_strbuf name = {0};
        if (groups[k].n > 1) {
            dtp_strbuf_addf(&name, "%d × ", groups[k].n);
        }
        dtp_strbuf_add(&name, groups[k].name);
        svg_rect(out, (const double[]){x, y - 10.0, 12.0, 12.0}, classes[groups[k].kind], NULL);
        svg_text(out, x + 92.0, y, 'e', 74.0, "small",
                 dtp_byte_count((double)groups[k].bytes).text);
        svg_text(out, x + 102.0, y, 's', SVG_WIDTH - x - 102.0, "mono", dtp_strbuf_text(&name));
        out->failed = out->failed || name.failed;
        dtp_strbuf_free(&name);
    }
    return DTP_OK;
}

/* A line across the plot at so many bytes, with its name above or below. */
static void put_level(double bytes, double scale, const char *what, bool text_below,
                      dtp_strbuf *out)
{
    const double y = TOP + HEIGHT - scale * bytes;
    dtp_strbuf name = {0};
    dtp_strbuf_addf(&name, "%s %s", what, dtp_byte_count(bytes).text);
    svg_line(out, (const double[]){LEFT, y, LEFT + PLOT, y}, what);
    svg_text(out, LEFT + PLOT - 4.0, text_below ? y + 12.0 : y - 4.0, 'e', PLOT, "small",
             dtp_strbuf_text(&name));
    out->failed = out->failed || name.failed;
    dtp_strbuf_free(&name);
}

/* Of every column the bytes at the time in it when most are needed. */
static void put_areas(const page_schedule *t, int64_t (*bytes)[DTP_N_HELD], double scale,
                      dtp_strbuf *out)
{
    double heights[DTP_N_HELD + 1][COLUMNS] = {{0}};
    double most[COLUMNS] = {0};
    for (int64_t k = 0; k < t->n; k++) {
        const page_slice *s = &t->slices[k];
        const double end_s = s->lane == PAGE_COMMUNICATION ? s->at_s : s->end_s;
        const int32_t from = (int32_t)(COLUMNS * s->at_s / t->end_s);
        double sum = 0.0;
        for (int32_t h = 0; h < DTP_N_HELD; h++) {
            sum += (double)bytes[s->instr][h];
        }
        for (int32_t c = from; c < COLUMNS && (c == from || c < COLUMNS * end_s / t->end_s); c++) {
            if (sum > most[c]) {
                double top = 0.0;
                most[c] = sum;
                for (int32_t h = 0; h < DTP_N_HELD; h++) {
                    top += scale * (double)bytes[s->instr][h];
                    heights[h + 1][c] = round(10.0 * top) / 10.0;
                }
            }
        }
    }
    for (int32_t h = 0; h < DTP_N_HELD; h++) {
        svg_area_put(out,
                     &(svg_area){LEFT, PLOT, TOP + HEIGHT, COLUMNS, heights[h], heights[h + 1]},
                     classes[h]);
    }
}

dtp_status page_memory(const page_input *in, dtp_strbuf *out, dtp_err *err)
{
    const dtp_program *p = in->job->program;
    const double peak = (double)p->peak_bytes, limit = (double)in->plan->memory_limit_bytes;
    int64_t(*bytes)[DTP_N_HELD];
    page_schedule t;
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = DTP_MEMORY(err, arena);
    s = s == DTP_OK ? page_schedule_make(in, arena, &t, err) : s;
    s = s == DTP_OK ? dtp_held_over_time(p, arena, &bytes, err) : s;
    if (s == DTP_OK && t.end_s > 0.0 && peak > 0.0) {
        const bool near = limit > 0.0 && limit < 1.6 * peak;
        const double scale = HEIGHT / (1.12 * (near ? fmax(limit, peak) : peak));
        const svg_times times = {LEFT, PLOT, 0.0, t.end_s};
        double x = LEFT;
        dtp_strbuf about = {0};
        dtp_strbuf_addf(&about, "Memory of a rank over the step: a peak of %s",
                        dtp_byte_count(peak).text);
        if (limit > 0.0) {
            dtp_strbuf_addf(&about, " within a limit of %s", dtp_byte_count(limit).text);
        }
        svg_begin(out, TOP + HEIGHT + 34.0, "memory over the step", dtp_strbuf_text(&about));
        svg_text(out, LEFT, 16.0, 's', SVG_WIDTH, "label", dtp_strbuf_text(&about));
        out->failed = out->failed || about.failed;
        dtp_strbuf_free(&about);
        for (int32_t h = 0; h < DTP_N_HELD; h++) {
            x = svg_key(out, x, 40.0, classes[h], dtp_held_name(h));
        }
        for (int32_t k = 0; k <= 4; k++) {
            const double y = TOP + HEIGHT - HEIGHT * k / 4.48;
            svg_text(out, LEFT - 6.0, y + 4.0, 'e', LEFT, "small",
                     dtp_byte_count(HEIGHT * k / 4.48 / scale).text);
            svg_line(out, (const double[]){LEFT - 3.0, y, LEFT, y}, "axis");
        }
        put_areas(&t, bytes, scale, out);
        put_level(peak, scale, "peak", near && scale * fabs(limit - peak) < 14.0, out);
        if (near) {
            put_level(limit, scale, "limit", false, out);
        }
        svg_axis(out, &times, TOP + HEIGHT);
        s = put_peak(p, arena, out, err);
        svg_end(out);
    }
    dtp_arena_destroy(arena);
    return s;
}
