/* Joined kernels: updates that stand one after the other run in one launch, as many as the target
 * says (dtp_target.join).
 *
 * They are independent: no member writes a buffer that another one touches. Their results lie in
 * buffers of their operands, so no value begins inside of a launch, and it may run where its last
 * member stands without keeping anything longer.
 *
 * Runs on the final order: a collective between two updates divides a launch.
 */
#include "spmd/lower/passes/passes.h"
#include "spmd/program/program_internal.h"

/* By root: the launch whose members read and write the buffer, as its first instruction + 1. */
typedef struct launches {
    int32_t *read, *written;
} launches;

/* Whether a launch may have the instruction. */
static bool is_member(const dtp_program *p, const dtp_instr *instr)
{
    bool in_place = instr->kind == DTP_INSTR_KERNEL && (instr->op->flags & DTP_OP_UPDATE) != 0 &&
                    instr->workspace < 0;
    for (int32_t o = 0; in_place && o < instr->n_out; o++) {
        const int32_t j = instr->op->inplace_in[o] - 1;
        in_place = j >= 0 && dtp_value_root(p, instr->out[o]) == dtp_value_root(p, instr->in[j]);
    }
    return in_place;
}

static bool is_independent(const dtp_program *p, const dtp_instr *instr, const launches *l,
                           int32_t launch)
{
    bool yes = true;
    for (int32_t k = 0; k < instr->n_in; k++) {
        yes = yes && l->written[dtp_value_root(p, instr->in[k])] != launch;
    }
    for (int32_t o = 0; o < instr->n_out; o++) {
        yes = yes && l->read[dtp_value_root(p, instr->out[o])] != launch;
    }
    return yes;
}

dtp_status dtp_program__join(dtp_program *p, dtp_arena *scratch, dtp_err *err)
{
    launches l;
    int32_t first = -1; /* of the launch; -1 = none */
    DTP_TRY(DTP_NEW(scratch, l.read, p->n_values, err));
    DTP_TRY(DTP_NEW(scratch, l.written, p->n_values, err));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        dtp_instr *instr = &p->instrs[i];
        const bool member = is_member(p, instr);
        instr->joined = member && first >= 0 && i - first < p->target->join &&
                        dtp_instrs_alike(p, instr, &p->instrs[first]) &&
                        is_independent(p, instr, &l, first + 1);
        first = instr->joined ? first : member ? i : -1;
        for (int32_t k = 0; member && k < instr->n_in; k++) {
            l.read[dtp_value_root(p, instr->in[k])] = first + 1;
        }
        for (int32_t o = 0; member && o < instr->n_out; o++) {
            l.written[dtp_value_root(p, instr->out[o])] = first + 1;
        }
    }
    return DTP_OK;
}
