/* The step of a plan with stages: a row for every stage with its sections, gaps where it waits for
 * others, and below each what it sends. */
#include <math.h>

#include "core/base/units.h"
#include "tools/dtplan/page/page.h"

enum { LEFT = 118, PLOT = 660, ROW = 34, BAR = 20, COLUMNS = 330 };

static const double TOP = 64.0, NARROW = 3.0; /* pixels of sections that are drawn one by one */
static const char *const classes[] = {"forward", "backward", "update"};

static int32_t class_of(const dtp_stage_action *a)
{
    return a->section < DTP_SECTION_UPDATE ? a->section : DTP_SECTION_UPDATE;
}

/* One rectangle for each section of a stage. */
static void put_sections(const dtp_pipeline *p, const dtp_pipeline_step *step, int32_t s,
                         const svg_times *times, double y, dtp_strbuf *out)
{
    for (int32_t i = 0; i < p->table.n_actions[s]; i++) {
        const dtp_stage_action *a = &p->table.actions[s][i];
        const double time_s = dtp_pipeline_section_s(&p->table, &p->times, a);
        const double x = svg_at(times, step->begin_s[s][i]);
        const double width = svg_at(times, step->begin_s[s][i] + time_s) - x;
        dtp_strbuf tip = {0}, label = {0};
        if (a->section < DTP_SECTION_UPDATE) {
            dtp_strbuf_addf(&label, "%c%d", a->section == DTP_SECTION_FORWARD ? 'F' : 'B',
                            a->microbatch);
        } else {
            dtp_strbuf_add(&label, dtp_section_name(a->section).text);
        }
        dtp_strbuf_addf(&tip, "stage %d, %s", s, dtp_strbuf_text(&label));
        if (p->n > p->table.n_stages) {
            dtp_strbuf_addf(&tip, " of chunk %d", a->chunk / p->table.n_stages);
        }
        dtp_strbuf_addf(&tip, ": %s, from %s on", dtp_seconds(time_s).text,
                        dtp_seconds(step->begin_s[s][i]).text);
        svg_rect(out, (const double[]){x, y, fmax(width - 0.6, 0.4), BAR}, classes[class_of(a)],
                 &tip);
        svg_text(out, x + width / 2.0, y + 14.0, 'm', width - 2.0, "on", dtp_strbuf_text(&label));
        out->failed = out->failed || label.failed;
        dtp_strbuf_free(&label);
    }
}

/* Shares of columns, where sections are too many. */
static void put_shares(const dtp_pipeline *p, const dtp_pipeline_step *step, int32_t s, double y,
                       dtp_strbuf *out)
{
    double shares[3][COLUMNS] = {{0}}, edges[2][COLUMNS] = {{0}};
    const double column_s = step->end_s / COLUMNS;
    for (int32_t i = 0; i < p->table.n_actions[s]; i++) {
        const dtp_stage_action *a = &p->table.actions[s][i];
        const double from = step->begin_s[s][i] / column_s;
        const double to = from + dtp_pipeline_section_s(&p->table, &p->times, a) / column_s;
        for (int32_t c = (int32_t)from; c < COLUMNS && c < to; c++) {
            shares[class_of(a)][c] += fmax(fmin(to, c + 1.0) - fmax(from, c), 0.0);
        }
    }
    for (int32_t k = 0; k < 3; k++) {
        for (int32_t c = 0; c < COLUMNS; c++) {
            const double top = fmin(edges[k % 2][c] + BAR * shares[k][c], BAR);
            edges[(k + 1) % 2][c] = round(10.0 * top) / 10.0;
        }
        svg_area_put(out,
                     &(svg_area){LEFT, PLOT, y + BAR, COLUMNS, edges[k % 2], edges[(k + 1) % 2]},
                     classes[k]);
    }
}

/* What a stage sends, below its sections. */
static void put_sends(const dtp_pipeline *p, const dtp_pipeline_step *step, int32_t s,
                      const svg_times *times, double y, dtp_strbuf *out)
{
    for (int32_t k = 0; k < p->times.n_messages; k++) {
        const dtp_stage_message *x = &p->times.messages[k];
        const int32_t n = dtp_message_sends(p, x);
        for (int32_t m = 0; m < n && x->from % p->table.n_stages == s; m++) {
            const double from = svg_at(times, step->arrival_s[k][m] - x->time_s);
            const double width = svg_at(times, step->arrival_s[k][m]) - from;
            dtp_strbuf tip = {0};
            dtp_strbuf_addf(&tip, "sends %s, microbatch %d: %s, %s", dtp_message_print(p, x).text,
                            n > 1 ? m : p->table.n_microbatches - 1,
                            dtp_byte_count((double)x->bytes).text, dtp_seconds(x->time_s).text);
            svg_rect(out, (const double[]){from, y, fmax(width, 0.4), 4.0}, "c4", &tip);
        }
    }
}

static void put_stage(const dtp_pipeline *p, const dtp_pipeline_step *step, int32_t s, double y,
                      dtp_strbuf *out)
{
    const svg_times times = {LEFT, PLOT, 0.0, step->end_s};
    const double work_s = dtp_pipeline_work_s(p, s);
    const bool one_by_one = PLOT * work_s / step->end_s > NARROW * p->table.n_actions[s];
    dtp_strbuf label = {0}, side = {0};
    dtp_strbuf_addf(&label, "stage %d", s);
    dtp_strbuf_addf(&side, "works %.1f %%, peak %s", 100.0 * work_s / step->end_s,
                    dtp_byte_count((double)p->programs[s]->peak_bytes).text);
    svg_text(out, LEFT - 8.0, y + 14.0, 'e', LEFT, "label", dtp_strbuf_text(&label));
    svg_text(out, LEFT + PLOT + 12.0, y + 14.0, 's', SVG_WIDTH - LEFT - PLOT - 12.0, "small",
             dtp_strbuf_text(&side));
    svg_rect(out, (const double[]){LEFT, y, PLOT, BAR}, "even", NULL);
    if (one_by_one) {
        put_sections(p, step, s, &times, y, out);
        put_sends(p, step, s, &times, y + BAR + 2.0, out);
    } else {
        put_shares(p, step, s, y, out);
    }
    out->failed = out->failed || label.failed || side.failed;
    dtp_strbuf_free(&label);
    dtp_strbuf_free(&side);
}

dtp_status page_stages(const page_input *in, dtp_strbuf *out, dtp_err *err)
{
    const dtp_pipeline *p = in->job->pipeline;
    const dtp_prediction *x = &in->job->predicted;
    dtp_pipeline_step step;
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = DTP_MEMORY(err, arena);
    s = s == DTP_OK ? dtp_pipeline_replay(&p->table, &p->times, arena, &step, err) : s;
    if (s == DTP_OK && step.end_s > 0.0) {
        const int32_t n = p->table.n_stages;
        double at = LEFT;
        dtp_strbuf about = {0};
        dtp_strbuf_addf(&about,
                        "A step of %s with %d microbatches: bubble %s, imbalance %s, exposed sends "
                        "%s.",
                        dtp_seconds(x->step_time_s).text, p->table.n_microbatches,
                        dtp_seconds(x->bubble_s).text, dtp_seconds(x->imbalance_s).text,
                        dtp_seconds(x->exposed_sends_s).text);
        svg_begin(out, TOP + ROW * n + 24.0, "stages", dtp_strbuf_text(&about));
        svg_text(out, LEFT, 16.0, 's', SVG_WIDTH - LEFT, "label", dtp_strbuf_text(&about));
        static const char *const keys[][2] = {{"forward", "forward"},
                                              {"backward", "backward"},
                                              {"update", "update"},
                                              {"even", "the stage waits"},
                                              {"c4", "what it sends"}};
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            at = svg_key(out, at, 40.0, keys[k][0], keys[k][1]);
        }
        for (int32_t k = 0; k < n; k++) {
            put_stage(p, &step, k, TOP + ROW * k, out);
        }
        svg_axis(out, &(svg_times){LEFT, PLOT, 0.0, step.end_s}, TOP + ROW * n);
        svg_end(out);
        out->failed = out->failed || about.failed;
        dtp_strbuf_free(&about);
    }
    dtp_arena_destroy(arena);
    return s;
}
