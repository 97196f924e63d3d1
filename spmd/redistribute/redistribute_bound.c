#include "spmd/redistribute/redistribute_bound.h"

#include "core/base/safe_int.h"

#include <math.h>
#include <string.h>

/* ---- one mesh dim of a key (dtp_layout__key) ---------------------------------------------------
 */

static uint32_t place_of(uint64_t key, int32_t m)
{
    return (uint32_t)(key >> (8 * m)) & 0xffU;
}

static dtp_placement_kind kind_of(uint32_t place)
{
    return (dtp_placement_kind)(place & 3U);
}

static uint32_t axis_or_op(uint32_t place)
{
    return place >> 2 & 7U;
}

void dtp_stacks__read(uint64_t key, int32_t n_mesh, dtp_stacks *out)
{
    memset(out->depth, 0, sizeof out->depth);
    for (int32_t m = 0; m < n_mesh; m++) {
        uint32_t place = place_of(key, m);
        if (kind_of(place) == DTP_SHARD) {
            out->of[axis_or_op(place)][place >> 5] = (int8_t)m;
            out->depth[axis_or_op(place)]++;
        }
    }
}

/* ---- pieces of one rank ------------------------------------------------------------------------
 */

/* The piece of n elements that the rank has after the splits of a stack. */
static void piece_of(const dtp_redistribute_bound *b, const int8_t *stack, int32_t depth, int64_t n,
                     int64_t *start, int64_t *stop)
{
    int64_t at = 0, size = n;
    for (int32_t i = 0; i < depth; i++) {
        const int64_t chunk = dtp_ceil_div(size, b->r->mesh->sizes[stack[i]]);
        const bool second = (b->far >> stack[i] & 1U) != 0;
        at += second ? chunk : 0;
        size = !second ? chunk : (chunk < size - chunk ? chunk : size - chunk);
    }
    *start = at;
    *stop = at + size;
}

static void set_wanted_piece(dtp_redistribute_bound *b)
{
    b->want_bytes = b->elem_bytes;
    for (int32_t i = 0; i < b->r->type->rank; i++) {
        piece_of(b, b->wanted.of[i], b->wanted.depth[i], b->r->type->dims[i].size,
                 &b->want_start[i], &b->want_stop[i]);
        b->want_bytes *= (double)(b->want_stop[i] - b->want_start[i]);
    }
}

/* Bytes of the wanted piece that are in the present one, partial values taken for whole ones. */
static double held_bytes(const dtp_redistribute_bound *b, const dtp_stacks *at)
{
    double held = b->elem_bytes;
    for (int32_t i = 0; i < b->r->type->rank; i++) {
        int64_t start = b->want_start[i], stop = b->want_stop[i];
        if (at->depth[i] > 0) {
            int64_t has_start, has_stop;
            piece_of(b, at->of[i], at->depth[i], b->r->type->dims[i].size, &has_start, &has_stop);
            start = start > has_start ? start : has_start;
            stop = stop < has_stop ? stop : has_stop;
        }
        if (stop <= start) {
            return 0;
        }
        held *= (double)(stop - start);
    }
    return held;
}

/* Every rank gives a bound, and so does the largest of them, but one rank for all layouts is
 * cheaper: of some with coordinates 0 and 1, one that lacks most at the start. */
static void choose_rank(dtp_redistribute_bound *b)
{
    enum { MOST_DIMS = 4 };
    dtp_mesh_set all = 0, best = 0;
    double most = -1;
    for (int32_t m = 0, n = 0; m < b->r->mesh->n_dims && n < MOST_DIMS; m++) {
        all |= b->real & 1U << m;
        n += (b->real >> m & 1U) != 0;
    }
    dtp_stacks at;
    dtp_stacks__read(dtp_layout__key(b->r->from), b->r->mesh->n_dims, &at);
    for (dtp_mesh_set far = all;; far = (far - 1U) & all) {
        b->far = far;
        set_wanted_piece(b);
        double lacks = b->want_bytes - held_bytes(b, &at);
        if (lacks > most) {
            most = lacks;
            best = far;
        }
        if (far == 0) {
            break;
        }
    }
    b->far = best;
    set_wanted_piece(b);
}

/* Whether every split of the tensor is uneven, and no step but a reduction that leaves it whole
 * runs over several mesh dims. */
static bool always_packs(const dtp_redistribute_bound *b)
{
    for (int32_t m = 0; m < b->r->mesh->n_dims; m++) {
        for (int32_t i = 0; i < b->r->type->rank; i++) {
            if ((b->real >> m & 1U) != 0 && b->r->type->dims[i].size % b->r->mesh->sizes[m] == 0) {
                return false;
            }
        }
    }
    return true;
}

/* Seconds for every byte that is received when nothing is left to reduce. A step that packs copies
 * 2 (n + 1) parts at least for the n - 1 that it receives. */
static double byte_time(const dtp_redistribute_bound *b)
{
    const dtp_step_rates *rates = b->r->rates;
    double n = 2;
    for (int32_t m = 0; m < b->r->mesh->n_dims; m++) {
        n = (double)b->r->mesh->sizes[m] > n ? (double)b->r->mesh->sizes[m] : n;
    }
    double copied = always_packs(b) ? 2 * (n + 1) / (n - 1) : 0;
    return 1 / rates->net_Bps + copied / rates->mem_Bps;
}

void dtp_redistribute__bound_init(dtp_redistribute_bound *b, const dtp_redistribution *r)
{
    b->r = r;
    b->real = 0;
    for (int32_t m = 0; m < r->mesh->n_dims; m++) {
        b->real |= r->mesh->sizes[m] > 1 ? 1U << m : 0U;
    }
    if (r->rates == NULL) {
        return;
    }
    for (int32_t m = 0; m < r->mesh->n_dims; m++) {
        b->log_size[m] = log2((double)r->mesh->sizes[m]);
    }
    b->elem_bytes = (double)dtp_dtype_bytes(r->type->dtype);
    b->whole_bytes = b->elem_bytes * (double)dtp_ttype_elems(r->type);
    dtp_stacks__read(dtp_layout__key(r->to), r->mesh->n_dims, &b->wanted);
    b->byte_s = byte_time(b);
    choose_rank(b);
}

/* ---- the bound ---------------------------------------------------------------------------------
 */

/* What is left to do, mesh dims of one rank left out. */
typedef struct work {
    dtp_mesh_set taken_off;
    uint32_t axes;      /* tensor dims that taken_off split */
    int32_t reductions; /* launches */
    double doublings;   /* log2 of the sizes of the mesh dims that send */
    double partials;    /* ranks over which there are values to reduce */
    double averages;    /* ranks over which there are averages */
    double least;       /* L in bytes */
    bool slices, keeps;
} work;

static dtp_mesh_set misplaced(const dtp_redistribute_bound *b, const dtp_stacks *at)
{
    dtp_mesh_set set = 0;
    for (int32_t axis = 0; axis < b->r->type->rank; axis++) {
        int32_t i = 0;
        while (i < at->depth[axis] && i < b->wanted.depth[axis] &&
               at->of[axis][i] == b->wanted.of[axis][i]) {
            i++;
        }
        for (; i < at->depth[axis]; i++) {
            set |= 1U << at->of[axis][i];
        }
    }
    return set;
}

static void add_mesh_dim(const dtp_redistribute_bound *b, int32_t m, uint32_t place, work *w)
{
    dtp_placement_kind at = kind_of(place), to = (dtp_placement_kind)b->r->to->placement[m].kind;
    double size = (double)b->r->mesh->sizes[m];
    if (to == DTP_SHARD || (to == DTP_REPLICATE && at != DTP_REPLICATE) || b->r->free_splits) {
        w->least /= size;
    }
    if ((w->taken_off >> m & 1U) != 0) {
        w->axes |= 1U << axis_or_op(place);
        w->doublings += b->log_size[m];
    } else if (at == DTP_PARTIAL && to != DTP_PARTIAL) {
        w->doublings += b->log_size[m];
        w->reductions = to == DTP_REPLICATE || w->reductions > 1 ? 2 : 1;
        w->partials *= size;
        w->averages *= axis_or_op(place) == DTP_REDUCE_AVG ? size : 1;
    } else if (at == DTP_REPLICATE) {
        w->slices = w->slices || to == DTP_SHARD;
        w->keeps = w->keeps || to == DTP_PARTIAL;
    }
}

/* Time of the bytes to receive. */
static double receive_time(const dtp_redistribute_bound *b, const dtp_stacks *at, const work *w)
{
    return w->reductions > 0 ? (b->want_bytes + (w->partials - 2) * w->least) / b->r->rates->net_Bps
                             : (b->want_bytes - held_bytes(b, at)) * b->byte_s;
}

double dtp_redistribute__bound(const dtp_redistribute_bound *b, uint64_t key)
{
    const dtp_step_rates *rates = b->r->rates;
    if (rates == NULL) {
        return 0;
    }
    dtp_stacks at;
    dtp_stacks__read(key, b->r->mesh->n_dims, &at);
    work w = {.least = b->whole_bytes,
              .partials = 1,
              .averages = 1,
              .taken_off = misplaced(b, &at) & b->real};
    for (int32_t m = 0; m < b->r->mesh->n_dims; m++) {
        if ((b->real >> m & 1U) != 0) {
            add_mesh_dim(b, m, place_of(key, m), &w);
        }
    }
    int32_t launches = w.reductions > 0 ? 1 : 0;
    for (uint32_t axes = w.axes; axes != 0; axes &= axes - 1U) {
        launches++;
    }
    launches = launches > w.reductions ? launches : w.reductions;
    double copies = (w.slices ? 1 : 0) + (w.keeps ? 1 : 0) + (w.averages > 1 ? w.averages : 0);
    return rates->launch_s * launches + rates->hop_s * w.doublings + receive_time(b, &at, &w) +
           2 * w.least * copies / rates->mem_Bps;
}
