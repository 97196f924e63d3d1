/* Facts about one step of a redistribution: what is packed and how large its parts are. */
#include "core/base/safe_int.h"
#include "spmd/redistribute/redistribute.h"

#include <assert.h>

static bool both_even(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *a,
                      const dtp_layout *b)
{
    return dtp_layout_is_even(a, mesh, type) && dtp_layout_is_even(b, mesh, type);
}

bool dtp_step_packs(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *before,
                    const dtp_step *step)
{
    bool cuts = step->kind == DTP_STEP_ALL_GATHER || step->kind == DTP_STEP_REDUCE_SCATTER ||
                step->kind == DTP_STEP_ALL_TO_ALL;
    return cuts && !both_even(mesh, type, before, &step->after);
}

bool dtp_step_unpacks(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *before,
                      const dtp_step *step)
{
    return dtp_step_packs(mesh, type, before, step);
}

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
    switch (kind) {
    case DTP_STEP_ALL_REDUCE:
        *out = DTP_ALL_REDUCE;
        return true;
    case DTP_STEP_REDUCE_SCATTER:
        *out = DTP_REDUCE_SCATTER;
        return true;
    case DTP_STEP_ALL_GATHER:
        *out = DTP_ALL_GATHER;
        return true;
    case DTP_STEP_ALL_TO_ALL:
        *out = DTP_ALL_TO_ALL;
        return true;
    default:
        return false;
    }
}

dtp_coll dtp_step_coll(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *before,
                       const dtp_step *step)
{
    dtp_coll coll = {.set = step->set,
                     .op = step->op,
                     .dtype = type->dtype,
                     .count = dtp_step_count(mesh, type, before, step),
                     .in_outer = 1,
                     .out_outer = 1};
    const bool collective = dtp_step_collective(step->kind, &coll.kind);
    assert(collective);
    (void)collective;
    if (dtp_step_packs(mesh, type, before, step)) {
        return coll;
    }
    bool exchange = step->kind == DTP_STEP_ALL_TO_ALL;
    if (exchange || step->kind == DTP_STEP_REDUCE_SCATTER) {
        coll.in_outer = outer_of(before, mesh, type, exchange ? step->to_axis : step->axis);
    }
    if (exchange || step->kind == DTP_STEP_ALL_GATHER) {
        coll.out_outer = outer_of(&step->after, mesh, type, step->axis);
    }
    return coll;
}
