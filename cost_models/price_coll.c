/* Prices of collectives (docs/cost-model.md).
 *
 * A group over a set of mesh dims has members on several network levels. Level l joins blocks of
 * B_l consecutive ranks out of blocks of B_{l-1}; n_l is the number of those inner blocks that a
 * group has members in, within one outer block. All groups of a collective run at the same time, so
 * the link of an inner block into level l is shared by ranks(block) / members(block) groups.
 */
#include "cost_models/price.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

#include "cost_models/machine/curve.h"

/* Blocks of `block` consecutive ranks that the group over mesh dim m alone touches: exact when
 * block and dim nest, else the worst alignment. */
static int64_t blocks_touched(const dtp_mesh *mesh, int32_t m, int64_t block)
{
    int64_t stride = 1;
    for (int32_t j = m + 1; j < mesh->n_dims; j++) {
        stride *= mesh->sizes[j];
    }
    int64_t size = mesh->sizes[m];
    int64_t extent = stride * size;
    if (stride >= block) {
        return size;
    }
    if (block % extent == 0 || block >= dtp_mesh_ranks(mesh)) {
        return 1;
    }
    if (extent % block == 0) {
        return extent / block;
    }
    int64_t worst = (block - 1 + (size - 1) * stride) / block + 1;
    return worst < size ? worst : size;
}

static dtp_group_shape group_shape(const dtp_machine *machine, const dtp_mesh *mesh,
                                   dtp_mesh_set set)
{
    dtp_group_shape g = {.ranks = dtp_mesh_set_size(mesh, set), .outer = -1};
    int64_t inner_block = 1;
    int64_t inner = g.ranks; /* inner blocks that the group touches */
    int64_t ranks = dtp_mesh_ranks(mesh);
    for (int32_t l = 0; l < machine->n_levels; l++) {
        int64_t block = inner_block * machine->levels[l].size;
        int64_t outer = 1;
        for (int32_t m = 0; m < mesh->n_dims; m++) {
            outer *= (set >> m & 1U) != 0 ? blocks_touched(mesh, m, block) : 1;
        }
        outer = outer < inner ? outer : inner;
        g.members[l] = (int32_t)((inner + outer - 1) / outer);
        if (g.members[l] > 1) {
            g.outer = l;
        }
        double in_block = (double)(inner_block < ranks ? inner_block : ranks);
        double of_group = (double)g.ranks / (double)inner;
        g.sharing[l] = fmax(1.0, in_block / of_group);
        inner_block = block;
        inner = outer;
    }
    return g;
}

dtp_status dtp_pricer_init(const dtp_machine *machine, const dtp_mesh *mesh,
                           const dtp_target *target, dtp_pricer *out, dtp_err *err)
{
    int64_t devices = dtp_machine_devices(machine);
    if (dtp_mesh_ranks(mesh) > devices) {
        char text[DTP_MESH_TEXT_BYTES];
        dtp_mesh_print(mesh, text);
        return DTP_FAIL(err, DTP_INVALID,
                        "%s: mesh '%s' has %d ranks, machine '%s' has %" PRId64 " device%s",
                        machine->place, text, dtp_mesh_ranks(mesh), machine->name, devices,
                        devices == 1 ? "" : "s");
    }
    *out = (dtp_pricer){.machine = machine, .target = target, .mesh = *mesh};
    for (dtp_mesh_set set = 0; set < 1U << mesh->n_dims; set++) {
        out->groups[set] = group_shape(machine, mesh, set);
    }
    return DTP_OK;
}

/* Seconds per byte of one group's traffic over its member link on level l. */
static double inverse_bw(const dtp_machine *m, const dtp_group_shape *g, int32_t l)
{
    return g->sharing[l] / m->levels[l].bw_Bps;
}

/* Ring all-gather or reduce-scatter of `bytes`: once around all members at the pace of the slowest
 * link, or level by level. */
static double gather_time(const dtp_machine *m, const dtp_group_shape *g, double bytes)
{
    double alpha = 0.0;
    double per_byte = 0.0;
    double hierarchical = 0.0;
    for (int32_t l = 0; l <= g->outer; l++) {
        double n = g->members[l];
        if (g->members[l] > 1) {
            alpha = fmax(alpha, m->levels[l].latency_s);
            per_byte = fmax(per_byte, inverse_bw(m, g, l));
            hierarchical +=
                (n - 1.0) * m->levels[l].latency_s + (n - 1.0) / n * bytes * inverse_bw(m, g, l);
        }
    }
    double n = g->ranks;
    double flat = (n - 1.0) * alpha + (n - 1.0) / n * bytes * per_byte;
    return fmin(flat, hierarchical);
}

/* Recursive doubling: all members exchange the whole buffer in every round, so those of one inner
 * block load its link together. */
static double doubling_time(const dtp_machine *m, const dtp_group_shape *g, double bytes)
{
    double sum = 0.0;
    double members_inside = 1.0;
    for (int32_t l = 0; l <= g->outer; l++) {
        double rounds = ceil(log2((double)g->members[l]));
        sum += rounds * (m->levels[l].latency_s + bytes * members_inside * inverse_bw(m, g, l));
        members_inside *= g->members[l];
    }
    return sum;
}

/* Pairwise exchange, level by level: of its `bytes` a member sends the part for members elsewhere
 * in its level-l block over level l, together with the members of its inner block. */
static double all_to_all_time(const dtp_machine *m, const dtp_group_shape *g, double bytes)
{
    double sum = 0.0;
    double inside = 1.0;
    for (int32_t l = 0; l <= g->outer; l++) {
        double peers = (g->members[l] - 1.0) * inside;
        double sent = bytes * peers / (double)g->ranks * inside;
        sum += peers * m->levels[l].latency_s + sent * inverse_bw(m, g, l);
        inside *= g->members[l];
    }
    return sum;
}

/* Every member sends its buffer `shift` members on. Over level l leave what the last `shift`
 * members of an inner block send, at most all of them; the levels work side by side. */
static double permute_time(const dtp_machine *m, const dtp_group_shape *g, double bytes,
                           int32_t shift)
{
    double worst = 0.0;
    double inside = 1.0;
    double steps = fabs((double)shift);
    for (int32_t l = 0; l <= g->outer; l++) {
        double sent = bytes * fmin(inside, steps);
        if (g->members[l] > 1) {
            worst = fmax(worst, m->levels[l].latency_s + sent * inverse_bw(m, g, l));
        }
        inside *= g->members[l];
    }
    return worst;
}

static const dtp_coll_curve *find_curve(const dtp_machine *m, dtp_coll_kind kind,
                                        const dtp_group_shape *g)
{
    for (int32_t i = 0; i < m->n_coll_curves; i++) {
        const dtp_coll_curve *c = &m->coll_curves[i];
        if (c->kind == kind && c->ranks == g->ranks && c->level == g->outer) {
            return c;
        }
    }
    return NULL;
}

double dtp_coll_full_bytes(dtp_coll_kind kind, int64_t count, dtp_dtype dtype, int32_t ranks)
{
    double bytes = (double)count * (double)dtp_dtype_bytes(dtype);
    return kind == DTP_ALL_REDUCE || kind == DTP_PERMUTE ? bytes : bytes * ranks;
}

double dtp_price_coll(const dtp_pricer *pricer, const dtp_coll *coll)
{
    const dtp_machine *m = pricer->machine;
    const dtp_group_shape *g = &pricer->groups[coll->set];
    if (g->outer < 0 || coll->count == 0) {
        return 0.0;
    }
    double bytes = dtp_coll_full_bytes(coll->kind, coll->count, coll->dtype, g->ranks);
    const dtp_coll_curve *curve = find_curve(m, coll->kind, g);
    if (curve != NULL) {
        return dtp_curve_at(&curve->time_s, bytes);
    }
    switch (coll->kind) {
    case DTP_ALL_REDUCE:
        return fmin(2.0 * gather_time(m, g, bytes), doubling_time(m, g, bytes));
    case DTP_ALL_TO_ALL:
        return all_to_all_time(m, g, bytes);
    case DTP_PERMUTE:
        return permute_time(m, g, bytes, coll->shift);
    case DTP_ALL_GATHER:
    case DTP_REDUCE_SCATTER:
        return gather_time(m, g, bytes);
    default:
        assert(!"no such collective");
        return 0.0;
    }
}
