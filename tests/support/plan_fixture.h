/* What the tests of planning share: models, machines, meshes, and planning that must not fail. */
#ifndef DTP_TESTS_SUPPORT_PLAN_FIXTURE_H
#define DTP_TESTS_SUPPORT_PLAN_FIXTURE_H

#include "core/graph/graph.h"
#include "planner/plan_rules.h"
#include "planner/tensors/plan_tensor.h"

/* models/machines/FILE. */
dtp_machine *fixture_machine(const char *file);
/* models/FILE. */
dtp_graph *fixture_model(const char *file);
dtp_graph *fixture_model_with(const char *file, const dtp_model_options *options);
dtp_mesh fixture_mesh(const char *text);
/* Plans in tensor mode. */
dtp_plan_result fixture_plan(const dtp_graph *g, const dtp_machine *machine,
                             const dtp_plan_request *request);
/* ... on a mesh; memory limit 0: none. */
dtp_plan_result fixture_plan_on(const dtp_graph *g, const dtp_machine *machine, const char *mesh,
                                int64_t memory_limit_bytes);
/* The plan file. */
char *fixture_text(const dtp_plan *plan, const dtp_graph *g);

#endif
