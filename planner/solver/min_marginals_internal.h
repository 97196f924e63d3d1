/* One run over the strategies of a node (marginals_run.c), of which marginals.c makes two: without
 * the usage limit and with it. */
#ifndef DTP_PLANNER_SOLVER_MIN_MARGINALS_INTERNAL_H
#define DTP_PLANNER_SOLVER_MIN_MARGINALS_INTERNAL_H

#include "planner/solver/around.h"
#include "planner/solver/dual/dual.h"
#include "planner/solver/min_marginals.h"

enum {
    SEL_MARGINALS_ROW_LOOKS = 4,        /* what a memory row costs, in looks at entries */
    SEL_MARGINALS_PASS_LOOKS = 8,       /* what presolve and exact bounds cost, in rounds */
    SEL_MARGINALS_TABLE_LOOKS = 150000, /* most of an elimination */
    SEL_MARGINALS_TABLE_COST = 2        /* of one of them, in looks at entries */
};

typedef struct sel_marginals {
    const dtp_select_problem *p;
    int32_t node, k;               /* k: its strategies */
    dtp_select_marginal *out;      /* by strategy */
    bool *open;                    /* by strategy: more is to be said about it */
    sel_around around;             /* solutions, to which better ones are added */
    int64_t *effort;               /* left */
    int64_t *top;                  /* by strategy */
    int64_t most;                  /* the largest */
    int64_t *bound;                /* scratch, by strategy of the work */
    int32_t *origin;               /* by strategy of the work: of the problem */
    int32_t *choice, *full, *best; /* scratch, by node */
    sel_work *w;
    sel_work *aside; /* w before strategies were set aside; NULL: none were */
    int32_t depth;   /* how much is tried with one strategy: as often as this, doubled */
    bool *waits;     /* by strategy: set aside */
} sel_marginals;

/* Borrows p, out, effort and start. Everything is open. */
dtp_status sel_marginals_create(const dtp_select_problem *p, const dtp_marginal_options *options,
                                int64_t *effort, dtp_select_marginal *out, sel_marginals *m,
                                dtp_err *err) DTP_MUST_CHECK;
void sel_marginals_destroy(sel_marginals *m);

/* Raises bounds and lowers costs of what is open, as far as the effort lasts. */
dtp_status sel_marginals_run(sel_marginals *m, dtp_err *err) DTP_MUST_CHECK;

/* Solves with strategy s on its own, to the end. */
dtp_status sel_marginals_finish(sel_marginals *m, int32_t s, dtp_err *err) DTP_MUST_CHECK;

/* ---- for the two files ---- */

/* What a round of ascent in a work costs, in looks at entries. */
int64_t sel_marginals__looks(sel_work *w);
/* m->origin becomes that of the work. */
void sel_marginals__find_origins(sel_marginals *m, const sel_work *w);
/* Leaves w presolved, with what the multipliers exclude taken out. */
dtp_status sel_marginals__apply(const sel_dual *d, sel_work *w, dtp_err *err) DTP_MUST_CHECK;
/* Those strategies of w, which is m->w or m->aside, that are open and wait, or do not. */
dtp_status sel_marginals__one_by_one(sel_marginals *m, sel_work *w, bool waiting,
                                     dtp_err *err) DTP_MUST_CHECK;

#endif
