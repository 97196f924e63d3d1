/* Small cases for every op of the table, as text, and their graphs.
 *
 * An operand is "dims fill": dims "a=3,b=7" (or "-" for a scalar), fill one of
 *   sym (default)  magnitude in [0.1, 2], random sign: away from 0
 *   pos            in [0.5, 2]
 *   weight         as pos, but not differentiated
 *   distinct       a random permutation of well separated values, other ones for each operand
 *   stat           [.., _stat]: the first sum in [-1, 1], the last in [20, 30]
 *   ids:N, ids64:N i32 / i64 in [0, N)
 *   bool
 * Attributes are "key=value; key=value", lists separated by commas; the dtype "float" stands for
 * the float type that the graph is built with.
 */
#ifndef DTP_EXECUTOR_RULE_VERIFY_OP_CASE_H
#define DTP_EXECUTOR_RULE_VERIFY_OP_CASE_H

#include "core/graph/graph.h"

enum { DTP_OP_CASE_MAX_IN = 6 };

typedef struct dtp_op_case {
    const char *op;
    const char *in[DTP_OP_CASE_MAX_IN];
    const char *out;   /* declared dims of the output; NULL: inferred */
    const char *attrs; /* NULL: defaults */
    bool no_fd;        /* no finite differences: the output is rounded, or too many elements */
} dtp_op_case;

extern const dtp_op_case DTP_OP_CASES[];
extern const int32_t DTP_OP_CASE_COUNT;

/* A case as a graph of one node over INPUT tensors, and the values of its operands. */
typedef struct dtp_case_graph {
    dtp_graph *g;
    dtp_node_id node;
    int32_t n_in;
    double *values[DTP_OP_CASE_MAX_IN]; /* element values, exact in f32 */
    bool is_float[DTP_OP_CASE_MAX_IN];
} dtp_case_graph;

/* The graph alone: operands in0, in1, .. with floats of this dtype. `op`: the definition to use,
 * NULL: the table's row of that name. DTP_INVALID when the text of the case is malformed or
 * inference refuses it; then there is no graph. */
dtp_status dtp_case_build_graph(const dtp_op_case *c, const dtp_op_def *op, dtp_dtype float_dtype,
                                dtp_graph **out, dtp_err *err) DTP_MUST_CHECK;
/* The same with values that depend on the seed alone. Free the graph either way. */
dtp_status dtp_case_build(const dtp_op_case *c, const dtp_op_def *op, dtp_dtype float_dtype,
                          uint64_t seed, dtp_case_graph *out, dtp_err *err) DTP_MUST_CHECK;
void dtp_case_free(dtp_case_graph *cg);

/* splitmix64: next number of a sequence; and a value in [0, 1). */
uint64_t dtp_case_random(uint64_t *state);
double dtp_case_uniform(uint64_t *state);

#endif
