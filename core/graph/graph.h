/* The model graph: tensors and nodes in a topological order, owned by one arena. Built by
 * core/graph/model (from JSON), extended by core/graph/autodiff, then only read.
 */
#ifndef DTP_CORE_GRAPH_GRAPH_H
#define DTP_CORE_GRAPH_GRAPH_H

#include "core/base/hash.h"
#include "core/graph/op_set.h"
#include "dtp/model.h"
#include "dtp/schedule.h"

typedef enum dtp_tensor_kind {
    DTP_TENSOR_INPUT, /* fed every step */
    DTP_TENSOR_PARAM, /* persistent, trained unless it is frozen */
    DTP_TENSOR_STATE, /* persistent, optimizer slots */
    DTP_TENSOR_VALUE  /* output of a node */
} dtp_tensor_kind;

typedef enum dtp_init_kind {
    DTP_INIT_ZEROS,
    DTP_INIT_ONES,
    DTP_INIT_CONSTANT, /* a */
    DTP_INIT_NORMAL,   /* mean b, standard deviation a */
    DTP_INIT_UNIFORM   /* in [a, b) */
} dtp_init_kind;

typedef struct dtp_init {
    dtp_init_kind kind;
    double a, b;
} dtp_init;

typedef struct dtp_graph_tensor {
    const char *name;
    dtp_tensor_kind kind;
    dtp_ttype type;
    dtp_node_id producer; /* -1 unless VALUE */
    int32_t out_index;    /* which output of the producer */
    dtp_init init;        /* PARAM, STATE */
    uint32_t stream;      /* PARAM: random stream, a hash of the name */
    int64_t below;        /* integer INPUT: values lie in [0, below); 0 = not stated */
    bool per_step;   /* STATE: an accumulator of microbatches, without contents between steps */
    bool frozen;     /* PARAM: not trained: it has no gradient, no update and no states */
    bool recomputed; /* a result of the forward pass of a block that is recomputed, kept or not */
    int8_t copies;   /* dtp_copies */
} dtp_graph_tensor;

/* What becomes of copies in other layouts that the forward pass made of a tensor, when the backward
 * pass reads them (core/transform/regather.h). */
typedef enum dtp_copies {
    DTP_COPIES_USUAL, /* as the target has it */
    DTP_COPIES_KEPT,
    DTP_COPIES_AGAIN /* they are made again */
} dtp_copies;

typedef enum dtp_phase { DTP_FORWARD, DTP_BACKWARD, DTP_UPDATE, DTP_N_PHASES } dtp_phase;

typedef struct dtp_node {
    const char *name;
    const dtp_op_def *op;
    int32_t n_in, n_out, n_attrs;
    const dtp_tensor_id *in;
    const dtp_tensor_id *out;
    const dtp_attr *attrs; /* one per spec of op, in spec order */
    dtp_phase phase;
    dtp_node_id origin; /* BACKWARD: the forward node it differentiates or repeats; else -1 */
    int32_t block;      /* template of the repeat it came from (folding), -1 = none */
    int32_t instance;   /* which copy of the block; backward nodes inherit both */
    bool repeats;       /* BACKWARD: computes the results of its origin again
                           (core/transform/recompute.h) */
} dtp_node;

/* A persistent tensor and the value that replaces it at the end of a step. */
typedef struct dtp_update {
    dtp_tensor_id target; /* PARAM or STATE */
    dtp_tensor_id value;
} dtp_update;

/* A trained parameter and its gradient. */
typedef struct dtp_param_grad {
    dtp_tensor_id param, grad;
} dtp_param_grad;

enum { DTP_OPTIMIZER_MAX_HYPERS = 8 };

/* An optimizer and its hyperparameters (core/graph/optimizer.h). */
typedef struct dtp_optimizer_spec {
    const dtp_op_def *op;                   /* NULL: none */
    double hyper[DTP_OPTIMIZER_MAX_HYPERS]; /* by attribute of the op */
} dtp_optimizer_spec;

/* Parameters that have their own hyperparameters. */
typedef struct dtp_param_group {
    const char *params; /* a glob over their names (core/base/glob.h) */
    dtp_optimizer_spec optimizer;
} dtp_param_group;

/* How a model trains, beside its loss: "train" of its file. */
typedef struct dtp_training {
    dtp_optimizer_spec optimizer; /* of parameters in no group */
    int32_t n_groups;
    const dtp_param_group *groups; /* a parameter is in the first that matches it */
    double clip_norm;              /* of all gradients; 0: they are not clipped */
    dtp_schedule schedule;         /* of all rates; not part of the hash */
} dtp_training;

enum { DTP_MAX_MICRO_DIMS = 4 };

/* What a part of the rows of a batch has of a tensor (core/transform/row_parts.h). Of all rows it
 * is, from parts p that have r_p rows: */
typedef enum dtp_row_part {
    DTP_ROWS_WHOLE,    /* the same, it does not depend on the rows */
    DTP_ROWS_CUT,      /* the parts one behind the other */
    DTP_ROWS_SUM,      /* sum x_p */
    DTP_ROWS_MEAN,     /* sum r_p x_p / sum r_p */
    DTP_ROWS_WEIGHTED, /* sum w_p x_p / sum w_p, w_p the weights of the labels */
    DTP_ROWS_MAX,
    DTP_ROWS_MIN,
    DTP_ROWS_RESULT /* computed from other values of all rows, once */
} dtp_row_part;

/* A tensor of an evaluation whose value over all rows is folded from those of its batches. */
typedef struct dtp_row_fold {
    dtp_tensor_id tensor;
    dtp_row_part by;
    dtp_tensor_id weight; /* of WEIGHTED: one number; else -1 */
} dtp_row_fold;

struct dtp_graph {
    dtp_arena *arena;
    const char *name;
    const char *framework; /* from which the model was imported: "torch" or "transformers"; NULL:
                              none. Not part of the hash */
    const dtp_op_set *ops; /* by name; borrowed */
    dtp_dims dims;
    int32_t n_tensors, cap_tensors;
    dtp_graph_tensor *tensors;
    int32_t n_nodes, cap_nodes;
    dtp_node *nodes;
    int32_t n_outputs, cap_outputs;
    dtp_tensor_id *outputs; /* "outputs" of the model file */
    int32_t n_updates, cap_updates;
    dtp_update *updates;
    int32_t n_grads, cap_grads;
    dtp_param_grad *grads;
    dtp_tensor_id loss;        /* -1 for a forward graph */
    dtp_tensor_id norm;        /* of all gradients, made by an UPDATE node; -1 = none */
    dtp_tensor_id grad_factor; /* one number, made by an UPDATE node: the gradients of the loss are
                                  `grads` times it (core/transform/mean_loss.h); -1 = 1 */
    dtp_training training;
    bool tf32; /* products of f32 operands round them to tf32 (core/transform/precision.h) */
    dtp_hash_table names; /* tensors by name */
    int32_t n_blocks, cap_blocks;
    const char **blocks;  /* by dtp_node.block: name of the block that is repeated */
    int32_t microbatches; /* 0 and 1: none; else FORWARD and BACKWARD nodes run so often in a step,
                             each time on the next part of the batch, and UPDATE nodes once after
                             the last time (core/transform/microbatch.h) */
    int32_t n_micro_dims; /* dims of which a tensor holds one microbatch's part */
    dtp_dim_id micro_dims[DTP_MAX_MICRO_DIMS];
    int32_t n_folds; /* of an evaluation (core/transform/evaluation.h) */
    const dtp_row_fold *folds;
    int32_t n_results;
    const dtp_tensor_id *results; /* the loss and the metrics */
    int32_t n_row_dims;           /* dims along which its tensors have the rows */
    dtp_dim_id row_dims[DTP_MAX_MICRO_DIMS];
    const char *whole_batch; /* why batches cannot be folded, NULL: they can */
    bool forward_only;       /* of a model as it was read: training was left out */
    int32_t n_given;         /* of a model as it was read: the sizes from which all others follow */
    const dtp_dim_override *given;
    int32_t n_freeze; /* of a model as it was read: globs over parameters that were frozen beside
                         those of its file */
    const char *const *freeze;
    const struct dtp_stages *stages; /* pipeline stages (core/transform/stages.h); NULL: none */
    uint64_t model_hash; /* of a job: dtp_graph_forward_hash of its model; 0: not known */
};

/* A graph over the ops of a set, which it borrows; `ops` NULL: a graph that gets no nodes. Fails
 * with DTP_NOMEM only. */
dtp_status dtp_graph_create(const char *name, const dtp_op_set *ops, dtp_graph **out,
                            dtp_err *err) DTP_MUST_CHECK;
/* Returns `s`, what the making of a graph came to: *out is the graph, or it is destroyed. */
dtp_status dtp_graph_deliver(dtp_graph *g, dtp_status s, dtp_graph **out) DTP_MUST_CHECK;

/* Adds an INPUT, PARAM or STATE like `tensor`, whose name is copied; producer and stream follow.
 * DTP_INVALID on a duplicate name or dim, DTP_RANGE on sizes. */
dtp_status dtp_graph_add_tensor(dtp_graph *g, const dtp_graph_tensor *tensor, dtp_tensor_id *out,
                                dtp_err *err) DTP_MUST_CHECK;

typedef struct dtp_node_spec {
    const char *name;      /* copied; output 0 has this name, output i "<name>.<out_names[i-1]>" */
    const char *op;        /* found in g->ops */
    const dtp_op_def *def; /* NULL; else the op itself, and `op` is not looked up. Borrowed */
    int32_t n_in;
    const dtp_tensor_id *in;
    int32_t n_attrs;       /* given attributes in any order; the rest takes its default */
    const dtp_attr *attrs; /* copied; build them with dtp_attr_* */
    const dtp_ttype *out;  /* NULL: inferred; else it has the dims of output 0. Borrowed */
    dtp_phase phase;
    dtp_node_id origin; /* -1 = none */
    int32_t block, instance;
    bool repeats;
} dtp_node_spec;

/* A spec with nothing set: forward phase, no origin, no block. */
dtp_node_spec dtp_node_spec_init(const char *name, const char *op);

enum { DTP_OP_TAKES_BYTES = 48 };
/* "1 operand", "2 operands", "1 to 16 operands": what nodes of an op have. */
const char *dtp_op_takes(const dtp_op_def *op, char out[DTP_OP_TAKES_BYTES]);

/* Appends a node, runs shape inference and adds its output tensors; outs (room for op->n_out, may
 * be NULL) receives their ids. DTP_INVALID with the op's own words when operands do not fit. */
dtp_status dtp_graph_add_node(dtp_graph *g, const dtp_node_spec *spec, dtp_tensor_id *outs,
                              dtp_err *err) DTP_MUST_CHECK;

dtp_status dtp_graph_add_output(dtp_graph *g, dtp_tensor_id t, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_graph_add_update(dtp_graph *g, dtp_update u, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_graph_add_grad(dtp_graph *g, dtp_param_grad pg, dtp_err *err) DTP_MUST_CHECK;

/* Whether a tensor is the result of a quantization, on the grid of an 8-bit float
 * (core/transform/quantize.h). */
bool dtp_graph_is_quantized(const dtp_graph *g, dtp_tensor_id t);
/* The parameter that a tensor is, itself, cast to another type (core/transform/precision.h) or
 * quantized; -1 = none. */
dtp_tensor_id dtp_graph_param_of(const dtp_graph *g, dtp_tensor_id t);
/* The tensor that t computes again (core/transform/recompute.h); else t itself. */
dtp_tensor_id dtp_graph_repeated(const dtp_graph *g, dtp_tensor_id t);
/* Whether a tensor is a parameter that training changes: of a floating-point type, not frozen. */
bool dtp_tensor_trains(const dtp_graph_tensor *t);
/* Whether a tensor has contents from one step to the next: PARAM and STATE but no accumulators. */
bool dtp_tensor_lasts(const dtp_graph_tensor *t);
/* The output of this name; -1 = none. */
dtp_tensor_id dtp_graph_output(const dtp_graph *g, const char *name);
/* The gradient of a parameter by its name there, "grad.w1"; -1 = none. */
dtp_tensor_id dtp_graph_gradient(const dtp_graph *g, const char *name);
/* What a step computes: the loss, the norm, the factor of the gradients, outputs, gradients and
 * what else updates read; *n ids from `arena`. */
dtp_status dtp_graph_results(const dtp_graph *g, dtp_arena *arena, int32_t *n,
                             const dtp_tensor_id **out, dtp_err *err) DTP_MUST_CHECK;
/* Makes the ops that drop elements at random pass their operand on (their rate is 0), and those
 * that are in_training the operand of evaluation. */
dtp_status dtp_graph_set_evaluation(dtp_graph *g, dtp_err *err) DTP_MUST_CHECK;

/* How often a node of this phase runs in a step. */
int32_t dtp_graph_runs(const dtp_graph *g, dtp_phase phase);

/* Storage of the operand types of a call. */
typedef struct dtp_call_types {
    dtp_ttype in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
} dtp_call_types;

/* The call of a node with global types; `types` holds them and must outlive the call. */
dtp_op_call dtp_node_call(const dtp_graph *g, const dtp_node *node, dtp_call_types *types);

/* 64-bit hash of a graph's canonical content: dims, tensors, nodes, attributes. Tells whether two
 * graphs are the same. */
uint64_t dtp_graph_hash(const dtp_graph *g);
/* The same of what a model computes from which parameters: its forward nodes in any order, without
 * inputs, initial values, optimizers and sizes of the batch. */
uint64_t dtp_graph_forward_hash(const dtp_graph *g);

#endif
