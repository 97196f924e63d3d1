/* Self-attention over a split sequence, as graphs of ops with a global meaning.
 *
 * gather: the keys get a dim name of their own, which the queries' split does not touch, so that
 * the lowering gathers them, and in the gradient reduces and scatters what the ranks add to them:
 *   kv = [k v];  out, lse = part(q, kv');  dq, dkv' = part_grad(q, kv', out, lse, dout)
 *
 * ring (Liu et al. 2023, Ring Attention): the sequence becomes (chunk, place in chunk) with one
 * chunk per rank; kv goes round by `roll` along chunk, one permute a step, W - 1 steps:
 *   kv(t) = roll(kv(t - 1), 1);  out, lse = merge over t of part(q, kv(t), shift t)
 *   dkv(t) = roll(dkv(t - 1), 1) + what step t adds to it;  dkv = roll(dkv(W - 1), 1)
 *
 * k and v travel as one tensor. A ring needs equal chunks; where the ranks do not divide the
 * sequence, gather is used instead.
 */
#include "core/graph/ops/attention_split.h"

#include <math.h>
#include <string.h>

#include "core/graph/ops/rows.h"

dtp_attention_dims dtp_attention_dims_of(const dtp_op_call *call)
{
    dtp_attention_dims a = {.query = dtp_call_dim(call, "query"),
                            .key = dtp_call_dim(call, "key"),
                            .feature = dtp_call_dim(call, "feature"),
                            .value = dtp_call_dim(call, "value"),
                            .chunk = -1,
                            .causal = dtp_call_int(call, "causal") != 0,
                            .scale = dtp_call_float(call, "scale")};
    a.key = a.key < 0 ? a.query : a.key;
    a.value = a.value < 0 ? a.feature : a.value;
    if (a.scale == 0.0) {
        a.scale = 1.0 / sqrt((double)dtp_ttype_size(&call->in[0], a.feature));
    }
    for (int32_t i = 0; i < call->n_attrs; i++) {
        if (strcmp(call->attrs[i].key, "chunk") == 0) {
            a.packed = true;
            a.chunk = (dtp_dim_id)call->attrs[i].i;
            a.shift = dtp_call_int(call, "shift");
        }
    }
    /* q, k, v; with out, lse, dout; neither with kv. */
    const bool masked = !a.packed && (call->n_in == 4 || call->n_in == 7);
    a.mask = masked ? call->n_in - 1 : -1;
    return a;
}

int64_t dtp_attention_features(const dtp_op_call *call, const dtp_attention_dims *a)
{
    return dtp_ttype_size(&call->in[0], a->feature);
}

int64_t dtp_attention_values(const dtp_op_call *call, const dtp_attention_dims *a)
{
    return a->packed ? dtp_ttype_size(&call->in[1], a->feature) - dtp_attention_features(call, a)
                     : dtp_ttype_size(&call->in[2], a->value);
}

static const char CHUNK[] = "_chunk", WITHIN[] = "_within", KEY[] = "_key";

enum { N_PART_ATTRS = 10 };

/* One decomposition under construction. */
typedef struct attention_split {
    dtp_graph *g;
    const dtp_op_call *call;
    dtp_attention_dims a;
    int64_t parts; /* chunks of a ring; 0: gather */
    dtp_dim_id chunk, within, key;
    int64_t features, values;
} attention_split;

static bool is_ring(const attention_split *s)
{
    return s->parts > 0;
}

static dtp_status begin(attention_split *s, dtp_graph *g, const dtp_op_call *call, dtp_err *err)
{
    *s = (attention_split){.g = g, .call = call, .a = dtp_attention_dims_of(call)};
    const int64_t n = dtp_ttype_size(&call->in[0], s->a.query);
    if (dtp_call_int(call, "context") == DTP_CONTEXT_RING && call->parts > 1 &&
        n % call->parts == 0 && call->in[0].rank < DTP_MAX_RANK) {
        s->parts = call->parts;
    }
    s->features = dtp_attention_features(call, &s->a);
    s->values = dtp_attention_values(call, &s->a);
    DTP_TRY(dtp_dims_intern(&g->dims, CHUNK, 0, &s->chunk, err));
    DTP_TRY(dtp_dims_intern(&g->dims, WITHIN, 0, &s->within, err));
    return dtp_dims_intern(&g->dims, KEY, 0, &s->key, err);
}

/* ---- moving dims ---- */

static dtp_status emit_shaped(const attention_split *s, const char *op, dtp_tensor_id x,
                              const dtp_ttype *shape, dtp_tensor_id *out, dtp_err *err)
{
    const char *name = dtp_arena_printf(s->g->arena, "_part.%d.%s", s->g->n_nodes, op);
    DTP_TRY(DTP_MEMORY(err, name));
    dtp_node_spec spec = dtp_node_spec_init(name, op);
    spec.n_in = 1;
    spec.in = &x;
    spec.out = shape;
    return dtp_graph_add_node(s->g, &spec, out, err);
}

static dtp_ttype renamed(const dtp_ttype *type, dtp_dim_id from, dtp_tdim to)
{
    dtp_ttype out = *type;
    int32_t axis = dtp_ttype_find(type, from);
    out.dims[axis] = to;
    return out;
}

/* x with its dims in the order of `shape` and, position by position, the names of `shape`; `from`
 * in x is `to` in the shape. */
static dtp_status arrange(const attention_split *s, dtp_tensor_id x, dtp_dim_id from, dtp_dim_id to,
                          const dtp_ttype *shape, dtp_tensor_id *out, dtp_err *err)
{
    dtp_ttype moved = *shape;
    int32_t axis = dtp_ttype_find(shape, to);
    moved.dims[axis].id = from;
    if (!dtp_ttype_equal(&moved, &s->g->tensors[x].type)) {
        DTP_TRY(emit_shaped(s, "einsum", x, &moved, &x, err));
    }
    *out = x;
    return from == to ? DTP_OK : emit_shaped(s, "relabel", x, shape, out, err);
}

/* The tensor as the parts want it: cut into chunks for a ring. */
static dtp_status cut(const attention_split *s, dtp_tensor_id x, dtp_tensor_id *out, dtp_err *err)
{
    const dtp_ttype type = s->g->tensors[x].type;
    dtp_ttype shape = {.dtype = type.dtype};
    *out = x;
    if (!is_ring(s)) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < type.rank; i++) {
        if (type.dims[i].id == s->a.query) {
            shape.dims[shape.rank++] = (dtp_tdim){s->chunk, s->parts};
            shape.dims[shape.rank++] = (dtp_tdim){s->within, type.dims[i].size / s->parts};
        } else {
            shape.dims[shape.rank++] = type.dims[i];
        }
    }
    return emit_shaped(s, "relabel", x, &shape, out, err);
}

/* Back to a type with the sequence in one piece. */
static dtp_status join(const attention_split *s, dtp_tensor_id x, const dtp_ttype *type,
                       dtp_tensor_id *out, dtp_err *err)
{
    *out = x;
    return dtp_ttype_equal(&s->g->tensors[x].type, type)
               ? DTP_OK
               : emit_shaped(s, "relabel", x, type, out, err);
}

static dtp_status pack(const attention_split *s, dtp_tensor_id k, dtp_tensor_id v,
                       dtp_tensor_id *out, dtp_err *err)
{
    const dtp_attr dim = dtp_attr_dim("dim", s->a.feature);
    const dtp_ttype shape =
        renamed(&s->call->in[1], s->a.feature, (dtp_tdim){s->a.feature, s->values});
    dtp_tensor_id both[] = {k, -1}, kv = -1;
    DTP_TRY(arrange(s, v, s->a.value, s->a.feature, &shape, &both[1], err));
    DTP_TRY(dtp_rows__emit(s->g, "concat", 2, both, 1, &dim, &kv, err));
    if (is_ring(s)) {
        return cut(s, kv, out, err);
    }
    const dtp_ttype *type = &s->g->tensors[kv].type;
    const dtp_ttype own =
        renamed(type, s->a.query, (dtp_tdim){s->key, dtp_ttype_size(type, s->a.query)});
    return emit_shaped(s, "relabel", kv, &own, out, err);
}

static dtp_status emit_slice(const attention_split *s, dtp_tensor_id x, int64_t start, int64_t n,
                             dtp_tensor_id *out, dtp_err *err)
{
    const dtp_attr attrs[] = {dtp_attr_dim("dim", s->a.feature), dtp_attr_int("start", start),
                              dtp_attr_int("stop", start + n)};
    return dtp_rows__emit(s->g, "slice", 1, &x, 3, attrs, out, err);
}

/* dkv as dk and dv. */
static dtp_status unpack(const attention_split *s, dtp_tensor_id dkv, dtp_tensor_id *dk,
                         dtp_tensor_id *dv, dtp_err *err)
{
    /* Type of kv with the sequence in one piece. */
    const dtp_ttype type =
        renamed(&s->call->in[1], s->a.feature, (dtp_tdim){s->a.feature, s->features + s->values});
    const dtp_ttype *v = &s->call->in[2];
    DTP_TRY(join(s, dkv, &type, &dkv, err));
    DTP_TRY(emit_slice(s, dkv, 0, s->features, dk, err));
    DTP_TRY(emit_slice(s, dkv, s->features, s->values, dv, err));
    if (s->a.value != s->a.feature) {
        const dtp_ttype named =
            renamed(&s->g->tensors[*dv].type, s->a.feature, (dtp_tdim){s->a.value, s->values});
        DTP_TRY(emit_shaped(s, "relabel", *dv, &named, dv, err));
    }
    return arrange(s, *dv, s->a.value, s->a.value, v, dv, err);
}

/* ---- the parts ---- */

static dtp_status emit_part(const attention_split *s, const char *op, int32_t n_in,
                            const dtp_tensor_id *in, int64_t shift, dtp_tensor_id *outs,
                            dtp_err *err)
{
    const bool ring = is_ring(s);
    const dtp_attr attrs[N_PART_ATTRS] = {dtp_attr_dim("query", ring ? s->within : s->a.query),
                                          dtp_attr_dim("key", ring ? s->within : s->key),
                                          dtp_attr_dim("feature", s->a.feature),
                                          dtp_attr_dim("value", s->a.value),
                                          *dtp_call_attr(s->call, "causal"),
                                          *dtp_call_attr(s->call, "scale"),
                                          *dtp_call_attr(s->call, "order"),
                                          *dtp_call_attr(s->call, "chunks"),
                                          dtp_attr_dim("chunk", ring ? s->chunk : -1),
                                          dtp_attr_int("shift", shift)};
    return dtp_rows__emit(s->g, op, n_in, in, N_PART_ATTRS, attrs, outs, err);
}

static dtp_status emit_roll(const attention_split *s, dtp_tensor_id x, dtp_tensor_id *out,
                            dtp_err *err)
{
    const dtp_attr attrs[] = {dtp_attr_dim("dim", s->chunk), dtp_attr_int("shift", 1)};
    return dtp_rows__emit(s->g, "roll", 1, &x, 2, attrs, out, err);
}

dtp_status dtp_attention__split(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                int32_t *outs, dtp_err *err)
{
    attention_split s;
    dtp_tensor_id in[2], kv = -1, all[4] = {-1, -1, -1, -1};
    DTP_TRY(begin(&s, g, call, err));
    DTP_TRY(cut(&s, ins[0], &in[0], err));
    DTP_TRY(pack(&s, ins[1], ins[2], &kv, err));
    for (int64_t t = 0; t == 0 || t < s.parts; t++) {
        in[1] = kv;
        if (t + 1 < s.parts) {
            DTP_TRY(emit_roll(&s, kv, &kv, err));
        }
        DTP_TRY(emit_part(&s, "attention_part", 2, in, t, t == 0 ? all : all + 2, err));
        if (t > 0) {
            DTP_TRY(dtp_rows__emit(g, "attention_merge", 4, all, 0, NULL, all, err));
        }
    }
    DTP_TRY(join(&s, all[0], &call->out[0], &outs[0], err));
    return join(&s, all[1], &call->out[1], &outs[1], err);
}

/* Adds `more` to the sum so far; -1: there is none. */
static dtp_status add_to(const attention_split *s, dtp_tensor_id more, dtp_tensor_id *sum,
                         dtp_err *err)
{
    const dtp_tensor_id both[] = {*sum, more};
    if (*sum < 0) {
        *sum = more;
        return DTP_OK;
    }
    return dtp_rows__emit(s->g, "add", 2, both, 0, NULL, sum, err);
}

/* Operands of the gradient: q, k, v, out, lse, dout; of its parts: q, kv, out, lse, dout. */
dtp_status dtp_attention__split_grad(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                     int32_t *outs, dtp_err *err)
{
    attention_split s;
    dtp_tensor_id in[5], kv = -1, dq = -1, dkv = -1, step[2];
    DTP_TRY(begin(&s, g, call, err));
    DTP_TRY(cut(&s, ins[0], &in[0], err));
    DTP_TRY(pack(&s, ins[1], ins[2], &kv, err));
    for (int32_t i = 2; i < 5; i++) {
        DTP_TRY(cut(&s, ins[i + 1], &in[i], err));
    }
    for (int64_t t = 0; t == 0 || t < s.parts; t++) {
        in[1] = kv;
        if (t + 1 < s.parts) {
            DTP_TRY(emit_roll(&s, kv, &kv, err));
        }
        if (t > 0) {
            DTP_TRY(emit_roll(&s, dkv, &dkv, err));
        }
        DTP_TRY(emit_part(&s, "attention_part_grad", 5, in, t, step, err));
        DTP_TRY(add_to(&s, step[0], &dq, err));
        DTP_TRY(add_to(&s, step[1], &dkv, err));
    }
    if (is_ring(&s)) {
        DTP_TRY(emit_roll(&s, dkv, &dkv, err));
    }
    DTP_TRY(join(&s, dq, &call->in[0], &outs[0], err));
    return unpack(&s, dkv, &outs[1], &outs[2], err);
}
