/* Redistribution: layout A -> layout B of one tensor as a list of steps. */
#ifndef DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_H
#define DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_H

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

/* Whether the collective of a step needs its input packed (output unpacked) through a staging
 * buffer: some shard is uneven. False for local steps. */
bool dtp_step_packs(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *before,
                    const dtp_step *step);
bool dtp_step_unpacks(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *before,
                      const dtp_step *step);
/* The collective that a step runs; false for local steps. */
bool dtp_step_collective(dtp_step_kind kind, dtp_coll_kind *out);
/* Elements of one part of the collective: `count` of spmd/program/program.h. */
int64_t dtp_step_count(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *before,
                       const dtp_step *step);

/* The collective of a step that is none of the local ones. */
dtp_coll dtp_step_coll(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *before,
                       const dtp_step *step);

/* Price of one step for the search, in seconds: from `before` to step->after. */
typedef double (*dtp_step_price)(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                                 const dtp_layout *before, const dtp_step *step);

/* The price that is meant by NULL: 5 us per collective (an all-reduce counts as two), 10 us per
 * doubling of its group, 10 GB/s for what a rank receives, 40 GB/s for local copies. `user` is
 * ignored. */
double dtp_step_default_price(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                              const dtp_layout *before, const dtp_step *step);

/* Cheapest list of steps. `price` NULL: bytes moved per rank plus a constant per collective.
 * DTP_UNSUPPORTED for shard -> partial and for one partial op to another. */
dtp_status dtp_redistribute_plan(const dtp_mesh *mesh, const dtp_ttype *type,
                                 const dtp_layout *from, const dtp_layout *to, dtp_step_price price,
                                 void *user, dtp_steps *out, dtp_err *err) DTP_MUST_CHECK;

/* Who decides on the steps: the search above, a cache before it, or another system's rules
 * (spmd/redistribute/redistribute_cache.h, interop/redistribute_torch.h). Borrowed by programs. */
typedef struct dtp_redistributor {
    dtp_status (*plan)(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                       const dtp_layout *from, const dtp_layout *to, dtp_steps *out, dtp_err *err);
    void *user;
} dtp_redistributor;

/* What r decides; r NULL: dtp_redistribute_plan with the default price. */
dtp_status dtp_redistribute_by(const dtp_redistributor *r, const dtp_mesh *mesh,
                               const dtp_ttype *type, const dtp_layout *from, const dtp_layout *to,
                               dtp_steps *out, dtp_err *err) DTP_MUST_CHECK;

/* Appends the instructions of the steps; *value is replaced by the value in the final layout. */
dtp_status dtp_redistribute_emit(dtp_program *p, const dtp_steps *steps, dtp_node_id node,
                                 dtp_phase phase, dtp_value_id *value, dtp_err *err) DTP_MUST_CHECK;

#endif
