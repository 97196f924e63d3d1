/* Evaluation and fitting of measured curves (dtp_curve of cost_models/machine/machine.h).
 *
 * A curve through points (x_i, y_i) is linear in (log x, log y) between neighbours, constant below
 * x_0 and proportional to x above x_{n-1}. With y not descending it is continuous and monotone
 * everywhere, and a cost never grows slower than its bytes beyond what was measured.
 */
#ifndef DTP_COST_MODELS_CURVE_H
#define DTP_COST_MODELS_CURVE_H

#include "cost_models/machine/machine.h"

/* Value at x >= 0; the curve has at least one point. */
double dtp_curve_at(const dtp_curve *curve, double x);

/* The monotone curve with the least sum of |log measured - log fitted| (isotonic regression by
 * pooling adjacent violators with medians, so that a disturbed sample does not pull its neighbours
 * along) over n >= 1 positive samples in any order; samples of equal x are averaged first. Points
 * in the arena. DTP_NOMEM. */
dtp_status dtp_curve_from_samples(dtp_arena *arena, int32_t n, const double *x, const double *y,
                                  dtp_curve *out, dtp_err *err) DTP_MUST_CHECK;

#endif
