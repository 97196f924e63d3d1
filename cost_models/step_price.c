#include "cost_models/step_price.h"

#include <math.h>

#include "spmd/lower/redistribute_program.h"

double dtp_machine_step_price(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                              const dtp_layout *before, const dtp_step *step)
{
    dtp_step_pricer *s = user;
    dtp_err *err = s->failure.code == DTP_OK ? &s->failure : NULL;
    dtp_steps steps = {.n = 1};
    dtp_redistribute_job job;
    double sum = 0;
    steps.steps[0] = *step;
    if (dtp_redistribute_program(s->graph, mesh, type, before, &steps, &job, err) != DTP_OK) {
        return (double)INFINITY;
    }
    for (int32_t i = 0; i < job.program->n_instrs; i++) {
        sum += dtp_price_instr(s->pricer, job.program, &job.program->instrs[i]);
    }
    dtp_redistribute_job_free(&job);
    return sum;
}
