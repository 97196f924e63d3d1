/* Leaves options out once the variables are known (dtp_strategy_filter). */
#include "planner/problem/tensors/tensor_internal.h"

static dtp_status compact(const tensor_build *b, dtp_tensor_variable *c, const bool *keep,
                          int32_t *of_class, dtp_err *err)
{
    int32_t n = 0;
    dtp_tensor_strategy *options =
        dtp_arena_alloc(b->p->arena, (size_t)c->n_strategies, sizeof *options);
    if (options == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d options", c->n_strategies);
    }
    for (int32_t k = 0; k < c->n_strategies; k++) {
        if (keep[k]) {
            options[n] = c->options[k];
            if (of_class != NULL) {
                of_class[n] = of_class[k];
            }
            n++;
        }
    }
    c->options = options;
    c->n_strategies = n;
    return n > 0 ? DTP_OK : DTP_FAIL(err, DTP_INVALID, "a choice has no option left");
}

static dtp_status compact_all(tensor_build *b, const bool *keep, dtp_err *err)
{
    dtp_tensor_problem *p = b->p;
    for (int32_t i = 0; i < p->n_variables; i++) {
        dtp_tensor_variable *c = &p->variables[i];
        const bool *here = keep;
        keep += c->n_strategies;
        if (c->kind != DTP_DECIDE_OP) {
            DTP_TRY(compact(b, c, here, NULL, err));
            continue;
        }
        node_group *group = &b->node_groups[b->group_of_node[c->node]];
        DTP_TRY(compact(b, c, here, group->option, err));
        group->n_strategies = c->n_strategies;
    }
    return DTP_OK;
}

dtp_status dtp_tensor__filter(tensor_build *b, dtp_err *err)
{
    const dtp_strategy_filter *filter = &b->p->options.filter;
    size_t n = 0;
    if (filter->run == NULL) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < b->p->n_variables; i++) {
        n += (size_t)b->p->variables[i].n_strategies;
    }
    bool *keep = dtp_arena_alloc(b->arena, n, sizeof *keep);
    if (keep == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu options", n);
    }
    for (size_t k = 0; k < n; k++) {
        keep[k] = true;
    }
    DTP_TRY(filter->run(filter->ctx, b->p, keep, err));
    b->p->options.filter = (dtp_strategy_filter){0};
    return compact_all(b, keep, err);
}
