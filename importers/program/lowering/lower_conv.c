/* Convolutions and pools. Spatial axes and those of the kernel are one dim each meanwhile, of size
 * 1 where a tensor lacks them. */
#include "importers/program/axes/aten_conv.h"

#include <inttypes.h>
#include <string.h>

#include "importers/program/lowering/aten_ops.h"
#include "importers/program/lowering/lower.h"

typedef struct conv_dims {
    dtp_aten_conv c;
    int32_t in, out;                   /* first groups of the channels of x and of the result */
    int32_t image[DTP_ATEN_CONV_AXES]; /* of the spatial axes of x */
    int32_t n_groups;                  /* dims that both have */
    const char *spatial[DTP_ATEN_CONV_AXES], *kernel[DTP_ATEN_CONV_AXES];
} conv_dims;

/* Operand `use`, whose axes from `first` on are one dim each, as a tensor with their names. */
static dtp_status with_axes(dtp_lowering *l, int32_t use, int32_t first, int32_t n,
                            const char *stem, const char *names[DTP_ATEN_CONV_AXES], dtp_err *err)
{
    const int32_t value = l->uses[use].value;
    const char *dims = "";
    bool same = true;
    int32_t part = 0;
    for (int32_t i = 0; i < first + n; i++) {
        const int32_t parts = dtp_axis_parts(l->m, value, i);
        for (int32_t k = 0; i < first && k < parts; k++) {
            dims = dtp_joined(l->m, dims, ",", dtp_group_name(l, l->uses[use].group[part + k]));
        }
        if (i >= first) {
            const bool one = parts == 1;
            const char *name = one ? dtp_group_name(l, l->uses[use].group[part])
                                   : dtp_arena_printf(l->m->arena, "%s_%d", stem, i - first + 1);
            names[i - first] = name;
            DTP_TRY(DTP_MEMORY(err, name));
            dims =
                dtp_joined(l->m, dims, ",",
                           one ? name : dtp_joined(l->m, name, "=", dtp_axis_size(l->m, value, i)));
            same = same && one;
        }
        part += parts;
    }
    DTP_TRY(DTP_MEMORY(err, dims));
    return same ? DTP_OK : dtp_emit_one(l, "relabel", "relabel", &l->uses[use].id, dims, "", err);
}

/* Groups for the dims of both operands, settled, in the order of their axes. */
static dtp_status operands(dtp_lowering *l, conv_dims *d, dtp_err *err)
{
    const dtp_aten_conv *c = &d->c;
    int32_t of_x[DTP_MAX_RANK] = {0}, of_w[DTP_MAX_RANK] = {0};
    const int32_t made =
        c->transposed ? dtp_axis_parts(l->m, c->w, 1) : dtp_axis_parts(l->m, c->x, c->channels);
    const int32_t whole = c->transposed ? dtp_axis_parts(l->m, l->out, c->channels)
                                        : dtp_axis_parts(l->m, c->x, c->channels);
    const int32_t columns = c->transposed ? made : dtp_axis_parts(l->m, c->w, 1);
    d->n_groups = c->groups > 1 ? whole - columns : 0;
    if (c->channels == 1) {
        DTP_TRY(dtp_groups_add(l, c->x, 0, &of_x[0], err));
        l->firsts[0] = of_x[0];
    }
    DTP_TRY(dtp_groups_add(l, l->out, c->channels, &d->out, err));
    DTP_TRY(dtp_groups_add(l, c->x, c->channels, &d->in, err));
    l->firsts[c->channels] = d->out;
    of_x[c->channels] = d->in;
    of_w[0] = c->transposed ? d->in : d->out;
    of_w[1] = (c->transposed ? d->out : d->in) + d->n_groups;
    for (int32_t i = 0; i < c->n; i++) {
        DTP_TRY(dtp_groups_add(l, c->x, c->channels + 1 + i, &of_x[c->channels + 1 + i], err));
        d->image[i] = of_x[c->channels + 1 + i];
        DTP_TRY(dtp_groups_add(l, c->w, 2 + i, &of_w[2 + i], err));
    }
    DTP_TRY(dtp_use_add(l, c->x, of_x, err));
    DTP_TRY(dtp_use_add(l, c->w, of_w, err));
    for (int32_t u = 0; u < 2; u++) { /* the groups of the channels are those of the result */
        for (int32_t k = 0; k < l->uses[u].n; k++) {
            const int32_t of = l->uses[u].group[k] - d->in;
            l->uses[u].group[k] =
                (int8_t)(of >= 0 && of < d->n_groups ? d->out + of : l->uses[u].group[k]);
        }
    }
    DTP_TRY(dtp_settle(l, err));
    DTP_TRY(dtp_whole(l, &l->uses[0], err));
    DTP_TRY(dtp_whole(l, &l->uses[1], err));
    DTP_TRY(with_axes(l, 0, c->channels + 1, c->n, "image", d->spatial, err));
    return with_axes(l, 1, 2, c->n, "kernel", d->kernel, err);
}

static const char *names_attr(dtp_lowering *l, const char *key, int32_t n, const char *const *names)
{
    const char *text = "";
    for (int32_t i = 0; i < n; i++) {
        text = dtp_joined(l->m, text, "\", \"", names[i]);
    }
    return dtp_arena_printf(l->m->arena, "\"%s\": [\"%s\"]", key, text);
}

/* "key": [2, 1], where an entry is not `usual`. */
static const char *ints_attr(dtp_lowering *l, const char *attrs, const char *key, int32_t n,
                             const int64_t *of, int64_t usual)
{
    const char *text = "";
    bool written = false;
    for (int32_t i = 0; i < n; i++) {
        written = written || of[i] != usual;
        text = dtp_joined(l->m, text, ", ", dtp_arena_printf(l->m->arena, "%" PRId64, of[i]));
    }
    return written ? dtp_joined(l->m, attrs, ", ",
                                dtp_arena_printf(l->m->arena, "\"%s\": [%s]", key, text))
                   : attrs;
}

static const char *conv_attrs(dtp_lowering *l, const conv_dims *d)
{
    const dtp_aten_conv *c = &d->c;
    const char *groups[DTP_FLAT_PARTS];
    for (int32_t i = 0; i < d->n_groups; i++) {
        groups[i] = dtp_group_name(l, d->out + i);
    }
    const char *attrs = dtp_joined(l->m, names_attr(l, "spatial", c->n, d->spatial), ", ",
                                   names_attr(l, "kernel", c->n, d->kernel));
    attrs = d->n_groups == 0
                ? attrs
                : dtp_joined(l->m, attrs, ", ", names_attr(l, "groups", d->n_groups, groups));
    attrs = ints_attr(l, attrs, "stride", c->n, c->stride, 1);
    attrs = ints_attr(l, attrs, "dilation", c->n, c->dilation, 1);
    attrs = ints_attr(l, attrs, "before", c->n, c->before, 0);
    return ints_attr(l, attrs, "after", c->n, c->after, 0);
}

/* Whether the spatial axes of the result, from `first` on, are those of x, each of them one dim;
 * image: their groups. */
static bool keeps_image(const dtp_lowering *l, int32_t first, int32_t n, const int32_t *image)
{
    bool keeps = true;
    for (int32_t i = 0; i < n; i++) {
        const int32_t axis = first + i, of_x = dtp_axis_parts(l->m, l->x, axis);
        int32_t cls[DTP_FLAT_PARTS];
        keeps = keeps && of_x == 1 && dtp_axis_parts(l->m, l->out, axis) == 1 &&
                dtp_axis_leaves(&l->m->axes, 1, &l->m->axes.of[l->out][axis], cls,
                                DTP_FLAT_PARTS) == 1 &&
                cls[0] == l->groups.cls[image[i]];
    }
    return keeps;
}

/* The spatial dims that the result has: a dim of another size is another dim. */
static dtp_status to_result(dtp_lowering *l, int32_t first, int32_t n, const char *id, dtp_err *err)
{
    l->n = 1;
    l->uses[0] = (dtp_use){.value = -1, .id = id};
    for (int32_t axis = first; axis < first + n; axis++) {
        const int32_t parts = dtp_axis_parts(l->m, l->out, axis);
        DTP_TRY(dtp_groups_add(l, l->out, axis, &l->firsts[axis], err));
        for (int32_t k = 0; k < parts; k++) {
            dtp_name_group(&l->groups, l->firsts[axis] + k, 0);
        }
    }
    l->what = "image";
    return dtp_emit_value(l, "relabel", "", err);
}

dtp_status dtp_lower_conv(dtp_lowering *l, dtp_err *err)
{
    conv_dims d = {.n_groups = 0};
    const char *in[2], *id;
    DTP_TRY(dtp_aten_conv_of(l->m->g, l->node, &d.c, err));
    DTP_TRY(operands(l, &d, err));
    for (int32_t i = 0; i < dtp_axis_parts(l->m, l->out, d.c.channels); i++) {
        dtp_name_group(&l->groups, d.out + i, 0);
    }
    const bool keeps = keeps_image(l, d.c.channels + 1, d.c.n, d.image);
    const char *op = d.c.transposed ? "conv_transpose" : "conv", *attrs = conv_attrs(l, &d);
    const char *what = l->node->path[0] == '\0' ? "conv" : "";
    for (int32_t i = 0; i < 2; i++) {
        in[i] = l->uses[i].id;
        l->uses[i] = (dtp_use){.value = -1, .id = in[i]};
    }
    for (int32_t i = 0; i < d.c.n && keeps; i++) {
        l->firsts[d.c.channels + 1 + i] = d.image[i];
    }
    if (keeps && d.c.bias < 0) {
        l->what = what;
        return dtp_emit_value(l, op, attrs, err);
    }
    const dtp_out_node o = {what, op, 2, in, .attrs = attrs};
    DTP_TRY(dtp_emit(l, &o, &id, err));
    if (d.c.bias >= 0) { /* over the channels of the result */
        l->uses[0] = (dtp_use){.value = -1, .id = id};
        l->n = 1;
        DTP_TRY(dtp_use_add(l, d.c.bias, &d.out, err));
        DTP_TRY(dtp_settle(l, err));
        l->what = "bias";
    }
    if (keeps) {
        return dtp_emit_value(l, "add", "", err);
    }
    if (d.c.bias >= 0) {
        in[0] = id;
        in[1] = l->uses[1].id;
        const dtp_out_node sum = {"bias", "add", 2, in, .attrs = ""};
        DTP_TRY(dtp_emit(l, &sum, &id, err));
    }
    return to_result(l, d.c.channels + 1, d.c.n, id, err);
}

dtp_status dtp_lower_pool(dtp_lowering *l, dtp_err *err)
{
    dtp_aten_pool p;
    const char *names[DTP_ATEN_CONV_AXES] = {NULL}, *id;
    DTP_TRY(dtp_aten_pool_of(l->m->g, l->node, &p, err));
    const int32_t first = dtp_value_of(l, l->x)->rank - p.n;
    DTP_TRY(dtp_only_operand(l, err));
    DTP_TRY(dtp_whole(l, &l->uses[0], err));
    DTP_TRY(with_axes(l, 0, first, p.n, "image", names, err));
    const char *attrs = dtp_arena_printf(l->m->arena, "\"kind\": \"%s\"", p.max ? "max" : "mean");
    attrs = dtp_joined(l->m, attrs, ", ", names_attr(l, "spatial", p.n, names));
    attrs = ints_attr(l, attrs, "window", p.n, p.size, 0);
    attrs = ints_attr(l, attrs, "stride", p.n, p.stride, 0);
    attrs = ints_attr(l, attrs, "dilation", p.n, p.dilation, 1);
    attrs = ints_attr(l, attrs, "before", p.n, p.before, 0);
    attrs = ints_attr(l, attrs, "after", p.n, p.after, 0);
    attrs = p.inside ? dtp_joined(l->m, attrs, ", ", "\"count\": \"inside\"") : attrs;
    id = l->uses[0].id;
    if (keeps_image(l, first, p.n, &l->firsts[first])) {
        return dtp_emit_value(l, "pool", attrs, err);
    }
    DTP_TRY(dtp_emit_one(l, "pool", "pool", &id, NULL, attrs, err));
    return to_result(l, first, p.n, id, err);
}

dtp_status dtp_lower_image(dtp_lowering *l, dtp_err *err)
{
    DTP_TRY(dtp_only_operand(l, err));
    DTP_TRY(dtp_whole(l, &l->uses[0], err));
    return to_result(l, 2, dtp_value_of(l, l->out)->rank - 2, l->uses[0].id, err);
}
