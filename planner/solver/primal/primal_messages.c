/* Sequentially reweighted min-sum messages (TRW-S) that pick an assignment. */
#include "planner/solver/primal/primal_messages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clones.h"

dtp_status solver_messages_create(const solver_graph *g, solver_messages *out, dtp_err *err)
{
    solver_messages m = {.g = g};
    m.first = calloc((size_t)g->n + 1, sizeof *m.first);
    m.sum = calloc(2 * ((size_t)g->max_k + 1), sizeof *m.sum);
    for (int32_t i = 0; m.first != NULL && i < g->n; i++) {
        m.first[i] = m.n;
        m.n += (int64_t)g->vertices[i].n_arcs * g->vertices[i].k;
    }
    m.message = calloc((size_t)m.n + 1, sizeof *m.message);
    if (m.first == NULL || m.sum == NULL || m.message == NULL) {
        solver_messages_destroy(&m);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for messages between %d nodes", g->n);
    }
    *out = m;
    return DTP_OK;
}

void solver_messages_destroy(solver_messages *m)
{
    free(m->first);
    free(m->sum);
    free(m->message);
    *m = (solver_messages){0};
}

void solver_messages_clear(solver_messages *m)
{
    memset(m->message, 0, (size_t)m->n * sizeof *m->message);
    m->backwards = false;
}

/* Variables that the pass comes to after variable i. */
static bool later(const solver_messages *m, int32_t other, int32_t i)
{
    return m->backwards ? other < i : other > i;
}

/* The best strategy given the strategies of the variables before and the messages of those after
 * it. */
static int32_t pick(const solver_messages *m, const solver_point *w, int32_t i,
                    const int32_t *assignment)
{
    const solver_vertex *x = &m->g->vertices[i];
    int32_t best = 0;
    for (int32_t s = 0; s < x->k; s++) {
        m->sum[s] = w->theta[x->at + s];
    }
    for (int32_t a = 0; a < x->n_arcs; a++) {
        const int32_t y = x->arcs[a].other;
        const double *line = later(m, y, i) ? m->message + m->first[i] + (int64_t)a * x->k
                                            : x->arcs[a].m + (int64_t)assignment[y] * x->k;
        for (int32_t s = 0; s < x->k; s++) {
            m->sum[s] += line[s];
        }
    }
    for (int32_t s = 1; s < x->k; s++) {
        best = m->sum[s] < m->sum[best] ? s : best;
    }
    return best;
}

/* Four rows at a time spare most of the traffic of `to`. Clones of a function that is not static
 * would leave the library. */
DTP_CPU_CLONES static void min_plus(const double *restrict from, int32_t k,
                                    const double *restrict matrix, int32_t k_to,
                                    double *restrict to)
{
    for (int32_t t = 0; t < k_to; t++) {
        to[t] = (double)INFINITY;
    }
    int32_t s = 0;
    for (; s + 4 <= k; s += 4) {
        const double *a = matrix + (int64_t)s * k_to, *b = a + k_to, *c = b + k_to, *d = c + k_to;
        for (int32_t t = 0; t < k_to; t++) {
            const double x = from[s] + a[t], y = from[s + 1] + b[t], z = from[s + 2] + c[t],
                         u = from[s + 3] + d[t];
            const double xy = x < y ? x : y, zu = z < u ? z : u, all = xy < zu ? xy : zu;
            to[t] = all < to[t] ? all : to[t];
        }
    }
    for (; s < k; s++) {
        const double *line = matrix + (int64_t)s * k_to;
        for (int32_t t = 0; t < k_to; t++) {
            const double at = from[s] + line[t];
            to[t] = at < to[t] ? at : to[t];
        }
    }
}

void solver_min_plus(const double *restrict from, int32_t k, const double *restrict matrix,
                     int32_t k_to, double *restrict to)
{
    min_plus(from, k, matrix, k_to, to);
}

/* to[t] = min_s (share * sum[s] - from[s] + c(s, t)), shifted so that the least is 0. */
static void send(const solver_messages *m, int32_t k, double share, const double *from,
                 const double *matrix, int32_t k_to, double *to)
{
    double *here = m->sum + m->g->max_k + 1;
    for (int32_t s = 0; s < k; s++) {
        here[s] = share * m->sum[s] - from[s];
    }
    solver_min_plus(here, k, matrix, k_to, to);
    double least = to[0];
    for (int32_t t = 1; t < k_to; t++) {
        least = to[t] < least ? to[t] : least;
    }
    for (int32_t t = 0; t < k_to; t++) {
        to[t] -= least;
    }
}

static void update(solver_messages *m, solver_point *w, int32_t i)
{
    const solver_vertex *x = &m->g->vertices[i];
    int32_t after = 0;
    for (int32_t s = 0; s < x->k; s++) {
        m->sum[s] = w->theta[x->at + s];
    }
    for (int32_t a = 0; a < x->n_arcs; a++) {
        const double *line = m->message + m->first[i] + (int64_t)a * x->k;
        after += later(m, x->arcs[a].other, i) ? 1 : 0;
        for (int32_t s = 0; s < x->k; s++) {
            m->sum[s] += line[s];
        }
    }
    const int32_t before = x->n_arcs - after;
    const double share = 1.0 / (double)(after > before ? after : before > 0 ? before : 1);
    for (int32_t a = 0; a < x->n_arcs; a++) {
        const solver_arc *arc = &x->arcs[a];
        if (later(m, arc->other, i)) {
            const solver_vertex *y = &m->g->vertices[arc->other];
            double *to = m->message + m->first[arc->other] + (int64_t)arc->twin * y->k;
            send(m, x->k, share, m->message + m->first[i] + (int64_t)a * x->k, y->arcs[arc->twin].m,
                 y->k, to);
        }
    }
}

void solver_messages_pass(solver_messages *m, solver_point *w, int32_t *assignment)
{
    const int32_t n = m->g->n;
    for (int32_t q = 0; q < n; q++) {
        const int32_t i = m->backwards ? n - 1 - q : q;
        assignment[i] = pick(m, w, i, assignment);
        update(m, w, i);
    }
    m->backwards = !m->backwards;
    w->work += m->g->n_entries + 3 * m->g->n_arcs;
}
