/* What PyTorch compares strategies by. */
#include "tests/support/torch_price.h"

#include <math.h>

#include "interop/redistribute_torch.h"

double torch_price(const dtp_torch_cost *cost, bool min_cost, const dtp_mesh *mesh,
                   const dtp_ttype *type, const dtp_layout *from, const dtp_layout *to)
{
    dtp_torch_cost c = cost != NULL ? *cost : dtp_torch_cost_init();
    dtp_torch_planner planner = {.options = {.min_cost = min_cost,
                                             .no_merge = true,
                                             .price = dtp_torch_step_price,
                                             .price_user = &c}};
    dtp_redistributor r = dtp_torch_redistributor(&planner);
    dtp_steps steps;
    dtp_layout at = *from;
    double sum = 0;
    if (dtp_redistribute_by(&r, mesh, type, from, to, &steps, NULL) != DTP_OK) {
        return (double)INFINITY;
    }
    for (int32_t i = 0; i < steps.n; i++) {
        sum += dtp_torch_step_price(&c, mesh, type, &at, &steps.steps[i]);
        at = steps.steps[i].after;
    }
    return sum;
}
