/* Usage by row in a segment tree: adding to a range of rows and the largest of a range, each in
 * O(log rows). */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_USAGE_H
#define DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_USAGE_H

#include "core/base/status.h"

typedef struct sel_usage {
    int32_t n_rows, leaves; /* leaf of row r: leaves + r + 1; the ends are sentinels */
    int64_t *most, *added;  /* largest below and at a tree node; added to all below it */
} sel_usage;

dtp_status sel_usage_create(int32_t n_rows, const int64_t *start, sel_usage *out,
                            dtp_err *err) DTP_MUST_CHECK;
void sel_usage_destroy(sel_usage *u);

void sel_usage_set(sel_usage *u, const int64_t *rows);
/* Rows first..last - 1, first < last. */
void sel_usage_add(sel_usage *u, int32_t first, int32_t last, int64_t amount);
int64_t sel_usage_max(const sel_usage *u, int32_t first, int32_t last);
/* Over all rows; INT64_MIN / 4 without rows. */
int64_t sel_usage_peak(const sel_usage *u);
/* Every row. */
void sel_usage_read(const sel_usage *u, int64_t *rows);

#endif
