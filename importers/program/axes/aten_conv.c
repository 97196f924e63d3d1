/* Convolutions and pools of ATen, read and checked, and their axes. */
#include "importers/program/axes/aten_conv.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/text.h"
#include "importers/program/axes/aten_axes.h"

enum { MOST = 1 << 30 }; /* of a stride, a dilation, a padding */

/* Entry i of a list, of which one entry stands for all; `def` where there is none. */
static int64_t entry(const dtp_aten_node *node, const char *name, int32_t n, int32_t i, int64_t def)
{
    const dtp_aten_arg *a = dtp_aten_arg_of(node, name);
    const int32_t at = a == NULL || a->n != 1 ? i : 0;
    if (a == NULL || a->n == 0 || (a->kind != ATEN_INTS && a->kind != ATEN_INT)) {
        return def;
    }
    return a->n == 1 || a->n == n ? a->ints[at] : -1;
}

/* Padding of axis i; of the text "same" as much as keeps the size. */
static bool paddings(const dtp_aten_node *node, dtp_aten_conv *c, int32_t i, int64_t kernel)
{
    const dtp_aten_arg *a = dtp_aten_arg_of(node, "padding");
    const bool text = a != NULL && a->kind == ATEN_TEXT && a->text != NULL;
    const int64_t more = c->transposed ? entry(node, "output_padding", c->n, i, 0) : 0;
    int64_t by = text ? 0 : entry(node, "padding", c->n, i, 0), all = 2 * by;
    if (text && strcmp(a->text, "same") == 0) {
        all = (kernel - 1) * c->dilation[i];
        by = all / 2;
        if (c->stride[i] != 1) {
            return false;
        }
    } else if (text && strcmp(a->text, "valid") != 0) {
        return false;
    }
    c->before[i] = by;
    c->after[i] = all - by - more;
    return by >= 0 && by <= MOST && more >= 0 && more <= MOST;
}

static bool axis_fits(const dtp_aten_conv *c, int32_t i, int64_t in, int64_t kernel, int64_t out)
{
    const int64_t reach = (kernel - 1) * c->dilation[i] + 1;
    const int64_t large = c->transposed ? out : in, small = c->transposed ? in : out;
    if (c->transposed) {
        return (small - 1) * c->stride[i] + reach - c->before[i] - c->after[i] == large;
    }
    const int64_t left = large + c->before[i] + c->after[i] - reach;
    return left >= 0 && left / c->stride[i] + 1 == small;
}

dtp_status dtp_aten_conv_of(const dtp_aten *g, const dtp_aten_node *node, dtp_aten_conv *c,
                            dtp_err *err)
{
    *c = (dtp_aten_conv){.x = dtp_aten_input(node, 0),
                         .w = dtp_aten_operand(node, "weight"),
                         .bias = dtp_aten_operand(node, "bias"),
                         .transposed = strncmp(node->op, "aten.conv_transpose", 19) == 0 ||
                                       dtp_aten_int(node, "transposed", 0) != 0,
                         .groups = dtp_aten_int(node, "groups", 1)};
    const dtp_aten_value *x = c->x < 0 ? NULL : &g->values[c->x];
    const dtp_aten_value *w = c->w < 0 ? NULL : &g->values[c->w];
    const dtp_aten_value *out = &g->values[node->outs[0]];
    c->n = w == NULL ? 0 : w->rank - 2;
    c->channels = x == NULL ? -1 : x->rank - c->n - 1;
    if (x == NULL || w == NULL || c->n < 1 || c->n > DTP_ATEN_CONV_AXES || c->channels < 0 ||
        c->channels > 1 || out->rank != x->rank || c->groups < 1 || !dtp_aten_real_type(x->dtype)) {
        return DTP_FAIL(
            err, DTP_UNSUPPORTED,
            "a convolution of other operands than an image and a kernel of 1 to 3 axes");
    }
    const int64_t in = x->sizes[c->channels], made = out->sizes[c->channels];
    const int64_t rows = c->transposed ? in : made, columns = c->transposed ? made : in;
    bool fits =
        w->sizes[0] == rows && rows % c->groups == 0 && columns % c->groups == 0 &&
        w->sizes[1] == columns / c->groups &&
        (c->bias < 0 || (g->values[c->bias].rank == 1 && g->values[c->bias].sizes[0] == made)) &&
        (c->channels == 0 || x->sizes[0] == out->sizes[0]);
    for (int32_t i = 0; i < c->n && fits; i++) {
        const int32_t axis = c->channels + 1 + i;
        const int64_t k = w->sizes[2 + i], most = INT64_C(1) << 40;
        c->stride[i] = entry(node, "stride", c->n, i, 1);
        c->dilation[i] = entry(node, "dilation", c->n, i, 1);
        fits = c->stride[i] >= 1 && c->stride[i] <= MOST && c->dilation[i] >= 1 &&
               c->dilation[i] <= MOST && k >= 1 && k <= MOST && x->sizes[axis] >= 1 &&
               x->sizes[axis] <= most && out->sizes[axis] >= 1 && out->sizes[axis] <= most &&
               paddings(node, c, i, k) && c->after[i] <= MOST && c->after[i] >= -MOST &&
               axis_fits(c, i, x->sizes[axis], k, out->sizes[axis]);
    }
    return fits ? DTP_OK
                : DTP_FAIL(err, DTP_UNSUPPORTED,
                           "a convolution whose sizes, strides or paddings do not go together");
}

/* Padding behind x is what the last window reaches over: with ceil_mode more than before x. */
dtp_status dtp_aten_pool_of(const dtp_aten *g, const dtp_aten_node *node, dtp_aten_pool *p,
                            dtp_err *err)
{
    const int64_t most = INT64_C(1) << 40;
    *p = (dtp_aten_pool){.x = dtp_aten_input(node, 0),
                         .max = strncmp(node->op, "aten.max", 8) == 0,
                         .inside = dtp_aten_int(node, "count_include_pad", 1) == 0};
    const dtp_aten_value *x = p->x < 0 ? NULL : &g->values[p->x];
    const dtp_aten_value *out = &g->values[node->outs[0]];
    p->n = strstr(node->op, "1d") != NULL ? 1 : strstr(node->op, "2d") != NULL ? 2 : 3;
    bool fits = x != NULL && node->n_outs == 1 && x->rank == out->rank && x->rank >= p->n &&
                dtp_aten_real_type(x->dtype);
    for (int32_t i = 0; fits && i < x->rank - p->n; i++) {
        fits = x->sizes[i] == out->sizes[i];
    }
    for (int32_t i = 0; i < p->n && fits; i++) {
        const int64_t in = x->sizes[x->rank - p->n + i], n = out->sizes[x->rank - p->n + i];
        p->size[i] = entry(node, "kernel_size", p->n, i, -1);
        p->stride[i] = entry(node, "stride", p->n, i, p->size[i]);
        p->dilation[i] = entry(node, "dilation", p->n, i, 1);
        p->before[i] = entry(node, "padding", p->n, i, 0);
        fits = p->size[i] >= 1 && p->size[i] <= MOST && p->stride[i] >= 1 && p->stride[i] <= MOST &&
               p->dilation[i] >= 1 && p->dilation[i] <= MOST && p->before[i] >= 0 &&
               2 * p->before[i] <= p->size[i] && in >= 1 && in <= most && n >= 1 && n <= MOST;
        if (fits) {
            const int64_t reach = (p->size[i] - 1) * p->dilation[i] + 1;
            p->after[i] = (n - 1) * p->stride[i] + reach - in - p->before[i];
            fits = p->after[i] >= p->before[i] + 1 - p->stride[i] &&
                   p->after[i] < p->before[i] + p->stride[i] &&
                   (n - 1) * p->stride[i] < in + p->before[i] && p->after[i] >= -MOST &&
                   (p->max || p->inside || p->after[i] <= p->before[i]);
        }
    }
    return fits ? DTP_OK
                : DTP_FAIL(err, DTP_UNSUPPORTED,
                           "a pool whose windows, strides or paddings do not go together, or a "
                           "mean that counts padding behind the image");
}

/* ---- axes ---- */

/* The parts of an axis of channels: groups, and the channels of each. */
static dtp_status by_groups(dtp_axes *x, const dtp_axis *axis, int64_t size, int64_t groups,
                            dtp_axis parts[2], dtp_err *err)
{
    const int64_t sizes[2] = {groups, size / groups};
    return dtp_axes_regroup(x, 1, axis, 2, sizes, parts, err);
}

static dtp_status channels(dtp_axes *x, const dtp_aten_conv *c, int32_t out, dtp_err *err)
{
    const dtp_aten_value *v = &x->g->values[c->x], *w = &x->g->values[c->w];
    const dtp_axis *in = &x->of[c->x][c->channels], *rows = &x->of[c->w][0],
                   *columns = &x->of[c->w][1];
    dtp_axis *to = &x->of[out][c->channels];
    if (c->groups == 1) {
        *to = c->transposed ? *columns : *rows;
        return dtp_axis_unify(x, in, c->transposed ? rows : columns, err);
    }
    dtp_axis of_in[2], of_rows[2];
    DTP_TRY(by_groups(x, in, v->sizes[c->channels], c->groups, of_in, err));
    DTP_TRY(by_groups(x, rows, w->sizes[0], c->groups, of_rows, err));
    DTP_TRY(dtp_axis_unify(x, &of_in[0], &of_rows[0], err));
    if (!c->transposed) {
        *to = *rows;
        return dtp_axis_unify(x, &of_in[1], columns, err);
    }
    DTP_TRY(dtp_axis_unify(x, &of_in[1], &of_rows[1], err));
    *to = of_in[0];
    if (to->n + columns->n > DTP_AXIS_PARTS) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "channels of many parts");
    }
    memcpy(to->cls + to->n, columns->cls, (size_t)columns->n * sizeof to->cls[0]);
    to->n += columns->n;
    return DTP_OK;
}

/* Spatial axes, from `first` on: those of x where the sizes stay, else new ones. */
static dtp_status image_axes(dtp_axes *x, const dtp_aten_node *node, int32_t v, int32_t first,
                             const char *what, dtp_err *err)
{
    const int32_t out = node->outs[0];
    char general[512];
    dtp_general_name(node->path, general, sizeof general);
    for (int32_t a = first; a < x->g->values[out].rank; a++) {
        if (x->g->values[out].sizes[a] == x->g->values[v].sizes[a]) {
            x->of[out][a] = x->of[v][a];
            continue;
        }
        const char *origin = dtp_arena_printf(x->arena, "%s.%s.%d", general, what, a - first);
        DTP_TRY(DTP_MEMORY(err, origin));
        DTP_TRY(dtp_axis_new(x, x->g->values[out].sizes[a], origin, &x->of[out][a], err));
    }
    return DTP_OK;
}

dtp_status dtp_axes_conv(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    dtp_aten_conv c;
    const int32_t out = node->outs[0];
    DTP_TRY(dtp_aten_conv_of(x->g, node, &c, err));
    memset(x->of[out], 0, sizeof x->of[out]);
    if (c.channels == 1) {
        x->of[out][0] = x->of[c.x][0];
    }
    DTP_TRY(channels(x, &c, out, err));
    if (c.bias >= 0) {
        DTP_TRY(dtp_axis_unify(x, &x->of[c.bias][0], &x->of[out][c.channels], err));
    }
    return image_axes(x, node, c.x, c.channels + 1, "conv", err);
}

dtp_status dtp_axes_image(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t v = dtp_aten_input(node, 0), out = node->outs[0], rank = x->g->values[out].rank;
    char general[512];
    dtp_general_name(node->path, general, sizeof general);
    memset(x->of[out], 0, sizeof x->of[out]);
    for (int32_t a = 0; a < rank; a++) {
        const char *origin = dtp_arena_printf(x->arena, "%s.image.%d", general, a - 2);
        DTP_TRY(DTP_MEMORY(err, origin));
        x->of[out][a] = x->of[v][a];
        DTP_TRY(a < 2 ? DTP_OK
                      : dtp_axis_new(x, x->g->values[out].sizes[a], origin, &x->of[out][a], err));
    }
    return DTP_OK;
}

dtp_status dtp_axes_pool(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    dtp_aten_pool p;
    const int32_t out = node->outs[0];
    DTP_TRY(dtp_aten_pool_of(x->g, node, &p, err));
    memset(x->of[out], 0, sizeof x->of[out]);
    for (int32_t i = 0; i < x->g->values[out].rank - p.n; i++) {
        x->of[out][i] = x->of[p.x][i];
    }
    return image_axes(x, node, p.x, x->g->values[out].rank - p.n, "pool", err);
}
