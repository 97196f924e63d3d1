#include "core/layout/layout.h"

#include <string.h>

#include "core/base/safe_int.h"

const char *dtp_reduce_op_name(dtp_reduce_op op)
{
    static const char *const names[DTP_N_REDUCE_OPS] = {"sum", "avg", "prod", "min", "max"};
    return names[op];
}

dtp_layout dtp_layout_replicated(int32_t rank, int32_t n_mesh)
{
    dtp_layout layout;
    memset(&layout, 0, sizeof layout);
    layout.rank = (int8_t)rank;
    layout.n_mesh = (int8_t)n_mesh;
    return layout;
}

bool dtp_layout_equal(const dtp_layout *a, const dtp_layout *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

void dtp_layout_split(dtp_layout *layout, int32_t m, int32_t axis)
{
    int32_t splits[DTP_MAX_MESH_DIMS];
    int32_t depth = dtp_layout_axis_splits(layout, axis, splits);
    layout->placement[m] =
        (dtp_placement){.kind = DTP_SHARD, .axis = (int8_t)axis, .order = (int8_t)depth};
}

bool dtp_layout_has_partial(const dtp_layout *layout)
{
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        if (layout->placement[m].kind == DTP_PARTIAL) {
            return true;
        }
    }
    return false;
}

dtp_layout dtp_layout_without_partial(const dtp_layout *layout)
{
    dtp_layout whole = *layout;
    for (int32_t m = 0; m < whole.n_mesh; m++) {
        if (whole.placement[m].kind == DTP_PARTIAL) {
            whole.placement[m] = (dtp_placement){0};
        }
    }
    return whole;
}

int32_t dtp_layout_axis_splits(const dtp_layout *layout, int32_t axis,
                               int32_t mesh_dims[DTP_MAX_MESH_DIMS])
{
    int32_t n = 0;
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        if (layout->placement[m].kind == DTP_SHARD && layout->placement[m].axis == axis) {
            mesh_dims[layout->placement[m].order] = m;
            n++;
        }
    }
    return n;
}

void dtp_chunk(int64_t n, int64_t k, int64_t index, int64_t *offset, int64_t *size)
{
    int64_t chunk = n / k + (n % k != 0 ? 1 : 0);
    int64_t start = chunk * index < n ? chunk * index : n;
    int64_t stop = start + chunk < n ? start + chunk : n;
    *offset = start;
    *size = stop - start;
}

void dtp_layout_shard(const dtp_layout *layout, const dtp_mesh *mesh, int32_t axis, int64_t n,
                      const int32_t coords[DTP_MAX_MESH_DIMS], int64_t *offset, int64_t *size)
{
    int32_t splits[DTP_MAX_MESH_DIMS];
    int32_t depth = dtp_layout_axis_splits(layout, axis, splits);
    int64_t at = 0, left = n;
    for (int32_t i = 0; i < depth; i++) {
        int64_t start, len;
        dtp_chunk(left, mesh->sizes[splits[i]], coords[splits[i]], &start, &len);
        at += start;
        left = len;
    }
    *offset = left == 0 ? n : at;
    *size = left;
}

void dtp_layout_local(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                      int32_t rank, dtp_ttype *local, int64_t offsets[DTP_MAX_RANK])
{
    int32_t coords[DTP_MAX_MESH_DIMS];
    dtp_mesh_coords(mesh, rank, coords);
    *local = *type;
    for (int32_t i = 0; i < type->rank; i++) {
        int64_t offset;
        dtp_layout_shard(layout, mesh, i, type->dims[i].size, coords, &offset,
                         &local->dims[i].size);
        if (offsets != NULL) {
            offsets[i] = offset;
        }
    }
}

/* Into how many pieces each tensor dim is split. */
static void count_parts(const dtp_layout *layout, const dtp_mesh *mesh, int32_t rank,
                        int64_t parts[DTP_MAX_RANK])
{
    for (int32_t i = 0; i < rank; i++) {
        parts[i] = 1;
    }
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        if (layout->placement[m].kind == DTP_SHARD) {
            parts[layout->placement[m].axis] *= mesh->sizes[m];
        }
    }
}

/* Rank 0 has the first chunk of every split; ceil(ceil(n / a) / b) = ceil(n / (a b)), so the order
 * of the splits does not matter. */
void dtp_layout_local_max(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                          dtp_ttype *local)
{
    int64_t parts[DTP_MAX_RANK];
    count_parts(layout, mesh, type->rank, parts);
    *local = *type;
    for (int32_t i = 0; i < type->rank; i++) {
        if (parts[i] > 1) {
            local->dims[i].size = dtp_ceil_div(type->dims[i].size, parts[i]);
        }
    }
}

bool dtp_layout_is_even(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type)
{
    int64_t parts[DTP_MAX_RANK];
    count_parts(layout, mesh, type->rank, parts);
    for (int32_t i = 0; i < type->rank; i++) {
        if (parts[i] > 1 && type->dims[i].size % parts[i] != 0) {
            return false;
        }
    }
    return true;
}

bool dtp_layout_is_even_over(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                             dtp_mesh_set set)
{
    int64_t parts[DTP_MAX_RANK];
    count_parts(layout, mesh, type->rank, parts);
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *at = &layout->placement[m];
        if ((set >> m & 1U) != 0 && at->kind == DTP_SHARD &&
            type->dims[at->axis].size % parts[at->axis] != 0) {
            return false;
        }
    }
    return true;
}

/* The splits of one axis must have orders 0..k-1. */
static bool orders_are_dense(const dtp_layout *layout, int32_t axis)
{
    uint32_t seen = 0, n = 0;
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *p = &layout->placement[m];
        if (p->kind == DTP_SHARD && p->axis == axis) {
            if (p->order < 0 || p->order >= DTP_MAX_MESH_DIMS) {
                return false;
            }
            seen |= 1U << p->order;
            n++;
        }
    }
    return seen == (1U << n) - 1U;
}

dtp_status dtp_layout_check(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                            dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, layout, mesh, type));
    if (layout->rank != type->rank || layout->n_mesh != mesh->n_dims) {
        return DTP_FAIL(
            err, DTP_INVALID,
            "layout of rank %d on %d mesh dims, but the tensor has rank %d and the mesh %d dims",
            layout->rank, layout->n_mesh, type->rank, mesh->n_dims);
    }
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *p = &layout->placement[m];
        if (p->kind == DTP_SHARD && (p->axis < 0 || p->axis >= type->rank)) {
            return DTP_FAIL(err, DTP_INVALID, "mesh dim '%s' splits axis %d of a tensor of rank %d",
                            mesh->names[m], p->axis, type->rank);
        }
        if (p->kind < DTP_REPLICATE || p->kind > DTP_PARTIAL ||
            (p->kind == DTP_PARTIAL && (p->op < 0 || p->op >= DTP_N_REDUCE_OPS))) {
            return DTP_FAIL(err, DTP_INVALID, "mesh dim '%s': unknown placement %d(%d)",
                            mesh->names[m], p->kind, p->op);
        }
    }
    for (int32_t i = 0; i < type->rank; i++) {
        if (!orders_are_dense(layout, i)) {
            return DTP_FAIL(err, DTP_INVALID, "the splits of axis %d are not ordered 0, 1, ...", i);
        }
    }
    return DTP_OK;
}
