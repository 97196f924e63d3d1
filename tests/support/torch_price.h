/* What PyTorch compares strategies by. */
#ifndef DTP_TESTS_SUPPORT_TORCH_PRICE_H
#define DTP_TESTS_SUPPORT_TORCH_PRICE_H

#include "interop/torch_cost.h"

/* Seconds of a whole redistribution as PyTorch compares strategies: its transforms one by one,
 * without merging. Infinite for a pair that has no meaning. */
double torch_price(const dtp_torch_cost *cost, bool min_cost, const dtp_mesh *mesh,
                   const dtp_ttype *type, const dtp_layout *from, const dtp_layout *to);

#endif
