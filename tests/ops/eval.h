/* A single-rank executor for tests: runs every node of a graph in order on a backend. */
#ifndef DTP_TESTS_OPS_EVAL_H
#define DTP_TESTS_OPS_EVAL_H

#include "core/graph/graph.h"
#include "executor/device/backend.h"

enum { EVAL_SEED = 7, EVAL_STEP = 2 };

/* Buffers of all tensors, by id. */
typedef struct eval {
    const dtp_graph *g;
    dtp_backend *backend;
    void **data; /* in device memory */
    void **host; /* copies: what eval_set wrote, what eval_run left */
} eval;

/* Allocates a buffer for every tensor, filled with bytes that are no useful value. */
void eval_init(eval *e, const dtp_graph *g, dtp_backend *backend);
void eval_free(eval *e);

/* Element access, through double. */
void eval_set(eval *e, dtp_tensor_id t, const double *values);
double eval_get(const eval *e, dtp_tensor_id t, int64_t index);

/* Runs all nodes. */
dtp_status eval_try(eval *e, dtp_err *err) DTP_MUST_CHECK;
/* The same; fails the test on an error. */
void eval_run(eval *e);

/* The copy of a tensor on the host, fetched anew. */
const void *eval_fetch(eval *e, dtp_tensor_id t);

/* Runs the kernel of one call on views of device memory, to its end. */
dtp_status eval_kernel(dtp_backend *backend, const dtp_op_call *call, const dtp_view *in,
                       const dtp_view *out, dtp_err *err);
/* The whole tensor of this type. */
dtp_view eval_view(const dtp_ttype *type, void *data);

#endif
