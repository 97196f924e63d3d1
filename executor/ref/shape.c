/* Reference kernels of the ops that move elements. */
#include <string.h>

#include "core/graph/ops/sequence.h"
#include "executor/ref/index.h"
#include "executor/ref/kernels.h"

static dtp_status run_broadcast(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        dtp_ref__copy(&args->out[0], &l, &args->in[0], &l);
    }
    return DTP_OK;
}

/* Row-major order is kept, locally as well: a group of dims is split at its outermost dim only. */
static dtp_status run_relabel(const dtp_kernel_args *args, dtp_err *err)
{
    int64_t bytes = dtp_ttype_bytes(&args->out[0].local);
    if (bytes != dtp_ttype_bytes(&args->in[0].local)) {
        return DTP_FAIL(err, DTP_INTERNAL, "relabel of %lld to %lld bytes",
                        (long long)dtp_ttype_bytes(&args->in[0].local), (long long)bytes);
    }
    if (bytes > 0) {
        memmove(args->out[0].data, args->in[0].data, (size_t)bytes);
    }
    return DTP_OK;
}

static dtp_status run_slice(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    int64_t start = dtp_call_int(args->call, "start");
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        dtp_ref_loop from = l;
        dtp_ref__put(&from, dim, dtp_ref__coord(&l, dim) + start);
        dtp_ref__copy(&args->out[0], &l, &args->in[0], &from);
    }
    return DTP_OK;
}

static dtp_status run_pad(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    int64_t before = dtp_call_int(args->call, "before");
    dtp_ref_loop l = dtp_ref__over(&args->in[0].local);
    dtp_ref__clear(&args->out[0]);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        dtp_ref_loop to = l;
        dtp_ref__put(&to, dim, dtp_ref__coord(&l, dim) + before);
        dtp_ref__copy(&args->out[0], &to, &args->in[0], &l);
    }
    return DTP_OK;
}

static dtp_status run_concat(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    int64_t start = 0;
    for (int32_t i = 0; i < args->call->n_in; i++) {
        dtp_ref_loop l = dtp_ref__over(&args->in[i].local);
        for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
            dtp_ref_loop to = l;
            dtp_ref__put(&to, dim, dtp_ref__coord(&l, dim) + start);
            dtp_ref__copy(&args->out[0], &to, &args->in[i], &l);
        }
        start += dtp_ref__local(&args->in[i], dim);
    }
    return DTP_OK;
}

/* The dim is whole here. */
static dtp_status run_roll(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    int64_t n = dtp_ref__local(&args->in[0], dim);
    dtp_ref_loop l = dtp_ref__over(&args->in[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        dtp_ref_loop to = l;
        int64_t at = (dtp_ref__coord(&l, dim) + dtp_call_int(args->call, "shift")) % n;
        dtp_ref__put(&to, dim, at < 0 ? at + n : at);
        dtp_ref__copy(&args->out[0], &to, &args->in[0], &l);
    }
    return DTP_OK;
}

static dtp_status run_reorder(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    bool inverse = dtp_call_int(args->call, "inverse") != 0;
    dtp_sequence order =
        dtp_sequence_make(dtp_ref__local(&args->in[0], dim), dtp_call_int(args->call, "chunks"));
    dtp_ref_loop l = dtp_ref__over(&args->in[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        dtp_ref_loop to = l;
        int64_t at = dtp_ref__coord(&l, dim);
        dtp_ref__put(&to, dim,
                     inverse ? dtp_sequence_position(&order, at) : dtp_sequence_place(&order, at));
        dtp_ref__copy(&args->out[0], &to, &args->in[0], &l);
    }
    return DTP_OK;
}

const dtp_kernel dtp_ref__shape[] = {{"broadcast", run_broadcast}, {"relabel", run_relabel},
                                     {"slice", run_slice},         {"pad", run_pad},
                                     {"concat", run_concat},       {"roll", run_roll},
                                     {"reorder", run_reorder},     {NULL, NULL}};
