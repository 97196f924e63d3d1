/* One redistribution problem, as the search sees it, the default price, and the checks that every
 * planner makes. */
#ifndef DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_INTERNAL_H
#define DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_INTERNAL_H

#include "spmd/redistribute/redistribute.h"

/* The figures of the default price. */
typedef struct dtp_step_rates {
    double launch_s; /* per collective; an all-reduce counts as two */
    double hop_s;    /* per ceil(log2(ranks)) of a collective */
    double net_Bps;  /* of what a rank receives */
    double mem_Bps;  /* of local copies: reads and writes */
} dtp_step_rates;

extern const dtp_step_rates dtp_redistribute__rates;

/* Price of a step over n ranks whose parts (dtp_step_count) have part_bytes each; `packs` as
 * dtp_step_packs. */
double dtp_redistribute__step_price(const dtp_step_rates *rates, dtp_step_kind kind, int64_t n,
                                    double part_bytes, bool packs);

/* Borrows everything. */
typedef struct dtp_redistribution {
    const dtp_mesh *mesh;
    const dtp_ttype *type;
    const dtp_layout *from, *to;
    dtp_step_price price; /* not NULL */
    void *user;
    const dtp_step_rates *rates; /* not NULL: `price` is the default price with these figures */
    bool single;                 /* every step runs over one mesh dim */
    bool free_splits; /* mesh dims that are replicated in both layouts may be split on the way */
} dtp_redistribution;

/* Cheapest steps of a pair that has a solution; *found false when there are too many layouts to
 * search. DTP_NOMEM. */
dtp_status dtp_redistribute__search(const dtp_redistribution *r, dtp_steps *out, bool *found,
                                    dtp_err *err) DTP_MUST_CHECK;

/* DTP_UNSUPPORTED, naming both layouts, for pairs that have no meaning. */
dtp_status dtp_redistribute__check_pair(const dtp_ttype *type, const dtp_layout *from,
                                        const dtp_layout *to, dtp_err *err) DTP_MUST_CHECK;

/* Appends a step that leads to `after`; DTP_INTERNAL when there are more than DTP_MAX_STEPS. */
dtp_status dtp_redistribute__append(dtp_steps *out, const dtp_step *step,
                                    dtp_err *err) DTP_MUST_CHECK;

/* A layout in one word, 8 bits per mesh dim (kind, tensor dim or reduction, order): equal layouts
 * of one tensor on one mesh have equal keys. */
static inline uint64_t dtp_layout__key(const dtp_layout *layout)
{
    uint64_t key = 0;
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *p = &layout->placement[m];
        uint64_t what = (uint64_t)p->axis | (uint64_t)p->op;
        key |= ((uint64_t)p->kind | what << 2 | (uint64_t)p->order << 5) << (8 * m);
    }
    return key;
}

/* The inverse, for a tensor of `rank` dims on n_mesh mesh dims. */
static inline dtp_layout dtp_layout__of_key(uint64_t key, int32_t rank, int32_t n_mesh)
{
    dtp_layout layout = {.rank = (int8_t)rank, .n_mesh = (int8_t)n_mesh};
    for (int32_t m = 0; m < n_mesh; m++) {
        dtp_placement *p = &layout.placement[m];
        p->kind = (int8_t)(key >> (8 * m) & 3U);
        int8_t what = (int8_t)(key >> (8 * m + 2) & 7U);
        p->axis = p->kind == DTP_SHARD ? what : 0;
        p->op = p->kind == DTP_PARTIAL ? what : 0;
        p->order = (int8_t)(key >> (8 * m + 5) & 7U);
    }
    return layout;
}

#endif
