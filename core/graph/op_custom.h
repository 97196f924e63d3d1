/* Registering an op from a description (docs/own-ops.md).
 *
 * A signature such as "mk,kn->mn" names the dims of every operand and output by letters; "..." at
 * the start of a term stands for any further dims, the same in every term that has it. From it
 * follow the shapes and, with a role for every letter, the sharding rules:
 *
 *   parallel   every output has the letter; what belongs to one element of the dim is computed from
 *              what the operands have of that element: "mk,kn->mn": m and n
 *   reduced    the outputs without the letter combine the contributions of its elements by sum,
 *              prod, min or max: k
 *   whole      the kernel needs the whole dim
 *
 * Letters without a role are parallel when every output has them, else whole; so are the dims of
 * "...".
 *
 * An opaque op instead lists its strategies for one mesh dim, "S1,S0->P(sum)": a placement for
 * every operand and output, in the words of PyTorch (interop/layout_forms.h). The kernel gets the
 * local pieces in one of these layouts. That everything is replicated is always a strategy: it is
 * how one device runs the op. The product over several mesh dims is taken mechanically.
 */
#ifndef DTP_CORE_GRAPH_OP_CUSTOM_H
#define DTP_CORE_GRAPH_OP_CUSTOM_H

#include "core/graph/op_set.h"

typedef struct dtp_letter_role {
    char letter;
    dtp_role role;    /* PARALLEL, REDUCED or WHOLE */
    dtp_reduce_op op; /* REDUCED */
} dtp_letter_role;

/* Start from dtp_custom_op_init. Everything is copied but the hooks, `attrs` texts included. */
typedef struct dtp_custom_op {
    const char *name;
    const char *summary;   /* may be NULL */
    const char *signature; /* "mk,kn->mn" */
    /* One of f (floating point, all f alike), i (integer), b (bool), * (any) per operand, then per
     * output f, i (i32) or b: "ffi->f". NULL: all f. */
    const char *dtypes;
    int32_t n_roles;
    const dtp_letter_role *roles;
    int32_t n_strategies; /* more than 0: opaque, without roles */
    const char *const *strategies;
    dtp_linear linear;            /* how partial sums pass through; not for opaque ops */
    double flops_per_point;       /* per element of the space of all dims; default 1 */
    const char *const *out_names; /* of outputs 1.. */
    const dtp_attr_spec *attrs;   /* ended by a NULL key; NULL: none */
    /* As in dtp_op_def; work NULL: flops_per_point and the bytes of all operands. */
    void (*work)(const dtp_op_call *call, dtp_work *out);
    int64_t (*workspace)(const dtp_op_call *call);
    dtp_status (*vjp)(dtp_vjp *v, dtp_err *err);
    const char *no_grad; /* why there is no vjp; NULL: "it was registered without a gradient" */
    int8_t inplace_in[DTP_MAX_OP_OUT];
    const void *user; /* for dtp_custom_op_user */
} dtp_custom_op;

dtp_custom_op dtp_custom_op_init(const char *name, const char *signature);

/* DTP_INVALID naming the op and the place in signature, dtypes, roles or strategies; otherwise as
 * dtp_op_register. */
dtp_status dtp_custom_op_register(dtp_op_set *set, const dtp_custom_op *op,
                                  dtp_err *err) DTP_MUST_CHECK;

/* The `user` of the description, for hooks (call->op) and kernels (args->call->op). */
const void *dtp_custom_op_user(const dtp_op_def *op);

#endif
