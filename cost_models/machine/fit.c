/* From measurements to a machine description (docs/cost-model.md, "Fitting"). */
#include "cost_models/machine/fit.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost_models/machine/coll.h"
#include "cost_models/machine/curve.h"
#include "core/graph/ops/op_table.h"

/* Room for the samples of one curve. */
typedef struct points {
    int32_t n;
    double *x, *y;
} points;

static double usable_time(const dtp_sample *s)
{
    return s->time_s > 1e-12 ? s->time_s : 1e-12;
}

static void add_point(points *p, double bytes, double time_s)
{
    p->x[p->n] = bytes > 1.0 ? bytes : 1.0;
    p->y[p->n++] = time_s;
}

/* ---- ops and copies ---- */

/* Sums of the least squares problem min sum ((u a + v b) / t - 1)^2 over u, v >= 0. */
typedef struct two_terms {
    double aa, ab, bb, a1, b1;
    int32_t n;
} two_terms;

static void add_terms(two_terms *s, double a, double b, double time_s)
{
    a /= time_s;
    b /= time_s;
    s->aa += a * a;
    s->ab += a * b;
    s->bb += b * b;
    s->a1 += a;
    s->b1 += b;
    s->n++;
}

/* When b explains everything, u is 0; v is always positive. */
static void solve_terms(const two_terms *s, double *u, double *v)
{
    double det = s->aa * s->bb - s->ab * s->ab;
    *u = det > 1e-12 * s->aa * s->bb ? fmax((s->a1 * s->bb - s->b1 * s->ab) / det, 0.0) : 0.0;
    *v = (s->b1 - *u * s->ab) / s->bb;
    if (!(*v > 0.0)) {
        *u = 0.0;
        *v = s->b1 / s->bb;
    }
}

/* 1 / inverse, as near as a machine may have it. */
static double rate_of(double inverse, dtp_machine_number number)
{
    const dtp_machine_range *range = dtp_machine_range_of(number);
    return fmin(fmax(1.0 / inverse, range->least), range->most);
}

static bool same_op(const dtp_sample *a, const dtp_sample *b)
{
    return strcmp(a->name, b->name) == 0 && a->arithmetic == b->arithmetic;
}

/* FLOP/s from the shapes in which arithmetic decides, where time = u bytes + FLOPs / rate; 0
 * without such shapes. */
static double op_rate(const dtp_samples *samples, const dtp_sample *like)
{
    two_terms sums = {0};
    double u = 0.0, v = 0.0;
    for (int32_t i = 0; i < samples->n; i++) {
        const dtp_sample *s = &samples->items[i];
        if (s->kind == DTP_SAMPLE_RATE && same_op(s, like) && s->work.flops > 0.0) {
            add_terms(&sums, s->work.bytes, s->work.flops, usable_time(s));
        }
    }
    if (sums.n == 0) {
        return 0.0;
    }
    solve_terms(&sums, &u, &v);
    return rate_of(v, DTP_NUMBER_FLOPS);
}

static dtp_status fit_op(dtp_machine *m, const dtp_samples *samples, const dtp_sample *like,
                         points *p, dtp_op_curve *out, dtp_err *err)
{
    out->op = dtp_arena_strdup(m->arena, like->name);
    DTP_TRY(DTP_MEMORY(err, out->op));
    out->dtype = (dtp_dtype)like->arithmetic;
    out->flops = op_rate(samples, like);
    p->n = 0;
    for (int32_t i = 0; i < samples->n; i++) {
        const dtp_sample *s = &samples->items[i];
        bool curve = s->kind == DTP_SAMPLE_OP || s->kind == DTP_SAMPLE_MOVE;
        if (curve && same_op(s, like)) {
            double arithmetic = out->flops > 0.0 ? s->work.flops / out->flops : 0.0;
            double time_s = usable_time(s);
            add_point(p, s->work.bytes, fmax(time_s - arithmetic, 0.1 * time_s));
        }
    }
    return dtp_curve_from_samples(m->arena, p->n, p->x, p->y, &out->time_s, err);
}

/* ---- the few numbers ---- */

static dtp_status fit_launch(dtp_machine *m, const dtp_samples *samples, dtp_err *err)
{
    bool found = false;
    for (int32_t i = 0; i < samples->n; i++) {
        const dtp_sample *s = &samples->items[i];
        if (s->kind == DTP_SAMPLE_LAUNCH) {
            m->launch_s = found ? fmin(m->launch_s, s->time_s) : s->time_s;
            found = true;
        } else if (s->kind == DTP_SAMPLE_LAUNCH_GRAPH) {
            m->launch_graph_s = s->time_s;
        }
    }
    return found ? DTP_OK : DTP_FAIL(err, DTP_INVALID, "fit: no launch sample");
}

static dtp_status fit_bandwidth(dtp_machine *m, const dtp_samples *samples, dtp_err *err)
{
    double largest = 0.0;
    for (int32_t i = 0; i < samples->n; i++) {
        const dtp_sample *s = &samples->items[i];
        if (s->kind == DTP_SAMPLE_MOVE && strcmp(s->name, "copy") == 0 && s->work.bytes > largest) {
            largest = s->work.bytes;
            m->mem_bw_Bps = s->work.bytes / usable_time(s);
        }
    }
    return largest > 0.0 ? DTP_OK : DTP_FAIL(err, DTP_INVALID, "fit: no sample of move 'copy'");
}

static bool same_gemm(const dtp_gemm_point *p, dtp_arithmetic arithmetic, const dtp_work *w)
{
    return p->arithmetic == arithmetic && p->m == w->m && p->n == w->n && p->k == w->k &&
           p->batch == w->batch && p->trans_a == w->trans_a && p->trans_b == w->trans_b;
}

/* Rates without launch and packing, which prices add again. Repeated shapes keep the faster one. */
static dtp_status fit_gemm(dtp_machine *m, const dtp_samples *samples, dtp_err *err)
{
    DTP_TRY(DTP_NEW(m->arena, m->gemm, samples->n + 1, err));
    for (int32_t i = 0; i < samples->n; i++) {
        const dtp_sample *s = &samples->items[i];
        const dtp_work *w = &s->work;
        if (s->kind != DTP_SAMPLE_GEMM || w->cls != DTP_WORK_GEMM) {
            continue;
        }
        double extra = dtp_machine_launch_s(m) + w->pack_bytes / m->mem_bw_Bps;
        double body = fmax(s->time_s - extra, 0.1 * usable_time(s));
        double rate = 2.0 * (double)w->m * (double)w->n * (double)w->k * (double)w->batch / body;
        int32_t k = 0;
        while (k < m->n_gemm && !same_gemm(&m->gemm[k], s->arithmetic, w)) {
            k++;
        }
        if (k == m->n_gemm) {
            m->gemm[m->n_gemm++] = (dtp_gemm_point){w->m,       w->n, w->k,          w->trans_a,
                                                    w->trans_b, rate, s->arithmetic, w->batch};
        }
        m->gemm[k].flops = fmax(m->gemm[k].flops, rate);
        m->flops[s->arithmetic] = fmax(m->flops[s->arithmetic], rate);
    }
    return m->flops[DTP_F32] > 0.0 ? DTP_OK : DTP_FAIL(err, DTP_INVALID, "fit: no GEMM sample");
}

/* ---- collectives ---- */

/* One level of all ranks. Its bandwidth is the most that a link of one passed. */
static dtp_status fit_colls(dtp_machine *m, const dtp_samples *samples, dtp_err *err)
{
    const int32_t ranks = samples->ranks;
    dtp_level *level = &m->levels[0];
    dtp_coll_sample *colls;
    int32_t n = 0;
    bool over_all = false;
    double error = 0.0, fastest = 0.0;
    if (ranks < 2) {
        return DTP_OK;
    }
    DTP_TRY(DTP_NEW(m->arena, colls, samples->n, err));
    for (int32_t i = 0; i < samples->n; i++) {
        const dtp_sample *s = &samples->items[i];
        if (s->kind == DTP_SAMPLE_COLL) {
            const double ring = (s->ranks - 1.0) / s->ranks;
            const double moved = s->coll == DTP_PERMUTE                      ? 1.0
                                 : s->coll == DTP_ALL_REDUCE && s->ranks > 2 ? 2.0 * ring
                                 : s->coll == DTP_ALL_REDUCE                 ? 1.0
                                                                             : ring;
            const dtp_group_shape g = {s->ranks, 0, {s->ranks}, {1.0}, false};
            colls[n++] = (dtp_coll_sample){g, {s->coll, s->work.bytes, 1}, usable_time(s)};
            over_all = over_all || s->ranks == ranks;
            fastest = fmax(fastest, moved * s->work.bytes / usable_time(s));
        }
    }
    if (!over_all) {
        return DTP_FAIL(err, DTP_INVALID, "fit: no collective over all %d ranks", ranks);
    }
    *level = (dtp_level){
        .name = "ranks", .size = ranks, .bw_Bps = rate_of(1.0 / fastest, DTP_NUMBER_BW)};
    m->n_levels = 1;
    DTP_TRY(dtp_level_fit(m->levels, 0, n, colls, &error, err));
    level->latency_s = dtp_level_rate(level, DTP_ALL_REDUCE).start_s;
    return DTP_OK;
}

/* ---- all of it ---- */

static dtp_status copy_text(dtp_machine *m, const char *text, const char **out, dtp_err *err)
{
    *out = dtp_arena_strdup(m->arena, text != NULL ? text : "");
    return DTP_MEMORY(err, *out);
}

static dtp_status fit_all(dtp_machine *m, const dtp_samples *samples,
                          const dtp_fit_options *options, points *p, dtp_err *err)
{
    m->memory_bytes = options->memory_bytes;
    m->provenance_how = "measured";
    m->provenance_threads = samples->threads;
    m->provenance_ranks = samples->ranks;
    DTP_TRY(copy_text(m, options->date, &m->provenance_date, err));
    DTP_TRY(copy_text(m, options->host, &m->provenance_host, err));
    DTP_TRY(copy_text(m, options->tool, &m->provenance_tool, err));
    DTP_TRY(copy_text(m, options->blas, &m->blas, err));
    DTP_TRY(copy_text(m, options->device, &m->provenance_device, err));
    DTP_TRY(copy_text(m, options->runtime, &m->runtime, err));
    m->host_s = options->host_s;
    DTP_TRY(copy_text(m, options->kind != NULL ? options->kind : "cpu", &m->kind, err));
    DTP_TRY(fit_launch(m, samples, err));
    DTP_TRY(fit_bandwidth(m, samples, err));
    DTP_TRY(fit_gemm(m, samples, err));
    /* One curve per name and dtype; ops without one are priced like "add". */
    DTP_TRY(DTP_NEW(m->arena, m->op_curves, samples->n + DTP_N_DTYPES, err));
    for (int32_t i = 0; i < samples->n; i++) {
        const dtp_sample *s = &samples->items[i];
        bool known = s->kind != DTP_SAMPLE_OP && s->kind != DTP_SAMPLE_MOVE;
        for (int32_t k = 0; k < m->n_op_curves && !known; k++) {
            const dtp_op_curve *c = &m->op_curves[k];
            known = strcmp(c->op, s->name) == 0 && (dtp_arithmetic)c->dtype == s->arithmetic;
        }
        if (!known) {
            DTP_TRY(fit_op(m, samples, s, p, &m->op_curves[m->n_op_curves], err));
            m->n_op_curves++;
        }
    }
    for (int32_t k = 0, n = m->n_op_curves; k < n; k++) {
        const dtp_op_def *op = dtp_op_find(m->op_curves[k].op);
        if (op != NULL && (op->flags & DTP_OP_SUM) != 0) {
            m->op_curves[m->n_op_curves] = m->op_curves[k];
            m->op_curves[m->n_op_curves++].op = "*";
        }
    }
    DTP_TRY(fit_colls(m, samples, err));
    for (int32_t i = 0; i < samples->n; i++) {
        const dtp_sample *s = &samples->items[i];
        if (s->kind == DTP_SAMPLE_BESIDE) { /* only where collectives go on beside kernels */
            m->overlap = true;
            m->slowdown = (dtp_slowdown){s->slower[0], s->slower[1]};
        }
    }
    DTP_TRY(dtp_machine_index(m, err));
    return dtp_machine_say_units(m, err);
}

dtp_status dtp_machine_fit(const dtp_samples *samples, const dtp_fit_options *options,
                           dtp_machine **out, dtp_err *err)
{
    dtp_machine *m = NULL;
    DTP_TRY(dtp_machine_create(options->name != NULL ? options->name : "measured", &m, err));
    size_t room = (size_t)samples->n + 1;
    points p = {0, malloc(room * sizeof *p.x), malloc(room * sizeof *p.y)};
    dtp_status status = DTP_MEMORY(err, p.x, p.y);
    status = status == DTP_OK ? fit_all(m, samples, options, &p, err) : status;
    free(p.x);
    free(p.y);
    if (status != DTP_OK) {
        dtp_machine_destroy(m);
        return status;
    }
    *out = m;
    return DTP_OK;
}
