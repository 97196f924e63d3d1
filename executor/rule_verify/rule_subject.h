/* What the rule verifier runs: one op of a case (and its gradients) as a graph with the answers of
 * one device, and one choice of rules and layouts for it. */
#ifndef DTP_EXECUTOR_RULE_VERIFY_RULE_SUBJECT_H
#define DTP_EXECUTOR_RULE_VERIFY_RULE_SUBJECT_H

#include "executor/rule_verify/op_case.h"
#include "executor/rule_verify/rule_run.h"
#include "spmd/lower/lower.h"

enum { DTP_RULE_MAX_TENSORS = 192 };

/* How to compute, and how much it may be off. */
typedef struct dtp_rule_target {
    const char *backend; /* "ref" computes in f64, "cpu" in f32, unless floats have 16 bits */
    uint64_t seed;
    dtp_dtype float_dtype;
    double bound;          /* largest relative error */
    const dtp_op_set *ops; /* registered ops and their kernels; may be NULL */
    int32_t n_kernels;
    const dtp_kernel *kernels;
    dtp_sim_pool *pool; /* virtual ranks to run on; NULL after init: new ones for every run */
    int32_t feed;       /* of subjects (dtp_case_feed); -1 after init: finite values */
} dtp_rule_target;

/* DTP_INVALID when the backend is none of the two, or `dtype` no 16-bit float; it may be NULL.
 * Results of 16-bit floats may be off by 16 roundings: those of the parts of sums over ranks, of
 * pieces of a decomposition, and of every op of a gradient. */
dtp_status dtp_rule_target_init(dtp_rule_target *t, const char *backend, const char *dtype,
                                uint64_t seed, dtp_err *err) DTP_MUST_CHECK;

/* A graph with its values, and what its outputs should be. */
typedef struct dtp_rule_subject {
    dtp_case_graph cg;
    const double *inputs[DTP_RULE_MAX_TENSORS];
    double *want[DTP_RULE_MAX_OUTPUTS];
} dtp_rule_subject;

/* A case of one op (`op` NULL: the table's); all its outputs are compared, or, with `gradients`,
 * those of the float operands under loss = sum(y * y), y the first output. *applies is false when
 * the op has no gradient. The answers are computed in f64 on one device without any sharding, from
 * operands rounded to the target's floats. Free the subject either way. */
dtp_status dtp_rule_subject_create(const dtp_op_case *c, const dtp_op_def *op, bool gradients,
                                   const dtp_rule_target *t, dtp_rule_subject *out, bool *applies,
                                   dtp_err *err) DTP_MUST_CHECK;
void dtp_rule_subject_free(dtp_rule_subject *s);

/* A sharding of a whole graph: everything replicated after init. */
typedef struct dtp_rule_choice {
    dtp_sharding sharding; /* points into the next two */
    dtp_layout layouts[DTP_RULE_MAX_TENSORS];
    dtp_strategy strategies[DTP_RULE_MAX_TENSORS];
    dtp_lower_options options;
} dtp_rule_choice;

dtp_status dtp_rule_choice_init(dtp_rule_choice *c, const dtp_graph *g, const char *mesh,
                                dtp_err *err) DTP_MUST_CHECK;
/* The node's outputs, and its operands that are INPUTs, lie as its rows say. `reverse`: the last
 * mesh dim is the outermost split. */
void dtp_rule_lay_out(dtp_rule_choice *c, const dtp_graph *g, dtp_node_id id, bool reverse);
/* A renamed split needs sizes that the parts divide, unless both sides have one size. */
bool dtp_rule_is_refused(const dtp_graph *g, const dtp_rule_choice *c, dtp_node_id id);

typedef enum dtp_rule_verdict { DTP_RULE_EQUAL, DTP_RULE_REFUSED, DTP_RULE_WRONG } dtp_rule_verdict;

/* Lowers, checks and runs one choice. Only a renaming that does not fit may be refused, and, with
 * `any_layouts`, a redistribution that does not exist. WRONG: `why` says what is wrong and how to
 * see it again. */
dtp_status dtp_rule_check(const dtp_rule_subject *s, const dtp_rule_target *t,
                          const dtp_rule_choice *c, bool any_layouts, dtp_rule_verdict *verdict,
                          double *error, dtp_err *why) DTP_MUST_CHECK;

/* Worst relative error over the outputs of a program of the subject's graph. */
dtp_status dtp_rule_error(const dtp_rule_subject *s, const dtp_rule_target *t, const dtp_program *p,
                          double *error, dtp_err *err) DTP_MUST_CHECK;

#endif
