#include "cost_models/predict.h"

#include "core/base/safe_int.h"
#include "cost_models/price_limit.h"
#include "cost_models/timeline.h"

dtp_status dtp_predict_counts(const dtp_program *p, dtp_prediction *out, dtp_err *err)
{
    *out = (dtp_prediction){.peak_bytes = p->peak_bytes};
    for (int k = 0; k < DTP_N_COLLS; k++) {
        out->collectives[k].kind = dtp_coll_name((dtp_coll_kind)k);
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        if (instr->kind == DTP_INSTR_COLLECTIVE) {
            const dtp_coll *coll = &instr->coll;
            int32_t runs = dtp_instr_runs(p, instr);
            const int32_t ranks = dtp_mesh_set_size(&p->mesh, coll->set);
            const double bytes = dtp_coll_full_bytes(coll->kind, coll->count, coll->dtype, ranks);
            int64_t all;
            out->collectives[coll->kind].count += runs;
            if (!(bytes < 9.2e18) || !dtp_mul_i64((int64_t)bytes, runs, &all) ||
                !dtp_add_i64(out->collectives[coll->kind].bytes, all,
                             &out->collectives[coll->kind].bytes)) {
                return DTP_FAIL(err, DTP_RANGE, "the bytes of all %s of a step exceed 2^63",
                                dtp_coll_name(coll->kind));
            }
        }
    }
    return DTP_OK;
}

dtp_status dtp_predict(const dtp_pricer *pricer, dtp_program *p, dtp_prediction *out, dtp_err *err)
{
    DTP_TRY(dtp_predict_counts(p, out, err));
    dtp_dearest dearest = {0};
    int64_t sum = 0;
    DTP_TRY(dtp_program_price(pricer, p, &dearest, &sum, err));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        const double all_s = dtp_instr_runs(p, instr) * instr->time_s;
        if (instr->kind == DTP_INSTR_COLLECTIVE) {
            out->comm_s += all_s;
        } else {
            out->compute_s += all_s;
        }
        out->cost_s += all_s;
    }
    out->step_time_s = out->cost_s;
    out->exposed_comm_s = out->comm_s;
    if (pricer->machine->overlap) {
        dtp_schedule_result timeline;
        if (!dtp_schedule_program(p, pricer->machine->overlap_slowdown, &timeline, NULL)) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for a timeline of %d instructions",
                            p->n_instrs);
        }
        out->step_time_s = timeline.end_s;
        out->exposed_comm_s = timeline.exposed_comm_s;
    }
    return DTP_OK;
}
