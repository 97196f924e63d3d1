/* Filling the inputs of a step. On a queue they are made in host memory while the device computes,
 * and copied on a queue of their own: after the microbatch before, whose tensors may lie where the
 * inputs will, and before the one that reads them. */
#include <string.h>

#include "core/base/safe_int.h"
#include "core/transform/microbatch.h"
#include "executor/session/session_internal.h"

enum { ALIGNMENT = 64 };

/* Whether this rank fills a value before every microbatch. */
static bool is_fed(const dtp_runner *r, dtp_value_id v)
{
    const dtp_program *p = dtp_runner_program(r);
    const dtp_value *value = &p->values[v];
    return value->kind == DTP_VALUE_INPUT &&
           p->graph->tensors[value->tensor].kind == DTP_TENSOR_INPUT &&
           dtp_runner_view(r, v)->data != NULL;
}

static int64_t bytes_of(const dtp_runner *r, dtp_value_id v)
{
    return dtp_ttype_bytes(&dtp_runner_view(r, v)->local);
}

dtp_status dtp_session__feed_open(dtp_session *s, dtp_err *err)
{
    dtp_session__feeds *f = &s->feeds;
    const dtp_queue_ops *queue = s->backend->ops->queue;
    if (queue == NULL) {
        return DTP_OK;
    }
    for (int32_t k = 0; k < s->n_chunks; k++) {
        const dtp_runner *r = s->runners[k];
        f->at[k] = f->slot_bytes;
        for (dtp_value_id v = 0; v < dtp_runner_program(r)->n_values; v++) {
            f->slot_bytes += is_fed(r, v) ? dtp_ceil_div(bytes_of(r, v), ALIGNMENT) * ALIGNMENT : 0;
        }
    }
    void *ring = NULL;
    const int64_t slots =
        (int64_t)dtp_runner_ahead(s->runner) * dtp_program_microbatches(s->program);
    DTP_TRY(queue->take(s->backend, false, (size_t)(slots * f->slot_bytes), &ring, err));
    f->ring = ring;
    DTP_TRY(queue->event_create(s->backend, &f->free, err));
    return queue->event_create(s->backend, &f->fed, err);
}

void dtp_session__feed_close(dtp_session *s)
{
    dtp_session__feeds *f = &s->feeds;
    const dtp_queue_ops *queue = s->backend->ops->queue;
    if (queue != NULL) {
        queue->event_destroy(s->backend, f->free);
        queue->event_destroy(s->backend, f->fed);
        queue->give(s->backend, false, f->ring);
    }
}

/* Values of input v for microbatch j. */
static dtp_status fill(dtp_session *s, dtp_value_id v, int32_t j, void *out, dtp_err *err)
{
    const dtp_program *p = s->program;
    const dtp_value *value = &p->values[v];
    dtp_shard shard = dtp_runner_shard(s->runner, v);
    /* The shard of the whole batch that a shard of a microbatch is. */
    for (int32_t d = 0; d < value->type.rank; d++) {
        if (dtp_is_micro_dim(p->graph, value->type.dims[d].id)) {
            shard.global[d] *= p->graph->microbatches;
            shard.offset[d] += j * value->type.dims[d].size;
        }
    }
    if (s->set_values == NULL || value->tensor != s->set_input) {
        return dtp_feed_fill(s->feed, value->tensor, s->step - s->first_fed, &shard, out, err);
    }
    dtp_shard whole = {.rank = shard.rank};
    memcpy(whole.global, shard.global, sizeof whole.global);
    memcpy(whole.size, shard.global, sizeof whole.size);
    dtp_shard_copy(&shard, &whole, s->set_values, &shard, out, dtp_dtype_bytes(value->type.dtype));
    return DTP_OK;
}

void dtp_session_set_input(dtp_session *s, dtp_tensor_id t, const void *values)
{
    s->set_input = t;
    s->set_values = values;
}

dtp_status dtp_session__feed(dtp_session *s, int32_t j, dtp_err *err)
{
    const dtp_session__feeds *f = &s->feeds;
    const dtp_queue_ops *queue = s->backend->ops->queue;
    const int64_t turn = s->n_started % dtp_runner_ahead(s->runner);
    char *at = s->host;
    if (queue != NULL) {
        at = f->ring + (turn * dtp_program_microbatches(s->program) + j) * f->slot_bytes +
             f->at[s->chunk];
        DTP_TRY(queue->event_put(s->backend, DTP_QUEUE_COMPUTE, f->free, err));
        DTP_TRY(queue->event_await(s->backend, DTP_QUEUE_COPY, f->free, err));
    }
    for (dtp_value_id v = 0; v < s->program->n_values; v++) {
        if (!is_fed(s->runner, v)) {
            continue;
        }
        void *to = dtp_runner_view(s->runner, v)->data;
        const size_t bytes = (size_t)bytes_of(s->runner, v);
        DTP_TRY(fill(s, v, j, at, err));
        if (queue != NULL) {
            DTP_TRY(queue->copy(s->backend, DTP_QUEUE_COPY, to, at, bytes, err));
            at += dtp_ceil_div((int64_t)bytes, ALIGNMENT) * ALIGNMENT;
        } else {
            DTP_TRY(s->backend->ops->upload(s->backend, to, at, bytes, err));
        }
    }
    if (queue != NULL) {
        DTP_TRY(queue->event_put(s->backend, DTP_QUEUE_COPY, f->fed, err));
        DTP_TRY(queue->event_await(s->backend, DTP_QUEUE_COMPUTE, f->fed, err));
    }
    return DTP_OK;
}
