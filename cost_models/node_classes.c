/* Classes of nodes that cost the same. */
#include "cost_models/node_classes.h"

#include <string.h>

#include "core/base/hash.h"
#include "core/transform/microbatch.h"

static uint64_t hash_type(uint64_t h, const dtp_ttype *t)
{
    h = dtp_hash_i64(h, t->dtype);
    for (int32_t i = 0; i < t->rank; i++) {
        h = dtp_hash_i64(dtp_hash_i64(h, t->dims[i].id), t->dims[i].size);
    }
    return dtp_hash_i64(h, -1);
}

static bool same_attr(const dtp_attr *a, const dtp_attr *b)
{
    return a->i == b->i && a->f == b->f && a->n == b->n &&
           (a->n == 0 || memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids) == 0);
}

/* Position of the first operand that is the same tensor. */
static int32_t first_use(const dtp_node *n, int32_t i)
{
    int32_t j = 0;
    while (n->in[j] != n->in[i]) {
        j++;
    }
    return j;
}

dtp_deferral dtp_node_defers(const dtp_graph *g, dtp_node_id node, int32_t i)
{
    const dtp_node *n = &g->nodes[node];
    return dtp_graph_runs(g, n->phase) > 1 ? dtp_microbatch_defers(g, n->out[i])
                                           : (dtp_deferral){.sum = -1};
}

/* What is reduced for output i of a node when it waits: nothing (0), or its dtype, from 1 on; -1:
 * it does not wait. */
static int32_t waits(const dtp_graph *g, const dtp_deferral *deferrals, dtp_node_id node, int32_t i)
{
    const dtp_node *n = &g->nodes[node];
    const dtp_deferral none = {.sum = -1};
    const dtp_deferral d = dtp_graph_runs(g, n->phase) > 1 ? deferrals[n->out[i]] : none;
    return d.sum < 0  ? -1
           : !d.first ? 0
                      : 1 + (int32_t)g->tensors[g->nodes[d.sum].out[0]].type.dtype;
}

uint32_t dtp_node_copies(const dtp_graph *g, const dtp_uses *uses, dtp_node_id node)
{
    const dtp_node *n = &g->nodes[node];
    uint32_t copies = 0;
    for (int32_t i = 0; i < n->n_out && (n->op->flags & DTP_OP_UPDATE) == 0; i++) {
        const bool number = g->tensors[n->out[i]].type.rank == 0;
        copies |= number && uses->replaces[n->out[i]] && !dtp_is_accumulate(g, n) ? 1U << i : 0U;
    }
    return copies;
}

/* Bit i: something needs output i. */
static uint32_t needed(const dtp_node *n, const dtp_uses *uses)
{
    uint32_t mask = 0;
    for (int32_t i = 0; i < n->n_out; i++) {
        mask |= uses->needed[n->out[i]] ? 1U << i : 0U;
    }
    return mask;
}

static bool same_uses(const dtp_graph *g, const dtp_uses *uses, dtp_node_id a, dtp_node_id b)
{
    return needed(&g->nodes[a], uses) == needed(&g->nodes[b], uses) &&
           dtp_node_copies_view(g, uses->survives, a) ==
               dtp_node_copies_view(g, uses->survives, b) &&
           dtp_node_copies(g, uses, a) == dtp_node_copies(g, uses, b);
}

/* Streams of random numbers cost the same. */
static bool same_node(const dtp_graph *g, const dtp_node *a, const dtp_node *b)
{
    bool same =
        a->op == b->op && a->n_in == b->n_in && a->n_out == b->n_out && a->n_attrs == b->n_attrs;
    for (int32_t i = 0; same && i < a->n_attrs; i++) {
        same = strcmp(a->attrs[i].key, "stream") == 0 || same_attr(&a->attrs[i], &b->attrs[i]);
    }
    for (int32_t i = 0; same && i < a->n_in; i++) {
        same = first_use(a, i) == first_use(b, i) &&
               dtp_graph_is_quantized(g, a->in[i]) == dtp_graph_is_quantized(g, b->in[i]) &&
               dtp_ttype_equal(&g->tensors[a->in[i]].type, &g->tensors[b->in[i]].type);
    }
    for (int32_t i = 0; same && i < a->n_out; i++) {
        same = dtp_ttype_equal(&g->tensors[a->out[i]].type, &g->tensors[b->out[i]].type);
    }
    return same;
}

static bool same_class(const dtp_graph *g, const dtp_uses *uses, const dtp_deferral *deferrals,
                       dtp_node_id a, dtp_node_id b)
{
    bool same = same_node(g, &g->nodes[a], &g->nodes[b]) && same_uses(g, uses, a, b) &&
                dtp_graph_runs(g, g->nodes[a].phase) == dtp_graph_runs(g, g->nodes[b].phase);
    for (int32_t i = 0; i < g->nodes[a].n_out && same; i++) {
        same = waits(g, deferrals, a, i) == waits(g, deferrals, b, i);
    }
    return same;
}

dtp_status dtp_node_classes_find(const dtp_graph *g, dtp_arena *arena, dtp_node_classes *out,
                                 dtp_err *err)
{
    const size_t n = (size_t)g->n_nodes;
    dtp_hash_table classes = {0};
    dtp_uses uses;
    dtp_deferral *deferrals;
    DTP_TRY(dtp_uses_find(g, arena, &uses, err));
    DTP_TRY(dtp_microbatch_deferrals(g, arena, &deferrals, err));
    out->n = 0;
    DTP_TRY(DTP_NEW(arena, out->example, n, err));
    DTP_TRY(DTP_NEW(arena, out->count, n, err));
    DTP_TRY(DTP_NEW(arena, out->of_node, n, err));
    for (dtp_node_id id = 0; id < g->n_nodes; id++) {
        const dtp_node *node = &g->nodes[id];
        uint64_t h = dtp_hash_text(DTP_HASH_SEED, node->op->name);
        for (int32_t i = 0; i < node->n_in; i++) {
            h = hash_type(h, &g->tensors[node->in[i]].type);
        }
        for (int32_t i = 0; i < node->n_out; i++) {
            h = hash_type(h, &g->tensors[node->out[i]].type);
        }
        const uint32_t hash = dtp_hash_fold(h);
        uint32_t at = hash;
        int32_t c;
        do {
            c = dtp_hash_table_next(&classes, hash, &at);
        } while (c >= 0 && !same_class(g, &uses, deferrals, out->example[c], id));
        if (c < 0) {
            DTP_TRY(dtp_hash_table_add(&classes, arena, hash, out->n, err));
            c = out->n++;
            out->example[c] = id;
        }
        out->of_node[id] = c;
        out->count[c]++;
    }
    return DTP_OK;
}
