/* Prices of collectives (docs/cost-model.md).
 *
 * A group over a set of mesh dims has members on several network levels. Level l joins blocks of
 * B_l consecutive ranks out of blocks of B_{l-1}; n_l is the number of those inner blocks that a
 * group has members in, within one outer block. All groups of a collective run at the same time, so
 * the link of an inner block into level l is shared by ranks(block) / members(block) groups.
 */
#include "cost_models/price.h"

#include <inttypes.h>
#include <math.h>

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
    dtp_group_shape g = {.ranks = dtp_mesh_set_size(mesh, set),
                         .outer = -1,
                         .adapters = dtp_machine_has_adapters(machine)};
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
    const dtp_group_shape *all = &out->groups[(1U << mesh->n_dims) - 1];
    for (int32_t l = 0; l < machine->n_levels; l++) {
        out->skew += machine->levels[l].skew * log2(fmax(1.0, all->members[l]));
    }
    return DTP_OK;
}

int32_t dtp_pricer_lanes(const dtp_pricer *pricer)
{
    bool near = false, far = false;
    for (dtp_mesh_set set = 1; set < 1U << pricer->mesh.n_dims; set++) {
        near = near || pricer->groups[set].outer == 0;
        far = far || dtp_pricer_is_far(pricer, set);
    }
    return near && far ? 2 : 1;
}

double dtp_coll_full_bytes(dtp_coll_kind kind, int64_t count, dtp_dtype dtype, int32_t ranks)
{
    double bytes = (double)count * (double)dtp_dtype_bytes(dtype);
    return kind == DTP_ALL_REDUCE || kind == DTP_PERMUTE ? bytes : bytes * ranks;
}

dtp_coll_time dtp_price_coll_parts(const dtp_pricer *pricer, const dtp_coll *coll)
{
    const dtp_machine *m = pricer->machine;
    const dtp_group_shape *g = &pricer->groups[coll->set];
    if (g->outer < 0 || coll->count == 0) {
        return (dtp_coll_time){0.0, 0.0};
    }
    const dtp_coll_call call = {coll->kind,
                                dtp_coll_full_bytes(coll->kind, coll->count, coll->dtype, g->ranks),
                                coll->shift};
    return dtp_coll_time_of(m->levels, g, &call);
}

double dtp_price_coll(const dtp_pricer *pricer, const dtp_coll *coll)
{
    const dtp_coll_time t = dtp_price_coll_parts(pricer, coll);
    return t.start_s + t.transfer_s;
}
