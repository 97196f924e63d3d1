/* Prices for the choice of a strategy: redistributions of operands, and the collectives inside an
 * op. */
#include "spmd/lower/lower.h"
#include "core/graph/ops/op_table.h"
#include "spmd/propagate/propagate_internal.h"

dtp_status dtp_propagate__price(const dtp_propagate_options *o, const dtp_mesh *mesh,
                                const dtp_ttype *type, const dtp_layout *from, const dtp_layout *to,
                                dtp_redistribution_price *out, dtp_err *err)
{
    dtp_steps steps;
    dtp_layout before = *from;
    *out = (dtp_redistribution_price){.possible = true};
    if (dtp_layout_equal(from, to)) {
        return DTP_OK;
    }
    const dtp_status s = dtp_redistribute_by(o->redistributor, mesh, type, from, to, &steps, err);
    if (s != DTP_OK) {
        out->possible = false;
        return dtp_status_is_input(s) ? DTP_OK : s;
    }
    for (int32_t i = 0; i < steps.n; i++) {
        out->cost += o->price(o->price_user, mesh, type, &before, &steps.steps[i]);
        *(dtp_step_sends(mesh, &steps.steps[i]) ? &out->collectives : &out->locals) += 1;
        before = steps.steps[i].after;
    }
    return DTP_OK;
}

/* ---- inside an op ---- */

/* A collective as the step of a flat tensor whose parts have as many elements. A permutation is one
 * of the n - 1 shifts that a ring all-gather consists of. */
static double collective_price(const dtp_propagate_options *o, const dtp_mesh *mesh,
                               const dtp_coll *coll)
{
    const int64_t n = dtp_mesh_set_size(mesh, coll->set);
    if (coll->kind == DTP_PERMUTE) {
        dtp_coll gather = *coll;
        gather.kind = DTP_ALL_GATHER;
        return n > 1 ? collective_price(o, mesh, &gather) / (double)(n - 1) : 0;
    }
    static const dtp_step_kind KINDS[DTP_N_COLLS] = {[DTP_ALL_REDUCE] = DTP_STEP_ALL_REDUCE,
                                                     [DTP_ALL_GATHER] = DTP_STEP_ALL_GATHER,
                                                     [DTP_REDUCE_SCATTER] = DTP_STEP_REDUCE_SCATTER,
                                                     [DTP_ALL_TO_ALL] = DTP_STEP_ALL_TO_ALL};
    const bool whole = coll->kind == DTP_ALL_REDUCE;
    dtp_ttype type = {.dtype = coll->dtype, .rank = 2, .dims = {{0, n}, {1, n * coll->count}}};
    dtp_step step = {.kind = KINDS[coll->kind], .set = coll->set, .op = coll->op};
    dtp_layout before = dtp_layout_replicated(2, mesh->n_dims);
    step.after = before;
    type.dims[0].size = coll->kind == DTP_ALL_TO_ALL ? n : 1;
    type.dims[1].size = whole ? coll->count : n * coll->count;
    step.axis = 1;
    step.to_axis = 0;
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        if ((coll->set >> m & 1U) == 0) {
            continue;
        }
        if (dtp_coll_reduces(coll->kind)) {
            before.placement[m] = (dtp_placement){.kind = DTP_PARTIAL, .op = (int8_t)coll->op};
        } else {
            dtp_layout_split(&before, m, 1);
        }
        if (coll->kind == DTP_REDUCE_SCATTER) {
            dtp_layout_split(&step.after, m, 1);
        } else if (coll->kind == DTP_ALL_TO_ALL) {
            dtp_layout_split(&step.after, m, 0);
        }
    }
    return o->price(o->price_user, mesh, &type, &before, &step);
}

dtp_status dtp_propagate__inner(dtp_inner_pricer *pricer, const dtp_propagate_options *o,
                                const dtp_mesh *mesh, const dtp_strategy *strategy,
                                const dtp_node_layouts *layouts, double *cost, dtp_err *err)
{
    *cost = 0;
    if (pricer->program == NULL) {
        DTP_TRY(dtp_program_create(pricer->graph, mesh, &dtp_target_cpu, &pricer->program, err));
        pricer->program->redistributor = o->redistributor;
        pricer->program->plain_names = true;
    } else {
        DTP_TRY(dtp_program_reset(pricer->program, err));
    }
    DTP_TRY(dtp_lower_node(pricer->program, pricer->node, strategy, layouts->in, layouts->out, NULL,
                           err));
    for (int32_t i = 0; i < pricer->program->n_instrs; i++) {
        const dtp_instr *instr = &pricer->program->instrs[i];
        if (instr->kind == DTP_INSTR_START) {
            *cost += collective_price(o, mesh, &instr->coll);
        }
    }
    return DTP_OK;
}
