/* Classes of nodes and their prices: every class is lowered alone under every assignment of its
 * set, and the instructions are priced. An assignment under which it cannot be lowered (an uneven
 * size, a dim that must be whole) is forbidden for the set.
 */
<<<<<<< HEAD
=======
#include <string.h>

#include "core/hash.h"
#include "core/microbatch.h"
>>>>>>> main
#include "core/safe_int.h"
#include "planner/node_classes.h"
#include "planner/node_price.h"
#include "planner/rules_internal.h"

/* ---- classes ------------------------------------------------------------------------------------
 */

static dtp_status add_class(dtp_rules_problem *p, const dtp_node_classes *classes, int32_t k,
                            dtp_err *err)
{
<<<<<<< HEAD
    dtp_rules_class c = {.example = classes->example[k], .count = classes->count[k]};
    DTP_TRY(dtp_rules__op_set(p, c.example, &c.set, err));
=======
    h = dtp_hash_i64(h, t->dtype);
    for (int32_t i = 0; i < t->rank; i++) {
        h = dtp_hash_i64(dtp_hash_i64(h, t->dims[i].id), t->dims[i].size);
    }
    return dtp_hash_i64(h, -1);
}

static uint64_t hash_node(const dtp_graph *g, const dtp_node *n)
{
    uint64_t h = dtp_hash_text(DTP_HASH_SEED, n->op->name);
    for (int32_t i = 0; i < n->n_in; i++) {
        h = hash_type(h, &g->tensors[n->in[i]].type);
    }
    for (int32_t i = 0; i < n->n_out; i++) {
        h = hash_type(h, &g->tensors[n->out[i]].type);
    }
    return h;
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

static int32_t runs_of(const dtp_graph *g, dtp_node_id node)
{
    return dtp_graph_runs(g, g->nodes[node].phase);
}

static bool defers(const dtp_graph *g, dtp_node_id node)
{
    return runs_of(g, node) > 1 && dtp_microbatch_defers(g, g->nodes[node].out[0]);
}

/* Equal nodes cost the same when they run equally often. */
static bool same_class(const dtp_graph *g, const dtp_rules_class *c, dtp_node_id node)
{
    return same_node(g, &g->nodes[c->example], &g->nodes[node]) && c->runs == runs_of(g, node) &&
           c->defers == defers(g, node);
}

static dtp_status append_class(dtp_rules_problem *p, dtp_node_id node, int32_t *out, dtp_err *err)
{
    dtp_rules_class c = {
        .example = node, .runs = runs_of(p->graph, node), .defers = defers(p->graph, node)};
    DTP_TRY(dtp_rules__op_set(p, node, &c.set, err));
>>>>>>> main
    const size_t n = (size_t)p->sets[c.set].n_assign;
    c.cost_ps = dtp_arena_alloc(p->arena, n, sizeof *c.cost_ps);
    c.temp_bytes = dtp_arena_alloc(p->arena, n, sizeof *c.temp_bytes);
    if (c.cost_ps == NULL || c.temp_bytes == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu prices", n);
    }
    DTP_TRY(dtp_arena_grow(p->arena, &p->classes, p->n_classes, p->n_classes + 1, &p->cap_classes,
                           sizeof *p->classes, err));
    p->classes[p->n_classes++] = c;
    return DTP_OK;
}

static dtp_status sort_into_classes(dtp_rules_problem *p, dtp_err *err)
{
<<<<<<< HEAD
    dtp_node_classes classes;
    DTP_TRY(dtp_node_classes_find(p->graph, p->arena, &classes, err));
    p->class_of_node = classes.of_node;
    for (int32_t k = 0; k < classes.n; k++) {
        DTP_TRY(add_class(p, &classes, k, err));
=======
    const dtp_graph *g = p->graph;
    int32_t size = 64;
    while (size < 4 * g->n_nodes) {
        size *= 2;
    }
    int32_t *table = dtp_arena_alloc(p->arena, (size_t)size, sizeof *table);
    p->class_of_node = dtp_arena_alloc(p->arena, (size_t)g->n_nodes, sizeof *p->class_of_node);
    if (table == NULL || p->class_of_node == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d nodes", g->n_nodes);
    }
    memset(table, -1, (size_t)size * sizeof *table);
    for (dtp_node_id id = 0; id < g->n_nodes; id++) {
        const dtp_node *n = &g->nodes[id];
        uint64_t slot = hash_node(g, n) & (uint64_t)(size - 1);
        while (table[slot] >= 0 && !same_class(g, &p->classes[table[slot]], id)) {
            slot = (slot + 1) & (uint64_t)(size - 1);
        }
        if (table[slot] < 0) {
            DTP_TRY(append_class(p, id, &table[slot], err));
        }
        p->class_of_node[id] = table[slot];
        p->classes[table[slot]].count++;
>>>>>>> main
    }
    return DTP_OK;
}

/* ---- one assignment ----------------------------------------------------------------------------
 */

typedef struct pricing {
    dtp_rules_problem *p;
    dtp_node_pricer *nodes;
    dtp_rules rules;
} pricing;

static void set_rules(pricing *job, const dtp_rules_set *s, int32_t a, bool on)
{
    for (int32_t i = 0; i < s->n; i++) {
        job->rules.splits[s->dims[i]] = dtp_rules_splits_of(on ? s->assign[a * s->n + i] : 0);
    }
}

static dtp_status price_node(pricing *job, dtp_node_id id, dtp_node_price *price, dtp_err *err)
{
    const dtp_graph *g = job->p->graph;
    const dtp_mesh *mesh = &job->p->pricer->mesh;
    const dtp_node *n = &g->nodes[id];
    dtp_layout in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
    dtp_strategy strategy;
    DTP_TRY(dtp_strategy_from_rules(g, id, mesh, &job->rules, &strategy, err));
    for (int32_t i = 0; i < n->n_in; i++) {
        DTP_TRY(dtp_rules_layout(&job->rules, mesh, &g->dims, &g->tensors[n->in[i]].type, false,
                                 &in[i], err));
    }
    for (int32_t i = 0; i < n->n_out; i++) {
        DTP_TRY(dtp_rules_layout(&job->rules, mesh, &g->dims, &g->tensors[n->out[i]].type, false,
                                 &out[i], err));
    }
    return dtp_node_pricer_price(job->nodes, id, &strategy, in, out, price, err);
}

static dtp_status price(pricing *job, dtp_rules_class *c, int32_t a, dtp_err *err)
{
    dtp_rules_problem *p = job->p;
    dtp_rules_set *s = &p->sets[c->set];
    dtp_err why = {0};
    dtp_node_price found;
    set_rules(job, s, a, true);
    dtp_status status = price_node(job, c->example, &found, &why);
    set_rules(job, s, a, false);
    if (dtp_status_is_input(status)) {
        s->forbidden[a] = true;
        return DTP_OK;
    }
    if (status != DTP_OK) {
        return DTP_FAIL(err, status, "%s", why.msg);
    }
<<<<<<< HEAD
    c->cost_ps[a] = found.cost_ps;
    c->temp_bytes[a] = found.temp_bytes;
=======
    /* A deferred reduction runs once: what follows the node's kernel. */
    int32_t runs = c->defers ? 1 : c->runs;
    for (int32_t k = job->program->n_instrs - 1; k >= 0; k--) {
        const dtp_instr *instr = &job->program->instrs[k];
        runs = instr->kind == DTP_INSTR_KERNEL ? c->runs : runs;
        c->cost_ps[a] += runs * dtp_picoseconds(dtp_price_instr(p->pricer, job->program, instr));
    }
>>>>>>> main
    p->priced++;
    return DTP_OK;
}

/* ---- all ----------------------------------------------------------------------------------------
 */

static dtp_status price_class(pricing *job, dtp_rules_class *c, dtp_err *err)
{
    dtp_rules_set *s = &job->p->sets[c->set];
    for (int32_t a = 0; a < s->n_assign; a++) {
        int64_t all;
        if (s->forbidden[a]) {
            continue;
        }
        DTP_TRY(price(job, c, a, err));
        if (!dtp_mul_i64(c->cost_ps[a], c->count, &all) ||
            !dtp_add_i64(s->cost_ps[a], all, &s->cost_ps[a])) {
            return DTP_FAIL(err, DTP_RANGE, "node '%s': the price does not fit",
                            job->p->graph->nodes[c->example].name);
        }
    }
    return DTP_OK;
}

static dtp_status price_all(pricing *job, dtp_err *err)
{
    dtp_rules_problem *p = job->p;
    DTP_TRY(dtp_rules_create(p->arena, p->graph->dims.n, &job->rules, err));
    for (int32_t k = 0; k < p->n_classes; k++) {
        DTP_TRY(price_class(job, &p->classes[k], err));
    }
    return DTP_OK;
}

dtp_status dtp_rules__price(dtp_rules_problem *p, dtp_err *err)
{
    pricing job = {.p = p};
    DTP_TRY(sort_into_classes(p, err));
    DTP_TRY(dtp_node_pricer_create(p->graph, p->pricer, NULL, &job.nodes, err));
    dtp_status s = price_all(&job, err);
    dtp_node_pricer_destroy(job.nodes);
    return s;
}
