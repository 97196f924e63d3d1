/* Shared by the files that build a rules problem. */
#ifndef DTP_PLANNER_PROBLEM_RULES_RULES_INTERNAL_H
#define DTP_PLANNER_PROBLEM_RULES_RULES_INTERNAL_H

#include "planner/problem/rules/rules_problem.h"

enum { DTP_RULES_MAX_ASSIGN = 50000 };

/* A buffer of a tensor, or of several that follow each other in place. */
typedef struct dtp_rules_buffer {
    int32_t set;
    int64_t bytes;       /* of the whole tensor */
    int32_t first, last; /* nodes between which it is alive, both included */
} dtp_rules_buffer;

/* Names, and the mesh dims that may split them. */
dtp_status dtp_rules__names(dtp_rules_problem *p, const dtp_layout_rules *pins,
                            dtp_err *err) DTP_MUST_CHECK;
/* Index of the set of a node's dims or of a tensor's; made when new. */
dtp_status dtp_rules__op_set(dtp_rules_problem *p, dtp_node_id node, int32_t *out,
                             dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_rules__tensor_set(dtp_rules_problem *p, dtp_tensor_id t, int32_t *out,
                                 dtp_err *err) DTP_MUST_CHECK;
/* Classes of nodes with their prices. */
dtp_status dtp_rules__price(dtp_rules_problem *p, dtp_err *err) DTP_MUST_CHECK;
/* Buffers with their lives, by set and size, in the arena; makes their sets. */
dtp_status dtp_rules__buffers(dtp_rules_problem *p, int32_t *n, dtp_rules_buffer **out,
                              dtp_err *err) DTP_MUST_CHECK;
/* Adds the usage of the buffers and of the nodes' temporaries to p->select. */
dtp_status dtp_rules__usage(const dtp_rules_problem *p, int32_t n, const dtp_rules_buffer *buffers,
                            dtp_err *err) DTP_MUST_CHECK;

/* The splits of a mask, in mesh order. */
dtp_rule_splits dtp_rules__splits_of(uint8_t mask);
/* The mask of splits; false when they are not in mesh order. */
bool dtp_rules__mask_of(const dtp_rule_splits *splits, uint8_t *mask);

#endif
