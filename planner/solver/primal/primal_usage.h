/* Usage by row in a segment tree: adding to a range of rows and the largest of a range, each in
 * O(log rows). */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_USAGE_H
#define DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_USAGE_H

#include "core/base/status.h"

typedef struct solver_usage {
    int32_t n_rows, leaves; /* leaf of row r: leaves + r + 1; the ends are sentinels */
    int64_t *most, *added;  /* largest below and at a tree variable; added to all below it */
} solver_usage;

dtp_status solver_usage_create(int32_t n_rows, const int64_t *start, solver_usage *out,
                               dtp_err *err) DTP_MUST_CHECK;
void solver_usage_destroy(solver_usage *u);

void solver_usage_set(solver_usage *u, const int64_t *rows);
/* Rows first..last - 1, first < last. */
void solver_usage_add(solver_usage *u, int32_t first, int32_t last, int64_t amount);
int64_t solver_usage_max(const solver_usage *u, int32_t first, int32_t last);
/* Over all rows; INT64_MIN / 4 without rows. */
int64_t solver_usage_peak(const solver_usage *u);
/* Every row. */
void solver_usage_read(const solver_usage *u, int64_t *rows);

#endif
