/* cross_entropy, its gradient and the parts it decomposes into. The loss over all rows is the sum
 * of partial sums over parts of the rows, which depend on the shape only, in double. */
#include <math.h>
#include <string.h>

#include "executor/cpu/loops/halves.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/loops/parallel.h"
#include "executor/cpu/rows.h"
#include "executor/device/bound/labels.h"
#include "executor/device/convert.h"

typedef struct label_job label_job;

/* One row: its label as a local index (outside [0, local) when it is not here), the weight of the
 * label times 1 - smoothing, and the coefficient of lse. */
typedef struct label_row {
    int64_t at;
    double weight, hit, a;
    bool counts; /* false: ignored, or of no weight, and all of these 0 */
} label_row;

/* Partial result of a part of the rows. */
typedef struct part_result {
    double loss, weight;
    int64_t bad_label;
    bool bad;
} part_result;

typedef void (*label_row_fn)(const label_job *job, const dtp_row_job *rows,
                             const int64_t row[DTP_NEST_VIEWS], const label_row *terms,
                             part_result *part);

/* What rows need besides the row job: labels count from `first` locally. */
struct label_job {
    dtp_row_job rows;
    label_row_fn fn;
    dtp_bound_labels of;
    dtp_dtype label_dtype;
    const void *labels;
    const float *weights;   /* of all classes; NULL: 1, or `halves` */
    const dtp_view *halves; /* 16-bit ones, which label_weight alone may have */
    int64_t first;
    double smooth;  /* smoothing per class */
    double classes; /* sum of the class weights */
    double factor;
};

enum {
    LOGITS = DTP_LOSS_LOGITS,
    LABELS = DTP_LOSS_LABELS,
    LSE = DTP_LOSS_LSE,
    LOSS = DTP_LOSS_LOSS,
    DX = DTP_LOSS_DX
};

static double number(const dtp_view *view, int64_t at)
{
    return (double)dtp_float_at(view->local.dtype, view->data, at);
}

static void set_weights(label_job *job, const dtp_kernel_args *args)
{
    const dtp_view *w = job->of.terms.weights < 0 ? NULL : &args->in[job->of.terms.weights];
    job->smooth = job->of.terms.smoothing / (double)job->of.size;
    const bool half = w != NULL && dtp_dtype_is_half(w->local.dtype);
    job->halves = half ? w : NULL;
    job->weights = w == NULL || half ? NULL : w->data;
    job->classes = w == NULL ? (double)job->of.size
                   : half    ? 0.0
                             : dtp_row_sum(job->of.size, w->data, 1);
    for (int64_t c = 0; half && c < job->of.size; c++) {
        job->classes += number(w, c);
    }
}

static dtp_status bind_labels(const dtp_kernel_args *args, dtp_label_op op, label_row_fn fn,
                              dtp_arena *arena, void **state, dtp_err *err)
{
    label_job *job;
    DTP_STATE(arena, state, job, err);
    job->fn = fn;
    dtp_bind_labels(args, op, &job->of);
    return dtp_row_job_make(&job->rows, args, &job->of.rows, err);
}

static label_job *load_labels(const dtp_kernel_args *args)
{
    label_job *job = args->state;
    const dtp_view *labels = job->of.rows.views[LABELS];
    dtp_row_job_load(&job->rows);
    job->label_dtype = labels->local.dtype;
    job->labels = labels->data;
    job->first = dtp_labels_first(&job->of);
    job->factor = job->of.factor;
    set_weights(job, args);
    return job;
}

/* The terms of a row with this label; false when there is no such class. */
static bool label_row_of(const label_job *job, int64_t label, label_row *row)
{
    memset(row, 0, sizeof *row);
    row->at = -1;
    if (job->of.terms.has_ignore && label == job->of.terms.ignore) {
        return true;
    }
    if (label < 0 || label >= job->of.size) {
        return false;
    }
    row->at = label - job->first;
    row->weight = job->halves != NULL    ? number(job->halves, label)
                  : job->weights == NULL ? 1.0
                                         : (double)job->weights[label];
    row->hit = (1.0 - job->of.terms.smoothing) * row->weight;
    row->a = row->hit + job->smooth * job->classes;
    row->counts = row->a != 0.0;
    return true;
}

/* Sum of x times the class weights over the classes here. */
static double weighted_sum(const label_job *job, const float *x, int64_t step)
{
    if (job->weights == NULL) {
        return dtp_row_sum(job->of.local, x, step);
    }
    return dtp_row_dot(job->of.local, x, step, job->weights + job->first, 1);
}

/* t of a row, or its part here. */
static double picked(const label_job *job, const label_row *row, const float *x, int64_t step)
{
    bool here = row->at >= 0 && row->at < job->of.local;
    double t = here && row->hit != 0.0 ? row->hit * (double)x[row->at * step] : 0.0;
    return job->smooth > 0.0 && row->counts ? t + job->smooth * weighted_sum(job, x, step) : t;
}

/* Runs row number i with its label. */
static void run_label(const label_job *job, const dtp_row_job *mine, int64_t i, part_result *part)
{
    int64_t row[DTP_NEST_VIEWS];
    label_row terms;
    dtp_row_enter(mine, i, row);
    const int64_t label = dtp_element_int(job->label_dtype, job->labels, row[LABELS]);
    if (!label_row_of(job, label, &terms)) {
        part->bad = true;
        part->bad_label = label;
        return;
    }
    job->fn(job, mine, row, &terms, part);
    part->weight += terms.weight;
    dtp_row_leave(mine, i);
}

/* Runs every row with its label; the sum of the parts. */
static part_result each_label(const label_job *job, const dtp_kernel_args *args)
{
    part_result parts[DTP_CPU_PARTS];
    int64_t n = dtp_nest_total(&job->rows.rows), part = dtp_cpu_part(n, 8);
    int64_t n_parts = (n + part - 1) / part;
    int32_t team = dtp_cpu_team(args->threads, n * job->of.local);
    memset(parts, 0, sizeof parts);
#pragma omp parallel num_threads(team) if (team > 1)
    {
        dtp_row_job copy;
        const dtp_row_job *mine = dtp_row_job_mine(&job->rows, args, &copy);
#pragma omp for schedule(static)
        for (int64_t p = 0; p < n_parts; p++) {
            int64_t end = (p + 1) * part < n ? (p + 1) * part : n;
            for (int64_t i = p * part; i < end && !parts[p].bad; i++) {
                run_label(job, mine, i, &parts[p]);
            }
        }
    }
    part_result sum = {0};
    for (int64_t p = 0; p < n_parts; p++) {
        if (parts[p].bad) {
            dtp_kernel_refuse(args, DTP_DATA_LABEL, 1, parts[p].bad_label, job->of.size);
        }
        sum.loss += parts[p].loss;
        sum.weight += parts[p].weight;
    }
    return sum;
}

static void forward_row(const label_job *job, const dtp_row_job *rows,
                        const int64_t row[DTP_NEST_VIEWS], const label_row *terms,
                        part_result *part)
{
    const float *x = rows->data[LOGITS] + row[LOGITS];
    int64_t n = rows->over.inner, step = rows->step[LOGITS];
    float m = dtp_row_max(n, x, step);
    double lse = dtp_row_lse(m, dtp_row_exp_sum(n, x, step, m));
    double loss = terms->counts ? terms->a * lse - picked(job, terms, x, step) : 0.0;
    rows->data[LSE][row[LSE]] = (float)lse;
    part->loss += loss;
    if (job->of.reduce == DTP_LOSS_NONE) {
        rows->data[LOSS][row[LOSS]] = (float)loss;
    }
}

static dtp_status cross_entropy_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    label_job *job = load_labels(args);
    const part_result sum = each_label(job, args);
    if (job->of.weighted) {
        job->factor = 1.0 / sum.weight;
    }
    if (job->of.reduce != DTP_LOSS_NONE) {
        dtp_float_put(args->out[0].local.dtype, args->out[0].data, 0,
                      (float)(sum.loss * job->factor));
    }
    return DTP_OK;
}

/* dx -= scale * smoothing per class * weights. */
static void subtract_smoothing(const label_job *job, double scale, float *dx, int64_t step)
{
    float by = (float)(-scale * job->smooth);
    if (job->weights == NULL) {
        dtp_row_add(job->of.local, dx, dx, step, by);
        return;
    }
    for (int64_t i = 0; i < job->of.local; i++) {
        dx[i * step] += by * job->weights[job->first + i];
    }
}

static void backward_row(const label_job *job, const dtp_row_job *rows,
                         const int64_t row[DTP_NEST_VIEWS], const label_row *terms,
                         part_result *part)
{
    (void)part;
    double scale = (double)rows->data[LOSS][row[LOSS]] * job->factor;
    float lse = rows->data[LSE][row[LSE]];
    float *dx = rows->data[DX] + row[DX];
    if (!terms->counts) {
        for (int64_t i = 0; i < job->of.local; i++) {
            dx[i * rows->step[DX]] = 0.0f;
        }
        return;
    }
    const double by = isfinite(scale) ? scale : 1.0; /* an infinity is no factor of the terms */
    dtp_row_exp_scale(rows->over.inner, rows->data[LOGITS] + row[LOGITS], dx, rows->step[LOGITS],
                      lse, (float)(by * terms->a));
    if (job->smooth > 0.0) {
        subtract_smoothing(job, by, dx, rows->step[DX]);
    }
    if (terms->at >= 0 && terms->at < job->of.local) {
        dx[terms->at * rows->step[DX]] -= (float)(by * terms->hit);
    }
    if (!isfinite(scale)) {
        dtp_row_scale(rows->over.inner, dx, dx, rows->step[DX], (float)scale);
    }
}

static dtp_status cross_entropy_grad_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    label_job *job = load_labels(args);
    if (job->of.terms.total >= 0) {
        const dtp_view *total = &args->in[job->of.terms.total];
        job->factor = 1.0 / (double)dtp_float_at(total->local.dtype, total->data, 0);
    }
    (void)each_label(job, args);
    return DTP_OK;
}

static void pick_row(const label_job *job, const dtp_row_job *rows,
                     const int64_t row[DTP_NEST_VIEWS], const label_row *terms, part_result *part)
{
    (void)part;
    rows->data[LOSS][row[LOSS]] =
        (float)picked(job, terms, rows->data[LOGITS] + row[LOGITS], rows->step[LOGITS]);
}

static dtp_status pick_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    (void)each_label(load_labels(args), args);
    return DTP_OK;
}

/* One thread: a few numbers per row. */
static dtp_status label_weight_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *labels = &args->in[0];
    const dtp_view *views[] = {labels, &args->out[0]};
    label_job job = {.first = 0};
    double total = 0.0;
    dtp_nest nest;
    dtp_bind_labels(args, DTP_LABEL_label_weight, &job.of);
    set_weights(&job, args);
    dtp_nest_like(&nest, 2, views);
    for (int64_t i = 0, n = dtp_nest_total(&nest); i < n; i++) {
        int64_t off[DTP_NEST_VIEWS];
        label_row row;
        dtp_nest_elem(&nest, i, off);
        int64_t label = dtp_element_int(labels->local.dtype, labels->data, off[0]);
        if (!label_row_of(&job, label, &row)) {
            dtp_kernel_refuse(args, DTP_DATA_LABEL, 0, label, job.of.size);
            return DTP_OK;
        }
        dtp_float_put(args->out[0].local.dtype, args->out[0].data, off[1], (float)row.a);
        total += row.weight;
    }
    dtp_float_put(args->out[1].local.dtype, args->out[1].data, 0, (float)total);
    return DTP_OK;
}

/* Operands m, s, t and perhaps a and the total weight; outputs loss, lse. One thread. */
static dtp_status finish_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *m = &args->in[0];
    const bool weighted = args->call->n_in > 3;
    const dtp_view *a = &args->in[weighted ? 3 : 0];
    const dtp_view *views[] = {m, &args->in[1], &args->in[2], &args->out[1], &args->out[0], a};
    const int64_t reduce = dtp_call_int(args->call, "reduce");
    dtp_nest nest;
    double sum = 0.0;
    dtp_nest_like(&nest, 6, views);
    for (int64_t i = 0, n = dtp_nest_total(&nest); i < n; i++) {
        int64_t off[DTP_NEST_VIEWS];
        dtp_nest_elem(&nest, i, off);
        double lse = dtp_row_lse((float)number(m, off[0]), number(views[1], off[1]));
        double of_lse = weighted ? number(a, off[5]) : 1.0;
        double loss = of_lse == 0.0 ? 0.0 : of_lse * lse - number(views[2], off[2]);
        dtp_float_put(views[3]->local.dtype, views[3]->data, off[3], (float)lse);
        sum += loss;
        if (reduce == DTP_LOSS_NONE) {
            dtp_float_put(views[4]->local.dtype, views[4]->data, off[4], (float)loss);
        }
    }
    if (reduce != DTP_LOSS_NONE) {
        double rows = (double)dtp_view_global_rows(m, m->local.rank, m->local.dims);
        if (args->call->n_in > 4) {
            rows = number(&args->in[4], 0);
        }
        dtp_float_put(args->out[0].local.dtype, args->out[0].data, 0,
                      (float)(reduce == DTP_LOSS_MEAN ? sum / rows : sum));
    }
    return DTP_OK;
}

#define BIND(op, fn) DTP_BIND(op, bind_labels, DTP_LABEL_##op, fn)
BIND(cross_entropy, forward_row)
BIND(cross_entropy_grad, backward_row)
BIND(pick, pick_row)

const dtp_kernel dtp_cpu_cross_entropy[] = {
    {"cross_entropy", cross_entropy_kernel, cross_entropy_bind, DTP_NUMBERS},
    {"cross_entropy_grad", cross_entropy_grad_kernel, cross_entropy_grad_bind, DTP_NUMBERS},
    {"pick", pick_kernel, pick_bind, DTP_NUMBERS},
    {"label_weight", label_weight_kernel, NULL, DTP_NUMBERS},
    {"cross_entropy_finish", finish_kernel, NULL, DTP_FLOATS},
    {.op = NULL}};
