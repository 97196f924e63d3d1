/* The fields of a plan file that do not depend on the graph. */
#ifndef DTP_CORE_PLAN_PLAN_FIELDS_H
#define DTP_CORE_PLAN_PLAN_FIELDS_H

#include "core/base/json.h"
#include "core/plan/plan.h"

/* Checks the format and the keys of a plan and reads everything but rules, tensors and strategies;
 * strings are copied into the plan's arena. */
dtp_status dtp_plan__fields(const dtp_json *root, dtp_plan *plan, dtp_err *err) DTP_MUST_CHECK;

#endif
