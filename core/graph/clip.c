/* Numbers of all gradients of a graph, and clipping by their norm, as nodes. */
#include "core/graph/clip.h"

static dtp_status check_types(const dtp_graph *g, dtp_err *err)
{
    for (int32_t i = 0; i < g->n_grads && g->training.clip_norm > 0.0; i++) {
        const dtp_graph_tensor *param = &g->tensors[g->grads[i].param];
        const dtp_graph_tensor *first = &g->tensors[g->grads[0].param];
        if (dtp_dtype_is_half(param->type.dtype) || param->type.dtype != first->type.dtype) {
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "clip_norm: '%s' is %s, '%s' is %s; parameters are all f32 or all f64, "
                            "16-bit training is '--precision bf16'",
                            first->name, dtp_dtype_name(first->type.dtype), param->name,
                            dtp_dtype_name(param->type.dtype));
        }
    }
    return DTP_OK;
}

/* One number, of phase UPDATE. */
static dtp_status add_number(dtp_graph *g, dtp_node_spec *spec, int32_t n_in,
                             const dtp_tensor_id *in, dtp_tensor_id *out, dtp_err *err)
{
    static const dtp_ttype number = {0};
    DTP_TRY(DTP_MEMORY(err, spec->name));
    spec->phase = DTP_UPDATE;
    spec->n_in = n_in;
    spec->in = in;
    spec->out = &number; /* its dims: none */
    return dtp_graph_add_node(g, spec, out, err);
}

static dtp_node_spec spec_of(dtp_graph *g, const char *prefix, const char *op, int32_t i)
{
    const dtp_param_grad pg = g->grads[i];
    const dtp_node_id maker = g->tensors[pg.grad].producer;
    dtp_node_spec spec = dtp_node_spec_init(NULL, op);
    spec.name = dtp_arena_printf(g->arena, "%s.%s", prefix, g->tensors[pg.param].name);
    spec.block = maker < 0 ? -1 : g->nodes[maker].block;
    spec.instance = maker < 0 ? 0 : g->nodes[maker].instance;
    return spec;
}

/* The numbers from `from` on that go with that one, those of parameters with the same dims, added
 * to it. They lie alike under most layouts, and their sum is then all-reduced once. */
static dtp_status add_alike(dtp_graph *g, int32_t from, dtp_tensor_id *number, dtp_err *err)
{
    const dtp_ttype *like = &g->tensors[g->grads[from].param].type;
    for (int32_t i = from + 1; i < g->n_grads; i++) {
        const dtp_ttype *type = &g->tensors[g->grads[i].param].type;
        bool alike = number[i] >= 0 && type->rank == like->rank;
        for (int32_t d = 0; d < type->rank && alike; d++) {
            alike = type->dims[d].id == like->dims[d].id;
        }
        if (alike) {
            const dtp_tensor_id in[2] = {number[from], number[i]};
            dtp_node_spec spec = spec_of(g, "sum_of", "add", i);
            DTP_TRY(add_number(g, &spec, 2, in, &number[from], err));
            number[i] = -1;
        }
    }
    return DTP_OK;
}

/* Adds up the numbers; those that stood for several are -1 but for the first. */
static dtp_status add_up(dtp_graph *g, dtp_tensor_id *number, dtp_tensor_id *out, dtp_err *err)
{
    for (int32_t i = 0; i < g->n_grads; i++) {
        DTP_TRY(number[i] >= 0 ? add_alike(g, i, number, err) : DTP_OK);
    }
    *out = g->n_grads > 0 ? number[0] : -1;
    for (int32_t i = 1; i < g->n_grads; i++) {
        const dtp_tensor_id in[2] = {*out, number[i]};
        dtp_node_spec spec = spec_of(g, "sums", "add", i);
        spec.block = -1;
        spec.instance = 0;
        DTP_TRY(number[i] >= 0 ? add_number(g, &spec, 2, in, out, err) : DTP_OK);
    }
    return DTP_OK;
}

dtp_status dtp_gradient_sum(dtp_graph *g, dtp_tensor_id *out, dtp_err *err)
{
    const bool squares = g->training.clip_norm > 0.0;
    dtp_tensor_id *number;
    DTP_TRY(check_types(g, err));
    DTP_TRY(DTP_NEW(g->arena, number, g->n_grads, err));
    for (int32_t i = 0; i < g->n_grads; i++) {
        const dtp_tensor_id in[2] = {g->grads[i].grad, g->grads[i].grad};
        dtp_node_spec spec = spec_of(g, squares ? "square" : "sum", "einsum", i);
        DTP_TRY(add_number(g, &spec, squares ? 2 : 1, in, &number[i], err));
    }
    return add_up(g, number, out, err);
}

static dtp_status add_op(dtp_graph *g, const char *name, const char *op, int32_t n_in,
                         const dtp_tensor_id *in, const dtp_attr *attr, dtp_tensor_id *out,
                         dtp_err *err)
{
    dtp_node_spec spec = dtp_node_spec_init(name, op);
    spec.n_attrs = attr != NULL ? 1 : 0;
    spec.attrs = attr;
    return add_number(g, &spec, n_in, in, out, err);
}

static dtp_status add_constant(dtp_graph *g, const char *name, double value, dtp_dtype dtype,
                               dtp_tensor_id *out, dtp_err *err)
{
    const dtp_attr attrs[] = {dtp_attr_float("value", value),
                              dtp_attr_int("dtype", (int64_t)dtype)};
    dtp_node_spec spec = dtp_node_spec_init(name, "constant");
    spec.n_attrs = 2;
    spec.attrs = attrs;
    return add_number(g, &spec, 0, NULL, out, err);
}

/* min(1, clip_norm / (norm + 1e-6)) */
static dtp_status ratio(dtp_graph *g, dtp_dtype dtype, dtp_tensor_id *out, dtp_err *err)
{
    const dtp_attr by = dtp_attr_float("factor", g->training.clip_norm);
    const dtp_attr high = dtp_attr_float("high", 1.0);
    dtp_tensor_id pair[2] = {g->norm, -1}, t;
    DTP_TRY(add_constant(g, "clip.least", 1e-6, dtype, &pair[1], err));
    DTP_TRY(add_op(g, "clip.sum", "add", 2, pair, NULL, &t, err));
    DTP_TRY(add_op(g, "clip.reciprocal", "reciprocal", 1, &t, NULL, &t, err));
    DTP_TRY(add_op(g, "clip.ratio", "scale", 1, &t, &by, &t, err));
    return add_op(g, "clip.factor", "clamp", 1, &t, &high, out, err);
}

dtp_status dtp_gradient_factor(dtp_graph *g, const char *prefix, dtp_tensor_id given,
                               dtp_tensor_id *factor, dtp_err *err)
{
    enum { PRODUCT, ZERO, FINITE, UPDATE, N_NAMES, GREATER = 2 };
    static const char *const suffixes[N_NAMES] = {"unscaled", "zero", "finite", "update"};
    const dtp_attr above = dtp_attr_int("cmp", GREATER);
    const char *names[N_NAMES];
    dtp_tensor_id in[3] = {given, *factor}, zero, some;
    for (int32_t i = 0; i < N_NAMES; i++) {
        names[i] = dtp_arena_printf(g->arena, "%s.%s", prefix, suffixes[i]);
    }
    DTP_TRY(add_op(g, names[PRODUCT], "mul", 2, in, NULL, &some, err));
    DTP_TRY(add_constant(g, names[ZERO], 0.0, g->tensors[some].type.dtype, &zero, err));
    in[1] = zero;
    DTP_TRY(add_op(g, names[FINITE], "compare", 2, in, &above, &in[0], err));
    in[1] = some;
    in[2] = zero;
    return add_op(g, names[UPDATE], "select", 3, in, NULL, factor, err);
}

dtp_status dtp_gradient_clip(dtp_graph *g, dtp_tensor_id sum, dtp_tensor_id *factor, dtp_err *err)
{
    const dtp_tensor_id given = *factor;
    const dtp_dtype dtype = g->tensors[sum].type.dtype;
    const char *name = given < 0 ? DTP_GRADIENT_NORM : DTP_GRADIENT_NORM ".scaled";
    dtp_tensor_id in[2] = {-1, given};
    DTP_TRY(add_op(g, name, "sqrt", 1, &sum, NULL, &in[0], err));
    g->norm = in[0];
    if (given >= 0) {
        DTP_TRY(add_op(g, DTP_GRADIENT_NORM, "mul", 2, in, NULL, &g->norm, err));
    }
    DTP_TRY(ratio(g, dtype, factor, err));
    return given >= 0 ? dtp_gradient_factor(g, "clip", given, factor, err) : DTP_OK;
}
