/* conv, conv_transpose, conv_weight: convolution and its derivatives (core/graph/ops/conv.h). */
#include "core/graph/ops/conv.h"

#include <string.h>

#include "core/base/safe_int.h"
#include "core/graph/ops/common.h"

/* ---- windows ---- */

static dtp_status too_large(const dtp_window *w, dtp_err *err)
{
    return DTP_FAIL(err, DTP_RANGE, "the window over dim '%s' is too large", w->dim);
}

/* (size - 1) dilation + 1 */
static bool window_span(const dtp_window *w, int64_t *span)
{
    return dtp_mul_i64(w->size - 1, w->dilation, span) && dtp_add_i64(*span, 1, span);
}

dtp_status dtp_window_places(dtp_window *w, int64_t in, int64_t *places, dtp_err *err)
{
    int64_t span, padded, reach;
    if (!window_span(w, &span)) {
        return too_large(w, err);
    }
    if (w->same) {
        *places = in / w->stride + (in % w->stride > 0 ? 1 : 0);
        if (!dtp_mul_i64(*places - 1, w->stride, &reach) || !dtp_add_i64(reach, span, &reach)) {
            return too_large(w, err);
        }
        const int64_t missing = reach > in ? reach - in : 0;
        w->padding[0] = missing / 2;
        w->padding[1] = missing - missing / 2;
        return DTP_OK;
    }
    if (!dtp_add_i64(in, w->padding[0], &padded) || !dtp_add_i64(padded, w->padding[1], &padded)) {
        return too_large(w, err);
    }
    if (padded < span) {
        return DTP_FAIL(err, DTP_INVALID,
                        "the window over dim '%s' reaches over %lld elements, there are %lld with "
                        "padding",
                        w->dim, (long long)span, (long long)padded);
    }
    *places = (padded - span) / w->stride + 1;
    return DTP_OK;
}

dtp_status dtp_window_reach(const dtp_window *w, int64_t places, int64_t *in, dtp_err *err)
{
    int64_t span, reach;
    if (!window_span(w, &span) || !dtp_mul_i64(places - 1, w->stride, &reach) ||
        !dtp_add_i64(reach, span, &reach)) {
        return too_large(w, err);
    }
    const int64_t all = w->same ? places * w->stride : reach - w->padding[0] - w->padding[1];
    if (all < 1) {
        return DTP_FAIL(err, DTP_INVALID, "the padding of dim '%s' leaves none of %lld elements",
                        w->dim, (long long)reach);
    }
    *in = all;
    return DTP_OK;
}

static int64_t reach_of(const dtp_conv_axis *a)
{
    return (a->size - 1) * a->dilation;
}

dtp_dim_window dtp_window_of_x(const dtp_conv_axis *a)
{
    return (dtp_dim_window){a->stride, 1, a->before, reach_of(a) - a->before, 0};
}

dtp_dim_window dtp_window_of_places(const dtp_conv_axis *a)
{
    return (dtp_dim_window){1, a->stride, reach_of(a) - a->before, a->before, 0};
}

int64_t dtp_window_before(const dtp_conv_axis *a, const dtp_view *x, const dtp_view *places)
{
    return a->before + x->offset[dtp_ttype_find(&x->local, a->spatial)] -
           places->offset[dtp_ttype_find(&places->local, a->spatial)] * a->stride;
}

/* ---- the form of a call ---- */

/* Which tensor each operand and the result are; sizes of axes are not set. The row says by which
 * one the op is the derivative. */
static dtp_conv_form parts_of(const dtp_op_call *call, const dtp_ttype *out)
{
    const dtp_conv_part last = *(const dtp_conv_part *)call->op->user;
    const dtp_attr *spatial = dtp_call_attr(call, "spatial"),
                   *kernel = dtp_call_attr(call, "kernel");
    const dtp_conv_part first = last == DTP_CONV_X ? DTP_CONV_Y : DTP_CONV_X;
    const dtp_conv_part second = last == DTP_CONV_W ? DTP_CONV_Y : DTP_CONV_W;
    dtp_conv_form f = {.n = spatial->n};
    f.type[first] = &call->in[0];
    f.type[second] = &call->in[1];
    f.at[second] = 1;
    f.type[last] = out;
    f.at[last] = -1;
    for (int32_t i = 0; i < f.n && i < DTP_CONV_AXES; i++) {
        f.axis[i] = (dtp_conv_axis){.spatial = spatial->ids[i],
                                    .kernel = kernel->ids[i],
                                    .stride = dtp_call_entry(call, "stride", i),
                                    .dilation = dtp_call_entry(call, "dilation", i),
                                    .before = dtp_call_entry(call, "before", i)};
    }
    return f;
}

static dtp_window window_of(const dtp_op_call *call, const dtp_conv_form *f, int32_t i,
                            int64_t size)
{
    return (dtp_window){
        .dim = dtp_dims_name(call->dims, f->axis[i].spatial),
        .size = size,
        .stride = f->axis[i].stride,
        .dilation = f->axis[i].dilation,
        .padding = {dtp_call_entry(call, "before", i), dtp_call_entry(call, "after", i)},
        .same = dtp_call_int(call, "padding") != 0};
}

dtp_conv_form dtp_conv_form_of(const dtp_op_call *call)
{
    dtp_conv_form f = parts_of(call, &call->out[0]);
    for (int32_t i = 0; i < f.n; i++) {
        dtp_conv_axis *a = &f.axis[i];
        a->in = dtp_ttype_size(f.type[DTP_CONV_X], a->spatial);
        a->out = dtp_ttype_size(f.type[DTP_CONV_Y], a->spatial);
        a->size = dtp_ttype_size(f.type[DTP_CONV_W], a->kernel);
        dtp_window w = window_of(call, &f, i, a->size);
        int64_t places;
        a->before = dtp_window_places(&w, a->in, &places, NULL) == DTP_OK ? w.padding[0] : 0;
    }
    return f;
}

dtp_conv_form dtp_conv_form_here(const dtp_kernel_args *args)
{
    dtp_conv_form f = dtp_conv_form_of(args->call);
    const dtp_view *view[DTP_CONV_PARTS];
    for (int32_t p = 0; p < DTP_CONV_PARTS; p++) {
        view[p] = f.at[p] < 0 ? &args->out[0] : &args->in[f.at[p]];
    }
    for (int32_t i = 0; i < f.n; i++) {
        dtp_conv_axis *a = &f.axis[i];
        const dtp_view *x = view[DTP_CONV_X];
        dtp_window w = window_of(args->call, &f, i, a->size);
        int64_t places;
        if (dtp_window_places(&w, x->global[dtp_ttype_find(&x->local, a->spatial)], &places,
                              NULL) == DTP_OK) {
            a->before = w.padding[0];
        }
        a->before = dtp_window_before(a, x, view[DTP_CONV_Y]);
    }
    return f;
}

bool dtp_conv_has_window(const dtp_conv_form *form, dtp_dim_id d)
{
    bool has = false;
    for (int32_t i = 0; i < form->n; i++) {
        has = has || form->axis[i].spatial == d || form->axis[i].kernel == d;
    }
    return has;
}

static bool in_groups(const dtp_op_call *call, dtp_dim_id d)
{
    const dtp_attr *groups = dtp_call_attr(call, "groups");
    bool is = false;
    for (int32_t i = 0; i < groups->n; i++) {
        is = is || groups->ids[i] == d;
    }
    return is;
}

/* ---- inference ---- */

static dtp_status check_list(const dtp_op_call *call, const char *key, int32_t n, bool ints,
                             dtp_err *err)
{
    const int32_t have = dtp_call_attr(call, key)->n;
    return have == n || (ints && have == 1)
               ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID, "'%s' has %d entries, 'spatial' has %d", key, have, n);
}

/* A dim of an attribute that tensors have, or may not have. */
static dtp_status check_dim(const dtp_op_call *call, const char *key, dtp_dim_id d, bool wanted,
                            int32_t operand, dtp_err *err)
{
    if ((dtp_ttype_find(&call->in[operand], d) >= 0) != wanted) {
        return DTP_FAIL(err, DTP_INVALID, "'%s' names dim '%s', which operand %d %s", key,
                        dtp_dims_name(call->dims, d), operand, wanted ? "does not have" : "has");
    }
    return DTP_OK;
}

static dtp_status check_operands(const dtp_op_call *call, dtp_conv_form *f, dtp_err *err)
{
    static const char *const lists[] = {"stride", "dilation", "before", "after"};
    const int32_t n = dtp_call_attr(call, "spatial")->n;
    if (n < 1 || n > DTP_CONV_AXES) {
        return DTP_FAIL(err, DTP_INVALID, "'spatial' has %d dims, 1 to %d are possible", n,
                        DTP_CONV_AXES);
    }
    DTP_TRY(check_list(call, "kernel", n, false, err));
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        DTP_TRY(check_list(call, lists[i], n, true, err));
    }
    DTP_TRY(dtp_op__need_float(call, 0, err));
    DTP_TRY(dtp_op__same_dtype(call, 1, 0, err));
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < 2; k++) {
            const bool is_w = f->at[DTP_CONV_W] == k;
            DTP_TRY(check_dim(call, "spatial", f->axis[i].spatial, !is_w, k, err));
            DTP_TRY(check_dim(call, "kernel", f->axis[i].kernel, is_w, k, err));
        }
        for (int32_t k = 0; k < i; k++) {
            if (f->axis[k].spatial == f->axis[i].spatial ||
                f->axis[k].kernel == f->axis[i].kernel) {
                return DTP_FAIL(err, DTP_INVALID, "'spatial' or 'kernel' names a dim twice");
            }
        }
    }
    const dtp_attr *groups = dtp_call_attr(call, "groups");
    for (int32_t i = 0; i < groups->n; i++) {
        for (int32_t k = 0; k < 2; k++) {
            DTP_TRY(check_dim(call, "groups", groups->ids[i], true, k, err));
        }
        if (dtp_conv_has_window(f, groups->ids[i])) {
            return DTP_FAIL(err, DTP_INVALID, "'groups' names dim '%s', which is spatial",
                            dtp_dims_name(call->dims, groups->ids[i]));
        }
    }
    for (int32_t k = 0; k < call->in[1].rank; k++) {
        const dtp_tdim d = call->in[1].dims[k];
        if (!dtp_conv_has_window(f, d.id)) {
            DTP_TRY(dtp_op__same_size(call, 1, d, err));
        }
    }
    return DTP_OK;
}

static dtp_status append(const dtp_op_call *call, dtp_tdim d, dtp_ttype *want, dtp_err *err)
{
    (void)call;
    if (want->rank == DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_INVALID, "the result has more than %d dims", DTP_MAX_RANK);
    }
    want->dims[want->rank++] = d;
    return DTP_OK;
}

/* The dims of w that are those of the result alone. */
static dtp_status append_own(const dtp_op_call *call, const dtp_conv_form *f, dtp_ttype *want,
                             dtp_err *err)
{
    for (int32_t i = 0; i < call->in[1].rank; i++) {
        const dtp_tdim d = call->in[1].dims[i];
        if (!dtp_conv_has_window(f, d.id) && dtp_ttype_find(&call->in[0], d.id) < 0) {
            DTP_TRY(append(call, d, want, err));
        }
    }
    return DTP_OK;
}

/* The dims of operand 0, spatial ones of the sizes given; the channels that are summed, else what
 * stands before the spatial dims, are followed by those of the result. */
static dtp_status result_dims(const dtp_op_call *call, const dtp_conv_form *f,
                              const int64_t size[DTP_CONV_AXES], dtp_ttype *want, dtp_err *err)
{
    int32_t summed = -1, first = call->in[0].rank;
    for (int32_t i = call->in[0].rank - 1; i >= 0; i--) {
        const dtp_dim_id d = call->in[0].dims[i].id;
        const bool in_w = dtp_ttype_find(&call->in[1], d) >= 0;
        summed = in_w && !in_groups(call, d) ? i : summed;
        first = dtp_conv_has_window(f, d) ? i : first;
    }
    const int32_t at = summed >= 0 ? summed : first;
    for (int32_t i = 0; i <= call->in[0].rank; i++) {
        DTP_TRY(i == at ? append_own(call, f, want, err) : DTP_OK);
        if (i == call->in[0].rank) {
            break;
        }
        dtp_tdim d = call->in[0].dims[i];
        for (int32_t k = 0; k < f->n; k++) {
            d.size = f->axis[k].spatial == d.id ? size[k] : d.size;
        }
        if (dtp_ttype_find(&call->in[1], d.id) < 0 || in_groups(call, d.id)) {
            DTP_TRY(append(call, d, want, err));
        }
    }
    return DTP_OK;
}

static dtp_status infer_conv(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_conv_form f = parts_of(call, out);
    dtp_ttype want = {.rank = 0};
    int64_t size[DTP_CONV_AXES];
    DTP_TRY(check_operands(call, &f, err));
    DTP_TRY(dtp_op__result(call, call->in[0].dtype, &want.dtype, err));
    for (int32_t i = 0; i < f.n; i++) {
        dtp_window w = window_of(call, &f, i, dtp_ttype_size(&call->in[1], f.axis[i].kernel));
        DTP_TRY(
            dtp_window_places(&w, dtp_ttype_size(&call->in[0], f.axis[i].spatial), &size[i], err));
    }
    DTP_TRY(result_dims(call, &f, size, &want, err));
    return dtp_op__set_out(call, has_out, &want, out, err);
}

/* A window of `in` elements must have the places that y has. */
static dtp_status check_places(dtp_window *w, int64_t in, int64_t out, dtp_err *err)
{
    int64_t places;
    DTP_TRY(dtp_window_places(w, in, &places, err));
    return places == out ? DTP_OK
                         : DTP_FAIL(err, DTP_INVALID,
                                    "a window over %lld elements of dim '%s' has %lld places, the "
                                    "gradient has %lld",
                                    (long long)in, w->dim, (long long)places, (long long)out);
}

static dtp_status infer_transpose(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                  dtp_err *err)
{
    dtp_conv_form f = parts_of(call, out);
    dtp_ttype want = {.rank = 0};
    int64_t size[DTP_CONV_AXES];
    DTP_TRY(check_operands(call, &f, err));
    DTP_TRY(dtp_op__result(call, call->in[0].dtype, &want.dtype, err));
    for (int32_t i = 0; i < f.n; i++) {
        const int64_t places = dtp_ttype_size(&call->in[0], f.axis[i].spatial);
        const int32_t at = has_out ? dtp_ttype_find(out, f.axis[i].spatial) : -1;
        dtp_window w = window_of(call, &f, i, dtp_ttype_size(&call->in[1], f.axis[i].kernel));
        size[i] = at >= 0 ? out->dims[at].size : 0;
        DTP_TRY(at >= 0 ? check_places(&w, size[i], places, err)
                        : dtp_window_reach(&w, places, &size[i], err));
    }
    DTP_TRY(result_dims(call, &f, size, &want, err));
    return dtp_op__set_out(call, has_out, &want, out, err);
}

/* A dim of an operand is in the result unless both operands have it and it is of no group. */
static dtp_status check_weight_dims(const dtp_op_call *call, const dtp_conv_form *f,
                                    const dtp_ttype *out, dtp_err *err)
{
    int32_t kept = 0;
    for (int32_t k = 0; k < 2; k++) {
        for (int32_t i = 0; i < call->in[k].rank; i++) {
            const dtp_tdim d = call->in[k].dims[i];
            const bool both = dtp_ttype_find(&call->in[1 - k], d.id) >= 0;
            if (dtp_conv_has_window(f, d.id)) {
                continue;
            }
            const int32_t at = dtp_ttype_find(out, d.id);
            const bool wanted = !both || in_groups(call, d.id);
            if ((at >= 0) != wanted || (at >= 0 && out->dims[at].size != d.size)) {
                return DTP_FAIL(err, DTP_INVALID,
                                "dim '%s' is %lld in operand %d and %lld in 'out' (0: not there)",
                                dtp_dims_name(call->dims, d.id), (long long)d.size, k,
                                (long long)(at < 0 ? 0 : out->dims[at].size));
            }
            kept += wanted && (k == 0 || !both) ? 1 : 0;
        }
    }
    return out->rank == kept + f->n
               ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID, "'out' has %d dims, the result has %d", out->rank,
                          kept + f->n);
}

static dtp_status infer_weight(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_conv_form f = parts_of(call, out);
    dtp_dtype result;
    DTP_TRY(check_operands(call, &f, err));
    DTP_TRY(dtp_op__result(call, call->in[0].dtype, &result, err));
    DTP_TRY(dtp_op__declared(has_out, result, out, err));
    for (int32_t i = 0; i < f.n; i++) {
        const int32_t at = dtp_ttype_find(out, f.axis[i].kernel);
        if (at < 0) {
            return DTP_FAIL(err, DTP_INVALID, "'kernel' names dim '%s', which 'out' does not have",
                            dtp_dims_name(call->dims, f.axis[i].kernel));
        }
        dtp_window w = window_of(call, &f, i, out->dims[at].size);
        DTP_TRY(check_places(&w, dtp_ttype_size(&call->in[0], f.axis[i].spatial),
                             dtp_ttype_size(&call->in[1], f.axis[i].spatial), err));
    }
    return check_weight_dims(call, &f, out, err);
}

/* ---- rules and work ---- */

/* What splitting a dim means. A piece of the result needs a range of the operand with the spatial
 * dim; the kernel a range of x for a piece of y, over which it is summed. */
static dtp_dim_role role_conv(const dtp_op_call *call, dtp_dim_id d)
{
    const dtp_conv_form f = dtp_conv_form_of(call);
    const bool kept = dtp_ttype_find(&call->out[0], d) >= 0;
    dtp_dim_role role = {.role = kept ? DTP_ROLE_PARALLEL : DTP_ROLE_REDUCED, .op = DTP_REDUCE_SUM};
    for (int32_t i = 0; i < f.n; i++) {
        const dtp_conv_axis *a = &f.axis[i];
        role.role = a->kernel == d ? DTP_ROLE_WHOLE : role.role;
        if (a->spatial == d) {
            role.window[0] = f.at[DTP_CONV_X] < 0 ? dtp_window_of_places(a) : dtp_window_of_x(a);
        }
    }
    return role;
}

/* Matrices: conv out x (in kernel) x (batch places); conv_transpose (in kernel) x out x (batch
 * places); conv_weight out x (batch places) x (in kernel). One channel to one channel is bound by
 * bytes. */
static void work_conv(const dtp_op_call *call, dtp_work *out)
{
    const dtp_conv_form f = dtp_conv_form_of(call);
    int64_t groups = 1, in = 1, outs = 1, places = 1;
    bool one = true;
    for (int32_t i = 0; i < f.type[DTP_CONV_W]->rank; i++) {
        const dtp_tdim d = f.type[DTP_CONV_W]->dims[i];
        const bool x = dtp_ttype_find(f.type[DTP_CONV_X], d.id) >= 0;
        const bool y = dtp_ttype_find(f.type[DTP_CONV_Y], d.id) >= 0;
        int64_t *of = x && y ? &groups : y ? &outs : &in;
        *of *= d.size;
        one = one && (x == y || d.size == 1);
    }
    for (int32_t i = 0; i < f.type[DTP_CONV_Y]->rank; i++) {
        const dtp_tdim d = f.type[DTP_CONV_Y]->dims[i];
        places *= dtp_ttype_find(f.type[DTP_CONV_W], d.id) < 0 ? d.size : 1;
    }
    const bool first = f.at[DTP_CONV_Y] < 0, transposed = f.at[DTP_CONV_X] < 0;
    *out = (dtp_work){.cls = one ? DTP_WORK_MEMORY : DTP_WORK_GEMM,
                      .bytes = dtp_call_bytes(call),
                      .batch = groups,
                      .m = transposed ? in : outs,
                      .n = first || transposed ? places : in,
                      .k = first        ? in
                           : transposed ? outs
                                        : places};
    out->flops = 2.0 * (double)groups * (double)in * (double)outs * (double)places;
    if (!(out->flops > 0.0)) {
        *out = (dtp_work){.cls = DTP_WORK_MEMORY, .bytes = out->bytes};
    }
}

/* ---- gradients ---- */

/* The derivative by `want` from the two others of the form. */
static dtp_status emit(dtp_vjp *v, const dtp_tensor_id of[DTP_CONV_PARTS], dtp_conv_part want,
                       dtp_tensor_id like, dtp_tensor_id *out, dtp_err *err)
{
    static const char *const ops[] = {"conv_transpose", "conv_weight", "conv"};
    static const dtp_conv_part operands[][2] = {
        {DTP_CONV_Y, DTP_CONV_W}, {DTP_CONV_X, DTP_CONV_Y}, {DTP_CONV_X, DTP_CONV_W}};
    enum { MAX_ATTRS = 16 };
    const dtp_node *node = &v->g->nodes[v->node];
    const dtp_tensor_id in[2] = {of[operands[want][0]], of[operands[want][1]]};
    dtp_attr attrs[MAX_ATTRS];
    int32_t n = 0;
    for (int32_t i = 0; i < node->n_attrs && n < MAX_ATTRS; i++) {
        if (node->attrs[i].kind != DTP_ATTR_DTYPE) {
            attrs[n++] = node->attrs[i];
        }
    }
    return dtp_vjp_emit(v, &(dtp_vjp_op){ops[want], 2, in, n, attrs}, like, out, err);
}

static dtp_status vjp_conv(dtp_vjp *v, dtp_err *err)
{
    dtp_call_types types;
    const dtp_op_call call = dtp_node_call(v->g, &v->g->nodes[v->node], &types);
    const dtp_conv_form f = parts_of(&call, &call.out[0]);
    dtp_tensor_id dout, of[DTP_CONV_PARTS]; /* all in the type of the operands */
    DTP_TRY(dtp_op__emit_cast(v, v->d_out[0], types.in[0].dtype, &dout, err));
    for (int32_t p = 0; p < DTP_CONV_PARTS; p++) {
        of[p] = f.at[p] < 0 ? dout : v->in[f.at[p]];
    }
    for (int32_t p = 0; p < DTP_CONV_PARTS; p++) {
        const int32_t i = f.at[p];
        if (i >= 0 && v->need[i]) {
            DTP_TRY(emit(v, of, (dtp_conv_part)p, v->in[i], &v->d_in[i], err));
        }
    }
    return DTP_OK;
}

/* ---- rows ---- */

static const dtp_conv_part PARTS[] = {DTP_CONV_X, DTP_CONV_W, DTP_CONV_Y};
static const char *const PADDINGS[] = {"explicit", "same", NULL};

static const dtp_attr_spec CONV_ATTRS[] = {
    {.key = "spatial", .kind = DTP_ATTR_DIMS, .required = true},
    {.key = "kernel", .kind = DTP_ATTR_DIMS, .required = true},
    {.key = "groups", .kind = DTP_ATTR_DIMS},
    {.key = "stride", .kind = DTP_ATTR_INTS, .def = 1.0, .min = 1.0, .max = 2147483647.0},
    {.key = "dilation", .kind = DTP_ATTR_INTS, .def = 1.0, .min = 1.0, .max = 2147483647.0},
    {.key = "padding", .kind = DTP_ATTR_ENUM, .choices = PADDINGS},
    {.key = "before", .kind = DTP_ATTR_INTS, .min = -1e9, .max = 1e9},
    {.key = "after", .kind = DTP_ATTR_INTS, .min = -1e9, .max = 1e9},
    DTP_RESULT_ATTR,
    {.key = NULL}};

#define CONV(op, part, text)                                                                       \
    DTP_ROW(op, text, 2, 2, 1), .user = &PARTS[part], .attrs = CONV_ATTRS, .role = role_conv,      \
                                .linear = DTP_LINEAR_EACH, .work = work_conv, .vjp = vjp_conv,     \
                                .f32_error = 4e-6

const dtp_op_def dtp_ops_conv[] = {
    {CONV("conv", DTP_CONV_Y, "convolution over the spatial dims"), .infer = infer_conv,
     .bench = {"cr cw | spatial=r kernel=w groups=c padding=same"}},
    {CONV("conv_transpose", DTP_CONV_X,
          "transposed convolution: the gradient of conv by its first operand"),
     .infer = infer_transpose, .bench = {"cr cw | spatial=r kernel=w groups=c padding=same"}},
    {CONV("conv_weight", DTP_CONV_W, "the gradient of conv by its kernel"), .infer = infer_weight,
     .bench = {"cr cr | out=cw spatial=r kernel=w groups=c padding=same"}},
    {.name = NULL},
};
