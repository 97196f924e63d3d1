/* Prices of instructions (docs/cost-model.md). One function prices everything; the ILP, the
 * additive prediction (cost_models/predict.h) and the timeline all call it. */
#ifndef DTP_COST_MODELS_PRICE_H
#define DTP_COST_MODELS_PRICE_H

#include "core/plan/plan.h"
#include "cost_models/machine/coll.h"

/* How mesh dims lie on the network levels, and what follows from it. Plain data; borrows the
 * machine and target. */
typedef struct dtp_pricer {
    const dtp_machine *machine;
    const dtp_target *target; /* what programs that are made to be priced are for */
    dtp_mesh mesh;
    dtp_group_shape groups[1 << DTP_MAX_MESH_DIMS]; /* by mesh set */
    bool of_bounds; /* prices that no program is below: copies cost nothing, and updates share their
                       launches where the target joins them */
    double skew;    /* share of compute in which the ranks of the mesh wait for the slowest */
    const struct dtp_stop *stop; /* once it has fired, predictions leave out what only makes a
                                    program faster: another order, buckets; NULL: never */
} dtp_pricer;

/* Row-major mapping: the last mesh dim is innermost. DTP_INVALID when the machine has fewer devices
 * than the mesh (a machine without levels has one device). */
dtp_status dtp_pricer_init(const dtp_machine *machine, const dtp_mesh *mesh,
                           const dtp_target *target, dtp_pricer *out, dtp_err *err) DTP_MUST_CHECK;

/* Whether collectives go on beside kernels: machine and target say so. */
static inline bool dtp_pricer_overlaps(const dtp_pricer *pricer)
{
    return pricer->machine->overlap && pricer->target->asynchronous;
}

/* Whether collectives over the set have the lane of those across hosts (cost_models/timeline.h),
 * and how many lanes those of the mesh have: 1 or 2. */
static inline bool dtp_pricer_is_far(const dtp_pricer *pricer, dtp_mesh_set set)
{
    return pricer->target->streams && pricer->groups[set].outer > 0;
}
int32_t dtp_pricer_lanes(const dtp_pricer *pricer);

/* Seconds that one instruction takes on the slowest rank (rank 0 has the largest shards); without
 * its launch where it is joined. */
double dtp_price_instr(const dtp_pricer *pricer, const dtp_program *p, const dtp_instr *instr);
/* What such a price of a kernel or copy consists of, added to `parts`. */
void dtp_price_parts(const dtp_pricer *pricer, const dtp_program *p, const dtp_instr *instr,
                     double times, double parts[DTP_N_COMPUTE_PARTS]);
/* The parts of it. Rates are those of the op, else of the one that its row names (dtp_op_rates),
 * else those of all other ops. */
double dtp_price_work(const dtp_machine *machine, const dtp_op_def *op, dtp_arithmetic arithmetic,
                      const dtp_work *work);
double dtp_price_coll(const dtp_pricer *pricer, const dtp_coll *coll);
/* The two parts of it. */
dtp_coll_time dtp_price_coll_parts(const dtp_pricer *pricer, const dtp_coll *coll);
/* Bytes S that collectives are priced by: the all-reduce buffer, the all-gather result, the
 * reduce-scatter input, one rank's all-to-all or permuted buffer. */
double dtp_coll_full_bytes(dtp_coll_kind kind, int64_t count, dtp_dtype dtype, int32_t ranks);
/* bytes: read plus written. */
double dtp_price_move(const dtp_machine *machine, dtp_copy_kind kind, double bytes);

/* Seconds to integer picoseconds, rounded to nearest; below the limit of
 * cost_models/price_limit.h. */
int64_t dtp_picoseconds(double seconds);

#endif
