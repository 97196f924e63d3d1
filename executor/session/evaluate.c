#include "executor/session/evaluate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
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

/* ---- sums ---- */

/* Output i as a metric: all but the weight of the loss are. */
static bool is_metric(const dtp_graph *g, int32_t i)
{
    return g->outputs[i] != g->weight;
}

static dtp_status open_metrics(const dtp_graph *g, dtp_evaluation *sum, dtp_err *err)
{
    sum->metrics = calloc((size_t)g->n_outputs + 1, sizeof *sum->metrics);
    DTP_TRY(DTP_MEMORY(err, sum->metrics));
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const dtp_graph_tensor *t = &g->tensors[g->outputs[i]];
        struct dtp_metric *m = &sum->metrics[sum->n_metrics];
        if (is_metric(g, i)) {
            sum->n_metrics++;
            m->n = dtp_ttype_elems(&t->type);
            m->counts = !dtp_dtype_is_float(t->type.dtype);
            m->name = strdup(t->name);
            m->values = calloc((size_t)m->n + 1, sizeof *m->values);
            DTP_TRY(DTP_MEMORY(err, m->name, m->values));
        }
    }
    return DTP_OK;
}

/* Adds `factor` times the elements of a tensor, on rank 0. */
static dtp_status add_values(dtp_session *s, dtp_tensor_id t, double factor, int64_t n, double *out,
                             dtp_err *err)
{
    void *whole = NULL;
    DTP_TRY(dtp_session__gather_new(s, t, &whole, err));
    for (int64_t i = 0; i < n && whole != NULL; i++) {
        out[i] += factor * dtp_element(s->program->graph->tensors[t].type.dtype, whole, i);
    }
    free(whole);
    return DTP_OK;
}

static dtp_status add_batch(dtp_session *s, double rows, bool allow_nan, dtp_evaluation *sum,
                            dtp_err *err)
{
    const dtp_graph *g = s->program->graph;
    dtp_step_result step;
    double weight = g->weight < 0 ? rows : 0.0;
    DTP_TRY(dtp_session_step(s, &step, err));
    DTP_TRY(g->weight >= 0 ? add_values(s, g->weight, 1.0, 1, &weight, err) : DTP_OK);
    sum->rows += (int64_t)rows;
    sum->batches++;
    sum->weight += weight;
    sum->loss += weight > 0.0 ? weight * step.loss : 0.0; /* no label counts: 0/0 */
    for (int32_t i = 0, k = 0; i < g->n_outputs; i++) {
        if (is_metric(g, i)) {
            struct dtp_metric *m = &sum->metrics[k++];
            const double factor = m->counts ? 1.0 : rows;
            DTP_TRY(add_values(s, g->outputs[i], factor, m->n, m->values, err));
        }
    }
    const bool fails = s->comm->rank == 0 && !allow_nan && !isfinite(sum->loss);
    const dtp_status mine =
        fails ? DTP_FAIL(err, DTP_NOT_FINITE, "the loss of batch %" PRId64 " is not finite: %g",
                         sum->batches, step.loss)
              : DTP_OK;
    return g->weight >= 0 ? dtp_comm_agree_status(s->comm, mine, err) : mine;
}

dtp_status dtp_evaluate(const dtp_program *p, dtp_backend *backend, dtp_comm *comm,
                        const dtp_session_options *options, dtp_session *from, int64_t batches,
                        dtp_evaluation *sum, dtp_err *err)
{
    const int64_t rows = p->graph->dims.sizes[dtp_microbatch_dim(p->graph)];
    const double before = dtp_now_s();
    const int64_t peak = backend->peak_allocated_bytes;
    dtp_session_options own = *options;
    dtp_session *s = NULL;
    own.allow_nan = own.allow_nan || p->graph->weight >= 0;
    DTP_TRY(dtp_session_create(p, backend, comm, &own, &s, err));
    dtp_status status = sum->metrics == NULL ? open_metrics(p->graph, sum, err) : DTP_OK;
    if (status == DTP_OK && from != NULL) {
        status = take_values(s, from, err);
    }
    status = dtp_comm_agree_status(comm, status, err);
    sum->step = dtp_session_next_step(from != NULL ? from : s);
    for (int64_t i = 0; i < batches && status == DTP_OK; i++) {
        status = add_batch(s, (double)rows, options->allow_nan, sum, err);
    }
    dtp_session_destroy(s);
    sum->seconds += dtp_now_s() - before;
    if (from != NULL) { /* the peak of training is that of its program */
        backend->peak_allocated_bytes = peak;
    }
    return status;
}

void dtp_evaluation_end(dtp_evaluation *sum)
{
    const double rows = (double)sum->rows;
    sum->loss /= sum->weight;
    for (int32_t k = 0; k < sum->n_metrics; k++) {
        for (int64_t i = 0; i < sum->metrics[k].n && !sum->metrics[k].counts; i++) {
            sum->metrics[k].values[i] /= rows;
        }
    }
}

void dtp_evaluation_free(dtp_evaluation *sum)
{
    for (int32_t k = 0; k < sum->n_metrics; k++) {
        free(sum->metrics[k].name);
        free(sum->metrics[k].values);
    }
    free(sum->metrics);
    *sum = (dtp_evaluation){0};
}
