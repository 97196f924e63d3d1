/* What tying can cost: the certificate's bound of the problem in which every instance of a
 * repeated block decides for itself. */
#include "planner/tensors/tying_bound.h"

#include "planner/solver/dual_bound.h"

enum { MAX_ROUNDS = 40, TIED_ROUNDS = 20, MULTIPLIER_ROUNDS = 400, LEAST_MULTIPLIER_ROUNDS = 60 };

/* Work units of an ascent over all instances, about, and of one for multipliers. */
static const int64_t MOST_ENTRIES = 4000000000, MULTIPLIER_ENTRIES = 1000000000;
/* Edge entries of the tied problem above which a bound is good enough that is NEAR. */
static const int64_t LARGE = 2000000;
static const double NEAR = 0.005;
/* A distance between cost and bound of the tied problem, as a share, that needs no multipliers of
 * the limit. */
static const double CLOSE = 5e-4;
/* A distance between cost and bound, as a share, that is worth all rounds for the multipliers. */
static const double MUCH = 0.009;

bool dtp_tensor_is_tied(const dtp_tensor_problem *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_variables; i++) {
        n += p->variables[i].kind == DTP_DECIDE_OP ? 1 : 0;
    }
    return n < p->graph->n_nodes;
}

/* A round reads every edge twice. */
static int64_t affordable_rounds(const dtp_problem *p, int64_t entries, int64_t least, int64_t most)
{
    const int64_t rounds = entries / (2 * dtp_problem_n_entries(p) + 1);
    return rounds < least ? least : rounds > most ? most : rounds;
}

static dtp_status bound_untied(const dtp_tensor_problem *p, const dtp_tensor_problem *tied,
                               int64_t cost, int64_t enough, dtp_arena *arena, int64_t *bound,
                               dtp_err *err)
{
    const int64_t rounds = affordable_rounds(p->select, MOST_ENTRIES, 1, MAX_ROUNDS);
    int32_t *variable = dtp_arena_alloc(arena, (size_t)p->n_variables, sizeof *variable);
    const dtp_dual_start none = {0};
    dtp_dual_start start = {
        .tied = tied->select, .variable = variable, .enough = enough, .stop = p->options.stop};
    dtp_memory_multiplier *multipliers = NULL;
    DTP_TRY(DTP_MEMORY(err, variable));
    /* The variable of `tied` that decides with others for a variable of p, by variable of p. */
    for (dtp_node_id id = 0; id < p->graph->n_nodes; id++) {
        variable[p->variable_of_node[id]] = tied->variable_of_node[id];
    }
    for (dtp_tensor_id t = 0; t < p->graph->n_tensors; t++) {
        if (p->variable_of_tensor[t] >= 0) {
            variable[p->variable_of_tensor[t]] = tied->variable_of_tensor[t];
        }
        for (int phase = 0; phase < DTP_N_PHASES; phase++) {
            if (p->variable_of_replica[phase][t] >= 0) {
                variable[p->variable_of_replica[phase][t]] = tied->variable_of_replica[phase][t];
            }
        }
    }
    if (enough == 0 && dtp_problem_n_entries(tied->select) > LARGE) {
        start.enough = (int64_t)((1.0 - NEAR) * (double)cost);
    }
    if (tied->options.memory_bytes > 0) {
        DTP_TRY(dtp_dual_bound(tied->select, &none, TIED_ROUNDS, bound, err));
    }
    if (tied->options.memory_bytes == 0 || (double)(cost - *bound) <= CLOSE * (double)cost) {
        return dtp_dual_bound(p->select, &start, rounds, bound, err);
    }
    /* Few rounds for the multipliers of a large problem, unless that leaves much. */
    for (int64_t some = affordable_rounds(tied->select, MULTIPLIER_ENTRIES, LEAST_MULTIPLIER_ROUNDS,
                                          MULTIPLIER_ROUNDS);
         ; some = MULTIPLIER_ROUNDS) {
        DTP_TRY(dtp_memory_multipliers(tied->select, some, arena, &start.n_multipliers,
                                       &multipliers, err));
        start.multipliers = multipliers;
        DTP_TRY(dtp_dual_bound(p->select, &start, rounds, bound, err));
        if (some == MULTIPLIER_ROUNDS || (double)(cost - *bound) <= MUCH * (double)cost) {
            return DTP_OK;
        }
    }
}

dtp_status dtp_tying_bound_find(const dtp_tensor_problem *p, int64_t cost, int64_t enough,
                                int64_t *bound, dtp_err *err)
{
    dtp_tensor_options options = p->options;
    dtp_tensor_problem *untied = NULL;
    dtp_arena *arena = dtp_arena_create();
    options.runs = 0;
    options.memory_bytes = options.memory_bytes > 0 ? p->select->usage_limit : 0;
    dtp_status s = arena != NULL
                       ? dtp_tensor_problem_create(p->graph, p->pricer, &options, &untied, err)
                       : DTP_FAIL(err, DTP_NOMEM, "out of memory for a bound");
    s = s == DTP_OK ? bound_untied(untied, p, cost, enough, arena, bound, err) : s;
    dtp_tensor_problem_destroy(untied);
    dtp_arena_destroy(arena);
    return s;
}
