/* Properties of one step: packing, size of its parts, price on the generic machine, text. */
#include "spmd/redistribute/steps.h"

#include <assert.h>

#include "core/base/safe_int.h"
#include "spmd/redistribute/redistribute_internal.h"

int64_t dtp_step_count(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *before,
                       const dtp_step *step)
{
    dtp_ttype part;
    bool after = step->kind == DTP_STEP_REDUCE_SCATTER;
    dtp_layout_local_max(after ? &step->after : before, mesh, type, &part);
    if (step->kind == DTP_STEP_ALL_TO_ALL) {
        part.dims[step->to_axis].size =
            dtp_ceil_div(part.dims[step->to_axis].size, dtp_mesh_set_size(mesh, step->set));
    }
    return dtp_ttype_elems(&part);
}

/* Elements before `axis` of the local array: its parts along the axis are [outer, n, rest]. */
static int64_t outer_of(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                        int32_t axis)
{
    dtp_ttype local;
    int64_t outer = 1;
    dtp_layout_local_max(layout, mesh, type, &local);
    for (int32_t i = 0; i < axis; i++) {
        outer *= local.dims[i].size;
    }
    return outer;
}

bool dtp_step_collective(dtp_step_kind kind, dtp_coll_kind *out)
{
    static const dtp_coll_kind kinds[] = {[DTP_STEP_ALL_REDUCE] = DTP_ALL_REDUCE,
                                          [DTP_STEP_REDUCE_SCATTER] = DTP_REDUCE_SCATTER,
                                          [DTP_STEP_ALL_GATHER] = DTP_ALL_GATHER,
                                          [DTP_STEP_ALL_TO_ALL] = DTP_ALL_TO_ALL};
    const bool collective = (size_t)kind < sizeof kinds / sizeof kinds[0];
    *out = collective ? kinds[kind] : *out;
    return collective;
}

bool dtp_step_sends(const dtp_mesh *mesh, const dtp_step *step)
{
    dtp_coll_kind kind = DTP_ALL_REDUCE;
    return dtp_step_collective(step->kind, &kind) && dtp_mesh_set_size(mesh, step->set) > 1;
}

/* The parts of the buffers as they lie in even shards: dtp_coll.in_outer and out_outer. */
static void find_outers(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *before,
                        const dtp_step *step, int64_t *in_outer, int64_t *out_outer)
{
    const bool exchange = step->kind == DTP_STEP_ALL_TO_ALL;
    *in_outer = *out_outer = 1;
    if (exchange || step->kind == DTP_STEP_REDUCE_SCATTER) {
        *in_outer = outer_of(before, mesh, type, exchange ? step->to_axis : step->axis);
    }
    if (exchange || step->kind == DTP_STEP_ALL_GATHER) {
        *out_outer = outer_of(&step->after, mesh, type, step->axis);
    }
}

uint32_t dtp_step_packs(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *before,
                        const dtp_step *step, const dtp_target *target)
{
    const bool cuts = step->kind == DTP_STEP_ALL_GATHER || step->kind == DTP_STEP_REDUCE_SCATTER ||
                      step->kind == DTP_STEP_ALL_TO_ALL;
    if (cuts &&
        !(dtp_layout_is_even(before, mesh, type) && dtp_layout_is_even(&step->after, mesh, type))) {
        return DTP_PACKS_IN | DTP_PACKS_OUT;
    }
    int64_t in_outer, out_outer;
    if (target->strided || !cuts) {
        return 0;
    }
    find_outers(mesh, type, before, step, &in_outer, &out_outer);
    return (in_outer > 1 ? DTP_PACKS_IN : 0U) | (out_outer > 1 ? DTP_PACKS_OUT : 0U);
}

dtp_coll dtp_step_coll(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *before,
                       const dtp_step *step, const dtp_target *target)
{
    dtp_coll coll = {.set = step->set,
                     .op = step->op,
                     .dtype = type->dtype,
                     .count = dtp_step_count(mesh, type, before, step)};
    const uint32_t packs = dtp_step_packs(mesh, type, before, step, target);
    const bool collective = dtp_step_collective(step->kind, &coll.kind);
    assert(collective);
    (void)collective;
    find_outers(mesh, type, before, step, &coll.in_outer, &coll.out_outer);
    coll.in_outer = (packs & DTP_PACKS_IN) != 0 ? 1 : coll.in_outer;
    coll.out_outer = (packs & DTP_PACKS_OUT) != 0 ? 1 : coll.out_outer;
    return coll;
}

/* ---- the generic machine ---- */

double dtp_step_generic_price(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                              const dtp_layout *before, const dtp_step *step)
{
    (void)user;
    const int64_t n = dtp_mesh_set_size(mesh, step->set);
    if (n < 2) {
        return 0;
    }
    const double ranks = (double)n, part_bytes = (double)dtp_step_count(mesh, type, before, step) *
                                                 (double)dtp_dtype_bytes(type->dtype);
    double moved = part_bytes * (ranks - 1), copied = 0, launch = DTP_GENERIC_LAUNCH_S;
    int doublings = 0; /* ceil(log2(n)) */
    switch (step->kind) {
    case DTP_STEP_SLICE:
        return 2 * part_bytes / ranks / DTP_GENERIC_MEM_BPS;
    case DTP_STEP_SCALE:
    case DTP_STEP_KEEP_FIRST:
        return 2 * part_bytes / DTP_GENERIC_MEM_BPS;
    case DTP_STEP_ALL_REDUCE:
        moved = 2 * moved / ranks;
        launch += DTP_GENERIC_LAUNCH_S;
        break;
    default:
        break;
    }
    if (dtp_step_packs(mesh, type, before, step, &dtp_target_cpu) != 0) {
        copied = 2 * part_bytes * (step->kind == DTP_STEP_ALL_TO_ALL ? 2 * ranks : 1 + ranks);
    }
    while ((INT64_C(1) << doublings) < n) {
        doublings++;
    }
    return launch + DTP_GENERIC_HOP_S * doublings + moved / DTP_GENERIC_NET_BPS +
           copied / DTP_GENERIC_MEM_BPS;
}

/* ---- text ---- */

const char *dtp_step_name(dtp_step_kind kind)
{
    static const char *const names[] = {
        [DTP_STEP_ALL_REDUCE] = "all_reduce", [DTP_STEP_REDUCE_SCATTER] = "reduce_scatter",
        [DTP_STEP_ALL_GATHER] = "all_gather", [DTP_STEP_ALL_TO_ALL] = "all_to_all",
        [DTP_STEP_SLICE] = "slice",           [DTP_STEP_SCALE] = "scale",
        [DTP_STEP_KEEP_FIRST] = "keep_first"};
    return names[kind];
}

void dtp_layout_trace(const dtp_layout *layout, dtp_strbuf *out)
{
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *p = &layout->placement[m];
        int32_t splits[DTP_MAX_MESH_DIMS];
        if (p->kind == DTP_PARTIAL) {
            dtp_strbuf_addf(out, "P(%s)", dtp_reduce_op_name((dtp_reduce_op)p->op));
        } else if (p->kind == DTP_REPLICATE) {
            dtp_strbuf_add(out, "R");
        } else if (dtp_layout_axis_splits(layout, p->axis, splits) > 1) {
            dtp_strbuf_addf(out, "S(%d)[%d]", p->axis, p->order);
        } else {
            dtp_strbuf_addf(out, "S(%d)", p->axis);
        }
    }
}

void dtp_steps_trace(const dtp_layout *from, const dtp_steps *steps, dtp_strbuf *out)
{
    dtp_layout_trace(from, out);
    for (int32_t i = 0; i < steps->n; i++) {
        dtp_strbuf_add(out, "\xe2\x86\x92");
        dtp_layout_trace(&steps->steps[i].after, out);
    }
}
