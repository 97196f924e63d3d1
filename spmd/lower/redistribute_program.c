/* Redistribution steps as instructions, and a redistribution as a program of its own.
 *
 * A collective works on equal parts, one per member of the group. When every shard has the same
 * size, they are the pieces of the tensor's own buffer along the dim that is split
 * (dtp_coll.in_outer and out_outer say where they lie); otherwise the parts are packed into
 * (unpacked from) a staging buffer, each zero padded to the largest part of any rank. So are pieces
 * that do not lie one after the other, on a target without strided collectives. A step over one
 * rank only renames.
 */
#include "spmd/lower/redistribute_program.h"

#include "spmd/lower/overlap.h"
#include "spmd/program/program_internal.h"

/* What the instructions of one step have in common. */
typedef struct emitter {
    dtp_program *p;
    const dtp_step *step;
    dtp_node_id node;
    dtp_phase phase;
    dtp_value_id from;
} emitter;

/* Appends an instruction with one operand and one result; `of` says what it does. */
static dtp_status add(const emitter *e, dtp_instr of, dtp_value_id in, dtp_value_id out,
                      dtp_err *err)
{
    of.n_in = of.n_out = 1;
    of.in = &in;
    of.out = &out;
    return dtp_program__add_instr(e->p, &of, err);
}

static dtp_status add_copy(const emitter *e, dtp_copy copy, dtp_value_id in, dtp_value_id out,
                           dtp_err *err)
{
    dtp_instr instr = dtp_program__instr_init(DTP_INSTR_COPY, e->node, e->phase);
    instr.move = copy;
    return add(e, instr, in, out, err);
}

static dtp_status emit_collective(const emitter *e, dtp_value_id to, dtp_err *err)
{
    dtp_program *p = e->p;
    const dtp_step *step = e->step;
    const dtp_value from = p->values[e->from];
    dtp_instr instr = dtp_program__instr_init(DTP_INSTR_START, e->node, e->phase);
    instr.coll = dtp_step_coll(&p->mesh, &from.type, &from.layout, step, p->target);
    const uint32_t packs = dtp_step_packs(&p->mesh, &from.type, &from.layout, step, p->target);
    const int64_t n = dtp_mesh_set_size(&p->mesh, step->set);
    const int64_t parts_in = dtp_coll_parts_in(&instr.coll, n);
    const int64_t parts_out = dtp_coll_parts_out(&instr.coll, n);
    const dtp_copy pack = {.kind = DTP_COPY_PACK,
                           .axis = step->kind == DTP_STEP_ALL_TO_ALL ? step->to_axis : step->axis,
                           .set = parts_in > 1 ? step->set : 0};
    const dtp_copy unpack = {
        .kind = DTP_COPY_UNPACK, .axis = step->axis, .set = parts_out > 1 ? step->set : 0};
    dtp_value_id in = e->from, out = to;
    if ((packs & DTP_PACKS_IN) != 0) {
        DTP_TRY(dtp_program__add_staging(p, "staging.send", instr.coll.dtype, parts_in,
                                         instr.coll.count, &in, err));
        DTP_TRY(add_copy(e, pack, e->from, in, err));
    }
    if ((packs & DTP_PACKS_OUT) != 0) {
        DTP_TRY(dtp_program__add_staging(p, "staging.receive", instr.coll.dtype, parts_out,
                                         instr.coll.count, &out, err));
    }
    DTP_TRY(add(e, instr, in, out, err));
    return out != to ? add_copy(e, unpack, out, to, err) : DTP_OK;
}

/* One step; *value becomes its result. */
static dtp_status emit_step(const emitter *e, dtp_value_id *value, dtp_err *err)
{
    const dtp_step *step = e->step;
    dtp_value_id to;
    DTP_TRY(dtp_program__add_version(e->p, e->from, &step->after, &to, err));
    *value = to;
    /* The local buffers stay as they are and only the layout gets another name. */
    if (dtp_mesh_set_size(&e->p->mesh, step->set) == 1 ||
        (step->kind == DTP_STEP_KEEP_FIRST && step->op != DTP_REDUCE_SUM)) {
        e->p->values[to].parent = e->from;
        return DTP_OK;
    }
    dtp_copy copy = {.axis = step->axis, .set = step->set};
    switch (step->kind) {
    case DTP_STEP_SLICE:
        copy.kind = DTP_COPY_SLICE;
        break;
    case DTP_STEP_SCALE:
        copy.kind = DTP_COPY_SCALE;
        copy.factor = step->factor;
        break;
    case DTP_STEP_KEEP_FIRST:
        copy.kind = DTP_COPY_KEEP_FIRST;
        break;
    default:
        return emit_collective(e, to, err);
    }
    return add_copy(e, copy, e->from, to, err);
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

dtp_status dtp_redistribute_value(dtp_program *p, const dtp_layout *to, dtp_node_id node,
                                  dtp_phase phase, dtp_value_id *value, dtp_err *err)
{
    const dtp_value *from = &p->values[*value];
    dtp_steps steps;
    DTP_TRY(dtp_redistribute_by(p->redistributor, &p->mesh, &from->type, &from->layout, to, &steps,
                                err));
    return dtp_redistribute_emit(p, &steps, node, phase, value, err);
}

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
    const dtp_overlap none = {0};
    return dtp_program_overlap(p, &none, false, err);
}

dtp_status dtp_redistribute_program(const dtp_graph *g, const dtp_mesh *mesh,
                                    const dtp_target *target, const dtp_ttype *type,
                                    const dtp_layout *from, const dtp_steps *steps,
                                    dtp_redistribute_job *out, dtp_err *err)
{
    DTP_TRY(dtp_program_create(g, mesh, target, &out->program, err));
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
