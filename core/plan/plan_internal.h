/* What the plan reader and writer share: the names of codes and the text form of a node's rows. */
#ifndef DTP_CORE_PLAN_PLAN_INTERNAL_H
#define DTP_CORE_PLAN_PLAN_INTERNAL_H

#include "core/base/json.h"
#include "core/base/json_writer.h"
#include "core/plan/plan.h"

enum { DTP_PLAN_MAX_BYTES = 1 << 30, DTP_ROW_TEXT_BYTES = 192 };

/* In the order of their enumerations, ended by NULL. */
extern const char dtp_plan__default_target[4]; /* not written to files */
extern const char *const dtp_plan__compute_parts[DTP_N_COMPUTE_PARTS + 1];
extern const char *const dtp_plan__collectives[DTP_N_COLL_TOTALS + 1]; /* as in a prediction */
extern const char *const dtp_plan__cert_statuses[5];
extern const char *const dtp_plan__objectives[3];
extern const char *const dtp_plan__phases[4];

/* Checks the format and the keys of a plan and reads all that does not depend on the graph; strings
 * are copied into the plan's arena. Layouts of redistributions are checked, steps are not
 * (cost_models/plan_lowering.h). */
dtp_status dtp_plan__fields(const dtp_json *root, dtp_plan *plan, dtp_err *err) DTP_MUST_CHECK;

/* A list of texts, copied into the arena. */
dtp_status dtp_plan__texts(const dtp_json *v, dtp_arena *arena, int32_t *n, const char ***out,
                           dtp_err *err) DTP_MUST_CHECK;

/* Names row `r` of a rule set: the dim that is split ("batch"), "in>out" when the op renames it,
 * "partial(0+2)" for partial operands that pass through, "replicated" for row 0. When rows before r
 * have the same name, "#2", "#3"... follows, so that names of one set are distinct. */
void dtp_plan__row_name(const dtp_sharding_rules *set, int32_t r, int32_t n_in,
                        const dtp_dims *dims, char out[DTP_ROW_TEXT_BYTES]);
/* The row of that name; -1 when there is none. */
int32_t dtp_plan__row_find(const dtp_sharding_rules *set, const char *name, int32_t n_in,
                           const dtp_dims *dims);

#endif
