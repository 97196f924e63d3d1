/* What PyTorch DTensor thinks that a redistribution costs (--compat torch): its constants for
 * NVLink inside a host and a network between hosts, rings for every collective. */
#include "interop/torch_cost.h"

#include <math.h>

static const double LAUNCH_US = 6.6, ALL_TO_ALL_US = 1.0;
static const double GIB = 1024.0 * 1024.0 * 1024.0;

typedef struct torch_link {
    double hop_us, bw_GiBps;
} torch_link;

static const torch_link IN_HOST = {0.6, 87.7};
static const torch_link ACROSS_HOSTS = {2.7, 87.7 * 0.22};

dtp_torch_cost dtp_torch_cost_init(void)
{
    return (dtp_torch_cost){.devices_per_host = 8};
}

/* The slowest link that the mesh dims of the set use. */
static torch_link link_of(const dtp_torch_cost *cost, const dtp_mesh *mesh, dtp_mesh_set set)
{
    int64_t extent = 1;
    for (int32_t m = mesh->n_dims - 1; m >= 0; m--) {
        extent *= mesh->sizes[m];
        if ((set >> m & 1U) != 0 && extent > cost->devices_per_host) {
            return ACROSS_HOSTS;
        }
    }
    return IN_HOST;
}

static double ring_us(const torch_link *l, double ranks, double gib, double rounds)
{
    double hops = rounds * (ranks - 1);
    return LAUNCH_US + hops * l->hop_us + gib * hops / ranks / l->bw_GiBps * 1e6;
}

double dtp_torch_step_price(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                            const dtp_layout *before, const dtp_step *step)
{
    const dtp_torch_cost defaults = dtp_torch_cost_init();
    const dtp_torch_cost *cost = user != NULL ? user : &defaults;
    double n = dtp_mesh_set_size(mesh, step->set);
    if (n < 2) {
        return 0;
    }
    torch_link l = link_of(cost, mesh, step->set);
    double bytes = (double)dtp_ttype_bytes(type); /* of a shard before the step */
    for (int32_t m = 0; m < before->n_mesh; m++) {
        bytes /= before->placement[m].kind == DTP_SHARD ? (double)mesh->sizes[m] : 1;
    }
    double gib = bytes / GIB;
    switch (step->kind) {
    case DTP_STEP_ALL_GATHER:
        return 1e-6 * ring_us(&l, n, gib * n, 1);
    case DTP_STEP_REDUCE_SCATTER:
        return 1e-6 * ring_us(&l, n, gib, 1);
    case DTP_STEP_ALL_REDUCE:
        return 1e-6 * ring_us(&l, n, gib, 2);
    case DTP_STEP_ALL_TO_ALL:
        return 1e-6 * (ring_us(&l, n, gib, 1) + ALL_TO_ALL_US);
    default:
        return 0;
    }
}
