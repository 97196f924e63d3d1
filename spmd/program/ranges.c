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
    if (w->cyclic != 0) {
        const int64_t first = from - floor_div(from, d->size) * d->size;
        return (dtp_extent){first, first + within(last + 1 - from, d->size)};
    }
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

/* What a range and a piece have in common, numbered as the range is. */
static dtp_extent shared(const dtp_split_dim *d, dtp_extent range, dtp_extent piece)
{
    const dtp_extent again = {piece.from + d->size, piece.to + d->size};
    const dtp_extent e = dtp_extent_common(range, piece), round = dtp_extent_common(range, again);
    return dtp_extent_size(round) > dtp_extent_size(e) ? round : e;
}

dtp_extent dtp_margin_at(const dtp_split_dim *d, const dtp_range *range, int64_t place,
                         int32_t shift)
{
    const int64_t source = ((place - shift) % d->places + d->places) % d->places;
    return shared(d, dtp_range_at(d, range, place), dtp_shard_at(d, source));
}

int64_t dtp_index_of(const dtp_split_dim *d, int64_t at)
{
    return at < d->size ? at : at - d->size;
}

/* The first place whose piece ends behind an element. */
static int64_t place_of(const dtp_split_dim *d, int64_t at)
{
    int64_t low = 0, high = d->places - 1;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        const bool behind = dtp_shard_at(d, middle).to > at;
        high = behind ? middle : high;
        low = behind ? low : middle + 1;
    }
    return low;
}

/* Place k lacks n elements that the place `source` has. */
static void add_margin(dtp_margins *m, const dtp_split_dim *d, int64_t k, int64_t source, int64_t n)
{
    const int64_t before = (k - source + d->places) % d->places;
    const int32_t shift = (int32_t)(before > d->places / 2 ? before - d->places : before);
    int32_t i = 0;
    while (i < m->n && m->shift[i] > shift) {
        i++;
    }
    if (i == m->n || m->shift[i] != shift) {
        m->near = m->near && m->n < DTP_RANGE_PERMUTES;
        if (!m->near) {
            return;
        }
        for (int32_t j = m->n++; j > i; j--) {
            m->shift[j] = m->shift[j - 1];
            m->most[j] = m->most[j - 1];
        }
        m->shift[i] = shift;
        m->most[i] = 0;
    }
    m->most[i] = n > m->most[i] ? n : m->most[i];
}

dtp_margins dtp_margins_of(const dtp_split_dim *d, const dtp_range *range)
{
    dtp_margins m = {.there = true, .near = d->ascending, .pieces = true};
    for (int64_t k = 0; k < d->places && (m.near || m.there); k++) {
        const dtp_extent wanted = dtp_range_at(d, range, k);
        const int64_t size = dtp_extent_size(wanted);
        const int64_t own = dtp_extent_size(shared(d, wanted, dtp_shard_at(d, k)));
        int64_t left = size - own;
        m.there = m.there && left == 0;
        m.pieces = m.pieces && own == 0 && size == dtp_extent_size(dtp_shard_at(d, k));
        for (int64_t i = 0, at = place_of(d, wanted.from); i < d->places && left > 0; i++) {
            const int64_t n = dtp_extent_size(shared(d, wanted, dtp_shard_at(d, at)));
            if (at != k && n > 0) {
                add_margin(&m, d, k, at, n);
                left -= n;
            }
            at = (at + 1) % d->places;
        }
        m.near = m.near && left == 0;
    }
    m.pieces = m.pieces && m.near && m.n == 1;
    return m;
}
