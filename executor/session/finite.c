/* Looking for values that are not finite. All ranks look at what they hold; the lowest rank that
 * found something is named, by the same words on all ranks. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/transform/precision.h"
#include "executor/device/convert.h"
#include "executor/session/session_internal.h"

enum { N_KINDS = 3 };

static const char *const kind_names[N_KINDS] = {"nan", "inf", "-inf"};

static int32_t kind_of(double value)
{
    return isnan(value) ? 0 : value > 0 ? 1 : 2;
}

/* The norm is the same on all ranks. */
static dtp_status check_norm(const dtp_session *s, const dtp_step_result *result, dtp_err *err)
{
    const dtp_graph *g = s->program->graph;
    const dtp_tensor_id scale = dtp_graph_find(g, DTP_LOSS_SCALE);
    const bool skips = scale >= 0 && g->tensors[scale].kind == DTP_TENSOR_STATE;
    if (g->norm < 0 || isfinite(result->grad_norm) || skips) {
        return DTP_OK;
    }
    return DTP_FAIL(err, DTP_NOT_FINITE,
                    "step %" PRId64 ": node '%s': the norm of the gradients is %s, the loss %g",
                    result->step + 1, g->nodes[g->tensors[g->norm].producer].name,
                    kind_names[kind_of(result->grad_norm)], result->loss);
}

dtp_status dtp_session__check_loss(dtp_session *s, const dtp_step_result *result, double own,
                                   dtp_err *err)
{
    const dtp_graph *g = s->program->graph;
    if (!result->has_loss || isfinite(result->loss)) {
        return check_norm(s, result, err);
    }
    /* the loss is the same on all ranks, so they all come here; of a partial loss their parts are
     * not the same */
    const bool bad = !isfinite(own);
    const int32_t ranks = s->comm->size;
    int64_t seen[2] = {bad ? s->comm->rank : ranks, bad}; /* lowest rank, whether all */
    DTP_TRY(dtp_comm_all_reduce(s->comm, DTP_REDUCE_MIN, DTP_I64, 2, seen, err));
    char where[32];
    if (seen[0] == ranks || (seen[1] != 0 && ranks > 1)) {
        (void)snprintf(where, sizeof where, "%s %d ranks",
                       seen[0] == ranks ? "in the sum over" : "on all", ranks);
    } else {
        (void)snprintf(where, sizeof where, "on rank %d", (int)seen[0]);
    }
    char origin[256];
    DTP_TRY(dtp_session__origin_find(s, result->step, origin, sizeof origin, err));
    return DTP_FAIL(err, DTP_NOT_FINITE, "step %" PRId64 ": node '%s': the loss is %s %s%s",
                    result->step + 1, g->nodes[g->tensors[g->loss].producer].name,
                    kind_names[kind_of(result->loss)], where, origin);
}

/* Index of the first element that is not finite, -1 when there is none. */
static int64_t find(dtp_dtype dtype, const void *data, int64_t n)
{
    if (dtype == DTP_F32) {
        const float *x = data;
        for (int64_t i = 0; i < n; i++) {
            if (!isfinite(x[i])) {
                return i;
            }
        }
        return -1;
    }
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(dtp_element(dtype, data, i))) {
            return i;
        }
    }
    return -1;
}

/* The first update of a chunk of this rank whose target holds such a value: *found = update of the
 * graph × kinds + kind. */
static dtp_status scan(dtp_session *s, int64_t *found, dtp_err *err)
{
    const dtp_program *p = s->program;
    for (int32_t u = 0; u < p->n_updates; u++) {
        const dtp_value *value = &p->values[p->updates[u].target];
        const dtp_view *view = dtp_runner_view(s->runner, p->updates[u].target);
        if (value->tensor < 0 || !dtp_tensor_lasts(&p->graph->tensors[value->tensor]) ||
            !dtp_dtype_is_float(value->type.dtype) || view->data == NULL) {
            continue;
        }
        DTP_TRY(s->backend->ops->download(s->backend, s->host, view->data,
                                          (size_t)dtp_ttype_bytes(&view->local), err));
        const int64_t at = find(value->type.dtype, s->host, dtp_ttype_elems(&view->local));
        int32_t k = 0; /* in the graph */
        while (at >= 0 && p->graph->updates[k].target != value->tensor) {
            k++;
        }
        if (at >= 0) {
            *found = (int64_t)k * N_KINDS + kind_of(dtp_element(value->type.dtype, s->host, at));
            return DTP_OK;
        }
    }
    return DTP_OK;
}

dtp_status dtp_session_check(dtp_session *s, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, s));
    const dtp_graph *g = s->program->graph;
    const int64_t none = (int64_t)g->n_updates * N_KINDS;
    if (none == 0) {
        return DTP_OK;
    }
    dtp_err local = {0};
    err = err != NULL ? err : &local;
    int64_t found = none;
    dtp_status status = DTP_OK;
    for (int32_t k = 0; k < s->n_chunks && status == DTP_OK && found == none; k++) {
        dtp_session__enter(s, k);
        status = scan(s, &found, err);
    }
    DTP_TRY(dtp_comm_agree_status(s->comm, status, err));
    int64_t first = found == none ? INT64_MAX : s->comm->rank * none + found;
    DTP_TRY(dtp_comm_all_reduce(s->comm, DTP_REDUCE_MIN, DTP_I64, 1, &first, err));
    if (first == INT64_MAX) {
        return DTP_OK;
    }
    const dtp_tensor_id t = g->updates[first % none / N_KINDS].target;
    const dtp_graph_tensor *tensor = &g->tensors[t];
    const char *node = "?"; /* the first that updates it */
    for (int32_t u = g->n_updates - 1; u >= 0; u--) {
        const dtp_node_id n = g->tensors[g->updates[u].value].producer;
        node = g->updates[u].target == t && n >= 0 ? g->nodes[n].name : node;
    }
    return DTP_FAIL(err, DTP_NOT_FINITE,
                    "after step %" PRId64 ": node '%s': %s '%s' holds %s on rank %d", s->step, node,
                    tensor->kind == DTP_TENSOR_PARAM ? "parameter" : "optimizer state",
                    tensor->name, kind_names[first % N_KINDS], (int)(first / none));
}
