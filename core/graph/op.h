/* A row of the op table. What a program sees of ops is in dtp/op.h: attributes, calls, roles, work.
 *
 * An op is a row of a family in core/graph/ops, or a registered one (core/graph/op_set.h): shape
 * inference, sharding rules, gradient, work (FLOPs, bytes), decomposition. Everything else loops
 * over the rows or asks for their flags; kernels are found by op and dtypes
 * (dtp_kernel in dtp/op.h). Tests are driven by the table, so an op without a rule, a gradient
 * (or an explicit "not differentiable") or a kernel fails.
 */
#ifndef DTP_CORE_GRAPH_OP_H
#define DTP_CORE_GRAPH_OP_H

#include "core/layout/dims.h"
#include "core/layout/layout.h"
#include "dtp/op.h"

enum { DTP_MAX_OP_DIMS = 24, DTP_MAX_RULES = 48, DTP_MAX_OP_BENCH = 3 };

/* ---- sharding rules, per mesh dim ---- */

/* What an op reads of a dim of an operand for a piece [a, b) of the dim in another tensor: from
 * (a stride - before) / per, rounded up, to ((b - 1) stride + after) / per, rounded down, as far as
 * the operand has it, or, of a cyclic window, round the end of the dim (cyclic 1, else 0). per > 1:
 * of a transposed stride. */
typedef struct dtp_dim_window {
    int64_t stride, per, before, after, cyclic;
} dtp_dim_window;

enum { DTP_OP_WINDOWS = 2 }; /* operands that may have one, the first ones */

typedef struct dtp_dim_role {
    dtp_role role;
    dtp_reduce_op op; /* REDUCED */
    /* PARALLEL, REDUCED: of the operands; per 0: it is cut into pieces as the others. Windows are
     * over pieces of the output that has the dim, else of the operand that has it and no window. */
    dtp_dim_window window[DTP_OP_WINDOWS];
} dtp_dim_role;

/* One way to run an op on one mesh dim. Row 0 is always "everything replicated". */
typedef struct dtp_sharding_rule {
    dtp_dim_id dim; /* the dim that is split; -1 in row 0 and in pass-through rows. For an op that
                       renames dims, the name on the input side */
    dtp_dim_id out_dim; /* the same split's name on the output side; = dim unless renamed */
    bool internal;      /* runs as op->decompose */
    bool windows;       /* operands are read by windows (dtp_dim_role) */
    bool linear;        /* a partial pass-through row */
    dtp_placement in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT]; /* order field 0 */
} dtp_sharding_rule;

typedef struct dtp_sharding_rules {
    int32_t n;
    dtp_sharding_rule rows[DTP_MAX_RULES];
} dtp_sharding_rules;

/* ---- the row ---- */

enum {
    DTP_OP_INTERNAL_USE = 1, /* made by autodiff or decompositions; not accepted in model files */
    DTP_OP_RANDOM = 2,       /* draws from a stream: gets a hidden "stream" attribute */
    DTP_OP_ELEMENTWISE = 4, /* every output element depends on the elements at its own index only */
    DTP_OP_UPDATE = 8,      /* optimizer update: output i replaces input inplace_in[i] - 1 */
    DTP_OP_RENAMES = 16, /* changes dim names: under layout rules its operand and output may be laid
                            out differently, and the redistribution is part of the op */
    DTP_OP_WHOLE_OPERAND = 32, /* a rule may split a dim and leave it whole in one operand */
    DTP_OP_OPAQUE = 64, /* rows are declared, not derived: a row may split any axis of any operand;
                           one that does not split a dim wherever it occurs has dim = -1 */
    DTP_OP_CHECKS_DATA = 128, /* kernels refuse values of operands: an id or label out of range */

    /* Traits: what planner, lowering and reports know of an op beyond its rules. A registered op
     * has none of them. */
    DTP_OP_CONTRACTION = 1 << 8,   /* sums of products over the dims that the output lacks */
    DTP_OP_SUM = 1 << 9,           /* a + b; autodiff adds contributions to a gradient with it */
    DTP_OP_RELABEL = 1 << 10,      /* the elements of operand 0 in the same order, under other dims:
                                      the result may lie in its buffer */
    DTP_OP_LOOKUP = 1 << 11,       /* rows of a table by ids, or the gradient. Attribute "over": the
                                      table's dim that ids count */
    DTP_OP_NORM = 1 << 12,         /* normalisation of rows */
    DTP_OP_SOFTMAX_LOSS = 1 << 13, /* loss of labels under softmax of operand 0. Attribute
                                        "over": the dim of the classes */
    DTP_OP_ATTENTION = 1 << 14,    /* softmax attention of q, k, v. Attributes "query" and "key"
                                        (-1: as query): the dims of the positions */
    DTP_OP_ATTENTION_GRAD = 1 << 15, /* its gradient, with the same first operands */
    DTP_OP_CONSTANT = 1 << 16,       /* no operands; every element is the attribute "value" */
    DTP_OP_REDUCTION = 1 << 17,      /* the dims of attribute "over" reduced by attribute "kind" */
    DTP_OP_ARITHMETIC = 1 << 18,     /* bound by arithmetic, not by bytes, in long sequences */
    DTP_OP_CAST = 1 << 20,           /* the elements in another type, and no more */
    DTP_OP_STATISTIC = 1 << 21,      /* of many elements: mixed precision keeps it in f32 */
    DTP_OP_FUSES = 1 << 22,          /* of floats a step of expressions that run as one kernel: one
                                        or two operands, at most one float attribute */
    DTP_OP_MOVES = 1 << 23,          /* elements of operand 0, of a list those of all, and zeros:
                                        each, some or one several times (dtp_op_moved) */
    DTP_OP_SCALE = 1 << 24, /* the scale of a quantization. Of a part of the rows of a batch it is
                               that of the part: nobody needs the one of all rows */
    DTP_OP_IN_TRAINING = 1 << 25, /* operand 0 in training, operand 1 in evaluation */
    DTP_OP_ANY_DTYPE = 1 << 19    /* moves, fills or converts: kernels take every dtype */
};

/* A DTYPE attribute that says nothing: the element type is that of the operands. */
enum { DTP_NO_DTYPE = -1 };

/* f32_error of a row whose f32 kernel gives what f64 arithmetic gives: it moves or compares. */
#define DTP_EXACT (-1.0)

struct dtp_op_def {
    const char *name;
    const char *summary; /* one line for docs and --help */
    int32_t min_in, max_in, n_out;
    uint32_t flags;
    const dtp_attr_spec *attrs; /* ended by a NULL key; NULL: none */
    const char *const
        *out_names; /* names of outputs 1.. as suffix "<node>.<name>"; NULL: one output */

    /* Types of the outputs. `out[0]` arrives with the node's declared dims when has_out (rank and
     * dims set, dtype not) and must be checked against them. Errors speak of dims by name and size.
     */
    dtp_status (*infer)(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err);

    /* Rules: `role` for each dim of the call (NULL: every dim is parallel) and `linear`; or
     * `rules`, which appends all rows after row 0 itself. Global types. */
    dtp_dim_role (*role)(const dtp_op_call *call, dtp_dim_id dim);
    dtp_linear linear;
    void (*rules)(const dtp_op_call *call, bool linear, dtp_sharding_rules *out);

    /* Work on local types. NULL: MEMORY, every operand and output moved once, with elem_flops per
     * element of the largest operand or output or x_flops per element of operand 0; 1 per element
     * of the outputs when neither is set. */
    void (*work)(const dtp_op_call *call, dtp_work *out);
    double elem_flops, x_flops;
    /* Of a registered op: scratch bytes that its kernels may use on these local types; NULL: 0. For
     * built-in ops the target says it (spmd/target/target.h). */
    int64_t (*workspace)(const dtp_op_call *call);
    /* The op whose rates it has on a machine that states none for it: the op that it is a part of,
     * or does most of the work of. NULL: its own alone, as a registered op
     * (core/graph/ops/op_table.h, dtp_op_rates). */
    const char *rates;

    /* Appends nodes computing the gradients of the inputs. NULL: not differentiable, and then
     * `no_grad` says why. */
    dtp_status (*vjp)(dtp_vjp *v, dtp_err *err);
    const char *no_grad;

    /* Appends to `g` nodes that compute the same outputs from ops whose rules for the dim are not
     * INTERNAL; ins/outs are tensor ids of g. */
    dtp_status (*decompose)(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                            int32_t *outs, dtp_err *err);

    /* inplace_in[i] = j + 1: output i may share the buffer of input j when both have the same local
     * bytes and input j dies here. 0: never. */
    int8_t inplace_in[DTP_MAX_OP_OUT];

    /* Largest error of an f32 kernel, relative to the largest element of the output; 0: 1e-6, what
     * a short sum or one transcendental function costs. */
    double f32_error;
    /* On what the bench measures the op, all on one curve, as "operands | attributes"
     * (executor/bench/recipes.h). None: one of the usual forms. */
    const char *bench[DTP_MAX_OP_BENCH];
    /* Mesh TensorFlow's class, for its counters. NULL: that of an elementwise function or of its
     * gradient; of other ops, their name. */
    const char *mtf_class;

    const void *user; /* for the hooks and kernels of the op; borrowed */
};

/* The op's attribute of this name, NULL when it has none. */
const dtp_attr_spec *dtp_op_attr(const dtp_op_def *op, const char *key);
/* Index of a choice of an ENUM attribute, -1 when there is none of this name (or it is NULL). */
int32_t dtp_attr_choice(const dtp_attr_spec *spec, const char *name);
/* The name of the choice that a call makes; the op must have the attribute. */
const char *dtp_call_choice(const dtp_op_call *call, const char *key);
/* From how many operands, the first ones, a node with n of them moves elements to output 0. */
int32_t dtp_op_moved(const dtp_op_def *op, int32_t n);
/* Bytes of all operands and outputs of a call. */
double dtp_call_bytes(const dtp_op_call *call);
/* The dtype by which a call is priced: of its first operand, else of its result. */
dtp_dtype dtp_call_dtype(const dtp_op_call *call);
/* What the exponential of a score and what goes with it cost, in multiply-adds of the products
 * beside it (docs/cost-model.md): in the FLOPs of attention. */
enum { DTP_SCORE_MULTIPLY_ADDS = 45 };
/* Work of a call with local types: op->work, or its default (see there), whatever the kernels do
 * besides. */
void dtp_call_work(const dtp_op_call *call, dtp_work *out);

/* Distinct dims of a call in order of first appearance (inputs, then outputs); returns how many. */
int32_t dtp_call_dims(const dtp_op_call *call, dtp_dim_id out[DTP_MAX_OP_DIMS]);

/* The rule verifier's: *out is a copy of `op` in the arena for which a letter without a role, or
 * '.' for the dims of "...", is parallel; NULL when `op` has none that could be (it has a role, not
 * every output has it, or the op is not of a description by roles). */
dtp_status dtp_custom_op_try_parallel(const dtp_op_def *op, char letter, dtp_arena *arena,
                                      dtp_op_def **out, dtp_err *err) DTP_MUST_CHECK;

#endif
