/* How long a step with pipeline stages takes: the table of their sections, replayed with the times
 * of sections and messages. */
#ifndef DTP_COST_MODELS_PIPELINE_H
#define DTP_COST_MODELS_PIPELINE_H

#include "spmd/program/stage_table.h"

/* What one stage sends to another behind a section, all of it at once. */
typedef struct dtp_stage_message {
    int32_t from, to, section;
    bool once;     /* of BACKWARD: behind that of the last microbatch alone */
    int64_t bytes; /* per rank, of one microbatch */
    double time_s;
} dtp_stage_message;

typedef struct dtp_pipeline_times {
    double *section_s; /* [(stage * n_sections + section) * 2 + (0: first microbatch, 1: others)] */
    int32_t n_messages;
    dtp_stage_message *messages;
} dtp_pipeline_times;

/* The end of the step. begin_s (may be NULL): by stage, by action, when it begins; the caller's.
 * Storage from `arena`. DTP_INVALID when stages wait for each other in a circle. */
dtp_status dtp_pipeline_replay(const dtp_stage_table *table, const dtp_pipeline_times *times,
                               dtp_arena *arena, double *end_s, double **begin_s,
                               dtp_err *err) DTP_MUST_CHECK;

#endif
