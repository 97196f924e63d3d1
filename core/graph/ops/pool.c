/* pool and its gradient (core/graph/ops/pool.h). */
#include "core/graph/ops/pool.h"

#include "core/graph/ops/common.h"

/* A stride of 0 is the size of the window. */
static dtp_window window_of(const dtp_op_call *call, int32_t i)
{
    const int64_t size = dtp_call_entry(call, "window", i);
    const int64_t stride = dtp_call_entry(call, "stride", i);
    return (dtp_window){
        .dim = dtp_dims_name(call->dims, dtp_call_attr(call, "spatial")->ids[i]),
        .size = size,
        .stride = stride > 0 ? stride : size,
        .dilation = dtp_call_entry(call, "dilation", i),
        .padding = {dtp_call_entry(call, "before", i), dtp_call_entry(call, "after", i)},
        .same = dtp_call_int(call, "padding") != 0};
}

dtp_pool_form dtp_pool_form_of(const dtp_op_call *call)
{
    const dtp_attr *spatial = dtp_call_attr(call, "spatial");
    dtp_pool_form f = {.max = dtp_call_int(call, "kind") == 0,
                       .inside = dtp_call_int(call, "count") != 0,
                       .n = spatial->n};
    for (int32_t i = 0; i < f.n && i < DTP_CONV_AXES; i++) {
        dtp_window w = window_of(call, i);
        dtp_conv_axis *a = &f.axis[i];
        *a = (dtp_conv_axis){.spatial = spatial->ids[i],
                             .kernel = -1,
                             .in = dtp_ttype_size(&call->in[0], spatial->ids[i]),
                             .size = w.size,
                             .stride = w.stride,
                             .dilation = w.dilation};
        a->before = dtp_window_places(&w, a->in, &a->out, NULL) == DTP_OK ? w.padding[0] : 0;
    }
    return f;
}

dtp_pool_form dtp_pool_form_here(const dtp_kernel_args *args)
{
    dtp_pool_form f = dtp_pool_form_of(args->call);
    const dtp_view *x = &args->in[0], *out = &args->out[0];
    const dtp_view *y = args->call->n_in == 2 ? &args->in[1] : out;
    for (int32_t i = 0; i < f.n; i++) {
        dtp_conv_axis *a = &f.axis[i];
        const int32_t at = dtp_ttype_find(&x->local, a->spatial);
        dtp_window w = window_of(args->call, i);
        int64_t places;
        a->before =
            dtp_window_places(&w, x->global[at], &places, NULL) == DTP_OK ? w.padding[0] : 0;
        a->before = dtp_window_before(a, x, y);
        a->out = dtp_ttype_size(&y->local, a->spatial);
        f.kept[i] = dtp_ttype_size(&out->local, a->spatial);
        f.first[i] = out->offset[dtp_ttype_find(&out->local, a->spatial)] - x->offset[at];
    }
    return f;
}

/* The type of y. */
static dtp_status places_of(const dtp_op_call *call, dtp_ttype *y, dtp_err *err)
{
    static const char *const lists[] = {"window", "stride", "dilation", "before", "after"};
    const dtp_attr *spatial = dtp_call_attr(call, "spatial");
    if (spatial->n < 1 || spatial->n > DTP_CONV_AXES) {
        return DTP_FAIL(err, DTP_INVALID, "'spatial' has %d dims, 1 to %d are possible", spatial->n,
                        DTP_CONV_AXES);
    }
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        const int32_t n = dtp_call_attr(call, lists[i])->n;
        if (n != 1 && n != spatial->n) {
            return DTP_FAIL(err, DTP_INVALID, "'%s' has %d entries, 'spatial' has %d", lists[i], n,
                            spatial->n);
        }
    }
    DTP_TRY(dtp_op__need_float(call, 0, err));
    *y = call->in[0];
    for (int32_t i = 0; i < spatial->n; i++) {
        const int32_t at = dtp_ttype_find(y, spatial->ids[i]);
        if (at < 0) {
            return DTP_FAIL(err, DTP_INVALID,
                            "'spatial' names dim '%s', which operand 0 does not have",
                            dtp_dims_name(call->dims, spatial->ids[i]));
        }
        for (int32_t k = 0; k < i; k++) {
            if (spatial->ids[k] == spatial->ids[i]) {
                return DTP_FAIL(err, DTP_INVALID, "'spatial' names dim '%s' twice",
                                dtp_dims_name(call->dims, spatial->ids[i]));
            }
        }
        dtp_window w = window_of(call, i);
        DTP_TRY(dtp_window_places(&w, y->dims[at].size, &y->dims[at].size, err));
    }
    return DTP_OK;
}

static dtp_status infer_pool(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype y;
    DTP_TRY(places_of(call, &y, err));
    return dtp_op__set_out(call, has_out, &y, out, err);
}

static dtp_status infer_pool_grad(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                  dtp_err *err)
{
    dtp_ttype y;
    const dtp_ttype *dy = &call->in[1];
    DTP_TRY(places_of(call, &y, err));
    DTP_TRY(dtp_op__same_dtype(call, 1, 0, err));
    for (int32_t i = 0; i < y.rank; i++) {
        const int32_t at = dtp_ttype_find(dy, y.dims[i].id);
        if (dy->rank != y.rank || at < 0 || dy->dims[at].size != y.dims[i].size) {
            return DTP_FAIL(err, DTP_INVALID,
                            "dim '%s' is %lld in the gradient, the pool has %lld (0: not there)",
                            dtp_dims_name(call->dims, y.dims[i].id),
                            (long long)(at < 0 ? 0 : dy->dims[at].size), (long long)y.dims[i].size);
        }
    }
    return dtp_op__set_out(call, has_out, &call->in[0], out, err);
}

/* A piece of dx needs the places whose windows it is in, and all that these windows have. */
static dtp_dim_role role_pool(const dtp_op_call *call, dtp_dim_id d)
{
    dtp_dim_role role = {.role = DTP_ROLE_PARALLEL, .op = DTP_REDUCE_SUM};
    const dtp_pool_form f = dtp_pool_form_of(call);
    for (int32_t i = 0; i < f.n; i++) {
        const dtp_conv_axis *a = &f.axis[i];
        const int64_t reach = (a->size - 1) * a->dilation;
        if (a->spatial == d && call->n_in == 2) {
            role.window[0] = (dtp_dim_window){1, 1, reach, reach, 0};
            role.window[1] = dtp_window_of_places(a);
        } else if (a->spatial == d) {
            role.window[0] = dtp_window_of_x(a);
        }
    }
    return role;
}

static void work_pool(const dtp_op_call *call, dtp_work *out)
{
    const dtp_pool_form f = dtp_pool_form_of(call);
    double taps = 1.0;
    for (int32_t i = 0; i < f.n; i++) {
        taps *= (double)f.axis[i].size;
    }
    const dtp_ttype *y = call->n_in == 2 ? &call->in[1] : &call->out[0];
    *out = (dtp_work){.cls = DTP_WORK_MEMORY,
                      .flops = taps * (double)dtp_ttype_elems(y),
                      .bytes = dtp_call_bytes(call)};
}

static dtp_status vjp_pool(dtp_vjp *v, dtp_err *err)
{
    const dtp_node *node = &v->g->nodes[v->node];
    const dtp_tensor_id in[2] = {v->in[0], v->d_out[0]};
    return dtp_vjp_emit(v, &(dtp_vjp_op){"pool_grad", 2, in, node->n_attrs, node->attrs}, v->in[0],
                        &v->d_in[0], err);
}

static const char *const KINDS[] = {"max", "mean", NULL};
static const char *const COUNTS[] = {"window", "inside", NULL};
static const char *const PADDINGS[] = {"explicit", "same", NULL};

static const dtp_attr_spec POOL_ATTRS[] = {
    {.key = "kind", .kind = DTP_ATTR_ENUM, .required = true, .choices = KINDS},
    {.key = "spatial", .kind = DTP_ATTR_DIMS, .required = true},
    {.key = "window", .kind = DTP_ATTR_INTS, .required = true, .min = 1.0, .max = 2147483647.0},
    {.key = "stride", .kind = DTP_ATTR_INTS, .min = 0.0, .max = 2147483647.0},
    {.key = "dilation", .kind = DTP_ATTR_INTS, .def = 1.0, .min = 1.0, .max = 2147483647.0},
    {.key = "padding", .kind = DTP_ATTR_ENUM, .choices = PADDINGS},
    {.key = "before", .kind = DTP_ATTR_INTS, .min = -1e9, .max = 1e9},
    {.key = "after", .kind = DTP_ATTR_INTS, .min = -1e9, .max = 1e9},
    {.key = "count", .kind = DTP_ATTR_ENUM, .choices = COUNTS},
    {.key = NULL}};

const dtp_op_def dtp_ops_pool[] = {
    {DTP_ROW("pool", "maximum or mean of windows over the spatial dims", 1, 1, 1),
     .attrs = POOL_ATTRS, .infer = infer_pool, .role = role_pool, .work = work_pool,
     .vjp = vjp_pool,
     .bench = {"cr | kind=max spatial=r window=3 stride=1 padding=same",
               "cr | kind=mean spatial=r window=3 stride=1 padding=same"}},
    {DTP_ROW("pool_grad", "its gradient, from x and that of the result", 2, 2, 1),
     .flags = DTP_OP_INTERNAL_USE, .attrs = POOL_ATTRS, .infer = infer_pool_grad, .role = role_pool,
     .work = work_pool, .no_grad = DTP_NO_GRAD_OF_GRAD,
     .bench = {"cr cr | kind=max spatial=r window=3 stride=1 padding=same"}},
    {.name = NULL},
};
