#include "planner/problem/rules/rules_problem.h"

#include <inttypes.h>

#include "planner/problem/rules/rules_internal.h"

static dtp_status build(dtp_rules_problem *p, dtp_err *err)
{
    DTP_TRY(dtp_rules__names(p, err));
    DTP_TRY(dtp_rules__price(p, err));
    return dtp_rules__buffers(p, err);
}

dtp_status dtp_rules_problem_create(const dtp_graph *g, const dtp_pricer *pricer,
                                    const dtp_redistributor *redistributor, dtp_rules_problem **out,
                                    dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_rules_problem *p = arena == NULL ? NULL : dtp_arena_alloc(arena, 1, sizeof *p);
    if (p == NULL) {
        dtp_arena_destroy(arena);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a planning problem");
    }
    p->arena = arena;
    p->graph = g;
    p->pricer = pricer;
    p->redistributor = redistributor;
    dtp_status s = build(p, err);
    if (s != DTP_OK) {
        dtp_rules_problem_destroy(p);
        return s;
    }
    *out = p;
    return DTP_OK;
}

void dtp_rules_problem_destroy(dtp_rules_problem *p)
{
    if (p != NULL) {
        dtp_arena_destroy(p->arena);
    }
}

dtp_status dtp_rules_of_choice(const dtp_rules_problem *p, const dtp_rules_choice *assignment,
                               dtp_arena *arena, dtp_layout_rules *out, dtp_err *err)
{
    DTP_TRY(dtp_layout_rules_create(arena, p->graph->dims.n, out, err));
    for (int32_t i = 0; i < p->n_names; i++) {
        out->splits[p->names[i]] = dtp_rules__splits_of(assignment->mesh_dims[i]);
    }
    return DTP_OK;
}

/* "batch:x;d_ff:y", or "(whole)". */
static void print_assignment(const dtp_rules_problem *p, const dtp_rules_set *s, int32_t a,
                             dtp_strbuf *out)
{
    bool any = false;
    for (int32_t i = 0; i < s->n; i++) {
        const dtp_rule_splits splits = dtp_rules__splits_of(s->assign[a * s->n + i]);
        for (int8_t k = 0; k < splits.n; k++) {
            dtp_strbuf_addf(out, "%s%s:%s", any ? ";" : "",
                            dtp_dims_name(&p->graph->dims, s->dims[i]),
                            p->pricer->mesh.names[splits.mesh_dims[k]]);
            any = true;
        }
    }
    dtp_strbuf_add(out, any ? "" : "(whole)");
}

void dtp_rules_problem_print(const dtp_rules_problem *p, dtp_strbuf *out)
{
    dtp_strbuf_addf(out, "# %d names, %d sets, %d kinds of nodes, %" PRId64 " lowerings priced\n",
                    p->n_names, p->n_sets, p->n_classes, p->priced);
    for (int32_t k = 0; k < p->n_classes; k++) {
        const dtp_rules_class *c = &p->classes[k];
        const dtp_rules_set *s = &p->sets[c->set];
        const dtp_node *n = &p->graph->nodes[c->example];
        dtp_strbuf_addf(out, "%" PRId64 " x %s, such as %s\n", c->count, n->op->name, n->name);
        for (int32_t a = 0; a < s->n_assign; a++) {
            if (!s->forbidden[a]) {
                dtp_strbuf_addf(out, "  %14" PRId64 " ps %12" PRId64 " B temporary   ",
                                c->cost_ps[a], c->temp_bytes[a]);
                print_assignment(p, s, a, out);
                dtp_strbuf_add(out, "\n");
            }
        }
    }
}
