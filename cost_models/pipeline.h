/* A step of a plan with stages: the program of every stage, the table of their sections, and how
 * long it takes. Each section is simulated once on its stage (cost_models/timeline.h); then the
 * table is replayed with these times and the prices of what is sent. */
#ifndef DTP_COST_MODELS_PIPELINE_H
#define DTP_COST_MODELS_PIPELINE_H

#include "cost_models/predict.h"
#include "spmd/program/stage_table.h"

/* What one chunk sends to another behind a section, all of it at once. */
typedef struct dtp_stage_message {
    int32_t from, to, section;
    bool once;     /* as in dtp_transfer */
    int64_t bytes; /* per rank, of one microbatch */
    double time_s; /* 0 without prices */
} dtp_stage_message;

typedef struct dtp_pipeline_times {
    double *section_s; /* [(chunk * n_sections + section) * 2 + (0: first microbatch, 1: others)] */
    int32_t n_messages;
    dtp_stage_message *messages;
} dtp_pipeline_times;

/* How long a section takes. */
double dtp_pipeline_section_s(const dtp_stage_table *table, const dtp_pipeline_times *times,
                              const dtp_stage_action *action);
/* A step, from its begin. */
typedef struct dtp_pipeline_step {
    double end_s;
    double **begin_s; /* by stage, by action: when it begins */
    double *
        *arrival_s; /* by message, by microbatch, of what goes once [0]: when it has arrived; -1:
                           it is not sent */
} dtp_pipeline_step;

/* From `arena`. DTP_INVALID when stages wait for each other in a circle. */
dtp_status dtp_pipeline_replay(const dtp_stage_table *table, const dtp_pipeline_times *times,
                               dtp_arena *arena, dtp_pipeline_step *out,
                               dtp_err *err) DTP_MUST_CHECK;

typedef struct dtp_pipeline {
    dtp_arena *arena;
    int32_t n;              /* chunks of all stages */
    dtp_program **programs; /* by chunk; each is checked, as is the table */
    dtp_stage_table table;
    dtp_pipeline_times times; /* of a prediction */
    dtp_prediction *stages;   /* of a prediction, by stage: its own times, collectives and peak */
} dtp_pipeline;

/* Lowers every chunk of a graph that has stages (options->chunk apart). The programs borrow as
 * those of dtp_lower do. */
dtp_status dtp_pipeline_create(const dtp_graph *g, const dtp_sharding *s,
                               const dtp_lower_options *options, dtp_pipeline **out,
                               dtp_err *err) DTP_MUST_CHECK;
void dtp_pipeline_destroy(dtp_pipeline *pipeline);

/* What is predicted of a step: times and collectives of the stage with most work, the largest peak,
 * and bubble, imbalance and exposed sends; in the pipeline those of every stage and what is sent.
 * Pricer NULL: what needs no prices. Ranks are stage *
 * mesh, the stage outermost: DTP_INVALID where the machine has fewer devices. */
dtp_status dtp_pipeline_predict(dtp_pipeline *pipeline, const dtp_pricer *pricer,
                                dtp_prediction *out, dtp_err *err) DTP_MUST_CHECK;

/* dtp_sharding_predict of a graph with stages: the depth of overlap with the shortest step within
 * overlap.memory_bytes per rank of every stage (0: the device's). The additive cost is that of all
 * stages and of all that is sent, every tensor as a message of its own. */
dtp_status dtp_pipeline_choose(const dtp_graph *g, const dtp_pricer *pricer, const dtp_sharding *s,
                               dtp_lower_options *options, dtp_prediction *predicted,
                               int64_t *cost_ps, dtp_err *err) DTP_MUST_CHECK;

/* The pricer of dtp_stages_mesh. DTP_INVALID where the machine has fewer devices. */
dtp_status dtp_pipeline_between(const dtp_pricer *pricer, int32_t n_stages, dtp_pricer *out,
                                dtp_err *err) DTP_MUST_CHECK;
/* Seconds that a message of so many bytes per rank takes from a stage to one `hops` behind it,
 * negative: before it, 0: a copy on the stage. `between`: dtp_pipeline_between. */
double dtp_pipeline_send_s(const dtp_pricer *between, int64_t bytes, int32_t hops);
/* Seconds in which a stage runs sections. */
double dtp_pipeline_work_s(const dtp_pipeline *pipeline, int32_t stage);
/* Bytes per rank of one transfer; `chunks`: the programs of all chunks. */
int64_t dtp_transfer_bytes(const dtp_program *const *chunks, const dtp_transfer *transfer);
/* How often a step sends a tensor. */
int32_t dtp_pipeline_sends(const dtp_graph *g, const dtp_transfer *transfer);

/* For people: what a stage has and takes, a line each; with the times of a prediction, if there was
 * one; step, bubble, imbalance and sends unless `predicted` is NULL. */
void dtp_pipeline_print(const dtp_pipeline *pipeline, const dtp_prediction *predicted,
                        dtp_strbuf *out);
/* What a rank of a stage communicates in a step: " all_gather 5 (7.100 MiB)," for each kind. */
void dtp_pipeline_print_collectives(const dtp_pipeline *pipeline, int32_t stage, dtp_strbuf *out);
/* "0 -> 1 behind forward", "1.0 -> 0.1 behind the last backward" of chunks. */
typedef struct dtp_message_text {
    char text[128];
} dtp_message_text;
dtp_message_text dtp_message_print(const dtp_pipeline *pipeline, const dtp_stage_message *message);
/* How often a step sends it. */
int32_t dtp_message_sends(const dtp_pipeline *pipeline, const dtp_stage_message *message);
/* What is sent, and the table. */
dtp_status dtp_pipeline_print_table(const dtp_pipeline *pipeline, dtp_strbuf *out,
                                    dtp_err *err) DTP_MUST_CHECK;

#endif
