/* The usage of the sets, so that no program needs less than the problem says; what is there when is
 * said in planner/problem/lifetimes.h.
 *
 *   tensor  its shard over its life, of the set of its own names
 *   node    while its kernel runs: operands that die here, results, workspace and intermediates. Of
 *           a node that is several instructions only one of these at a time is sure
 */
#include "core/base/sort.h"
#include "planner/problem/lifetimes.h"
#include "planner/problem/rules/rules_internal.h"

typedef struct usages {
    dtp_rules_problem *p;
    dtp_lifetimes lives;
    int64_t *usage;   /* scratch, by assignment */
    dtp_keyed *order; /* scratch, by tensor or node, twice */
} usages;

/* Bytes per rank of a tensor under assignment a of set s, which has its names and maybe more. */
static int64_t bytes_of(const dtp_rules_problem *p, dtp_tensor_id t, const dtp_rules_set *s,
                        int32_t a)
{
    enum { ALIGN = 64 };
    const dtp_ttype *type = &p->graph->tensors[t].type;
    int64_t bytes = dtp_ttype_bytes(type);
    for (int32_t k = 0; k < s->n; k++) {
        if (dtp_ttype_find(type, p->names[s->names[k]].dim) >= 0) {
            bytes /= dtp_mesh_set_size(&p->pricer->mesh, s->assign[(int64_t)a * s->n + k]);
        }
    }
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static dtp_status add(const usages *u, int32_t set, int64_t begin, int64_t end, dtp_err *err)
{
    return begin < end ? dtp_problem_add_interval(u->p->select, u->p->n_names + set, begin, end,
                                                  u->usage, err)
                       : DTP_OK;
}

/* ---- tensors ---- */

/* By set and size: those that use the same follow each other and share it. A new value lies in the
 * buffer of what it replaces. */
static dtp_status add_tensors(const usages *u, dtp_err *err)
{
    const dtp_lifetimes *l = &u->lives;
    const int32_t n = u->p->graph->n_tensors;
    int32_t set;
    for (dtp_tensor_id t = 0; t < n; t++) {
        const int64_t bytes = dtp_ttype_bytes(&u->p->graph->tensors[t].type);
        u->order[t] = (dtp_keyed){dtp_sort_key(bytes), t};
    }
    dtp_sort_keyed(u->order, u->order + n, n);
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(dtp_rules__tensor_set(u->p, (dtp_tensor_id)u->order[i].item, &set, err));
        u->order[i].key = (uint64_t)set;
    }
    dtp_sort_keyed(u->order, u->order + n, n);
    for (int32_t i = 0; i < n; i++) {
        const dtp_tensor_id t = (dtp_tensor_id)u->order[i].item;
        set = (int32_t)u->order[i].key;
        for (int32_t a = 0; a < u->p->sets[set].n_assign && !l->uses.replaces[t]; a++) {
            u->usage[a] = bytes_of(u->p, t, &u->p->sets[set], a);
        }
        DTP_TRY(l->uses.replaces[t] ? DTP_OK : add(u, set, l->begin[t], l->end_of[t], err));
    }
    return DTP_OK;
}

/* ---- nodes ---- */

static bool is_before(const dtp_node *node, int32_t i)
{
    bool before = false;
    for (int32_t j = 0; j < i; j++) {
        before = before || node->in[j] == node->in[i];
    }
    return before;
}

/* Bit o: result o has a buffer of its own when the kernel ends. An update writes over what it
 * replaces, other ops over values alone. */
static uint32_t own_results(const dtp_lifetimes *l, const dtp_node *node)
{
    const bool update = (node->op->flags & DTP_OP_UPDATE) != 0;
    uint32_t own = 0;
    for (int32_t o = 0; o < node->n_out && (node->op->flags & DTP_OP_RELABEL) == 0; o++) {
        const dtp_tensor_id t = node->out[o];
        const int32_t i = node->op->inplace_in[o] - 1;
        const bool over = i >= 0 && i < node->n_in &&
                          (update || l->graph->tensors[node->in[i]].kind == DTP_TENSOR_VALUE);
        own |= !over && !l->uses.replaces[t] && l->end_of[t] > l->begin[t] ? 1U << o : 0U;
    }
    return own;
}

static int64_t kernel_bytes(const usages *u, dtp_node_id n, const dtp_rules_class *c, int32_t a)
{
    const dtp_rules_problem *p = u->p;
    const dtp_node *node = &p->graph->nodes[n];
    const dtp_rules_set *s = &p->sets[c->set];
    const bool inner = node->op->decompose == NULL || p->pricer->target->fuse == 0;
    const int64_t sure = inner ? c->kernel_bytes[a] : 0;
    const uint32_t own = own_results(&u->lives, node);
    int64_t in = 0, kept = 0, out = 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_tensor_kind kind = p->graph->tensors[node->in[i]].kind;
        const bool dies = (u->lives.dying[n] >> i & 1U) != 0, first = !is_before(node, i);
        const int64_t bytes = first ? bytes_of(p, node->in[i], s, a) : 0;
        in += dies ? bytes : 0;
        kept += !dies && (kind == DTP_TENSOR_VALUE || kind == DTP_TENSOR_INPUT) ? bytes : 0;
    }
    for (int32_t o = 0; o < node->n_out; o++) {
        out += (own >> o & 1U) != 0 ? bytes_of(p, node->out[o], s, a) : 0;
    }
    if (c->one_kernel[a]) {
        return in + out + sure;
    }
    /* What the node brings may take the place of its operands, for later readers. */
    return out > sure - kept ? out : sure - kept;
}

/* Those of a class that use the same follow each other and share it. */
static dtp_status add_nodes(const usages *u, dtp_err *err)
{
    const dtp_rules_problem *p = u->p;
    const int32_t n = p->graph->n_nodes;
    for (dtp_node_id i = 0; i < n; i++) {
        const uint64_t own = own_results(&u->lives, &p->graph->nodes[i]);
        u->order[i] = (dtp_keyed){(uint64_t)u->lives.dying[i] << 32 | own, i};
    }
    dtp_sort_keyed(u->order, u->order + n, n);
    for (int32_t i = 0; i < n; i++) {
        u->order[i].key = (uint64_t)p->class_of_node[u->order[i].item];
    }
    dtp_sort_keyed(u->order, u->order + n, n);
    for (int32_t i = 0; i < n; i++) {
        const dtp_node_id node = (dtp_node_id)u->order[i].item;
        const dtp_rules_class *c = &p->classes[u->order[i].key];
        const int64_t at = DTP_NODE_TICKS * (int64_t)node + 1;
        if (u->lives.places.merged[node]) {
            continue;
        }
        for (int32_t a = 0; a < p->sets[c->set].n_assign; a++) {
            const bool runs = p->sets[c->set].cost_ps[a] < DTP_FORBIDDEN;
            u->usage[a] = runs ? kernel_bytes(u, node, c, a) : 0;
        }
        DTP_TRY(add(u, c->set, at, at + 1, err));
    }
    return DTP_OK;
}

/* ---- all ---- */

dtp_status dtp_rules__tensor_sets(dtp_rules_problem *p, dtp_err *err)
{
    for (dtp_tensor_id t = 0; t < p->graph->n_tensors; t++) {
        int32_t set;
        DTP_TRY(dtp_rules__tensor_set(p, t, &set, err));
    }
    return DTP_OK;
}

dtp_status dtp_rules__usage(dtp_rules_problem *p, dtp_err *err)
{
    usages u = {.p = p};
    const size_t n = (size_t)p->graph->n_tensors + (size_t)p->graph->n_nodes;
    DTP_TRY(DTP_NEW(p->arena, u.usage, DTP_RULES_MAX_ASSIGN, err));
    DTP_TRY(DTP_NEW(p->arena, u.order, 2 * n, err));
    DTP_TRY(dtp_lifetimes_find(p->graph, p->pricer->target, p->arena, &u.lives, err));
    DTP_TRY(add_tensors(&u, err));
    return add_nodes(&u, err);
}
