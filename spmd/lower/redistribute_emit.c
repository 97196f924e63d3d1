/* Redistribution steps as instructions.
 *
 * A collective works on equal parts, one per member of the group. When every shard has the same
 * size, they are the pieces of the tensor's own buffer along the dim that is split
 * (dtp_coll.in_outer and out_outer say where they lie); otherwise the parts are packed into
 * (unpacked from) a staging buffer, each zero padded to the largest part of any rank. A step over
 * one rank only renames.
 */
#include "spmd/program/program_internal.h"
#include "spmd/redistribute/redistribute.h"

/* What the instructions of one step have in common. */
typedef struct emitter {
    dtp_program *p;
    const dtp_step *step;
    dtp_node_id node;
    dtp_phase phase;
    dtp_value_id from;
} emitter;

static dtp_status add_move(const emitter *e, dtp_copy move, dtp_value_id in, dtp_value_id out,
                           dtp_err *err)
{
    dtp_instr instr = dtp_program__instr_init(DTP_INSTR_COPY, e->node, e->phase);
    instr.move = move;
    instr.n_in = instr.n_out = 1;
    instr.in = &in;
    instr.out = &out;
    return dtp_program__add_instr(e->p, &instr, err);
}

static dtp_status add_coll(const emitter *e, const dtp_coll *coll, dtp_value_id in,
                           dtp_value_id out, dtp_err *err)
{
    dtp_instr instr = dtp_program__instr_init(DTP_INSTR_COLLECTIVE, e->node, e->phase);
    instr.coll = *coll;
    instr.n_in = instr.n_out = 1;
    instr.in = &in;
    instr.out = &out;
    return dtp_program__add_instr(e->p, &instr, err);
}

/* The collective between two staging buffers of padded parts. */
static dtp_status emit_packed(const emitter *e, const dtp_coll *coll, dtp_value_id to, dtp_err *err)
{
    dtp_program *p = e->p;
    const dtp_step *step = e->step;
    int64_t n = dtp_mesh_set_size(&p->mesh, step->set);
    int64_t parts_in = dtp_coll_parts_in(coll, n), parts_out = dtp_coll_parts_out(coll, n);
    dtp_value_id in, out;
    dtp_copy pack = {.kind = DTP_COPY_PACK,
                     .axis = step->kind == DTP_STEP_ALL_TO_ALL ? step->to_axis : step->axis,
                     .set = parts_in > 1 ? step->set : 0};
    dtp_copy unpack = {
        .kind = DTP_COPY_UNPACK, .axis = step->axis, .set = parts_out > 1 ? step->set : 0};
    DTP_TRY(
        dtp_program__add_staging(p, "staging.send", coll->dtype, parts_in, coll->count, &in, err));
    DTP_TRY(add_move(e, pack, e->from, in, err));
    DTP_TRY(dtp_program__add_staging(p, "staging.receive", coll->dtype, parts_out, coll->count,
                                     &out, err));
    DTP_TRY(add_coll(e, coll, in, out, err));
    return add_move(e, unpack, out, to, err);
}

static dtp_status emit_collective(const emitter *e, dtp_value_id to, dtp_err *err)
{
    const dtp_program *p = e->p;
    const dtp_value from = p->values[e->from];
    dtp_coll coll = dtp_step_coll(&p->mesh, &from.type, &from.layout, e->step);
    return dtp_step_packs(&p->mesh, &from.type, &from.layout, e->step)
               ? emit_packed(e, &coll, to, err)
               : add_coll(e, &coll, e->from, to, err);
}

/* True when the local buffers stay as they are and only the layout gets another name. */
static bool renames_only(const dtp_mesh *mesh, const dtp_step *step)
{
    return dtp_mesh_set_size(mesh, step->set) == 1 ||
           (step->kind == DTP_STEP_KEEP_FIRST && step->op != DTP_REDUCE_SUM);
}

static dtp_status emit_step(const emitter *e, dtp_value_id *value, dtp_err *err)
{
    const dtp_step *step = e->step;
    dtp_value_id to;
    DTP_TRY(dtp_program__add_version(e->p, e->from, &step->after, &to, err));
    *value = to;
    if (renames_only(&e->p->mesh, step)) {
        e->p->values[to].parent = e->from;
        return DTP_OK;
    }
    dtp_copy move = {.axis = step->axis, .set = step->set};
    switch (step->kind) {
    case DTP_STEP_SLICE:
        move.kind = DTP_COPY_SLICE;
        return add_move(e, move, e->from, to, err);
    case DTP_STEP_SCALE:
        move.kind = DTP_COPY_SCALE;
        move.factor = step->factor;
        return add_move(e, move, e->from, to, err);
    case DTP_STEP_KEEP_FIRST:
        move.kind = DTP_COPY_KEEP_FIRST;
        return add_move(e, move, e->from, to, err);
    default:
        return emit_collective(e, to, err);
    }
}

dtp_status dtp_redistribute_emit(dtp_program *p, const dtp_steps *steps, dtp_node_id node,
                                 dtp_phase phase, dtp_value_id *value, dtp_err *err)
{
    for (int32_t i = 0; i < steps->n; i++) {
        emitter e = {
            .p = p, .step = &steps->steps[i], .node = node, .phase = phase, .from = *value};
        DTP_TRY(emit_step(&e, value, err));
    }
    return DTP_OK;
}
