/* Costs of redistributions of a tensor from some layouts to others. */
#ifndef DTP_PLANNER_PROBLEM_TENSORS_REDISTRIBUTION_COSTS_H
#define DTP_PLANNER_PROBLEM_TENSORS_REDISTRIBUTION_COSTS_H

#include "planner/problem/tensors/tensor_internal.h"

typedef struct move_table {
    int32_t n_from, n_to;
    const dtp_layout **layouts; /* those a move comes from, then those it leads to; borrowed; NULL:
                                   not asked for */
    int64_t *ps;                /* [from * n_to + to]; DTP_FORBIDDEN: there is no move; 0
                                   where not asked for */
} move_table;

/* Same costs: names of dims do not matter. */
bool dtp_tensor__same_sizes(const dtp_ttype *a, const dtp_ttype *b);
/* Of no layouts yet. */
dtp_status dtp_tensor__redistributions_create(int32_t n_from, int32_t n_to, move_table *out,
                                              dtp_err *err) DTP_MUST_CHECK;
void dtp_tensor__redistributions_free(move_table *t);
/* Finds the costs for tensors of a type. */
dtp_status dtp_tensor__redistributions_price(tensor_build *b, const dtp_ttype *type, move_table *t,
                                             dtp_err *err) DTP_MUST_CHECK;

#endif
