/* Tensor mode: the layouts of single tensors as a selection problem (docs/tensor-problem.md).
 *
 * Decisions, each a variable of the selection problem:
 *   op      how a node runs: a row of its sharding rules per mesh dim. Cost: the prices of the
 *           instructions it lowers to, operands and outputs being where the rows want them.
 *   tensor  where a tensor is kept from its birth to its last use. Partial is one of its
 *           strategies.
 *   replica per tensor and phase that reads it: `own`, readers take it from where it is kept, or a
 *           copy in another layout, made once in the phase and shared by its readers. A single
 *           reader has none: it takes the tensor from where it is kept.
 * Edges carry the prices of redistributions: op -> tensor (an output is brought to where it is
 * kept), tensor -> replica, replica -> op (an operand is brought to where the op wants it), and op
 * -> tensor again for the updates of parameters. Optimizer states are kept as their update reads
 * them. Several mesh dims split one tensor dim in mesh order.
 *
 *   own(A) exists for every layout A of the tensor, so that every cost is one of a pair.
 *
 * Usage: a tensor's shard over its life, a copy's over the phase's readers, what an op needs inside
 * while it runs. Where a buffer may be reused in place the reuse is assumed, and copies that a
 * single op makes for itself are left out, so that no program needs less than the problem says:
 * the problem is a relaxation in memory and exact in cost.
 *
 * Layer tying: instances of a repeated block share their variables; costs are summed and the usage
 * of every instance counts in its own time. In several groups (`runs`) only neighbours do: the
 * first half, half of the rest, ..., so that a part of the instances can be decided otherwise.
 */
#ifndef DTP_PLANNER_PROBLEM_TENSORS_TENSOR_PROBLEM_H
#define DTP_PLANNER_PROBLEM_TENSORS_TENSOR_PROBLEM_H

#include "core/plan/sharding.h"
#include "interop/export/form_space.h"
#include "cost_models/redistribution_price.h"
#include "planner/solver/multipliers.h"
#include "planner/problem/problem.h"
#include "spmd/propagate/propagate.h"

typedef enum dtp_decision_kind {
    DTP_DECIDE_OP,
    DTP_DECIDE_TENSOR,
    DTP_DECIDE_REPLICA
} dtp_decision_kind;

/* A strategy of a variable. */
typedef struct dtp_tensor_strategy {
    dtp_strategy strategy; /* op */
    dtp_layout layout;     /* tensor: where it is kept; replica: where readers take it from */
    bool own;              /* replica: no copy, the tensor is kept there */
} dtp_tensor_strategy;

typedef struct dtp_tensor_variable {
    dtp_decision_kind kind;
    dtp_node_id node;     /* op */
    dtp_tensor_id tensor; /* tensor, replica */
    dtp_phase phase;      /* replica */
    int32_t n_strategies;
    const dtp_tensor_strategy *strategies; /* in the order of those of the selection problem */
} dtp_tensor_variable;

typedef struct dtp_tensor_options {
    int32_t runs;         /* groups of instances of a block that share variables; 0: no tying */
    bool uneven;          /* splits that do not divide a size (dtp_layout_may_hold) */
    int64_t memory_bytes; /* per rank; 0 = none */
    int32_t n_pins;       /* decisions made beforehand: strategies that contradict them go */
    const dtp_pin *pins;
    const dtp_form_space *space; /* a form whose plans alone are wanted; borrowed; NULL: any */
    const dtp_stop *stop;        /* DTP_STOPPED when it fires; NULL = none */
    bool unpriced;               /* variables and their strategies alone: `select` stays NULL */
    dtp_redistribution_pricer *redistributions; /* borrowed; NULL: one of the problem's own */
} dtp_tensor_options;

/* A tensor that an edge redistributes, and when; an edge of tied instances has several. */
typedef struct dtp_sent_tensor {
    int32_t edge;
    dtp_tensor_id tensor;
    dtp_phase phase;
} dtp_sent_tensor;

typedef struct dtp_tensor_problem {
    dtp_arena *arena;
    const dtp_graph *graph;   /* borrowed */
    const dtp_pricer *pricer; /* borrowed */
    dtp_tensor_options options;
    int32_t n_variables;
    dtp_tensor_variable *variables; /* variables[i] is variable i of `select` */
    int32_t *variable_of_node;      /* by node id; tied instances name the same variable */
    int32_t *variable_of_tensor;    /* by tensor id; -1: kept as its only op leaves or reads it */
    int32_t
        *variable_of_replica[3]; /* by phase, by tensor id; -1: at most one node of the phase reads
                                   it, from where it is kept */
    dtp_problem *select;         /* not changed once it is solved */
    int64_t *kernel_ps; /* by strategy of `select`: of its cost, what kernels take; the rest is
                           communication inside ops */
    int32_t n_redistributions; /* edges of `select` that redistribute, the first ones */
    int64_t *edge_runs;        /* by these: how often a step runs them, over all instances */
    dtp_redistribution_pricer *redistributions; /* that of the options, or its own */
    int32_t n_sent;
    dtp_sent_tensor *sent;
} dtp_tensor_problem;

/* All instances of a block together, nothing uneven, no limit, no pins. */
dtp_tensor_options dtp_tensor_options_init(void);

/* Borrows g, pricer and options->redistributions; pins are copied. DTP_INVALID naming the pin when
 * no strategy keeps it, DTP_RANGE when there are too many strategies. */
dtp_status dtp_tensor_problem_create(const dtp_graph *g, const dtp_pricer *pricer,
                                     const dtp_tensor_options *options, dtp_tensor_problem **out,
                                     dtp_err *err) DTP_MUST_CHECK;
void dtp_tensor_problem_destroy(dtp_tensor_problem *p);

/* Plans redistributions at the prices of the problem: a lowering with it, without passes, costs
 * exactly what dtp_problem_evaluate says. Borrowed from p. */
const dtp_redistributor *dtp_tensor_redistributor(const dtp_tensor_problem *p);

/* The fewest runs, up to `most`, with which all that decides together is sharded alike. 0: more are
 * needed. */
dtp_status dtp_runs_needed(const dtp_graph *g, const dtp_sharding *s, int32_t most, int32_t *runs,
                           dtp_err *err) DTP_MUST_CHECK;

/* What an assignment (by variable) means, in `arena`; it has replicas. */
dtp_status dtp_tensor_sharding(const dtp_tensor_problem *p, const int32_t *assignment,
                               dtp_arena *arena, dtp_sharding *out, dtp_err *err) DTP_MUST_CHECK;

/* The assignment that a sharding is, when the problem has it: a baseline as a first solution.
 * *found = false when some decision of it is not among the strategies. */
dtp_status dtp_tensor_assignment(const dtp_tensor_problem *p, const dtp_sharding *s,
                                 int32_t *assignment, bool *found, dtp_err *err) DTP_MUST_CHECK;

#endif
