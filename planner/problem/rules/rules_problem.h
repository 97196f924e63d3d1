/* The layout rules of one graph on one mesh as a selection problem (docs/ilp.md): names that may be
 * split, the sets in which names meet, and the exact price and memory of every assignment of every
 * set.
 *
 *   variable t             name t; strategies: the mesh dims that may split it, as bit masks (bit m
 *                          for mesh dim m, 0 = whole; several split it in mesh order), without cost
 *   variable n_names + d   set d; strategies: its assignments, a mask for every name of the set;
 *                          cost: of all nodes whose names are the set; usage: its tensors over
 *                          their lives, and what its nodes need besides while they run, so that no
 *                          program needs less (planner/problem/lifetimes.h)
 *   edge (t, n_names + d)  t is in d: 0 where both say the same of t, else forbidden
 *
 * Two dims of a set do not share a mesh dim, except that in a renaming op (relabel) a dim of the
 * operand alone may share one with a dim of the output alone.
 */
#ifndef DTP_PLANNER_PROBLEM_RULES_RULES_PROBLEM_H
#define DTP_PLANNER_PROBLEM_RULES_RULES_PROBLEM_H

#include "cost_models/price.h"
#include "planner/problem/write.h"
#include "spmd/redistribute/redistribute.h"

/* A dim that some mesh dim may split. */
typedef struct dtp_rules_name {
    dtp_dim_id dim;
    int64_t
        size_gcd; /* of all its sizes; what splits it must divide this or, where uneven splits */
    int64_t smallest; /* are allowed, have no more parts than its smallest size */
    int32_t n_masks;
    const uint8_t *masks; /* by strategy, ascending; one that a pin leaves */
} dtp_rules_name;

/* Names that meet in an op or a tensor, ascending. */
typedef struct dtp_rules_set {
    int32_t n;
    const int32_t *names;
    uint32_t in_only, out_only; /* renaming ops: bit i for names[i] on one side alone; else 0 */
    int32_t n_assign;
    const uint8_t *assign; /* n_assign rows of n masks; row 0 splits nothing */
    int64_t *cost_ps;      /* by assignment: the sum over all nodes with this set, DTP_FORBIDDEN
                              where one cannot be lowered */
} dtp_rules_set;

/* Nodes that cost the same: op, attributes and operand types are equal. */
typedef struct dtp_rules_class {
    int32_t set;
    dtp_node_id example; /* the first of them */
    int64_t count;
    int64_t *kernel_bytes; /* by assignment: alive besides operands and results at least while
                              kernels run, and */
    bool *one_kernel;      /* whether it is one kernel and nothing else */
} dtp_rules_class;

typedef struct dtp_rules_problem {
    dtp_arena *arena;
    const dtp_graph *graph;                 /* borrowed */
    const dtp_pricer *pricer;               /* borrowed */
    const dtp_redistributor *redistributor; /* borrowed */
    bool uneven;                            /* splits that do not divide a size are allowed */
    int32_t n_names;
    dtp_rules_name *names;
    int32_t *name_of; /* by dim id: index into names, -1 = none */
    int32_t n_sets, cap_sets;
    dtp_rules_set *sets;
    int32_t n_classes;
    dtp_rules_class *classes;
    int32_t *class_of_node;
    dtp_problem *select; /* without a memory limit */
} dtp_rules_problem;

/* Borrows g, pricer and redistributor, which decides on the steps inside nodes. Names that `pins`
 * split (NULL: none) are split just so. DTP_RANGE: too many assignments; DTP_INVALID or
 * DTP_UNSUPPORTED: a pin cannot hold. */
dtp_status dtp_rules_problem_create(const dtp_graph *g, const dtp_pricer *pricer,
                                    const dtp_redistributor *redistributor,
                                    const dtp_layout_rules *pins, bool uneven,
                                    dtp_rules_problem **out, dtp_err *err) DTP_MUST_CHECK;
void dtp_rules_problem_destroy(dtp_rules_problem *p);

/* The layout rules that an assignment (by variable) means, in `arena`. */
dtp_status dtp_rules_of_assignment(const dtp_rules_problem *p, const int32_t *assignment,
                                   dtp_arena *arena, dtp_layout_rules *out,
                                   dtp_err *err) DTP_MUST_CHECK;
/* The other way; false when the problem cannot say the rules: another order of mesh dims, a name
 * that may not be split so, names of a set that share a mesh dim. */
bool dtp_rules_assignment(const dtp_rules_problem *p, const dtp_layout_rules *rules,
                          int32_t *assignment);

/* What the variables and strategies of p->select are called: "batch", "batch, d_ff"; "batch:x". */
dtp_problem_names dtp_rules_names(const dtp_rules_problem *p);

#endif
