/* What the tensors of a graph are there for. */
#ifndef DTP_CORE_GRAPH_USES_H
#define DTP_CORE_GRAPH_USES_H

#include "core/graph/graph.h"

/* Readers of tensor t: node[first[t]] .. node[first[t + 1] - 1], in order, each once. */
typedef struct dtp_readers {
    int32_t *first; /* by tensor, and one more */
    dtp_node_id *node;
} dtp_readers;

/* Storage from `arena`. */
dtp_status dtp_readers_find(const dtp_graph *g, dtp_arena *arena, dtp_readers *out,
                            dtp_err *err) DTP_MUST_CHECK;

/* What a tensor is in a training step, for those who say what memory is needed for. */
typedef enum dtp_memory_use {
    DTP_USE_PARAMETER,
    DTP_USE_STATE,
    DTP_USE_INPUT,
    DTP_USE_ACTIVATION, /* of the forward pass, computed again or not */
    DTP_USE_GRADIENT,   /* and all else behind the forward pass */
    DTP_N_MEMORY_USES
} dtp_memory_use;

extern const char *const dtp_memory_use_names[DTP_N_MEMORY_USES]; /* "parameters", ... */
dtp_memory_use dtp_memory_use_of(const dtp_graph *g, dtp_tensor_id t);

/* Marks, by tensor, gradients of parameters, also before they are cast or added up. */
void dtp_graph_mark_gradients(const dtp_graph *g, bool *gradient);

/* By tensor. */
typedef struct dtp_uses {
    bool *survives; /* the step: it is an output, the loss or what a step reports */
    bool *replaces; /* another tensor at the end of the step */
    bool *needed;   /* one of these, or some node reads it */
} dtp_uses;

/* Whether a node only renames a parameter or state, or what others made of one by renaming it, and
 * its result must survive the step, in which that is overwritten: the result is a copy. `survives`:
 * by tensor. */
bool dtp_node_copies_view(const dtp_graph *g, const bool *survives, dtp_node_id node);

/* Storage from `arena`. */
dtp_status dtp_uses_find(const dtp_graph *g, dtp_arena *arena, dtp_uses *out,
                         dtp_err *err) DTP_MUST_CHECK;

#endif
