#include "planner/problem/tensors/compute_bound.h"

#include "planner/problem/tensors/tensor_internal.h"

/* Prices of kernels are rounded to picoseconds, one by one. */
static const double ROUNDING = 1e-9;

static dtp_status sum_classes(tensor_build *b, double *seconds, dtp_err *err)
{
    double ps = 0.0;
    DTP_TRY(dtp_node_classes_find(b->g, b->arena, &b->classes, err));
    DTP_TRY(dtp_tensor__strategies(b, err));
    for (int32_t k = 0; k < b->classes.n; k++) {
        ps += (double)b->classes.count[k] * (double)b->options[k].least_kernel_ps;
    }
    *seconds = ps * 1e-12 * (1.0 - ROUNDING);
    return DTP_OK;
}

dtp_status dtp_compute_bound(const dtp_graph *g, const dtp_pricer *pricer, double *seconds,
                             dtp_err *err)
{
    dtp_tensor_problem p = {.graph = g, .pricer = pricer};
    tensor_build b = {.p = &p, .g = g, .mesh = &pricer->mesh, .arena = dtp_arena_create()};
    dtp_status s = b.arena != NULL
                       ? dtp_redistribution_pricer_create(pricer, &p.redistributions, err)
                       : DTP_FAIL(err, DTP_NOMEM, "out of memory for a bound");
    s = s == DTP_OK ? dtp_node_pricer_create(g, pricer, dtp_tensor_redistributor(&p), &b.nodes, err)
                    : s;
    s = s == DTP_OK ? sum_classes(&b, seconds, err) : s;
    dtp_node_pricer_destroy(b.nodes);
    dtp_redistribution_pricer_destroy(p.redistributions);
    dtp_arena_destroy(b.arena);
    return s;
}
