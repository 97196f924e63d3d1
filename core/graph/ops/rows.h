/* Helpers of the row-wise ops: those that work on the dims of an `over` attribute (a "row") for
 * every combination of the other dims. Private to core/graph/ops.
 */
#ifndef DTP_CORE_GRAPH_OPS_ROWS_H
#define DTP_CORE_GRAPH_OPS_ROWS_H

#include "core/graph/ops/common.h"

/* The dim that holds the sums of a row in partial-sum tensors (`moments`). */
#define DTP_STAT_DIM "_stat"

/* Why the parts of decompositions have no gradient. */
#define DTP_NO_PART_GRAD "it is a part of a decomposition, made after differentiation"

/* The attribute `over` as a list of dims, and the schema of ops that have it alone. */
#define DTP_ROWS_OVER                                                                              \
    {                                                                                              \
        .key = "over", .kind = DTP_ATTR_DIMS, .required = true                                     \
    }
extern const dtp_attr_spec dtp_rows_over[];

/* Is d one of the dims of the call's `over` attribute (of kind DIM or DIMS)? */
bool dtp_rows__is_over(const dtp_op_call *call, dtp_dim_id d);
/* `over` is not empty and its dims are distinct dims of operand x (index). */
dtp_status dtp_rows__check_over(const dtp_op_call *call, int32_t x, dtp_err *err) DTP_MUST_CHECK;
/* The same, and operand x is a float tensor. */
dtp_status dtp_rows__check(const dtp_op_call *call, int32_t x, dtp_err *err) DTP_MUST_CHECK;
/* The dims of `type` outside `over`, in order. */
dtp_ttype dtp_rows__outside(const dtp_op_call *call, const dtp_ttype *type);
/* The same, for statistics: of their element type (dtp_op__sum_dtype). */
dtp_ttype dtp_rows__stats(const dtp_op_call *call, const dtp_ttype *type);
/* The dims of `type` inside `over`, in order. */
dtp_ttype dtp_rows__inside(const dtp_op_call *call, const dtp_ttype *type);
/* The same dims with the same sizes: in any order or in the same order. */
bool dtp_rows__same_dims(const dtp_ttype *a, const dtp_ttype *b, bool any_order);
/* Operand `i`, called `what` in messages, has the dtype of `want` and its dims: in any order or in
 * that order. */
dtp_status dtp_rows__match(const dtp_op_call *call, int32_t i, const char *what,
                           const dtp_ttype *want, bool any_order, dtp_err *err) DTP_MUST_CHECK;
/* Operand `i` holds integers. */
dtp_status dtp_rows__need_ints(const dtp_op_call *call, int32_t i, const char *what,
                               dtp_err *err) DTP_MUST_CHECK;
/* Operand `i` holds integers and has the dims of `want`, in any order. */
dtp_status dtp_rows__match_ints(const dtp_op_call *call, int32_t i, const char *what,
                                const dtp_ttype *want, dtp_err *err) DTP_MUST_CHECK;
/* Sets out[0] to `want` after comparing it with the declared dims. */
dtp_status dtp_rows__set_out(const dtp_op_call *call, bool has_out, const dtp_ttype *want,
                             dtp_ttype *out, dtp_err *err) DTP_MUST_CHECK;
/* Roles: `over` is INTERNAL, REDUCED(sum) or PARALLEL, the statistics dim WHOLE, the others
 * PARALLEL. */
dtp_dim_role dtp_rows__role_internal(const dtp_op_call *call, dtp_dim_id d);
dtp_dim_role dtp_rows__role_reduced(const dtp_op_call *call, dtp_dim_id d);
dtp_dim_role dtp_rows__role_parallel(const dtp_op_call *call, dtp_dim_id d);
/* `over` is WHOLE, the others are PARALLEL. */
dtp_dim_role dtp_rows__role_whole(const dtp_op_call *call, dtp_dim_id d);

/* MEMORY work: every operand and output moved once. */
void dtp_rows__work(const dtp_op_call *call, double flops, dtp_work *out);
/* MEMORY work of a lookup by the ids of operand 1: of operand 0 what the result holds is read. */
void dtp_rows__work_lookup(const dtp_op_call *call, dtp_work *out);

/* Adds one node of a decomposition under a name made from the node count. */
dtp_status dtp_rows__emit(dtp_graph *g, const char *op, int32_t n_in, const dtp_tensor_id *in,
                          int32_t n_attrs, const dtp_attr *attrs, dtp_tensor_id *outs,
                          dtp_err *err) DTP_MUST_CHECK;
/* reduce over the dims of `over`; kind "sum", "max". */
dtp_status dtp_rows__emit_reduce(dtp_graph *g, const char *kind, dtp_tensor_id x,
                                 const dtp_attr *over, dtp_tensor_id *out,
                                 dtp_err *err) DTP_MUST_CHECK;
/* The same in the element type of sums; kind "sum", "mean". */
dtp_status dtp_rows__emit_wide(dtp_graph *g, const char *kind, dtp_tensor_id x,
                               const dtp_attr *over, dtp_tensor_id *out,
                               dtp_err *err) DTP_MUST_CHECK;
/* What mean and variance over the dims of `over` are computed from when one of them is split: a
 * shift, the mean as it is rounded, and `moments`, the sums of x - shift and (x - shift)^2. Sums of
 * x and x^2 would cancel where the mean is large against the deviation. */
dtp_status dtp_rows__emit_moments(dtp_graph *g, dtp_tensor_id x, const dtp_attr *over,
                                  dtp_tensor_id *shift, dtp_tensor_id *moments,
                                  dtp_err *err) DTP_MUST_CHECK;
/* `over` of kind DIM as a list; `id` holds the list. */
dtp_attr dtp_rows__over_list(const dtp_attr *over, dtp_dim_id *id);
/* DTP_UNSUPPORTED when a gradient flows into an output other than the first. */
dtp_status dtp_rows__only_first(const dtp_vjp *v, dtp_err *err) DTP_MUST_CHECK;

#endif
