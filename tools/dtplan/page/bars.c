/* The plan beside baselines, as bars of time and memory, and as points of both. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/units.h"
#include "tools/dtplan/page/page.h"

enum {
    ROW = 24,
    TOP = 66,
    NAME_X = 200,
    TIME_WIDTH = 330,
    MEMORY_X = 650,
    MEMORY_WIDTH = 240,
    VALUE_X = 990
};

/* A plan or a baseline. */
typedef struct rival {
    const char *name;
    const dtp_prediction *p;
    bool own, fits;
} rival;

const char *page_baseline_name(const char *name)
{
    static const char *const names[][2] = {
        {"replicated", "replicated"},
        {"data_parallel", "data parallel"},
        {"zero1", "ZeRO-1"},
        {"zero2", "ZeRO-2"},
        {"zero3", "FSDP (ZeRO-3)"},
        {"megatron", "TP"},
        {"megatron_sp", "TP + SP"},
        {"data_megatron", "DP × TP"},
        {"data_megatron_sp", "DP × (TP + SP)"},
        {"zero1_megatron_sp", "ZeRO-1 × (TP + SP)"},
        {"zero3_megatron", "FSDP × TP"},
        {"zero3_megatron_sp", "FSDP × (TP + SP)"},
        {"expert_parallel", "DP, experts split"},
        {"zero3_expert", "FSDP, experts split"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        name = strcmp(name, names[i][0]) == 0 ? names[i][1] : name;
    }
    return name;
}

static int by_step(const void *a, const void *b)
{
    const rival *x = a, *y = b;
    if (x->p->step_time_s != y->p->step_time_s) {
        return x->p->step_time_s < y->p->step_time_s ? -1 : 1;
    }
    return x->own != y->own ? (x->own ? -1 : 1) : strcmp(x->name, y->name);
}

/* The plan and all legal baselines, the fastest first. */
static dtp_status find_rivals(const page_input *in, dtp_arena *arena, int32_t *n, rival **out,
                              dtp_err *err)
{
    const dtp_plan *plan = in->plan;
    rival *list;
    DTP_TRY(DTP_NEW(arena, list, plan->n_baselines + 1, err));
    list[0] = (rival){"this plan", &in->job->predicted, true, true};
    *n = 1;
    for (int32_t i = 0; i < plan->n_baselines; i++) {
        const dtp_baseline *b = &plan->baselines[i];
        if (b->legal && b->predicted.step_time_s > 0.0) {
            list[(*n)++] = (rival){page_baseline_name(b->name), &b->predicted, false,
                                   dtp_plan_baseline_fits(plan, b)};
        }
    }
    qsort(list, (size_t)*n, sizeof *list, by_step);
    *out = list;
    return DTP_OK;
}

static void put_bar(dtp_strbuf *out, double x, double y, double length, const char *classes)
{
    svg_rect(out, (const double[]){x, y, length, ROW - 8.0}, classes, NULL);
}

/* Bars are cut at four times the plan's: what is beyond is beside the point. */
static void put_rival(const rival *r, const double unit[2], double y, dtp_strbuf *out)
{
    const dtp_prediction *p = r->p;
    const double step = fmin(p->step_time_s * unit[0], TIME_WIDTH);
    const double waits = fmin(p->exposed_comm_s * unit[0], step);
    const double memory = fmin((double)p->peak_bytes * unit[1], MEMORY_WIDTH);
    const bool cut = p->step_time_s * unit[0] > TIME_WIDTH;
    dtp_strbuf text = {0};
    svg_text(out, NAME_X - 8.0, y + 12.0, 'e', NAME_X - 10.0, r->own ? "head" : "label", r->name);
    put_bar(out, NAME_X, y, step - waits, r->own ? "own" : "forward");
    put_bar(out, NAME_X + step - waits, y, waits, "wait");
    dtp_strbuf_addf(&text, "%s%s", cut ? "… " : "", dtp_seconds(p->step_time_s).text);
    svg_text(out, NAME_X + step + 6.0, y + 12.0, 's', 110.0, "small", dtp_strbuf_text(&text));
    dtp_strbuf_free(&text);
    put_bar(out, MEMORY_X, y, memory, r->fits ? r->own ? "own" : "m1" : "over");
    dtp_strbuf_addf(&text, "%s%s",
                    r->fits ? "" : "over: ", dtp_byte_count((double)p->peak_bytes).text);
    svg_text(out, VALUE_X, y + 12.0, 'e', VALUE_X - MEMORY_X - MEMORY_WIDTH, "small",
             dtp_strbuf_text(&text));
    out->failed = out->failed || text.failed;
    dtp_strbuf_free(&text);
}

dtp_status page_baselines(const page_input *in, dtp_strbuf *out, dtp_err *err)
{
    rival *list;
    int32_t n = 0;
    const double own_bytes = (double)in->job->predicted.peak_bytes;
    const double limit = (double)in->plan->memory_limit_bytes;
    double most_s = 0.0, most_bytes = 1.0;
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = DTP_MEMORY(err, arena);
    s = s == DTP_OK ? find_rivals(in, arena, &n, &list, err) : s;
    if (s == DTP_OK) {
        const double own_s = in->job->predicted.step_time_s;
        for (int32_t i = 0; i < n; i++) {
            most_s = fmax(most_s, list[i].p->step_time_s);
            most_bytes = fmax(most_bytes, (double)list[i].p->peak_bytes);
        }
        most_bytes = fmin(most_bytes, 4.0 * fmax(own_bytes, limit));
        most_bytes = limit < 2.0 * most_bytes ? fmax(most_bytes, limit) : most_bytes;
        const double unit[2] = {TIME_WIDTH / fmin(most_s, 4.0 * own_s), MEMORY_WIDTH / most_bytes};
        const double limit_x = fmin(MEMORY_X + unit[1] * limit, MEMORY_X + MEMORY_WIDTH);
        const double bottom = TOP + ROW * n;
        svg_begin(
            out, bottom + 26.0, "this plan beside usual layouts",
            "Step time and peak memory of this plan and of layouts that people write by hand, "
            "predicted by the same model.");
        svg_text(out, NAME_X, 16.0, 's', TIME_WIDTH, "head", "step");
        svg_text(out, MEMORY_X, 16.0, 's', MEMORY_WIDTH, "head", "peak memory of a rank");
        double x = svg_key(out, NAME_X, 42.0, "own", "this plan");
        x = svg_key(out, x, 42.0, "forward", "others");
        (void)svg_key(out, x, 42.0, "wait", "waits for collectives");
        x = svg_key(out, MEMORY_X, 42.0, "m1", "within the limit");
        (void)svg_key(out, x, 42.0, "over", "over it");
        for (int32_t i = 0; i < n; i++) {
            put_rival(&list[i], unit, TOP + ROW * i, out);
        }
        if (limit > 0.0) {
            dtp_strbuf text = {0};
            dtp_strbuf_addf(&text, "limit %s%s", dtp_byte_count(limit).text,
                            limit > most_bytes ? ", beyond the drawing" : "");
            if (limit <= most_bytes) {
                svg_line(out, (const double[]){limit_x, TOP - 6.0, limit_x, bottom}, "limit");
            }
            svg_text(out, limit_x, bottom + 16.0, 'm', 260.0, "small", dtp_strbuf_text(&text));
            out->failed = out->failed || text.failed;
            dtp_strbuf_free(&text);
        }
        svg_end(out);
    }
    dtp_arena_destroy(arena);
    return s;
}

/* ---- memory against time ---- */

enum { X0 = 90, WIDE = 850, Y0 = 44, HIGH = 300 };

enum { MOST_POINTS = 300 };

/* A point is drawn up to so many times the plan's time and memory. */
static const double FARTHEST = 6.0;

typedef struct point {
    const char *name; /* NULL: none is written */
    const dtp_prediction *p;
    const char *classes;
    double x, y;
} point;

/* Logarithms of memory and time, from the least to the most that is drawn. */
typedef struct scatter {
    double low[2], high[2];
    int32_t n, n_labels;
    point points[MOST_POINTS];
    double labels[MOST_POINTS][4]; /* boxes: x, y, width, height */
} scatter;

static void add_point(scatter *c, const dtp_prediction *p, const char *classes, const char *name)
{
    const double at[2] = {log((double)p->peak_bytes), log(p->step_time_s)};
    if (c->n < MOST_POINTS && p->step_time_s > 0.0 && p->peak_bytes > 0) {
        c->points[c->n++] = (point){name, p, classes, 0.0, 0.0};
        for (int32_t k = 0; k < 2; k++) {
            c->low[k] = fmin(c->low[k], at[k]);
            c->high[k] = fmax(c->high[k], at[k]);
        }
    }
}

static bool overlaps(const double a[4], const double b[4])
{
    return a[0] < b[0] + b[2] && b[0] < a[0] + a[2] && a[1] < b[1] + b[3] && b[1] < a[1] + a[3];
}

/* The name of a point right, left, above or below it, where it lies on nothing else. */
static void put_name(scatter *c, const point *q, dtp_strbuf *out)
{
    const double width = svg_width_of(q->name);
    const double places[4][4] = {{q->x + 8.0, q->y - 7.0, width, 14.0},
                                 {q->x - 8.0 - width, q->y - 7.0, width, 14.0},
                                 {q->x - width / 2.0, q->y - 21.0, width, 14.0},
                                 {q->x - width / 2.0, q->y + 7.0, width, 14.0}};
    for (int32_t k = 0; k < 4; k++) {
        bool free = places[k][0] >= X0 && places[k][0] + width < SVG_WIDTH;
        for (int32_t i = 0; i < c->n_labels && free; i++) {
            free = !overlaps(places[k], c->labels[i]);
        }
        for (int32_t i = 0; i < c->n && free; i++) {
            const point *other = &c->points[i];
            free =
                !overlaps(places[k], (const double[]){other->x - 6.0, other->y - 6.0, 12.0, 12.0});
        }
        if (free) {
            memcpy(c->labels[c->n_labels++], places[k], sizeof places[k]);
            const double x = k == 0 ? places[0][0] : k == 1 ? q->x - 8.0 : q->x;
            svg_text(out, x, places[k][1] + 11.0, "semm"[k], width + 7.0, "small", q->name);
            return;
        }
    }
}

/* Points of the plan, which comes first, of the front and of what is not too far from the plan.
 * Appends the names of the others. */
static void find_points(const page_input *in, int32_t n, const rival *list, scatter *c,
                        dtp_strbuf *far)
{
    const dtp_prediction *own = &in->job->predicted;
    add_point(c, own, "own", "this plan");
    for (int32_t i = 0; in->pareto != NULL && i < in->pareto->n; i++) {
        add_point(c, &in->pareto->points[i].plan->predicted, "front", NULL);
    }
    for (int32_t i = 0; i < n; i++) {
        const dtp_prediction *p = list[i].p;
        if (!list[i].own && p->step_time_s <= FARTHEST * own->step_time_s &&
            (double)p->peak_bytes <= FARTHEST * (double)own->peak_bytes) {
            add_point(c, p, list[i].fits ? "forward" : "over", list[i].name);
        } else if (!list[i].own) {
            dtp_strbuf_addf(far, "%s%s",
                            far->len > 0 ? ", " : "too far to be drawn: ", list[i].name);
        }
    }
    for (int32_t k = 0; k < 2; k++) { /* a margin; of one point, some width */
        const double margin = fmax(0.06 * (c->high[k] - c->low[k]), 0.05);
        c->low[k] -= margin;
        c->high[k] += margin;
    }
    for (int32_t i = 0; i < c->n; i++) {
        point *q = &c->points[i];
        const double at[2] = {log((double)q->p->peak_bytes), log(q->p->step_time_s)};
        q->x = X0 + WIDE * (at[0] - c->low[0]) / (c->high[0] - c->low[0]);
        q->y = Y0 + HIGH - HIGH * (at[1] - c->low[1]) / (c->high[1] - c->low[1]);
    }
}

static void put_points(scatter *c, dtp_strbuf *out)
{
    const point *last = NULL;
    for (int32_t i = 0; i < c->n; i++) {
        const point *q = &c->points[i];
        if (q->name == NULL && last != NULL) {
            svg_line(out, (const double[]){last->x, last->y, q->x, q->y}, "front");
        }
        last = q->name == NULL ? q : last;
    }
    for (int32_t i = c->n - 1; i >= 0; i--) { /* this plan above all */
        const point *q = &c->points[i];
        dtp_strbuf tip = {0};
        dtp_strbuf_addf(&tip, "%s: %s, %s", q->name != NULL ? q->name : "on the front",
                        dtp_seconds(q->p->step_time_s).text,
                        dtp_byte_count((double)q->p->peak_bytes).text);
        svg_rect(out, (const double[]){q->x - 5.0, q->y - 5.0, 10.0, 10.0}, q->classes, &tip);
    }
    for (int32_t i = 0; i < c->n; i++) {
        if (c->points[i].name != NULL) {
            put_name(c, &c->points[i], out);
        }
    }
}

dtp_status page_pareto(const page_input *in, dtp_strbuf *out, dtp_err *err)
{
    rival *list;
    int32_t n = 0;
    scatter *c;
    dtp_strbuf far = {0};
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = DTP_MEMORY(err, arena);
    s = s == DTP_OK ? find_rivals(in, arena, &n, &list, err) : s;
    s = s == DTP_OK ? DTP_NEW(arena, c, 1, err) : s;
    if (s == DTP_OK) {
        *c = (scatter){.low = {INFINITY, INFINITY}, .high = {-INFINITY, -INFINITY}};
        find_points(in, n, list, c, &far);
        svg_begin(
            out, Y0 + HIGH + 56.0, "memory against time",
            "Step time against peak memory, both logarithmic: this plan, usual layouts and the "
            "plans of the Pareto front.");
        double x = svg_key(out, X0, 16.0, "own", "this plan");
        x = svg_key(out, x, 16.0, "forward", "usual layouts");
        x = svg_key(out, x, 16.0, "over", "over the memory limit");
        if (in->pareto != NULL) {
            x = svg_key(out, x, 16.0, "front", "Pareto front: the fastest plans found");
        }
        svg_text(out, x, 16.0, 's', SVG_WIDTH - x, "small", dtp_strbuf_text(&far));
        svg_line(out, (const double[]){X0, Y0 + HIGH + 8.0, X0 + WIDE, Y0 + HIGH + 8.0}, "axis");
        svg_line(out, (const double[]){X0 - 8.0, Y0, X0 - 8.0, Y0 + HIGH}, "axis");
        svg_text(out, X0 + WIDE / 2.0, Y0 + HIGH + 44.0, 'm', WIDE, "label",
                 "peak memory of a rank");
        for (int32_t k = 0; k <= 5; k++) {
            const double share = k / 5.0;
            const double bytes = exp(c->low[0] + share * (c->high[0] - c->low[0]));
            const double step_s = exp(c->low[1] + share * (c->high[1] - c->low[1]));
            svg_text(out, X0 + WIDE * share, Y0 + HIGH + 26.0, 'm', 100.0, "small",
                     dtp_byte_count(bytes).text);
            svg_text(out, X0 - 14.0, Y0 + HIGH - HIGH * share + 4.0, 'e', X0, "small",
                     dtp_seconds(step_s).text);
        }
        put_points(c, out);
        svg_end(out);
    }
    out->failed = out->failed || far.failed;
    dtp_strbuf_free(&far);
    dtp_arena_destroy(arena);
    return s;
}
