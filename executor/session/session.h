/* Sessions (dtp/session.h): what a report and a verification ask beyond what is public. */
#ifndef DTP_EXECUTOR_SESSION_SESSION_H
#define DTP_EXECUTOR_SESSION_SESSION_H

#include "dtp/status.h"
#include "dtp/session.h"
#include "executor/session/feed.h"
#include "executor/run/runner.h"
#include "spmd/program/stage_table.h"

dtp_runner *dtp_session_runner(const dtp_session *s);
/* Of chunk k of this rank; without stages there is one. */
dtp_runner *dtp_session_chunk_runner(const dtp_session *s, int32_t k);

/* When an action of a stage ran in the last step, from its begin: it waits for what the section
 * reads, runs the section, and sends what it made. */
typedef struct dtp_action_times {
    double waits_s, ready_s; /* from, to */
    double begin_s, end_s;   /* of the section; before it inputs are made */
    double sent_s;
} dtp_action_times;
/* By action of the table of this rank's stage; NULL: there are no stages. *table: of all stages. */
const dtp_action_times *dtp_session_actions(const dtp_session *s, const dtp_stage_table **table);

/* Path of the checkpoint that the session goes on from; NULL: it does not resume one. */
const char *dtp_session_resumed(const dtp_session *s);

/* From the next step on input t has these values: of the whole input, in its type, the same on all
 * ranks. Borrowed; the latest call counts, for one input at a time. */
void dtp_session_set_input(dtp_session *s, dtp_tensor_id t, const void *values);

/* Bytes of this rank: asked from the backend at the highest, and touched. */
void dtp_session_peak(const dtp_session *s, int64_t *allocated, int64_t *touched);
/* n numbers of every rank, in rank order; `out` holds as many as there are on all of them. */
dtp_status dtp_session_numbers(dtp_session *s, int32_t n, const double *mine, double *out,
                               dtp_err *err) DTP_MUST_CHECK;
/* The highest peak of every rank, in rank order; `out` holds as many as there are ranks. */
dtp_status dtp_session_peaks(dtp_session *s, int64_t *out, dtp_err *err) DTP_MUST_CHECK;

/* Whether a tensor can be read after a step: parameters, states, outputs, the loss, fetches. */
bool dtp_session_can_fetch(const dtp_session *s, dtp_tensor_id t);

#endif
