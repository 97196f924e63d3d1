#include "spmd/lower/redistribute_program.h"

#include "spmd/program/program_internal.h"
#include "spmd/lower/liveness.h"
#include "spmd/lower/memplan.h"

static dtp_status fill(dtp_program *p, const dtp_ttype *type, const dtp_layout *from,
                       const dtp_steps *steps, dtp_redistribute_job *out, dtp_err *err)
{
    dtp_value input = dtp_program__value_init("t", DTP_VALUE_INPUT);
    input.type = *type;
    input.layout = *from;
    DTP_TRY(dtp_program__add_value(p, &input, &out->in, err));
    out->result = out->in;
    DTP_TRY(dtp_redistribute_emit(p, steps, -1, DTP_FORWARD, &out->result, err));
    p->values[out->result].keep = true;
    dtp_program__liveness(p);
    return dtp_program__plan_memory(p, err);
}

dtp_status dtp_redistribute_program(const dtp_graph *g, const dtp_mesh *mesh, const dtp_ttype *type,
                                    const dtp_layout *from, const dtp_steps *steps,
                                    dtp_redistribute_job *out, dtp_err *err)
{
    DTP_TRY(dtp_program_create(g, mesh, &out->program, err));
    dtp_status s = fill(out->program, type, from, steps, out, err);
    if (s != DTP_OK) {
        dtp_redistribute_job_free(out);
    }
    return s;
}

void dtp_redistribute_job_free(dtp_redistribute_job *job)
{
    dtp_program_destroy(job->program);
    job->program = NULL;
}
