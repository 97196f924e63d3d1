/* Memory of a rank over the step: areas by what holds it, and the largest buffers at the peak. */
#include <math.h>
#include <stdio.h>
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

/* What a rank holds over time: of a plan with stages one of the stage that binds. */
typedef struct held {
    int64_t (**bytes)[DTP_N_HELD]; /* by chunk of the stage, by instruction */
    int64_t (*own)[DTP_N_HELD];    /* by chunk of the stage: what outlives its sections */
    int32_t n;                     /* chunks of the stage */
} held;

/* The chunk of the stage that runs a program. */
static int32_t chunk_of(const held *h, const dtp_program *p)
{
    return h->n > 1 ? p->chunk / dtp_graph_stages(p->graph) : 0;
}

/* Bytes while an instruction runs: those of its chunk, what the other chunks keep, and the slots of
 * the other microbatches in flight. */
static int64_t held_at(const held *h, const page_slice *s, int64_t out[DTP_N_HELD])
{
    const int32_t chunk = chunk_of(h, s->program);
    int64_t sum = 0;
    for (int32_t k = 0; k < DTP_N_HELD; k++) {
        out[k] = h->bytes[chunk][s->instr][k];
        for (int32_t c = 0; c < h->n; c++) {
            out[k] += c != chunk ? h->own[c][k] : 0;
        }
        out[k] += k == (int32_t)DTP_USE_ACTIVATION ? s->others * s->program->slot_bytes : 0;
        sum += out[k];
    }
    return sum;
}

static dtp_status find_held(const page_input *in, int32_t stage, dtp_arena *arena, held *h,
                            dtp_err *err)
{
    const dtp_pipeline *pipeline = in->job->pipeline;
    const int32_t n_stages = pipeline != NULL ? pipeline->table.n_stages : 1;
    *h = (held){.n = pipeline != NULL ? pipeline->n / n_stages : 1};
    h->bytes = dtp_arena_alloc(arena, (size_t)h->n, sizeof(void *));
    DTP_TRY(DTP_MEMORY(err, h->bytes));
    DTP_TRY(DTP_NEW(arena, h->own, h->n, err));
    for (int32_t c = 0; c < h->n; c++) {
        const dtp_program *p =
            pipeline != NULL ? pipeline->programs[stage + c * n_stages] : in->job->program;
        DTP_TRY(dtp_held_over_time(p, arena, &h->bytes[c], err));
        for (dtp_value_id v = 0; v < p->n_values && pipeline != NULL; v++) {
            const dtp_value *value = &p->values[v];
            const bool own = !value->external && !value->in_slot && value->offset >= p->own_at &&
                             value->offset < p->own_at + p->own_bytes && dtp_value_root(p, v) == v;
            h->own[c][dtp_held_kind(p, v)] += own ? value->bytes : 0;
        }
    }
    return DTP_OK;
}

/* The slice at which most is held. */
static const page_slice *most_held(const held *h, const page_schedule *t)
{
    const page_slice *most = NULL;
    int64_t bytes[DTP_N_HELD], top = -1;
    for (int64_t k = 0; k < t->n; k++) {
        const int64_t sum = held_at(h, &t->slices[k], bytes);
        most = sum > top ? &t->slices[k] : most;
        top = sum > top ? sum : top;
    }
    return most;
}

/* Two groups more of what a stage holds beside the buffers of the chunk that runs. */
static int32_t add_others(const held *h, const page_slice *s, held_group *groups, int32_t n)
{
    const int32_t chunk = chunk_of(h, s->program);
    if (s->others > 0) {
        groups[n++] = (held_group){"other microbatches in flight", DTP_USE_ACTIVATION, s->others,
                                   s->others * s->program->slot_bytes};
    }
    for (int32_t k = 0; k < DTP_N_HELD; k++) {
        int64_t bytes = 0;
        for (int32_t c = 0; c < h->n; c++) {
            bytes += c != chunk ? h->own[c][k] : 0;
        }
        if (bytes > 0) {
            groups[n] = (held_group){"", k, 1, bytes};
            (void)snprintf(groups[n++].name, NAME_BYTES, "%s of the other chunks",
                           dtp_held_name(k));
        }
    }
    return n;
}

/* The largest things at the peak, right of the areas. */
static dtp_status put_peak(const held *h, const page_slice *s, dtp_arena *arena, dtp_strbuf *out,
                           dtp_err *err)
{
    const dtp_program *p = s->program;
    dtp_peak peak;
    held_group *groups;
    int32_t n = 0;
    const double x = LEFT + PLOT + 34.0;
    DTP_TRY(dtp_peak_at(p, s->instr, arena, &peak, err));
    DTP_TRY(DTP_NEW(arena, groups, peak.n + 1 + DTP_N_HELD, err));
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
    n = add_others(h, s, groups, n);
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

/* Heights of columns, of what holds most at a time in each. */
typedef struct columns {
    double scale, end_s;
    double most[COLUMNS];
    double heights[DTP_N_HELD + 1][COLUMNS];
} columns;

static void add_held(columns *c, const int64_t *bytes, double from_s, double to_s)
{
    const int32_t from = (int32_t)(COLUMNS * from_s / c->end_s);
    double sum = 0.0;
    for (int32_t h = 0; h < DTP_N_HELD; h++) {
        sum += (double)bytes[h];
    }
    for (int32_t k = from; k < COLUMNS && (k == from || k < COLUMNS * to_s / c->end_s); k++) {
        if (sum > c->most[k]) {
            double top = 0.0;
            c->most[k] = sum;
            for (int32_t h = 0; h < DTP_N_HELD; h++) {
                top += c->scale * (double)bytes[h];
                c->heights[h + 1][k] = round(10.0 * top) / 10.0;
            }
        }
    }
}

/* While a stage waits from from_s on, until `next`, NULL: the end of the step: what outlives
 * sections, and the slots in flight. */
static void add_waiting(columns *c, const held *h, const page_slice *next, double from_s)
{
    int64_t bytes[DTP_N_HELD] = {0};
    for (int32_t k = 0; k < h->n; k++) {
        for (int32_t kind = 0; kind < DTP_N_HELD; kind++) {
            bytes[kind] += h->own[k][kind];
        }
    }
    if (next != NULL) {
        const bool own = next->program->instrs[next->instr].phase == DTP_BACKWARD;
        bytes[DTP_USE_ACTIVATION] += (next->others + (own ? 1 : 0)) * next->program->slot_bytes;
    }
    add_held(c, bytes, from_s, next != NULL ? next->at_s : c->end_s);
}

/* Of every column the bytes at the time in it when most are needed. */
static void put_areas(const page_schedule *t, const held *h, bool waits, columns *c,
                      dtp_strbuf *out)
{
    double now_s = 0.0;
    for (int64_t k = 0; k < t->n; k++) {
        const page_slice *s = &t->slices[k];
        const double end_s = page_is_communication(s->lane) ? s->at_s : s->end_s;
        int64_t bytes[DTP_N_HELD];
        (void)held_at(h, s, bytes);
        if (waits && s->at_s > now_s) {
            add_waiting(c, h, s, now_s);
        }
        add_held(c, bytes, s->at_s, end_s);
        now_s = fmax(now_s, end_s);
    }
    if (waits) {
        add_waiting(c, h, NULL, now_s);
    }
    for (int32_t k = 0; k < DTP_N_HELD; k++) {
        svg_area_put(
            out, &(svg_area){LEFT, PLOT, TOP + HEIGHT, COLUMNS, c->heights[k], c->heights[k + 1]},
            classes[k]);
    }
}

dtp_status page_memory(const page_input *in, dtp_strbuf *out, dtp_err *err)
{
    const dtp_pipeline *pipeline = in->job->pipeline;
    const int32_t stage = pipeline != NULL ? in->job->predicted.peak_stage : 0;
    const dtp_program *p = pipeline != NULL ? pipeline->programs[stage] : in->job->program;
    const double peak = (double)p->peak_bytes;
    const double limit = (double)in->plan->memory_limit_bytes;
    held holds;
    page_schedule t;
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = DTP_MEMORY(err, arena);
    s = s == DTP_OK ? page_schedule_make(in, stage, arena, &t, err) : s;
    s = s == DTP_OK ? find_held(in, stage, arena, &holds, err) : s;
    if (s == DTP_OK && t.end_s > 0.0 && peak > 0.0) {
        const bool near = limit > 0.0 && limit < 1.6 * peak;
        const double scale = HEIGHT / (1.12 * (near ? fmax(limit, peak) : peak));
        const svg_times times = {LEFT, PLOT, 0.0, t.end_s};
        double x = LEFT;
        dtp_strbuf about = {0};
        dtp_strbuf_add(&about, "Memory of a rank ");
        if (pipeline != NULL) {
            dtp_strbuf_addf(&about, "of stage %d, which needs most, ", stage);
        }
        dtp_strbuf_addf(&about, "over the step: a peak of %s", dtp_byte_count(peak).text);
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
        columns c = {.scale = scale, .end_s = t.end_s};
        put_areas(&t, &holds, pipeline != NULL, &c, out);
        put_level(peak, scale, "peak", near && scale * fabs(limit - peak) < 14.0, out);
        if (near) {
            put_level(limit, scale, "limit", false, out);
        }
        svg_axis(out, &times, TOP + HEIGHT);
        s = put_peak(&holds, most_held(&holds, &t), arena, out, err);
        svg_end(out);
    }
    dtp_arena_destroy(arena);
    return s;
}
