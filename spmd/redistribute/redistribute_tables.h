/* Least costs of redistributions between all even layouts: the answers of dtp_redistribute_plan for
 * a price that depends on bytes alone, by one search from a target back to every layout.
 *
 * When all layouts of a tensor on the way are even, the price of a step depends on its kind, its
 * mesh dims, the reduction, the element type, the bytes of the shard before it and, on a target
 * without strided collectives, on what it packs. Which steps are allowed depends on the target
 * alone: on the mesh dims that it splits and those that it leaves partial. So the costs from every
 * layout to one are a table of tensors of one type, made by Dijkstra's algorithm on the reversed
 * steps of spmd/redistribute/redistribute_graph.h.
 */
#ifndef DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_TABLES_H
#define DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_TABLES_H

#include "spmd/redistribute/redistribute.h"

/* There is no way: a shard does not become a partial value. */
#define DTP_COST_IMPOSSIBLE INT64_MAX

/* Cost of a step between even layouts, not negative; equal for steps that are alike as said above.
 */
typedef dtp_status (*dtp_even_step_cost)(void *user, const dtp_ttype *type,
                                         const dtp_layout *before, const dtp_step *step,
                                         int64_t *cost, dtp_err *err);

typedef struct dtp_redistribute_tables dtp_redistribute_tables;

/* Borrows mesh, target and user. Not shared between threads. DTP_NOMEM. */
dtp_status dtp_redistribute_tables_create(const dtp_mesh *mesh, const dtp_target *target,
                                          dtp_even_step_cost price, void *user,
                                          dtp_redistribute_tables **out,
                                          dtp_err *err) DTP_MUST_CHECK;
void dtp_redistribute_tables_destroy(dtp_redistribute_tables *c);

/* Sum of the costs of the cheapest steps, or DTP_COST_IMPOSSIBLE. *known is false, and no cost
 * given, when a layout is uneven, when partial values are averages, products or of two ops, and
 * when there are too many layouts for tables. DTP_NOMEM and what `price` returns. */
dtp_status dtp_redistribute_tables_find(dtp_redistribute_tables *c, const dtp_ttype *type,
                                        const dtp_layout *from, const dtp_layout *to, bool *known,
                                        int64_t *cost, dtp_err *err) DTP_MUST_CHECK;

#endif
