/* Products, convolutions, attention. */
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

/* Patches alone: a stride that is the kernel, no padding. */
dtp_status dtp_onnx__conv(dtp_onnx_graph *o, dtp_err *err)
{
    static const char *const ops[] = {"aten.conv1d.default", "aten.conv2d.default",
                                      "aten.conv3d.default"};
    const dtp_shape w = dtp_onnx_shape(o, o->in[1]);
    const dtp_pb_ints *strides = &dtp_onnx_attr_of(o, "strides")->ints,
                      *pads = &dtp_onnx_attr_of(o, "pads")->ints;
    const dtp_pb_ints *by = &dtp_onnx_attr_of(o, "dilations")->ints;
    const int32_t k = o->s.rank - 2;
    bool fits = k >= 1 && k <= 3 && w.rank == o->s.rank && strides->n == k &&
                dtp_onnx_int(o, "group", 1) == 1 && dtp_onnx_attr_of(o, "auto_pad")->text[0] != 'S';
    for (int32_t i = 0; fits && i < k; i++) {
        fits = strides->of[i] > 0 && strides->of[i] == w.sizes[i + 2] &&
               (by->n <= i || by->of[i] == 1);
        o->s.sizes[i + 2] /= fits ? w.sizes[i + 2] : 1;
    }
    for (int32_t i = 0; i < pads->n; i++) {
        fits = fits && pads->of[i] == 0;
    }
    if (!fits) {
        return dtp_onnx_unsupported(
            "a convolution other than one whose stride is its kernel, without padding, "
            "dilation and groups, where the image is whole patches of it",
            err);
    }
    o->s.sizes[1] = w.sizes[0];
    return EMIT(o, ops[k - 1], &o->s, o->out, err, ARG_T("input", o->in[0]),
                ARG_T("weight", o->in[1]), ARG_T("bias", o->in[2]),
                ARG_L("stride", k, strides->of));
}
