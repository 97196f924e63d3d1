/* Ranges of values (spmd/program/ranges.h). */
#include "spmd/program/ranges.h"

dtp_split_dim dtp_split_dim_of(const dtp_mesh *mesh, const dtp_layout *layout,
                               const dtp_ttype *type, int32_t axis)
{
    int32_t splits[DTP_MAX_MESH_DIMS];
    const int32_t n = dtp_layout_axis_splits(layout, axis, splits);
    dtp_split_dim d = {.mesh = mesh,
                       .layout = layout,
                       .axis = axis,
                       .size = type->dims[axis].size,
                       .ascending = true,
                       .places = 1};
    for (int32_t i = 0; i < n; i++) {
        d.set |= 1U << splits[i];
        d.ascending = d.ascending && (i == 0 || splits[i - 1] < splits[i]);
        d.places *= mesh->sizes[splits[i]];
    }
    return d;
}

int64_t dtp_split_dim_place(const dtp_split_dim *d, int32_t rank)
{
    int32_t splits[DTP_MAX_MESH_DIMS], coords[DTP_MAX_MESH_DIMS];
    const int32_t n = dtp_layout_axis_splits(d->layout, d->axis, splits);
    int64_t place = 0;
    dtp_mesh_coords(d->mesh, rank, coords);
    for (int32_t i = 0; i < n; i++) {
        place = place * d->mesh->sizes[splits[i]] + coords[splits[i]];
    }
    return place;
}

static dtp_extent shard_of(const dtp_split_dim *d, int64_t size, int64_t place)
{
    int32_t splits[DTP_MAX_MESH_DIMS], coords[DTP_MAX_MESH_DIMS] = {0};
    int64_t offset, n;
    for (int32_t i = dtp_layout_axis_splits(d->layout, d->axis, splits) - 1; i >= 0; i--) {
        coords[splits[i]] = (int32_t)(place % d->mesh->sizes[splits[i]]);
        place /= d->mesh->sizes[splits[i]];
    }
    dtp_layout_shard(d->layout, d->mesh, d->axis, size, coords, &offset, &n);
    return (dtp_extent){offset, offset + n};
}

dtp_extent dtp_shard_at(const dtp_split_dim *d, int64_t place)
{
    return shard_of(d, d->size, place);
}

static int64_t within(int64_t at, int64_t size)
{
    return at < 0 ? 0 : at < size ? at : size;
}

/* Rounded down; b > 0. */
static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0 ? 1 : 0);
}

dtp_extent dtp_range_at(const dtp_split_dim *d, const dtp_range *range, int64_t place)
{
    const dtp_dim_window *w = &range->window;
    const dtp_extent of = shard_of(d, range->of, place);
    if (of.from >= of.to) {
        return (dtp_extent){d->size, d->size};
    }
    const int64_t from = -floor_div(w->before - of.from * w->stride, w->per);
    const int64_t last = floor_div((of.to - 1) * w->stride + w->after, w->per);
    const dtp_extent e = {within(from, d->size), within(last + 1, d->size)};
    return e.from < e.to ? e : (dtp_extent){d->size, d->size};
}

dtp_extent dtp_value_extent(const dtp_program *p, const dtp_value *v, int32_t axis, int64_t place)
{
    const dtp_split_dim d = dtp_split_dim_of(&p->mesh, &v->layout, &v->type, axis);
    return v->ranges != NULL && v->ranges[axis].of > 0 ? dtp_range_at(&d, &v->ranges[axis], place)
                                                       : dtp_shard_at(&d, place);
}

dtp_extent dtp_extent_common(dtp_extent a, dtp_extent b)
{
    const dtp_extent e = {a.from > b.from ? a.from : b.from, a.to < b.to ? a.to : b.to};
    return e.from < e.to ? e : (dtp_extent){b.from, b.from};
}

bool dtp_extent_in(dtp_extent a, dtp_extent b)
{
    return a.from >= a.to || (a.from >= b.from && a.to <= b.to);
}

dtp_extent dtp_margin_at(const dtp_split_dim *d, const dtp_range *range, int64_t place,
                         int32_t shift)
{
    const int64_t source = (place - shift + d->places) % d->places;
    return dtp_extent_common(dtp_range_at(d, range, place), dtp_shard_at(d, source));
}

dtp_margins dtp_margins_of(const dtp_split_dim *d, const dtp_range *range)
{
    dtp_margins m = {.there = true, .neighbours = d->ascending};
    for (int64_t k = 0; k < d->places; k++) {
        const dtp_extent wanted = dtp_range_at(d, range, k);
        int64_t have = dtp_extent_size(dtp_extent_common(wanted, dtp_shard_at(d, k)));
        m.there = m.there && have == dtp_extent_size(wanted);
        for (int32_t side = 0; side < (d->places > 2 ? 2 : (int32_t)d->places - 1); side++) {
            const int64_t n = dtp_extent_size(dtp_margin_at(d, range, k, 1 - 2 * side));
            m.most[side] = n > m.most[side] ? n : m.most[side];
            have += n;
        }
        m.neighbours = m.neighbours && have == dtp_extent_size(wanted);
    }
    return m;
}
