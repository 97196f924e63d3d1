/* Random small models for the tests of the planners. */
#ifndef DTP_TESTS_SUPPORT_RANDOM_GRAPHS_H
#define DTP_TESTS_SUPPORT_RANDOM_GRAPHS_H

#include "core/graph/graph.h"

/* A 64-bit generator (SplitMix64): the same numbers on every machine. */
uint64_t random_next(uint64_t *state);
/* Uniform in 0..n-1. */
int32_t random_below(uint64_t *state, int32_t n);

/* A model with few dims, made of einsums, elementwise ops with broadcasting, reductions, softmax
 * and relabels that rename or merge; every third one trains. NULL when the text did not parse,
 * which the caller must treat as a failure; the text is left in *text for messages (free it). */
dtp_graph *random_graph(uint64_t seed, char **text);

/* The same with more ops (statistics, norms, scans, dropout), outputs and optimizers, and with
 * sizes that mesh dims of 2 to 5 ranks do not divide; seven of eight train. */
dtp_graph *random_training_graph(uint64_t seed, char **text);

#endif
