/* Simulated schedule of one rank with queues, compute (kernels and copies) and communication
 * (collectives), each one task at a time in program order. Collectives have one queue, or two where
 * the target has streams: one of groups inside of a host, one of groups across hosts.
 *
 * Compute reaches a START: from then on the collective runs once those before it have ended.
 * Compute reaches a WAIT: it stops until the collective has ended. Nothing else binds the two, so
 * that the memory plan, which goes by the places of START and WAIT, holds at any speed. While both
 * compute and communication are busy, each is slower by its factor. The host issues all tasks, one
 * after the other, and never waits for them: a task begins once it is issued.
 */
#ifndef DTP_COST_MODELS_TIMELINE_H
#define DTP_COST_MODELS_TIMELINE_H

#include "cost_models/machine/machine.h"
#include "spmd/program/program.h"

typedef enum dtp_lane { DTP_LANE_COMPUTE, DTP_LANE_COMM, DTP_LANE_FAR, DTP_N_LANES } dtp_lane;

typedef struct dtp_schedule_task {
    dtp_lane lane;
    bool rest; /* what is left of the collective of the task before it */
    int32_t instr;
    double time_s;
    double issued_s;           /* the host has issued it, counted from the begin of the step */
    int32_t need[DTP_N_LANES]; /* so many tasks of each queue, in order, must have ended */
    /* results: */
    double begin_s, end_s;
    double exposed_s; /* how long it is communication and compute does not run */
} dtp_schedule_task;

typedef struct dtp_schedule_result {
    double end_s;
    double exposed_comm_s; /* communication runs and compute waits for it */
    double host_s;         /* compute does not run because its next task is not issued yet */
    double overlapped_s;   /* both run */
} dtp_schedule_result;

/* Simulates tasks in order; `need` refers to earlier tasks only. The sum of tasks[i].exposed_s is
 * exposed_comm_s. */
dtp_schedule_result dtp_schedule_run(int32_t n, dtp_schedule_task *tasks, dtp_slowdown slowdown);

/* Tasks of the instructions but WAITs that a step runs, those of microbatches as often as they run:
 * one, of a collective in chunks (dtp_target.chunks) two. */
int64_t dtp_schedule_count(const dtp_program *p);
/* Tasks of a priced program (instr->time_s), in the order in which a step runs them, of which the
 * host issues one every host_s; `tasks` has room for dtp_schedule_count. False when out of
 * memory. */
bool dtp_schedule_tasks(const dtp_program *p, double host_s, dtp_schedule_task *tasks);

/* Both, with slowdown and host of the machine, then one task for each instruction that runs; room
 * for dtp_schedule_count, those behind have no time; they are the
 * caller's to free. Not `overlaps`: one task at a time, at full speed, and the host is not waited
 * for. NULL when out of memory, also when there are 2^31 tasks or more; *out is then unset. */
dtp_schedule_task *dtp_schedule_simulate(const dtp_program *p, const dtp_machine *machine,
                                         bool overlaps, dtp_schedule_result *out);

/* The same of one section of a stage alone (dtp_instr_section), in the first microbatch or in
 * another one. */
dtp_schedule_task *dtp_schedule_section(const dtp_program *p, const dtp_machine *machine,
                                        bool overlaps, int32_t section, bool first,
                                        dtp_schedule_result *out);

/* The result where the machine overlaps. exposed_s (may be NULL): by instruction, over all times
 * that a step runs it. False as above; results are then unset. */
bool dtp_schedule_program(const dtp_program *p, const dtp_machine *machine,
                          dtp_schedule_result *out, double *exposed_s);

#endif
