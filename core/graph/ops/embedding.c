/* embedding: rows of a table by integer ids, and its gradient, a scatter-add.
 * A rank that holds the table rows [offset, offset + size) gives 0 for other ids, so splitting the
 * table leaves a partial sum.
 */
#include "core/graph/ops/rows.h"

static const dtp_attr_spec OVER[] = {{.key = "over", .kind = DTP_ATTR_DIM, .required = true},
                                     {.key = NULL}};

static const dtp_attr_spec OVER_SIZE[] = {
    {.key = "over", .kind = DTP_ATTR_DIM, .required = true},
    {.key = "size", .kind = DTP_ATTR_INT, .required = true, .min = 1.0, .max = 9e15},
    {.key = NULL}};

static bool is_ints(const dtp_ttype *t)
{
    return t->dtype == DTP_I32 || t->dtype == DTP_I64;
}

static dtp_status infer_embedding(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                  dtp_err *err)
{
    const dtp_ttype *table = &call->in[0], *ids = &call->in[1];
    char table_text[DTP_TTYPE_TEXT_BYTES], ids_text[DTP_TTYPE_TEXT_BYTES];
    dtp_ttype_print(table, call->dims, table_text);
    dtp_ttype_print(ids, call->dims, ids_text);
    DTP_TRY(dtp_rows__check(call, 0, err));
    if (!is_ints(ids)) {
        return DTP_FAIL(err, DTP_INVALID, "ids (operand 1) is %s, expected i32 or i64", ids_text);
    }
    dtp_ttype want = *ids, row = dtp_rows__outside(call, table);
    want.dtype = table->dtype;
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
    if (!is_ints(ids) || !dtp_dtype_is_float(dy->dtype)) {
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
    dtp_ttype want = {.dtype = dy->dtype, .rank = 1, .dims = {over}};
    for (int32_t i = 0; i < dy->rank; i++) {
        if (dtp_ttype_find(ids, dy->dims[i].id) < 0 && want.rank < DTP_MAX_RANK) {
            want.dims[want.rank++] = dy->dims[i];
        }
    }
    if (dtp_ttype_find(dy, over.id) >= 0) {
        return DTP_FAIL(err, DTP_INVALID, "dy, %s, already has dim '%s'", dy_text,
                        dtp_dims_name(call->dims, over.id));
    }
    if (!has_out) {
        *out = want;
        return DTP_OK;
    }
    out->dtype = want.dtype;
    bool same = out->rank == want.rank;
    for (int32_t i = 0; i < out->rank && same; i++) {
        int32_t at = dtp_ttype_find(&want, out->dims[i].id);
        same = at >= 0 && want.dims[at].size == out->dims[i].size;
    }
    return same ? DTP_OK : dtp_rows__set_out(call, true, &want, out, err);
}

static dtp_dim_role role_grad(const dtp_op_call *call, dtp_dim_id d)
{
    bool summed = dtp_ttype_find(&call->in[0], d) >= 0;
    return (dtp_dim_role){summed ? DTP_ROLE_REDUCED : DTP_ROLE_PARALLEL, DTP_REDUCE_SUM};
}

/* Reads one table row per id, not the table. */
static void work_embedding(const dtp_op_call *call, dtp_work *out)
{
    *out = (dtp_work){.cls = DTP_WORK_MEMORY,
                      .bytes = (double)dtp_ttype_bytes(&call->in[1]) +
                               2.0 * (double)dtp_ttype_bytes(&call->out[0])};
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
    const dtp_attr attrs[] = {over, dtp_attr_int("size", table->dims[axis].size)};
    const dtp_tensor_id in[] = {v->in[1], v->d_out[0]};
    return dtp_vjp_emit(v, &(dtp_vjp_op){"embedding_grad", 2, in, 2, attrs}, v->in[0], &v->d_in[0],
                        err);
}

const dtp_op_def dtp_ops_embedding[] = {
    {.name = "embedding",
     .summary = "rows of a table by integer ids",
     .min_in = 2,
     .max_in = 2,
     .n_out = 1,
     .attrs = OVER,
     .flags = DTP_OP_LOOKUP | DTP_OP_CHECKS_DATA,
     .infer = infer_embedding,
     .role = dtp_rows__role_reduced,
     .linear = DTP_LINEAR_EACH,
     .work = work_embedding,
     .vjp = vjp_embedding,
     .bench = {"tc #r | over=t"},
     .f32_error = DTP_EXACT},
    {.name = "embedding_grad",
     .summary = "adds rows of dy to the table rows that ids name",
     .min_in = 2,
     .max_in = 2,
     .n_out = 1,
     .flags = DTP_OP_LOOKUP | DTP_OP_CHECKS_DATA | DTP_OP_INTERNAL_USE,
     .attrs = OVER_SIZE,
     .infer = infer_grad,
     .role = role_grad,
     .linear = DTP_LINEAR_EACH,
     .work = work_grad,
     .no_grad = DTP_NO_GRAD_OF_GRAD,
     .bench = {"#r rc | over=t size=@t"}},
    {.name = NULL},
};
