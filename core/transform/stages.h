/* Pipeline stages: the blocks of a model lie in chunks on groups of ranks, one behind the other,
 * and microbatches pass through them. The graph is not cut: every node gets the chunks in which it
 * runs, every tensor the chunks that hold it, and what crosses between two chunks is listed. Each
 * chunk is then lowered to a program of its own (spmd/lower/lower.h).
 *
 * Forward: the nodes of an instance of a block lie in its chunk; a node in no block in the latest
 * chunk of its operands. What depends on inputs and parameters alone lies in the first chunk that
 * reads it when it has a gradient, else (masks, labels, casts of parameters) in every chunk that
 * reads it. Recomputed nodes lie where the nodes that they repeat do, backward nodes where the
 * nodes that they differentiate do, or before, where a gradient comes from there. Updates lie at
 * the home of their parameter: the first chunk that reads it. Other chunks that read it hold a
 * copy, which gets the new value after the update.
 */
#ifndef DTP_CORE_TRANSFORM_STAGES_H
#define DTP_CORE_TRANSFORM_STAGES_H

#include "core/graph/graph.h"

enum { DTP_MAX_STAGES = 64 };

/* What a plan says of stages. The layers are cut into chunks, and chunk c lies on stage c mod n: a
 * stage with one chunk is what its name says, with more of them microbatches pass through the
 * stages several times (interleaved). */
typedef struct dtp_stage_choice {
    int32_t n;                  /* 0 and 1: none */
    int32_t chunks;             /* of every stage; 0 and 1: one */
    const char *const *borders; /* the first instance of every chunk, "layer:21" */
    int32_t slots; /* in flight on the last stage, dtp_stage_slots; 1 is 1F1B, as many as there are
                      microbatches GPipe */
} dtp_stage_choice;

/* Chunks of all stages. */
static inline int32_t dtp_stage_choice_chunks(const dtp_stage_choice *choice)
{
    return choice->chunks > 1 ? choice->n * choice->chunks : choice->n;
}

/* Reads stages, "4" (about equal work), "4x2" (of two chunks each) or "layer:0,21,41,61" (the first
 * instance of each chunk, with "x2" behind them of two stages), and slots, "1f1b", "gpipe" or "2",
 * NULL: 1f1b. `gpipe` becomes INT32_MAX. Texts of the result are from `arena`. DTP_INVALID. */
dtp_status dtp_stages_parse(const char *text, const char *slots, const dtp_graph *model,
                            dtp_arena *arena, dtp_stage_choice *out, dtp_err *err) DTP_MUST_CHECK;
/* As dtp_stages_parse reads it, "4" or "4x2". */
typedef struct dtp_stages_text {
    char text[24];
} dtp_stages_text;
dtp_stages_text dtp_stages_print(const dtp_stage_choice *choice);

/* Parts of a step on a stage. The update is in several parts where a part needs what another stage
 * sends: part k is section DTP_SECTION_UPDATE + k. */
enum { DTP_SECTION_FORWARD, DTP_SECTION_BACKWARD, DTP_SECTION_UPDATE };

/* A tensor that goes to another chunk. */
typedef struct dtp_transfer {
    dtp_tensor_id tensor;
    dtp_tensor_id into; /* PARAM, updated with it at home, whose copy it replaces; -1: it arrives as
                           itself */
    int32_t from, to;   /* chunks */
    int32_t section;    /* behind which it is sent; */
    bool once;          /* of BACKWARD: behind that of the last microbatch alone */
} dtp_transfer;

typedef struct dtp_stages {
    int32_t n, n_chunks; /* chunks of all stages; where each has one, a chunk is a stage */
    int32_t slots;       /* dtp_stage_choice.slots */
    uint64_t *on;        /* by node: bit c: it runs in chunk c */
    uint64_t *holds; /* by tensor: chunks that make it, or have it as input, parameter or state */
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

/* The chunk of every unit, an instance of a block, in the order of their first nodes: for
 * dtp_stages_find. *unit (by node, -1: in no block) and *chunk (by unit) from `arena`. */
dtp_status dtp_stage_units(const dtp_graph *g, const dtp_stage_choice *choice, dtp_arena *arena,
                           int32_t **unit, int32_t **chunk, dtp_err *err) DTP_MUST_CHECK;

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
/* Programs of a graph, one for each chunk. */
static inline int32_t dtp_graph_chunks(const dtp_graph *g)
{
    return g->stages != NULL ? g->stages->n_chunks : 1;
}
/* Where a chunk lies. */
static inline int32_t dtp_chunk_stage(const dtp_graph *g, int32_t chunk)
{
    return chunk % dtp_graph_stages(g);
}
/* Slots of a stage s of a graph that has S of them, at most all microbatches of its chunks. With
 * one chunk each stage has one more than the next; with v chunks those in flight also wait for S
 * microbatches in each other chunk, and each stage has two more than the next (Narayanan et al.
 * 2021, arXiv:2104.04473, section 2.2; Megatron's number of warmup microbatches, plus 1). */
int32_t dtp_stage_slots(const dtp_graph *g, int32_t stage);

/* Stages between two chunks; negative: back. */
static inline int32_t dtp_transfer_hops(const dtp_stages *stages, int32_t from, int32_t to)
{
    return to % stages->n - from % stages->n;
}

/* Stages of a set of chunks. */
static inline uint64_t dtp_stages_of_chunks(const dtp_stages *stages, uint64_t chunks)
{
    uint64_t out = 0;
    for (int32_t c = 0; c < stages->n_chunks; c++) {
        out |= (chunks >> c & 1) << c % stages->n;
    }
    return out;
}

static inline bool dtp_in_chunk(uint64_t chunks, int32_t c)
{
    return (chunks >> c & 1) != 0;
}

#endif
