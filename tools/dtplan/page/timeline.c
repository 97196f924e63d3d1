/* A step as lanes of time: the whole one as shares of columns, and one instance of every block,
 * instruction by instruction. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/base/units.h"
#include "cost_models/comm_report.h"
#include "cost_models/timeline.h"
#include "tools/dtplan/page/page.h"
#include "tools/trace.h"

enum { COLUMNS = 435, LEFT = 118, PLOT = 870, LANE = 24, MOST_WHOLE = 600, MOST_WINDOWS = 7 };

static const double LEAST = 0.3; /* pixels of a slice that is drawn alone */

/* Consecutive slices of one instance of a block, of one phase and microbatch. */
typedef struct segment {
    int32_t microbatch, block, instance;
    dtp_phase phase;
    double begin_s, end_s;
} segment;

typedef struct timeline {
    const page_input *in;
    const dtp_program *program;
    page_schedule schedule;
    int32_t n;
    segment *segments;
} timeline;

/* Instructions of no node belong to what runs before them. */
static dtp_status find_segments(timeline *t, dtp_arena *arena, dtp_err *err)
{
    const dtp_graph *g = t->program->graph;
    segment *list;
    DTP_TRY(DTP_NEW(arena, list, t->schedule.n + 1, err));
    assert(list != NULL);
    for (int64_t k = 0; k < t->schedule.n; k++) {
        const page_slice *s = &t->schedule.slices[k];
        const dtp_instr *instr = &s->program->instrs[s->instr];
        segment *last = t->n > 0 ? &list[t->n - 1] : NULL;
        if (s->lane != PAGE_COMPUTE) {
            continue;
        }
        segment now = {s->microbatch, -1, -1, instr->phase, s->begin_s, s->end_s};
        if (instr->node >= 0) {
            now.block = g->nodes[instr->node].block;
            now.instance = g->nodes[instr->node].instance;
        }
        if (last != NULL && last->microbatch == now.microbatch && last->phase == now.phase &&
            (instr->node < 0 ||
             (last->block == now.block && (now.block < 0 || last->instance == now.instance)))) {
            last->end_s = now.end_s;
        } else {
            list[t->n++] = now;
        }
    }
    t->segments = list;
    return DTP_OK;
}

/* ---- the whole step ---- */

static void add_share(double *columns, double end_s, double begin_s, double until_s)
{
    const double column_s = end_s / COLUMNS;
    for (int32_t c = (int32_t)(begin_s / column_s); c < COLUMNS && begin_s < until_s; c++) {
        const double next_s = c + 1 == COLUMNS ? until_s : fmin(until_s, column_s * (c + 1));
        columns[c] += fmax(next_s - begin_s, 0.0) / column_s;
        begin_s = fmax(next_s, begin_s);
    }
}

static void name_segment(const timeline *t, const segment *s, dtp_strbuf *out)
{
    if (s->block >= 0) {
        dtp_strbuf_addf(out, "%s %d, ", t->program->graph->blocks[s->block], s->instance);
    }
    dtp_strbuf_addf(out, "%s%s", dtp_phase_name(s->phase),
                    s->block < 0 && t->program->graph->n_blocks > 0 ? ", in no block" : "");
    if (dtp_program_microbatches(t->program) > 1) {
        dtp_strbuf_addf(out, ", microbatch %d", s->microbatch);
    }
}

/* Phases, then instances of blocks: runs of segments that are alike. */
static void put_segments(const timeline *t, double y, bool phases, dtp_strbuf *out)
{
    static const char *const classes[DTP_N_PHASES] = {"forward", "backward", "update"};
    const svg_times times = {LEFT, PLOT, 0.0, t->schedule.end_s};
    for (int32_t i = 0, next; i < t->n; i = next) {
        const segment *s = &t->segments[i];
        const double x = svg_at(&times, s->begin_s);
        next = i + 1;
        while (next < t->n && t->segments[next].phase == s->phase &&
               (phases ? t->segments[next].microbatch == s->microbatch
                       : svg_at(&times, t->segments[next].end_s) - x < 2.0)) {
            next++;
        }
        const double end_s = t->segments[next - 1].end_s;
        const double box[4] = {x, y, svg_at(&times, end_s) - x, LANE - 6};
        dtp_strbuf tip = {0}, label = {0};
        if (phases) {
            dtp_strbuf_addf(&label, "%s %s", dtp_phase_name(s->phase),
                            dtp_seconds(end_s - s->begin_s).text);
        } else {
            name_segment(t, s, &label);
        }
        dtp_strbuf_addf(&tip, "%s: %s", dtp_strbuf_text(&label),
                        dtp_seconds(end_s - s->begin_s).text);
        if (!phases) {
            dtp_strbuf_addf(out, "<g class=\"segment\" data-window=\"%d.%d\">", (int)s->phase,
                            s->block);
        }
        svg_rect(out, box, phases ? classes[s->phase] : i % 2 == 0 ? "even" : "odd", &tip);
        svg_text(out, x + box[2] / 2.0, y + 13.0, 'm', box[2] - 6.0, phases ? "on" : "small",
                 dtp_strbuf_text(&label));
        dtp_strbuf_add(out, phases ? "" : "</g>\n");
        out->failed = out->failed || label.failed;
        dtp_strbuf_free(&label);
    }
}

/* Shares of every column in which compute is busy, by phase, or waits for a collective, and in
 * which a collective runs beside compute or alone. */
static void put_whole(const timeline *t, double y, dtp_strbuf *out)
{
    static const char *const compute[] = {"forward", "backward", "update", "wait"};
    static const char *const collectives[] = {"hidden", "wait"};
    static const char *const names[] = {"phase", "block", "compute", "communication"};
    double lanes[4][COLUMNS] = {{0}}, sums[2][COLUMNS] = {{0}};
    const svg_times times = {LEFT, PLOT, 0.0, t->schedule.end_s};
    for (int64_t k = 0; k < t->schedule.n; k++) {
        const page_slice *s = &t->schedule.slices[k];
        const int32_t phase = (int32_t)s->program->instrs[s->instr].phase;
        double *row = page_is_communication(s->lane) ? sums[0]
                      : s->lane == PAGE_WAIT         ? lanes[3]
                                                     : lanes[phase];
        add_share(row, t->schedule.end_s, s->begin_s, s->end_s);
    }
    /* What runs while compute waits is exposed, the rest of the communication is hidden. */
    for (int32_t c = 0; c < COLUMNS; c++) {
        sums[1][c] = fmin(lanes[3][c], sums[0][c]);
        sums[0][c] -= sums[1][c];
    }
    for (int32_t r = 0; r < 4; r++) {
        if (r == 1 && t->program->graph->n_blocks == 0) {
            continue;
        }
        svg_text(out, LEFT - 8.0, y + 15.0, 'e', LEFT - 8.0, "label", names[r]);
        if (r < 2) {
            put_segments(t, y, r == 0, out);
        }
        /* Rows of shares, one on the other, as areas. */
        double edges[2][COLUMNS] = {{0}};
        for (int32_t k = 0; r >= 2 && k < (r == 2 ? 4 : 2); k++) {
            for (int32_t c = 0; c < COLUMNS; c++) {
                const double share = r == 2 ? lanes[k][c] : sums[k][c];
                const double top = fmin(edges[k % 2][c] + LANE * share, LANE);
                edges[(k + 1) % 2][c] = round(10.0 * top) / 10.0;
            }
            svg_area_put(
                out, &(svg_area){LEFT, PLOT, y + LANE, COLUMNS, edges[k % 2], edges[(k + 1) % 2]},
                r == 2 ? compute[k] : collectives[k]);
        }
        y += 1.2 * LANE;
    }
    svg_axis(out, &times, y);
}

/* ---- a window of it ---- */

/* What a slice is called inside a window: the name of its node in the model, without the place of
 * its block: "mlp.gate", "all_gather mlp.gate". */
static void label_of(const timeline *t, const dtp_instr *instr, dtp_strbuf *out)
{
    const dtp_graph *g = t->program->graph;
    char name[160] = "";
    if (instr->node >= 0) {
        const dtp_node *n = &g->nodes[instr->node];
        dtp_general_name(n->origin >= 0 ? g->nodes[n->origin].name : n->name, name, sizeof name);
    }
    const char *block = strstr(name, ".*.");
    const char *short_name = block != NULL ? block + 3 : name;
    const bool kernel = instr->kind == DTP_INSTR_KERNEL && short_name[0] != '\0';
    dtp_strbuf_addf(out, "%s%s%s", kernel ? "" : dtp_instr_name(instr),
                    kernel || short_name[0] == '\0' ? "" : " ", short_name);
}

/* One slice, or some that are too short to be seen alone. */
typedef struct pending {
    const page_slice *first;
    int32_t n;
    double begin_s, end_s;
} pending;

/* Of a window: tops of the lanes, and whether those of collectives have half of one each. */
typedef struct window_lanes {
    double top[PAGE_N_LANES];
    bool halves;
} window_lanes;

static void put_slices(const timeline *t, const svg_times *times, const window_lanes *lanes,
                       pending *now, dtp_strbuf *out)
{
    static const char *const phases[DTP_N_PHASES] = {"forward", "backward", "update"};
    static const char *const kinds[DTP_N_COLLS] = {"c0", "c1", "c2", "c3", "c4"};
    const page_slice *s = now->first;
    const dtp_instr *instr = &s->program->instrs[s->instr];
    const char *classes = s->lane == PAGE_WAIT             ? "wait"
                          : page_is_communication(s->lane) ? kinds[instr->coll.kind]
                          : instr->kind == DTP_INSTR_COPY  ? "copy"
                                                           : phases[instr->phase];
    const double from = fmax(now->begin_s, times->from_s), to = fmin(now->end_s, times->to_s);
    const double x = svg_at(times, from), width = svg_at(times, to) - x;
    const bool half = lanes->halves && page_is_communication(s->lane);
    const double y = lanes->top[s->lane], height = half ? LANE / 2.0 - 1.0 : LANE - 2;
    dtp_strbuf tip = {0}, label = {0};
    if (now->n == 1) {
        tool_trace_name(s->program, instr, &tip);
        label_of(t, instr, &label);
    } else {
        dtp_strbuf_addf(&tip, "%d instructions", now->n);
    }
    dtp_strbuf_addf(&tip, ", %s", dtp_seconds(now->end_s - now->begin_s).text);
    if (now->n == 1 && s->lane != PAGE_WAIT) {
        tool_trace_more(s->program, instr, &tip);
    }
    dtp_strbuf_add(out, "<g data-label=\"");
    svg_escaped(out, dtp_strbuf_text(&label));
    dtp_strbuf_add(out, "\">");
    svg_rect(out, (const double[]){x, y, width, height}, classes, &tip);
    svg_text(out, x + 3.0, y + 15.0, 's', half ? 0.0 : width - 5.0, "on", dtp_strbuf_text(&label));
    dtp_strbuf_add(out, "</g>\n");
    out->failed = out->failed || label.failed;
    dtp_strbuf_free(&label);
    now->n = 0;
}

/* A window has two lanes; waiting lies in that of compute, and collectives across hosts that have a
 * lane of their own in the lower half of the others'. */
static void put_window(const timeline *t, const segment *w, double y, dtp_strbuf *out)
{
    const svg_times times = {LEFT, PLOT, w->begin_s, w->end_s};
    window_lanes lanes = {
        .top = {y + 22.0, y + 24.0 + LANE, y + 22.0, y + 24.0 + LANE + LANE / 2.0}};
    const double *top = lanes.top;
    const double least_s = LEAST * (w->end_s - w->begin_s) / PLOT;
    pending now[PAGE_N_LANES] = {{0}};
    for (int64_t k = 0; k < t->schedule.n && !lanes.halves; k++) {
        lanes.halves = t->schedule.slices[k].lane == PAGE_FAR;
    }
    dtp_strbuf title = {0};
    if (w->microbatch < 0) {
        dtp_strbuf_add(&title, "the whole step");
    } else {
        name_segment(t, w, &title);
    }
    dtp_strbuf_addf(&title, ": %s", dtp_seconds(w->end_s - w->begin_s).text);
    if (w->begin_s > 0.0) {
        dtp_strbuf_addf(&title, ", from %s on", dtp_seconds(w->begin_s).text);
    }
    dtp_strbuf_addf(out,
                    "<g class=\"window\" id=\"window-%d.%d\" data-left=\"%d\" data-plot=\"%d\""
                    " data-seconds=\"%.9g\" tabindex=\"0\" role=\"group\" aria-label=\"",
                    (int)w->phase, w->block, LEFT, PLOT, w->end_s - w->begin_s);
    svg_escaped(out, dtp_strbuf_text(&title));
    dtp_strbuf_add(out, "\">\n");
    svg_text(out, LEFT, y + 14.0, 's', PLOT, "label", dtp_strbuf_text(&title));
    svg_text(out, LEFT - 8.0, top[0] + 15.0, 'e', LEFT, "label", "compute");
    svg_text(out, LEFT - 8.0, top[1] + 15.0, 'e', LEFT, "label", "communication");
    dtp_strbuf_addf(out,
                    "<svg x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" viewBox=\"%d %.1f %d "
                    "%d\" class=\"slices\">\n",
                    LEFT, top[0], PLOT, 2 * LANE + 4, LEFT, top[0], PLOT, 2 * LANE + 4);
    for (int64_t k = 0; k < t->schedule.n; k++) {
        const page_slice *s = &t->schedule.slices[k];
        pending *q = &now[s->lane];
        if (!(s->end_s > s->begin_s) || s->end_s <= w->begin_s || s->begin_s >= w->end_s) {
            continue;
        }
        if (q->n > 0 && (q->end_s - q->begin_s >= least_s || s->end_s - s->begin_s >= least_s ||
                         s->begin_s - q->end_s >= least_s)) {
            put_slices(t, &times, &lanes, q, out);
        }
        *q = q->n > 0 ? (pending){q->first, q->n + 1, q->begin_s, s->end_s}
                      : (pending){s, 1, s->begin_s, s->end_s};
    }
    for (int32_t lane = 0; lane < PAGE_N_LANES; lane++) {
        if (now[lane].n > 0) {
            put_slices(t, &times, &lanes, &now[lane], out);
        }
    }
    dtp_strbuf_add(out, "</svg>\n<g class=\"times\">\n");
    svg_axis(out, &(svg_times){LEFT, PLOT, 0.0, w->end_s - w->begin_s}, y + 28.0 + 2 * LANE);
    dtp_strbuf_add(out, "</g>\n</g>\n");
    out->failed = out->failed || title.failed;
    dtp_strbuf_free(&title);
}

/* Of a block in a phase the middle instance in the first microbatch: the shortest time with most of
 * its compute, as others may run in between. In no block (-1) the longest segment. */
static bool find_window(const timeline *t, dtp_phase phase, int32_t block, segment *out)
{
    static const double MOST = 0.8;
    double all_s = 0.0, inside_s = 0.0;
    int32_t first = INT32_MAX, last = 0; /* instances: those of a stage */
    for (int32_t i = 0; i < t->n; i++) {
        const segment *s = &t->segments[i];
        last = s->block == block && s->instance > last ? s->instance : last;
        first = s->block == block && s->instance < first ? s->instance : first;
    }
    const int32_t middle = first <= last ? (first + last) / 2 : last / 2;
    out->end_s = out->begin_s = 0.0;
    for (int32_t pass = 0; pass < 2; pass++) {
        for (int32_t i = 0, from = 0; i < t->n; i++) {
            const segment *s = &t->segments[i];
            const bool of = s->phase == phase && s->block == block &&
                            (block < 0 || (s->instance == middle && s->microbatch == 0));
            const double length_s = s->end_s - s->begin_s;
            if (!of) {
                continue;
            }
            all_s += pass == 0 ? length_s : 0.0;
            inside_s += pass == 1 ? length_s : 0.0;
            for (; pass == 1 && block >= 0 && inside_s >= MOST * all_s && from <= i; from++) {
                const segment *f = &t->segments[from];
                const bool also = f->phase == phase && f->block == block &&
                                  f->instance == s->instance && f->microbatch == 0;
                if (also &&
                    (out->end_s <= 0.0 || s->end_s - f->begin_s < out->end_s - out->begin_s)) {
                    *out = *s;
                    out->begin_s = f->begin_s;
                }
                inside_s -= also ? f->end_s - f->begin_s : 0.0;
            }
            if (pass == 1 && block < 0 && length_s > out->end_s - out->begin_s) {
                *out = *s;
            }
        }
    }
    return out->end_s > out->begin_s;
}

dtp_status page_timeline(const page_input *in, dtp_strbuf *out, dtp_err *err)
{
    static const double TOP = 64.0, WINDOW = 118.0;
    timeline t = {.in = in, .program = in->job->program};
    segment windows[MOST_WINDOWS];
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = DTP_MEMORY(err, arena);
    s = s == DTP_OK ? page_schedule_make(in, page_busiest_stage(in), arena, &t.schedule, err) : s;
    s = s == DTP_OK ? find_segments(&t, arena, err) : s;
    if (s == DTP_OK && t.schedule.end_s > 0.0) {
        const int32_t blocks = t.program->graph->n_blocks;
        int32_t n = 0;
        double x = LEFT;
        windows[0] = (segment){-1, -1, -1, DTP_FORWARD, 0.0, t.schedule.end_s};
        for (int32_t k = 0; k < (int32_t)DTP_N_PHASES * (blocks + 1) && n < MOST_WINDOWS; k++) {
            const dtp_phase phase = (dtp_phase)(k / (blocks + 1));
            const int32_t block = blocks - 1 - k % (blocks + 1);
            n += t.schedule.n > MOST_WHOLE && find_window(&t, phase, block, &windows[n]) ? 1 : 0;
        }
        n = n > 0 ? n : 1; /* a short step is drawn whole */
        dtp_strbuf about = {0};
        if (in->job->pipeline != NULL) {
            dtp_strbuf_addf(&about, "Stage %d, which works most. ", page_busiest_stage(in));
        }
        dtp_strbuf_addf(&about,
                        "A step of %s: compute %s, communication %s, of which compute waits "
                        "for %s.",
                        dtp_seconds(t.schedule.end_s).text,
                        dtp_seconds(in->job->predicted.compute_s).text,
                        dtp_seconds(in->job->predicted.comm_s).text,
                        dtp_seconds(in->job->predicted.exposed_comm_s).text);
        svg_begin(out, TOP + 176.0 + WINDOW * n, "step timeline", dtp_strbuf_text(&about));
        svg_text(out, LEFT, 16.0, 's', PLOT, "label", dtp_strbuf_text(&about));
        static const char *const keys[][2] = {
            {"forward", "forward"},    {"backward", "backward"},
            {"update", "update"},      {"hidden", "communication beside compute"},
            {"wait", "compute waits"}, {"c0", "all-reduce"},
            {"c1", "all-gather"},      {"c2", "reduce-scatter"},
            {"c3", "all-to-all"},      {"c4", "permute"},
            {"copy", "copy"}};
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            x = k == 5 ? LEFT : x; /* the second line is for windows alone */
            x = svg_key(out, x, k < 5 ? 40.0 : TOP + 146.0, keys[k][0], keys[k][1]);
        }
        put_whole(&t, TOP - 8.0, out);
        for (int32_t k = 0; k < n; k++) {
            put_window(&t, &windows[k], TOP + 164.0 + WINDOW * k, out);
        }
        svg_end(out);
        dtp_strbuf_free(&about);
    }
    dtp_arena_destroy(arena);
    return s;
}
