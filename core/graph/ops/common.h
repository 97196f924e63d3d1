/* Inference helpers that most ops share. Private to core/graph/ops. */
#ifndef DTP_CORE_GRAPH_OPS_COMMON_H
#define DTP_CORE_GRAPH_OPS_COMMON_H

#include "core/graph/autodiff.h"

/* The start of a row: name, summary, least and most operands, outputs. */
#define DTP_ROW(op, text, least, most, outs)                                                       \
    .name = (op), .summary = (text), .min_in = (least), .max_in = (most), .n_out = (outs)

/* The attribute of ops whose result may have a wider float type than the operands. */
#define DTP_RESULT_ATTR                                                                            \
    {                                                                                              \
        .key = "result", .kind = DTP_ATTR_DTYPE, .hidden = true, .def = DTP_NO_DTYPE               \
    }
#define DTP_NO_LOWERING_GRAD "the lowering makes it"
#define DTP_NO_OPERANDS "it has no operands"
#define DTP_NO_BOOL_GRAD "its operands are truth values"
#define DTP_NO_GRAD_OF_GRAD "gradients of gradients are not supported"

/* role hook: the dim of attribute `dim` is WHOLE, the others are PARALLEL. */
dtp_dim_role dtp_op__role_along(const dtp_op_call *call, dtp_dim_id d);

/* Sets out[0] to `want`; when dims were declared they must be the same set with the same sizes, and
 * their order is kept. */
dtp_status dtp_op__set_out(const dtp_op_call *call, bool has_out, const dtp_ttype *want,
                           dtp_ttype *out, dtp_err *err) DTP_MUST_CHECK;
/* The first operand before `end` that has the dim, -1 when there is none. */
int32_t dtp_op__first_with(const dtp_op_call *call, int32_t end, dtp_dim_id id);
/* Dim d of operand i has the size that it has in the first operand with it. */
dtp_status dtp_op__same_size(const dtp_op_call *call, int32_t i, dtp_tdim d,
                             dtp_err *err) DTP_MUST_CHECK;
/* The dims of all operands in order of first appearance from operand `first` on, and its dtype;
 * DTP_INVALID when a dim has two sizes or the rank grows beyond DTP_MAX_RANK. */
dtp_status dtp_op__broadcast(const dtp_op_call *call, int32_t first, dtp_ttype *out,
                             dtp_err *err) DTP_MUST_CHECK;
/* Operand i has a floating-point dtype. */
dtp_status dtp_op__need_float(const dtp_op_call *call, int32_t i, dtp_err *err) DTP_MUST_CHECK;
/* All operands are bools. */
dtp_status dtp_op__need_bool(const dtp_op_call *call, dtp_err *err) DTP_MUST_CHECK;
/* Operands i and j have the same dtype. */
dtp_status dtp_op__same_dtype(const dtp_op_call *call, int32_t i, int32_t j,
                              dtp_err *err) DTP_MUST_CHECK;
/* Element type of sums, statistics and losses of elements of a float type: f32 for 16-bit ones. */
dtp_dtype dtp_op__sum_dtype(dtp_dtype dtype);
/* The dtype of a result: what attribute "result" says, else `dtype`; DTP_INVALID unless it is a
 * float type at least as wide. */
dtp_status dtp_op__result(const dtp_op_call *call, dtp_dtype dtype, dtp_dtype *out,
                          dtp_err *err) DTP_MUST_CHECK;
/* Axis of the dim attribute `key` in operand 0; DTP_INVALID when it is not there. */
dtp_status dtp_op__axis(const dtp_op_call *call, const char *key, int32_t *axis,
                        dtp_err *err) DTP_MUST_CHECK;
/* An output whose dims must be declared. */
dtp_status dtp_op__declared(bool has_out, dtp_dtype dtype, dtp_ttype *out,
                            dtp_err *err) DTP_MUST_CHECK;

/* Backward nodes of one output: an op of one or two operands without attributes, and scale. The
 * output takes the dims of tensor `like`. */
dtp_status dtp_op__emit1(dtp_vjp *v, const char *op, dtp_tensor_id x, dtp_tensor_id like,
                         dtp_tensor_id *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_op__emit2(dtp_vjp *v, const char *op, dtp_tensor_id a, dtp_tensor_id b,
                         dtp_tensor_id like, dtp_tensor_id *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_op__emit_scale(dtp_vjp *v, dtp_tensor_id x, double factor, dtp_tensor_id like,
                              dtp_tensor_id *out, dtp_err *err) DTP_MUST_CHECK;
/* x in another float type; x itself when it has that already. */
dtp_status dtp_op__emit_cast(dtp_vjp *v, dtp_tensor_id x, dtp_dtype dtype, dtp_tensor_id *out,
                             dtp_err *err) DTP_MUST_CHECK;
/* 1 where `a cmp b`, else 0, in the dtype of operand 0. */
dtp_status dtp_op__emit_mask(dtp_vjp *v, const char *cmp, dtp_tensor_id a, dtp_tensor_id b,
                             dtp_tensor_id like, dtp_tensor_id *out, dtp_err *err) DTP_MUST_CHECK;
/* Index of a choice of an op's ENUM attribute, as that attribute. */
dtp_status dtp_op__enum_attr(const dtp_graph *g, const char *op, const char *key,
                             const char *choice, dtp_attr *out, dtp_err *err) DTP_MUST_CHECK;
/* vjp hook of an op of one operand that is its own adjoint but for the direction: the op on dy with
 * the same attributes, a flag the other way ("inverse", "reverse") and "shift" back. */
dtp_status dtp_op__self_grad(dtp_vjp *v, dtp_err *err) DTP_MUST_CHECK;
/* The vjp hook of a function of one operand that is constant piece by piece: zeros. */
dtp_status dtp_op__zero_grad(dtp_vjp *v, dtp_err *err) DTP_MUST_CHECK;

#endif
