/* The tuning constants of the solver in one table: name, default, range, meaning. None of them
 * decides whether a bound or a solution is right; they decide how much is tried and when.
 *
 * A work unit is one read of a matrix entry, the clock that does not depend on the machine. */
#ifndef DTP_PLANNER_SOLVER_PARAMETERS_PARAMETERS_H
#define DTP_PLANNER_SOLVER_PARAMETERS_PARAMETERS_H

#include "core/base/strbuf.h"

/* X(name, default, least, most, meaning) for whole numbers, R likewise for reals. */
/* clang-format off */
#define DTP_SOLVER_PARAMETER_LIST(X, R) \
    X(solve_first_rounds, 20, 0, 1000000, "primal-dual rounds before branch and bound") \
    X(solve_iterations, 400, 1, 100000000, "rounds and nodes of a solve without a limit") \
    X(pbqp_table, 1 << 20, 1, 1 << 28, "entries of a table for a variable of degree 2") \
    X(pbqp_work, 1 << 26, 1, 1 << 30, "work units of one such elimination") \
    X(merge_growth, 4, 0, 10000, "entries a merge may add, per entry of the dependency's matrix") \
    X(merge_entries, 4096, 0, 1 << 28, "entries a merge may add in any case") \
    X(relax_rows, 12, 1, DTP_SOLVER_MAX_RELAX_ROWS, "violated memory rows per LP round") \
    R(relax_excess_cost, 2e4, 1.0, 1e9, "LP cost of excess (cutoff 1000, limit 100)") \
    X(glpk_columns, 250000, 1, 1 << 28, "columns of the largest integer program given to GLPK") \
    X(glpk_nodes, 200000, 1, 1 << 30, "nodes of its branch and bound") \
    X(dual_settle, 20, 0, 100000, "sweeps without multipliers at the start of an ascent") \
    X(dual_evaluate_every, 10, 1, 100000, "rounds between evaluations of the dual bound") \
    X(dual_first_cycle, 1200, 1, 10000000, "rounds from hot to cold, first cycle") \
    X(dual_later_cycle, 500, 1, 10000000, "rounds from reheat to cold, later cycles") \
    R(dual_hot, 1.0, 1e-9, 1e9, "first temperature, in bounds per variable") \
    R(dual_cold, 1e-4, 1e-12, 1e9, "last temperature, in bounds per variable") \
    R(dual_reheat, 0.5, 0.0, 1.0, "where later cycles begin between hot and cold") \
    R(dual_cool, 0.8, 0.0, 1.0, "where the ascent of a part of the problem stays between them") \
    R(dual_large_step, 1.0, 1e-9, 1e3, "first step of the exponentiated gradient") \
    R(dual_small_step, 0.01, 1e-12, 1e3, "last step of the exponentiated gradient") \
    R(dual_first_multipliers, 0.01, 1e-12, 1e3, "first multipliers, share of the bound") \
    R(dual_least_multiplier, 1e-12, 1e-30, 1.0, "least multiplier, in bounds per variable") \
    R(dual_momentum, 0.7, 0.0, 0.999, "share of the old direction in the new one") \
    R(dual_norm_decay, 0.98, 0.0, 1.0, "decay per round of the largest excess") \
    X(split_look_rounds, 8, 1, 100000, "ascent rounds per half of a split that is tried") \
    R(split_close, 0.1, 1e-9, 1e3, "lead that counts as close, share of the room to the cutoff") \
    R(split_least_gain, 1e-3, 0.0, 1.0, "added to the gain of a half, share of the room") \
    R(split_open, 0.5, 0.0, 1.0, "gain below which a half stays open, share of the room") \
    X(branch_max_depth, 150, 1, 2000, "deepest node of branch and bound") \
    X(branch_first_search, 10, 0, 1000000, "primal rounds before the root") \
    X(branch_search, 2, 0, 1000000, "primal rounds at a node") \
    X(branch_search_every, 8, 1, 10000, "depths between primal searches where the dual bounds") \
    X(branch_root_rounds, 1700, 1, 10000000, "ascent rounds at the root") \
    X(branch_rounds, 40, 1, 10000000, "ascent rounds at the other nodes") \
    X(branch_near_depth, 4, 0, 2000, "depth below which nodes are near the root") \
    X(branch_near_splits, 24, 1, 10000, "splits tried near the root") \
    X(branch_splits, 8, 1, 10000, "splits tried elsewhere") \
    X(branch_shrink_percent, 80, 0, 100, "a node is solved again if less than this share is left") \
    X(dive_rounds, 20, 1, 1000000, "ascent rounds after a step of a dive") \
    R(dive_share, 0.15, 1e-6, 1.0, "share of the variables fixed by a step") \
    X(dive_retreats, 5, 1, 1000, "retreats, each to half the share") \
    X(dive_steps, 200, 1, 100000, "steps of a dive") \
    X(epoch_search, 10, 1, 1000000, "most primal rounds between exchanges with the dual") \
    X(epoch_ascent, 200, 1, 10000000, "ascent rounds meanwhile") \
    X(epoch_large, 1000000, 0, 1 << 30, "kernel that an ascent alone shrinks by a known solution") \
    X(epoch_first, 20, 1, 10000000, "rounds of that ascent") \
    X(epoch_small_kernel, 32, 1, 1000000, "the loop goes on below one such part of the kernel") \
    X(epoch_patience, 6, 1, 1000000, "epochs without a gain before the loop ends") \
    X(epoch_gain, 100, 1, 1000000, "a gain closes more than one such part of the gap") \
    X(epoch_small_gap, 33, 1, 1000000, "the primal restarts below one such part of the cost") \
    X(dive_first, 800, 0, 100000000, "ascent rounds before the first dive") \
    X(dive_next, 200, 0, 100000000, "ascent rounds after a dive that found a better solution") \
    X(dive_later, 800, 0, 100000000, "ascent rounds after any other dive") \
    X(lns_first_size, 60, 1, 100000000, "variables of the first neighbourhoods") \
    X(lns_least_size, 10, 1, 100000000, "least variables of a neighbourhood") \
    X(lns_sources, 3, 1, 10000, "most variables that a neighbourhood grows around") \
    X(lns_nodes, 8, 1, 100000000, "nodes of branch and bound per neighbourhood") \
    X(lns_easy_nodes, 2, 0, 100000000, "nodes up to which the next neighbourhood is larger") \
    X(lns_growth, 16, 1, 1000000, "larger by one such part") \
    X(lns_shrink, 8, 1, 1000000, "smaller by one such part") \
    X(lns_patience, 150, 1, 100000000, "rounds without a gain before the search ends") \
    R(lns_gain, 0.002, 0.0, 1.0, "what counts as a gain, share of the gap") \
    X(primal_round_passes, 50, 1, 1000000, "passes over the kernel per primal round") \
    X(primal_subgradient_patience, 400, 1, 100000000, "subgradient steps without a gain") \
    X(primal_perturbation_patience, 500, 1, 100000000, "passes of perturbations without a gain") \
    X(perturbation_small, 20, 1, 100000000, "variables that adapt to a perturbation: small") \
    X(perturbation_medium, 60, 1, 100000000, "... medium") \
    X(perturbation_large, 200, 1, 100000000, "... large") \
    X(subgradient_free_steps, 30, 0, 100000000, "message passes before the first multipliers") \
    R(subgradient_first_step, 0.1, 1e-12, 1e6, "first step, as penalised cost per cost") \
    R(subgradient_warm_step, 0.3, 1e-12, 1e6, "first step with multipliers, share of the largest") \
    R(subgradient_memory, 0.9, 0.0, 0.999, "share of the old direction in the new one") \
    R(subgradient_shrink, 0.5, 1e-6, 1.0, "factor of the step when the limit is crossed") \
    X(subgradient_calm, 5, 0, 1000000, "steps on one side of the limit before the step grows") \
    R(subgradient_growth_above, 1.02, 1.0, 10.0, "growth of the step above the limit") \
    R(subgradient_growth_below, 1.01, 1.0, 10.0, "growth of the step below the limit") \
    X(multipliers_work, 500000000, 1, 2000000000, "work units of an ascent for shadow prices") \
    X(multipliers_rounds, 400, 1, 10000000, "least rounds of that ascent") \
    X(explain_work, 20000000, 1, 2000000000, "work units of an ascent for explain") \
    X(explain_rounds, 100, 1, 1000000, "most rounds of that ascent") \
    X(explain_least_rounds, 8, 1, 1000000, "... and least")
/* clang-format on */

enum { DTP_SOLVER_MAX_RELAX_ROWS = 256 };

typedef struct dtp_solver_parameters {
#define DTP_SOLVER_WHOLE(name, value, least, most, meaning) int32_t name;
#define DTP_SOLVER_REAL(name, value, least, most, meaning) double name;
    DTP_SOLVER_PARAMETER_LIST(DTP_SOLVER_WHOLE, DTP_SOLVER_REAL)
#undef DTP_SOLVER_WHOLE
#undef DTP_SOLVER_REAL
} dtp_solver_parameters;

/* The defaults; lives for ever. */
const dtp_solver_parameters *dtp_solver_parameters_default(void);

/* "NAME=VALUE". DTP_INVALID for an unknown name, a value that is no number of its kind, or one out
 * of range. */
dtp_status dtp_solver_parameters_set(dtp_solver_parameters *p, const char *text,
                                     dtp_err *err) DTP_MUST_CHECK;

/* The table with the values of p. */
void dtp_solver_parameters_print(const dtp_solver_parameters *p, dtp_strbuf *out);

#endif
