/* The time of a collective from the constants of the network levels that its group crosses
 * (docs/cost-model.md, "Collectives"). */
#ifndef DTP_COST_MODELS_COLL_H
#define DTP_COST_MODELS_COLL_H

#include "cost_models/machine/machine.h"

/* The groups over one set of mesh dims, as they lie on the network levels. */
typedef struct dtp_group_shape {
    int32_t ranks;                   /* members of a group */
    int32_t outer;                   /* outermost level that a group crosses, -1 = none */
    int32_t members[DTP_MAX_LEVELS]; /* blocks of the level inside that a group has in one block */
    double
        sharing[DTP_MAX_LEVELS]; /* groups that use one member link of the level at the same time */
    bool adapters; /* every device has an adapter of its own, not the host one for all of them */
} dtp_group_shape;

/* What a collective takes before its bytes move, and while they do. */
typedef struct dtp_coll_time {
    double start_s, transfer_s;
} dtp_coll_time;

/* One collective of a group. */
typedef struct dtp_coll_call {
    dtp_coll_kind kind;
    double bytes;  /* full buffer (dtp_coll_full_bytes) */
    int32_t shift; /* of a permute: to how many members on */
} dtp_coll_call;

/* The constants by which a level prices a kind: its own, else those of the kind that moves bytes
 * alike, else those that latency_s and bw_Bps alone make. */
dtp_coll_rate dtp_level_rate(const dtp_level *level, dtp_coll_kind kind);
/* Gives a level the constants of another; ramps follow the bandwidth. What a permute reaches is a
 * rate of one connection, so on slower adapters it is a larger share of theirs. */
void dtp_level_borrow(dtp_level *to, const dtp_level *from);
/* Nothing for a group that crosses no level. */
dtp_coll_time dtp_coll_time_of(const dtp_level *levels, const dtp_group_shape *g,
                               const dtp_coll_call *call);

/* A measured collective of one whole group: blocks of the machine, from its first device on. */
typedef struct dtp_coll_sample {
    dtp_group_shape group;
    dtp_coll_call call;
    double time_s; /* positive */
} dtp_coll_sample;

/* The group of `hosts` blocks of level `level` with `ranks` members in all, which fill the blocks
 * inside; hosts 1: a group that lies in one block of the level. DTP_INVALID: the machine has no
 * such group. */
dtp_status dtp_group_filling(const dtp_machine *m, int32_t level, int32_t ranks, int32_t hosts,
                             dtp_group_shape *out, dtp_err *err) DTP_MUST_CHECK;
/* Fits the constants of every kind for which samples have `level` as their outermost: least mean of
 * |log(price / time)|, by coordinates. A reduce-scatter whose samples end long before those of the
 * all-gather is left to the all-gather's constants, to which its samples count then. `*error`
 * becomes the mean of |price / time - 1| over these samples, 0 without any. */
dtp_status dtp_level_fit(dtp_level *levels, int32_t level, int32_t n,
                         const dtp_coll_sample *samples, double *error,
                         dtp_err *err) DTP_MUST_CHECK;

#endif
