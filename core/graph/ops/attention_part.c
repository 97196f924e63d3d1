/* The parts of attention over a split sequence (core/graph/ops/attention.h has their shapes):
 * attention to some of the keys, its gradient, and the merge of two such results by log-sum-exp:
 *   attention_part        out = softmax over the keys in sight, lse; none in sight: out 0, lse -inf
 *   attention_part_grad   what these keys add to dq, and dkv, given out and lse over all keys
 *   attention_merge       lse = log(exp la + exp lb);  out = exp(la - lse) a + exp(lb - lse) b
 */
#include "core/graph/ops/attention.h"
#include "core/graph/ops/rows.h"

static const char *const LSE_NAME[] = {"lse"};
static const char *const GRAD_NAMES[] = {"dkv"};

static const dtp_attr_spec ATTRS[] = {
    DTP_ATTENTION_ATTRS,
    {.key = "chunk", .kind = DTP_ATTR_DIM, .def = -1.0},
    {.key = "shift", .kind = DTP_ATTR_INT, .min = 0.0, .max = 1e9},
    {.key = NULL}};

/* ---- inference ---------------------------------------------------------------------------------
 */

static dtp_status check_chunk(const dtp_op_call *call, const dtp_attention_dims *a, dtp_err *err)
{
    if (a->chunk < 0) {
        return DTP_OK;
    }
    DTP_TRY(dtp_attention__need(call, 0, "chunk", a->chunk, err));
    DTP_TRY(dtp_attention__need(call, 1, "chunk", a->chunk, err));
    int64_t n = dtp_attention__size(&call->in[0], a->chunk);
    if (a->chunk == a->query || a->chunk == a->key || a->chunk == a->feature || a->shift >= n) {
        return DTP_FAIL(err, DTP_INVALID, "chunk dim '%s' of size %lld with shift %lld",
                        dtp_dims_name(call->dims, a->chunk), (long long)n, (long long)a->shift);
    }
    return DTP_OK;
}

static dtp_status check_packed(const dtp_op_call *call, const dtp_attention_dims *a, dtp_err *err)
{
    DTP_TRY(dtp_attention__names(call, a, err));
    DTP_TRY(dtp_attention__need(call, 0, "query", a->query, err));
    DTP_TRY(dtp_attention__need(call, 0, "feature", a->feature, err));
    DTP_TRY(dtp_attention__need(call, 1, "key", a->key, err));
    DTP_TRY(dtp_attention__need(call, 1, "feature", a->feature, err));
    if (a->key != a->query) {
        DTP_TRY(dtp_attention__forbid(call, 0, "key", a->key, err));
        DTP_TRY(dtp_attention__forbid(call, 1, "query", a->query, err));
    }
    if (a->value != a->feature) {
        DTP_TRY(dtp_attention__forbid(call, 0, "value", a->value, err));
        DTP_TRY(dtp_attention__forbid(call, 1, "value", a->value, err));
    }
    const dtp_dim_id own[] = {a->feature, a->key == a->query ? -1 : a->key};
    DTP_TRY(dtp_attention__dims_in(call, 1, 0, own, err));
    DTP_TRY(check_chunk(call, a, err));
    if (dtp_attention_values(call, a) < 1) {
        return DTP_FAIL(err, DTP_INVALID,
                        "operand 1 holds %lld features: no values behind the %lld of a key",
                        (long long)dtp_attention__size(&call->in[1], a->feature),
                        (long long)dtp_attention_features(call, a));
    }
    int64_t chunks = a->chunk < 0 ? 1 : dtp_attention__size(&call->in[0], a->chunk);
    return dtp_attention__lengths(call, a, chunks * dtp_attention__size(&call->in[0], a->query),
                                  chunks * dtp_attention__size(&call->in[1], a->key), err);
}

static dtp_status infer_part(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_attention_dims a = dtp_attention_dims_of(call);
    DTP_TRY(check_packed(call, &a, err));
    return dtp_attention__infer(call, &a, has_out, out, err);
}

static dtp_status infer_grad(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_attention_dims a = dtp_attention_dims_of(call);
    DTP_TRY(check_packed(call, &a, err));
    return dtp_attention__infer_grad(call, &a, has_out, out, err);
}

/* Every dim of an lse is a dim of its out. */
static dtp_status infer_merge(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const dtp_ttype *lse = &call->in[1];
    const dtp_dim_id none[] = {-1, -1};
    DTP_TRY(dtp_op__need_float(call, 0, err));
    DTP_TRY(dtp_op__need_float(call, 1, err));
    DTP_TRY(dtp_attention__dims_in(call, 1, 0, none, err));
    DTP_TRY(dtp_rows__match(call, 2, "b", &call->in[0], false, err));
    DTP_TRY(dtp_rows__match(call, 3, "lse of b", lse, false, err));
    DTP_TRY(dtp_rows__set_out(call, has_out, &call->in[0], out, err));
    out[1] = *lse;
    return DTP_OK;
}

/* ---- rules and work ----------------------------------------------------------------------------
 */

static dtp_dim_role role_part(const dtp_op_call *call, dtp_dim_id d)
{
    dtp_attention_dims a = dtp_attention_dims_of(call);
    bool whole = d == a.key || d == a.feature || d == a.value;
    return (dtp_dim_role){whole ? DTP_ROLE_WHOLE : DTP_ROLE_PARALLEL, DTP_REDUCE_SUM};
}

/* Queries without a chunk dim, and grouped heads, are summed into dkv. */
static dtp_dim_role role_grad(const dtp_op_call *call, dtp_dim_id d)
{
    dtp_dim_role role = role_part(call, d);
    if (role.role == DTP_ROLE_PARALLEL && dtp_ttype_find(&call->in[1], d) < 0) {
        role.role = DTP_ROLE_REDUCED;
    }
    return role;
}

/* Keys that a query of the busiest rank sees under a causal mask. In a zigzag order every part of
 * the sequence sees half of every other part. In a contiguous one half of its own part and all of
 * an earlier part are seen; of all keys, the last n queries see all but the mean of their later
 * ones. */
static double keys_seen(const dtp_op_call *call, const dtp_attention_dims *a)
{
    double keys = (double)dtp_attention__size(&call->in[1], a->key);
    double queries = (double)dtp_attention__size(&call->in[0], a->query);
    if (!a->causal) {
        return keys;
    }
    if (dtp_call_int(call, "order") == DTP_ORDER_ZIGZAG || (a->chunk >= 0 && a->shift == 0)) {
        return 0.5 * keys;
    }
    return a->chunk >= 0 ? keys : keys - 0.5 * queries;
}

static void work_part(const dtp_op_call *call, dtp_work *out)
{
    dtp_attention_dims a = dtp_attention_dims_of(call);
    dtp_attention__work(call, keys_seen(call, &a), 1.0, 1.0, out);
}

static void work_grad(const dtp_op_call *call, dtp_work *out)
{
    dtp_attention_dims a = dtp_attention_dims_of(call);
    dtp_attention__work(call, keys_seen(call, &a), 3.0, 2.0, out);
}

static void work_merge(const dtp_op_call *call, dtp_work *out)
{
    dtp_rows__work(call, 3.0 * (double)dtp_ttype_elems(&call->in[0]), out);
}

const dtp_op_def dtp_ops_attention_part[] = {
    {.name = "attention_part",
     .summary = "attention to packed keys and values, all or those of another chunk",
     .min_in = 2,
     .max_in = 2,
     .n_out = 2,
     .flags = DTP_OP_INTERNAL_USE | DTP_OP_RENAMES,
     .attrs = ATTRS,
     .out_names = LSE_NAME,
     .infer = infer_part,
     .role = role_part,
     .work = work_part,
     .workspace = dtp_attention__workspace,
     .no_grad = DTP_NO_PART_GRAD},
    {.name = "attention_part_grad",
     .summary = "what these keys and values add to the gradient of attention",
     .min_in = 5,
     .max_in = 5,
     .n_out = 2,
     .flags = DTP_OP_INTERNAL_USE | DTP_OP_RENAMES,
     .attrs = ATTRS,
     .out_names = GRAD_NAMES,
     .infer = infer_grad,
     .role = role_grad,
     .work = work_grad,
     .workspace = dtp_attention__workspace,
     .no_grad = DTP_NO_PART_GRAD},
    {.name = "attention_merge",
     .summary = "attention to the keys of two parts from that to each",
     .min_in = 4,
     .max_in = 4,
     .n_out = 2,
     .flags = DTP_OP_INTERNAL_USE,
     .out_names = LSE_NAME,
     .infer = infer_merge,
     .work = work_merge,
     .no_grad = DTP_NO_PART_GRAD,
     .inplace_in = {1}},
};
const int32_t dtp_ops_attention_part_count =
    sizeof dtp_ops_attention_part / sizeof dtp_ops_attention_part[0];
