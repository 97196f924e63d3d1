/* The price of one node run in one way: it is lowered alone and its instructions are priced. */
#include "cost_models/node_price.h"

#include <stdlib.h>

#include "cost_models/node_classes.h"
#include "spmd/lower/lower.h"
#include "spmd/lower/passes/passes.h"
#include "spmd/lower/redistribute_program.h"

typedef struct life {
    int32_t first, last; /* instructions that touch its buffer; first -1: none */
    bool spare;          /* may lie in the buffer of something that dies */
} life;

struct dtp_node_pricer {
    const dtp_pricer *pricer;
    dtp_arena *arena;
    dtp_program *program;
    dtp_uses uses;
    life *lives; /* by value */
    int32_t cap_lives;
    bool joined; /* updates share launches */
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

/* Of the first n_values: the others are copies into what outputs replace. */
static dtp_status find_peaks(dtp_node_pricer *np, const dtp_node *n, int32_t n_values,
                             dtp_node_price *out, dtp_err *err)
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
        int64_t sure = 0;
        for (dtp_value_id v = 0; v < n_values; v++) {
            const life *l = &np->lives[v];
            const bool own = q->values[v].parent < 0 && q->values[v].kind != DTP_VALUE_INPUT &&
                             q->values[v].kind != DTP_VALUE_RESIDENT;
            if (own && l->first >= 0 && l->first <= k && k <= l->last) {
                sure += l->spare ? 0 : q->values[v].bytes;
            }
        }
        const bool kernel = q->instrs[k].kind == DTP_INSTR_KERNEL;
        out->sure_bytes = sure > out->sure_bytes ? sure : out->sure_bytes;
        out->kernel_bytes = kernel && sure > out->kernel_bytes ? sure : out->kernel_bytes;
    }
    return DTP_OK;
}

/* ---- reductions that wait for the last microbatch ---- */

/* Whether what follows a node's kernel belongs to an output that waits: copies that make no tensor
 * as what comes next. */
static bool waits(const dtp_program *q, const dtp_instr *instr, const dtp_deferral *deferred,
                  bool next)
{
    const dtp_node *node = &q->graph->nodes[instr->node];
    const dtp_tensor_id t = instr->n_out > 0 ? q->values[instr->out[0]].tensor : -1;
    for (int32_t i = 0; i < node->n_out && t >= 0; i++) {
        if (node->out[i] == t) {
            return deferred[i].sum >= 0;
        }
    }
    return next;
}

/* What is accumulated is reduced once, in its dtype, from the layout that the kernel gives. */
static dtp_status price_deferred(dtp_node_pricer *np, dtp_tensor_id t, dtp_dtype dtype,
                                 const dtp_layout *to, int64_t *ps, dtp_err *err)
{
    const dtp_program *q = np->program;
    dtp_value_id v = q->tensor_value[t];
    dtp_ttype type = q->graph->tensors[t].type;
    dtp_redistribute_job job;
    dtp_steps steps;
    while (q->values[v].previous >= 0) {
        v = q->values[v].previous;
    }
    type.dtype = dtype;
    DTP_TRY(dtp_redistribute_by(q->redistributor, &q->mesh, &type, &q->values[v].layout, to, &steps,
                                err));
    DTP_TRY(dtp_redistribute_program(q->graph, &q->mesh, q->target, &type, &q->values[v].layout,
                                     &steps, &job, err));
    dtp_status s = DTP_OK;
    *ps = 0;
    for (int32_t k = 0; k < job.program->n_instrs && s == DTP_OK; k++) {
        int64_t one = 0;
        s = dtp_price_instr_ps(np->pricer, job.program, &job.program->instrs[k], &np->dearest, &one,
                               err);
        if (s == DTP_OK && !dtp_cost_add(ps, one, 1)) {
            s = dtp_cost_fail(np->pricer, &np->dearest, err);
        }
    }
    dtp_redistribute_job_free(&job);
    return s;
}

static dtp_status add_deferred(dtp_node_pricer *np, const dtp_node *n, const dtp_deferral *deferred,
                               const dtp_layout *out_layouts, dtp_node_price *out, dtp_err *err)
{
    const dtp_graph *g = np->program->graph;
    for (int32_t i = 0; i < n->n_out; i++) {
        const dtp_deferral *d = &deferred[i];
        int64_t ps = 0;
        if (d->sum >= 0 && d->first) {
            const dtp_dtype dtype = g->tensors[g->nodes[d->sum].out[0]].type.dtype;
            DTP_TRY(price_deferred(np, n->out[i], dtype, &out_layouts[i], &ps, err));
        }
        if (!dtp_cost_add(&out->cost_ps, ps, 1)) {
            return dtp_cost_fail(np->pricer, &np->dearest, err);
        }
    }
    return DTP_OK;
}

/* ---- all ---- */

/* Of outputs that replace other tensors by a copy. */
static dtp_status add_copies(dtp_program *q, dtp_node_id node, uint32_t copies, dtp_err *err)
{
    const dtp_node *n = &q->graph->nodes[node];
    for (int32_t i = 0; i < n->n_out; i++) {
        dtp_value_id copy;
        if ((copies >> i & 1U) != 0) {
            DTP_TRY(dtp_program__copy_value(q, q->tensor_value[n->out[i]], n->phase, &copy, err));
            q->instrs[q->n_instrs - 1].node = node;
        }
    }
    return DTP_OK;
}

dtp_status dtp_node_pricer_price(dtp_node_pricer *np, dtp_node_id node,
                                 const dtp_strategy *strategy, const dtp_layout *in_layouts,
                                 const dtp_layout *out_layouts, dtp_node_price *out, dtp_err *err)
{
    dtp_program *q = np->program;
    const dtp_node *n = &q->graph->nodes[node];
    dtp_deferral deferred[DTP_MAX_OP_OUT] = {{0}};
    const int32_t all = dtp_graph_runs(q->graph, n->phase);
    bool waiting = false;
    *out = (dtp_node_price){0};
    DTP_TRY(dtp_program_reset(q, err));
    DTP_TRY(dtp_lower_node(q, node, strategy, in_layouts, out_layouts, &np->uses, err));
    const int32_t n_instrs = q->n_instrs, n_values = q->n_values;
    DTP_TRY(add_copies(q, node, dtp_node_copies(q->graph, &np->uses, node), err));
    for (int32_t i = 0; i < n->n_out; i++) {
        deferred[i] = dtp_node_defers(q->graph, node, i);
    }
    for (int32_t k = q->n_instrs - 1; k >= 0; k--) {
        const bool kernel = q->instrs[k].kind == DTP_INSTR_KERNEL;
        int64_t ps = 0;
        waiting = !kernel && waits(q, &q->instrs[k], deferred, waiting);
        q->instrs[k].joined = np->joined && kernel && (q->instrs[k].op->flags & DTP_OP_UPDATE) != 0;
        DTP_TRY(dtp_price_instr_ps(np->pricer, q, &q->instrs[k], &np->dearest, &ps, err));
        if (!dtp_cost_add(&out->every_ps, ps, all)) { /* the others are not larger */
            return dtp_cost_fail(np->pricer, &np->dearest, err);
        }
        out->cost_ps += waiting ? 0 : all * ps;
        out->kernel_ps += kernel ? all * ps : 0;
    }
    if (out_layouts != NULL) {
        DTP_TRY(add_deferred(np, n, deferred, out_layouts, out, err));
    } else {
        out->cost_ps = out->every_ps;
    }
    for (dtp_value_id v = 0; v < n_values; v++) {
        out->fills = out->fills || q->values[v].ranges != NULL;
    }
    for (int32_t k = 0; k < n_instrs && (n->op->flags & DTP_OP_MOVES) != 0; k++) {
        out->fills = out->fills || (q->instrs[k].kind == DTP_INSTR_START &&
                                    q->instrs[k].coll.kind == DTP_PERMUTE);
    }
    out->one_kernel = n_instrs == 1 && q->instrs[0].kind == DTP_INSTR_KERNEL;
    return find_peaks(np, n, n_values, out, err);
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
    s = s == DTP_OK ? dtp_uses_find(g, np->arena, &np->uses, err) : s;
    if (s != DTP_OK) {
        dtp_node_pricer_destroy(np);
        return s;
    }
    np->program->plain_names = true;
    np->program->redistributor = redistributor;
    *out = np;
    return DTP_OK;
}

void dtp_node_pricer_join(dtp_node_pricer *np)
{
    np->joined = np->pricer->target->join > 0;
}

const dtp_layout *dtp_node_pricer_left(const dtp_node_pricer *np, dtp_node_id node, int32_t output)
{
    const dtp_program *q = np->program;
    return &q->values[q->tensor_value[q->graph->nodes[node].out[output]]].layout;
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
