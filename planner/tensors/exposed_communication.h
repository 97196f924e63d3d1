/* Exposed communication time per tensor and phase, from the simulated schedules of programs, and
 * the costs of redistributions that follow from it. */
#ifndef DTP_PLANNER_TENSORS_EXPOSED_COMMUNICATION_H
#define DTP_PLANNER_TENSORS_EXPOSED_COMMUNICATION_H

#include "planner/problem/overlay.h"
#include "planner/problem/tensors/tensor_problem.h"

/* A place is a tensor in a phase: 3 * tensor id + phase. Times of what the fastest program sends
 * come from its own schedule, those of anything else from the last schedule that sent it. */
typedef struct dtp_exposed {
    int32_t n_places;
    double step_s;   /* of the fastest program; infinite before there is one */
    double share;    /* of all that it sends, the part that is exposed; 1 when it sends nothing */
    double *sent_s;  /* by place: time of its collectives, 0 when there never were any */
    double *alone_s; /* by place: of it, the part in which nothing is computed */
    bool *of_fastest;
} dtp_exposed;

/* Nothing is known yet. Storage from `arena`. */
dtp_status dtp_exposed_create(const dtp_graph *g, dtp_arena *arena, dtp_exposed *out,
                              dtp_err *err) DTP_MUST_CHECK;

/* Adds the times of the schedule of a priced program of that graph; step_s: its makespan, infinite
 * when it is not to count as the fastest. */
dtp_status dtp_exposed_note(dtp_exposed *x, const dtp_program *p, const dtp_machine *machine,
                            double step_s, dtp_err *err) DTP_MUST_CHECK;

/* Scales the costs of the overlay's edges to the exposed part: mostly by the share of all
 * communication, in part by that of the tensors of the edge. */
dtp_status dtp_exposed_scale(const dtp_exposed *x, const dtp_tensor_problem *p, dtp_overlay *o,
                             dtp_err *err) DTP_MUST_CHECK;

#endif
