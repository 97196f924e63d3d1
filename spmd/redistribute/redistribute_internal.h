/* One problem of redistribution, as the search sees it, and the checks that every planner makes. */
#ifndef DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_INTERNAL_H
#define DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_INTERNAL_H

#include "spmd/redistribute/redistribute.h"

/* The generic machine. */
#define DTP_GENERIC_LAUNCH_S 5e-6 /* per collective; an all-reduce counts as two */
#define DTP_GENERIC_HOP_S 10e-6   /* per ceil(log2(ranks)) of a collective */
#define DTP_GENERIC_NET_BPS 10e9  /* of what a rank receives */
#define DTP_GENERIC_MEM_BPS 40e9  /* of local copies: reads and writes */

/* Borrows everything. */
typedef struct dtp_redistribution {
    const dtp_mesh *mesh;
    const dtp_ttype *type;
    const dtp_layout *from, *to;
    dtp_step_price price;
    void *user;
    bool generic; /* the search may use what is known of dtp_step_generic_price: its bound */
    bool single;  /* every step runs over one mesh dim */
    bool direct;  /* single, and every collective leads where `to` says (dtp_layout__is_direct) */
    bool free_splits; /* mesh dims that are replicated in both layouts may be split on the way */
} dtp_redistribution;

/* Cheapest steps of a pair that has a solution; *found false when there are too many layouts to
 * search. DTP_NOMEM. */
dtp_status dtp_redistribute__search(const dtp_redistribution *r, dtp_steps *out, bool *found,
                                    dtp_err *err) DTP_MUST_CHECK;

/* A failure that names both layouts: "<what> (<from>) to (<to>)<why>". */
dtp_status dtp_redistribute__fail(dtp_err *err, dtp_status code, const char *what,
                                  const dtp_layout *from, const dtp_layout *to,
                                  const char *why) DTP_MUST_CHECK;
/* DTP_UNSUPPORTED, naming both layouts, for pairs that have no meaning. */
dtp_status dtp_redistribute__check_pair(const dtp_ttype *type, const dtp_layout *from,
                                        const dtp_layout *to, dtp_err *err) DTP_MUST_CHECK;

#endif
