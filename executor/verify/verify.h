/* N ranks against one device, step by step: runs the sharded program and, on rank 0, the same graph
 * lowered with everything replicated on a mesh of one rank, on the same feeds and seed, and
 * compares. At the start of every step the one device takes over the parameters and states of the
 * ranks, so no step inherits the rounding of an earlier one. */
#ifndef DTP_EXECUTOR_VERIFY_VERIFY_H
#define DTP_EXECUTOR_VERIFY_VERIFY_H

#include "executor/session/session.h"

typedef struct dtp_verify_reference dtp_verify_reference;

typedef struct dtp_verify_options {
    int32_t steps; /* default 3 */
    double
        tolerance; /* of every comparison; < 0, the default: by element type (dtp_verify_bound) */
    uint64_t seed;
    int32_t n_feeds;
    const dtp_feed_spec *feeds;
    const dtp_graph *reference_graph; /* the graph that one device runs, NULL: the sharded one. It
                                         has the outputs, gradients, parameters and states of the
                                         sharded one under the same names (a plan's recomputation
                                         and microbatches are then part of what is verified) */
    dtp_backend *reference; /* runs the reference on rank 0; needed there only. Not the sharded one:
                               each backend counts its own memory */
    dtp_verify_reference *kept; /* on rank 0: the one device, instead of `reference`; NULL: it is
                                   made for this verification */
} dtp_verify_options;

dtp_verify_options dtp_verify_options_init(void);

/* The one device, for many verifications one after the other: of programs of one model in one
 * precision. Seed, feeds and the backend `reference` are those of the options. Borrows graph, feeds
 * and backend. */
dtp_status dtp_verify_reference_create(const dtp_graph *g, const dtp_verify_options *options,
                                       dtp_verify_reference **out, dtp_err *err) DTP_MUST_CHECK;
void dtp_verify_reference_destroy(dtp_verify_reference *r);

typedef enum dtp_verify_kind {
    DTP_VERIFY_INITIAL,  /* parameters and states before the first step */
    DTP_VERIFY_OUTPUT,   /* outputs and loss of every step */
    DTP_VERIFY_GRADIENT, /* of every step */
    DTP_VERIFY_UPDATE,   /* parameters and states after every step, against the optimizer of one
                            device on the parameters, states and gradients of the ranks */
    DTP_VERIFY_N_KINDS
} dtp_verify_kind;

/* "initial", "outputs", "gradients", "updates". */
const char *dtp_verify_kind_name(dtp_verify_kind kind);

typedef struct dtp_verify_item {
    dtp_verify_kind kind;
    dtp_tensor_id tensor;
    const char *name; /* of the graph; for a gradient, of its parameter */
    int32_t step;     /* of the worst error, from 1; 0 for DTP_VERIFY_INITIAL */
    /* max |a - b| / max(max |b|, least) over all elements and all ranks, b the reference; infinite
     * when a NaN is on one side alone. least: 1e-30; for a gradient u / tolerance of the largest
     * max |b| of all gradients of the step, u the unit roundoff of its dtype. For an update: the
     * largest |a - b| beyond what rounding of b explains (executor/verify/verify_compare.c),
     * divided by the largest change of the tensor in the step. Steps after the first one that fails
     * are not compared: -1 when no step was. */
    double rel_err, abs_err;
    double ref_max;   /* max |b|; for an update the largest change; NaN when one is */
    int32_t nan_step; /* the first step with NaN in the same places on both sides, which are no
                         error and show nothing; -1: none */
} dtp_verify_item;

/* Filled on every rank. Bounds on rel_err, where the caller gives none: 2e-5; for outputs and
 * gradients of a graph that computes in 16 bits 16 u, u the unit roundoff of the type: 0.0625 for
 * bf16, 0.0078 for f16; with products in tf32 4 u, u = 2^-11: 0.002; with products in fp8 2 u, u =
 * 2^-3 of e5m2: 0.25. Sums over ranks round where one device does not, and every rounding of an
 * activation is passed on by the nodes behind it; parameters and states are f32 and keep 2e-5. */
typedef struct dtp_verify_result {
    int32_t ranks, steps;
    int32_t skipped; /* steps beside these, whose gradients overflowed under the loss scale */
    int32_t n, capacity;
    dtp_verify_item *items;
    double max_rel_err;       /* over all items */
    double tolerance;         /* of initial values and updates */
    double compute_tolerance; /* of outputs and gradients */
    bool pass;
    double *losses, *ref_losses;  /* per step; NULL for forward graphs. ref_losses on rank 0 only */
    int64_t predicted_peak_bytes; /* the largest of all ranks */
    int64_t *peak_bytes;          /* per rank, */
    int64_t *predicted_bytes;     /* and as predicted; NULL without stages: all have the same */
} dtp_verify_result;

/* The largest rel_err that passes. */
double dtp_verify_bound(const dtp_verify_result *r, dtp_verify_kind kind);
/* The worst item of a kind; NULL when nothing of it was compared. */
const dtp_verify_item *dtp_verify_worst(const dtp_verify_result *r, dtp_verify_kind kind);

/* Collective. The program was lowered with dtp_graph_results as fetches. A mismatch is a field of
 * the result, not an error. DTP_UNSUPPORTED when an update
 * reads something else than parameters, states and gradients. */
dtp_status dtp_verify(const dtp_graph *g, const dtp_program *sharded, dtp_backend *backend,
                      dtp_comm *comm, const dtp_verify_options *options, dtp_verify_result *out,
                      dtp_err *err) DTP_MUST_CHECK;
void dtp_verify_result_free(dtp_verify_result *r);

#endif
