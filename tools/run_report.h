/* What dtrun prints: progress, predicted against measured, JSON (docs/formats/report.md). */
#ifndef DTP_TOOLS_DTRUN_RUN_REPORT_H
#define DTP_TOOLS_DTRUN_RUN_REPORT_H

#include "core/plan/plan.h"
#include "core/base/strbuf.h"
#include "cost_models/pipeline.h"
#include "interop/counters.h"
#include "executor/session/session.h"
#include "executor/verify/verify.h"

enum { DTP_REPORT_MEDIANS = 3 }; /* of the times of steps: total, compute, exposed communication */

/* Everything known about a run, collected step by step on every rank and printed on rank 0. */
typedef struct dtp_report {
    const char *model;
    const char *backend, *comm; /* names */
    dtp_mesh mesh;
    int32_t ranks;
    int32_t n_steps, capacity;
    dtp_step_result *steps;
    dtp_prediction predicted; /* copied */
    bool has_prediction;
    /* Of dtrun run, set after dtp_report_start: whose rates the prediction has (tool_rates), and
     * the tokens of a step as predictions count them (cost_models/model_flops.h); NULL and 0: no
     * word of either. */
    const char *rates;
    int64_t tokens;
    /* The same of a plan with stages: borrowed; NULL: there are none. By rank, on rank 0, what the
     * steps took. */
    const dtp_pipeline *pipeline;
    double (*medians)[DTP_REPORT_MEDIANS];
    /* Losses over whole files on the way: after how many steps, and what. */
    int32_t n_evals, eval_capacity;
    struct dtp_report_eval {
        int64_t step;
        double loss;
    } * evals;
    int64_t *peak_bytes; /* per rank; NULL until dtp_report_finish */
    int64_t program_peak_bytes;
    bool scales_loss; /* f16: the scale of the loss and the steps skipped, at the end; rank 0 */
    float loss_scale, skipped;
    int64_t tokens_per_step; /* elements of the first input's dims that count as work; see unit */
    const char *unit;        /* "tokens" or "samples" */
    dtp_arena *arena;
    dtp_counters counters;
    const dtp_runner *runner; /* borrowed: collectives, profile, what ran apart */
    /* Fused instructions of rank 0 that ran as one, and those that ran apart. */
    int32_t n_as_one, n_apart;
    int32_t *apart;
} dtp_report;

/* `predicted` may be NULL. Borrows names and session; needs dtp_report_free. */
dtp_status dtp_report_start(dtp_report *r, const dtp_session *s, const char *backend,
                            const char *comm, const dtp_prediction *predicted,
                            dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_report_add(dtp_report *r, const dtp_step_result *step, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_report_add_eval(dtp_report *r, int64_t step, double loss,
                               dtp_err *err) DTP_MUST_CHECK;
/* Peaks of all ranks, what ran apart; collective. */
dtp_status dtp_report_finish(dtp_report *r, dtp_session *s, dtp_err *err) DTP_MUST_CHECK;
void dtp_report_free(dtp_report *r);
/* run_stages.c: what the stages took, of which `own` are the medians of this rank, nothing without
 * stages (collective); its text and rows. */
struct tool_rows;
dtp_status dtp_report_find_stages(dtp_report *r, dtp_session *s, const double *own,
                                  dtp_err *err) DTP_MUST_CHECK;
void dtp_report_stages_text(const dtp_report *r, dtp_strbuf *out);
void dtp_report_stage_row(struct tool_rows *rows, const void *user, int32_t k);
/* run_fused.c: how fused instructions ran, and lines of text; nothing where the backend does not
 * say. */
dtp_status dtp_report_find_fused(dtp_report *r, dtp_err *err) DTP_MUST_CHECK;
void dtp_report_fused_text(const dtp_report *r, dtp_strbuf *out);

/* Samples per step and unit of a graph: rows x columns of an integer input of rank 2 or more
 * ("tokens"), else dims[0] of the first input ("samples"). */
void dtp_report_work(const dtp_graph *g, int64_t *per_step, const char **unit);

/* What collectives took, of exposed_s in which compute waited for them; NaN where some may run
 * beside compute, which is not timed. */
double dtp_report_comm_s(const dtp_program *p, double exposed_s);

/* "step 12/300  loss 2.4031  5120 tokens/s  left 0:42", without a newline; `total`: the step
 * that is the last one. */
void dtp_report_progress(const dtp_report *r, int64_t total, char *out, size_t bytes);
/* Table of predicted against measured, collectives and memory. */
void dtp_report_text(const dtp_report *r, dtp_strbuf *out);
/* JSON with `profile` also per instruction; ended by a newline. */
dtp_status dtp_report_json(const dtp_report *r, bool profile, dtp_strbuf *out,
                           dtp_err *err) DTP_MUST_CHECK;

/* What was verified, beside what was planned. Borrowed. */
typedef struct dtp_verified {
    const dtp_graph *model;
    const dtp_mesh *mesh;
    const char *target;
    /* Of a plan that was verified as another one; else NULL and false: */
    const char *planned_target;
    bool without_tf32; /* products are in f32, and in the plan in tf32 */
    const dtp_graph *planned_model;
    const dtp_mesh *planned_mesh; /* with planned_model */
} dtp_verified;

void dtp_verify_text(const dtp_verify_result *v, const dtp_verified *what, dtp_strbuf *out);
dtp_status dtp_verify_json(const dtp_verify_result *v, const dtp_verified *what, dtp_strbuf *out,
                           dtp_err *err) DTP_MUST_CHECK;

#endif
