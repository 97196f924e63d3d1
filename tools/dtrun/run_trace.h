/* The trace of a run (tools/trace.h): the last step as it was measured on every rank, and before it
 * what was predicted, given a machine. */
#ifndef DTP_TOOLS_DTRUN_RUN_TRACE_H
#define DTP_TOOLS_DTRUN_RUN_TRACE_H

#include "cost_models/job.h"
#include "executor/session/session.h"

/* After the steps of a session of a job with profile, by all ranks; rank 0 writes the file. `last`:
 * the last step; the machine may be NULL. */
dtp_status dtrun_write_trace(const char *path, dtp_session *s, dtp_comm *comm,
                             const dtp_step_result *last, const dtp_machine *machine,
                             const dtp_job *job, dtp_err *err) DTP_MUST_CHECK;

#endif
