/* Graphs of self-attention layers and their programs under layout rules, for tests of context
 * parallelism. Failures fail the test. */
#ifndef DTP_TESTS_SUPPORT_CONTEXT_CASE_H
#define DTP_TESTS_SUPPORT_CONTEXT_CASE_H

#include "executor/rule_verify/rule_run.h"
#include "spmd/lower/lower.h"

enum { CONTEXT_MAX_TENSORS = 64 };

typedef struct context_model {
    int64_t batch, sequence, heads, groups, features; /* batch, groups 0: no such dim */
    int32_t layers;
    bool ring, causal;
    int64_t chunks; /* zigzag over so many, the input reordered and the result put back; 0: none */
    bool rope;      /* rotate queries and keys */
    bool gradients; /* of sum(w y) by the inputs; else the outputs are y */
    bool one_input; /* q, k and v of the first layer are one tensor */
} context_model;

/* Inputs q, k, v ("x" for one) and, with gradients, w. */
dtp_graph *context_graph(const context_model *m);
/* Lowered under rules like "s:x" on a mesh, class weights ("weights") replicated, and checked. */
dtp_program *context_lower(const dtp_graph *g, const char *mesh, const char *rules);
/* Collectives of one kind in one phase; DTP_N_COLLS: of every kind. */
int32_t context_count(const dtp_program *p, dtp_phase phase, dtp_coll_kind kind);

/* Random values of every INPUT, and what the outputs are on one device in f64. Free both with
 * context_values_free. */
typedef struct context_values {
    double *in[CONTEXT_MAX_TENSORS];
    double *want[DTP_RULE_MAX_OUTPUTS];
} context_values;
void context_values_init(context_values *v, const dtp_graph *g, uint64_t seed);
void context_values_free(context_values *v);
/* Largest relative error of any output of a program of g. */
double context_error(const dtp_program *p, const char *backend, const context_values *v);

#endif
