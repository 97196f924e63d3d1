/* The loss and the metrics of a model over the rows of files, each row once, whatever the batches
 * are. */
#ifndef DTP_EXECUTOR_SESSION_EVALUATE_H
#define DTP_EXECUTOR_SESSION_EVALUATE_H

#include "executor/session/session.h"

/* A value that is folded over the batches (dtp_row_fold); elements on rank 0 only. */
typedef struct dtp_folded {
    int64_t n;
    double *values; /* weighted with what `weight` adds up, where the fold is a mean */
    double weight;
} dtp_folded;

/* Loss and metrics over all rows, once dtp_evaluation_end has made them of what the batches gave;
 * on rank 0 only. Start with {0}. */
typedef struct dtp_evaluation {
    int64_t rows, batches;
    int64_t
        step; /* after how many training steps the parameters are: of the checkpoint, of `from` */
    double loss;
    double seconds; /* feeding and computing */
    int32_t n_folded;
    dtp_folded *folded;
    int32_t n_metrics;
    struct dtp_metric {
        char *name;
        int64_t n; /* elements */
        double *values;
    } * metrics;
} dtp_evaluation;

/* Adds `batches` batches of a program of an evaluation (core/transform/evaluation.h), whose
 * batch dim is dtp_microbatch_dim: of `options` feeds, seed, load, allow_nan and order count.
 * Parameters come from `from` (a session of a program with the same layouts), when it is not
 * NULL. Collective. DTP_UNSUPPORTED when the model needs all rows in one batch (whole_batch) and
 * there are more. */
dtp_status dtp_evaluate(const dtp_program *p, dtp_backend *backend, dtp_comm *comm,
                        const dtp_session_options *options, dtp_session *from, int64_t batches,
                        dtp_evaluation *sum, dtp_err *err) DTP_MUST_CHECK;
/* Loss and metrics of what was added; `g` is the graph of one of the programs. Collective.
 * DTP_NOT_FINITE when the loss is not, unless allow_nan. */
dtp_status dtp_evaluation_end(const dtp_graph *g, dtp_comm *comm, bool allow_nan,
                              dtp_evaluation *sum, dtp_err *err) DTP_MUST_CHECK;
void dtp_evaluation_free(dtp_evaluation *sum);

#endif
