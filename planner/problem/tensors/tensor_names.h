/* Names of the variables and strategies of tensor mode. */
#ifndef DTP_PLANNER_PROBLEM_TENSORS_TENSOR_NAMES_H
#define DTP_PLANNER_PROBLEM_TENSORS_TENSOR_NAMES_H

#include "planner/problem/tensors/tensor_problem.h"
#include "planner/problem/write.h"

/* What the variables and strategies of p->select are called: nodes, tensors, replicas per phase;
 * how a node runs, where a tensor is kept. */
dtp_problem_names dtp_tensor_names(const dtp_tensor_problem *p);

#endif
