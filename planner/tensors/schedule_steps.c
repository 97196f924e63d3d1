/* Plans of nearly one sum of prices may differ by several percent in their timelines: what is sent
 * earlier or later, or one tensor in place of another, costs the same and is hidden or is not. So
 * single decisions are tried on the timeline itself, while the sum stays near the least one.
 * Those come first that move most communication for what they cost: what the edges of the decision
 * cost more, and what they cost less. */
#include <inttypes.h>
#include <stdlib.h>

#include "cost_models/predict.h"
#include "planner/problem/adjacency.h"
#include "planner/tensors/plan_tensor_internal.h"

/* Of the work: programs that are lowered, and instructions in them; rounds over all decisions. */
enum { MAX_TRIALS = 100, MAX_INSTRS = 300000, MAX_ROUNDS = 4 };

typedef struct move {
    int32_t assignment, option;
    int64_t sum;   /* change of the sum of prices */
    int64_t moved; /* changes of edges, up or down, less the change of the sum */
} move;

typedef struct move_search {
    dtp_planning *p;
    const dtp_tensor_problem *problem;
    const dtp_problem *s;
    solver_adjacency at;
    int32_t *assignment; /* p->near */
    int32_t n_moves, cap_moves;
    move *moves;
    int32_t trials;
    int64_t instrs;
} move_search;

/* ---- moves --------------------------------------------------------------------------------------
 */

static int64_t edge_price(const dtp_problem *s, int32_t e, const int32_t *assignment, int32_t node,
                          int32_t option)
{
    const int32_t a = s->edge_a[e], b = s->edge_b[e];
    const int64_t row = a == node ? option : assignment[a],
                  column = b == node ? option : assignment[b];
    return s->edge_cost[s->edge_first[e] + row * dtp_problem_n_strategies(s, b) + column];
}

/* What another option of one assignment changes; false when it is forbidden beside the others,
 * changes no communication, or makes the sum more than near the least one. */
static bool price_move(const move_search *m, int32_t assignment, int32_t option, move *out)
{
    const dtp_problem *s = m->s;
    const int64_t *cost = s->cost + s->first[assignment];
    int64_t was = cost[m->assignment[assignment]], is = cost[option], moved = 0;
    for (int32_t i = m->at.first[assignment]; i < m->at.first[assignment + 1]; i++) {
        const int32_t e = m->at.edge[i];
        const int64_t before =
            edge_price(s, e, m->assignment, assignment, m->assignment[assignment]);
        const int64_t after = edge_price(s, e, m->assignment, assignment, option);
        was = dtp_problem_add_cost(was, before);
        is = dtp_problem_add_cost(is, after);
        moved = dtp_problem_add_cost(moved, after > before ? after - before : before - after);
    }
    *out = (move){assignment, option, is - was, moved - (is - was)};
    return option != m->assignment[assignment] && is < DTP_FORBIDDEN && moved > 0 &&
           m->p->near.cost_ps + out->sum <= dtp_planning_near_least(m->p);
}

static int most_moved_first(const void *x, const void *y)
{
    const move *a = x, *b = y;
    if (a->moved != b->moved) {
        return a->moved > b->moved ? -1 : 1;
    }
    return a->assignment != b->assignment ? (a->assignment < b->assignment ? -1 : 1)
                                          : a->option - b->option;
}

static dtp_status find_moves(move_search *m, dtp_arena *arena, dtp_err *err)
{
    m->n_moves = 0;
    for (int32_t i = 0; i < m->s->n_nodes; i++) {
        for (int32_t o = 0; o < dtp_problem_n_strategies(m->s, i); o++) {
            move next;
            if (price_move(m, i, o, &next)) {
                DTP_TRY(dtp_arena_grow(arena, &m->moves, m->n_moves, m->n_moves + 1, &m->cap_moves,
                                       sizeof *m->moves, err));
                m->moves[m->n_moves++] = next;
            }
        }
    }
    if (m->n_moves > 0) {
        qsort(m->moves, (size_t)m->n_moves, sizeof *m->moves, most_moved_first);
    }
    return DTP_OK;
}

/* ---- trials -------------------------------------------------------------------------------------
 */

/* What is predicted of m->assignment, whether it fits or not, but for the memory. */
static dtp_status predict(move_search *m, dtp_arena *arena, dtp_prediction *out, dtp_err *err)
{
    dtp_program *program = NULL;
    dtp_sharding sharding;
    dtp_lower_options options = dtp_lower_options_init(dtp_tensor_redistributor(m->problem));
    options.unplaced = true;
    DTP_TRY(dtp_tensor_sharding(m->problem, m->assignment, arena, &sharding, err));
    DTP_TRY(dtp_lower(m->p->graph, &sharding, &options, &program, err));
    const dtp_status s = dtp_predict(&m->p->pricer, program, out, err);
    m->trials++;
    m->instrs += program->n_instrs;
    dtp_program_destroy(program);
    return s;
}

/* Offers m->assignment, whose sum of prices differs by `sum` from that of p->near, when its
 * timeline makes it better; *better: it took its place. */
static dtp_status try_assignment(move_search *m, int64_t sum, bool *better, dtp_err *err)
{
    const double before_s = dtp_planning_time(&m->p->near);
    dtp_candidate c = {.cost_ps = m->p->near.cost_ps + sum};
    dtp_tensor_round r = {0};
    dtp_arena *arena = dtp_arena_create();
    *better = false;
    if (arena == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a timeline");
    }
    dtp_status status = predict(m, arena, &c.predicted, err);
    dtp_arena_destroy(arena);
    if (status == DTP_OK && dtp_planning_time(&c) < before_s) {
        status = dtp_tensor__offer(m->p, m->assignment, &r, err);
        *better = dtp_planning_time(&m->p->near) < before_s;
    }
    return status;
}

static bool work_left(const move_search *m)
{
    return m->trials < MAX_TRIALS && m->instrs < MAX_INSTRS;
}

/* All moves once; *better: some were kept. */
static dtp_status try_moves(move_search *m, bool *better, dtp_err *err)
{
    *better = false;
    for (int32_t i = 0; i < m->n_moves && work_left(m); i++) {
        const move *tried = &m->moves[i];
        const int32_t was = m->assignment[tried->assignment];
        bool kept = false;
        move now;
        if (price_move(m, tried->assignment, tried->option, &now)) {
            m->assignment[tried->assignment] = tried->option;
            DTP_TRY(try_assignment(m, now.sum, &kept, err));
            m->assignment[tried->assignment] = kept ? tried->option : was;
        }
        *better = *better || kept;
    }
    return DTP_OK;
}

static dtp_status improve(move_search *m, dtp_arena *arena, dtp_err *err)
{
    bool better = true;
    for (int32_t i = 0; i < MAX_ROUNDS && better && work_left(m); i++) {
        DTP_TRY(find_moves(m, arena, err));
        DTP_TRY(try_moves(m, &better, err));
    }
    return DTP_OK;
}

dtp_status dtp_tensor__improve_schedule(dtp_planning *p, dtp_err *err)
{
    const tensor_state *state = p->state;
    move_search m = {.p = p, .problem = state->problem, .s = state->problem->select};
    const int32_t *start = NULL;
    DTP_TRY(dtp_tensor__start_from(p, &p->near, &start, err));
    if (start == NULL) {
        return DTP_OK;
    }
    const double before_s = p->near.predicted.step_time_s;
    m.assignment = state->start; /* start */
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = arena == NULL ? DTP_FAIL(err, DTP_NOMEM, "out of memory for moves")
                                 : solver_adjacency_create(m.s, &m.at, err);
    s = s == DTP_OK ? improve(&m, arena, err) : s;
    solver_adjacency_destroy(&m.at);
    dtp_arena_destroy(arena);
    dtp_log(p->request->ctx, DTP_LOG_INFO, "planner", "moved",
            "trials=%" PRId32 " step_s=%g before_s=%g cost=%" PRId64, m.trials,
            p->near.predicted.step_time_s, before_s, p->near.cost_ps);
    return s;
}
