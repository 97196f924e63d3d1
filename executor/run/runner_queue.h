/* What a runner has on the queue of a device: graphs of recorded microbatches, the ends of steps,
 * and times from events. */
#ifndef DTP_EXECUTOR_RUN_RUNNER_QUEUE_H
#define DTP_EXECUTOR_RUN_RUNNER_QUEUE_H

#include "executor/run/runner_data.h"

/* Events, host memory and graphs of a backend with a queue. */
dtp_status dtp_runner__open_queue(dtp_runner *r, dtp_err *err) DTP_MUST_CHECK;
void dtp_runner__close_queue(dtp_runner *r);
/* The part that runs: of the present microbatch, section and slot. */
dtp_runner__part *dtp_runner__part_at(dtp_runner *r);
/* Forgets the graphs: addresses have changed. */
void dtp_runner__forget(dtp_runner *r);
/* Those of all chunks of the stage: the transport is about to be given up. */
void dtp_runner__forget_all(dtp_runner *r);
/* Puts an event before instruction i on the queue, where times are taken from it. */
dtp_status dtp_runner__mark(dtp_runner *r, dtp_runner__flight *f, int32_t i,
                            dtp_err *err) DTP_MUST_CHECK;
/* Waits for the end of a step on a queue, and takes its times. */
dtp_status dtp_runner__await(dtp_runner *r, dtp_runner__flight *f, dtp_err *err) DTP_MUST_CHECK;
/* An instruction was put on the queue: waits where the host is too far ahead. Not while it is
 * recorded, and only for transports whose collectives are on the queue. */
dtp_status dtp_runner__pace(dtp_runner *r, int64_t step, dtp_err *err) DTP_MUST_CHECK;

#endif
