/* Convolutions, pools, batch norm by given statistics, images of other sizes. */
#include <math.h>
#include <string.h>

#include "importers/onnx/onnx_ops.h"

enum { MOST_AXES = 3, MOST = 1 << 30 };

/* The spatial axes of a node: windows, and padding on both sides. */
typedef struct windows {
    int32_t n;
    int64_t size[MOST_AXES], stride[MOST_AXES], dilation[MOST_AXES];
    int64_t pads[2][MOST_AXES]; /* before, after */
    bool even;                  /* the same on both sides */
} windows;

static bool entries(const dtp_onnx_graph *o, const char *name, int32_t n, int64_t least,
                    int64_t usual, int64_t *out)
{
    const dtp_pb_ints *list = &dtp_onnx_attr_of(o, name)->ints;
    bool fits = list->n == 0 || list->n == n;
    for (int32_t i = 0; i < n && fits; i++) {
        out[i] = list->n == 0 ? usual : list->of[i];
        fits = out[i] >= least && out[i] <= MOST;
    }
    return fits;
}

/* `kernel`: sizes of the windows, NULL: what "kernel_shape" says. */
static dtp_status windows_of(const dtp_onnx_graph *o, const int64_t *kernel, windows *w,
                             dtp_err *err)
{
    const char *way = dtp_onnx_attr_of(o, "auto_pad")->text;
    const bool upper = strcmp(way, "SAME_UPPER") == 0, lower = strcmp(way, "SAME_LOWER") == 0;
    const int32_t n = w->n = o->x.rank - 2;
    int64_t pads[2 * MOST_AXES] = {0};
    bool fits = n >= 1 && n <= MOST_AXES && o->x.rank == o->s.rank &&
                entries(o, "strides", n, 1, 1, w->stride) &&
                entries(o, "dilations", n, 1, 1, w->dilation) &&
                entries(o, "pads", 2 * n, 0, 0, pads) &&
                (kernel != NULL || entries(o, "kernel_shape", n, 1, 0, w->size));
    w->even = true;
    for (int32_t i = 0; i < n && fits; i++) {
        const int64_t in = o->x.sizes[2 + i], by = w->stride[i];
        w->size[i] = kernel != NULL ? kernel[i] : w->size[i];
        fits = w->size[i] >= 1 && w->size[i] <= MOST && in >= 1 && in <= INT64_C(1) << 40;
        w->pads[0][i] = pads[i];
        w->pads[1][i] = pads[n + i];
        if (fits && (upper || lower)) {
            const int64_t places = (in + by - 1) / by;
            int64_t all = (places - 1) * by + (w->size[i] - 1) * w->dilation[i] + 1 - in;
            all = all < 0 ? 0 : all;
            w->pads[upper ? 0 : 1][i] = all / 2;
            w->pads[upper ? 1 : 0][i] = all - all / 2;
        }
        w->even = w->even && w->pads[0][i] == w->pads[1][i];
    }
    return fits ? DTP_OK
                : dtp_onnx_unsupported("windows over other than 1 to 3 axes, or whose sizes, "
                                       "strides or paddings do not go together",
                                       err);
}

/* o->s has as many places as windows fit into o->x. */
static dtp_status places(dtp_onnx_graph *o, const windows *w, bool ceil, dtp_err *err)
{
    for (int32_t i = 0; i < w->n; i++) {
        const int64_t in = o->x.sizes[2 + i] + w->pads[0][i];
        const int64_t left = in + w->pads[1][i] - (w->size[i] - 1) * w->dilation[i] - 1;
        int64_t n = left / w->stride[i] + 1;
        n += ceil && left % w->stride[i] != 0 && n * w->stride[i] < in ? 1 : 0;
        if (left < 0) {
            return dtp_onnx_unsupported("windows that are larger than the image", err);
        }
        o->s.sizes[2 + i] = n;
    }
    return DTP_OK;
}

/* Paddings that differ are a tensor with more elements. */
static dtp_status padded(dtp_onnx_graph *o, windows *w, int32_t *x, dtp_err *err)
{
    int64_t by[2 * MOST_AXES];
    dtp_shape s = o->x;
    if (w->even) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < w->n; i++) { /* the last axis first */
        const int32_t axis = w->n - 1 - i;
        for (int32_t k = 0; k < 2; k++) {
            by[2 * i + k] = w->pads[k][axis];
            s.sizes[2 + axis] += w->pads[k][axis];
            w->pads[k][axis] = 0;
        }
    }
    return EMIT(o, "aten.constant_pad_nd.default", &s, x, err, ARG_T("self", *x),
                ARG_L("pad", 2 * w->n, by), ARG_I("value", 0));
}

dtp_status dtp_onnx__conv(dtp_onnx_graph *o, dtp_err *err)
{
    static const char *const ops[] = {"aten.conv1d.default", "aten.conv2d.default",
                                      "aten.conv3d.default"};
    const dtp_shape kernel = dtp_onnx_shape(o, o->in[1]);
    windows w;
    int32_t x = o->in[0];
    if (kernel.rank != o->x.rank || kernel.rank < 3) {
        return dtp_onnx_unsupported("a kernel of another rank than the image", err);
    }
    DTP_TRY(windows_of(o, &kernel.sizes[2], &w, err));
    DTP_TRY(places(o, &w, false, err));
    DTP_TRY(padded(o, &w, &x, err));
    o->s.sizes[1] = kernel.sizes[0];
    return EMIT(o, ops[w.n - 1], &o->s, o->out, err, ARG_T("input", x), ARG_T("weight", o->in[1]),
                ARG_T("bias", o->in[2]), ARG_L("stride", w.n, w.stride),
                ARG_L("padding", w.n, w.pads[0]), ARG_L("dilation", w.n, w.dilation),
                ARG_I("groups", dtp_onnx_int(o, "group", 1)));
}

/* More padding before than after is padding of the output. */
dtp_status dtp_onnx__conv_transpose(dtp_onnx_graph *o, dtp_err *err)
{
    static const char *const ops[] = {"aten.conv_transpose1d.default",
                                      "aten.conv_transpose2d.input", "aten.conv_transpose3d.input"};
    const dtp_shape kernel = dtp_onnx_shape(o, o->in[1]);
    const int64_t groups = dtp_onnx_int(o, "group", 1);
    int64_t more[MOST_AXES];
    windows w;
    if (kernel.rank != o->x.rank || kernel.rank < 3 || groups < 1 || groups > MOST ||
        dtp_onnx_attr_of(o, "auto_pad")->text[0] == 'S') {
        return dtp_onnx_unsupported("a kernel of another rank than the image, or auto_pad", err);
    }
    DTP_TRY(windows_of(o, &kernel.sizes[2], &w, err));
    bool fits =
        entries(o, "output_padding", w.n, 0, 0, more) && kernel.sizes[1] <= INT64_MAX / groups;
    for (int32_t i = 0; i < w.n && fits; i++) {
        more[i] += w.pads[0][i] - w.pads[1][i];
        o->s.sizes[2 + i] = (o->x.sizes[2 + i] - 1) * w.stride[i] +
                            (w.size[i] - 1) * w.dilation[i] + 1 - 2 * w.pads[0][i] + more[i];
        fits = more[i] >= 0 && o->s.sizes[2 + i] >= 1;
    }
    if (!fits) {
        return dtp_onnx_unsupported("paddings of the output that do not fit", err);
    }
    o->s.sizes[1] = kernel.sizes[1] * groups;
    return EMIT(o, ops[w.n - 1], &o->s, o->out, err, ARG_T("input", o->in[0]),
                ARG_T("weight", o->in[1]), ARG_T("bias", o->in[2]), ARG_L("stride", w.n, w.stride),
                ARG_L("padding", w.n, w.pads[0]), ARG_L("output_padding", w.n, more),
                ARG_I("groups", groups), ARG_L("dilation", w.n, w.dilation));
}

dtp_status dtp_onnx__pool(dtp_onnx_graph *o, dtp_err *err)
{
    static const char *const ops[][MOST_AXES] = {
        {"aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default"},
        {"aten.max_pool1d.default", "aten.max_pool2d.default", "aten.max_pool3d.default"}};
    const bool max = strcmp(o->n->op, "MaxPool") == 0;
    const int64_t ceil = dtp_onnx_int(o, "ceil_mode", 0);
    windows w;
    DTP_TRY(windows_of(o, NULL, &w, err));
    if (!w.even || o->n->out.n != 1) {
        return dtp_onnx_unsupported("a pool with other paddings before than after, or indices",
                                    err);
    }
    DTP_TRY(places(o, &w, ceil != 0, err));
    if (max) {
        return EMIT(o, ops[1][w.n - 1], &o->s, o->out, err, ARG_T("self", o->in[0]),
                    ARG_L("kernel_size", w.n, w.size), ARG_L("stride", w.n, w.stride),
                    ARG_L("padding", w.n, w.pads[0]), ARG_L("dilation", w.n, w.dilation),
                    ARG_B("ceil_mode", ceil));
    }
    for (int32_t i = 0; i < w.n; i++) {
        if (w.dilation[i] != 1) {
            return dtp_onnx_unsupported("a mean over windows with gaps", err);
        }
    }
    return EMIT(o, ops[0][w.n - 1], &o->s, o->out, err, ARG_T("self", o->in[0]),
                ARG_L("kernel_size", w.n, w.size), ARG_L("stride", w.n, w.stride),
                ARG_L("padding", w.n, w.pads[0]), ARG_B("ceil_mode", ceil),
                ARG_B("count_include_pad", dtp_onnx_int(o, "count_include_pad", 0)));
}

dtp_status dtp_onnx__global_pool(dtp_onnx_graph *o, dtp_err *err)
{
    int64_t dims[DTP_MAX_RANK];
    for (int32_t i = 2; i < o->x.rank; i++) {
        dims[i - 2] = i;
        o->s.sizes[i] = 1;
    }
    if (o->x.rank < 3) {
        return dtp_onnx_unsupported("a pool without axes", err);
    }
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("self", o->in[0]),
                ARG_L("dim", o->x.rank - 2, dims), ARG_B("keepdim", 1));
}

/* Statistics are not trained. */
dtp_status dtp_onnx__batch_norm(dtp_onnx_graph *o, dtp_err *err)
{
    if (o->n->out.n != 1) {
        return dtp_onnx_unsupported("a batch norm that gives statistics", err);
    }
    for (int32_t i = 3; i < 5; i++) {
        dtp_aten_value *v = &o->g->values[o->in[i]];
        v->frozen = v->frozen || v->role == ATEN_PARAM;
    }
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("input", o->in[0]),
                ARG_T("weight", o->in[1]), ARG_T("bias", o->in[2]), ARG_T("running_mean", o->in[3]),
                ARG_T("running_var", o->in[4]), ARG_R("eps", dtp_onnx_real(o, "epsilon", 1e-5)));
}

/* ---- other sizes ---- */

/* o->s has the sizes that operand 3 gives, or operand 2 as factors; scale[]: those of the spatial
 * axes, NaN where sizes are given. */
static dtp_status resized(dtp_onnx_graph *o, double *scale, dtp_err *err)
{
    const int32_t factors = o->n->in.n > 2 ? o->in[2] : -1, n = o->x.rank;
    if (factors >= 0 && o->g->values[factors].role == ATEN_PARAM) { /* no weight */
        o->g->values[factors].role = ATEN_BUFFER;
        DTP_TRY(dtp_const_buffer(&o->fold, factors, err));
    }
    const dtp_const *c = factors >= 0 ? &o->fold.c[factors] : NULL;
    const dtp_shape s = dtp_onnx_shape(o, factors);
    bool same = n >= 3 && n - 2 <= MOST_AXES;
    if (o->n->in.n > 3 && o->in[3] >= 0) {
        DTP_TRY(dtp_onnx_sizes(o, 3, err));
        same = same && o->s.rank == n;
        c = NULL;
    } else if (c == NULL || s.rank != 1 || s.sizes[0] != n || !dtp_const_known(c)) {
        return dtp_onnx_unsupported("factors that are not known", err);
    }
    for (int32_t i = 0; i < n && same; i++) {
        const double by = c == NULL ? (double)NAN : dtp_const_at(c, i * c->strides[0]);
        const double size = c == NULL ? (double)o->s.sizes[i] : floor((double)o->x.sizes[i] * by);
        same = size >= 1 && size <= MOST && (i >= 2 || size == (double)o->x.sizes[i]);
        o->s.sizes[i] = same ? (int64_t)size : 1;
        scale[i < 2 ? 0 : i - 2] = by;
    }
    return same ? DTP_OK : dtp_onnx_unsupported("other sizes than those of an image", err);
}

/* Elements that are repeated, or values between them. */
dtp_status dtp_onnx__resize(dtp_onnx_graph *o, dtp_err *err)
{
    static const char *const ops[][MOST_AXES] = {
        {"aten.upsample_nearest1d.vec", "aten.upsample_nearest2d.vec",
         "aten.upsample_nearest3d.vec"},
        {"aten.upsample_linear1d.vec", "aten.upsample_bilinear2d.vec",
         "aten.upsample_trilinear3d.vec"}};
    static const char *const names[MOST_AXES][MOST_AXES] = {
        {"scales"}, {"scales_h", "scales_w"}, {"scales_d", "scales_h", "scales_w"}};
    const char *mode = dtp_onnx_attr_of(o, "mode")->text;
    const char *of = dtp_onnx_attr_of(o, "coordinate_transformation_mode")->text;
    const char *nearest = dtp_onnx_attr_of(o, "nearest_mode")->text;
    const bool linear = strcmp(mode, "linear") == 0, half = of[0] == '\0' || of[0] == 'h';
    const bool corners = strcmp(of, "align_corners") == 0;
    double scale[MOST_AXES];
    DTP_TRY(resized(o, scale, err));
    const int32_t n = o->x.rank - 2;
    bool fits = linear ? half || corners || strcmp(of, "pytorch_half_pixel") == 0
                       : (mode[0] == '\0' || strcmp(mode, "nearest") == 0) &&
                             (strcmp(nearest, "floor") == 0 ? strcmp(of, "asymmetric") == 0 : half);
    for (int32_t i = 0; i < n && fits; i++) {
        const int64_t in = o->x.sizes[2 + i], out = o->s.sizes[2 + i];
        /* PyTorch's half pixel of a single element is its first one */
        fits = linear ? half || corners || out > 1 || in == 1 : in > 0 && out % in == 0;
    }
    if (!fits) {
        return dtp_onnx_unsupported("a mode of resizing other than linear, or nearest by a whole "
                                    "factor, of pixels that have their middle at a half",
                                    err);
    }
    const double more[MOST_AXES] = {scale[0], n > 1 ? scale[1] : (double)NAN,
                                    n > 2 ? scale[2] : (double)NAN};
    if (!linear) {
        return EMIT(o, ops[0][n - 1], &o->s, o->out, err, ARG_T("self", o->in[0]),
                    ARG_L("output_size", n, &o->s.sizes[2]));
    }
    return EMIT(o, ops[1][n - 1], &o->s, o->out, err, ARG_T("self", o->in[0]),
                ARG_L("output_size", n, &o->s.sizes[2]), ARG_B("align_corners", corners),
                ARG_R(names[n - 1][0], more[0]), ARG_R(names[n - 1][n > 1 ? 1 : 0], more[1]),
                ARG_R(names[n - 1][n > 2 ? 2 : 0], more[2]));
}
