/* What bound kernels share with the host: the record of their steps, and a word for each that
 * checks data. Kernels of a queue see device memory: the record is put there before they run, and
 * the words are fetched after they have.
 */
#ifndef DTP_EXECUTOR_DEVICE_STEP_STATE_H
#define DTP_EXECUTOR_DEVICE_STEP_STATE_H

#include "executor/device/backend.h"

typedef struct dtp_step_state {
    dtp_backend *backend;
    dtp_step_record record;     /* the caller's to set */
    dtp_step_record *on_device; /* NULL: kernels see `record` */
    dtp_error_word *words;      /* of the device; NULL: bound kernels hold their own */
    int32_t n_words, used_words;
} dtp_step_state;

/* For a backend and up to n_words kernels that check data; *s must stay where it is. */
dtp_status dtp_step_state_init(dtp_step_state *s, dtp_backend *b, int32_t n_words,
                               dtp_err *err) DTP_MUST_CHECK;
/* The queues are idle. A zeroed state is accepted. */
void dtp_step_state_free(dtp_step_state *s);

/* Sets record and error word of args, for dtp_backend_bind; args->call is set. */
void dtp_step_state_link(dtp_step_state *s, dtp_kernel_args *args);
/* Kernels that are put on the queue from now on see the record as it is. */
dtp_status dtp_step_state_put(dtp_step_state *s, dtp_err *err) DTP_MUST_CHECK;

#endif
