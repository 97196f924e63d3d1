/* Binding a program to this rank: where every value lies, what every instruction calls. */
#ifndef DTP_EXECUTOR_RUN_RUNNER_BIND_H
#define DTP_EXECUTOR_RUN_RUNNER_BIND_H

#include "executor/run/runner_data.h"

/* Takes memory, binds every value and instruction; r has program, backend, communicator, arena. */
dtp_status dtp_runner__bind_all(dtp_runner *r, bool profile, dtp_err *err) DTP_MUST_CHECK;
/* Puts a buffer at `data`: an external root by its value id, the arena by the number of values, the
 * slot of a stage by the one behind. */
void dtp_runner__place(dtp_runner *r, int32_t buffer, void *data);
/* Points the views of microbatches at a microbatch. */
void dtp_runner__shift(dtp_runner *r, int32_t microbatch);

#endif
