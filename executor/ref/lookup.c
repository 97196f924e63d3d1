/* Reference kernels of the ops that look elements up by integer: gather, embedding, scatter_add and
 * cross-entropy (core/graph/ops/cross_entropy.h). */
#include <math.h>
#include <string.h>

#include "core/graph/ops/cross_entropy.h"
#include "executor/ref/index.h"
#include "executor/ref/kernels.h"

/* Where position `id` of a dim is on this rank, -1 when it is elsewhere. */
static int64_t here(const dtp_view *view, dtp_dim_id d, int64_t id)
{
    int64_t at = id - dtp_ref__offset(view, d);
    return at >= 0 && at < dtp_ref__local(view, d) ? at : -1;
}

/* Also embedding; scatter_add also as its gradient. */
static dtp_status run_gather(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *x = &args->in[0];
    const dtp_dim_id over = dtp_call_dim(args->call, "over");
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        int64_t id;
        if (!dtp_ref__id(args, 1, &l, DTP_DATA_ID, dtp_ref__global(x, over), &id)) {
            return DTP_OK;
        }
        dtp_ref_loop from = l;
        int64_t at = here(x, over, id);
        dtp_ref__put(&from, over, at);
        if (at < 0) {
            dtp_ref__set(&args->out[0], &l, 0.0);
        } else {
            dtp_ref__copy(&args->out[0], &l, x, &from);
        }
    }
    return DTP_OK;
}

static dtp_status run_scatter_add(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *src = &args->in[1], *sum = &args->out[0];
    const dtp_dim_id over = dtp_call_dim(args->call, "over");
    const bool skips = dtp_op_attr(args->call->op, "skip") != NULL;
    const int64_t skip = skips ? dtp_call_int(args->call, "skip") : -1;
    dtp_ref_loop l = dtp_ref__over(&src->local);
    dtp_ref__clear(sum);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        int64_t id;
        if (!dtp_ref__id(args, 0, &l, DTP_DATA_ID, dtp_ref__global(sum, over), &id)) {
            return DTP_OK;
        }
        dtp_ref_loop to = l;
        int64_t at = here(sum, over, id);
        dtp_ref__put(&to, over, at);
        if (at < 0 || id == skip) {
            continue;
        }
        if (dtp_dtype_is_float(src->local.dtype)) {
            dtp_ref__accumulate(sum, &to, dtp_ref__get(src, &l));
        } else {
            const uint64_t total =
                (uint64_t)dtp_ref__get_int(sum, &to) + (uint64_t)dtp_ref__get_int(src, &l);
            dtp_ref__set_int(sum, &to, (int64_t)total);
        }
    }
    return DTP_OK;
}

/* ---- cross-entropy ---- */

/* What the loss depends on besides the logits. */
typedef struct loss_job {
    const dtp_kernel_args *args;
    dtp_loss_terms terms;
    const dtp_view *x, *weights; /* may be NULL */
    int32_t labels;              /* operand */
    dtp_dim_id over;
    int64_t classes; /* labels lie below */
    double total;    /* sum of the class weights */
} loss_job;

static double class_weight(const loss_job *j, int64_t c)
{
    dtp_ref_loop at = {.n = 0};
    dtp_ref__put(&at, j->over, c);
    return j->weights == NULL ? 1.0 : dtp_ref__get(j->weights, &at);
}

static loss_job loss_job_of(const dtp_kernel_args *args, const dtp_view *x, int32_t labels)
{
    loss_job j = {.args = args, .terms = dtp_loss_terms_of(args->call), .x = x, .labels = labels};
    j.over = dtp_call_dim(args->call, "over");
    j.weights = j.terms.weights < 0 ? NULL : &args->in[j.terms.weights];
    j.classes = x != NULL           ? dtp_ref__global(x, j.over)
                : j.weights != NULL ? dtp_ref__global(j.weights, j.over)
                                    : INT64_MAX;
    j.total = j.weights == NULL ? (double)j.classes : 0.0;
    for (int64_t c = 0; j.weights != NULL && c < j.classes; c++) {
        j.total += class_weight(&j, c);
    }
    return j;
}

/* One row: its label, -1 when ignored, the weight of that, and the coefficient of lse. */
typedef struct row_terms {
    int64_t label;
    double weight, a;
} row_terms;

/* False when there is no such label. */
static bool row_terms_at(const loss_job *j, const dtp_ref_loop *row, row_terms *out)
{
    const double e = j->terms.smoothing;
    *out = (row_terms){.label = -1};
    if (j->terms.has_ignore && dtp_ref__get_int(&j->args->in[j->labels], row) == j->terms.ignore) {
        return true;
    }
    if (!dtp_ref__id(j->args, j->labels, row, DTP_DATA_LABEL, j->classes, &out->label)) {
        return false;
    }
    out->weight = class_weight(j, out->label);
    out->a = (1.0 - e) * out->weight + e / (double)j->classes * j->total;
    return true;
}

/* Coefficient of the logit at `l` in t. */
static double coefficient(const loss_job *j, const row_terms *r, const dtp_ref_loop *l)
{
    const double e = j->terms.smoothing;
    int64_t c = dtp_ref__global_index(j->x, l, j->over);
    double hit = c == r->label ? (1.0 - e) * r->weight : 0.0;
    return r->label < 0 ? 0.0 : hit + e / (double)j->classes * class_weight(j, c);
}

/* t, or its part on this rank, of the row at the outer coordinates of l. */
static double picked(const loss_job *j, const row_terms *r, dtp_ref_loop *l, int32_t rows)
{
    double t = 0.0;
    for (bool in = dtp_ref__first(l, rows, l->n); in; in = dtp_ref__next(l, rows, l->n)) {
        const bool counts = j->terms.smoothing > 0.0 && r->label >= 0;
        const double c = coefficient(j, r, l);
        t += c == 0.0 && !counts ? 0.0 : c * dtp_ref__get(j->x, l);
    }
    return t;
}

static dtp_status run_pick(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const loss_job j = loss_job_of(args, &args->in[0], 1);
    int32_t rows;
    dtp_ref_loop l = dtp_ref__rows(args->call, j.x, &rows);
    for (bool go = dtp_ref__first(&l, 0, rows); go; go = dtp_ref__next(&l, 0, rows)) {
        row_terms r;
        if (!row_terms_at(&j, &l, &r)) {
            return DTP_OK;
        }
        dtp_ref__set(&args->out[0], &l, picked(&j, &r, &l, rows));
    }
    return DTP_OK;
}

static dtp_status run_label_weight(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const loss_job j = loss_job_of(args, NULL, 0);
    dtp_ref_loop l = dtp_ref__over(&args->in[0].local);
    dtp_ref__clear(&args->out[1]);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        row_terms r;
        if (!row_terms_at(&j, &l, &r)) {
            return DTP_OK;
        }
        dtp_ref__set(&args->out[0], &l, r.a);
        dtp_ref__accumulate(&args->out[1], &l, r.weight);
    }
    return DTP_OK;
}

/* The weight of one row in the loss, without regard to labels; `rows` is a tensor over all rows. */
static double row_weight(const dtp_op_call *call, const dtp_view *rows, dtp_dim_id skip)
{
    double n = 1.0;
    for (int32_t i = 0; i < rows->local.rank; i++) {
        n *= rows->local.dims[i].id == skip ? 1.0 : (double)rows->global[i];
    }
    return strcmp(dtp_call_choice(call, "reduce"), "mean") == 0 ? 1.0 / n : 1.0;
}

/* A row without weight does not count, whatever its logits are. */
static double row_loss(double weight, double a, double lse, double t)
{
    return a == 0.0 ? 0.0 : weight * (a * lse - t);
}

/* Adds the loss of one row to the result. */
static void add_loss(const dtp_kernel_args *args, const dtp_ref_loop *row, double loss)
{
    if (strcmp(dtp_call_choice(args->call, "reduce"), "none") == 0) {
        dtp_ref__set(&args->out[0], row, loss);
    } else {
        dtp_ref__accumulate(&args->out[0], row, loss);
    }
}

static dtp_status run_cross_entropy(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *x = &args->in[0];
    const loss_job j = loss_job_of(args, x, 1);
    double weight = row_weight(args->call, x, j.over);
    int32_t rows;
    dtp_ref_loop l = dtp_ref__rows(args->call, x, &rows);
    dtp_ref__clear(&args->out[0]);
    if (strcmp(dtp_call_choice(args->call, "reduce"), "mean") == 0 &&
        (j.weights != NULL || j.terms.has_ignore)) {
        /* Of the whole batch, which is on this rank: 1 over the sum of the labels' weights. */
        double sum = 0.0;
        dtp_ref_loop all = dtp_ref__over(&args->in[j.labels].local);
        for (bool go = dtp_ref__first(&all, 0, all.n); go; go = dtp_ref__next(&all, 0, all.n)) {
            row_terms r;
            if (!row_terms_at(&j, &all, &r)) {
                return DTP_OK;
            }
            sum += r.weight;
        }
        weight = 1.0 / sum;
    }
    for (bool go = dtp_ref__first(&l, 0, rows); go; go = dtp_ref__next(&l, 0, rows)) {
        double m = (double)-INFINITY, s = 0.0;
        row_terms r;
        for (bool in = dtp_ref__first(&l, rows, l.n); in; in = dtp_ref__next(&l, rows, l.n)) {
            m = dtp_ref__larger(m, dtp_ref__get(x, &l));
        }
        for (bool in = dtp_ref__first(&l, rows, l.n); in; in = dtp_ref__next(&l, rows, l.n)) {
            s += exp(dtp_ref__get(x, &l) - m);
        }
        if (!row_terms_at(&j, &l, &r)) {
            return DTP_OK;
        }
        const double lse = dtp_ref__lse(m, s);
        dtp_ref__set(&args->out[1], &l, lse);
        add_loss(args, &l, row_loss(weight, r.a, lse, picked(&j, &r, &l, rows)));
    }
    return DTP_OK;
}

/* Operands m, s, t and perhaps a and the total weight. */
static dtp_status run_cross_entropy_finish(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *in = args->in;
    dtp_ref_loop l = dtp_ref__over(&in[0].local);
    double weight =
        args->call->n_in > 4 ? 1.0 / dtp_ref__get(&in[4], &l) : row_weight(args->call, &in[0], -1);
    dtp_ref__clear(&args->out[0]);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        double lse = dtp_ref__lse(dtp_ref__get(&in[0], &l), dtp_ref__get(&in[1], &l));
        double a = args->call->n_in > 3 ? dtp_ref__get(&in[3], &l) : 1.0;
        dtp_ref__set(&args->out[1], &l, lse);
        add_loss(args, &l, row_loss(weight, a, lse, dtp_ref__get(&in[2], &l)));
    }
    return DTP_OK;
}

static dtp_status run_cross_entropy_grad(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *x = &args->in[0];
    const loss_job j = loss_job_of(args, x, 1);
    dtp_ref_loop l = dtp_ref__over(&x->local);
    double weight = j.terms.total >= 0 ? 1.0 / dtp_ref__get(&args->in[j.terms.total], &l)
                                       : row_weight(args->call, x, j.over);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        row_terms r;
        if (!row_terms_at(&j, &l, &r)) {
            return DTP_OK;
        }
        double p = exp(dtp_ref__get(x, &l) - dtp_ref__get(&args->in[2], &l));
        const double d = (r.a * p - coefficient(&j, &r, &l)) * weight;
        dtp_ref__set(&args->out[0], &l, r.a == 0.0 ? 0.0 : d * dtp_ref__get(&args->in[3], &l));
    }
    return DTP_OK;
}

const dtp_kernel dtp_ref__lookup[] = {
    {.op = "gather", .run = run_gather},
    {.op = "scatter_add", .run = run_scatter_add},
    {.op = "embedding", .run = run_gather},
    {.op = "embedding_grad", .run = run_scatter_add},
    {.op = "pick", .run = run_pick},
    {.op = "label_weight", .run = run_label_weight},
    {.op = "cross_entropy", .run = run_cross_entropy},
    {.op = "cross_entropy_finish", .run = run_cross_entropy_finish},
    {.op = "cross_entropy_grad", .run = run_cross_entropy_grad},
    {.op = NULL}};
