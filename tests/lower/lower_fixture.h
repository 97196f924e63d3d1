/* Small training graphs, their values computed node by node without any sharding, and programs
 * compared with them. */
#ifndef DTP_TESTS_LOWER_LOWER_FIXTURE_H
#define DTP_TESTS_LOWER_LOWER_FIXTURE_H

#include "core/plan/sharding.h"
#include "spmd/lower/lower.h"
#include "spmd/lower/overlap.h"

typedef struct spmd_fixture {
    dtp_graph *graph;
    double **start; /* by tensor: values before the step, NULL for node outputs */
    double **value; /* by tensor: what the step computes */
} spmd_fixture;

/* Two layers, softmax over the classes, a sum of products with targets; momentum. `sizes`: batch,
 * pixels, hidden, classes. */
spmd_fixture spmd_fixture_mlp(const int64_t sizes[4]);
/* Relabels that split and merge dims around a contraction; sgd. */
spmd_fixture spmd_fixture_relabel(void);
/* A sum of three contractions over a dim `k`; momentum. */
spmd_fixture spmd_fixture_sum(void);
/* Two layers whose parameters, and what is between, are cast; sgd. */
spmd_fixture spmd_fixture_cast(void);
void spmd_fixture_destroy(spmd_fixture *f);

/* Layout rules on a mesh, allocated in the graph's arena. Fails the test when they are illegal. */
dtp_sharding spmd_fixture_rules(const spmd_fixture *f, const char *mesh, const char *rules);

/* Runs the program on all virtual ranks and compares every kept value and every updated parameter,
 * with collectives that run at their START, and at their WAIT where they differ; false (and a line
 * on stderr) when one differs. */
bool spmd_fixture_agrees(const spmd_fixture *f, const dtp_program *p);

int32_t spmd_count(const dtp_program *p, dtp_coll_kind kind);

#endif
