/* Reference kernels of the ops that make values from indices and random streams. */
#include <string.h>

#include "core/base/philox.h"
#include "executor/ref/index.h"
#include "executor/ref/kernels.h"

static dtp_status run_iota(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *out = &args->out[0];
    dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    dtp_ref_loop l = dtp_ref__over(&out->local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        dtp_ref__set(out, &l, (double)dtp_ref__global_index(out, &l, dim));
    }
    return DTP_OK;
}

static dtp_status run_constant(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        dtp_ref__set(&args->out[0], &l, dtp_call_float(args->call, "value"));
    }
    return DTP_OK;
}

static dtp_status run_one_hot(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *out = &args->out[0];
    dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    double on = dtp_call_float(args->call, "on"), off = dtp_call_float(args->call, "off");
    dtp_ref_loop l = dtp_ref__over(&out->local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        int64_t id;
        DTP_TRY(dtp_ref__id(&args->in[0], &l, "id", dtp_ref__global(out, dim), &id, err));
        dtp_ref__set(out, &l, dtp_ref__global_index(out, &l, dim) == id ? on : off);
    }
    return DTP_OK;
}

/* Which random value an element gets: its global index in a stream at a step. */
static double random_value(const dtp_kernel_args *args, const dtp_ref_loop *l, bool is_normal)
{
    uint32_t stream = (uint32_t)dtp_call_int(args->call, "stream");
    uint64_t index = dtp_ref__global_element(&args->out[0], l);
    return is_normal ? dtp_normal_at(args->seed, stream, (uint32_t)args->step, index)
                     : dtp_uniform_at(args->seed, stream, (uint32_t)args->step, index);
}

static dtp_status run_dropout(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    double rate = dtp_call_float(args->call, "rate");
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        bool kept = random_value(args, &l, false) >= rate;
        double x = dtp_ref__get(&args->in[0], &l);
        dtp_ref__set(&args->out[0], &l, kept ? x / (1.0 - rate) : 0.0);
    }
    return DTP_OK;
}

static dtp_status run_uniform(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    double low = dtp_call_float(args->call, "low"), high = dtp_call_float(args->call, "high");
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        dtp_ref__set(&args->out[0], &l, low + (high - low) * random_value(args, &l, false));
    }
    return DTP_OK;
}

static dtp_status run_normal(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    double mean = dtp_call_float(args->call, "mean"), dev = dtp_call_float(args->call, "stddev");
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        dtp_ref__set(&args->out[0], &l, mean + dev * random_value(args, &l, true));
    }
    return DTP_OK;
}

const dtp_kernel dtp_ref__fill[] = {{"iota", run_iota},       {"constant", run_constant},
                                    {"fill", run_constant},   {"one_hot", run_one_hot},
                                    {"dropout", run_dropout}, {"uniform", run_uniform},
                                    {"normal", run_normal},   {NULL, NULL}};
