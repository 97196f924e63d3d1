/* In which order the stages of a pipeline run their sections: a table of actions per stage.
 *
 * A microbatch passes forward through all chunks and then backward; chunk c lies on stage c mod S.
 * Between its two sections in a chunk the stage keeps what the backward section reads (the stash)
 * in a slot; a stage with k slots has at most k microbatches of its chunks in flight. The table
 * follows from the numbers of stages, chunks, microbatches and slots alone: with one chunk a stage
 * M slots everywhere are GPipe, S - s on stage s 1F1B, with more chunks it is the interleaved
 * schedule (Narayanan et al. 2021, arXiv:2104.04473).
 *
 * What a section makes for another chunk is sent behind it, on a queue of its own for each pair of
 * chunks and direction, in the order of the sections; the sender goes on. What arrives forward lies
 * in the slot of its microbatch, so it is sent when that slot is free.
 */
#ifndef DTP_SPMD_PROGRAM_STAGE_TABLE_H
#define DTP_SPMD_PROGRAM_STAGE_TABLE_H

#include "core/base/arena.h"
#include "core/transform/stages.h"

typedef struct dtp_stage_action {
    int32_t section;    /* DTP_SECTION_FORWARD, ... */
    int32_t chunk;      /* on this stage */
    int32_t microbatch; /* of the update: the last one */
    int32_t slot;       /* of the update: -1 */
} dtp_stage_action;

typedef struct dtp_stage_table {
    int32_t n_stages, n_chunks; /* chunks of all stages */
    int32_t n_microbatches;
    int32_t n_parts;            /* of the update */
    int32_t *slots;             /* by stage */
    int32_t *n_actions;         /* by stage: 2 n_microbatches + n_parts for each of its chunks */
    dtp_stage_action **actions; /* by stage */
} dtp_stage_table;

/* A list scheduler in which every section takes one time: a stage runs the next forward section
 * when it has arrived and a slot is free, else the next backward section. Forward sections come in
 * the order of groups of as many microbatches as there are stages, in a group by chunk; backward
 * sections the same, the last chunk first. `size` says stages, chunks, microbatches, parts of the
 * update and slots by stage, at least 1 each, and with v chunks a stage enough for (v - 1) groups
 * and 1 more; more than there are microbatches of its chunks count as these. From `arena`.
 * DTP_INVALID. */
dtp_status dtp_stage_table_make(const dtp_stage_table *size, dtp_arena *arena, dtp_stage_table *out,
                                dtp_err *err) DTP_MUST_CHECK;
/* That of a graph with stages. */
dtp_status dtp_stage_table_of(const dtp_graph *g, dtp_arena *arena, dtp_stage_table *out,
                              dtp_err *err) DTP_MUST_CHECK;

/* Independent check: every section of every chunk once, a backward section behind its forward
 * section and in the same slot, no slot overwritten, the parts of the update last and in order, and
 * no circle of stages that wait for each other. DTP_INVALID naming stage, action, chunk and
 * microbatch. */
dtp_status dtp_stage_table_check(const dtp_stage_table *table, dtp_err *err) DTP_MUST_CHECK;

/* "forward", "backward", "update", "update.1": text as printf("%s", ...).text. */
typedef struct dtp_section_text {
    char text[24];
} dtp_section_text;
dtp_section_text dtp_section_name(int32_t section);

#endif
