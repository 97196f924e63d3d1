/* Reference kernels of statistics of rows, scans and positions: norm, var, std, cumsum, prod_grad,
 * argmax, argmin, arg_first, topk. */
#include <math.h>
#include <string.h>

#include "executor/ref/index.h"
#include "executor/ref/kernels.h"

static double norm_row(const dtp_kernel_args *args, dtp_ref_loop *l, int32_t rows)
{
    const char *ord = dtp_call_choice(args->call, "ord");
    double sum = 0.0, squares = 0.0, most = 0.0;
    for (bool in = dtp_ref__first(l, rows, l->n); in; in = dtp_ref__next(l, rows, l->n)) {
        double a = fabs(dtp_ref__get(&args->in[0], l));
        sum += a;
        squares += a * a;
        most = dtp_ref__larger(most, a);
    }
    return strcmp(ord, "1") == 0 ? sum : strcmp(ord, "2") == 0 ? sqrt(squares) : most;
}

static double amax_row(const dtp_kernel_args *args, dtp_ref_loop *l, int32_t rows)
{
    double most = 0.0;
    for (bool in = dtp_ref__first(l, rows, l->n); in; in = dtp_ref__next(l, rows, l->n)) {
        most = dtp_ref__larger(most, fabs(dtp_ref__get(&args->in[0], l)));
    }
    return most;
}

static double var_row(const dtp_kernel_args *args, dtp_ref_loop *l, int32_t rows)
{
    const double n = dtp_ref__row_count(args->call, &args->in[0]);
    const double divisor = n - (double)dtp_call_int(args->call, "correction");
    return dtp_ref__moments(&args->in[0], l, rows, n).squares / divisor;
}

static double std_row(const dtp_kernel_args *args, dtp_ref_loop *l, int32_t rows)
{
    return sqrt(var_row(args, l, rows));
}

/* The row is the two sums. */
static double var_finish_row(const dtp_kernel_args *args, dtp_ref_loop *l, int32_t rows)
{
    const double n = (double)dtp_call_int(args->call, "count");
    const double divisor = n - (double)dtp_call_int(args->call, "correction");
    double sums[2] = {0.0};
    int32_t k = 0;
    for (bool in = dtp_ref__first(l, rows, l->n); in; in = dtp_ref__next(l, rows, l->n)) {
        sums[k++] = dtp_ref__get(&args->in[0], l);
    }
    return dtp_ref__moments_of(n, 0.0, sums).squares / divisor;
}

DTP_REF_ROW_KERNEL(norm)
DTP_REF_ROW_KERNEL(amax)
DTP_REF_ROW_KERNEL(var_finish)
DTP_REF_ROW_KERNEL(var)
DTP_REF_ROW_KERNEL(std)

/* Every element from its definition: the sum of those up to it. */
static dtp_status run_cumsum(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *x = &args->in[0], *y = &args->out[0];
    const dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    const bool reverse = dtp_call_int(args->call, "reverse") != 0;
    const bool ints = !dtp_dtype_is_float(x->local.dtype);
    dtp_ref_loop l = dtp_ref__over(&y->local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        const int64_t at = dtp_ref__coord(&l, dim), n = dtp_ref__local(x, dim);
        dtp_ref_loop from = l;
        double sum = 0.0;
        uint64_t whole = 0;
        for (int64_t k = reverse ? at : 0; k < (reverse ? n : at + 1); k++) {
            dtp_ref__put(&from, dim, k);
            if (ints) {
                whole += (uint64_t)dtp_ref__get_int(x, &from);
            } else {
                sum += dtp_ref__get(x, &from);
            }
        }
        if (ints) {
            dtp_ref__set_int(y, &l, (int64_t)whole);
        } else {
            dtp_ref__set(y, &l, sum);
        }
    }
    return DTP_OK;
}

/* Product of the elements of the row of `at` other than that at `at`. */
static double product_of_others(const dtp_op_call *call, const dtp_view *x, const dtp_ref_loop *at)
{
    int32_t rows;
    double p = 1.0;
    dtp_ref_loop l = dtp_ref__rows(call, x, &rows);
    for (int32_t i = 0; i < rows; i++) {
        l.at[i] = dtp_ref__coord(at, l.id[i]);
    }
    for (bool go = dtp_ref__first(&l, rows, l.n); go; go = dtp_ref__next(&l, rows, l.n)) {
        bool same = true;
        for (int32_t i = rows; i < l.n; i++) {
            same = same && l.at[i] == dtp_ref__coord(at, l.id[i]);
        }
        p *= same ? 1.0 : dtp_ref__get(x, &l);
    }
    return p;
}

static dtp_status run_prod_grad(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *x = &args->in[0];
    dtp_ref_loop l = dtp_ref__over(&x->local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        double dy = dtp_ref__get(&args->in[1], &l);
        dtp_ref__set(&args->out[0], &l, dy * product_of_others(args->call, x, &l));
    }
    return DTP_OK;
}

/* ---- positions ---- */

/* Does a come before b? In argmax and argmin NaN comes first; topk takes it for the largest. */
static bool better(double a, double b, bool largest, bool nan_first)
{
    if (isnan(a) || isnan(b)) {
        return nan_first ? isnan(a) && !isnan(b) : isnan(b) && !isnan(a);
    }
    return largest ? a > b : a < b;
}

static dtp_status run_arg_of(const dtp_kernel_args *args, bool largest)
{
    const dtp_view *x = &args->in[0];
    const dtp_dim_id over = dtp_call_dim(args->call, "over");
    int32_t rows;
    dtp_ref_loop l = dtp_ref__rows(args->call, x, &rows);
    for (bool go = dtp_ref__first(&l, 0, rows); go; go = dtp_ref__next(&l, 0, rows)) {
        int64_t best = 0;
        double value = 0.0;
        for (bool in = dtp_ref__first(&l, rows, l.n); in; in = dtp_ref__next(&l, rows, l.n)) {
            const int64_t at = dtp_ref__coord(&l, over);
            const double v = dtp_ref__get(x, &l);
            if (at == 0 || better(v, value, largest, true)) {
                best = at;
                value = v;
            }
        }
        dtp_ref__set_int(&args->out[0], &l, best);
    }
    return DTP_OK;
}

static dtp_status run_argmax(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    return run_arg_of(args, true);
}

static dtp_status run_argmin(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    return run_arg_of(args, false);
}

static dtp_status run_arg_first(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *x = &args->in[0];
    const dtp_dim_id over = dtp_call_dim(args->call, "over");
    const int64_t none = args->out[0].local.dtype == DTP_I64 ? INT64_MAX : INT32_MAX;
    int32_t rows;
    dtp_ref_loop l = dtp_ref__rows(args->call, x, &rows);
    for (bool go = dtp_ref__first(&l, 0, rows); go; go = dtp_ref__next(&l, 0, rows)) {
        int64_t first = none;
        for (bool in = dtp_ref__first(&l, rows, l.n); in; in = dtp_ref__next(&l, rows, l.n)) {
            const double v = dtp_ref__get(x, &l), m = dtp_ref__get(&args->in[1], &l);
            const bool hit = v == m || (isnan(v) && isnan(m));
            first = hit && first == none ? dtp_ref__global_index(x, &l, over) : first;
        }
        dtp_ref__set_int(&args->out[0], &l, first);
    }
    return DTP_OK;
}

/* How many elements of the row of `l` come before the one at `l`, counted up to k. */
static int64_t rank_in_row(const dtp_view *x, const dtp_ref_loop *l, dtp_dim_id over, bool largest,
                           int64_t k)
{
    const double v = dtp_ref__get(x, l);
    const int64_t at = dtp_ref__coord(l, over);
    dtp_ref_loop other = *l;
    int64_t n = 0;
    for (int64_t i = 0; i < dtp_ref__local(x, over) && n < k; i++) {
        dtp_ref__put(&other, over, i);
        const double w = dtp_ref__get(x, &other);
        n += better(w, v, largest, largest) || (!better(v, w, largest, largest) && i < at) ? 1 : 0;
    }
    return n;
}

static dtp_status run_topk(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *x = &args->in[0];
    const dtp_dim_id over = dtp_call_dim(args->call, "over");
    const int64_t k = dtp_call_int(args->call, "k");
    const bool largest = dtp_call_int(args->call, "largest") != 0;
    dtp_ref_loop l = dtp_ref__over(&x->local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        const int64_t place = rank_in_row(x, &l, over, largest, k);
        if (place < k) {
            dtp_ref_loop to = l;
            dtp_ref__put(&to, over, place);
            dtp_ref__copy(&args->out[0], &to, x, &l);
            dtp_ref__set_int(&args->out[1], &to, dtp_ref__coord(&l, over));
        }
    }
    return DTP_OK;
}

const dtp_kernel dtp_ref__stats[] = {{.op = "norm", .run = run_norm},
                                     {.op = "amax", .run = run_amax},
                                     {.op = "var", .run = run_var},
                                     {.op = "std", .run = run_std},
                                     {.op = "var_finish", .run = run_var_finish},
                                     {.op = "cumsum", .run = run_cumsum},
                                     {.op = "prod_grad", .run = run_prod_grad},
                                     {.op = "argmax", .run = run_argmax},
                                     {.op = "argmin", .run = run_argmin},
                                     {.op = "arg_first", .run = run_arg_first},
                                     {.op = "topk", .run = run_topk},
                                     {.op = NULL}};
