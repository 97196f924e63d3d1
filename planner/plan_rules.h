/* Planning in rules mode: from a graph and a machine to a plan with certificate and baselines. */
#ifndef DTP_PLANNER_PLAN_RULES_H
#define DTP_PLANNER_PLAN_RULES_H

#include "planner/plan_search.h"

/* The plan is never predicted worse than a baseline made of layout rules that is legal, within the
 * memory limit and in keeping with the pins. An impossible memory limit is a result, not an error;
 * impossible pins are DTP_INVALID. Free with dtp_plan_result_free, unless it failed. */
dtp_status dtp_plan_rules(const dtp_graph *g, const dtp_machine *machine,
                          const dtp_plan_request *request, dtp_plan_result *out,
                          dtp_err *err) DTP_MUST_CHECK;

#endif
