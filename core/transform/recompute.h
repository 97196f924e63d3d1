/* Recomputation: the backward pass of a block computes the block's intermediate results again from
 * what goes into the block, so that they need not be kept from the forward pass.
 *
 * For every chosen instance of a block: results that its backward nodes read, and that nothing
 * outside the instance reads, come from copies of their forward nodes ("remat.<node>"), which stand
 * before the first backward node of the instance that reads one. What a copy reads is the result of
 * a copy, or comes from outside the instance (carried values, parameters, inputs), or is a result
 * that goes out of the instance and is kept for its readers. Forward nodes whose results no
 * backward node needs have no copy. Random ops keep their stream: copies give the same bits.
 *
 * A list of globs (core/base/glob.h) names nodes whose results are kept all the same (selective
 * recomputation): "layer keep=**.attn$,**.mlp.up.mm". Where several items are of an instance, each
 * keeps what it names.
 */
#ifndef DTP_CORE_TRANSFORM_RECOMPUTE_H
#define DTP_CORE_TRANSFORM_RECOMPUTE_H

#include "core/graph/graph.h"

/* What is recomputed: blocks by their name in the model ("layer": every instance of every repeat of
 * it) or some of their instances ("layer:0-3", "layer:7"); with " keep=GLOB,..." but for the
 * results of these nodes. */
typedef struct dtp_remat {
    int32_t n;
    const char *const *items;
} dtp_remat;

/* Reads "none", "all" or a list of items and checks them; "all" becomes the list of all blocks,
 * each with those globs of "all keep=..." that match in it. A comma ends an item, ';' one that
 * keeps. Copies are from `arena`. DTP_INVALID as dtp_remat_check, and on an item given twice. */
dtp_status dtp_remat_parse(const char *text, const dtp_graph *g, dtp_arena *arena, dtp_remat *out,
                           dtp_err *err) DTP_MUST_CHECK;
/* DTP_INVALID naming an item whose block or instances are not in the graph, or a glob that matches
 * no node of these and the names near to it; DTP_RANGE when there are more than 256. */
dtp_status dtp_remat_check(const dtp_remat *remat, const dtp_graph *g, dtp_err *err) DTP_MUST_CHECK;
/* What stands behind an item in a list: "," or ";". */
const char *dtp_remat_separator(const char *item);

/* What a planner may try: nothing, each block alone, all of several blocks. From `arena`. */
dtp_status dtp_remat_variants(const dtp_graph *g, dtp_arena *arena, int32_t *n, dtp_remat **out,
                              dtp_err *err) DTP_MUST_CHECK;

/* By tensor: whether its node has a copy that makes it. From `arena`. Fails as dtp_remat_check. */
dtp_status dtp_remat_again(const dtp_graph *g, const dtp_remat *remat, dtp_arena *arena,
                           const bool **again, dtp_err *err) DTP_MUST_CHECK;

/* A graph like g in which these blocks are recomputed; it borrows g->ops alone. */
dtp_status dtp_graph_rematerialize(const dtp_graph *g, const dtp_remat *remat, dtp_graph **out,
                                   dtp_err *err) DTP_MUST_CHECK;

#endif
