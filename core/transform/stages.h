/* Pipeline stages: the blocks of a model lie on groups of ranks, one behind the other, and
 * microbatches pass through them. The graph is not cut: every node gets the stages on which it
 * runs, every tensor the stages that hold it, and what crosses between two stages is listed. Each
 * stage is then lowered to a program of its own (spmd/lower/lower.h).
 *
 * Forward: the nodes of an instance of a block lie on its stage; a node in no block on the latest
 * stage of its operands. What depends on inputs and parameters alone lies on the first stage that
 * reads it when it has a gradient, else (masks, labels, casts of parameters) on every stage that
 * reads it. Recomputed nodes lie where the nodes that they repeat do, backward nodes where the
 * nodes that they differentiate do, or before, where a gradient comes from there. Updates lie at
 * the home of their parameter: the first stage that reads it. Other stages that read it hold a
 * copy, which gets the new value after the update.
 */
#ifndef DTP_CORE_TRANSFORM_STAGES_H
#define DTP_CORE_TRANSFORM_STAGES_H

#include "core/graph/graph.h"

enum { DTP_MAX_STAGES = 64 };

/* What a plan says of stages. */
typedef struct dtp_stage_choice {
    int32_t n;                  /* 0 and 1: none */
    const char *const *borders; /* the first instance of every stage, "layer:21" */
    int32_t slots; /* microbatches in flight on the last stage, every stage before it has one more;
                      1 is 1F1B, as many as there are microbatches GPipe */
} dtp_stage_choice;

/* Reads stages, "4" (about equal work) or "layer:0,21,41,61" (the first instance of each), and
 * slots, "1f1b", "gpipe" or "2", NULL: 1f1b. `gpipe` becomes INT32_MAX. Texts of the result are
 * from `arena`. DTP_INVALID. */
dtp_status dtp_stages_parse(const char *text, const char *slots, const dtp_graph *model,
                            dtp_arena *arena, dtp_stage_choice *out, dtp_err *err) DTP_MUST_CHECK;

/* Parts of a step on a stage. The update is in several parts where a part needs what another stage
 * sends: part k is section DTP_SECTION_UPDATE + k. */
enum { DTP_SECTION_FORWARD, DTP_SECTION_BACKWARD, DTP_SECTION_UPDATE };

/* A tensor that goes to another stage. */
typedef struct dtp_transfer {
    dtp_tensor_id tensor;
    dtp_tensor_id into; /* PARAM, updated with it at home, whose copy it replaces; -1: it arrives as
                           itself */
    int32_t from, to;
    int32_t section; /* behind which it is sent; */
    bool once;       /* of BACKWARD: behind that of the last microbatch alone */
} dtp_transfer;

typedef struct dtp_stages {
    int32_t n;
    int32_t slots;   /* dtp_stage_choice.slots */
    uint64_t *on;    /* by node: bit s: it runs on stage s */
    uint64_t *holds; /* by tensor: stages that make it, or have it as input, parameter or state */
    int32_t *home;   /* by tensor: the first of these */
    int32_t *part;   /* by node: of the update; 0 for others */
    int32_t n_parts; /* of the update, at least 1 */
    int32_t n_transfers, cap_transfers;
    dtp_transfer *transfers; /* by reader, in the order of the nodes */
} dtp_stages;

/* Where everything lies in a training graph with microbatches, or, without transfers and parts, in
 * one that will get them. From `arena`. DTP_INVALID when the borders are not of the graph, or it is
 * not trained; DTP_UNSUPPORTED naming a node that reads what a later stage makes. */
dtp_status dtp_stages_find(const dtp_graph *g, const dtp_stage_choice *choice, dtp_arena *arena,
                           dtp_stages *out, dtp_err *err) DTP_MUST_CHECK;

/* The stage of every unit, an instance of a block, in the order of their first nodes: for
 * dtp_stages_find. *unit (by node, -1: in no block) and *stage (by unit) from `arena`. */
dtp_status dtp_stage_units(const dtp_graph *g, const dtp_stage_choice *choice, dtp_arena *arena,
                           int32_t **unit, int32_t **stage, dtp_err *err) DTP_MUST_CHECK;

/* A graph without microbatches in which the gradient of a parameter that several stages read is a
 * sum made by the update, of one term per stage: each is then added up on its stage. It borrows
 * g->ops alone. NULL in *out where there is no such parameter. Fails as dtp_stages_find. */
dtp_status dtp_graph_with_stage_terms(const dtp_graph *g, const dtp_stage_choice *choice,
                                      dtp_graph **out, dtp_err *err) DTP_MUST_CHECK;

/* The mesh of all ranks: stage * mesh, the stages its outermost dim "stage"; with 1 stage the mesh
 * itself. DTP_INVALID where it has no room for a dim or one of that name. */
dtp_status dtp_stages_mesh(const dtp_mesh *mesh, int32_t n_stages, dtp_mesh *out,
                           dtp_err *err) DTP_MUST_CHECK;

/* Stages of a graph, 1 = none. */
static inline int32_t dtp_graph_stages(const dtp_graph *g)
{
    return g->stages != NULL ? g->stages->n : 1;
}
/* Slots of a stage of a graph that has stages. */
int32_t dtp_stage_slots(const dtp_graph *g, int32_t stage);

static inline bool dtp_on_stage(uint64_t stages, int32_t s)
{
    return (stages >> s & 1) != 0;
}

#endif
