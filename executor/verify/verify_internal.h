/* Shared by the files of verification. What names one device exists on rank 0 alone. */
#ifndef DTP_EXECUTOR_VERIFY_VERIFY_INTERNAL_H
#define DTP_EXECUTOR_VERIFY_VERIFY_INTERNAL_H

#include "executor/session/session_internal.h"
#include "executor/verify/verify.h"

/* ---- one device ---- */

struct dtp_verify_reference {
    const dtp_graph *model;
    dtp_verify_options options; /* seed and feeds */
    dtp_arena *arena;
    dtp_graph graph; /* borrows the model's up to its update nodes: same ids. Parameters and states
                        stay what they are in a step */
    dtp_sharding sharding;
    dtp_program *program;
    dtp_comm *comm;
    dtp_session *session;
};

/* Before the first step of another verification, of graph `g`. DTP_INVALID when the reference was
 * made for another one, or with another seed or other feeds. */
dtp_status dtp_verify__reference_start(dtp_verify_reference *r, const dtp_graph *g,
                                       const dtp_verify_options *o, dtp_err *err) DTP_MUST_CHECK;

/* ---- comparison of one tensor ---- */

/* Whole tensors in host memory; looked at on rank 0 only. */
typedef struct dtp_verify__want {
    const void *value;    /* what the ranks should have */
    const void *previous; /* NULL, or `value` is an update of this */
    void *have;           /* NULL, or receives what the ranks have */
} dtp_verify__want;

typedef struct dtp_verify__error {
    double abs_err;
    double beyond;  /* abs_err without what rounding explains, with `previous`; else abs_err */
    double scale;   /* largest finite |value|, or |value - previous| */
    double largest; /* of all of them: NaN when one is */
    bool broken;    /* a NaN or an infinity on one side only */
    bool nan;       /* a NaN on both sides */
} dtp_verify__error;

/* Collective: every rank's part of tensor t, replicas too, streamed to rank 0. */
dtp_status dtp_verify__compare(dtp_session *s, dtp_tensor_id t, const dtp_verify__want *want,
                               dtp_verify__error *out, dtp_err *err) DTP_MUST_CHECK;
/* Unit roundoff: half the distance between 1 and the next number; 0 for integers. */
double dtp_verify__unit(dtp_dtype dtype);

/* ---- the update of one node on one device ---- */

typedef struct dtp_verify__update {
    dtp_node_id node; /* whose results are there, -1 = none */
    dtp_backend *backend;
    char *memory;
    int64_t bytes;
    dtp_view in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT]; /* device memory */
} dtp_verify__update;

typedef struct dtp_verify__update_job {
    const dtp_graph *g;        /* of the node */
    const dtp_graph *ranks;    /* that the ranks run */
    dtp_session *s;            /* theirs */
    dtp_verify_reference *ref; /* NULL but on rank 0 */
    void *host;                /* for the largest gradient; rank 0 */
    int64_t step;              /* the one that just ran, from 0 */
} dtp_verify__update_job;

/* Collective: the node's op on the reference's parameters and states and the ranks' gradients. On
 * rank 0 u->out has the results until the next call or dtp_verify__update_free. */
dtp_status dtp_verify__update_run(const dtp_verify__update_job *job, dtp_node_id node,
                                  dtp_verify__update *u, dtp_err *err) DTP_MUST_CHECK;
void dtp_verify__update_free(dtp_verify__update *u);

#endif
