/* Registered ops with their kernels, for tests. */
#include "tests/ops/own_ops.h"
#include "core/graph/ops/op_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* ---- values of either floating-point type ---- */

static double get(const dtp_view *v, int64_t i)
{
    return v->local.dtype == DTP_F64 ? ((const double *)v->data)[i]
                                     : (double)((const float *)v->data)[i];
}

static void put(const dtp_view *v, int64_t i, double value)
{
    if (v->local.dtype == DTP_F64) {
        ((double *)v->data)[i] = value;
    } else {
        ((float *)v->data)[i] = (float)value;
    }
}

/* ---- kernels ---- */

static dtp_status run_matmul(const dtp_kernel_args *a, dtp_err *err)
{
    const int64_t m = a->in[0].local.dims[0].size, k = a->in[0].local.dims[1].size;
    const int64_t n = a->in[1].local.dims[1].size;
    (void)err;
    for (int64_t i = 0; i < m * n; i++) {
        double sum = 0.0;
        for (int64_t p = 0; p < k; p++) {
            sum += get(&a->in[0], i / n * k + p) * get(&a->in[1], p * n + i % n);
        }
        put(&a->out[0], i, sum);
    }
    return DTP_OK;
}

static dtp_status run_scale(const dtp_kernel_args *a, dtp_err *err)
{
    const int64_t n = a->in[1].local.dims[0].size;
    const int64_t elems = dtp_ttype_elems(&a->in[0].local);
    (void)err;
    for (int64_t i = 0; i < elems; i++) {
        put(&a->out[0], i, get(&a->in[0], i) * get(&a->in[1], i % n));
    }
    return DTP_OK;
}

static dtp_status run_reverse(const dtp_kernel_args *a, dtp_err *err)
{
    const dtp_ttype *type = &a->in[0].local;
    const int64_t n = type->dims[type->rank - 1].size, elems = dtp_ttype_elems(type);
    const int64_t offset = dtp_call_int(a->call, "offset");
    if (n != a->in[0].global[type->rank - 1]) {
        return DTP_FAIL(err, DTP_INTERNAL, "my_reverse got a part of its dim");
    }
    for (int64_t i = 0; i < elems; i++) {
        put(&a->out[0], i, get(&a->in[0], i / n * n + (n - 1 - i % n + offset) % n));
    }
    return DTP_OK;
}

static dtp_status run_max(const dtp_kernel_args *a, dtp_err *err)
{
    const int64_t rows = a->in[0].local.dims[0].size, n = a->in[0].local.dims[1].size;
    (void)err;
    for (int64_t i = 0; i < rows; i++) {
        double best = -1e30;
        for (int64_t k = 0; k < n; k++) {
            best = get(&a->in[0], i * n + k) > best ? get(&a->in[0], i * n + k) : best;
        }
        put(&a->out[0], i, best);
    }
    return DTP_OK;
}

static dtp_status run_dot(const dtp_kernel_args *a, dtp_err *err)
{
    const dtp_view *x = &a->in[0], *y = &a->in[1];
    const int64_t rows = x->local.dims[0].size, n = x->local.dims[1].size;
    const int64_t first = x->offset[0] - y->offset[0];
    double sum = 0.0;
    (void)err;
    for (int64_t i = 0; i < rows * n; i++) {
        sum += get(x, i) * get(y, first * n + i);
    }
    put(&a->out[0], 0, sum);
    return DTP_OK;
}

const dtp_kernel own_ops_kernels[OWN_OPS] = {
    {.op = "my_matmul", .run = run_matmul},   {.op = "my_scale", .run = run_scale},
    {.op = "my_reverse", .run = run_reverse}, {.op = "my_max", .run = run_max},
    {.op = "local_mm", .run = run_matmul},    {.op = "local_dot", .run = run_dot},
};

/* ---- gradients ---- */

static dtp_status vjp_matmul(dtp_vjp *v, dtp_err *err)
{
    for (int32_t i = 0; i < 2; i++) {
        const dtp_tensor_id pair[] = {v->d_out[0], v->in[1 - i]};
        if (v->need[i]) {
            DTP_TRY(dtp_vjp_emit(v, &(dtp_vjp_op){"einsum", 2, pair, 0, NULL}, v->in[i],
                                 &v->d_in[i], err));
        }
    }
    return DTP_OK;
}

static dtp_status vjp_scale(dtp_vjp *v, dtp_err *err)
{
    const dtp_tensor_id by_gain[] = {v->d_out[0], v->in[1]};
    const dtp_tensor_id by_x[] = {v->d_out[0], v->in[0]};
    DTP_TRY(dtp_vjp_emit(v, &(dtp_vjp_op){"my_scale", 2, by_gain, 0, NULL}, -1, &v->d_in[0], err));
    return dtp_vjp_emit(v, &(dtp_vjp_op){"einsum", 2, by_x, 0, NULL}, v->in[1], &v->d_in[1], err);
}

static dtp_status vjp_reverse(dtp_vjp *v, dtp_err *err)
{
    const dtp_attr offset = *dtp_vjp_attr(v, "offset");
    return dtp_vjp_emit(v, &(dtp_vjp_op){"my_reverse", 1, v->d_out, 1, &offset}, -1, &v->d_in[0],
                        err);
}

/* ---- registration ---- */

static dtp_status register_by_roles(dtp_op_set *set, dtp_err *err)
{
    static const dtp_letter_role reduced_k[] = {{'m', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM},
                                                {'n', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM},
                                                {'k', DTP_ROLE_REDUCED, DTP_REDUCE_SUM}};
    static const dtp_letter_role max_d[] = {{'b', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM},
                                            {'d', DTP_ROLE_REDUCED, DTP_REDUCE_MAX}};
    static const dtp_letter_role both[] = {{'.', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM},
                                           {'d', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM}};
    static const dtp_letter_role whole_d[] = {{'.', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM},
                                              {'d', DTP_ROLE_WHOLE, DTP_REDUCE_SUM}};
    static const dtp_attr_spec offset[] = {{.key = "offset", .kind = DTP_ATTR_INT, .max = 1000},
                                           {.key = NULL}};
    dtp_custom_op op = dtp_custom_op_init("my_matmul", "mk,kn->mn");
    op.n_roles = 3;
    op.roles = reduced_k;
    op.linear = DTP_LINEAR_EACH;
    op.flops_per_point = 2.0;
    op.vjp = vjp_matmul;
    DTP_TRY(dtp_custom_op_register(set, &op, err));
    op = dtp_custom_op_init("my_scale", "...d,d->...d");
    op.n_roles = 2;
    op.roles = both;
    op.linear = DTP_LINEAR_EACH;
    op.vjp = vjp_scale;
    DTP_TRY(dtp_custom_op_register(set, &op, err));
    op = dtp_custom_op_init("my_reverse", "...d->...d");
    op.n_roles = 2;
    op.roles = whole_d;
    op.linear = DTP_LINEAR_EACH;
    op.attrs = offset;
    op.vjp = vjp_reverse;
    DTP_TRY(dtp_custom_op_register(set, &op, err));
    op = dtp_custom_op_init("my_max", "bd->b");
    op.n_roles = 2;
    op.roles = max_d;
    return dtp_custom_op_register(set, &op, err);
}

static dtp_status register_opaque(dtp_op_set *set, dtp_err *err)
{
    static const char *const mm[] = {"S1,S0->P(sum)", "S0,R->S0"};
    static const char *const dot[] = {"Shard(0),R->P", "R,R->R", "S1,S1->P"};
    dtp_custom_op op = dtp_custom_op_init("local_mm", "mk,kn->mn");
    op.n_strategies = 2;
    op.strategies = mm;
    op.flops_per_point = 2.0;
    DTP_TRY(dtp_custom_op_register(set, &op, err));
    op = dtp_custom_op_init("local_dot", "ab,ab->");
    op.n_strategies = 3;
    op.strategies = dot;
    return dtp_custom_op_register(set, &op, err);
}

dtp_op_set *own_ops_create(void)
{
    dtp_op_set *set = NULL;
    dtp_err err = {0};
    dtp_status s = dtp_op_set_create(dtp_builtin_ops(), &set, &err);
    s = s == DTP_OK ? register_by_roles(set, &err) : s;
    s = s == DTP_OK ? register_opaque(set, &err) : s;
    if (s != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return set;
}
