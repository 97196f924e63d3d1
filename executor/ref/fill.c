/* Reference kernels of the ops that make values from indices and random streams: one value function
 * per op, called for every element of the output. */
#include "core/base/philox.h"
#include "executor/ref/index.h"
#include "executor/ref/kernels.h"

static double iota_value(const dtp_kernel_args *args, const dtp_ref_loop *l)
{
    return (double)dtp_ref__global_index(&args->out[0], l, dtp_call_dim(args->call, "dim"));
}

static double constant_value(const dtp_kernel_args *args, const dtp_ref_loop *l)
{
    (void)l;
    return dtp_call_float(args->call, "value");
}

/* Which random value an element gets: its global index in a stream at a step. */
static double random_value(const dtp_kernel_args *args, const dtp_ref_loop *l, bool is_normal)
{
    uint32_t stream = (uint32_t)dtp_call_int(args->call, "stream");
    uint64_t index = dtp_ref__global_element(&args->out[0], l);
    const dtp_step_record *r = args->record;
    return is_normal ? dtp_normal_at(r->seed, stream, (uint32_t)r->step, index)
                     : dtp_uniform_at(r->seed, stream, (uint32_t)r->step, index);
}

static double dropout_value(const dtp_kernel_args *args, const dtp_ref_loop *l)
{
    const double rate = dtp_call_float(args->call, "rate");
    const bool kept = random_value(args, l, false) >= rate;
    return kept ? dtp_ref__get(&args->in[0], l) / (1.0 - rate) : 0.0;
}

static double uniform_value(const dtp_kernel_args *args, const dtp_ref_loop *l)
{
    const double low = dtp_call_float(args->call, "low");
    return low + (dtp_call_float(args->call, "high") - low) * random_value(args, l, false);
}

static double normal_value(const dtp_kernel_args *args, const dtp_ref_loop *l)
{
    const double mean = dtp_call_float(args->call, "mean");
    return mean + dtp_call_float(args->call, "stddev") * random_value(args, l, true);
}

#define FILL(op)                                                                                   \
    static dtp_status run_##op(const dtp_kernel_args *args, dtp_err *err)                          \
    {                                                                                              \
        (void)err;                                                                                 \
        dtp_ref_loop l = dtp_ref__over(&args->out[0].local);                                       \
        for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {           \
            dtp_ref__set(&args->out[0], &l, op##_value(args, &l));                                 \
        }                                                                                          \
        return DTP_OK;                                                                             \
    }
FILL(iota)
FILL(constant)
FILL(dropout)
FILL(uniform)
FILL(normal)

static dtp_status run_one_hot(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *out = &args->out[0];
    dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    double on = dtp_call_float(args->call, "on"), off = dtp_call_float(args->call, "off");
    const bool refuses = dtp_call_int(args->call, "outside") == 0;
    dtp_ref_loop l = dtp_ref__over(&out->local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        int64_t id;
        if (!refuses) {
            id = dtp_ref__get_int(&args->in[0], &l);
        } else if (!dtp_ref__id(args, 0, &l, DTP_DATA_ID, dtp_ref__global(out, dim), &id)) {
            return DTP_OK;
        }
        dtp_ref__set(out, &l, dtp_ref__global_index(out, &l, dim) == id ? on : off);
    }
    return DTP_OK;
}

const dtp_kernel dtp_ref__fill[] = {
    {.op = "iota", .run = run_iota},       {.op = "constant", .run = run_constant},
    {.op = "fill", .run = run_constant},   {.op = "one_hot", .run = run_one_hot},
    {.op = "dropout", .run = run_dropout}, {.op = "uniform", .run = run_uniform},
    {.op = "normal", .run = run_normal},   {.op = NULL}};
