/* What the files of explain share: names, the plan as an assignment and the order of what is said
 * (explain.c), alternatives with costs (explain_options.c), and those that are no strategies
 * (explain_excluded.c). */
#ifndef DTP_PLANNER_EXPLAIN_INTERNAL_H
#define DTP_PLANNER_EXPLAIN_INTERNAL_H

#include "planner/reports/explain.h"
#include "interop/styles/pin_texts.h"
#include "planner/solver/solve.h"
#include "planner/problem/tensors/tensor_problem.h"

typedef struct dtp_explaining {
    const dtp_explain_request *request;
    dtp_arena *arena;
    dtp_explanation *out;
    int32_t capacity;
    dtp_pricer pricer;
    dtp_pin_set pins;
    dtp_tensor_problem *problem; /* within the pins */
    dtp_tensor_problem *free;    /* without them, unpriced; the same when there are none */
    int32_t *assignment, *other; /* the plan in either; scratch */
    dtp_tensor_id tensor;        /* -1: a node */
    dtp_node_id node;            /* that decides, when no tensor does */
} dtp_explaining;

/* The variable in p that decides. */
int32_t dtp_explain__variable(const dtp_explaining *e, const dtp_tensor_problem *p);

/* A layout of the tensor, or a strategy of the node, that decides. */
void dtp_explain__print(const dtp_explaining *e, const dtp_tensor_strategy *o,
                        char out[DTP_STRATEGY_TEXT_BYTES]);

/* Appends an alternative with only its text and what excludes it. */
dtp_status dtp_explain__add(dtp_explaining *e, const char *text, const char *excluded,
                            dtp_alternative **out, dtp_err *err) DTP_MUST_CHECK;

/* Appends the strategies of the tensor or node that decides, with what they cost. */
dtp_status dtp_explain__options(dtp_explaining *e, dtp_err *err) DTP_MUST_CHECK;

/* Appends what is no strategy, with or without pins, and why. */
dtp_status dtp_explain__excluded(dtp_explaining *e, dtp_err *err) DTP_MUST_CHECK;

#endif
