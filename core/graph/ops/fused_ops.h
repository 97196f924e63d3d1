/* Fused ops: what the pass that makes them (spmd/lower/passes/fuse.c) and their kernels ask. */
#ifndef DTP_CORE_GRAPH_OPS_FUSED_OPS_H
#define DTP_CORE_GRAPH_OPS_FUSED_OPS_H

#include "core/base/strbuf.h"
#include "core/graph/op.h"
#include "core/graph/ops/fused.h"

/* Attributes of an expression, where "result" is among them; of a norm before them: over, eps. */
enum { DTP_FUSED_RESULT = DTP_FUSED_STEPS + DTP_FUSED_CONSTANTS };
enum { DTP_FUSED_ATTRS = DTP_FUSED_STEPS + DTP_FUSED_CONSTANTS + 2, DTP_FUSED_NORM_ATTRS = 2 };

/* Functions that products are fused with, as libraries compute them. */
typedef enum dtp_fused_function {
    DTP_FUSED_ADD,
    DTP_FUSED_MUL,
    DTP_FUSED_GELU,
    DTP_FUSED_GELU_GRAD
} dtp_fused_function;
const dtp_op_def *dtp_fused_op(dtp_fused_function function);
static inline bool dtp_fused_is_function(const dtp_op_def *op)
{
    return (op->flags & DTP_OP_FUSES) != 0;
}
/* The attribute of a function that is the constant of a step, NULL = none. */
const char *dtp_fused_key(const dtp_op_def *op);
/* A step in words, as cases and recipes write it: "add:0,1", "gelu:s0" (the result of step 0),
 * "pow:0,0,1" (with constant "c1"). In *out the attribute; DTP_INVALID. */
dtp_status dtp_fused_step_parse(const char *text, int64_t *out, dtp_err *err) DTP_MUST_CHECK;

/* Attributes of rows that are an expression; the output name of those with attribute "also". */
extern const dtp_attr_spec dtp_fused_expression_attrs[];
extern const char *const dtp_fused_also[];
/* The op of expressions with so many results. */
const dtp_op_def *dtp_fused_elementwise(int32_t n_out);
/* Its attributes; false when the expression has too many constants. */
bool dtp_fused_attrs(const dtp_fused_expr *expr, dtp_dtype dtype, dtp_attr out[DTP_FUSED_ATTRS]);
/* The expression of a call; DTP_INVALID when its attributes are none. */
dtp_status dtp_fused_expr_of(const dtp_op_call *call, dtp_fused_expr *out,
                             dtp_err *err) DTP_MUST_CHECK;

/* The fused op of a norm, NULL = none. Its outputs are those of the norm and the expression's. */
const dtp_op_def *dtp_fused_norm(const dtp_op_def *norm);
/* The norm of such an op, NULL = it is another one. */
const dtp_op_def *dtp_fused_norm_of(const dtp_op_def *op);
/* The parts of a call of it: the expression, and the norm of its result, with room for the types of
 * its operands. */
dtp_op_call dtp_fused_norm_expression(const dtp_op_call *call);
dtp_op_call dtp_fused_norm_call(const dtp_op_call *call, dtp_ttype in[3]);

/* Ops that are a product and more. */
typedef enum dtp_fused_product_kind {
    DTP_FUSED_PRODUCT,      /* an expression of it */
    DTP_FUSED_PRODUCT_ALSO, /* with a second result */
    DTP_FUSED_PRODUCT_SUM,  /* an expression, and its sum over the dims that operand 1 lacks */
    DTP_FUSED_OPERAND_SUM,  /* the product, and operand 1 summed over the dims that it lacks */
    DTP_N_FUSED_PRODUCTS
} dtp_fused_product_kind;
const dtp_op_def *dtp_fused_product(dtp_fused_product_kind kind);
/* Of another op: DTP_N_FUSED_PRODUCTS. */
dtp_fused_product_kind dtp_fused_product_kind_of(const dtp_op_def *op);
/* The parts of a call: the product, of the type of result 0; the expression, whose operand 0 it is,
 * with room for the types of its operands; the sum, as a product of one operand. */
dtp_op_call dtp_fused_product_of(const dtp_op_call *call);
dtp_op_call dtp_fused_product_expression(const dtp_op_call *call, dtp_ttype in[DTP_FUSED_IN]);
dtp_op_call dtp_fused_product_sum(const dtp_op_call *call);
/* The product's work as given, and the expression's: what it reads and writes besides. */
void dtp_fused_product_work(const dtp_op_call *call,
                            void (*product)(const dtp_op_call *call, dtp_work *out), dtp_work *out);

/* Appends the functions of a call of a fused op in order, "(add gelu)"; of other ops nothing. */
void dtp_fused_print(const dtp_op_call *call, dtp_strbuf *out);

#endif
