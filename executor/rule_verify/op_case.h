/* Small cases for every op of the table, as text (dtp/op.h), and their graphs.
 */
#ifndef DTP_EXECUTOR_RULE_VERIFY_OP_CASE_H
#define DTP_EXECUTOR_RULE_VERIFY_OP_CASE_H

#include "core/graph/graph.h"

extern const dtp_op_case DTP_OP_CASES[];
extern const int32_t DTP_OP_CASE_COUNT;

/* A case as a graph of one node over INPUT tensors, and the values of its operands. */
typedef struct dtp_case_graph {
    dtp_graph *g;
    dtp_node_id node;
    int32_t n_in;
    double *values[DTP_OP_CASE_MAX_IN]; /* element values, exact in f32 */
    bool is_float[DTP_OP_CASE_MAX_IN];
    char feed[64]; /* what dtp_case_feed has put where; "": nothing */
} dtp_case_graph;

/* The graph alone: operands in0, in1, .. with floats of this dtype; beside 16-bit ones those are
 * f32 that inference wants so, such as statistics. `op`: the definition to use,
 * NULL: the table's row of that name. DTP_INVALID when the text of the case is malformed or
 * inference refuses it; then there is no graph. */
dtp_status dtp_case_build_graph(const dtp_op_case *c, const dtp_op_def *op, dtp_dtype float_dtype,
                                dtp_graph **out, dtp_err *err) DTP_MUST_CHECK;
/* The same with values that depend on the seed alone. Free the graph either way. */
dtp_status dtp_case_build(const dtp_op_case *c, const dtp_op_def *op, dtp_dtype float_dtype,
                          uint64_t seed, dtp_case_graph *out, dtp_err *err) DTP_MUST_CHECK;
void dtp_case_free(dtp_case_graph *cg);

/* Values that are not finite: feed k of so many puts NaN, +inf or -inf into one element of a float
 * operand, or into all of them. NaN first, then the others. */
enum { DTP_CASE_FEED_VALUES = 3 };
int32_t dtp_case_feeds(const dtp_case_graph *cg);
void dtp_case_feed(dtp_case_graph *cg, int32_t k);

/* splitmix64: next number of a sequence; and a value in [0, 1). */
uint64_t dtp_case_random(uint64_t *state);
double dtp_case_uniform(uint64_t *state);

/* Is it a case of this op? */
bool dtp_case_is_of(const dtp_op_case *c, const dtp_op_def *op);

#endif
