/* gather: the elements of x at integer positions along a dim; scatter_add, its counterpart.
 *
 * gather replaces the dim `over` of x by ids: out[..] = x[over := ids[..], ..], matched by name.
 * Dims that ids and x share are walked together (torch's gather); dims of ids alone are new (index
 * select, or rows of a table); ids may also have a dim `over` of another size, which then replaces
 * it. A rank that holds a part of `over` gives 0 for positions elsewhere, so a split leaves a
 * partial sum.
 * scatter_add(ids, src) adds every element of src to out[over := ids[..], ..]; the dims `along` of
 * ids are summed.
 *
 * embedding: rows of a table by integer ids, and its gradient, a scatter-add.
 * A rank that holds the table rows [offset, offset + size) gives 0 for other ids, so splitting the
 * table leaves a partial sum. The row `padding` gets no gradient: embedding_grad skips its id.
 */
#include "core/graph/ops/rows.h"

static const dtp_attr_spec OVER[] = {{.key = "over", .kind = DTP_ATTR_DIM, .required = true},
                                     {.key = NULL}};

static dtp_status append(const dtp_op_call *call, dtp_ttype *type, dtp_tdim d, dtp_err *err)
{
    if (type->rank == DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "the result has more than %d dims: no room for '%s'",
                        DTP_MAX_RANK, dtp_dims_name(call->dims, d.id));
    }
    type->dims[type->rank++] = d;
    return DTP_OK;
}

static dtp_status infer_gather(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const dtp_ttype *x = &call->in[0], *ids = &call->in[1];
    const dtp_dim_id over = dtp_call_dim(call, "over");
    dtp_ttype want = {.dtype = x->dtype};
    DTP_TRY(dtp_rows__check_over(call, 0, err));
    DTP_TRY(dtp_rows__need_ints(call, 1, "ids", err));
    for (int32_t i = 0; i < x->rank; i++) {
        if (x->dims[i].id != over) {
            DTP_TRY(append(call, &want, x->dims[i], err));
            continue;
        }
        /* The dims that ids brings in, in place of `over`. */
        for (int32_t k = 0; k < ids->rank; k++) {
            const dtp_tdim d = ids->dims[k];
            const int32_t at = d.id == over ? -1 : dtp_ttype_find(x, d.id);
            if (at < 0) {
                DTP_TRY(append(call, &want, d, err));
            } else if (x->dims[at].size != d.size) {
                return DTP_FAIL(err, DTP_INVALID, "dim '%s' is %lld in x but %lld in ids",
                                dtp_dims_name(call->dims, d.id), (long long)x->dims[at].size,
                                (long long)d.size);
            }
        }
    }
    return dtp_op__set_out(call, has_out, &want, out, err);
}

/* Summands cannot stand for truth values, and an `over` of two sizes cannot be split. */
static dtp_dim_role role_gather(const dtp_op_call *call, dtp_dim_id d)
{
    dtp_dim_role role = dtp_rows__role_reduced(call, d);
    if (role.role == DTP_ROLE_REDUCED &&
        (call->in[0].dtype == DTP_BOOL || dtp_ttype_find(&call->in[1], d) >= 0)) {
        role.role = DTP_ROLE_WHOLE;
    }
    return role;
}

static dtp_status vjp_gather(dtp_vjp *v, dtp_err *err)
{
    const dtp_ttype *x = &v->g->tensors[v->in[0]].type, *ids = &v->g->tensors[v->in[1]].type;
    const dtp_dim_id over = (dtp_dim_id)dtp_vjp_attr(v, "over")->i;
    dtp_dim_id along[DTP_MAX_RANK];
    int32_t n = 0;
    for (int32_t i = 0; i < ids->rank; i++) {
        const dtp_dim_id d = ids->dims[i].id;
        if (d == over || dtp_ttype_find(x, d) < 0) {
            along[n++] = d;
        }
    }
    const dtp_attr attrs[] = {dtp_attr_dim("over", over), dtp_attr_dims("along", n, along),
                              dtp_attr_int("size", dtp_ttype_size(x, over))};
    const dtp_tensor_id in[] = {v->in[1], v->d_out[0]};
    return dtp_vjp_emit(v, &(dtp_vjp_op){"scatter_add", 2, in, 3, attrs}, v->in[0], &v->d_in[0],
                        err);
}

/* ---- scatter_add ---- */

static bool is_along(const dtp_op_call *call, dtp_dim_id d)
{
    const dtp_attr *along = dtp_call_attr(call, "along");
    for (int32_t i = 0; i < along->n; i++) {
        if (along->ids[i] == d) {
            return true;
        }
    }
    return false;
}

/* src has the dims of ids, and `along` are dims of ids. */
static dtp_status check_scatter(const dtp_op_call *call, dtp_err *err)
{
    const dtp_ttype *ids = &call->in[0], *src = &call->in[1];
    const dtp_attr *along = dtp_call_attr(call, "along");
    DTP_TRY(dtp_rows__need_ints(call, 0, "ids", err));
    if (src->dtype == DTP_BOOL) {
        return DTP_FAIL(err, DTP_INVALID, "operand 1 is bool, numbers are needed");
    }
    for (int32_t i = 0; i < ids->rank; i++) {
        const int32_t at = dtp_ttype_find(src, ids->dims[i].id);
        if (at < 0 || src->dims[at].size != ids->dims[i].size) {
            return DTP_FAIL(
                err, DTP_INVALID, "dim '%s' is %lld in ids but %lld in src (0: not there)",
                dtp_dims_name(call->dims, ids->dims[i].id), (long long)ids->dims[i].size,
                (long long)(at < 0 ? 0 : src->dims[at].size));
        }
    }
    for (int32_t i = 0; i < along->n; i++) {
        if (dtp_ttype_find(ids, along->ids[i]) < 0) {
            return DTP_FAIL(err, DTP_INVALID, "'along' names dim '%s', which ids does not have",
                            dtp_dims_name(call->dims, along->ids[i]));
        }
    }
    return DTP_OK;
}

/* `over` stands where the first of `along` was, or first. */
static dtp_status infer_scatter(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const dtp_ttype *src = &call->in[1];
    const dtp_tdim over = {dtp_call_dim(call, "over"), dtp_call_int(call, "size")};
    dtp_ttype want = {.dtype = src->dtype};
    bool placed = dtp_call_attr(call, "along")->n == 0;
    DTP_TRY(check_scatter(call, err));
    if (dtp_ttype_find(src, over.id) >= 0 && !is_along(call, over.id)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "src has a dim '%s' already, and 'along' does not name it",
                        dtp_dims_name(call->dims, over.id));
    }
    if (placed) {
        DTP_TRY(append(call, &want, over, err));
    }
    for (int32_t i = 0; i < src->rank; i++) {
        if (!is_along(call, src->dims[i].id)) {
            DTP_TRY(append(call, &want, src->dims[i], err));
        } else if (!placed) {
            DTP_TRY(append(call, &want, over, err));
            placed = true;
        }
    }
    return dtp_op__set_out(call, has_out, &want, out, err);
}

static dtp_dim_role role_scatter(const dtp_op_call *call, dtp_dim_id d)
{
    dtp_dim_role role = {.role = DTP_ROLE_PARALLEL, .op = DTP_REDUCE_SUM};
    if (is_along(call, d)) {
        role.role = d == dtp_call_dim(call, "over") ? DTP_ROLE_WHOLE : DTP_ROLE_REDUCED;
    }
    return role;
}

static dtp_status vjp_scatter(dtp_vjp *v, dtp_err *err)
{
    const dtp_attr over = *dtp_vjp_attr(v, "over");
    const dtp_tensor_id in[] = {v->d_out[0], v->in[0]};
    return dtp_vjp_emit(v, &(dtp_vjp_op){"gather", 2, in, 1, &over}, v->in[1], &v->d_in[1], err);
}

static const dtp_attr_spec SCATTER_ATTRS[] = {
    {.key = "over", .kind = DTP_ATTR_DIM, .required = true},
    {.key = "along", .kind = DTP_ATTR_DIMS},
    {.key = "size", .kind = DTP_ATTR_INT, .required = true, .min = 1.0, .max = 9e15},
    {.key = NULL}};

/* No id has this value. */
#define ID_ATTR(name)                                                                              \
    {                                                                                              \
        .key = (name), .kind = DTP_ATTR_INT, .def = -9e15, .min = -9e15, .max = 9e15               \
    }
static const dtp_attr_spec EMBEDDING_ATTRS[] = {
    {.key = "over", .kind = DTP_ATTR_DIM, .required = true}, ID_ATTR("padding"), {.key = NULL}};
static const dtp_attr_spec EMBEDDING_GRAD_ATTRS[] = {
    {.key = "over", .kind = DTP_ATTR_DIM, .required = true},
    {.key = "size", .kind = DTP_ATTR_INT, .required = true, .min = 1.0, .max = 9e15},
    ID_ATTR("skip"),
    DTP_RESULT_ATTR,
    {.key = NULL}};

static dtp_status infer_embedding(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                  dtp_err *err)
{
    const dtp_ttype *table = &call->in[0], *ids = &call->in[1];
    char table_text[DTP_TTYPE_TEXT_BYTES], ids_text[DTP_TTYPE_TEXT_BYTES];
    dtp_ttype_print(table, call->dims, table_text);
    dtp_ttype_print(ids, call->dims, ids_text);
    DTP_TRY(dtp_rows__check(call, 0, err));
    DTP_TRY(dtp_rows__need_ints(call, 1, "ids", err));
    dtp_ttype want = *ids, row = dtp_rows__outside(call, table);
    want.dtype = table->dtype;
    const int64_t padding = dtp_call_int(call, "padding");
    const int64_t rows = dtp_ttype_size(table, dtp_call_dim(call, "over"));
    if ((double)padding != EMBEDDING_ATTRS[1].def && (padding < 0 || padding >= rows)) {
        return DTP_FAIL(err, DTP_INVALID, "'padding' is %lld, the table %s has rows 0 to %lld",
                        (long long)padding, table_text, (long long)rows - 1);
    }
    for (int32_t i = 0; i < table->rank; i++) {
        if (dtp_ttype_find(ids, table->dims[i].id) >= 0) {
            return DTP_FAIL(err, DTP_INVALID, "dim '%s' is in both the table, %s, and ids, %s",
                            dtp_dims_name(call->dims, table->dims[i].id), table_text, ids_text);
        }
    }
    if (ids->rank + row.rank > DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "the output of %s and %s exceeds rank %d", table_text,
                        ids_text, DTP_MAX_RANK);
    }
    for (int32_t i = 0; i < row.rank; i++) {
        want.dims[want.rank++] = row.dims[i];
    }
    return dtp_rows__set_out(call, has_out, &want, out, err);
}

/* The table's type: `over` first, or the declared order. */
static dtp_status infer_grad(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const dtp_ttype *ids = &call->in[0], *dy = &call->in[1];
    const dtp_tdim over = {dtp_call_dim(call, "over"), dtp_call_int(call, "size")};
    char ids_text[DTP_TTYPE_TEXT_BYTES], dy_text[DTP_TTYPE_TEXT_BYTES];
    dtp_ttype_print(ids, call->dims, ids_text);
    dtp_ttype_print(dy, call->dims, dy_text);
    const bool ints = dtp_rows__need_ints(call, 0, "ids", NULL) == DTP_OK;
    if (!ints || !dtp_dtype_is_float(dy->dtype)) {
        return DTP_FAIL(err, DTP_INVALID, "ids is %s and dy %s, expected integers and floats",
                        ids_text, dy_text);
    }
    for (int32_t i = 0; i < ids->rank; i++) {
        int32_t at = dtp_ttype_find(dy, ids->dims[i].id);
        if (at < 0 || dy->dims[at].size != ids->dims[i].size) {
            return DTP_FAIL(err, DTP_INVALID, "dy, %s, does not have the dims of ids, %s", dy_text,
                            ids_text);
        }
    }
    dtp_ttype want = {.rank = 1, .dims = {over}};
    DTP_TRY(dtp_op__result(call, dy->dtype, &want.dtype, err));
    for (int32_t i = 0; i < dy->rank; i++) {
        if (dtp_ttype_find(ids, dy->dims[i].id) < 0 && want.rank < DTP_MAX_RANK) {
            want.dims[want.rank++] = dy->dims[i];
        }
    }
    if (dtp_ttype_find(dy, over.id) >= 0) {
        return DTP_FAIL(err, DTP_INVALID, "dy, %s, already has dim '%s'", dy_text,
                        dtp_dims_name(call->dims, over.id));
    }
    if (has_out && dtp_rows__same_dims(out, &want, true)) {
        out->dtype = want.dtype;
        return DTP_OK;
    }
    return dtp_rows__set_out(call, has_out, &want, out, err);
}

static dtp_dim_role role_grad(const dtp_op_call *call, dtp_dim_id d)
{
    bool summed = dtp_ttype_find(&call->in[0], d) >= 0;
    return (dtp_dim_role){.role = summed ? DTP_ROLE_REDUCED : DTP_ROLE_PARALLEL,
                          .op = DTP_REDUCE_SUM};
}

/* Clears the table, then adds one row per id to it. */
static void work_grad(const dtp_op_call *call, dtp_work *out)
{
    *out = (dtp_work){.cls = DTP_WORK_MEMORY,
                      .flops = (double)dtp_ttype_elems(&call->in[1]),
                      .bytes = (double)dtp_ttype_bytes(&call->in[0]) +
                               3.0 * (double)dtp_ttype_bytes(&call->in[1]) +
                               (double)dtp_ttype_bytes(&call->out[0])};
}

static dtp_status vjp_embedding(dtp_vjp *v, dtp_err *err)
{
    if (v->d_out[0] < 0 || !v->need[0]) {
        return DTP_OK;
    }
    const dtp_attr over = *dtp_vjp_attr(v, "over");
    const dtp_ttype *table = &v->g->tensors[v->in[0]].type;
    int32_t axis = dtp_ttype_find(table, (dtp_dim_id)over.i);
    const dtp_attr attrs[] = {over, dtp_attr_int("size", table->dims[axis].size),
                              dtp_attr_int("skip", dtp_vjp_attr(v, "padding")->i)};
    const dtp_tensor_id in[] = {v->in[1], v->d_out[0]};
    return dtp_vjp_emit(v, &(dtp_vjp_op){"embedding_grad", 2, in, 3, attrs}, v->in[0], &v->d_in[0],
                        err);
}

const dtp_op_def dtp_ops_lookup[] = {
    {
        DTP_ROW("gather", "elements of x at integer positions along a dim", 2, 2, 1),
        .attrs = OVER,
        .flags = DTP_OP_ANY_DTYPE | DTP_OP_LOOKUP | DTP_OP_CHECKS_DATA | DTP_OP_MOVES,
        .infer = infer_gather,
        .role = role_gather,
        .linear = DTP_LINEAR_EACH,
        .work = dtp_rows__work_lookup,
        .vjp = vjp_gather,
        .bench = {"tc #r | over=t"},
        .f32_error = DTP_EXACT,
    },
    {
        DTP_ROW("scatter_add", "adds elements at integer positions along a new dim", 2, 2, 1),
        .attrs = SCATTER_ATTRS,
        .flags = DTP_OP_LOOKUP | DTP_OP_CHECKS_DATA,
        .infer = infer_scatter,
        .role = role_scatter,
        .linear = DTP_LINEAR_EACH,
        .elem_flops = 1.0,
        .vjp = vjp_scatter,
        .bench = {"#r rc | over=t size=@t"},
    },
    {
        DTP_ROW("embedding", "rows of a table by integer ids", 2, 2, 1),
        .attrs = EMBEDDING_ATTRS,
        .flags = DTP_OP_LOOKUP | DTP_OP_CHECKS_DATA,
        .infer = infer_embedding,
        .role = dtp_rows__role_reduced,
        .linear = DTP_LINEAR_EACH,
        .work = dtp_rows__work_lookup,
        .vjp = vjp_embedding,
        .bench = {"tc #r | over=t"},
        .f32_error = DTP_EXACT,
    },
    {
        DTP_ROW("embedding_grad", "adds rows of dy to the table rows that ids name", 2, 2, 1),
        .flags = DTP_OP_LOOKUP | DTP_OP_CHECKS_DATA | DTP_OP_INTERNAL_USE,
        .attrs = EMBEDDING_GRAD_ATTRS,
        .infer = infer_grad,
        .role = role_grad,
        .linear = DTP_LINEAR_EACH,
        .work = work_grad,
        .no_grad = DTP_NO_GRAD_OF_GRAD,
        .bench = {"#r rc | over=t size=@t"},
    },
    {.name = NULL},
};
