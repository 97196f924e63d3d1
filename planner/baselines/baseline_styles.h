/* The styles (docs/styles.md) that a named baseline is on a mesh. */
#ifndef DTP_PLANNER_BASELINE_STYLES_H
#define DTP_PLANNER_BASELINE_STYLES_H

#include "core/graph/graph.h"

typedef struct dtp_baseline_recipe {
    const char *name; /* NULL ends the table */
    int32_t zero;     /* stage: 0 = none, 1, 2, 3 */
    bool data;        /* inputs split */
    bool features;    /* Megatron's columns and rows; together with data on the last mesh dim */
    bool sequence;    /* ... and the sequence split outside of them */
    bool experts;     /* experts split over the last mesh dims */
} dtp_baseline_recipe;

const dtp_baseline_recipe *dtp_baseline__recipes(void);

/* Whether a recipe is worth a mention: combinations need two mesh dims, experts need experts. */
bool dtp_baseline__meant_for(const dtp_baseline_recipe *r, const dtp_graph *g,
                             const dtp_mesh *mesh);

/* The styles of a recipe, storage from `arena`; *why is NULL, or says in the arena why the recipe
 * does not apply. */
dtp_status dtp_baseline__styles(const dtp_baseline_recipe *r, const dtp_graph *g,
                                const dtp_mesh *mesh, dtp_arena *arena, int32_t *n,
                                const char ***styles, const char **why,
                                dtp_err *err) DTP_MUST_CHECK;

#endif
