/* What the files that build the problem of tensor mode share.
 *
 * In the order in which tensor_problem.c calls them:
 *
 *   strategies.c    dtp_tensor__strategies: strategies of every class of nodes, with their prices
 *   tying.c         dtp_tensor__groups: which nodes and tensors share a variable
 *   variables.c     dtp_tensor__variables: the variables and their strategies; pins take some away
 *                   (layout_lists.c: layouts in which a tensor may be kept)
 *   memory.c        dtp_tensor__memory: usage over time
 *   edges.c         dtp_tensor__edges: which variables have an edge between them, and its matrix
 *                   (edge_costs.c)
 */
#ifndef DTP_PLANNER_PROBLEM_TENSORS_TENSOR_INTERNAL_H
#define DTP_PLANNER_PROBLEM_TENSORS_TENSOR_INTERNAL_H

#include "core/base/hash.h"
#include "core/graph/uses.h"
#include "cost_models/redistribution_price.h"
#include "cost_models/node_classes.h"
#include "cost_models/node_price.h"
#include "planner/problem/tensors/tensor_problem.h"
#include "core/plan/node_layouts.h"

/* Layouts without repetition. */
typedef struct layout_list {
    int32_t n, cap;
    dtp_layout *items;
} layout_list;

/* A list in which layouts are found; zeroed it is empty. */
typedef struct layout_set {
    layout_list list;
    dtp_hash_table table;
} layout_set;

/* The strategies of one class of nodes. */
typedef struct class_strategies {
    int32_t n;
    dtp_strategy *strategy;
    dtp_node_price *price;
    int64_t least_kernel_ps; /* over all that can be run, kept here or not */
    layout_list in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT]; /* by operand, by output */
    int32_t *in_of[DTP_MAX_OP_IN];                      /* by strategy: index into in[i] */
    int32_t *out_of[DTP_MAX_OP_OUT];
} class_strategies;

/* Tensors that are kept in one layout. */
typedef struct tensor_group {
    dtp_tensor_id example;
    int32_t members;
    bool survives;    /* some member survives the step */
    bool read;        /* something reads some member */
    bool follows;     /* states: kept as the only node that reads them wants */
    bool passes;      /* read by the next node alone, in the same phase: kept as it was made */
    int32_t same_as;  /* values of updates: the group of their target; else -1 */
    int32_t variable; /* -1: none */
    int32_t view[DTP_N_PHASES];
} tensor_group;

typedef struct node_group {
    dtp_node_id example;
    int32_t members;
    int32_t variable;
    int32_t n_strategies, *strategy; /* into those of the class */
} node_group;

typedef struct redistribution_costs redistribution_costs; /* edge_costs.c */

typedef struct tensor_build {
    dtp_tensor_problem *p;
    const dtp_graph *g;
    const dtp_mesh *mesh;
    dtp_arena *arena;             /* scratch */
    redistribution_costs *prices; /* by size of tensors; those used last first */
    dtp_node_pricer *nodes;
    bool too_large; /* some cost that is not forbidden reaches DTP_FORBIDDEN */
    dtp_node_classes classes;
    class_strategies *options; /* by class */
    int32_t n_node_groups, n_tensor_groups;
    node_group *node_groups;
    tensor_group *tensor_groups;
    int32_t *group_of_node, *group_of_tensor;
    int32_t n_kinds, *kind_of_tensor; /* the groups of tensors if all instances were tied */
    dtp_tensor_strategy *list;        /* scratch: the strategies of one variable */
    int32_t cap_list;
    dtp_hash_table lists; /* variables with different lists of strategies */
    int32_t n_matrices, cap_matrices;
    struct matrix_key *matrices; /* edge_costs.c */
    dtp_hash_table matrix_table;
    int64_t dearest;       /* the largest costs of all edges together */
    dtp_tensor_id *target; /* by tensor: what it replaces at the end of the step, else itself */
    dtp_readers readers;
    dtp_uses uses;
} tensor_build;

/* Nodes of a phase that read a tensor. */
int32_t dtp_tensor__count_readers(const tensor_build *b, dtp_tensor_id t, int phase);
uint64_t dtp_tensor__hash_layout(const dtp_layout *layout);
/* Index of a layout in a set, -1: it is not there. */
int32_t dtp_tensor__find_layout(const layout_set *set, const dtp_layout *layout);
/* Adds a layout that is not there. */
dtp_status dtp_tensor__add_layout(tensor_build *b, layout_set *set, const dtp_layout *layout,
                                  dtp_err *err) DTP_MUST_CHECK;
void dtp_tensor__clear_layouts(layout_set *set);
dtp_status dtp_tensor__strategies(tensor_build *b, dtp_err *err) DTP_MUST_CHECK;
/* Layouts in which a tensor may be kept, in place of those in `out`; bit m of `partial`: as a
 * partial sum over mesh dim m. */
dtp_status dtp_tensor__domain(tensor_build *b, const dtp_ttype *type, dtp_mesh_set partial,
                              layout_list *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor__groups(tensor_build *b, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor__variables(tensor_build *b, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor__edges(tensor_build *b, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor__memory(tensor_build *b, dtp_err *err) DTP_MUST_CHECK;

/* The class of a node's group. */
const class_strategies *dtp_tensor__class_of(const tensor_build *b, int32_t group);
/* The price of a redistribution in picoseconds, DTP_FORBIDDEN when there is none; a price times a
 * count; a sum. Results of DTP_FORBIDDEN and more set b->too_large. */
dtp_status dtp_tensor__redistribution(tensor_build *b, const dtp_ttype *type,
                                      const dtp_layout *from, const dtp_layout *to, int64_t *ps,
                                      dtp_err *err) DTP_MUST_CHECK;
int64_t dtp_tensor__times(tensor_build *b, int64_t ps, int64_t count);
int64_t dtp_tensor__plus(tensor_build *b, int64_t x, int64_t y);

#endif
