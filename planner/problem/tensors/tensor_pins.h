/* What is pinned in tensor mode: the pins of a request on one mesh, whether a decision keeps them,
 * and which of them cannot hold together. */
#ifndef DTP_PLANNER_PROBLEM_TENSORS_TENSOR_PINS_H
#define DTP_PLANNER_PROBLEM_TENSORS_TENSOR_PINS_H

#include "interop/styles/pin_texts.h"
#include "planner/problem/tensors/tensor_problem.h"

/* Whether a sharding of the graph keeps every pin. */
bool dtp_pins_kept(const dtp_graph *g, const dtp_sharding *s, int32_t n, const dtp_pin *pins);

typedef struct dtp_conflict {
    int32_t n;
    const char **texts; /* those of the pins, "memory N" */
} dtp_conflict;

/* Of n_texts texts and the memory limit (0 = none), `uneven` as in dtp_tensor_options. */
typedef struct dtp_conflict_question {
    int32_t n_texts;
    const char *const *texts;
    int64_t memory_bytes;
    bool uneven;
    const dtp_stop *stop; /* NULL: none */
} dtp_conflict_question;

/* A smallest set (nothing can be left out) of what is asked about under which the problem is proven
 * to have no solution; n = 0 when nothing could be proven. By deletion: what the contradiction
 * survives without is left out. Everything from `arena`. */
dtp_status dtp_conflict_find(const dtp_graph *g, const dtp_pricer *pricer,
                             const dtp_conflict_question *question, dtp_arena *arena,
                             dtp_conflict *out, dtp_err *err) DTP_MUST_CHECK;

#endif
