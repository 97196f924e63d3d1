/* Operand shapes with which the bench runs each op, written as short texts.
 *
 * A dim is one letter (see the size table in recipes.c); an operand is its dims, with '#' before
 * integers and '?' before bools, "_" for a scalar. "rc c c" is x[rows, cols], gamma[cols],
 * beta[cols]. Behind " | " stand attributes, "key=value" with dims as letters and @letter for the
 * size of a dim; "out=rc" declares the output dims.
 */
#ifndef DTP_EXECUTOR_BENCH_RECIPES_H
#define DTP_EXECUTOR_BENCH_RECIPES_H

#include "core/graph/graph.h"

typedef struct dtp_bench_recipe {
    const char *op;
    char text[112]; /* operands, attributes */
} dtp_bench_recipe;

/* What the bench runs of a memory-bound op: the recipes of its row, which all feed one curve, else
 * the first of a few usual forms (one to four equal operands, floats or bools, over=c, dim=c) that
 * the op accepts. None (*n = 0) for an op that only renames. DTP_INTERNAL when nothing fits: the
 * row needs a recipe. */
dtp_status dtp_bench_recipes_of(const dtp_op_def *op, dtp_bench_recipe out[DTP_MAX_OP_BENCH],
                                int32_t *n, dtp_err *err) DTP_MUST_CHECK;

enum { DTP_BENCH_LETTERS = 26 };
/* Size of each dim, by letter - 'a'. */
typedef struct dtp_bench_sizes {
    int64_t of[DTP_BENCH_LETTERS];
} dtp_bench_sizes;

/* Sizes for about `elems` elements in the largest operand; seq > 0 sets the sequence length of
 * attention. */
dtp_bench_sizes dtp_bench_sizes_for(int64_t elems, int64_t seq);

/* A graph with the one node; its floats are of `dtype`, integer operands lie below `below`. */
dtp_status dtp_bench_recipe_graph(const dtp_bench_recipe *recipe, const dtp_bench_sizes *sizes,
                                  dtp_dtype dtype, int64_t below, dtp_graph **out,
                                  dtp_err *err) DTP_MUST_CHECK;

#endif
