/* Own ops (docs/own-ops.md): an op by its signature, with roles for its dims or a list of
 * strategies; kernels; gradients; the rule verifier.
 *
 * A set that extends the built-in ops is made, filled, and then read by what it is given to: model
 * files, graphs, device meshes. From there on a registered op is planned, lowered, run and verified
 * as any other. Ranks of one job must register the same ops.
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
 * Letters without a role are whole, and so are the dims of "...", whose role is that of '.'. The
 * rule verifier says which of them could be parallel.
 *
 * An opaque op instead lists its strategies for one mesh dim, "S1,S0->P(sum)": a placement for
 * every operand and output, in the words of PyTorch (docs/layouts.md). The kernel gets the local
 * pieces in one of these layouts. That everything is replicated is always a strategy: it is how one
 * device runs the op. The product over several mesh dims is taken mechanically.
 */
#ifndef DTP_OP_H
#define DTP_OP_H

#include <string.h>

#include "dtp/layout.h"

DTP_API_BEGIN

enum { DTP_MAX_OP_IN = 16, DTP_MAX_OP_OUT = 8 };

typedef struct dtp_op_def dtp_op_def; /* an op */
typedef struct dtp_op_set dtp_op_set; /* ops by name */
typedef struct dtp_graph dtp_graph;   /* a model as a graph of ops (dtp/model.h) */
typedef int32_t dtp_tensor_id;
typedef int32_t dtp_node_id;

/* ---- attributes ---- */

typedef enum dtp_attr_kind {
    DTP_ATTR_INT,   /* JSON: integer or expression over dims */
    DTP_ATTR_FLOAT, /* JSON: number */
    DTP_ATTR_BOOL,
    DTP_ATTR_ENUM,  /* JSON: one of the spec's choices; stored as its index */
    DTP_ATTR_DTYPE, /* JSON: dtype name */
    DTP_ATTR_DIM,   /* JSON: dim name */
    DTP_ATTR_DIMS,  /* JSON: list of dim names (one name stands for a list of one) */
    DTP_ATTR_INTS   /* JSON: list of integers or expressions, in the order of a list of dims of the
                       op; one integer stands for all of them */
} dtp_attr_kind;

typedef struct dtp_attr {
    const char *key; /* the spec's key, static storage */
    dtp_attr_kind kind;
    int32_t n; /* DIMS, INTS */
    int64_t i; /* INT, BOOL, ENUM, DTYPE, and DIM as dtp_dim_id */
    double f;  /* FLOAT */
    union {
        const dtp_dim_id *ids; /* DIMS */
        const int32_t *ints;   /* INTS, at least one */
    };
} dtp_attr;
DTP_ASSERT_SIZE(dtp_attr, 40);

dtp_attr dtp_attr_int(const char *key, int64_t value);
dtp_attr dtp_attr_float(const char *key, double value);
dtp_attr dtp_attr_dim(const char *key, dtp_dim_id value);
dtp_attr dtp_attr_dims(const char *key, int32_t n, const dtp_dim_id *ids);
dtp_attr dtp_attr_ints(const char *key, int32_t n, const int32_t *ints);

/* Schema of one attribute. */
typedef struct dtp_attr_spec {
    const char *key; /* NULL ends the list */
    dtp_attr_kind kind;
    bool required;
    bool hidden;         /* set by autodiff or the reader, not by the user: not a JSON key */
    bool implementation; /* ENUM that says how the op runs when it is split, not what it computes: a
                            plan may set it */
    double
        def; /* default when absent: INT, FLOAT, BOOL, ENUM index, DTYPE, INTS (for all); DIM: -1;
                   DIMS: empty */
    double min, max;            /* range when min < max: INT, FLOAT, each of INTS */
    const char *const *choices; /* ENUM: NULL-terminated */
} dtp_attr_spec;
DTP_ASSERT_SIZE(dtp_attr_spec, 48);

/* ---- one application of an op ---- */

/* An op applied to typed operands; the types are global or local, as the callee says. Borrowed. */
typedef struct dtp_op_call {
    const dtp_op_def *op;
    const dtp_dims *dims;  /* names for messages */
    const dtp_attr *attrs; /* one per spec, in spec order, defaults filled in */
    int32_t n_attrs;
    int32_t n_in, n_out;
    const dtp_ttype *in;
    const dtp_ttype *out;
    int32_t parts; /* for `decompose`: ranks that the INTERNAL dims are split into; else 0 */
} dtp_op_call;
DTP_ASSERT_SIZE(dtp_op_call, 64);

/* Attribute by key; the op must have it (asserted). */
const dtp_attr *dtp_call_attr(const dtp_op_call *call, const char *key);
int64_t dtp_call_int(const dtp_op_call *call, const char *key);
double dtp_call_float(const dtp_op_call *call, const char *key);
dtp_dim_id dtp_call_dim(const dtp_op_call *call, const char *key);
/* Entry i of an INTS attribute, the only one where it has one. */
int32_t dtp_call_entry(const dtp_op_call *call, const char *key, int32_t i);

/* What splitting a named dim over one mesh dim means (docs/layouts.md). */
typedef enum dtp_role {
    DTP_ROLE_PARALLEL, /* operands and outputs that have the dim are split, no communication */
    DTP_ROLE_REDUCED,  /* operands are split, outputs without the dim are partial(op) */
    DTP_ROLE_INTERNAL, /* as PARALLEL at the boundary; inside, the op runs as its decomposition */
    DTP_ROLE_WHOLE     /* the dim must be whole on this mesh dim */
} dtp_role;

/* How partial(sum) operands pass through. */
typedef enum dtp_linear {
    DTP_LINEAR_NONE,
    DTP_LINEAR_EACH, /* linear in each operand with the others whole: einsum, scale, neg, slice */
    DTP_LINEAR_JOINT /* linear in all operands together: add, sub, concat */
} dtp_linear;

typedef enum dtp_work_class {
    DTP_WORK_GEMM,   /* batch x (m x k) . (k x n); flops = 2 batch m n k */
    DTP_WORK_MEMORY, /* bound by bytes; per-op measured curves may refine it */
    DTP_WORK_NONE    /* renames only */
} dtp_work_class;

/* What one rank executes for a call with local types. */
typedef struct dtp_work {
    dtp_work_class cls;
    double flops;
    double bytes;           /* read plus written, each operand once */
    int64_t batch, m, n, k; /* GEMM; attention: heads, queries, keys, multiply-adds of a pair */
    bool trans_a, trans_b;  /* GEMM: operand stored k x m / n x k */
    bool quantized;         /* GEMM: 8-bit operands, which another call has quantized */
    double pack_bytes;      /* GEMM: bytes moved to bring operands or output into matrix form */
} dtp_work;
DTP_ASSERT_SIZE(dtp_work, 72);

/* ---- kernels ---- */

/* One operand on this rank: contiguous, row-major. */
typedef struct dtp_view {
    dtp_ttype local;              /* dtype and local dims (ids and local sizes) */
    int64_t global[DTP_MAX_RANK]; /* global sizes */
    int64_t offset[DTP_MAX_RANK]; /* global index of the first local element */
    void *data;
} dtp_view;
DTP_ASSERT_SIZE(dtp_view, 272);

/* A whole tensor, its data not set. */
static inline dtp_view dtp_view_whole(const dtp_ttype *type)
{
    dtp_view view;
    memset(&view, 0, sizeof view);
    view.local = *type;
    for (int32_t d = 0; d < type->rank; d++) {
        view.global[d] = type->dims[d].size;
    }
    return view;
}

/* Row-major index in the whole tensor of local element `local`. */
static inline int64_t dtp_view_global_index(const dtp_view *v, int64_t local)
{
    int64_t index = 0, scale = 1;
    for (int32_t i = v->local.rank - 1; i >= 0; i--) {
        index += (local % v->local.dims[i].size + v->offset[i]) * scale;
        local /= v->local.dims[i].size;
        scale *= v->global[i];
    }
    return index;
}

/* What changes from step to step. All kernels of a runner read one record; its address stays. */
typedef struct dtp_step_record {
    uint64_t seed; /* random ops */
    int64_t step;  /* training step, from 0: random ops and Adam's bias correction (t = step + 1) */
    double lr_scale;    /* factor of the learning rate in optimizer updates */
    int32_t microbatch; /* of the step, from 0: `accumulate` begins a new sum at 0 */
} dtp_step_record;
DTP_ASSERT_SIZE(dtp_step_record, 32);

static inline dtp_step_record dtp_step_record_init(uint64_t seed, int64_t step)
{
    dtp_step_record record;
    memset(&record, 0, sizeof record);
    record.seed = seed;
    record.step = step;
    record.lr_scale = 1.0;
    return record;
}

/* What a kernel found wrong in the values of an operand. It only sets numbers; the runner makes the
 * message, DTP_RANGE with node and value, when it next looks. */
typedef enum dtp_data_error {
    DTP_DATA_OK,
    DTP_DATA_ID,   /* an id is not in [0, limit) */
    DTP_DATA_LABEL /* a label is not */
} dtp_data_error;

typedef struct dtp_error_word {
    int32_t code;    /* dtp_data_error */
    int32_t operand; /* its number */
    int64_t value, limit;
} dtp_error_word;
DTP_ASSERT_SIZE(dtp_error_word, 24);

typedef struct dtp_backend dtp_backend; /* where memory lives and how kernels run */
typedef struct dtp_queue dtp_queue;     /* of a device; NULL: kernels have run when they return */
typedef struct dtp_arena dtp_arena;     /* memory that is freed as one */

/* A kernel bound to a call. Types, sizes, workspace, threads and addresses of the arrays stay from
 * run to run; data and offsets of views may change, data by multiples of 64 bytes. */
typedef struct dtp_kernel_args {
    const dtp_op_call *call; /* op, attributes, local types */
    const dtp_view *in;      /* call->n_in */
    const dtp_view *out;     /* call->n_out; out[i].data == in[j].data when run in place */
    void *workspace;         /* what target and op ask for, 64-byte aligned */
    int64_t workspace_bytes;
    void *state;                   /* what `bind` made, for this call alone; NULL without bind */
    const dtp_step_record *record; /* not to be read by `bind` */
    dtp_error_word *error;
    dtp_backend *backend;
    dtp_queue *queue;
    int32_t threads; /* OpenMP threads this rank may use */
} dtp_kernel_args;
DTP_ASSERT_SIZE(dtp_kernel_args, 88);

/* Sets the error word, unless it is set. */
static inline void dtp_kernel_refuse(const dtp_kernel_args *args, dtp_data_error code,
                                     int32_t operand, int64_t value, int64_t limit)
{
    if (args->error->code == DTP_DATA_OK) {
        args->error->code = (int32_t)code;
        args->error->operand = operand;
        args->error->value = value;
        args->error->limit = limit;
    }
}

/* Kernels neither allocate nor communicate. An empty local shape is legal. Misuse that depends on
 * data sets the error word (dtp_kernel_refuse); what has no code there is returned as a failure. */
typedef dtp_status (*dtp_kernel_fn)(const dtp_kernel_args *args, dtp_err *err);

/* Called once, when a program is bound: refuses what the kernel does not take, and keeps in *state
 * what does not change from run to run (plans, descriptors, splits), in memory from
 * dtp_kernel_alloc. */
typedef dtp_status (*dtp_kernel_bind_fn)(const dtp_kernel_args *args, dtp_arena *arena,
                                         void **state, dtp_err *err);

/* Zeroed, aligned for any type, freed with what the kernel is bound for; NULL: no memory. */
void *dtp_kernel_alloc(dtp_arena *arena, size_t bytes);

#define DTP_DTYPE_BIT(dtype) (1U << (unsigned)(dtype))

/* Kernels are found by op and dtypes: the first of the op that takes all dtypes of the call. */
typedef struct dtp_kernel {
    const char *op;
    dtp_kernel_fn run;
    dtp_kernel_bind_fn bind; /* NULL: there is nothing to keep */
    uint32_t dtypes; /* of operands and outputs, a set of DTP_DTYPE_BIT; 0: the kernel takes all */
} dtp_kernel;
DTP_ASSERT_SIZE(dtp_kernel, 32);

/* ---- gradients ---- */

/* Handed to an op's vjp hook. The hook fills d_in[i] for every i with need[i] (leaving -1 means the
 * gradient is zero) by emitting nodes. */
typedef struct dtp_vjp {
    dtp_graph *g;
    dtp_node_id node;           /* the forward node */
    const dtp_tensor_id *in;    /* its operands */
    const dtp_tensor_id *out;   /* its outputs */
    const dtp_tensor_id *d_out; /* gradient of each output, -1 = none flows */
    bool need[DTP_MAX_OP_IN];
    dtp_tensor_id d_in[DTP_MAX_OP_IN];
    int32_t emitted; /* counts helper nodes for their names */
} dtp_vjp;
DTP_ASSERT_SIZE(dtp_vjp, 128);

/* A backward node to emit: an op on operands, with attributes. Borrowed. */
typedef struct dtp_vjp_op {
    const char *name;
    int32_t n_in;
    const dtp_tensor_id *in;
    int32_t n_attrs;
    const dtp_attr *attrs;
} dtp_vjp_op;
DTP_ASSERT_SIZE(dtp_vjp_op, 40);

/* Emits a one-output backward node; the output takes the dims of tensor `like` (-1: inferred). */
dtp_status dtp_vjp_emit(dtp_vjp *v, const dtp_vjp_op *op, dtp_tensor_id like, dtp_tensor_id *out,
                        dtp_err *err) DTP_MUST_CHECK;
/* The same for an op without attributes, with the dims of `shape` as the output's. */
dtp_status dtp_vjp_emit_shaped(dtp_vjp *v, const char *op, int32_t n_in, const dtp_tensor_id *in,
                               const dtp_ttype *shape, dtp_tensor_id *out,
                               dtp_err *err) DTP_MUST_CHECK;
/* The same as the first for an op with several outputs; outs has room for all of them. */
dtp_status dtp_vjp_emit_multi(dtp_vjp *v, const dtp_vjp_op *op, dtp_tensor_id *outs,
                              dtp_err *err) DTP_MUST_CHECK;
/* Type of a tensor of the graph: of an operand, an output, or what was emitted. */
dtp_ttype dtp_vjp_type(const dtp_vjp *v, dtp_tensor_id t);
/* Attribute of the forward node by key; the op must have it. */
const dtp_attr *dtp_vjp_attr(const dtp_vjp *v, const char *key);
/* Sums dy over the dims that tensor `like` lacks: the adjoint of broadcasting by name. dy itself
 * when it has the dims of `like` in the same order. */
dtp_status dtp_vjp_unbroadcast(dtp_vjp *v, dtp_tensor_id dy, dtp_tensor_id like, dtp_tensor_id *out,
                               dtp_err *err) DTP_MUST_CHECK;

/* ---- registering ---- */

/* The built-in ops. */
const dtp_op_set *dtp_builtin_ops(void);
/* An empty set that extends `base`, which it borrows. */
dtp_status dtp_op_set_create(const dtp_op_set *base, dtp_op_set **out, dtp_err *err) DTP_MUST_CHECK;
/* Graphs that borrow the set must be gone. NULL is accepted. */
void dtp_op_set_destroy(dtp_op_set *set);
/* The op of the set, else the one of its base, else NULL. Of set NULL: NULL. */
const dtp_op_def *dtp_op_set_find(const dtp_op_set *set, const char *name);

typedef struct dtp_letter_role {
    char letter;      /* '.': the dims of "..." */
    dtp_role role;    /* PARALLEL, REDUCED or WHOLE */
    dtp_reduce_op op; /* REDUCED */
} dtp_letter_role;
DTP_ASSERT_SIZE(dtp_letter_role, 12);

/* Start from dtp_custom_op_init. Everything is copied but the hooks, `attrs` texts included. */
typedef struct dtp_custom_op {
    size_t size;
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
    /* Work on local types; NULL: flops_per_point and the bytes of all operands. */
    void (*work)(const dtp_op_call *call, dtp_work *out);
    /* Scratch bytes that a kernel may use on these local types; NULL: 0. */
    int64_t (*workspace)(const dtp_op_call *call);
    /* Appends nodes that compute the gradients of the operands. */
    dtp_status (*vjp)(dtp_vjp *v, dtp_err *err);
    const char *no_grad; /* why there is no vjp; NULL: "it was registered without a gradient" */
    /* inplace_in[i] = j + 1: output i may share the buffer of operand j when both have the same
     * local bytes and operand j dies here. 0: never. */
    int8_t inplace_in[DTP_MAX_OP_OUT];
    const void *user; /* for dtp_custom_op_user */
} dtp_custom_op;

static inline dtp_custom_op dtp_custom_op_init(const char *name, const char *signature)
{
    dtp_custom_op op;
    memset(&op, 0, sizeof op);
    op.size = sizeof op;
    op.name = name;
    op.signature = signature;
    op.flops_per_point = 1.0;
    return op;
}

/* DTP_INVALID naming the op and the place in signature, dtypes, roles or strategies; when the name
 * is taken or not of the form [a-z][a-z0-9_]* with at most 48 characters; when names of outputs or
 * attributes are missing, illegal, double or keys of a node (id, op, in, out). */
dtp_status dtp_custom_op_register(dtp_op_set *set, const dtp_custom_op *op,
                                  dtp_err *err) DTP_MUST_CHECK;

/* The `user` of the description, for hooks (call->op) and kernels (args->call->op). */
const void *dtp_custom_op_user(const dtp_op_def *op);

/* ---- the rule verifier ---- */

/* Runs an op under every sharding rule on virtual ranks and compares with the unsharded op.
 *
 * For every case of an op: every rule on 1-D meshes of 2, 3 and 4 ranks (uneven and empty pieces
 * included), every pair of rules on 2 x 2 and 2 x 3 in both orders of the splits, with operands
 * replicated and as the rules want them, partial operands as random contributions; then the
 * gradients, with every rule of the op and random rules for the nodes of its gradient. The answers
 * come from f64 arithmetic on one device. */

enum { DTP_OP_CASE_MAX_IN = 8 };

/* Operands of an op, as text. An operand is "dims fill": dims "a=3,b=7" (or "-" for a scalar), fill
 * one of
 *   sym (default)  magnitude in [0.1, 2], random sign: away from 0
 *   pos            in [0.5, 2]
 *   weight         as pos, but not differentiated
 *   mask           -inf or in [-1, 1], not differentiated
 *   distinct       a random permutation of well separated values, other ones for each operand
 *   stat           [.., _stat]: the first sum in [-1, 1], the last in [20, 30]
 *   ids:N, ids64:N i32 / i64 in [0, N)
 *   bool
 * Attributes are "key=value; key=value", lists separated by commas; the dtype "float" stands for
 * the float type that the graph is built with. */
typedef struct dtp_op_case {
    const char *op;
    const char *in[DTP_OP_CASE_MAX_IN];
    const char *out;   /* declared dims of the output; NULL: inferred */
    const char *attrs; /* NULL: defaults */
    bool no_fd;        /* no finite differences: the output is rounded, or too many elements */
} dtp_op_case;
DTP_ASSERT_SIZE(dtp_op_case, 96);

typedef struct dtp_rule_verify_options {
    size_t size;
    const char *backend; /* "ref" (f64; NULL too) or "cpu" (f32) */
    const char *dtype;   /* "bf16" or "f16": of the case's floats in place of these; NULL: none */
    uint64_t seed;       /* of values and random choices; default 20240517 */
    int32_t n_cases;     /* 0: the cases of the table */
    const dtp_op_case *cases;
    const dtp_op_set *ops; /* registered ops that the op or its gradient uses; NULL: none */
    int32_t n_kernels;     /* of these, for f64 and for the backend's arithmetic */
    const dtp_kernel *kernels;
} dtp_rule_verify_options;

static inline dtp_rule_verify_options dtp_rule_verify_options_init(void)
{
    dtp_rule_verify_options o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    o.seed = 20240517;
    return o;
}

typedef struct dtp_rule_report {
    const char *op;
    int32_t cases, rules; /* rules: the most that one case has */
    int64_t programs, gradient_programs;
    int64_t refused;  /* renamings that sizes do not allow, redistributions that do not exist */
    double max_error; /* relative, over all programs that are right */
    bool pass;
    dtp_err first_wrong; /* pass false: what was wrong first */
    char parallel[64];   /* letters without a role ('.': "...") that would be right as parallel */
} dtp_rule_report;
DTP_ASSERT_SIZE(dtp_rule_report, 1168);

/* `op`: of the table or of a set. A wrong result is a field of the report, not an error; it ends
 * the verification of this op. DTP_NOT_FOUND when the op has no cases. */
dtp_status dtp_rule_verify(const dtp_op_def *op, const dtp_rule_verify_options *options,
                           dtp_rule_report *out, dtp_err *err) DTP_MUST_CHECK;

DTP_API_END

#endif
