/* Fused softmax attention and its gradient (Vaswani et al. 2017; tiled as in FlashAttention, Dao et
 * al. 2022, so that no score matrix is held).
 *   s = scale q.k + mask;  p = exp(s - lse), lse = log sum over keys exp(s);  out = p v
 *   dv = p' dout;  dp = dout.v;  ds = p (dp - dout.out);  dq = scale ds k;  dk = scale ds' q
 * Causal: key j is seen by query i when j <= i + (keys - queries), in global positions of the order
 * (core/graph/ops/sequence.h) that the sequence is stored in. A mask, the last operand, is added to
 * the scores; a pair where it is false or -inf is not seen.
 *
 * Dims: q[.., query, feature], k[.., key, feature], v[.., key, value]. The other dims of k and v
 * are the same and all in q; other dims of q alone share keys and values (grouped heads). A mask
 * has some of the dims of q but feature, and key. The sequence of self-attention (query = key) is
 * INTERNAL: see core/graph/ops/attention_split.c. With a mask the keys have a dim of their own.
 *
 * The parts of attention over a split sequence (core/graph/ops/attention_split.h has their shapes):
 *   attention_part        out = softmax over the keys in sight, lse; none in sight: out 0, lse -inf
 *   attention_part_grad   what these keys add to dq, and dkv, given out and lse over all keys
 *   attention_merge       lse = log(exp la + exp lb);  out = exp(la - lse) a + exp(lb - lse) b
 */
#include "core/graph/ops/attention_split.h"
#include "core/graph/ops/rows.h"
#include "core/graph/ops/sequence.h"

static const char *const LSE_NAME[] = {"lse"};
static const char *const GRAD_NAMES[] = {"dk", "dv"};
static const char *const PART_GRAD_NAMES[] = {"dkv"};
static const char *const CONTEXT_CHOICES[] = {
    [DTP_CONTEXT_GATHER] = "gather", [DTP_CONTEXT_RING] = "ring", NULL};

#define COMMON_ATTRS                                                                               \
    {.key = "query", .kind = DTP_ATTR_DIM, .required = true},                                      \
        {.key = "key", .kind = DTP_ATTR_DIM, .def = -1.0},                                         \
        {.key = "feature", .kind = DTP_ATTR_DIM, .required = true},                                \
        {.key = "value", .kind = DTP_ATTR_DIM, .def = -1.0},                                       \
        {.key = "causal", .kind = DTP_ATTR_BOOL, .def = 1.0},                                      \
        {.key = "scale", .kind = DTP_ATTR_FLOAT, .min = -1e30, .max = 1e30},                       \
        {.key = "order", .kind = DTP_ATTR_ENUM, .choices = dtp_order_choices},                     \
    {                                                                                              \
        .key = "chunks", .kind = DTP_ATTR_INT, .def = 1.0, .min = 1.0, .max = 1e9                  \
    }

static const dtp_attr_spec ATTRS[] = {
    COMMON_ATTRS,
    {.key = "context", .kind = DTP_ATTR_ENUM, .choices = CONTEXT_CHOICES, .implementation = true},
    {.key = NULL}};

static const dtp_attr_spec PART_ATTRS[] = {
    COMMON_ATTRS,
    {.key = "chunk", .kind = DTP_ATTR_DIM, .def = -1.0},
    {.key = "shift", .kind = DTP_ATTR_INT, .min = 0.0, .max = 1e9},
    {.key = NULL}};

/* ---- inference ---- */

/* Operand i has the dim and the float type of q. */
static dtp_status need_dim(const dtp_op_call *call, int32_t i, const char *what, dtp_dim_id d,
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

/* Every dim of operand `a` except two is in operand `b` with the same size. */
static dtp_status dims_in(const dtp_op_call *call, int32_t a, int32_t b, const dtp_dim_id skip[2],
                          dtp_err *err)
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

/* Operand i lacks the dim. */
static dtp_status forbid(const dtp_op_call *call, int32_t i, const char *what, dtp_dim_id d,
                         dtp_err *err)
{
    if (dtp_ttype_find(&call->in[i], d) >= 0) {
        return DTP_FAIL(err, DTP_INVALID, "operand %d has the %s dim '%s'", i, what,
                        dtp_dims_name(call->dims, d));
    }
    return DTP_OK;
}

/* No query is without a key, a ring is of one sequence, and the order fits the lengths. */
static dtp_status check_lengths(const dtp_op_call *call, const dtp_attention_dims *a,
                                int64_t queries, int64_t keys, dtp_err *err)
{
    if (a->causal && keys < queries) {
        return DTP_FAIL(err, DTP_INVALID,
                        "causal attention of %lld queries over %lld keys leaves queries without "
                        "keys ('%s', '%s')",
                        (long long)queries, (long long)keys, dtp_dims_name(call->dims, a->query),
                        dtp_dims_name(call->dims, a->key));
    }
    if (a->key != a->query && dtp_op_attr(call->op, "context") != NULL &&
        dtp_call_int(call, "context") == DTP_CONTEXT_RING) {
        return DTP_FAIL(err, DTP_INVALID,
                        "context 'ring' is of one sequence, but the keys have a dim of their own: "
                        "%lld queries ('%s') and %lld keys ('%s')",
                        (long long)queries, dtp_dims_name(call->dims, a->query), (long long)keys,
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

/* Operands q, k and v, or q and kv. */
static dtp_status check_operands(const dtp_op_call *call, const dtp_attention_dims *a, dtp_err *err)
{
    const int32_t last = a->packed ? 1 : 2;
    if (a->query == a->feature || a->key == a->feature || a->query == a->value ||
        a->key == a->value) {
        return DTP_FAIL(err, DTP_INVALID,
                        "'query' '%s' and 'key' '%s' must differ from 'feature' '%s' and 'value' "
                        "'%s'",
                        dtp_dims_name(call->dims, a->query), dtp_dims_name(call->dims, a->key),
                        dtp_dims_name(call->dims, a->feature), dtp_dims_name(call->dims, a->value));
    }
    DTP_TRY(need_dim(call, 0, "query", a->query, err));
    DTP_TRY(need_dim(call, 0, "feature", a->feature, err));
    DTP_TRY(need_dim(call, 1, "key", a->key, err));
    DTP_TRY(need_dim(call, 1, "feature", a->feature, err));
    if (!a->packed) {
        DTP_TRY(need_dim(call, 2, "key", a->key, err));
        DTP_TRY(need_dim(call, 2, "value", a->value, err));
    }
    if (a->key != a->query) {
        DTP_TRY(forbid(call, 0, "key", a->key, err));
        for (int32_t i = 1; i <= last; i++) {
            DTP_TRY(forbid(call, i, "query", a->query, err));
        }
    }
    if (a->value != a->feature) {
        DTP_TRY(forbid(call, 0, "value", a->value, err));
        DTP_TRY(forbid(call, 1, "value", a->value, err));
        DTP_TRY(a->packed ? DTP_OK : forbid(call, 2, "feature", a->feature, err));
    }
    const dtp_dim_id own[] = {a->key == a->query ? -1 : a->key, a->packed ? a->feature : -1};
    DTP_TRY(dims_in(call, 1, 0, own, err));
    int64_t chunks = 1;
    if (a->packed) {
        if (a->chunk >= 0) {
            DTP_TRY(need_dim(call, 0, "chunk", a->chunk, err));
            DTP_TRY(need_dim(call, 1, "chunk", a->chunk, err));
            chunks = dtp_ttype_size(&call->in[0], a->chunk);
            if (a->chunk == a->query || a->chunk == a->key || a->chunk == a->feature ||
                a->shift >= chunks) {
                return DTP_FAIL(err, DTP_INVALID, "chunk dim '%s' of size %lld with shift %lld",
                                dtp_dims_name(call->dims, a->chunk), (long long)chunks,
                                (long long)a->shift);
            }
        }
        if (dtp_attention_values(call, a) < 1) {
            return DTP_FAIL(err, DTP_INVALID,
                            "operand 1 holds %lld features: no values behind the %lld of a key",
                            (long long)dtp_ttype_size(&call->in[1], a->feature),
                            (long long)dtp_attention_features(call, a));
        }
    } else {
        const dtp_dim_id feature[] = {a->feature, -1}, value[] = {a->value, -1};
        DTP_TRY(dims_in(call, 1, 2, feature, err));
        DTP_TRY(dims_in(call, 2, 1, value, err));
    }
    return check_lengths(call, a, chunks * dtp_ttype_size(&call->in[0], a->query),
                         chunks * dtp_ttype_size(&call->in[1], a->key), err);
}

/* The mask, operand i: truth values or floats of the type of q over dims of q and the key dim,
 * which is not the queries': a tensor has a dim once. */
static dtp_status check_mask(const dtp_op_call *call, const dtp_attention_dims *a, int32_t i,
                             dtp_err *err)
{
    const dtp_ttype *mask = &call->in[i];
    const dtp_dim_id key[] = {a->key, -1};
    if (mask->dtype != DTP_BOOL && mask->dtype != call->in[0].dtype) {
        return DTP_FAIL(err, DTP_INVALID,
                        "the mask (operand %d) is %s, expected bool or the type of q, %s", i,
                        dtp_dtype_name(mask->dtype), dtp_dtype_name(call->in[0].dtype));
    }
    if (a->key == a->query) {
        return DTP_FAIL(err, DTP_INVALID,
                        "attention with a mask needs a 'key' dim that is not 'query' '%s'",
                        dtp_dims_name(call->dims, a->query));
    }
    DTP_TRY(forbid(call, i, "feature", a->feature, err));
    DTP_TRY(dims_in(call, i, 0, key, err));
    const int32_t axis = dtp_ttype_find(mask, a->key);
    if (axis < 0 || mask->dims[axis].size == dtp_ttype_size(&call->in[1], a->key)) {
        return DTP_OK;
    }
    return DTP_FAIL(err, DTP_INVALID, "dim '%s' is %lld in operand 1 but %lld in operand %d",
                    dtp_dims_name(call->dims, a->key),
                    (long long)dtp_ttype_size(&call->in[1], a->key),
                    (long long)mask->dims[axis].size, i);
}

/* Types of out and lse. The log-sum of half precision scores is kept in f32. */
static void result_types(const dtp_op_call *call, const dtp_attention_dims *a, dtp_ttype out[2])
{
    const dtp_ttype *q = &call->in[0];
    out[0] = *q;
    out[1] = (dtp_ttype){.dtype = dtp_op__sum_dtype(q->dtype)};
    for (int32_t i = 0; i < q->rank; i++) {
        if (q->dims[i].id == a->feature) {
            out[0].dims[i] = (dtp_tdim){a->value, dtp_attention_values(call, a)};
        } else {
            out[1].dims[out[1].rank++] = q->dims[i];
        }
    }
}

static dtp_status infer_attention(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                  dtp_err *err)
{
    const dtp_attention_dims a = dtp_attention_dims_of(call);
    dtp_ttype want[2];
    DTP_TRY(check_operands(call, &a, err));
    DTP_TRY(a.mask < 0 ? DTP_OK : check_mask(call, &a, a.mask, err));
    result_types(call, &a, want);
    DTP_TRY(dtp_rows__set_out(call, has_out, &want[0], out, err));
    out[1] = want[1];
    return DTP_OK;
}

/* Behind q, k and v are out, lse, dout and perhaps the mask; the results have the types of those
 * before. */
static dtp_status infer_grad(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const dtp_attention_dims a = dtp_attention_dims_of(call);
    const int32_t n = a.packed ? 2 : 3;
    dtp_ttype want[2];
    DTP_TRY(check_operands(call, &a, err));
    DTP_TRY(a.mask < 0 ? DTP_OK : check_mask(call, &a, a.mask, err));
    result_types(call, &a, want);
    DTP_TRY(dtp_rows__match(call, n, "out", &want[0], false, err));
    DTP_TRY(dtp_rows__match(call, n + 1, "lse", &want[1], false, err));
    DTP_TRY(dtp_rows__match(call, n + 2, "dout", &want[0], false, err));
    DTP_TRY(dtp_rows__set_out(call, has_out, &call->in[0], out, err));
    for (int32_t i = 1; i < n; i++) {
        out[i] = call->in[i];
    }
    return DTP_OK;
}

/* Every dim of an lse is a dim of its out. */
static dtp_status infer_merge(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const dtp_ttype *lse = &call->in[1];
    const dtp_dim_id none[] = {-1, -1};
    DTP_TRY(dtp_op__need_float(call, 0, err));
    if (lse->dtype != dtp_op__sum_dtype(call->in[0].dtype)) {
        return DTP_FAIL(err, DTP_INVALID, "lse of a (operand 1) is %s beside a of %s",
                        dtp_dtype_name(lse->dtype), dtp_dtype_name(call->in[0].dtype));
    }
    DTP_TRY(dims_in(call, 1, 0, none, err));
    DTP_TRY(dtp_rows__match(call, 2, "b", &call->in[0], false, err));
    DTP_TRY(dtp_rows__match(call, 3, "lse of b", lse, false, err));
    DTP_TRY(dtp_rows__set_out(call, has_out, &call->in[0], out, err));
    out[1] = *lse;
    return DTP_OK;
}

/* ---- rules, work, gradient ---- */

/* Self-attention runs over a split sequence as its decomposition; a part needs its keys whole. */
static dtp_dim_role role_attention(const dtp_op_call *call, dtp_dim_id d)
{
    const dtp_attention_dims a = dtp_attention_dims_of(call);
    dtp_dim_role role = {.role = DTP_ROLE_PARALLEL, .op = DTP_REDUCE_SUM};
    if (d == a.key || d == a.feature || d == a.value) {
        const bool self = d == a.key && a.key == a.query && !a.packed;
        role.role = self ? DTP_ROLE_INTERNAL : DTP_ROLE_WHOLE;
    }
    return role;
}

/* Queries that are not keys, and grouped heads, are summed into dk and dv. */
static dtp_dim_role role_grad(const dtp_op_call *call, dtp_dim_id d)
{
    dtp_dim_role role = role_attention(call, d);
    if (role.role == DTP_ROLE_PARALLEL && dtp_ttype_find(&call->in[1], d) < 0) {
        role.role = DTP_ROLE_REDUCED;
    }
    return role;
}

/* Keys that a query of the busiest rank sees. A causal mask halves those of the whole sequence. Of
 * a part: in a zigzag order every part of the sequence sees half of every other part. In a
 * contiguous one half of its own part and all of an earlier part are seen; of all keys, the last n
 * queries see all but the mean of their later ones. */
static double keys_seen(const dtp_op_call *call, const dtp_attention_dims *a)
{
    double keys = (double)dtp_ttype_size(&call->in[1], a->key);
    double queries = (double)dtp_ttype_size(&call->in[0], a->query);
    if (!a->causal) {
        return keys;
    }
    if (!a->packed || dtp_call_int(call, "order") == DTP_ORDER_ZIGZAG ||
        (a->chunk >= 0 && a->shift == 0)) {
        return 0.5 * keys;
    }
    return a->chunk >= 0 ? keys : keys - 0.5 * queries;
}

/* Multiply-adds of a query and a key: `features` products over feature, `values` over value. */
static void work_pairs(const dtp_op_call *call, double features, double values, dtp_work *out)
{
    const dtp_attention_dims a = dtp_attention_dims_of(call);
    const double f = (double)dtp_attention_features(call, &a);
    const double v = (double)dtp_attention_values(call, &a);
    const double pairs =
        f > 0.0 ? (double)dtp_ttype_elems(&call->in[0]) / f * keys_seen(call, &a) : 0.0;
    const double products = features * f + values * v;
    dtp_rows__work(call, 2.0 * pairs * (products + DTP_SCORE_MULTIPLY_ADDS), out);
    out->m = dtp_ttype_size(&call->in[0], a.query);
    out->n = dtp_ttype_size(&call->in[1], a.key);
    out->k = (int64_t)products;
    out->batch =
        out->m > 0 && f > 0.0 ? (int64_t)((double)dtp_ttype_elems(&call->in[0]) / f) / out->m : 0;
}

static void work_attention(const dtp_op_call *call, dtp_work *out)
{
    work_pairs(call, 1.0, 1.0, out);
}

/* Scores again, dq, dk; dp, dv. */
static void work_grad(const dtp_op_call *call, dtp_work *out)
{
    work_pairs(call, 3.0, 2.0, out);
}

static dtp_status vjp_attention(dtp_vjp *v, dtp_err *err)
{
    DTP_TRY(dtp_rows__only_first(v, err));
    if (v->d_out[0] < 0) {
        return DTP_OK;
    }
    const dtp_node *node = &v->g->nodes[v->node];
    const bool masked = node->n_in > 3;
    if (masked && v->need[3]) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "node '%s': attention has no gradient through its mask", node->name);
    }
    const dtp_tensor_id in[] = {
        v->in[0], v->in[1], v->in[2], v->out[0], v->out[1], v->d_out[0], masked ? v->in[3] : -1};
    const dtp_vjp_op op = {"attention_grad", masked ? 7 : 6, in, node->n_attrs, node->attrs};
    return dtp_vjp_emit_multi(v, &op, v->d_in, err);
}

#define FORWARD(traits)                                                                            \
    .flags = DTP_OP_ARITHMETIC | (traits), .out_names = LSE_NAME, .infer = infer_attention,        \
    .role = role_attention, .work = work_attention, .f32_error = 4e-6
#define GRADIENT(traits)                                                                           \
    .flags = DTP_OP_ARITHMETIC | DTP_OP_INTERNAL_USE | (traits), .infer = infer_grad,              \
    .role = role_grad, .work = work_grad, .f32_error = 1e-5

const dtp_op_def dtp_ops_attention[] = {
    {DTP_ROW("attention",
             "softmax(scale q.k + mask) v without holding the scores; causal by default", 3, 4, 2),
     FORWARD(DTP_OP_ATTENTION), .attrs = ATTRS, .vjp = vjp_attention,
     .decompose = dtp_attention__split, .bench = {"shf shf shf | query=s feature=f"}},
    {DTP_ROW("attention_grad", "gradient of attention", 6, 7, 3), GRADIENT(DTP_OP_ATTENTION_GRAD),
     .attrs = ATTRS, .out_names = GRAD_NAMES, .no_grad = DTP_NO_GRAD_OF_GRAD,
     .decompose = dtp_attention__split_grad,
     .bench = {"shf shf shf shf sh shf | query=s feature=f"}},
    {DTP_ROW("attention_part", "attention to packed keys and values, all or those of another chunk",
             2, 2, 2),
     FORWARD(DTP_OP_INTERNAL_USE | DTP_OP_RENAMES), .attrs = PART_ATTRS,
     .no_grad = DTP_NO_PART_GRAD, .rates = "attention", .bench = {"shf she | query=s feature=f"}},
    {DTP_ROW("attention_part_grad", "what these keys and values add to the gradient of attention",
             5, 5, 2),
     GRADIENT(DTP_OP_RENAMES), .attrs = PART_ATTRS, .out_names = PART_GRAD_NAMES,
     .no_grad = DTP_NO_PART_GRAD, .rates = "attention_grad",
     .bench = {"shf she shf sh shf | query=s feature=f"}},
    {
        DTP_ROW("attention_merge", "attention to the keys of two parts from that to each", 4, 4, 2),
        .flags = DTP_OP_INTERNAL_USE,
        .out_names = LSE_NAME,
        .infer = infer_merge,
        .x_flops = 3.0,
        .no_grad = DTP_NO_PART_GRAD,
        .rates = "add", /* bound by memory, not by arithmetic */
        .inplace_in = {1},
        .bench = {"shf sh shf sh"},
    },
    {.name = NULL},
};
