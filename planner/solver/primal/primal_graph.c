/* A snapshot of what presolve left, laid out for search. */
#include "planner/solver/primal/primal_graph.h"

#include <math.h>
#include <string.h>

typedef struct graph_builder {
    const solver_reduced *w;
    solver_graph *g;
    int32_t *index;    /* by variable of the reduced problem */
    int32_t *n_arcs;   /* by variable of the graph: arcs that are there */
    solver_arc **arcs; /* by variable of the graph */
} graph_builder;

static double as_double(const graph_builder *b, int64_t cost)
{
    return cost < DTP_FORBIDDEN ? (double)cost : b->g->forbidden;
}

static double larger(double most, const int64_t *costs, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double cost = costs[i] < DTP_FORBIDDEN ? (double)costs[i] : 0.0;
        most = cost > most ? cost : most;
    }
    return most;
}

/* One forbidden pair costs more than anything a search could save with it. */
static double cost_of_forbidden(const solver_reduced *w)
{
    double most = 0.0;
    for (int32_t i = 0; i < w->n_variables; i++) {
        most = w->variables[i].alive ? larger(most, w->variables[i].cost, w->variables[i].k) : most;
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        const solver_edge *edge = &w->edges[e];
        if (edge->alive) {
            const int64_t n = (int64_t)w->variables[edge->u].k * w->variables[edge->v].k;
            most = larger(most, solver_matrix(edge), n);
        }
    }
    const double constant = (double)w->constant, bound = (double)solver_lower_bound(w);
    return 1e3 * (1.0 + fabs(constant) + (bound - constant) + most);
}

static dtp_status add_vertex(graph_builder *b, int32_t origin, dtp_err *err)
{
    solver_graph *g = b->g;
    const solver_variable *x = &b->w->variables[origin];
    solver_vertex *v = &g->vertices[g->n];
    double *cost;
    solver_span *spans;
    int64_t *use;
    DTP_TRY(DTP_NEW(g->arena, cost, x->k, err));
    DTP_TRY(DTP_NEW(g->arena, spans, x->n_pieces, err));
    DTP_TRY(DTP_NEW(g->arena, use, (int64_t)x->n_pieces * x->k, err));
    for (int32_t s = 0; s < x->k; s++) {
        cost[s] = as_double(b, x->cost[s]);
    }
    for (int32_t j = 0; j < x->n_pieces; j++) {
        memcpy(use + (int64_t)j * x->k, x->pieces[j].use, (size_t)x->k * sizeof *use);
        spans[j] = (solver_span){x->pieces[j].first, x->pieces[j].last, use + (int64_t)j * x->k};
    }
    *v = (solver_vertex){.k = x->k,
                         .origin = origin,
                         .at = g->n_strategies,
                         .cost = cost,
                         .spans = spans,
                         .n_spans = x->n_pieces};
    b->index[origin] = g->n++;
    g->n_strategies += x->k;
    g->max_k = x->k > g->max_k ? x->k : g->max_k;
    return DTP_OK;
}

/* The matrix from both ends. */
static dtp_status add_edge(graph_builder *b, const solver_edge *e, dtp_err *err)
{
    solver_graph *g = b->g;
    const int32_t u = b->index[e->u], v = b->index[e->v];
    const int64_t ku = g->vertices[u].k, kv = g->vertices[v].k;
    const int64_t *m = solver_matrix(e);
    double *from_v, *from_u;
    DTP_TRY(DTP_NEW(g->arena, from_v, ku * kv, err));
    DTP_TRY(DTP_NEW(g->arena, from_u, ku * kv, err));
    for (int64_t i = 0; i < ku; i++) {
        for (int64_t j = 0; j < kv; j++) {
            from_v[i * kv + j] = from_u[j * ku + i] = as_double(b, m[i * kv + j]);
        }
    }
    const int32_t at_u = b->n_arcs[u]++, at_v = b->n_arcs[v]++;
    b->arcs[u][at_u] = (solver_arc){v, at_v, from_u};
    b->arcs[v][at_v] = (solver_arc){u, at_u, from_v};
    g->n_arcs += 2;
    g->n_entries += ku * kv;
    return DTP_OK;
}

/* scratch: of what only building needs. */
static dtp_status build(graph_builder *b, dtp_arena *scratch, dtp_err *err)
{
    const solver_reduced *w = b->w;
    solver_graph *g = b->g;
    int64_t *base;
    double *multiplier;
    DTP_TRY(DTP_NEW(scratch, b->index, w->n_variables, err));
    DTP_TRY(DTP_NEW(scratch, b->n_arcs, w->n_variables, err));
    b->arcs = dtp_arena_alloc(scratch, (size_t)w->n_variables, sizeof(solver_arc *));
    DTP_TRY(DTP_MEMORY(err, b->arcs));
    DTP_TRY(DTP_NEW(g->arena, base, w->n_rows, err));
    DTP_TRY(DTP_NEW(g->arena, g->vertices, w->n_variables, err));
    DTP_TRY(DTP_NEW(g->arena, multiplier, w->n_rows, err));
    memcpy(multiplier, w->multiplier, (size_t)w->n_rows * sizeof *multiplier);
    g->multiplier = multiplier;
    memcpy(base, w->base, (size_t)w->n_rows * sizeof *base);
    g->base = base;
    g->parameters = w->parameters;
    g->n_rows = w->n_rows;
    g->limit = w->limit;
    g->constant = (double)w->constant;
    g->forbidden = cost_of_forbidden(w);
    for (int32_t i = 0; i < w->n_variables; i++) {
        if (w->variables[i].alive) {
            DTP_TRY(add_vertex(b, i, err));
        }
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        const solver_edge *edge = &w->edges[e];
        if (edge->alive) {
            g->vertices[b->index[edge->u]].n_arcs++;
            g->vertices[b->index[edge->v]].n_arcs++;
        }
    }
    for (int32_t i = 0; i < g->n; i++) {
        DTP_TRY(DTP_NEW(g->arena, b->arcs[i], g->vertices[i].n_arcs, err));
        g->vertices[i].arcs = b->arcs[i];
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        if (w->edges[e].alive) {
            DTP_TRY(add_edge(b, &w->edges[e], err));
        }
    }
    return DTP_OK;
}

dtp_status solver_graph_create(const solver_reduced *w, solver_graph **out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create(), *scratch = dtp_arena_create();
    graph_builder b = {.w = w};
    dtp_status s = DTP_NEW(arena, b.g, 1, err);
    if (s == DTP_OK) {
        b.g->arena = arena;
        s = build(&b, scratch, err);
    }
    dtp_arena_destroy(scratch);
    if (s != DTP_OK) {
        dtp_arena_destroy(arena);
        return s;
    }
    *out = b.g;
    return DTP_OK;
}

void solver_graph_destroy(solver_graph *g)
{
    if (g != NULL) {
        dtp_arena_destroy(g->arena);
    }
}
