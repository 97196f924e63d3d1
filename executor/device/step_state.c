/* What bound kernels share with the host: the record of their steps, and a word for each that
 * checks data. */
#include "executor/device/step_state.h"

#include <assert.h>

dtp_status dtp_step_state_init(dtp_step_state *s, dtp_backend *b, int32_t n_words, dtp_err *err)
{
    const dtp_queue_ops *queue = b->ops->queue;
    *s = (dtp_step_state){.backend = b, .n_words = n_words, .record = dtp_step_record_init(0, 0)};
    if (queue == NULL) {
        return DTP_OK;
    }
    void *memory = NULL;
    const size_t bytes = sizeof *s->on_device + (size_t)n_words * sizeof *s->words;
    DTP_TRY(queue->take(b, true, bytes, &memory, err));
    s->on_device = memory;
    s->words = (dtp_error_word *)(void *)(s->on_device + 1);
    return DTP_OK;
}

void dtp_step_state_free(dtp_step_state *s)
{
    if (s->on_device != NULL) {
        s->backend->ops->queue->give(s->backend, true, s->on_device);
        s->on_device = NULL;
    }
}

void dtp_step_state_link(dtp_step_state *s, dtp_kernel_args *args)
{
    args->record = s->on_device != NULL ? s->on_device : &s->record;
    if (s->words != NULL && (args->call->op->flags & DTP_OP_CHECKS_DATA) != 0) {
        assert(s->used_words < s->n_words);
        args->error = &s->words[s->used_words++];
    }
}

dtp_status dtp_step_state_put(dtp_step_state *s, dtp_err *err)
{
    return s->on_device == NULL
               ? DTP_OK
               : s->backend->ops->queue->record_put(s->backend, &s->record, s->on_device, err);
}
