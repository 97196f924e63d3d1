/* einsum: the product of 1 to 16 operands, summed over the dims that the result lacks. */
#include "core/graph/ops/common.h"

/* The dims of a call as bits, those of size 1 left out, and which of them an operand has. */
typedef struct dim_bits {
    int32_t n;
    int64_t size[DTP_MAX_OP_DIMS];
    uint32_t in[DTP_MAX_OP_IN], out;
} dim_bits;

static void read_dims(const dtp_op_call *call, dim_bits *d)
{
    dtp_dim_id ids[DTP_MAX_OP_DIMS];
    *d = (dim_bits){.n = dtp_call_dims(call, ids)};
    for (int32_t i = 0; i < d->n; i++) {
        d->size[i] =
            dtp_ttype_size(&call->in[dtp_op__first_with(call, call->n_in, ids[i])], ids[i]);
        for (int32_t k = 0; k < call->n_in && d->size[i] != 1; k++) {
            d->in[k] |= dtp_ttype_find(&call->in[k], ids[i]) >= 0 ? 1U << i : 0U;
        }
        d->out |= d->size[i] != 1 && dtp_ttype_find(&call->out[0], ids[i]) >= 0 ? 1U << i : 0U;
    }
}

/* Elements of a tensor with these dims. */
static double elems(const dim_bits *d, uint32_t dims)
{
    double n = 1.0;
    for (int32_t i = 0; i < d->n; i++) {
        n *= (dims >> i & 1U) != 0 ? (double)d->size[i] : 1.0;
    }
    return n;
}

/* Operands are multiplied from left to right: the dims of the product of `a`, the operands before
 * operand i, and operand i that the result or an operand after it has. */
static uint32_t product_dims(const dtp_op_call *call, const dim_bits *d, uint32_t a, int32_t i)
{
    uint32_t needed = d->out;
    for (int32_t k = i + 1; k < call->n_in; k++) {
        needed |= d->in[k];
    }
    return (a | d->in[i]) & needed;
}

/* ---- inference ---- */

static dtp_status check_operands(const dtp_op_call *call, dtp_err *err)
{
    int32_t n_dims = 0;
    for (int32_t i = 0; i < call->n_in; i++) {
        DTP_TRY(dtp_op__need_float(call, i, err));
        DTP_TRY(dtp_op__same_dtype(call, i, 0, err));
        for (int32_t k = 0; k < call->in[i].rank; k++) {
            const dtp_tdim d = call->in[i].dims[k];
            DTP_TRY(dtp_op__same_size(call, i, d, err));
            n_dims += dtp_op__first_with(call, i, d.id) < 0 ? 1 : 0;
        }
    }
    if (n_dims > DTP_MAX_OP_DIMS) {
        return DTP_FAIL(err, DTP_INVALID, "the operands have %d different dims, at most %d fit",
                        n_dims, DTP_MAX_OP_DIMS);
    }
    return DTP_OK;
}

static dtp_status infer_einsum(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_dtype result;
    DTP_TRY(check_operands(call, err));
    DTP_TRY(dtp_op__result(call, call->in[0].dtype, &result, err));
    DTP_TRY(dtp_op__declared(has_out, result, out, err));
    for (int32_t k = 0; k < out->rank; k++) {
        const dtp_tdim d = out->dims[k];
        const int32_t in = dtp_op__first_with(call, call->n_in, d.id);
        if (in < 0) {
            return DTP_FAIL(err, DTP_INVALID,
                            "'out' has dim '%s', which no operand has (use broadcast)",
                            dtp_dims_name(call->dims, d.id));
        }
        if (dtp_ttype_size(&call->in[in], d.id) != d.size) {
            return DTP_FAIL(err, DTP_INVALID, "dim '%s' is %lld in operand %d but %lld in 'out'",
                            dtp_dims_name(call->dims, d.id),
                            (long long)dtp_ttype_size(&call->in[in], d.id), in, (long long)d.size);
        }
    }
    if (call->n_in < 3) {
        return DTP_OK;
    }
    /* There are intermediates. */
    dim_bits d;
    dtp_op_call typed = *call;
    typed.out = out;
    typed.n_out = 1;
    read_dims(&typed, &d);
    double bytes = 0.0;
    uint32_t a = d.in[0];
    for (int32_t i = 1; i < call->n_in - 1; i++) {
        a = product_dims(call, &d, a, i);
        bytes += elems(&d, a) * (double)dtp_dtype_bytes(out->dtype);
    }
    return bytes < 0x1p63 ? DTP_OK
                          : DTP_FAIL(err, DTP_RANGE,
                                     "a product of the operands, taken from left to right, is too "
                                     "large");
}

/* ---- rules and work ---- */

static dtp_dim_role role_einsum(const dtp_op_call *call, dtp_dim_id d)
{
    const bool kept = dtp_ttype_find(&call->out[0], d) >= 0;
    return (dtp_dim_role){.role = kept ? DTP_ROLE_PARALLEL : DTP_ROLE_REDUCED,
                          .op = DTP_REDUCE_SUM};
}

/* A product of two tensors with a sum is a GEMM. Matrix sizes are those of the one with the most
 * multiplications. */
static void work_einsum(const dtp_op_call *call, dtp_work *out)
{
    const double elem_bytes = (double)dtp_dtype_bytes(call->in[0].dtype);
    dim_bits d;
    double most = 0.0;
    read_dims(call, &d);
    *out = (dtp_work){.cls = DTP_WORK_MEMORY};
    uint32_t a = d.in[0];
    if (call->n_in == 1 && elems(&d, d.out) > 0.0) { /* a sum or a copy */
        out->flops = (a & ~d.out) != 0 ? elems(&d, a) : 0.0;
        out->bytes = elem_bytes * (elems(&d, a) + elems(&d, d.out));
    }
    for (int32_t i = 1; i < call->n_in && elems(&d, d.out) > 0.0; i++) {
        uint32_t b = d.in[i];
        const uint32_t c = product_dims(call, &d, a, i), alone[2] = {a & ~b & ~c, b & ~a & ~c};
        for (int32_t k = 0; k < 2; k++) { /* dims that only one of them has are summed before */
            uint32_t *of = k == 0 ? &a : &b;
            if (alone[k] != 0) {
                out->flops += elems(&d, *of);
                out->bytes += elem_bytes * (elems(&d, *of) + elems(&d, *of & ~alone[k]));
                *of &= ~alone[k];
            }
        }
        const uint32_t k = a & b & ~c, m = a & ~b, n = b & ~a;
        const double size = elems(&d, a | b);
        const bool gemm = k != 0 && (m | n) != 0 && size > 0.0;
        out->flops += size * (k != 0 ? 2.0 : 1.0);
        out->bytes += elem_bytes * (elems(&d, a) + elems(&d, b) + elems(&d, c));
        if (gemm && size > most) {
            most = size;
            out->cls = DTP_WORK_GEMM;
            out->batch = (int64_t)elems(&d, a & b & c);
            out->m = (int64_t)elems(&d, m);
            out->n = (int64_t)elems(&d, n);
            out->k = (int64_t)elems(&d, k);
        }
        a = c;
    }
}

/* ---- gradient ---- */

/* The gradient of operand i is the einsum of dy with the other operands, repeated over the dims
 * that only operand i has. */
static dtp_status vjp_operand(dtp_vjp *v, dtp_tensor_id dy, int32_t i, int32_t n_in, dtp_err *err)
{
    const dtp_graph_tensor *tensors = v->g->tensors;
    const dtp_ttype *want = &tensors[v->in[i]].type;
    dtp_tensor_id in[DTP_MAX_OP_IN] = {dy};
    dtp_ttype covered = {.dtype = want->dtype};
    int32_t n = 1;
    for (int32_t k = 0; k < n_in; k++) {
        if (k != i) {
            in[n++] = v->in[k];
        }
    }
    for (int32_t d = 0; d < want->rank; d++) {
        bool found = false;
        for (int32_t k = 0; k < n && !found; k++) {
            found = dtp_ttype_find(&tensors[in[k]].type, want->dims[d].id) >= 0;
        }
        if (found) {
            covered.dims[covered.rank++] = want->dims[d];
        }
    }
    if (covered.rank == want->rank) {
        return dtp_vjp_emit(v, &(dtp_vjp_op){"einsum", n, in, 0, NULL}, v->in[i], &v->d_in[i], err);
    }
    dtp_tensor_id part = dy;
    if (n > 1) {
        DTP_TRY(dtp_vjp_emit_shaped(v, "einsum", n, in, &covered, &part, err));
    }
    return dtp_vjp_emit(v, &(dtp_vjp_op){"broadcast", 1, &part, 0, NULL}, v->in[i], &v->d_in[i],
                        err);
}

static dtp_status vjp_einsum(dtp_vjp *v, dtp_err *err)
{
    const int32_t n_in = v->g->nodes[v->node].n_in;
    const dtp_dtype dtype = v->g->tensors[v->in[0]].type.dtype;
    dtp_tensor_id dy; /* in the type of the operands */
    DTP_TRY(dtp_op__emit_cast(v, v->d_out[0], dtype, &dy, err));
    for (int32_t i = 0; i < n_in; i++) {
        if (v->need[i]) {
            DTP_TRY(vjp_operand(v, dy, i, n_in, err));
        }
    }
    return DTP_OK;
}

/* ---- row ---- */

static const dtp_attr_spec EINSUM_ATTRS[] = {DTP_RESULT_ATTR, {.key = NULL}};

const dtp_op_def dtp_ops_einsum[] = {
    {
        DTP_ROW("einsum", "product of the operands summed over the dims that the result lacks", 1,
                DTP_MAX_OP_IN, 1),
        .flags = DTP_OP_CONTRACTION,
        .attrs = EINSUM_ATTRS,
        .infer = infer_einsum,
        .role = role_einsum,
        .linear = DTP_LINEAR_EACH,
        .work = work_einsum,
        .vjp = vjp_einsum,
        .bench = {"rc | out=r", "rc | out=c", "rc | out=cr"},
        .mtf_class = "EinsumOperation",
    },
    {.name = NULL},
};
