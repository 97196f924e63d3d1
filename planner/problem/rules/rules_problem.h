/* The layout-rules problem of one graph on one mesh: names that may be split, the sets in which
 * names meet, and the exact price and memory of every assignment of every set (docs/ilp.md).
 *
 * An assignment of a set gives every dim the mesh dims that split it, as a bit mask (bit m for mesh
 * dim m, 0 = whole; several split it in mesh order). Two dims of a set do not share a mesh dim,
 * except that in a renaming op (relabel) a dim of the operand alone may share one with a dim of the
 * output alone.
 */
#ifndef DTP_PLANNER_PROBLEM_RULES_RULES_PROBLEM_H
#define DTP_PLANNER_PROBLEM_RULES_RULES_PROBLEM_H

#include "core/base/strbuf.h"
#include "cost_models/price.h"
#include "spmd/redistribute/redistribute.h"

/* Dims that meet in an op or a tensor, ascending by id. */
typedef struct dtp_rules_set {
    int32_t n;
    const dtp_dim_id *dims;
    uint32_t in_only, out_only; /* renaming ops: bit i for dims[i] on one side alone; else 0 */
    int32_t n_assign;
    const uint8_t *assign; /* n_assign rows of n masks; row 0 splits nothing */
    bool *forbidden;       /* by assignment */
    int64_t *cost_ps;      /* by assignment: the sum over all nodes with this set */
} dtp_rules_set;

/* Nodes that cost the same: op, attributes and operand types are equal. */
typedef struct dtp_rules_class {
    int32_t set;
    dtp_node_id example; /* the first of them */
    int64_t count;
    int64_t *cost_ps;    /* by assignment: of one node in a step */
    int64_t *temp_bytes; /* by assignment: most bytes alive besides operands and results */
} dtp_rules_class;

/* A buffer of a tensor, or of several that follow each other in place. */
typedef struct dtp_rules_buffer {
    dtp_tensor_id tensor; /* gives the size */
    int32_t set;
    int32_t first, last; /* nodes between which it is alive, both included */
} dtp_rules_buffer;

typedef struct dtp_rules_problem {
    dtp_arena *arena;
    const dtp_graph *graph;                 /* borrowed */
    const dtp_pricer *pricer;               /* borrowed */
    const dtp_redistributor *redistributor; /* borrowed */
    int32_t n_names;
    dtp_dim_id *names; /* that some mesh dim may split */
    int32_t *name_of;  /* by dim id: index into names, -1 = none */
    int64_t *size_gcd; /* by name: of all its sizes; what splits it must divide this */
    bool *allowed;     /* n_names x mesh dims: the mesh dim's size divides every size of the name */
    int32_t n_sets, cap_sets;
    dtp_rules_set *sets;
    int32_t n_classes, cap_classes;
    dtp_rules_class *classes;
    int32_t *class_of_node;
    int32_t n_buffers;
    dtp_rules_buffer *buffers;
    int64_t priced; /* lowerings that were priced */
} dtp_rules_problem;

/* Borrows g, pricer and redistributor, which decides on the steps inside nodes. DTP_RANGE or
 * DTP_UNSUPPORTED when there are too many names or assignments. */
dtp_status dtp_rules_problem_create(const dtp_graph *g, const dtp_pricer *pricer,
                                    const dtp_redistributor *redistributor, dtp_rules_problem **out,
                                    dtp_err *err) DTP_MUST_CHECK;
void dtp_rules_problem_destroy(dtp_rules_problem *p);

enum { DTP_MAX_CHOICE_NAMES = 256 };

/* One answer: the mesh dims that split every name, as masks. */
typedef struct dtp_rules_choice {
    uint8_t mesh_dims[DTP_MAX_CHOICE_NAMES];
} dtp_rules_choice;

/* The assignment as layout rules, in `arena`. */
dtp_status dtp_rules_of_choice(const dtp_rules_problem *p, const dtp_rules_choice *assignment,
                               dtp_arena *arena, dtp_layout_rules *out,
                               dtp_err *err) DTP_MUST_CHECK;

/* Index of a set's assignment under a assignment, -1 when it has none. */
int32_t dtp_rules_assignment(const dtp_rules_problem *p, int32_t set,
                             const dtp_rules_choice *assignment);
/* Bytes per rank of a buffer under an assignment of its set. */
int64_t dtp_rules_buffer_bytes(const dtp_rules_problem *p, const dtp_rules_buffer *b, int32_t a);

typedef struct dtp_rules_value {
    bool legal;
    int64_t cost_ps;
    int64_t peak_bytes;
    dtp_node_id peak_node; /* where the peak is; -1 in a graph without nodes */
} dtp_rules_value;

/* Exact cost and peak of a assignment, in integers. DTP_NOMEM. */
dtp_status dtp_rules_evaluate(const dtp_rules_problem *p, const dtp_rules_choice *assignment,
                              dtp_rules_value *out, dtp_err *err) DTP_MUST_CHECK;

/* A readable listing: every class with its price and memory under every assignment. */
void dtp_rules_problem_print(const dtp_rules_problem *p, dtp_strbuf *out);

#endif
