/* What the parts of elimination.h share: tables, walks through them, dropping of strategies. */
#ifndef DTP_TESTS_SOLVER_ELIMINATION_INTERNAL_H
#define DTP_TESTS_SOLVER_ELIMINATION_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/solver/elimination.h"

enum {
    ELIMINATION_MAX_NODES = 24, /* of a table */
    ELIMINATION_MAX_TABLES = 60 /* with one variable */
};

/* Goes through the cells of variables in row-major order and keeps the places in up to
 * ELIMINATION_MAX_TABLES other tables over some of them. */
typedef struct elimination_walk {
    int32_t n, n_tables, size[ELIMINATION_MAX_NODES], digit[ELIMINATION_MAX_NODES];
    int64_t step[ELIMINATION_MAX_TABLES][ELIMINATION_MAX_NODES], at[ELIMINATION_MAX_TABLES];
} elimination_walk;

/* Zeroed memory; fails the test when there is none. */
void *elimination__make(size_t n, size_t size);
/* a + b, saturating at ELIMINATION_FORBIDDEN. */
int64_t elimination__add(int64_t a, int64_t b);

void elimination__walk_start(elimination_walk *w, const elimination *e, int32_t n,
                             const int32_t *variables);
/* variables: those of the walk; unit: cells of one entry of t. */
void elimination__walk_add(elimination_walk *w, const elimination *e, const int32_t *variables,
                           const elimination_table *t, int64_t unit);
void elimination__walk_next(elimination_walk *w);

/* How many combinations of strategies variables have; not exact above 2^40. */
int64_t elimination__cells(const elimination *e, int32_t n, const int32_t *variables);
/* Index of a variable in a table, -1: not there. */
int32_t elimination__find(const elimination_table *t, int32_t variable);
void elimination__table_free(elimination_table *t);
/* Takes t over: a table of its own, or added to the one over the same variables. */
void elimination__put(elimination *e, elimination_table t);
/* The table with a variable as the last one; variables: the others. */
elimination_table elimination__variable_last(const elimination *e, const elimination_table *t,
                                             int32_t variable);
/* Entries keep[0..n-1] of a variable stay in a table that has `unit` cells per entry of its
 * variables. */
void elimination__keep_entries(const elimination *e, elimination_table *t, int32_t variable,
                               int32_t n, const int32_t *keep, int64_t unit);

/* Whether the strategies that a variable has left differ in usage. */
void elimination__find_loud(elimination *e, int32_t variable);
/* Drops strategies until none can be dropped. */
void elimination__simplify(elimination *e);

#endif
