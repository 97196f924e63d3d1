/* Products and more, which the lowering puts in the place of several kernels
 * (spmd/lower/passes/fuse_product.c):
 *
 *   fused_product        an expression of the product of operands 0 and 1, which is its operand 0
 *   fused_product2       and has the dims of the result; its other operands behind those two
 *   fused_product_sum    the same, and the sum of the result over the dims that operand 1 lacks
 *   fused_operand_sum    the product of operands 0 and 1, and the sum of operand 1 over the dims
 *                        that the product lacks
 *
 * Attributes: those of expressions (fused.c).
 */
#include "core/graph/op_set.h"
#include "core/graph/ops/common.h"
#include "core/graph/ops/fused_ops.h"

extern const dtp_op_def dtp_ops_einsum[], dtp_ops_fused_product[];

static const dtp_attr_spec SUM_ATTRS[] = {DTP_RESULT_ATTR, {.key = NULL}};

const dtp_op_def *dtp_fused_product(dtp_fused_product_kind kind)
{
    return &dtp_ops_fused_product[(int32_t)kind];
}

dtp_fused_product_kind dtp_fused_product_kind_of(const dtp_op_def *op)
{
    int32_t kind = 0;
    while (kind < (int32_t)DTP_N_FUSED_PRODUCTS && !dtp_op_same(&dtp_ops_fused_product[kind], op)) {
        kind++;
    }
    return (dtp_fused_product_kind)kind;
}

dtp_op_call dtp_fused_product_of(const dtp_op_call *call)
{
    dtp_op_call product = *call;
    product.op = dtp_ops_einsum;
    product.attrs += call->op->attrs != SUM_ATTRS ? DTP_FUSED_RESULT : 0;
    product.n_attrs = 1;
    product.n_in = 2;
    product.n_out = 1;
    return product;
}

dtp_op_call dtp_fused_product_expression(const dtp_op_call *call, dtp_ttype in[DTP_FUSED_IN])
{
    dtp_op_call expr = *call;
    expr.n_out = dtp_fused_product_kind_of(call->op) == DTP_FUSED_PRODUCT_ALSO ? 2 : 1;
    expr.op = dtp_fused_elementwise(expr.n_out);
    expr.n_in = call->n_in - 1;
    expr.in = in;
    for (int32_t i = 1; i < expr.n_in; i++) {
        in[i] = call->in[i + 1];
    }
    if (call->out != NULL) {
        in[0] = call->out[0];
    }
    return expr;
}

dtp_op_call dtp_fused_product_sum(const dtp_op_call *call)
{
    const bool of_operand = dtp_fused_product_kind_of(call->op) == DTP_FUSED_OPERAND_SUM;
    dtp_op_call sum = dtp_fused_product_of(call);
    sum.n_in = 1;
    sum.in = of_operand ? &call->in[1] : &call->out[0];
    sum.out = &call->out[1];
    return sum;
}

/* The dims of `of` that `kept` has. */
static dtp_ttype sum_type(const dtp_ttype *of, const dtp_ttype *kept, dtp_dtype dtype)
{
    dtp_ttype sum = {.dtype = dtype};
    for (int32_t i = 0; i < of->rank; i++) {
        if (dtp_ttype_find(kept, of->dims[i].id) >= 0) {
            sum.dims[sum.rank++] = of->dims[i];
        }
    }
    return sum;
}

static dtp_status infer_product(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype in[DTP_FUSED_IN];
    dtp_op_call untyped = *call;
    untyped.out = NULL;
    const dtp_op_call product = dtp_fused_product_of(&untyped),
                      expr = dtp_fused_product_expression(&untyped, in);
    DTP_TRY(product.op->infer(&product, has_out, out, err));
    in[0] = out[0];
    DTP_TRY(expr.op->infer(&expr, true, out, err));
    if (dtp_fused_product_kind_of(call->op) == DTP_FUSED_PRODUCT_SUM) {
        out[1] = sum_type(&out[0], &call->in[1], out[0].dtype);
    }
    return DTP_OK;
}

static dtp_status infer_operand_sum(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                    dtp_err *err)
{
    const dtp_op_call product = dtp_fused_product_of(call);
    DTP_TRY(product.op->infer(&product, has_out, out, err));
    out[1] = sum_type(&call->in[1], &out[0], out[0].dtype);
    return DTP_OK;
}

/* What the product sums over is whole: its result is what the functions are of. */
static dtp_dim_role role_product(const dtp_op_call *call, dtp_dim_id d)
{
    const bool kept = dtp_ttype_find(&call->out[0], d) >= 0;
    const bool summed = dtp_fused_product_kind_of(call->op) == DTP_FUSED_PRODUCT_SUM &&
                        dtp_ttype_find(&call->out[1], d) < 0;
    return (dtp_dim_role){.role = !kept    ? DTP_ROLE_WHOLE
                                  : summed ? DTP_ROLE_REDUCED
                                           : DTP_ROLE_PARALLEL,
                          .op = DTP_REDUCE_SUM};
}

static dtp_dim_role role_operand_sum(const dtp_op_call *call, dtp_dim_id d)
{
    const dtp_op_call product = dtp_fused_product_of(call);
    /* The role holds no address of the call. */
    return product.op->role(&product, d); // cppcheck-suppress returnDanglingLifetime
}

void dtp_fused_product_work(const dtp_op_call *call,
                            void (*product)(const dtp_op_call *call, dtp_work *out), dtp_work *out)
{
    dtp_ttype in[DTP_FUSED_IN];
    const dtp_op_call of = dtp_fused_product_of(call);
    const dtp_fused_product_kind kind = dtp_fused_product_kind_of(call->op);
    product(&of, out);
    const double more = dtp_call_bytes(call) - dtp_call_bytes(&of);
    out->pack_bytes += out->cls == DTP_WORK_GEMM ? more : 0.0;
    out->bytes += more;
    if (kind != DTP_FUSED_OPERAND_SUM) {
        const dtp_op_call expr = dtp_fused_product_expression(call, in);
        dtp_work apart = {.flops = 0.0};
        expr.op->work(&expr, &apart);
        out->flops += apart.flops;
    }
    if (kind >= DTP_FUSED_PRODUCT_SUM) {
        const dtp_op_call sum = dtp_fused_product_sum(call);
        out->flops += (double)dtp_ttype_elems(&sum.in[0]);
    }
}

static void work_product(const dtp_op_call *call, dtp_work *out)
{
    dtp_fused_product_work(call, dtp_ops_einsum->work, out);
}

static const char *const SUM_NAME[] = {"sum"};

#define PRODUCT(op, text, least, most, outs)                                                       \
    DTP_ROW(op, text, least, most, outs), .flags = DTP_OP_INTERNAL_USE, .work = work_product,      \
                                          .no_grad = DTP_NO_LOWERING_GRAD, .rates = "einsum"
#define EXPRESSION(op, text, outs)                                                                 \
    PRODUCT(op, text, 2, DTP_FUSED_IN + 1, outs), .attrs = dtp_fused_expression_attrs,             \
                                                  .infer = infer_product, .role = role_product

/* In the order of dtp_fused_product_kind. */
const dtp_op_def dtp_ops_fused_product[] = {
    {EXPRESSION("fused_product", "an expression of the product of two operands", 1),
     .bench = {"rt tc c | out=rc step0=1000100"}},
    {EXPRESSION("fused_product2", "the same, and the result of an earlier step", 2),
     .out_names = dtp_fused_also,
     .bench = {"rt tc c | out=rc step0=1000100 step1=17060000 also=0"}},
    {EXPRESSION("fused_product_sum", "the same, and the sum of the result over rows", 2),
     .out_names = SUM_NAME, .bench = {"rt tc rc | out=rc step0=31010000"}},
    {PRODUCT("fused_operand_sum", "a product, and the sum of its second operand over rows", 2, 2,
             2),
     .attrs = SUM_ATTRS, .infer = infer_operand_sum, .role = role_operand_sum,
     .out_names = SUM_NAME, .bench = {"rt rc | out=tc"}},
    {.name = NULL},
};
