/* Products, attention. */
#include <string.h>

#include "importers/onnx/onnx_ops.h"

/* x w + bias as torch has it, with a weight of as many rows as there are results. */
static dtp_status linear(dtp_onnx_graph *o, bool turned, int32_t bias, dtp_err *err)
{
    int64_t turn[2] = {1, 0};
    int32_t w = o->in[1];
    o->g->values[w].turned = !turned && o->g->values[w].guessed; /* of nn.Linear */
    DTP_TRY(turned ? DTP_OK : dtp_onnx_permute(o, w, turn, &w, err));
    const dtp_shape rows = dtp_onnx_shape(o, w);
    const int32_t last = o->s.rank - 1;
    if (last < 0 || o->s.sizes[last] != rows.sizes[1]) {
        return dtp_onnx_unsupported("a product over axes of several sizes", err);
    }
    o->s.sizes[last] = rows.sizes[0];
    return EMIT(o, "aten.linear.default", &o->s, o->out, err, ARG_T("input", o->in[0]),
                ARG_T("weight", w), ARG_T("bias", bias));
}

dtp_status dtp_onnx__matmul(dtp_onnx_graph *o, dtp_err *err)
{
    dtp_shape b = dtp_onnx_shape(o, o->in[1]);
    const int32_t m = o->x.rank, n = b.rank;
    if (o->g->values[o->in[1]].role == ATEN_PARAM && n == 2) {
        return linear(o, false, -1, err);
    }
    if (m < 2 || n < 2 || o->x.sizes[m - 1] != b.sizes[n - 2]) {
        return dtp_onnx_unsupported("a product with a vector, or of several sizes", err);
    }
    o->s.sizes[m - 1] = b.sizes[n - 2] = 1;
    DTP_TRY(dtp_onnx_broadcast(&o->s, &b, err));
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("self", o->in[0]),
                ARG_T("other", o->in[1]));
}

dtp_status dtp_onnx__gemm(dtp_onnx_graph *o, dtp_err *err)
{
    if (dtp_onnx_real(o, "alpha", 1) != 1 || dtp_onnx_real(o, "beta", 1) != 1 ||
        dtp_onnx_int(o, "transA", 0) != 0 || dtp_onnx_shape(o, o->in[1]).rank != 2 ||
        (o->in[2] >= 0 && dtp_onnx_shape(o, o->in[2]).rank != 1)) {
        return dtp_onnx_unsupported("factors of a Gemm, or a bias that is no vector", err);
    }
    return linear(o, dtp_onnx_int(o, "transB", 0) != 0, o->in[2], err);
}

/* Queries, keys and values of four axes, as torch has them. */
dtp_status dtp_onnx__attention(dtp_onnx_graph *o, dtp_err *err)
{
    const dtp_shape v = dtp_onnx_shape(o, o->in[2]);
    if (o->s.rank != 4 || v.rank != 4 || o->n->in.n > 4 || dtp_onnx_real(o, "softcap", 0) != 0 ||
        o->n->out.n > 1) {
        return dtp_onnx_unsupported(
            "attention over heads that are not split, with a cache or a cap", err);
    }
    o->s.sizes[3] = v.sizes[3];
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("query", o->in[0]),
                ARG_T("key", o->in[1]), ARG_T("value", o->in[2]), ARG_T("attn_mask", o->in[3]),
                ARG_B("is_causal", dtp_onnx_int(o, "is_causal", 0)),
                ARG_R("scale", dtp_onnx_real(o, "scale", (double)NAN)));
}
