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
static int32_t waits(const dtp_graph *g, dtp_node_id node, int32_t i)
{
    const dtp_deferral d = dtp_node_defers(g, node, i);
    return d.sum < 0  ? -1
           : !d.first ? 0
                      : 1 + (int32_t)g->tensors[g->nodes[d.sum].out[0]].type.dtype;
}

uint32_t dtp_node_wanted(const dtp_node *n, const bool *needed)
{
    uint32_t wanted = 0;
    for (int32_t i = 0; i < n->n_out; i++) {
        wanted |= needed[n->out[i]] ? 1U << i : 0U;
    }
    return wanted;
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
               dtp_ttype_equal(&g->tensors[a->in[i]].type, &g->tensors[b->in[i]].type);
    }
    for (int32_t i = 0; same && i < a->n_out; i++) {
        same = dtp_ttype_equal(&g->tensors[a->out[i]].type, &g->tensors[b->out[i]].type);
    }
    return same;
}

static bool same_class(const dtp_graph *g, const bool *needed, dtp_node_id a, dtp_node_id b)
{
    bool same = same_node(g, &g->nodes[a], &g->nodes[b]) &&
                dtp_node_wanted(&g->nodes[a], needed) == dtp_node_wanted(&g->nodes[b], needed) &&
                dtp_graph_runs(g, g->nodes[a].phase) == dtp_graph_runs(g, g->nodes[b].phase);
    for (int32_t i = 0; i < g->nodes[a].n_out && same; i++) {
        same = waits(g, a, i) == waits(g, b, i);
    }
    return same;
}

dtp_status dtp_node_classes_find(const dtp_graph *g, dtp_arena *arena, dtp_node_classes *out,
                                 dtp_err *err)
{
    const size_t n = (size_t)g->n_nodes;
    dtp_hash_table classes = {0};
    bool *needed;
    DTP_TRY(DTP_NEW(arena, needed, g->n_tensors, err));
    dtp_graph_needed(g, needed);
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
        } while (c >= 0 && !same_class(g, needed, out->example[c], id));
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
