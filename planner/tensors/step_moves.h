/* Changes of an assignment of a selection problem, for a search by simulation. */
#ifndef DTP_PLANNER_TENSORS_STEP_MOVES_H
#define DTP_PLANNER_TENSORS_STEP_MOVES_H

#include "planner/problem/problem.h"

enum { DTP_STEP_MOVE_VARIABLES = 24 };

/* One variable takes another strategy, and those around it follow. */
typedef struct dtp_step_move {
    int64_t more; /* what it costs more */
    int32_t n, variable[DTP_STEP_MOVE_VARIABLES], strategy[DTP_STEP_MOVE_VARIABLES];
} dtp_step_move;

typedef struct dtp_step_moves {
    int32_t n;
    dtp_step_move *items; /* the cheapest first */
} dtp_step_moves;

/* Where two assignments differ, in groups that no edge joins: group[v] is the group of variable v,
 * -1 where they agree. */
dtp_status dtp_step_groups(const dtp_problem *p, const int32_t *a, const int32_t *b, int32_t *group,
                           int32_t *n, dtp_err *err) DTP_MUST_CHECK;

/* For every strategy that a variable does not have in `assignment`: the variable takes it, its
 * neighbours take their cheapest strategies, then theirs, as long as any changes. Those that are
 * forbidden, or change too many variables, are left out. A limited amount of work. Free with
 * dtp_step_moves_free unless it failed. */
dtp_status dtp_step_moves_find(const dtp_problem *p, const int32_t *assignment, dtp_step_moves *out,
                               dtp_err *err) DTP_MUST_CHECK;
void dtp_step_moves_free(dtp_step_moves *moves);

#endif
