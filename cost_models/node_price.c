#include "cost_models/node_price.h"

#include <stdlib.h>

#include "cost_models/node_classes.h"
#include "spmd/lower/lower.h"

typedef struct life {
    int32_t first, last; /* instructions that touch its buffer; first -1: none */
    bool spare;          /* may lie in the buffer of something that dies */
} life;

struct dtp_node_pricer {
    const dtp_pricer *pricer;
    dtp_arena *arena;
    dtp_program *program;
    life *lives; /* by value */
    int32_t cap_lives;
    dtp_dearest dearest;
};

static void touch(dtp_node_pricer *np, dtp_value_id v, int32_t at)
{
    life *l = &np->lives[dtp_value_root(np->program, v)];
    l->first = l->first < 0 ? at : l->first;
    l->last = at;
}

static void find_lives(dtp_node_pricer *np, const dtp_node *n)
{
    const dtp_program *q = np->program;
    for (dtp_value_id v = 0; v < q->n_values; v++) {
        np->lives[v] = (life){.first = -1, .last = -1};
    }
    for (int32_t k = 0; k < q->n_instrs; k++) {
        const dtp_instr *instr = &q->instrs[k];
        for (int32_t i = 0; i < instr->n_in; i++) {
            touch(np, instr->in[i], k);
        }
        for (int32_t i = 0; i < instr->n_out; i++) {
            touch(np, instr->out[i], k);
        }
        if (instr->workspace >= 0) {
            touch(np, instr->workspace, k);
        }
    }
    for (int32_t i = 0; i < n->n_out; i++) {
        const dtp_value_id v = q->tensor_value[n->out[i]];
        if (v >= 0) {
            np->lives[dtp_value_root(q, v)].first = -1; /* counted with its tensor */
        }
    }
}

static dtp_status find_peaks(dtp_node_pricer *np, const dtp_node *n, dtp_node_price *out,
                             dtp_err *err)
{
    const dtp_program *q = np->program;
    DTP_TRY(dtp_arena_grow(np->arena, &np->lives, 0, q->n_values, &np->cap_lives, sizeof *np->lives,
                           err));
    find_lives(np, n);
    /* Results of all-reduces, and of kernels that may work in place. */
    for (int32_t k = 0; k < q->n_instrs; k++) {
        const dtp_instr *instr = &q->instrs[k];
        const bool reduces = instr->kind == DTP_INSTR_START && instr->coll.kind == DTP_ALL_REDUCE;
        for (int32_t o = 0; o < instr->n_out; o++) {
            np->lives[instr->out[o]].spare =
                reduces || (instr->kind == DTP_INSTR_KERNEL && instr->op->inplace_in[o] != 0);
        }
    }
    for (int32_t k = 0; k < q->n_instrs; k++) {
        int64_t live = 0, sure = 0;
        for (dtp_value_id v = 0; v < q->n_values; v++) {
            const life *l = &np->lives[v];
            const bool own = q->values[v].parent < 0 && q->values[v].kind != DTP_VALUE_INPUT;
            if (own && l->first >= 0 && l->first <= k && k <= l->last) {
                live += q->values[v].bytes;
                sure += l->spare ? 0 : q->values[v].bytes;
            }
        }
        out->temp_bytes = live > out->temp_bytes ? live : out->temp_bytes;
        out->sure_bytes = sure > out->sure_bytes ? sure : out->sure_bytes;
    }
    return DTP_OK;
}

dtp_status dtp_node_pricer_price(dtp_node_pricer *np, dtp_node_id node,
                                 const dtp_strategy *strategy, const dtp_layout *in_layouts,
                                 const dtp_layout *out_layouts, dtp_node_price *out, dtp_err *err)
{
    dtp_program *q = np->program;
    *out = (dtp_node_price){0};
    DTP_TRY(dtp_program_reset(q, err));
    DTP_TRY(dtp_lower_node(q, node, strategy, in_layouts, out_layouts, err));
    const int32_t all = dtp_graph_runs(q->graph, q->graph->nodes[node].phase);
    /* A deferred reduction runs once: what follows the node's kernel. */
    int32_t runs = dtp_node_defers(q->graph, node) ? 1 : all;
    for (int32_t k = q->n_instrs - 1; k >= 0; k--) {
        const bool kernel = q->instrs[k].kind == DTP_INSTR_KERNEL;
        int64_t ps = 0;
        runs = kernel ? all : runs;
        /* Updates share launches: all but one of each. */
        q->instrs[k].joined =
            kernel && np->pricer->target->join > 0 && (q->instrs[k].op->flags & DTP_OP_UPDATE) != 0;
        DTP_TRY(dtp_price_instr_ps(np->pricer, q, &q->instrs[k], &np->dearest, &ps, err));
        if (!dtp_cost_add(&out->every_ps, ps, all)) { /* the others are not larger */
            return dtp_cost_fail(np->pricer, &np->dearest, err);
        }
        out->cost_ps += runs * ps;
        out->kernel_ps += kernel ? all * ps : 0;
    }
    return find_peaks(np, &q->graph->nodes[node], out, err);
}

dtp_status dtp_node_pricer_create(const dtp_graph *g, const dtp_pricer *pricer,
                                  const dtp_redistributor *redistributor, dtp_node_pricer **out,
                                  dtp_err *err)
{
    dtp_node_pricer *np = calloc(1, sizeof *np);
    dtp_status s = DTP_OK;
    DTP_TRY(DTP_MEMORY(err, np));
    np->pricer = pricer;
    np->arena = dtp_arena_create();
    s = np->arena != NULL ? dtp_program_create(g, &pricer->mesh, pricer->target, &np->program, err)
                          : DTP_FAIL(err, DTP_NOMEM, "out of memory for the prices of nodes");
    if (s != DTP_OK) {
        dtp_node_pricer_destroy(np);
        return s;
    }
    np->program->plain_names = true;
    np->program->redistributor = redistributor;
    *out = np;
    return DTP_OK;
}

const dtp_dearest *dtp_node_pricer_dearest(const dtp_node_pricer *np)
{
    return &np->dearest;
}

void dtp_node_pricer_destroy(dtp_node_pricer *np)
{
    if (np == NULL) {
        return;
    }
    dtp_program_destroy(np->program);
    dtp_arena_destroy(np->arena);
    free(np);
}
