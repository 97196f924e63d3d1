/* Reference kernels of the ops that move elements. */
#include <string.h>

#include "core/graph/ops/sequence.h"
#include "executor/ref/index.h"
#include "executor/ref/kernels.h"

/* Every element of dst is the one of src at the same coordinates; also permute. */
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

static dtp_status run_stack(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        dtp_ref__copy(&args->out[0], &l, &args->in[dtp_ref__coord(&l, dim)], &l);
    }
    return DTP_OK;
}

/* The index in y of element `at` of an operand along the dim of the call, both in the whole tensor;
 * n is the size of the operand, `before` that of the operands before it. */
typedef int64_t (*place_fn)(const dtp_op_call *call, int64_t at, int64_t n, int64_t before);

/* Every element of every operand goes to its place in the output, if it has one here. An operand of
 * roll may have elements that go on behind the end of the dim at its start. */
static dtp_status copy_to_places(const dtp_kernel_args *args, place_fn place)
{
    const dtp_view *dst = &args->out[0];
    const dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    int64_t before = 0;
    for (int32_t i = 0; i < args->call->n_in; i++) {
        const dtp_view *src = &args->in[i];
        const int64_t n = dtp_ref__global(src, dim);
        dtp_ref_loop l = dtp_ref__over(&src->local);
        for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
            dtp_ref_loop to = l;
            const int64_t at = (dtp_ref__offset(src, dim) + dtp_ref__coord(&l, dim)) % n;
            const int64_t here = place(args->call, at, n, before) - dtp_ref__offset(dst, dim);
            if (here >= 0 && here < dtp_ref__local(dst, dim)) {
                dtp_ref__put(&to, dim, here);
                dtp_ref__copy(dst, &to, src, &l);
            }
        }
        before += n;
    }
    return DTP_OK;
}

static int64_t slice_place(const dtp_op_call *call, int64_t at, int64_t n, int64_t before)
{
    (void)n, (void)before;
    return at - dtp_call_int(call, "start");
}

static int64_t pad_place(const dtp_op_call *call, int64_t at, int64_t n, int64_t before)
{
    (void)n, (void)before;
    return at + dtp_call_int(call, "before");
}

static int64_t concat_place(const dtp_op_call *call, int64_t at, int64_t n, int64_t before)
{
    (void)call, (void)n;
    return at + before;
}

static int64_t roll_place(const dtp_op_call *call, int64_t at, int64_t n, int64_t before)
{
    (void)before;
    int64_t to = (at + dtp_call_int(call, "shift")) % n;
    return to < 0 ? to + n : to;
}

static int64_t reorder_place(const dtp_op_call *call, int64_t at, int64_t n, int64_t before)
{
    (void)before;
    dtp_sequence order = dtp_sequence_make(n, dtp_call_int(call, "chunks"));
    return dtp_call_int(call, "inverse") != 0 ? dtp_sequence_position(&order, at)
                                              : dtp_sequence_place(&order, at);
}

static dtp_status run_pad(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_ref__clear(&args->out[0]);
    return copy_to_places(args, pad_place);
}

#define PLACED(op)                                                                                 \
    static dtp_status run_##op(const dtp_kernel_args *args, dtp_err *err)                          \
    {                                                                                              \
        (void)err;                                                                                 \
        return copy_to_places(args, op##_place);                                                   \
    }
PLACED(slice)
PLACED(concat)
PLACED(roll)
PLACED(reorder)

const dtp_kernel dtp_ref__shape[] = {
    {.op = "broadcast", .run = run_broadcast}, {.op = "permute", .run = run_broadcast},
    {.op = "relabel", .run = run_relabel},     {.op = "stack", .run = run_stack},
    {.op = "slice", .run = run_slice},         {.op = "pad", .run = run_pad},
    {.op = "concat", .run = run_concat},       {.op = "roll", .run = run_roll},
    {.op = "reorder", .run = run_reorder},     {.op = NULL}};
