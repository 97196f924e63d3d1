/* How linear_loss and linear_loss_grad run in chunks of rows: the calls of a chunk and the
 * workspace, for memory, prices and kernels. */
#include "spmd/target/linear_loss.h"

#include "core/graph/op_set.h"
#include "core/graph/ops/cross_entropy.h"
#include "core/graph/ops/op_table.h"

enum { ALIGN = 64 };

static dtp_ttype merged(const dtp_ttype *type, int32_t n_rows, int64_t rows)
{
    dtp_ttype out = {.dtype = type->dtype, .rank = 1, .dims = {{type->dims[0].id, rows}}};
    for (int32_t i = n_rows; i < type->rank; i++) {
        out.dims[out.rank++] = type->dims[i];
    }
    return out;
}

static void place(dtp_linear_plan *p, dtp_linear_buffer b, int64_t rows)
{
    const dtp_ttype type = dtp_linear_type(p, b, rows);
    p->offset[b] = p->scratch;
    p->scratch += (dtp_ttype_bytes(&type) + ALIGN - 1) / ALIGN * ALIGN;
}

/* The attributes of cross_entropy with this reduction. */
static dtp_linear_part loss_part(const dtp_op_call *call, const char *op, int64_t reduce)
{
    dtp_linear_part part = {.op = op, .n_attrs = DTP_LINEAR_ATTRS};
    for (int32_t i = 0; i < DTP_LINEAR_ATTRS; i++) {
        part.attrs[i] = call->attrs[i];
    }
    part.attrs[1].i = reduce; /* over, reduce, .. */
    return part;
}

/* A product, or with one operand a sum, whose result has the dtype of `out`. */
static dtp_linear_part product(const dtp_linear_plan *p, dtp_linear_buffer a, dtp_linear_buffer b,
                               int32_t n_in, dtp_linear_buffer out)
{
    dtp_linear_part part = {
        .op = "einsum", .n_in = n_in, .n_out = 1, .in = {a, b}, .out = {out}, .n_attrs = 1};
    part.attrs[0] = dtp_attr_int("result", (int64_t)p->types[out].dtype);
    part.attrs[0].kind = DTP_ATTR_DTYPE;
    return part;
}

static void plan_loss(const dtp_op_call *call, int64_t global_rows, dtp_linear_plan *p)
{
    const int64_t reduce = dtp_call_int(call, "reduce");
    const dtp_linear_buffer to = reduce == DTP_LOSS_NONE ? DTP_LINEAR_LOSS : DTP_LINEAR_ROW_LOSS;
    p->parts[p->n_parts++] = product(p, DTP_LINEAR_X, DTP_LINEAR_W, 2, DTP_LINEAR_LOGITS);
    dtp_linear_part *loss = &p->parts[p->n_parts++];
    *loss = loss_part(call, "cross_entropy", DTP_LOSS_NONE);
    loss->n_in = loss->n_out = 2;
    loss->in[0] = DTP_LINEAR_LOGITS;
    loss->in[1] = DTP_LINEAR_LABELS;
    loss->out[0] = to;
    loss->out[1] = DTP_LINEAR_LSE;
    if (reduce != DTP_LOSS_NONE) {
        place(p, DTP_LINEAR_ROW_LOSS, p->rows);
        p->end[p->n_end++] = product(p, DTP_LINEAR_ROW_LOSS, DTP_LINEAR_X, 1, DTP_LINEAR_LOSS);
    }
    if (reduce == DTP_LOSS_MEAN) {
        p->end[p->n_end++] =
            (dtp_linear_part){.op = "scale",
                              .n_in = 1,
                              .n_out = 1,
                              .in = {DTP_LINEAR_LOSS},
                              .out = {DTP_LINEAR_LOSS},
                              .n_attrs = 1,
                              .attrs = {dtp_attr_float("factor", 1.0 / (double)global_rows)}};
    }
}

/* Behind those of the loss. */
static void plan_gradients(const dtp_op_call *call, dtp_linear_plan *p)
{
    const bool several = p->chunk < p->rows;
    const bool direct = p->types[DTP_LINEAR_DW].dtype == p->types[DTP_LINEAR_SUM].dtype;
    const dtp_linear_buffer sum = direct || !several ? DTP_LINEAR_DW : DTP_LINEAR_SUM;
    place(p, DTP_LINEAR_LSE, p->rows);
    dtp_linear_part *grad = &p->parts[p->n_parts++];
    *grad = loss_part(call, "cross_entropy_grad", dtp_call_int(call, "reduce"));
    grad->n_in = 4;
    grad->n_out = 1;
    grad->in[0] = grad->out[0] = DTP_LINEAR_LOGITS;
    grad->in[1] = DTP_LINEAR_LABELS;
    grad->in[2] = DTP_LINEAR_LSE;
    grad->in[3] = DTP_LINEAR_DLOSS;
    p->parts[p->n_parts++] = product(p, DTP_LINEAR_LOGITS, DTP_LINEAR_W, 2, DTP_LINEAR_DX);
    dtp_linear_part *first = &p->parts[p->n_parts++];
    *first = product(p, DTP_LINEAR_X, DTP_LINEAR_LOGITS, 2, sum);
    if (!several) {
        return;
    }
    if (!direct) {
        place(p, DTP_LINEAR_SUM, 0);
    }
    place(p, DTP_LINEAR_TERM, 0);
    first->runs = 1;
    dtp_linear_part *term = &p->parts[p->n_parts++];
    *term = product(p, DTP_LINEAR_X, DTP_LINEAR_LOGITS, 2, DTP_LINEAR_TERM);
    term->runs = -1;
    p->parts[p->n_parts++] = (dtp_linear_part){
        .op = "add", .n_in = 2, .n_out = 1, .in = {sum, DTP_LINEAR_TERM}, .out = {sum}, .runs = -1};
    if (!direct) {
        dtp_linear_part *cast = &p->end[p->n_end++];
        *cast = (dtp_linear_part){
            .op = "cast", .n_in = 1, .n_out = 1, .in = {sum}, .out = {DTP_LINEAR_DW}, .n_attrs = 1};
        cast->attrs[0] = dtp_attr_int("dtype", (int64_t)p->types[DTP_LINEAR_DW].dtype);
        cast->attrs[0].kind = DTP_ATTR_DTYPE;
    }
}

void dtp_linear_plan_make(const dtp_op_call *call, int64_t global_rows, dtp_linear_plan *p)
{
    const bool gradients = call->n_in == 4;
    const dtp_ttype *x = &call->in[0], *w = &call->in[1], *labels = &call->in[2];
    const int32_t n_rows = labels->rank;
    const dtp_dtype wide = call->out[gradients ? 2 : 0].dtype;
    *p = (dtp_linear_plan){.rows = dtp_ttype_elems(labels)};
    const int64_t chunk = dtp_call_int(call, "chunk");
    p->chunk = chunk < p->rows ? chunk : p->rows;
    for (int32_t b = 0; b < DTP_LINEAR_BUFFERS; b++) {
        p->offset[b] = -1;
    }
    dtp_ttype row = merged(labels, n_rows, p->rows);
    row.dtype = wide;
    const bool kept = dtp_call_int(call, "reduce") == DTP_LOSS_NONE;
    const int32_t at = dtp_ttype_find(w, dtp_call_dim(call, "over"));
    p->types[DTP_LINEAR_X] = p->types[DTP_LINEAR_DX] = merged(x, n_rows, p->rows);
    p->types[DTP_LINEAR_W] = *w;
    p->types[DTP_LINEAR_LABELS] = merged(labels, n_rows, p->rows);
    p->types[DTP_LINEAR_LSE] = p->types[DTP_LINEAR_ROW_LOSS] = row;
    p->types[DTP_LINEAR_LOSS] = p->types[DTP_LINEAR_DLOSS] =
        kept ? row : (dtp_ttype){.dtype = wide};
    p->types[DTP_LINEAR_LOGITS] = row;
    p->types[DTP_LINEAR_LOGITS].dtype = x->dtype;
    p->types[DTP_LINEAR_LOGITS].dims[1] = w->dims[at];
    p->types[DTP_LINEAR_LOGITS].rank = 2;
    p->types[DTP_LINEAR_DW] = gradients ? call->out[1] : *w;
    p->types[DTP_LINEAR_SUM] = p->types[DTP_LINEAR_TERM] = p->types[DTP_LINEAR_DW];
    p->types[DTP_LINEAR_SUM].dtype = p->types[DTP_LINEAR_TERM].dtype = wide;
    place(p, DTP_LINEAR_LOGITS, p->chunk);
    plan_loss(call, global_rows, p);
    if (gradients) {
        plan_gradients(call, p);
    }
}

bool dtp_linear_has_rows(const dtp_linear_plan *p, dtp_linear_buffer b)
{
    const dtp_ttype *type = &p->types[b];
    return type->rank > 0 && type->dims[0].id == p->types[DTP_LINEAR_LABELS].dims[0].id;
}

dtp_ttype dtp_linear_type(const dtp_linear_plan *p, dtp_linear_buffer b, int64_t n)
{
    dtp_ttype type = p->types[b];
    if (dtp_linear_has_rows(p, b)) {
        type.dims[0].size = n;
    }
    return type;
}

dtp_op_call dtp_linear_call(const dtp_linear_plan *p, const dtp_linear_part *part,
                            const dtp_dims *dims, int64_t n, dtp_ttype types[6])
{
    for (int32_t i = 0; i < part->n_in; i++) {
        types[i] = dtp_linear_type(p, part->in[i], n);
    }
    for (int32_t i = 0; i < part->n_out; i++) {
        types[part->n_in + i] = dtp_linear_type(p, part->out[i], n);
    }
    return (dtp_op_call){.op = dtp_op_find(part->op),
                         .dims = dims,
                         .attrs = part->attrs,
                         .n_attrs = part->n_attrs,
                         .n_in = part->n_in,
                         .n_out = part->n_out,
                         .in = types,
                         .out = types + part->n_in};
}

static int64_t part_workspace(const dtp_target_op *row, const dtp_op_call *call)
{
    while (row->op != NULL && dtp_op_find(row->op) != call->op) {
        row++;
    }
    return row->workspace != NULL ? row->workspace(call) : 0;
}

int64_t dtp_linear_workspace(const dtp_target_op *ops, const dtp_op_call *call)
{
    dtp_linear_plan p;
    int64_t most = 0;
    dtp_linear_plan_make(call, 1, &p);
    for (int32_t i = 0; i < p.n_parts + p.n_end && p.rows > 0; i++) {
        const bool end = i >= p.n_parts;
        const int64_t left = p.rows % p.chunk, sizes[] = {end ? p.rows : p.chunk, left};
        for (int32_t k = 0; k < (end || left == 0 ? 1 : 2); k++) {
            dtp_ttype types[6];
            const dtp_linear_part *part = end ? &p.end[i - p.n_parts] : &p.parts[i];
            const dtp_op_call sub = dtp_linear_call(&p, part, call->dims, sizes[k], types);
            const int64_t bytes = part_workspace(ops, &sub);
            most = bytes > most ? bytes : most;
        }
    }
    return p.scratch + most;
}
