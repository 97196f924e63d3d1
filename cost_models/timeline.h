/* Timeline of one rank with two resources, compute (kernels and moves) and communication
 * (collectives).
 *
 * Each resource runs its instructions one at a time in program order; an instruction starts when
 * its resource is free and every instruction it depends on has ended. While both resources are
 * busy, both run slower by the factor `slowdown`. Dependencies go through buffers (a value's
 * outermost parent): after the last writer of what is read, after the last writer and all readers
 * of what is written. Reuse of memory between values that do not live at the same time is not a
 * dependency here.
 */
#ifndef DTP_COST_MODELS_TIMELINE_H
#define DTP_COST_MODELS_TIMELINE_H

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
dtp_schedule_result dtp_schedule_run(int32_t n, dtp_schedule_task *tasks, double slowdown);

/* Instructions that a step runs, those of microbatches as often as they run. */
int64_t dtp_schedule_count(const dtp_program *p);
/* Tasks of a priced program (instr->time_s), in the order in which a step runs them; `tasks` has
 * room for dtp_schedule_count. False when out of memory. */
bool dtp_schedule_tasks(const dtp_program *p, dtp_schedule_task *tasks);

/* Both; exposed_s (may be NULL): by instruction, over all times that a step runs it. False when out
 * of memory, also when there are 2^31 tasks or more; results are then unset. */
bool dtp_schedule_program(const dtp_program *p, double slowdown, dtp_schedule_result *out,
                          double *exposed_s);

#endif
