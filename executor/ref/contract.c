/* Reference kernels of einsum and reduce. */
#include <math.h>
#include <string.h>

#include "executor/ref/index.h"
#include "executor/ref/kernels.h"

static dtp_status run_einsum(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    int64_t stride[DTP_MAX_OP_IN][DTP_MAX_OP_DIMS];
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    int32_t kept = l.n;
    for (int32_t i = 0; i < args->call->n_in; i++) {
        dtp_ref__add(&l, &args->in[i].local);
    }
    for (int32_t i = 0; i < args->call->n_in; i++) {
        dtp_ref__strides(&args->in[i], &l, stride[i]);
    }
    for (bool go = dtp_ref__first(&l, 0, kept); go; go = dtp_ref__next(&l, 0, kept)) {
        double sum = 0.0;
        for (bool in = dtp_ref__first(&l, kept, l.n); in; in = dtp_ref__next(&l, kept, l.n)) {
            double product = 1.0;
            for (int32_t i = 0; i < args->call->n_in; i++) {
                product *= dtp_ref__get_at(&args->in[i], &l, stride[i]);
            }
            sum += product;
        }
        dtp_ref__set(&args->out[0], &l, sum);
    }
    return DTP_OK;
}

typedef enum fold { SUM, MAX, MIN, PROD } fold;

static double fold_float(fold f, double a, double x)
{
    if (f == SUM) {
        return a + x;
    }
    if (f == PROD) {
        return a * x;
    }
    return f == MAX ? dtp_ref__larger(a, x) : -dtp_ref__larger(-a, -x);
}

static int64_t fold_int(fold f, int64_t a, int64_t x)
{
    if (f == SUM) {
        return (int64_t)((uint64_t)a + (uint64_t)x);
    }
    if (f == PROD) {
        return (int64_t)((uint64_t)a * (uint64_t)x);
    }
    return (f == MAX ? x > a : x < a) ? x : a;
}

static dtp_status run_reduce(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *x = &args->in[0], *y = &args->out[0];
    const char *kind = dtp_call_choice(args->call, "kind");
    const fold f = strcmp(kind, "max") == 0    ? MAX
                   : strcmp(kind, "min") == 0  ? MIN
                   : strcmp(kind, "prod") == 0 ? PROD
                                               : SUM;
    const bool ints = !dtp_dtype_is_float(x->local.dtype);
    double n = strcmp(kind, "mean") == 0 ? dtp_ref__row_count(args->call, x) : 1.0;
    /* A fold of nothing gives the identity of the reduction over ranks that follows. */
    const bool wide = x->local.dtype == DTP_I64;
    const double start[] = {0.0, (double)-INFINITY, (double)INFINITY, 1.0};
    const int64_t start_int[] = {0, wide ? INT64_MIN : INT32_MIN, wide ? INT64_MAX : INT32_MAX, 1};
    int32_t rows;
    dtp_ref_loop l = dtp_ref__rows(args->call, x, &rows);
    for (bool go = dtp_ref__first(&l, 0, rows); go; go = dtp_ref__next(&l, 0, rows)) {
        double r = start[f];
        int64_t whole = start_int[f];
        for (bool in = dtp_ref__first(&l, rows, l.n); in; in = dtp_ref__next(&l, rows, l.n)) {
            if (ints) {
                whole = fold_int(f, whole, dtp_ref__get_int(x, &l));
            } else {
                r = fold_float(f, r, dtp_ref__get(x, &l));
            }
        }
        if (ints) {
            dtp_ref__set_int(y, &l, whole);
        } else {
            dtp_ref__set(y, &l, r / n);
        }
    }
    return DTP_OK;
}

const dtp_kernel dtp_ref__contract[] = {
    {.op = "einsum", .run = run_einsum}, {.op = "reduce", .run = run_reduce}, {.op = NULL}};
