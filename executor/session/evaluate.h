/* The loss and the metrics of a model over the rows of files, each row once. */
#ifndef DTP_EXECUTOR_SESSION_EVALUATE_H
#define DTP_EXECUTOR_SESSION_EVALUATE_H

#include "executor/session/session.h"

/* Sums over batches; the means once dtp_evaluation_end has divided them. Floating-point metrics
 * of a batch are weighted with its rows, integers are counts and stay sums. Its loss is weighted
 * with its rows as well where the graph says no weight. Loss and metrics are on
 * rank 0 only. */
typedef struct dtp_evaluation {
    int64_t rows, batches;
    int64_t
        step; /* after how many training steps the parameters are: of the checkpoint, of `from` */
    double loss, weight;
    double seconds;    /* feeding and computing */
    int32_t n_metrics; /* outputs of the graph, but the weight */
    struct dtp_metric {
        char *name;
        int64_t n;   /* elements */
        bool counts; /* integers */
        double *values;
    } * metrics;
} dtp_evaluation;

/* Adds `batches` batches of a program of an evaluation (core/transform/evaluation.h), whose
 * batch dim is dtp_microbatch_dim: of `options` feeds, seed, load, allow_nan and order count.
 * Parameters come from `from` (a session of a program with the same layouts), when it is not
 * NULL. Collective. Start with {0}. */
dtp_status dtp_evaluate(const dtp_program *p, dtp_backend *backend, dtp_comm *comm,
                        const dtp_session_options *options, dtp_session *from, int64_t batches,
                        dtp_evaluation *sum, dtp_err *err) DTP_MUST_CHECK;
/* Sums become means. */
void dtp_evaluation_end(dtp_evaluation *sum);
void dtp_evaluation_free(dtp_evaluation *sum);

#endif
