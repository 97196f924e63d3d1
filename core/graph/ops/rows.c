/* Helpers of the row-wise ops: those that work on the dims of an `over` attribute (a "row") for
 * every combination of the other dims. */
#include "core/graph/ops/rows.h"

#include <string.h>

const dtp_attr_spec dtp_rows_over[] = {DTP_ROWS_OVER, {.key = NULL}};

bool dtp_rows__is_over(const dtp_op_call *call, dtp_dim_id d)
{
    const dtp_attr *over = dtp_call_attr(call, "over");
    bool found = over->kind == DTP_ATTR_DIM && over->i == d;
    for (int32_t i = 0; i < over->n && !found; i++) {
        found = over->ids[i] == d;
    }
    return found;
}

dtp_status dtp_rows__check_over(const dtp_op_call *call, int32_t x, dtp_err *err)
{
    const dtp_ttype *type = &call->in[x];
    const dtp_attr *over = dtp_call_attr(call, "over");
    const dtp_dim_id single = (dtp_dim_id)over->i;
    const dtp_dim_id *ids = over->kind == DTP_ATTR_DIM ? &single : over->ids;
    int32_t n = over->kind == DTP_ATTR_DIM ? 1 : over->n;
    char text[DTP_TTYPE_TEXT_BYTES];
    dtp_ttype_print(type, call->dims, text);
    if (n == 0) {
        return DTP_FAIL(err, DTP_INVALID, "'over' names no dim of operand %d, %s", x, text);
    }
    for (int32_t i = 0; i < n; i++) {
        if (dtp_ttype_find(type, ids[i]) < 0) {
            return DTP_FAIL(err, DTP_INVALID, "'over' names dim '%s', which operand %d, %s, lacks",
                            dtp_dims_name(call->dims, ids[i]), x, text);
        }
        for (int32_t j = 0; j < i; j++) {
            if (ids[j] == ids[i]) {
                return DTP_FAIL(err, DTP_INVALID, "'over' names dim '%s' twice",
                                dtp_dims_name(call->dims, ids[i]));
            }
        }
    }
    return DTP_OK;
}

dtp_status dtp_rows__check(const dtp_op_call *call, int32_t x, dtp_err *err)
{
    char text[DTP_TTYPE_TEXT_BYTES];
    if (!dtp_dtype_is_float(call->in[x].dtype)) {
        dtp_ttype_print(&call->in[x], call->dims, text);
        return DTP_FAIL(err, DTP_INVALID, "operand %d is %s, expected floats", x, text);
    }
    return dtp_rows__check_over(call, x, err);
}

static dtp_ttype keep(const dtp_op_call *call, const dtp_ttype *type, bool inside)
{
    dtp_ttype out = {.dtype = type->dtype};
    for (int32_t i = 0; i < type->rank; i++) {
        if (dtp_rows__is_over(call, type->dims[i].id) == inside) {
            out.dims[out.rank++] = type->dims[i];
        }
    }
    return out;
}

dtp_ttype dtp_rows__outside(const dtp_op_call *call, const dtp_ttype *type)
{
    return keep(call, type, false);
}

dtp_ttype dtp_rows__stats(const dtp_op_call *call, const dtp_ttype *type)
{
    dtp_ttype out = keep(call, type, false);
    out.dtype = dtp_op__sum_dtype(out.dtype);
    return out;
}

dtp_ttype dtp_rows__inside(const dtp_op_call *call, const dtp_ttype *type)
{
    return keep(call, type, true);
}

bool dtp_rows__same_dims(const dtp_ttype *a, const dtp_ttype *b, bool any_order)
{
    if (a->rank != b->rank) {
        return false;
    }
    for (int32_t i = 0; i < a->rank; i++) {
        int32_t j = any_order ? dtp_ttype_find(b, a->dims[i].id) : i;
        if (j < 0 || a->dims[i].id != b->dims[j].id || a->dims[i].size != b->dims[j].size) {
            return false;
        }
    }
    return true;
}

dtp_status dtp_rows__match(const dtp_op_call *call, int32_t i, const char *what,
                           const dtp_ttype *want, bool any_order, dtp_err *err)
{
    const dtp_ttype *got = &call->in[i];
    if (got->dtype == want->dtype && dtp_rows__same_dims(got, want, any_order)) {
        return DTP_OK;
    }
    char got_text[DTP_TTYPE_TEXT_BYTES], want_text[DTP_TTYPE_TEXT_BYTES];
    dtp_ttype_print(got, call->dims, got_text);
    dtp_ttype_print(want, call->dims, want_text);
    return DTP_FAIL(err, DTP_INVALID, "%s (operand %d) is %s, expected %s", what, i, got_text,
                    want_text);
}

dtp_status dtp_rows__need_ints(const dtp_op_call *call, int32_t i, const char *what, dtp_err *err)
{
    char text[DTP_TTYPE_TEXT_BYTES];
    if (call->in[i].dtype != DTP_I32 && call->in[i].dtype != DTP_I64) {
        dtp_ttype_print(&call->in[i], call->dims, text);
        return DTP_FAIL(err, DTP_INVALID, "%s (operand %d) is %s, expected i32 or i64", what, i,
                        text);
    }
    return DTP_OK;
}

dtp_status dtp_rows__match_ints(const dtp_op_call *call, int32_t i, const char *what,
                                const dtp_ttype *want, dtp_err *err)
{
    DTP_TRY(dtp_rows__need_ints(call, i, what, err));
    dtp_ttype expected = *want;
    expected.dtype = call->in[i].dtype;
    return dtp_rows__match(call, i, what, &expected, true, err);
}

dtp_status dtp_rows__set_out(const dtp_op_call *call, bool has_out, const dtp_ttype *want,
                             dtp_ttype *out, dtp_err *err)
{
    if (has_out && !dtp_rows__same_dims(out, want, false)) {
        char got_text[DTP_TTYPE_TEXT_BYTES], want_text[DTP_TTYPE_TEXT_BYTES];
        dtp_ttype declared = *out;
        declared.dtype = want->dtype;
        dtp_ttype_print(&declared, call->dims, got_text);
        dtp_ttype_print(want, call->dims, want_text);
        return DTP_FAIL(err, DTP_INVALID, "the output is %s, but is declared as %s", want_text,
                        got_text);
    }
    *out = *want;
    return DTP_OK;
}

static dtp_dim_role role_with(const dtp_op_call *call, dtp_dim_id d, dtp_role over)
{
    dtp_dim_role role = {.role = DTP_ROLE_PARALLEL, .op = DTP_REDUCE_SUM};
    if (dtp_rows__is_over(call, d)) {
        role.role = over;
    } else if (strcmp(dtp_dims_name(call->dims, d), DTP_STAT_DIM) == 0) {
        role.role = DTP_ROLE_WHOLE;
    }
    return role;
}

dtp_dim_role dtp_rows__role_internal(const dtp_op_call *call, dtp_dim_id d)
{
    return role_with(call, d, DTP_ROLE_INTERNAL);
}

dtp_dim_role dtp_rows__role_reduced(const dtp_op_call *call, dtp_dim_id d)
{
    return role_with(call, d, DTP_ROLE_REDUCED);
}

dtp_dim_role dtp_rows__role_parallel(const dtp_op_call *call, dtp_dim_id d)
{
    return role_with(call, d, DTP_ROLE_PARALLEL);
}

dtp_dim_role dtp_rows__role_whole(const dtp_op_call *call, dtp_dim_id d)
{
    const bool over = dtp_rows__is_over(call, d);
    return (dtp_dim_role){.role = over ? DTP_ROLE_WHOLE : DTP_ROLE_PARALLEL, .op = DTP_REDUCE_SUM};
}

void dtp_rows__work(const dtp_op_call *call, double flops, dtp_work *out)
{
    *out = (dtp_work){.cls = DTP_WORK_MEMORY, .flops = flops, .bytes = dtp_call_bytes(call)};
}

void dtp_rows__work_lookup(const dtp_op_call *call, dtp_work *out)
{
    *out = (dtp_work){.cls = DTP_WORK_MEMORY,
                      .bytes = (double)dtp_ttype_bytes(&call->in[1]) +
                               2.0 * (double)dtp_ttype_bytes(&call->out[0])};
}

dtp_status dtp_rows__emit(dtp_graph *g, const char *op, int32_t n_in, const dtp_tensor_id *in,
                          int32_t n_attrs, const dtp_attr *attrs, dtp_tensor_id *outs, dtp_err *err)
{
    const char *name = dtp_arena_printf(g->arena, "_part.%d.%s", g->n_nodes, op);
    DTP_TRY(DTP_MEMORY(err, name));
    dtp_node_spec spec = dtp_node_spec_init(name, op);
    spec.n_in = n_in;
    spec.in = in;
    spec.n_attrs = n_attrs;
    spec.attrs = attrs;
    return dtp_graph_add_node(g, &spec, outs, err);
}

dtp_status dtp_rows__emit_reduce(dtp_graph *g, const char *kind, dtp_tensor_id x,
                                 const dtp_attr *over, dtp_tensor_id *out, dtp_err *err)
{
    dtp_attr attrs[2] = {*over};
    DTP_TRY(dtp_op__enum_attr(g, "reduce", "kind", kind, &attrs[1], err));
    return dtp_rows__emit(g, "reduce", 1, &x, 2, attrs, out, err);
}

dtp_status dtp_rows__emit_wide(dtp_graph *g, const char *kind, dtp_tensor_id x,
                               const dtp_attr *over, dtp_tensor_id *out, dtp_err *err)
{
    const dtp_dtype dtype = dtp_op__sum_dtype(g->tensors[x].type.dtype);
    dtp_attr attrs[3] = {*over, {0}, dtp_attr_int("result", (int64_t)dtype)};
    DTP_TRY(dtp_op__enum_attr(g, "reduce", "kind", kind, &attrs[1], err));
    return dtp_rows__emit(g, "reduce", 1, &x, 3, attrs, out, err);
}

dtp_status dtp_rows__emit_moments(dtp_graph *g, dtp_tensor_id x, const dtp_attr *over,
                                  dtp_tensor_id *shift, dtp_tensor_id *moments, dtp_err *err)
{
    dtp_tensor_id in[2] = {x, -1};
    dtp_dim_id stat;
    DTP_TRY(dtp_dims_intern(&g->dims, DTP_STAT_DIM, 0, &stat, err));
    DTP_TRY(dtp_rows__emit_wide(g, "mean", x, over, &in[1], err));
    *shift = in[1];
    return dtp_rows__emit(g, "moments", 2, in, 1, over, moments, err);
}

dtp_attr dtp_rows__over_list(const dtp_attr *over, dtp_dim_id *id)
{
    *id = (dtp_dim_id)over->i;
    return dtp_attr_dims("over", 1, id);
}

dtp_status dtp_rows__only_first(const dtp_vjp *v, dtp_err *err)
{
    const dtp_node *node = &v->g->nodes[v->node];
    for (int32_t i = 1; i < node->n_out; i++) {
        if (v->d_out[i] >= 0) {
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "node '%s': %s has no gradient through its output '%s'", node->name,
                            node->op->name, node->op->out_names[i - 1]);
        }
    }
    return DTP_OK;
}
