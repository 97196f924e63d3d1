/* How long the kernels of a graph take at least, whatever the layouts are. */
#include "planner/problem/tensors/compute_bound.h"

#include <math.h>

#include "core/graph/ops/fused_ops.h"
#include "planner/problem/tensors/tensor_internal.h"

/* Prices of kernels are rounded to picoseconds, one by one. */
static const double ROUNDING = 1e-9;

bool dtp_kernel_may_vanish(const dtp_graph *g, const dtp_target *target, const dtp_node *node)
{
    const uint32_t fuse = target->fuse;
    const int32_t rank = g->tensors[node->out[0]].type.rank;
    bool sums = false, broadcasts = false;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_ttype *in = &g->tensors[node->in[i]].type;
        broadcasts = broadcasts || in->rank < rank;
        for (int32_t d = 0; d < in->rank; d++) {
            sums = sums || dtp_ttype_find(&g->tensors[node->out[0]].type, in->dims[d].id) < 0;
        }
    }
    const bool contraction = (node->op->flags & DTP_OP_CONTRACTION) != 0;
    const bool function = dtp_fused_is_function(node->op) || (contraction && !sums);
    return ((fuse & (DTP_FUSE_ELEMENTWISE | DTP_FUSE_NORM)) != 0 && function) ||
           ((fuse & DTP_FUSE_PRODUCT) != 0 && (function || (contraction && node->n_in == 1))) ||
           ((fuse & DTP_FUSE_BIAS) != 0 && broadcasts && node->op == dtp_fused_op(DTP_FUSED_ADD)) ||
           ((fuse & DTP_FUSE_CAST) != 0 && (node->op->flags & DTP_OP_CAST) != 0);
}

static dtp_status sum_classes(tensor_build *b, double *seconds, double *update_s, dtp_err *err)
{
    double ps = 0.0, update_ps = 0.0;
    DTP_TRY(dtp_node_classes_find(b->g, b->arena, &b->classes, err));
    DTP_TRY(dtp_tensor__strategies(b, err));
    for (int32_t k = 0; k < b->classes.n; k++) {
        const bool stays =
            !dtp_kernel_may_vanish(b->g, b->p->pricer->target, &b->g->nodes[b->classes.example[k]]);
        ps += stays ? (double)b->classes.count[k] * (double)b->options[k].least_kernel_ps : 0.0;
    }
    for (dtp_node_id n = 0; n < b->g->n_nodes && update_s != NULL; n++) {
        const bool update = b->g->nodes[n].phase == DTP_UPDATE;
        update_ps += update ? (double)b->options[b->classes.of_node[n]].least_kernel_ps : 0.0;
    }
    *seconds = ps * 1e-12 * (1.0 - ROUNDING);
    if (update_s != NULL) {
        *update_s = update_ps * 1e-12;
    }
    return DTP_OK;
}

dtp_status dtp_compute_bound(const dtp_graph *g, const dtp_pricer *pricer, double *seconds,
                             double *update_s, dtp_err *err)
{
    dtp_tensor_problem p = {.graph = g, .pricer = pricer};
    tensor_build b = {.p = &p, .g = g, .mesh = &pricer->mesh, .arena = dtp_arena_create()};
    dtp_status s = b.arena != NULL
                       ? dtp_redistribution_pricer_create(pricer, &p.redistributions, err)
                       : DTP_FAIL(err, DTP_NOMEM, "out of memory for a bound");
    s = s == DTP_OK ? dtp_node_pricer_create(g, pricer, dtp_tensor_redistributor(&p), &b.nodes, err)
                    : s;
    if (s == DTP_OK) {
        dtp_node_pricer_join(b.nodes);
        s = sum_classes(&b, seconds, update_s, err);
    }
    dtp_node_pricer_destroy(b.nodes);
    dtp_redistribution_pricer_destroy(p.redistributions);
    dtp_arena_destroy(b.arena);
    return s;
}

double dtp_stages_bound(double compute_s, int32_t microbatches, int32_t n_stages)
{
    const double m = microbatches > 1 ? microbatches : 1, n = n_stages > 1 ? n_stages : 1;
    return compute_s / m / (1.0 - pow(1.0 - 1.0 / m, n));
}
