/* In which order the stages of a pipeline run their sections: a table of actions per stage.
 *
 * A microbatch passes forward through all stages and then backward. Between its two sections a
 * stage keeps what the backward section reads (the stash) in a slot; a stage with k slots has at
 * most k microbatches in flight. The table follows from the numbers of stages, microbatches and
 * slots alone: M slots everywhere are GPipe, S - s on stage s 1F1B (Narayanan et al. 2021,
 * arXiv:2104.04473).
 *
 * What a section makes for another stage is sent behind it, on a queue of its own for each pair of
 * stages and direction, in the order of the sections; the sender goes on. What arrives forward lies
 * in the slot of its microbatch, so it is sent when that slot is free.
 */
#ifndef DTP_SPMD_PROGRAM_STAGE_TABLE_H
#define DTP_SPMD_PROGRAM_STAGE_TABLE_H

#include "core/base/arena.h"
#include "core/transform/stages.h"

typedef struct dtp_stage_action {
    int32_t section;    /* DTP_SECTION_FORWARD, ... */
    int32_t microbatch; /* of the update: the last one */
    int32_t slot;       /* of the update: -1 */
} dtp_stage_action;

typedef struct dtp_stage_table {
    int32_t n_stages, n_microbatches;
    int32_t n_parts;            /* of the update */
    int32_t *slots;             /* by stage */
    int32_t *n_actions;         /* by stage: 2 n_microbatches + n_parts */
    dtp_stage_action **actions; /* by stage */
} dtp_stage_table;

/* A list scheduler in which every section takes one time: a stage runs the next forward section
 * when it has arrived and a slot is free, else the next backward section. `slots` by stage, at
 * least 1 each; more than there are microbatches count as these. From `arena`. DTP_INVALID. */
dtp_status dtp_stage_table_make(int32_t n_stages, int32_t n_microbatches, int32_t n_parts,
                                const int32_t *slots, dtp_arena *arena, dtp_stage_table *out,
                                dtp_err *err) DTP_MUST_CHECK;

/* Independent check: every section once, a backward section behind its forward section and in the
 * same slot, no slot overwritten, the parts of the update last and in order, and no circle of
 * stages that wait for each other. DTP_INVALID naming stage, action and microbatch. */
dtp_status dtp_stage_table_check(const dtp_stage_table *table, dtp_err *err) DTP_MUST_CHECK;

/* "forward", "backward", "update", "update.1": text as printf("%s", ...).text. */
typedef struct dtp_section_text {
    char text[24];
} dtp_section_text;
dtp_section_text dtp_section_name(int32_t section);

#endif
