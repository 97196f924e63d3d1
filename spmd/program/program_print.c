/* Readable listing of a program, one line per instruction:
 *
 *   12 backward start      all_reduce(sum) over x (4 ranks), ... : %7:dw1@(+sum(x))[784,512] ->
 *      %8:dw1[784,512]  1.200 us
 *   15 backward wait       all_reduce of 12
 *
 * Shapes are the largest local ones. "{h: 2/1-1+1 of 16}": of dim h the range that a window of
 * stride 2/1 with margins 1 and 1 has for a piece of 16. "external": in a buffer of the caller.
 * "joined": in one launch with the kernel before it.
 */
#include <inttypes.h>
#include <string.h>

#include "core/base/units.h"
#include "core/graph/ops/fused_ops.h"
#include "spmd/program/program.h"

static void print_set(const dtp_program *p, dtp_mesh_set set, dtp_strbuf *out)
{
    const char *separator = "";
    for (int32_t m = 0; m < p->mesh.n_dims; m++) {
        if ((set >> m & 1U) != 0) {
            dtp_strbuf_addf(out, "%s%s", separator, p->mesh.names[m]);
            separator = "+";
        }
    }
}

static bool is_replicated(const dtp_layout *layout)
{
    dtp_layout none = dtp_layout_replicated(layout->rank, layout->n_mesh);
    return dtp_layout_equal(layout, &none);
}

static void print_value(const dtp_program *p, dtp_value_id id, dtp_strbuf *out)
{
    const dtp_value *v = &p->values[id];
    dtp_ttype local;
    char text[DTP_LAYOUT_TEXT_BYTES];
    dtp_value_local(p, id, DTP_ANY_RANK, &local, NULL);
    bool flat = v->kind == DTP_VALUE_STAGING || v->kind == DTP_VALUE_WORKSPACE;
    dtp_strbuf_addf(out, " %%%d:%.*s", id, (int)strcspn(v->name, "@"), v->name);
    if (!flat && !is_replicated(&v->layout)) {
        dtp_layout_print(&v->layout, &p->mesh, &v->type, &p->dims, text);
        dtp_strbuf_addf(out, "@(%s)", text);
    }
    for (int32_t i = 0; i < v->type.rank && v->ranges != NULL; i++) {
        const dtp_range *r = &v->ranges[i];
        if (r->of > 0) {
            dtp_strbuf_addf(
                out, "{%s: %" PRId64 "/%" PRId64 "-%" PRId64 "+%" PRId64 "%s of %" PRId64 "}",
                dtp_dims_name(&p->dims, v->type.dims[i].id), r->window.stride, r->window.per,
                r->window.before, r->window.after, r->window.cyclic != 0 ? " cyclic" : "", r->of);
        }
    }
    dtp_strbuf_add(out, "[");
    for (int32_t i = 0; i < local.rank; i++) {
        dtp_strbuf_addf(out, "%s%" PRId64, i > 0 ? "," : "", local.dims[i].size);
    }
    dtp_strbuf_add(out, "]");
    if (v->external && v->parent < 0) {
        dtp_strbuf_add(out, "external");
    }
    if (v->parent >= 0) {
        dtp_strbuf_addf(out, "in%%%d", v->parent);
    }
}

/* The parts of a strided buffer: "[8,:2,16]" is an array of 8 x 2 x 16 elements, cut along the 2.
 */
static void print_parts(const dtp_coll *c, const char *name, int64_t outer, int32_t n,
                        dtp_strbuf *out)
{
    if (outer > 1) {
        dtp_strbuf_addf(out, ", %s [%" PRId64 ",:%d,%" PRId64 "]", name, outer, n,
                        c->count / outer);
    }
}

static void print_coll(const dtp_program *p, const dtp_coll *c, dtp_strbuf *out)
{
    int32_t n = dtp_mesh_set_size(&p->mesh, c->set);
    dtp_strbuf_addf(out, "start      %s", dtp_coll_name(c->kind));
    if (dtp_coll_reduces(c->kind)) {
        dtp_strbuf_addf(out, "(%s)", dtp_reduce_op_name(c->op));
    }
    if (c->kind == DTP_PERMUTE) {
        dtp_strbuf_addf(out, "(%+d)", c->shift);
    }
    dtp_strbuf_add(out, " over ");
    print_set(p, c->set, out);
    dtp_strbuf_addf(out, " (%d ranks), %" PRId64 " x %s = %s", n, c->count,
                    dtp_dtype_name(c->dtype),
                    dtp_byte_count((double)(c->count * dtp_dtype_bytes(c->dtype))).text);
    if (c->n_bucket > 0) {
        dtp_strbuf_addf(out, ", %d tensors", c->n_bucket);
    }
    for (int32_t k = 0; k < dtp_coll_buffers(c); k++) {
        print_parts(dtp_coll_at(c, k), "in", dtp_coll_at(c, k)->in_outer, n, out);
        print_parts(dtp_coll_at(c, k), "out", dtp_coll_at(c, k)->out_outer, n, out);
    }
}

static void print_instr(const dtp_program *p, int32_t i, dtp_strbuf *out)
{
    static const char *const phases[] = {"forward ", "backward", "update  "};
    const dtp_instr *instr = &p->instrs[i];
    dtp_strbuf_addf(out, "%5d %s ", i, phases[instr->phase]);
    dtp_strbuf_add(out, instr->once ? "once " : "");
    switch (instr->kind) {
    case DTP_INSTR_KERNEL:
        dtp_strbuf_addf(out, "kernel     %s", instr->op->name);
        dtp_fused_print(&(dtp_op_call){.op = instr->op, .attrs = instr->attrs, .n_in = instr->n_in},
                        out);
        dtp_strbuf_add(out, instr->joined ? " joined" : "");
        break;
    case DTP_INSTR_START:
        print_coll(p, &instr->coll, out);
        break;
    case DTP_INSTR_WAIT:
        dtp_strbuf_addf(out, "wait       %s of %d\n", dtp_coll_name(instr->coll.kind), instr->pair);
        return;
    default:
        dtp_strbuf_addf(out, "move       %s axis %d", dtp_copy_name(instr->move.kind),
                        instr->move.axis);
        if (instr->move.set != 0) {
            dtp_strbuf_add(out, " over ");
            print_set(p, instr->move.set, out);
        }
        if (instr->move.kind == DTP_COPY_SCALE) {
            dtp_strbuf_addf(out, " by %g", instr->move.factor);
        }
        if (instr->move.shift != 0) {
            dtp_strbuf_addf(out, " (%+d", instr->move.shift);
            if (instr->move.shift2 != 0) {
                dtp_strbuf_addf(out, ", %+d", instr->move.shift2);
            }
            dtp_strbuf_add(out, ")");
        }
        break;
    }
    dtp_strbuf_add(out, " :");
    for (int32_t k = 0; k < instr->n_in; k++) {
        print_value(p, instr->in[k], out);
    }
    dtp_strbuf_add(out, " ->");
    for (int32_t k = 0; k < instr->n_out; k++) {
        print_value(p, instr->out[k], out);
    }
    if (instr->time_s > 0) {
        dtp_strbuf_addf(out, "  %s", dtp_seconds(instr->time_s).text);
    }
    dtp_strbuf_add(out, "\n");
}

void dtp_program_print(const dtp_program *p, dtp_strbuf *out)
{
    char mesh[DTP_MESH_TEXT_BYTES];
    dtp_mesh_print(&p->mesh, mesh);
    dtp_strbuf_addf(
        out, "program %s on mesh '%s' (%d ranks): %d instructions, %d values, %s per rank%s\n",
        p->graph->name, mesh, dtp_mesh_ranks(&p->mesh), p->n_instrs, p->n_values,
        dtp_byte_count((double)p->peak_bytes).text, p->graph->tf32 ? ", products in tf32" : "");
    for (int32_t i = 0; i < p->n_instrs; i++) {
        print_instr(p, i, out);
    }
    for (int32_t i = 0; i < p->n_updates; i++) {
        dtp_strbuf_addf(out, "update %s by %%%d\n", p->values[p->updates[i].target].name,
                        p->updates[i].value);
    }
}
