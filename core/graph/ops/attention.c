/* Fused softmax attention and its gradient (Vaswani et al. 2017; tiled as in FlashAttention, Dao et
 * al. 2022, so that no score matrix is held).
 *   s = scale q.k;  p = exp(s - lse), lse = log sum over keys exp(s);  out = p v
 *   dv = p' dout;  dp = dout.v;  ds = p (dp - dout.out);  dq = scale ds k;  dk = scale ds' q
 * Causal: key j is seen by query i when j <= i + (keys - queries), in global positions of the order
 * (core/graph/ops/sequence.h) that the sequence is stored in.
 *
 * Dims: q[.., query, feature], k[.., key, feature], v[.., key, value]. The other dims of k and v
 * are the same and all in q; other dims of q alone share keys and values (grouped heads). The
 * sequence of self-attention (query = key) is INTERNAL: see core/graph/ops/attention_split.c.
 */
#include "core/graph/ops/attention.h"

#include <math.h>
#include <string.h>

#include "core/graph/ops/rows.h"

static const char *const LSE_NAME[] = {"lse"};
static const char *const GRAD_NAMES[] = {"dk", "dv"};
static const char *const CONTEXT_CHOICES[] = {"gather", "ring", NULL};

static const dtp_attr_spec ATTRS[] = {
    DTP_ATTENTION_ATTRS,
    {.key = "context", .kind = DTP_ATTR_ENUM, .choices = CONTEXT_CHOICES, .implementation = true},
    {.key = NULL}};

enum { N_ATTRS = sizeof ATTRS / sizeof ATTRS[0] - 1 };

int64_t dtp_attention__size(const dtp_ttype *type, dtp_dim_id d)
{
    int32_t axis = dtp_ttype_find(type, d);
    return axis < 0 ? 1 : type->dims[axis].size;
}

static bool has_attr(const dtp_op_call *call, const char *key)
{
    for (const dtp_attr_spec *s = call->op->attrs; s->key != NULL; s++) {
        if (strcmp(s->key, key) == 0) {
            return true;
        }
    }
    return false;
}

dtp_attention_dims dtp_attention_dims_of(const dtp_op_call *call)
{
    dtp_attention_dims a = {.query = dtp_call_dim(call, "query"),
                            .key = dtp_call_dim(call, "key"),
                            .feature = dtp_call_dim(call, "feature"),
                            .value = dtp_call_dim(call, "value"),
                            .chunk = -1,
                            .packed = has_attr(call, "chunk"),
                            .causal = dtp_call_int(call, "causal") != 0,
                            .scale = dtp_call_float(call, "scale")};
    a.key = a.key < 0 ? a.query : a.key;
    a.value = a.value < 0 ? a.feature : a.value;
    if (a.scale == 0.0) {
        a.scale = 1.0 / sqrt((double)dtp_attention__size(&call->in[0], a.feature));
    }
    if (a.packed) {
        a.chunk = dtp_call_dim(call, "chunk");
        a.shift = dtp_call_int(call, "shift");
    }
    return a;
}

int64_t dtp_attention_features(const dtp_op_call *call, const dtp_attention_dims *a)
{
    return dtp_attention__size(&call->in[0], a->feature);
}

int64_t dtp_attention_values(const dtp_op_call *call, const dtp_attention_dims *a)
{
    return a->packed
               ? dtp_attention__size(&call->in[1], a->feature) - dtp_attention_features(call, a)
               : dtp_attention__size(&call->in[2], a->value);
}

int64_t dtp_attention_tile_elems(int64_t feature, int64_t value)
{
    const int64_t q = DTP_ATTENTION_QUERIES, k = DTP_ATTENTION_KEYS;
    return 2 * q * k + 2 * (q + k) * (feature + value) + 4 * q;
}

/* ---- inference ---------------------------------------------------------------------------------
 */

dtp_status dtp_attention__need(const dtp_op_call *call, int32_t i, const char *what, dtp_dim_id d,
                               dtp_err *err)
{
    const bool found = dtp_ttype_find(&call->in[i], d) >= 0;
    char text[DTP_TTYPE_TEXT_BYTES];
    if (found && dtp_dtype_is_float(call->in[i].dtype) && call->in[i].dtype == call->in[0].dtype) {
        return DTP_OK;
    }
    dtp_ttype_print(&call->in[i], call->dims, text);
    if (!found) {
        return DTP_FAIL(err, DTP_INVALID, "operand %d, %s, lacks the %s dim '%s'", i, text, what,
                        dtp_dims_name(call->dims, d));
    }
    return DTP_FAIL(err, DTP_INVALID, "operand %d is %s, expected the float type of q", i, text);
}

dtp_status dtp_attention__dims_in(const dtp_op_call *call, int32_t a, int32_t b,
                                  const dtp_dim_id skip[2], dtp_err *err)
{
    const dtp_ttype *ta = &call->in[a], *tb = &call->in[b];
    for (int32_t i = 0; i < ta->rank; i++) {
        dtp_tdim d = ta->dims[i];
        int32_t axis = dtp_ttype_find(tb, d.id);
        if (d.id == skip[0] || d.id == skip[1]) {
            continue;
        }
        if (axis < 0) {
            return DTP_FAIL(err, DTP_INVALID, "dim '%s' of operand %d is not in operand %d",
                            dtp_dims_name(call->dims, d.id), a, b);
        }
        if (tb->dims[axis].size != d.size) {
            return DTP_FAIL(err, DTP_INVALID,
                            "dim '%s' is %lld in operand %d but %lld in operand %d",
                            dtp_dims_name(call->dims, d.id), (long long)d.size, a,
                            (long long)tb->dims[axis].size, b);
        }
    }
    return DTP_OK;
}

dtp_status dtp_attention__forbid(const dtp_op_call *call, int32_t i, const char *what, dtp_dim_id d,
                                 dtp_err *err)
{
    if (dtp_ttype_find(&call->in[i], d) >= 0) {
        return DTP_FAIL(err, DTP_INVALID, "operand %d has the %s dim '%s'", i, what,
                        dtp_dims_name(call->dims, d));
    }
    return DTP_OK;
}

dtp_status dtp_attention__names(const dtp_op_call *call, const dtp_attention_dims *a, dtp_err *err)
{
    if (a->query == a->feature || a->key == a->feature || a->query == a->value ||
        a->key == a->value) {
        return DTP_FAIL(err, DTP_INVALID,
                        "'query' '%s' and 'key' '%s' must differ from 'feature' '%s' and 'value' "
                        "'%s'",
                        dtp_dims_name(call->dims, a->query), dtp_dims_name(call->dims, a->key),
                        dtp_dims_name(call->dims, a->feature), dtp_dims_name(call->dims, a->value));
    }
    return DTP_OK;
}

dtp_status dtp_attention__lengths(const dtp_op_call *call, const dtp_attention_dims *a,
                                  int64_t queries, int64_t keys, dtp_err *err)
{
    if (a->causal && keys < queries) {
        return DTP_FAIL(err, DTP_INVALID,
                        "causal attention of %lld queries over %lld keys leaves queries without "
                        "keys ('%s', '%s')",
                        (long long)queries, (long long)keys, dtp_dims_name(call->dims, a->query),
                        dtp_dims_name(call->dims, a->key));
    }
    if (dtp_call_int(call, "order") == DTP_ORDER_CONTIGUOUS) {
        return DTP_OK;
    }
    if (queries != keys) {
        return DTP_FAIL(err, DTP_INVALID, "zigzag order of %lld queries over %lld keys",
                        (long long)queries, (long long)keys);
    }
    return dtp_sequence_check(call, a->query, keys, dtp_call_int(call, "chunks"), err);
}

static dtp_status check_qkv(const dtp_op_call *call, const dtp_attention_dims *a, dtp_err *err)
{
    DTP_TRY(dtp_attention__names(call, a, err));
    DTP_TRY(dtp_attention__need(call, 0, "query", a->query, err));
    DTP_TRY(dtp_attention__need(call, 0, "feature", a->feature, err));
    DTP_TRY(dtp_attention__need(call, 1, "key", a->key, err));
    DTP_TRY(dtp_attention__need(call, 1, "feature", a->feature, err));
    DTP_TRY(dtp_attention__need(call, 2, "key", a->key, err));
    DTP_TRY(dtp_attention__need(call, 2, "value", a->value, err));
    if (a->key != a->query) {
        DTP_TRY(dtp_attention__forbid(call, 0, "key", a->key, err));
        DTP_TRY(dtp_attention__forbid(call, 1, "query", a->query, err));
        DTP_TRY(dtp_attention__forbid(call, 2, "query", a->query, err));
    }
    if (a->value != a->feature) {
        DTP_TRY(dtp_attention__forbid(call, 0, "value", a->value, err));
        DTP_TRY(dtp_attention__forbid(call, 1, "value", a->value, err));
        DTP_TRY(dtp_attention__forbid(call, 2, "feature", a->feature, err));
    }
    const dtp_dim_id own_key[] = {a->key == a->query ? -1 : a->key, -1};
    const dtp_dim_id feature[] = {a->feature, -1}, value[] = {a->value, -1};
    DTP_TRY(dtp_attention__dims_in(call, 1, 0, own_key, err));
    DTP_TRY(dtp_attention__dims_in(call, 1, 2, feature, err));
    DTP_TRY(dtp_attention__dims_in(call, 2, 1, value, err));
    return dtp_attention__lengths(call, a, dtp_attention__size(&call->in[0], a->query),
                                  dtp_attention__size(&call->in[1], a->key), err);
}

/* Types of out and lse. The log-sum of half precision scores is kept in f32. */
static void result_types(const dtp_op_call *call, const dtp_attention_dims *a, dtp_ttype out[2])
{
    const dtp_ttype *q = &call->in[0];
    out[0] = *q;
    out[1] = (dtp_ttype){.dtype = q->dtype == DTP_F64 ? DTP_F64 : DTP_F32};
    for (int32_t i = 0; i < q->rank; i++) {
        if (q->dims[i].id == a->feature) {
            out[0].dims[i] = (dtp_tdim){a->value, dtp_attention_values(call, a)};
        } else {
            out[1].dims[out[1].rank++] = q->dims[i];
        }
    }
}

dtp_status dtp_attention__infer(const dtp_op_call *call, const dtp_attention_dims *a, bool has_out,
                                dtp_ttype *out, dtp_err *err)
{
    dtp_ttype want[2];
    result_types(call, a, want);
    DTP_TRY(dtp_rows__set_out(call, has_out, &want[0], out, err));
    out[1] = want[1];
    return DTP_OK;
}

dtp_status dtp_attention__infer_grad(const dtp_op_call *call, const dtp_attention_dims *a,
                                     bool has_out, dtp_ttype *out, dtp_err *err)
{
    const int32_t n = call->n_in - 3;
    dtp_ttype want[2];
    result_types(call, a, want);
    DTP_TRY(dtp_rows__match(call, n, "out", &want[0], false, err));
    DTP_TRY(dtp_rows__match(call, n + 1, "lse", &want[1], false, err));
    DTP_TRY(dtp_rows__match(call, n + 2, "dout", &want[0], false, err));
    DTP_TRY(dtp_rows__set_out(call, has_out, &call->in[0], out, err));
    for (int32_t i = 1; i < n; i++) {
        out[i] = call->in[i];
    }
    return DTP_OK;
}

static dtp_status infer_attention(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                  dtp_err *err)
{
    dtp_attention_dims a = dtp_attention_dims_of(call);
    DTP_TRY(check_qkv(call, &a, err));
    return dtp_attention__infer(call, &a, has_out, out, err);
}

static dtp_status infer_grad(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_attention_dims a = dtp_attention_dims_of(call);
    DTP_TRY(check_qkv(call, &a, err));
    return dtp_attention__infer_grad(call, &a, has_out, out, err);
}

/* ---- rules, work, gradient ---------------------------------------------------------------------
 */

/* Self-attention runs over a split sequence as its decomposition. */
static bool role_of_both(const dtp_attention_dims *a, dtp_dim_id d, dtp_dim_role *role)
{
    *role = (dtp_dim_role){DTP_ROLE_PARALLEL, DTP_REDUCE_SUM};
    if (d == a->key && a->key == a->query) {
        role->role = DTP_ROLE_INTERNAL;
    } else if (d == a->key || d == a->feature || d == a->value) {
        role->role = DTP_ROLE_WHOLE;
    }
    return role->role != DTP_ROLE_PARALLEL;
}

static dtp_dim_role role_attention(const dtp_op_call *call, dtp_dim_id d)
{
    dtp_attention_dims a = dtp_attention_dims_of(call);
    dtp_dim_role role;
    (void)role_of_both(&a, d, &role);
    return role;
}

/* Queries and grouped heads are summed into dk and dv. */
static dtp_dim_role role_grad(const dtp_op_call *call, dtp_dim_id d)
{
    dtp_attention_dims a = dtp_attention_dims_of(call);
    dtp_dim_role role;
    if (!role_of_both(&a, d, &role) && dtp_ttype_find(&call->in[1], d) < 0) {
        role.role = DTP_ROLE_REDUCED;
    }
    return role;
}

void dtp_attention__work(const dtp_op_call *call, double pairs, double features, double values,
                         dtp_work *out)
{
    dtp_attention_dims a = dtp_attention_dims_of(call);
    double f = (double)dtp_attention_features(call, &a);
    double v = (double)dtp_attention_values(call, &a);
    double rows = f > 0.0 ? (double)dtp_ttype_elems(&call->in[0]) / f : 0.0;
    dtp_rows__work(call, 2.0 * rows * pairs * (features * f + values * v), out);
}

/* Keys per query. Causal masking halves the pairs. */
static double keys_seen(const dtp_op_call *call)
{
    dtp_attention_dims a = dtp_attention_dims_of(call);
    return (double)dtp_attention__size(&call->in[1], a.key) * (a.causal ? 0.5 : 1.0);
}

static void work_attention(const dtp_op_call *call, dtp_work *out)
{
    dtp_attention__work(call, keys_seen(call), 1.0, 1.0, out);
}

/* Scores again, dq, dk; dp, dv. */
static void work_grad(const dtp_op_call *call, dtp_work *out)
{
    dtp_attention__work(call, keys_seen(call), 3.0, 2.0, out);
}

int64_t dtp_attention__workspace(const dtp_op_call *call)
{
    dtp_attention_dims a = dtp_attention_dims_of(call);
    int64_t f = dtp_attention_features(call, &a), v = dtp_attention_values(call, &a);
    int64_t queries = dtp_attention__size(&call->in[0], a.query);
    int64_t heads = dtp_ttype_elems(&call->in[0]) / (f * queries > 0 ? f * queries : 1);
    int64_t blocks = (queries + DTP_ATTENTION_QUERIES - 1) / DTP_ATTENTION_QUERIES;
    int64_t threads = heads * blocks;
    threads = threads < 1 ? 1 : threads;
    threads = threads > DTP_ATTENTION_MAX_THREADS ? DTP_ATTENTION_MAX_THREADS : threads;
    int64_t bytes = call->in[0].dtype == DTP_F64 ? 8 : 4;
    return threads * dtp_attention_tile_elems(f, v) * bytes;
}

static dtp_status vjp_attention(dtp_vjp *v, dtp_err *err)
{
    DTP_TRY(dtp_rows__only_first(v, err));
    if (v->d_out[0] < 0) {
        return DTP_OK;
    }
    dtp_attr attrs[N_ATTRS];
    for (int32_t i = 0; i < N_ATTRS; i++) {
        attrs[i] = *dtp_vjp_attr(v, ATTRS[i].key);
    }
    const dtp_tensor_id in[] = {v->in[0], v->in[1], v->in[2], v->out[0], v->out[1], v->d_out[0]};
    return dtp_vjp_emit_multi(v, &(dtp_vjp_op){"attention_grad", 6, in, N_ATTRS, attrs}, v->d_in,
                              err);
}

const dtp_op_def dtp_ops_attention[] = {
    {.name = "attention",
     .summary = "softmax(scale q.k) v without holding the scores; causal by default",
     .min_in = 3,
     .max_in = 3,
     .n_out = 2,
     .attrs = ATTRS,
     .out_names = LSE_NAME,
     .infer = infer_attention,
     .role = role_attention,
     .work = work_attention,
     .workspace = dtp_attention__workspace,
     .vjp = vjp_attention,
     .decompose = dtp_attention__split},
    {.name = "attention_grad",
     .summary = "gradient of attention",
     .min_in = 6,
     .max_in = 6,
     .n_out = 3,
     .flags = DTP_OP_INTERNAL_USE,
     .attrs = ATTRS,
     .out_names = GRAD_NAMES,
     .infer = infer_grad,
     .role = role_grad,
     .work = work_grad,
     .workspace = dtp_attention__workspace,
     .no_grad = DTP_NO_GRAD_OF_GRAD,
     .decompose = dtp_attention__split_grad},
};
const int32_t dtp_ops_attention_count = sizeof dtp_ops_attention / sizeof dtp_ops_attention[0];
