/* GEMM times from measured points.
 *
 * The distinct m, n, k and batches of the points of an arithmetic span its grid. Per transposition
 * variant, log t (without launch) at a node comes from the point there, or, where none was
 * measured, from the rate of the measured node nearest in the logs of the four sizes. Then no node
 * may cost more than a larger one: a running minimum from large to small sizes. (Disturbances
 * only ever make a measurement slower, and a small product can be computed as part of a larger
 * one.) Between nodes log t is linear in the logs of the sizes, below the grid constant, above it
 * proportional. A time interpolated this way is continuous and never descends when a size grows;
 * the same is not true of an interpolated rate.
 */
#ifndef DTP_COST_MODELS_GEMM_H
#define DTP_COST_MODELS_GEMM_H

#include "cost_models/machine/machine.h"

/* Largest number of distinct values of m, n or k of an arithmetic, and of its batches. */
enum { DTP_GEMM_MAX_AXIS = 24, DTP_GEMM_MAX_BATCHES = 4 };

/* Builds the grids in m->arena from m->gemm (checked before: positive sizes and rates) and sets
 * m->gemm_grid and m->gemm_fit_error. DTP_RANGE when an axis has too many values, DTP_NOMEM. */
dtp_status dtp_gemm_grid_build(dtp_machine *m, dtp_err *err) DTP_MUST_CHECK;

/* Whether products of this arithmetic were measured. */
bool dtp_gemm_grid_has(const dtp_gemm_grid *grid, dtp_arithmetic arithmetic);

/* Seconds without launch of a call with `batch` (at least 1) products (m x k) . (k x n) in an
 * arithmetic that was measured. Variants that were not are priced as the first that was. */
double dtp_gemm_grid_time(const dtp_gemm_grid *grid, dtp_arithmetic arithmetic,
                          const dtp_work *work);

#endif
