/* Classes of nodes and their prices: every class is lowered alone under every assignment of its
 * set, and the instructions are priced. An assignment under which it cannot be lowered (a size
 * that is not divided, a dim that must be whole) is forbidden for the set.
 */
#include "cost_models/node_classes.h"
#include "cost_models/node_price.h"
#include "planner/problem/rules/rules_internal.h"

/* ---- one assignment ---- */

typedef struct pricing {
    dtp_rules_problem *p;
    dtp_node_pricer *nodes;
    dtp_layout_rules rules;
} pricing;

static void set_rules(pricing *job, const dtp_rules_set *s, int32_t a, bool on)
{
    for (int32_t i = 0; i < s->n; i++) {
        job->rules.splits[job->p->names[s->names[i]].dim] =
            dtp_rules__splits_of(on ? s->assign[a * s->n + i] : 0);
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
        DTP_TRY(dtp_layout_rules_layout(&job->rules, mesh, &g->dims, &g->tensors[n->in[i]].type,
                                        job->p->uneven, &in[i], err));
    }
    for (int32_t i = 0; i < n->n_out; i++) {
        DTP_TRY(dtp_layout_rules_layout(&job->rules, mesh, &g->dims, &g->tensors[n->out[i]].type,
                                        job->p->uneven, &out[i], err));
    }
    return dtp_node_pricer_price(job->nodes, id, &strategy, in, out, price, err);
}

/* Adds what the nodes of a class cost under assignment a of its set. */
static dtp_status price(pricing *job, dtp_rules_class *c, int32_t a, dtp_err *err)
{
    dtp_rules_set *s = &job->p->sets[c->set];
    dtp_err why = {0};
    dtp_node_price found;
    set_rules(job, s, a, true);
    dtp_status status = price_node(job, c->example, &found, &why);
    set_rules(job, s, a, false);
    if (dtp_lowering_refuses(status) ||
        (status == DTP_OK && found.fills && !job->p->pricer->target->margins)) {
        s->cost_ps[a] = DTP_FORBIDDEN;
        return DTP_OK;
    }
    if (status != DTP_OK) {
        return DTP_FAIL(err, status, "%s", why.msg);
    }
    c->kernel_bytes[a] = found.kernel_bytes;
    c->one_kernel[a] = found.one_kernel;
    return dtp_cost_add(&s->cost_ps[a], found.cost_ps, c->count)
               ? DTP_OK
               : dtp_cost_fail(job->p->pricer, dtp_node_pricer_dearest(job->nodes), err);
}

/* ---- all ---- */

static dtp_status price_all(pricing *job, dtp_err *err)
{
    dtp_rules_problem *p = job->p;
    DTP_TRY(dtp_layout_rules_create(p->arena, p->graph->dims.n, &job->rules, err));
    for (int32_t k = 0; k < p->n_classes; k++) {
        const dtp_rules_set *s = &p->sets[p->classes[k].set];
        for (int32_t a = 0; a < s->n_assign; a++) {
            DTP_TRY(s->cost_ps[a] < DTP_FORBIDDEN ? price(job, &p->classes[k], a, err) : DTP_OK);
        }
    }
    /* The dearest assignments of all sets together fit, and so does every assignment. */
    int64_t sum = 0;
    for (int32_t d = 0; d < job->p->n_sets; d++) {
        const dtp_rules_set *s = &job->p->sets[d];
        int64_t most = 0;
        for (int32_t a = 0; a < s->n_assign; a++) {
            most = s->cost_ps[a] < DTP_FORBIDDEN && s->cost_ps[a] > most ? s->cost_ps[a] : most;
        }
        if (!dtp_cost_add(&sum, most, 1)) {
            return dtp_cost_fail(job->p->pricer, dtp_node_pricer_dearest(job->nodes), err);
        }
    }
    return DTP_OK;
}

dtp_status dtp_rules__price(dtp_rules_problem *p, dtp_err *err)
{
    pricing job = {.p = p};
    dtp_node_classes classes;
    DTP_TRY(dtp_node_classes_find(p->graph, p->arena, &classes, err));
    p->class_of_node = classes.of_node;
    p->n_classes = classes.n;
    DTP_TRY(DTP_NEW(p->arena, p->classes, classes.n, err));
    for (int32_t k = 0; k < classes.n; k++) {
        dtp_rules_class *c = &p->classes[k];
        *c = (dtp_rules_class){.example = classes.example[k], .count = classes.count[k]};
        DTP_TRY(dtp_rules__op_set(p, c->example, &c->set, err));
        DTP_TRY(DTP_NEW(p->arena, c->kernel_bytes, p->sets[c->set].n_assign, err));
        DTP_TRY(DTP_NEW(p->arena, c->one_kernel, p->sets[c->set].n_assign, err));
    }
    DTP_TRY(dtp_node_pricer_create(p->graph, p->pricer, p->redistributor, &job.nodes, err));
    dtp_status s = price_all(&job, err);
    dtp_node_pricer_destroy(job.nodes);
    return s;
}
