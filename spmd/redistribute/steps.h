/* Steps of a redistribution: one collective or one local operation each. */
#ifndef DTP_SPMD_REDISTRIBUTE_STEPS_H
#define DTP_SPMD_REDISTRIBUTE_STEPS_H

#include "core/base/strbuf.h"
#include "spmd/program/program.h"

typedef enum dtp_step_kind {
    DTP_STEP_ALL_REDUCE,
    DTP_STEP_REDUCE_SCATTER,
    DTP_STEP_ALL_GATHER,
    DTP_STEP_ALL_TO_ALL,
    DTP_STEP_SLICE,
    DTP_STEP_SCALE,
    DTP_STEP_KEEP_FIRST
} dtp_step_kind;

typedef struct dtp_step {
    dtp_step_kind kind;
    dtp_mesh_set set; /* mesh dims it runs over */
    int32_t axis; /* gather, slice, scatter: tensor dim; all-to-all: the dim that becomes whole */
    int32_t to_axis; /* all-to-all: the dim that becomes split */
    dtp_reduce_op op;
    double factor;    /* scale */
    dtp_layout after; /* layout when the step is done */
} dtp_step;

enum { DTP_MAX_STEPS = 24 };

typedef struct dtp_steps {
    int32_t n;
    dtp_step steps[DTP_MAX_STEPS];
} dtp_steps;

enum { DTP_PACKS_IN = 1, DTP_PACKS_OUT = 2 };
/* Whether the collective of a step packs its input into a staging buffer, and unpacks its output
 * from one: both when some shard is uneven; on a target without strided collectives those whose
 * parts are strided. 0 for local steps and all-reduces. */
uint32_t dtp_step_packs(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *before,
                        const dtp_step *step, const dtp_target *target);
/* The collective that a step runs; false for local steps. */
bool dtp_step_collective(dtp_step_kind kind, dtp_coll_kind *out);
/* Whether data is sent: a collective over more than one rank. */
bool dtp_step_sends(const dtp_mesh *mesh, const dtp_step *step);
/* Elements of one part of the collective: `count` of spmd/program/program.h. */
int64_t dtp_step_count(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *before,
                       const dtp_step *step);
/* The collective of a step that is none of the local ones, between the buffers that
 * dtp_step_packs says. */
dtp_coll dtp_step_coll(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *before,
                       const dtp_step *step, const dtp_target *target);

/* Price of one step, in seconds: from `before` to step->after. */
typedef double (*dtp_step_price)(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                                 const dtp_layout *before, const dtp_step *step);

/* The price on the generic machine: 5 us per collective (an all-reduce counts as two), 10 us per
 * doubling of its group, 10 GB/s for what a rank receives, 40 GB/s for local copies. Its
 * collectives take strided parts. `user` is ignored. */
double dtp_step_generic_price(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                              const dtp_layout *before, const dtp_step *step);

/* "all_reduce", "slice", ... */
const char *dtp_step_name(dtp_step_kind kind);
/* Appends "S(0)[1]S(0)[0]RP(sum)", one entry per mesh dim; the number in brackets is the depth
 * among the splits of a tensor dim, written when there are several. */
void dtp_layout_trace(const dtp_layout *layout, dtp_strbuf *out);
/* Appends the layouts on the way, "S(0)[0]S(0)[1]→S(0)R→RR" (the arrow is UTF-8). */
void dtp_steps_trace(const dtp_layout *from, const dtp_steps *steps, dtp_strbuf *out);

#endif
