/* Shared by the files that build a rules problem. */
#ifndef DTP_PLANNER_PROBLEM_RULES_RULES_INTERNAL_H
#define DTP_PLANNER_PROBLEM_RULES_RULES_INTERNAL_H

#include "planner/problem/rules/rules_problem.h"

enum { DTP_RULES_MAX_ASSIGN = 50000 };

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
/* Makes the sets of all tensors. */
dtp_status dtp_rules__tensor_sets(dtp_rules_problem *p, dtp_err *err) DTP_MUST_CHECK;
/* Adds the usage of tensors and nodes to p->select. */
dtp_status dtp_rules__usage(dtp_rules_problem *p, dtp_err *err) DTP_MUST_CHECK;

/* The splits of a mask, in mesh order. */
dtp_rule_splits dtp_rules__splits_of(uint8_t mask);
/* The mask of splits; false when they are not in mesh order. */
bool dtp_rules__mask_of(const dtp_rule_splits *splits, uint8_t *mask);

#endif
