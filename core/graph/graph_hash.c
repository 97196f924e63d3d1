/* The hash of a graph's content: what a plan or program depends on, in id order. The graph's name
 * is left out, and so are the sizes of dims that no tensor has. */
#include "core/graph/graph.h"

#include <string.h>

#include "core/base/hash.h"

/* Attributes that say nothing: no dtype, and those that ops were given later at what was done
 * before, so that graphs without them have the hash that they had. */
static bool says_nothing(const dtp_node *node, const dtp_attr *a)
{
    static const char *const later[] = {"padding", "skip", "outside"};
    bool is = false;
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        is = is || strcmp(a->key, later[i]) == 0;
    }
    return a->kind == DTP_ATTR_DTYPE ? a->i == DTP_NO_DTYPE
                                     : is && (double)a->i == dtp_op_attr(node->op, a->key)->def;
}

static uint64_t hash_attrs(uint64_t h, const dtp_graph *g, const dtp_node *node)
{
    for (int32_t i = 0; i < node->n_attrs; i++) {
        const dtp_attr *a = &node->attrs[i];
        if (says_nothing(node, a)) {
            continue;
        }
        h = dtp_hash_text(h, a->key);
        if (a->kind == DTP_ATTR_DIM) {
            h = dtp_hash_text(h, a->i < 0 ? "" : dtp_dims_name(&g->dims, (dtp_dim_id)a->i));
            continue;
        }
        h = dtp_hash_i64(h, a->kind == DTP_ATTR_FLOAT ? 0 : a->i);
        h = dtp_hash_double(h, a->kind == DTP_ATTR_FLOAT ? a->f : 0.0);
        h = dtp_hash_i64(h, a->n);
        for (int32_t k = 0; k < a->n; k++) {
            h = a->kind == DTP_ATTR_INTS ? dtp_hash_i64(h, a->ints[k])
                                         : dtp_hash_text(h, dtp_dims_name(&g->dims, a->ids[k]));
        }
    }
    return h;
}

static uint64_t hash_type(uint64_t h, const dtp_graph *g, const dtp_ttype *type)
{
    h = dtp_hash_text(h, dtp_dtype_name(type->dtype));
    h = dtp_hash_i64(h, type->rank);
    for (int32_t k = 0; k < type->rank; k++) {
        h = dtp_hash_text(h, dtp_dims_name(&g->dims, type->dims[k].id));
        h = dtp_hash_i64(h, type->dims[k].size);
    }
    return h;
}

static uint64_t hash_node(uint64_t h, const dtp_graph *g, const dtp_node *node)
{
    h = dtp_hash_text(h, node->name);
    h = dtp_hash_text(h, node->op->name);
    h = dtp_hash_i64(h, node->n_in);
    for (int32_t i = 0; i < node->n_in; i++) {
        h = dtp_hash_i64(h, node->in[i]);
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        h = dtp_hash_i64(h, node->out[i]);
    }
    return dtp_hash_i64(hash_attrs(h, g, node), (int64_t)node->phase);
}

uint64_t dtp_graph_forward_hash(const dtp_graph *g)
{
    uint64_t sum = 0; /* of nodes and parameters in any order */
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const dtp_node *node = &g->nodes[i];
        uint64_t h = dtp_hash_text(DTP_HASH_SEED, node->op->name);
        for (int32_t k = 0; k < node->n_in; k++) {
            h = dtp_hash_text(h, g->tensors[node->in[k]].name);
        }
        for (int32_t k = 0; k < node->n_out; k++) {
            h = dtp_hash_text(h, g->tensors[node->out[k]].name);
        }
        sum += node->phase == DTP_FORWARD ? hash_attrs(h, g, node) : 0;
    }
    for (int32_t i = 0; i < g->n_tensors; i++) {
        const dtp_graph_tensor *t = &g->tensors[i];
        const uint64_t h = dtp_hash_text(DTP_HASH_SEED, t->name);
        sum += t->kind == DTP_TENSOR_PARAM ? hash_type(h, g, &t->type) : 0;
    }
    return dtp_hash_text(dtp_hash_i64(DTP_HASH_SEED, (int64_t)sum),
                         g->loss >= 0 ? g->tensors[g->loss].name : "");
}

uint64_t dtp_graph_hash(const dtp_graph *g)
{
    uint64_t h = DTP_HASH_SEED;
    for (int32_t i = 0; i < g->n_tensors; i++) {
        const dtp_graph_tensor *t = &g->tensors[i];
        h = dtp_hash_text(h, t->name);
        h = dtp_hash_i64(h, (int64_t)t->kind);
        h = hash_type(h, g, &t->type);
        h = dtp_hash_i64(h, (int64_t)t->init.kind);
        h = dtp_hash_double(h, t->init.a);
        h = dtp_hash_double(h, t->init.b);
        h = dtp_hash_i64(h, t->below);
        h = t->frozen ? dtp_hash_text(h, "frozen") : h;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        h = hash_node(h, g, &g->nodes[i]);
    }
    h = dtp_hash_i64(h, g->n_outputs);
    for (int32_t i = 0; i < g->n_outputs; i++) {
        h = dtp_hash_i64(h, g->outputs[i]);
    }
    for (int32_t i = 0; i < g->n_updates; i++) {
        h = dtp_hash_i64(h, g->updates[i].target);
        h = dtp_hash_i64(h, g->updates[i].value);
    }
    for (int32_t i = 0; i < g->n_grads; i++) {
        h = dtp_hash_i64(h, g->grads[i].param);
        h = dtp_hash_i64(h, g->grads[i].grad);
    }
    h = g->tf32 ? dtp_hash_text(h, "tf32") : h;
    return dtp_hash_i64(h, g->loss);
}
