/* Plans that take about as long: predictions are not so exact that a step shorter by a share
 * (`slack`) is worth memory. Of candidates within the slack of the fastest one the plan is the one
 * that needs the least memory; of those that need about as little one that the form `torch` says
 * by modules, then the one with the fewest kinds of layouts, then the fastest (decision 93). */
#ifndef DTP_PLANNER_TIES_H
#define DTP_PLANNER_TIES_H

#include "core/plan/plan.h"
#include "cost_models/candidate.h"

/* Placements alone make DTensors of all that a module computes: fewer modules run so, and slower
 * than is predicted. Such a plan counts as if it took so much more time and memory. */
dtp_prediction dtp_judged(const dtp_prediction *of, bool by_placements);

typedef struct dtp_tie {
    dtp_candidate candidate;
    double step_s; /* as judged */
    int64_t peak_bytes;
    bool by_modules;
} dtp_tie;

/* Candidates that were within the slack of the fastest one when they were offered. */
typedef struct dtp_ties {
    int32_t n, capacity;
    dtp_tie *items;
} dtp_ties;

/* Adds a candidate; storage from `arena`. */
dtp_status dtp_ties_add(dtp_ties *ties, const dtp_candidate *c, dtp_arena *arena,
                        dtp_err *err) DTP_MUST_CHECK;
/* Drops what takes longer than most_s, and then what needs clearly more memory than the least. */
void dtp_ties_keep_least(dtp_ties *ties, double most_s);
/* The one to take of those; NULL: there is none. */
const dtp_candidate *dtp_ties_simplest(const dtp_ties *ties);

/* Step and peak of the fastest plan that was found when a plan was taken (dtp_plan.fastest). */
dtp_prediction dtp_plan_fastest_found(const dtp_plan *p);
/* Of two plans, objective time: whether `a` is to be taken in place of `b`, each of which may be
 * within the slack of a faster one (dtp_plan.fastest). */
bool dtp_tied_plan_better(const dtp_plan *a, const dtp_plan *b, double slack);
/* What is said in `kept`, objective time: the fastest of both, where `kept` is within the slack. */
void dtp_tied_plan_note(dtp_plan *kept, const dtp_plan *dropped, double slack);

#endif
