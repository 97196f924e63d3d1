/* Redistributions in programs: steps as instructions. */
#ifndef DTP_SPMD_LOWER_REDISTRIBUTE_PROGRAM_H
#define DTP_SPMD_LOWER_REDISTRIBUTE_PROGRAM_H

#include "spmd/redistribute/redistribute.h"

/* Appends the instructions of the steps; *value is replaced by the value in the final layout. */
dtp_status dtp_redistribute_emit(dtp_program *p, const dtp_steps *steps, dtp_node_id node,
                                 dtp_phase phase, dtp_value_id *value, dtp_err *err) DTP_MUST_CHECK;
/* The same for the steps that the program's redistributor decides on. */
dtp_status dtp_redistribute_value(dtp_program *p, const dtp_layout *to, dtp_node_id node,
                                  dtp_phase phase, dtp_value_id *value,
                                  dtp_err *err) DTP_MUST_CHECK;

/* A redistribution as a program of its own: one input, the steps, one kept result. */
typedef struct dtp_redistribute_job {
    dtp_program *program; /* owned */
    dtp_value_id in;      /* INPUT value in the first layout */
    dtp_value_id result;  /* after the last step; `in` itself without steps */
} dtp_redistribute_job;

/* Lowers, with liveness and memory plan. `g` (borrowed by the program) has the dim names of `type`.
 */
dtp_status dtp_redistribute_program(const dtp_graph *g, const dtp_mesh *mesh,
                                    const dtp_target *target, const dtp_ttype *type,
                                    const dtp_layout *from, const dtp_steps *steps,
                                    dtp_redistribute_job *out, dtp_err *err) DTP_MUST_CHECK;
void dtp_redistribute_job_free(dtp_redistribute_job *job);

#endif
