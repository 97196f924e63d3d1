/* A lower bound of what is left to pay between a layout and the target on the generic machine
 * (dtp_step_generic_price). */
#include "spmd/redistribute/redistribute_bound.h"

#include "core/base/safe_int.h"

#include <math.h>

/* ---- shards of one rank ---- */

/* The shard of tensor dim `axis` that the rank has after the splits of a stack. */
static void shard_of(const dtp_redistribute_bound *b, const dtp_stacks *stacks, int32_t axis,
                     int64_t *start, int64_t *stop)
{
    int64_t at = 0, size = b->r->type->dims[axis].size;
    for (int32_t i = 0; i < stacks->depth[axis]; i++) {
        const int8_t m = stacks->of[axis][i];
        const int64_t chunk = dtp_ceil_div(size, b->r->mesh->sizes[m]);
        const bool second = (b->far >> m & 1U) != 0;
        at += second ? chunk : 0;
        size = !second ? chunk : (chunk < size - chunk ? chunk : size - chunk);
    }
    *start = at;
    *stop = at + size;
}

static void set_wanted_shard(dtp_redistribute_bound *b)
{
    b->want_bytes = b->elem_bytes;
    for (int32_t i = 0; i < b->r->type->rank; i++) {
        shard_of(b, &b->wanted, i, &b->want_start[i], &b->want_stop[i]);
        b->want_bytes *= (double)(b->want_stop[i] - b->want_start[i]);
    }
}

/* Bytes of the wanted shard that are in the present one, partial values taken for whole ones. */
static double held_bytes(const dtp_redistribute_bound *b, const dtp_stacks *at)
{
    double held = b->elem_bytes;
    for (int32_t i = 0; i < b->r->type->rank; i++) {
        int64_t start = b->want_start[i], stop = b->want_stop[i];
        if (at->depth[i] > 0) {
            int64_t has_start, has_stop;
            shard_of(b, at, i, &has_start, &has_stop);
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
    dtp_stacks at;
    for (int32_t m = 0, n = 0; m < b->r->mesh->n_dims && n < MOST_DIMS; m++) {
        all |= b->real & 1U << m;
        n += (b->real >> m & 1U) != 0;
    }
    dtp_stacks__read(dtp_layout__key(b->r->from), b->r->mesh->n_dims, &at);
    for (dtp_mesh_set far = all;; far = (far - 1U) & all) {
        b->far = far;
        set_wanted_shard(b);
        const double lacks = b->want_bytes - held_bytes(b, &at);
        if (lacks > most) {
            most = lacks;
            best = far;
        }
        if (far == 0) {
            break;
        }
    }
    b->far = best;
    set_wanted_shard(b);
}

/* ---- the bound ---- */

void dtp_redistribute__bound_init(dtp_redistribute_bound *b, const dtp_redistribution *r)
{
    bool packs = true; /* no tensor dim divides evenly over any mesh dim */
    double n = 2;      /* ranks of the largest mesh dim */
    b->r = r;
    b->real = 0;
    for (int32_t m = 0; m < r->mesh->n_dims; m++) {
        const int64_t size = r->mesh->sizes[m];
        b->real |= size > 1 ? 1U << m : 0U;
        b->log_size[m] = log2((double)size);
        n = (double)size > n ? (double)size : n;
        for (int32_t i = 0; i < r->type->rank && size > 1; i++) {
            packs = packs && r->type->dims[i].size % size != 0;
        }
    }
    b->elem_bytes = (double)dtp_dtype_bytes(r->type->dtype);
    b->whole_bytes = b->elem_bytes * (double)dtp_ttype_elems(r->type);
    dtp_stacks__read(dtp_layout__key(r->to), r->mesh->n_dims, &b->wanted);
    /* A step that packs copies 2 (n + 1) parts at least for the n - 1 that it receives. */
    b->byte_s = 1 / DTP_GENERIC_NET_BPS + (packs ? 2 * (n + 1) / (n - 1) : 0) / DTP_GENERIC_MEM_BPS;
    choose_rank(b);
}

double dtp_redistribute__bound(const dtp_redistribute_bound *b, uint64_t key)
{
    dtp_stacks at;
    dtp_stacks__read(key, b->r->mesh->n_dims, &at);
    /* The mesh dims whose splits must be taken off. */
    dtp_mesh_set set = 0;
    for (int32_t axis = 0; axis < b->r->type->rank; axis++) {
        int32_t i = 0;
        while (i < at.depth[axis] && i < b->wanted.depth[axis] &&
               at.of[axis][i] == b->wanted.of[axis][i]) {
            i++;
        }
        for (; i < at.depth[axis]; i++) {
            set |= 1U << at.of[axis][i];
        }
    }
    const dtp_mesh_set taken_off = set & b->real;
    uint32_t axes = 0;             /* tensor dims that taken_off splits */
    int32_t reductions = 0;        /* launches */
    double doublings = 0;          /* log2 of the sizes of the mesh dims that send */
    double partials = 1;           /* ranks over which there are values to reduce */
    double averages = 1;           /* ranks over which there are averages */
    double least = b->whole_bytes; /* L */
    bool slices = false, keeps = false;
    for (int32_t m = 0; m < b->r->mesh->n_dims; m++) {
        const dtp_placement_kind has = dtp_layout__kind(key, m);
        const dtp_placement_kind to = (dtp_placement_kind)b->r->to->placement[m].kind;
        const double size = (double)b->r->mesh->sizes[m];
        if ((b->real >> m & 1U) == 0) {
            continue;
        }
        if (to == DTP_SHARD || (to == DTP_REPLICATE && has != DTP_REPLICATE) || b->r->free_splits) {
            least /= size;
        }
        if ((taken_off >> m & 1U) != 0) {
            axes |= 1U << dtp_layout__axis_or_op(key, m);
            doublings += b->log_size[m];
        } else if (has == DTP_PARTIAL && to != DTP_PARTIAL) {
            doublings += b->log_size[m];
            reductions = to == DTP_REPLICATE || reductions > 1 ? 2 : 1;
            partials *= size;
            averages *= dtp_layout__axis_or_op(key, m) == DTP_REDUCE_AVG ? size : 1;
        } else if (has == DTP_REPLICATE) {
            slices = slices || to == DTP_SHARD;
            keeps = keeps || to == DTP_PARTIAL;
        }
    }
    int32_t launches = reductions > 0 ? 1 : 0;
    for (; axes != 0; axes &= axes - 1U) {
        launches++;
    }
    launches = launches > reductions ? launches : reductions;
    const double receive_s = reductions > 0
                                 ? (b->want_bytes + (partials - 2) * least) / DTP_GENERIC_NET_BPS
                                 : (b->want_bytes - held_bytes(b, &at)) * b->byte_s;
    const double copies = (slices ? 1 : 0) + (keeps ? 1 : 0) + (averages > 1 ? averages : 0);
    return DTP_GENERIC_LAUNCH_S * launches + DTP_GENERIC_HOP_S * doublings + receive_s +
           2 * least * copies / DTP_GENERIC_MEM_BPS;
}
