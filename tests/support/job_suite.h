/* Whole jobs on a small MLP: the same checks under sim and mpi. */
#ifndef DTP_TESTS_SUPPORT_JOB_SUITE_H
#define DTP_TESTS_SUPPORT_JOB_SUITE_H

#include "executor/session/session.h"

/* images f32 [batch=8, pixels=12] -> hidden=6 -> classes=4, cross entropy, AdamW; `dropout` adds a
 * dropout of 0.25 on the hidden layer. */
dtp_status job_graph(bool dropout, dtp_graph **out, dtp_err *err);

/* A program for rules text on a mesh (uneven splits allowed), with loss, outputs and gradients
 * fetched. */
typedef struct job_program {
    dtp_arena *arena;
    dtp_program *program;
} job_program;
dtp_status job_lower(const dtp_graph *g, const char *mesh, const char *rules,
                     const dtp_target *target, job_program *out, dtp_err *err);
void job_program_free(job_program *p);

typedef struct job {
    const dtp_graph *g;
    const char *mesh, *rules;
    const dtp_target *target; /* NULL: cpu */
    const char *backend;
    int32_t steps;
    const char *load, *save; /* may be NULL */
    int32_t keep;
    bool allow_nan;
    int32_t depth; /* of overlap */
    bool late;     /* virtual ranks run collectives when they are waited for */
    int32_t n_feeds;
    const dtp_feed_spec *feeds;
    /* Before the save, on rank 0 while the others wait; may be NULL. */
    void (*before_save)(const struct job *j);
    double *losses; /* of `steps`, written by rank 0 */
    float *params;  /* all parameters one after the other after the last step, on rank 0; may be
                       NULL */
} job;

/* Body of one rank: trains and checks on the way that memory is exactly as planned. */
dtp_status job_run(dtp_comm *comm, void *user, dtp_err *err);
/* Body of one rank: dtp_verify must pass with its default tolerance (ref backend: 1e-12). */
dtp_status job_verify(dtp_comm *comm, void *user, dtp_err *err);

#endif
