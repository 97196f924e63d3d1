/* Prices for the choice of a strategy: redistributions of operands, and the collectives inside an
 * op. */
#include <stdio.h>
#include <string.h>

#include "spmd/lower/lower.h"
#include "spmd/propagate/propagate_internal.h"

static double step_price(const dtp_propagate_options *o, const dtp_mesh *mesh,
                         const dtp_ttype *type, const dtp_layout *before, const dtp_step *step)
{
    dtp_step_price price = o->price != NULL ? o->price : dtp_step_generic_price;
    return price(o->price_user, mesh, type, before, step);
}

/* Nothing is sent: local work, or a mesh dim of one rank. */
static bool is_local(const dtp_mesh *mesh, const dtp_step *step)
{
    return step->kind == DTP_STEP_SLICE || step->kind == DTP_STEP_SCALE ||
           step->kind == DTP_STEP_KEEP_FIRST || dtp_mesh_set_size(mesh, step->set) == 1;
}

dtp_status dtp_propagate__move(const dtp_propagate_options *o, const dtp_mesh *mesh,
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
        out->cost += step_price(o, mesh, type, &before, &steps.steps[i]);
        out->collectives += is_local(mesh, &steps.steps[i]) ? 0 : 1;
        out->locals += is_local(mesh, &steps.steps[i]) ? 1 : 0;
        before = steps.steps[i].after;
    }
    return DTP_OK;
}

/* ---- inside an op -------------------------------------------------------------------------------
 */

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
        const bool sums = coll->kind == DTP_ALL_REDUCE || coll->kind == DTP_REDUCE_SCATTER;
        if (sums) {
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
    return step_price(o, mesh, &type, &before, &step);
}

/* The call as a graph of one node; dim ids are the same. */
static dtp_status graph_of_call(const dtp_op_call *call, dtp_graph **out, dtp_err *err)
{
    dtp_tensor_id in[DTP_MAX_OP_IN];
    dtp_dim_id id;
    DTP_TRY(dtp_graph_create("call", out, err));
    for (int32_t d = 0; d < call->dims->n; d++) {
        DTP_TRY(
            dtp_dims_intern(&(*out)->dims, call->dims->names[d], call->dims->sizes[d], &id, err));
    }
    for (int32_t i = 0; i < call->n_in; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "in%d", i);
        dtp_tensor_spec spec = {.name = name, .kind = DTP_TENSOR_INPUT, .type = call->in[i]};
        DTP_TRY(dtp_graph_add_tensor(*out, &spec, &in[i], err));
    }
    dtp_node_spec spec = dtp_node_spec_init(call->op->name, call->op->name);
    spec.def = call->op;
    spec.n_in = call->n_in;
    spec.in = in;
    spec.n_attrs = call->n_attrs;
    spec.attrs = call->attrs;
    spec.has_out = true;
    spec.out_rank = call->out[0].rank;
    memcpy(spec.out_dims, call->out[0].dims, sizeof spec.out_dims);
    return dtp_graph_add_node(*out, &spec, NULL, err);
}

static dtp_status open_program(dtp_inner_pricer *pricer, const dtp_propagate_options *o,
                               const dtp_mesh *mesh, const dtp_op_call *call, dtp_err *err)
{
    if (pricer->graph == NULL) {
        DTP_TRY(graph_of_call(call, &pricer->own_graph, err));
        pricer->graph = pricer->own_graph;
        pricer->node = 0;
    }
    if (pricer->program != NULL) {
        return dtp_program_reset(pricer->program, err);
    }
    DTP_TRY(dtp_program_create(pricer->graph, mesh, &pricer->program, err));
    pricer->program->redistributor = o->redistributor;
    pricer->program->plain_names = true;
    return DTP_OK;
}

dtp_status dtp_propagate__inner(dtp_inner_pricer *pricer, const dtp_propagate_options *o,
                                const dtp_mesh *mesh, const dtp_op_call *call,
                                const dtp_strategy *strategy, const dtp_node_layouts *layouts,
                                double *cost, dtp_err *err)
{
    *cost = 0;
    DTP_TRY(open_program(pricer, o, mesh, call, err));
    DTP_TRY(
        dtp_lower_node(pricer->program, pricer->node, strategy, layouts->in, layouts->out, err));
    for (int32_t i = 0; i < pricer->program->n_instrs; i++) {
        const dtp_instr *instr = &pricer->program->instrs[i];
        if (instr->kind == DTP_INSTR_COLLECTIVE) {
            *cost += collective_price(o, mesh, &instr->coll);
        }
    }
    return DTP_OK;
}

void dtp_inner_pricer_free(dtp_inner_pricer *pricer)
{
    dtp_program_destroy(pricer->program);
    dtp_graph_destroy(pricer->own_graph);
    pricer->program = NULL;
    pricer->own_graph = NULL;
}
