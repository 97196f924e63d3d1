/* Simulated schedule of one rank with two resources, compute (kernels and copies) and communication
 * (collectives), each one at a time in program order.
 *
 * Compute reaches a START: from then on the collective runs once those before it have ended.
 * Compute reaches a WAIT: it stops until the collective has ended. Nothing else binds the two, so
 * that the memory plan, which goes by the places of START and WAIT, holds at any speed. While both
 * resources are busy, each is slower by its factor.
 */
#ifndef DTP_COST_MODELS_TIMELINE_H
#define DTP_COST_MODELS_TIMELINE_H

#include "cost_models/machine/machine.h"
#include "spmd/program/program.h"

typedef struct dtp_schedule_task {
    bool comm; /* on the communication resource */
    int32_t instr;
    double time_s;
    /* Tasks of [0] the compute and [1] the communication resource, counted in order, that must have
     * ended. */
    int32_t need[2];
    double exposed_s; /* result: how long it is communication and compute does not run */
} dtp_schedule_task;

typedef struct dtp_schedule_result {
    double end_s;
    double exposed_comm_s; /* communication runs and compute does not */
    double overlapped_s;   /* both run */
} dtp_schedule_result;

/* Simulates tasks in order; `need` refers to earlier tasks only. The sum of tasks[i].exposed_s is
 * exposed_comm_s. */
dtp_schedule_result dtp_schedule_run(int32_t n, dtp_schedule_task *tasks, dtp_slowdown slowdown);

/* Instructions but WAITs that a step runs, those of microbatches as often as they run. */
int64_t dtp_schedule_count(const dtp_program *p);
/* Tasks of a priced program (instr->time_s), in the order in which a step runs them; `tasks` has
 * room for dtp_schedule_count. False when out of memory. */
bool dtp_schedule_tasks(const dtp_program *p, dtp_schedule_task *tasks);

/* Both; exposed_s (may be NULL): by instruction, over all times that a step runs it. False when out
 * of memory, also when there are 2^31 tasks or more; results are then unset. */
bool dtp_schedule_program(const dtp_program *p, dtp_slowdown slowdown, dtp_schedule_result *out,
                          double *exposed_s);

#endif
