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
    if (o->base != NULL && p->edge_cost != o->base->edge_cost) {
        free(p->edge_cost);
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

static dtp_status copy(const void *from, int64_t n, size_t size, void *out, dtp_err *err)
{
    void *to = malloc(((size_t)n + 1) * size);
    if (to == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a copy of a selection problem");
    }
    if (n > 0) {
        memcpy(to, from, (size_t)n * size);
    }
    memcpy(out, &to, sizeof to);
    return DTP_OK;
}

dtp_status dtp_overlay_edges(dtp_overlay *o, int64_t **cost, dtp_err *err)
{
    dtp_problem *p = &o->problem;
    if (p->edge_cost == o->base->edge_cost) {
        DTP_TRY(copy(o->base->edge_cost, p->n_stored, sizeof *p->edge_cost, &p->edge_cost, err));
    }
    *cost = p->edge_cost;
    return DTP_OK;
}

/* Intervals of the overlay's own, that grow. */
static dtp_status own_intervals(dtp_overlay *o, dtp_err *err)
{
    const dtp_problem *b = o->base;
    dtp_problem *p = &o->problem, own = {0};
    dtp_status s =
        copy(b->extra_variable, b->n_extra, sizeof *own.extra_variable, &own.extra_variable, err);
    s = s == DTP_OK
            ? copy(b->extra_begin, b->n_extra, sizeof *own.extra_begin, &own.extra_begin, err)
            : s;
    s = s == DTP_OK ? copy(b->extra_end, b->n_extra, sizeof *own.extra_end, &own.extra_end, err)
                    : s;
    s = s == DTP_OK
            ? copy(b->extra_first, b->n_extra, sizeof *own.extra_first, &own.extra_first, err)
            : s;
    s = s == DTP_OK
            ? copy(b->extra_usage, b->n_extra_usage, sizeof *own.extra_usage, &own.extra_usage, err)
            : s;
    if (s != DTP_OK) {
        free(own.extra_variable);
        free(own.extra_begin);
        free(own.extra_end);
        free(own.extra_first);
        return s;
    }
    p->extra_variable = own.extra_variable;
    p->extra_begin = own.extra_begin;
    p->extra_end = own.extra_end;
    p->extra_first = own.extra_first;
    p->extra_usage = own.extra_usage;
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
