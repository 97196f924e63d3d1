/* A selection problem under another limit, with other costs and with further intervals. */
#include "planner/problem/overlay.h"

#include <stdlib.h>
#include <string.h>

void dtp_overlay_init(const dtp_problem *base, dtp_overlay *out)
{
    *out = (dtp_overlay){.base = base, .problem = *base};
}

void dtp_overlay_free(dtp_overlay *o)
{
    dtp_problem *p = &o->problem;
    if (o->base != NULL && p->cost != o->base->cost) {
        free(p->cost);
    }
    if (o->base != NULL && p->edge_cost != o->base->edge_cost) {
        free(p->edge_cost);
        free(p->edge_first);
    }
    if (o->base != NULL && p->extra_variable != o->base->extra_variable) {
        free(p->extra_variable);
        free(p->extra_begin);
        free(p->extra_end);
        free(p->extra_first);
        free(p->extra_usage);
    }
    *o = (dtp_overlay){0};
}

/* A copy of n elements, to be freed; NULL without memory. */
static void *copy_of(const void *from, int64_t n, size_t size)
{
    void *to = malloc(((size_t)n + 1) * size);
    if (to != NULL && n > 0) {
        memcpy(to, from, (size_t)n * size);
    }
    return to;
}

static dtp_status no_memory(dtp_err *err)
{
    return DTP_FAIL(err, DTP_NOMEM, "out of memory for a copy of a selection problem");
}

dtp_status dtp_overlay_costs(dtp_overlay *o, int64_t **cost, dtp_err *err)
{
    dtp_problem *p = &o->problem;
    if (p->cost == o->base->cost) {
        int64_t *own = copy_of(p->cost, p->first[p->n_variables], sizeof *own);
        if (own == NULL) {
            return no_memory(err);
        }
        p->cost = own;
    }
    *cost = p->cost;
    return DTP_OK;
}

dtp_status dtp_overlay_edges(dtp_overlay *o, int64_t **cost, dtp_err *err)
{
    dtp_problem *p = &o->problem;
    if (p->edge_cost == o->base->edge_cost) {
        const int64_t n = dtp_problem_n_entries(p);
        int64_t *own = malloc(((size_t)n + 1) * sizeof *own), end = 0;
        int64_t *first = malloc(((size_t)p->n_edges + 1) * sizeof *first);
        if (own == NULL || first == NULL) {
            free(own);
            free(first);
            return no_memory(err);
        }
        for (int32_t e = 0; e < p->n_edges; e++) {
            const int64_t size = dtp_problem_edge_end(p, e) - p->edge_first[e];
            memcpy(own + end, p->edge_cost + p->edge_first[e], (size_t)size * sizeof *own);
            first[e] = end;
            end += size;
        }
        p->edge_cost = own;
        p->edge_first = first;
        p->n_stored = n;
    }
    *cost = p->edge_cost;
    return DTP_OK;
}

/* Intervals of the overlay's own, that grow. */
static dtp_status own_intervals(dtp_overlay *o, dtp_err *err)
{
    const dtp_problem *b = o->base;
    dtp_problem *p = &o->problem;
    int32_t *variable = copy_of(b->extra_variable, b->n_extra, sizeof *variable);
    int64_t *begin = copy_of(b->extra_begin, b->n_extra, sizeof *begin);
    int64_t *end = copy_of(b->extra_end, b->n_extra, sizeof *end);
    int64_t *first = copy_of(b->extra_first, b->n_extra, sizeof *first);
    int64_t *usage = copy_of(b->extra_usage, b->n_extra_usage, sizeof *usage);
    if (variable == NULL || begin == NULL || end == NULL || first == NULL || usage == NULL) {
        free(variable);
        free(begin);
        free(end);
        free(first);
        free(usage);
        return no_memory(err);
    }
    p->extra_variable = variable;
    p->extra_begin = begin;
    p->extra_end = end;
    p->extra_first = first;
    p->extra_usage = usage;
    p->cap_extra = b->n_extra;
    p->cap_extra_usage = b->n_extra_usage;
    return DTP_OK;
}

dtp_status dtp_overlay_add_interval(dtp_overlay *o, int32_t variable, int64_t begin, int64_t end,
                                    const int64_t *usage, dtp_err *err)
{
    if (o->problem.extra_variable == o->base->extra_variable) {
        DTP_TRY(own_intervals(o, err));
    }
    return dtp_problem_add_interval(&o->problem, variable, begin, end, usage, err);
}
