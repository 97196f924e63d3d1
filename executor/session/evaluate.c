/* The loss and the metrics of a model over the rows of files, each row once, whatever the
 * batches are. */
#include "executor/session/evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/transform/evaluation.h"
#include "core/transform/microbatch.h"
#include "executor/device/convert.h"
#include "executor/session/session_internal.h"

/* ---- parameters of another session ---- */

/* Where `from` keeps a resident value of this session; NULL: it has no such tensor. */
static const dtp_view *find_value(const dtp_session *from, const char *name)
{
    const dtp_tensor_id t = dtp_graph_find(from->program->graph, name);
    const dtp_value_id v = t >= 0 ? from->tensor_value[t] : -1;
    return v >= 0 && from->program->values[v].kind == DTP_VALUE_RESIDENT
               ? dtp_runner_view(from->runner, v)
               : NULL;
}

/* Parameters and states of `from`, in the layouts of this session, which are the same. */
static dtp_status take_values(dtp_session *s, const dtp_session *from, dtp_err *err)
{
    const dtp_program *p = s->program;
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        const dtp_view *to = dtp_runner_view(s->runner, v);
        if (p->values[v].kind != DTP_VALUE_RESIDENT || to->data == NULL) {
            continue;
        }
        const char *name = p->graph->tensors[p->values[v].tensor].name;
        const dtp_view *of = find_value(from, name);
        const int64_t bytes = dtp_ttype_bytes(&to->local);
        if (of == NULL || dtp_ttype_bytes(&of->local) != bytes) {
            return DTP_FAIL(err, DTP_INVALID, "'%s' has another layout in training", name);
        }
        DTP_TRY(s->backend->ops->download(s->backend, s->host, of->data, (size_t)bytes, err));
        DTP_TRY(s->backend->ops->upload(s->backend, to->data, s->host, (size_t)bytes, err));
    }
    return DTP_OK;
}

/* ---- batches ---- */

static dtp_status open_folds(const dtp_graph *g, dtp_evaluation *sum, dtp_err *err)
{
    sum->folded = calloc((size_t)g->n_folds + 1, sizeof *sum->folded);
    DTP_TRY(DTP_MEMORY(err, sum->folded));
    for (int32_t k = 0; k < g->n_folds; k++) {
        dtp_folded *f = &sum->folded[sum->n_folded++];
        f->n = dtp_ttype_elems(&g->tensors[g->folds[k].tensor].type);
        f->values = calloc((size_t)f->n + 1, sizeof *f->values);
        DTP_TRY(DTP_MEMORY(err, f->values));
    }
    return DTP_OK;
}

/* Whether a program folds what another one did: they are of one model, with other batches. */
static dtp_status check_folds(const dtp_graph *g, const dtp_evaluation *sum, dtp_err *err)
{
    bool same = g->n_folds == sum->n_folded;
    for (int32_t k = 0; k < g->n_folds && same; k++) {
        same = sum->folded[k].n == dtp_ttype_elems(&g->tensors[g->folds[k].tensor].type);
    }
    return same ? DTP_OK
                : DTP_FAIL(err, DTP_INVALID,
                           "the loss of '%s' is computed otherwise in a batch of another size",
                           g->name);
}

/* Takes the elements of a batch into a fold. */
static void take(const dtp_row_fold *fold, bool first, double weight, const double *batch,
                 dtp_folded *f)
{
    const bool most = fold->by == DTP_ROWS_MAX, least = fold->by == DTP_ROWS_MIN;
    for (int64_t i = 0; i < f->n; i++) {
        const double x = batch[i], have = f->values[i];
        if (fold->by == DTP_ROWS_WHOLE) {
            f->values[i] = x;
        } else if (most || least) {
            const bool better = first || isnan(x) || (most ? x > have : x < have);
            f->values[i] = better ? x : have;
        } else if (weight > 0.0) { /* no label counts: 0/0 */
            f->values[i] += weight * x;
        }
    }
    f->weight += weight;
}

/* The elements of a tensor as numbers, on rank 0: the caller's to free. NULL elsewhere. */
static dtp_status gather(dtp_session *s, dtp_tensor_id t, double **out, dtp_err *err)
{
    const dtp_ttype *type = &s->program->graph->tensors[t].type;
    const int64_t n = dtp_ttype_elems(type);
    void *whole = NULL;
    dtp_status status = dtp_session__gather_new(s, t, &whole, err);
    *out = status == DTP_OK && whole != NULL ? calloc((size_t)n + 1, sizeof **out) : NULL;
    if (status == DTP_OK && whole != NULL) {
        status = DTP_MEMORY(err, *out);
    }
    for (int64_t i = 0; i < n && *out != NULL; i++) {
        (*out)[i] = dtp_element(type->dtype, whole, i);
    }
    free(whole);
    return status;
}

static dtp_status add_fold(dtp_session *s, int32_t k, double rows, dtp_evaluation *sum,
                           dtp_err *err)
{
    const dtp_row_fold *fold = &s->program->graph->folds[k];
    double *values = NULL, *weight = NULL;
    dtp_status status = gather(s, fold->tensor, &values, err);
    if (status == DTP_OK && fold->weight >= 0) {
        status = gather(s, fold->weight, &weight, err);
    }
    if (status == DTP_OK && values != NULL) {
        const double by_rows = fold->by == DTP_ROWS_MEAN ? rows : 1.0;
        take(fold, sum->batches == 0, weight != NULL ? weight[0] : by_rows, values,
             &sum->folded[k]);
    }
    free(values);
    free(weight);
    return status;
}

static dtp_status add_batch(dtp_session *s, double rows, dtp_evaluation *sum, dtp_err *err)
{
    const dtp_graph *g = s->program->graph;
    dtp_step_result step;
    dtp_status mine = DTP_OK;
    DTP_TRY(dtp_session_step(s, &step, err));
    for (int32_t k = 0; k < g->n_folds && mine == DTP_OK; k++) {
        mine = add_fold(s, k, rows, sum, err);
    }
    sum->rows += (int64_t)rows;
    sum->batches++;
    return dtp_comm_agree_status(s->comm, mine, err);
}

dtp_status dtp_evaluate(const dtp_program *p, dtp_backend *backend, dtp_comm *comm,
                        const dtp_session_options *options, dtp_session *from, int64_t batches,
                        dtp_evaluation *sum, dtp_err *err)
{
    const dtp_graph *g = p->graph;
    const int64_t rows = g->dims.sizes[dtp_microbatch_dim(g)];
    const double before = dtp_now_s();
    const int64_t peak = backend->peak_allocated_bytes;
    dtp_session_options own = *options;
    dtp_session *s = NULL;
    if (g->whole_batch != NULL && sum->batches + batches > 1) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "%s", g->whole_batch);
    }
    const int32_t loss = dtp_evaluation_fold(g, g->loss); /* a batch may have none of its own */
    own.allow_nan = own.allow_nan || loss < 0 || g->folds[loss].by == DTP_ROWS_WEIGHTED;
    DTP_TRY(dtp_session_create(p, backend, comm, &own, &s, err));
    dtp_status status = sum->folded == NULL ? open_folds(g, sum, err) : check_folds(g, sum, err);
    if (status == DTP_OK && from != NULL) {
        status = take_values(s, from, err);
    }
    status = dtp_comm_agree_status(comm, status, err);
    sum->step = dtp_session_next_step(from != NULL ? from : s);
    for (int64_t i = 0; i < batches && status == DTP_OK; i++) {
        status = add_batch(s, (double)rows, sum, err);
    }
    dtp_session_destroy(s);
    sum->seconds += dtp_now_s() - before;
    if (from != NULL) { /* the peak of training is that of its program */
        backend->peak_allocated_bytes = peak;
    }
    return status;
}
