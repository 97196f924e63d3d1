/* auto_mtf's schedulers and live sets.
 * Reference: mesh_tensorflow/auto_mtf/scheduler.py, graph_interface.py. */
#ifndef DTP_PLANNER_MTF_MTF_SCHEDULE_H
#define DTP_PLANNER_MTF_MTF_SCHEDULE_H

#include "planner/mtf/mtf_graph.h"

typedef enum dtp_mtf_scheduler { DTP_MTF_NAIVE, DTP_MTF_LIST } dtp_mtf_scheduler;

/* order (room for g->n_ops) receives operation indices, freed (may be NULL, same room) the bytes
 * that LIST credited each operation with when it was chosen, by position; 0 under NAIVE. */
dtp_status dtp_mtf_schedule(const dtp_mtf_graph *g, dtp_mtf_scheduler alg, int32_t *order,
                            int64_t *freed, dtp_err *err) DTP_MUST_CHECK;

/* The tensors in memory while each scheduled operation runs, ascending by id. */
typedef struct dtp_mtf_live {
    int32_t n_steps;
    int32_t *first; /* n_steps + 1 offsets into tensors */
    int32_t *tensors;
} dtp_mtf_live;

/* Allocated in `arena`. */
dtp_status dtp_mtf_live_sets(const dtp_mtf_graph *g, const int32_t *order, dtp_arena *arena,
                             dtp_mtf_live *out, dtp_err *err) DTP_MUST_CHECK;

#endif
