/* What the parts of the dtp.model/1 reader share. One reader lives for one dtp_model_parse. */
#ifndef DTP_CORE_GRAPH_MODEL_MODEL_INTERNAL_H
#define DTP_CORE_GRAPH_MODEL_MODEL_INTERNAL_H

#include "core/base/json.h"
#include "core/graph/graph.h"

/* Limits against hostile files; docs/formats/model.md lists them. */
enum {
    DTP_MODEL_MAX_BYTES = 64 << 20,
    DTP_MODEL_MAX_PIECES = 1000000, /* nodes + parameters + block instances after expansion */
    DTP_MODEL_MAX_NEST = 8,         /* repeats inside repeats */
    DTP_MODEL_MAX_REPEATS = 1024,   /* repeat statements in the file */
    DTP_MODEL_MAX_GROUPS = 1024,    /* groups of parameters */
    DTP_MODEL_MAX_BINDINGS = 256,   /* names that a scope gets from repeats */
    DTP_MODEL_MAX_NAME = 128,       /* bytes of a name in the file */
    DTP_MODEL_MAX_FULL_NAME = 512,  /* bytes of a name after expansion */
    DTP_MODEL_MAX_DIM_BITS = 48     /* a dim's size is below 2^48 */
};

typedef enum dtp_dim_state { DTP_DIM_TODO, DTP_DIM_BUSY, DTP_DIM_DONE } dtp_dim_state;

/* A name that stands for a tensor of another scope: a carry, a "with", a repeat's result. */
typedef struct dtp_model_binding {
    const char *name;
    dtp_tensor_id id;
} dtp_model_binding;

/* Where names are looked up: the model itself or one instance of a block. */
typedef struct dtp_model_scope {
    const struct dtp_model_scope *outer; /* NULL: the model */
    const char *block;                   /* name of the block, NULL: the model */
    const char *prefix;                  /* "" or "layers.3." */
    const dtp_json *nodes;               /* the list being read */
    int32_t site, instance;              /* dtp_node.block, dtp_node.instance */
    int32_t n_bindings;
    dtp_model_binding bindings[DTP_MODEL_MAX_BINDINGS];
} dtp_model_scope;

/* One repeat statement of the file and the instances made from it so far. */
typedef struct dtp_model_site {
    const dtp_json *statement;
    int32_t instances;
} dtp_model_site;

typedef struct dtp_model_reader {
    const char *file;
    const dtp_model_options *options;
    const dtp_json *root;
    dtp_graph *g;
    dtp_arena *scratch;
    dtp_dims declared;   /* names of "dims", ids in file order; `sizes` unused */
    int64_t *dim_values; /* by declared id */
    bool *block_used;    /* by position in "blocks" */
    int32_t n_sites;
    dtp_model_site *sites; /* DTP_MODEL_MAX_REPEATS entries */
    int32_t pieces;
} dtp_model_reader;

/* model_dims.c */

/* Reads and evaluates "dims" with the overrides. */
dtp_status dtp_model__dims(dtp_model_reader *r, dtp_err *err) DTP_MUST_CHECK;
/* An integer or an expression over dims, in min..max. */
dtp_status dtp_model__int(const dtp_model_reader *r, const dtp_json *v, int64_t min, int64_t max,
                          int64_t *out, dtp_err *err) DTP_MUST_CHECK;
/* A number, or an expression of reals over dims. */
dtp_status dtp_model__real(const dtp_model_reader *r, const dtp_json *v, double *out,
                           dtp_err *err) DTP_MUST_CHECK;
/* A dim name, declared or made by an op before. */
dtp_status dtp_model__dim(dtp_model_reader *r, const dtp_json *v, dtp_dim_id *out,
                          dtp_err *err) DTP_MUST_CHECK;
/* A list of "name" or "name=expression". */
dtp_status dtp_model__dim_list(dtp_model_reader *r, const dtp_json *v, int32_t *rank,
                               dtp_tdim dims[DTP_MAX_RANK], dtp_err *err) DTP_MUST_CHECK;

/* model_tensors.c */

dtp_status dtp_model__inputs(dtp_model_reader *r, dtp_err *err) DTP_MUST_CHECK;
/* The "params" of the model or of a block instance. */
dtp_status dtp_model__params(dtp_model_reader *r, const dtp_model_scope *scope,
                             const dtp_json *params, dtp_err *err) DTP_MUST_CHECK;
/* What "update" says of them, when the nodes of the scope have been read. */
dtp_status dtp_model__updates(dtp_model_reader *r, const dtp_model_scope *scope,
                              const dtp_json *params, dtp_err *err) DTP_MUST_CHECK;
/* A dtype name; f32 becomes f64 under the option. */
dtp_status dtp_model__dtype(const dtp_model_reader *r, const dtp_json *v, dtp_dtype *out,
                            dtp_err *err) DTP_MUST_CHECK;

/* model_names.c */

/* Checks the form of a name that the file gives to a tensor or node at `place`, that it is free in
 * the scope, and writes the full name. */
dtp_status dtp_model__new_name(const dtp_model_reader *r, const dtp_model_scope *scope,
                               const dtp_json *place, const char *name,
                               char full[DTP_MODEL_MAX_FULL_NAME], dtp_err *err) DTP_MUST_CHECK;
/* Tensor that a name means in a scope, -1 = none. */
dtp_tensor_id dtp_model__find(const dtp_model_reader *r, const dtp_model_scope *scope,
                              const char *name);
/* The same for a JSON string; unknown names and uses before the definition are errors. */
dtp_status dtp_model__tensor(const dtp_model_reader *r, const dtp_model_scope *scope,
                             const dtp_json *v, dtp_tensor_id *out, dtp_err *err) DTP_MUST_CHECK;
/* Adds a binding; it may stand before a name of the graph but not before another binding. `place`
 * is for messages. */
dtp_status dtp_model__bind(dtp_model_scope *scope, const dtp_json *place, const char *name,
                           dtp_tensor_id id, dtp_err *err) DTP_MUST_CHECK;
/* Counts one node, parameter or instance against DTP_MODEL_MAX_PIECES. */
dtp_status dtp_model__count(dtp_model_reader *r, const dtp_json *place,
                            dtp_err *err) DTP_MUST_CHECK;

/* model_nodes.c */

dtp_status dtp_model__node(dtp_model_reader *r, const dtp_model_scope *scope, const dtp_json *v,
                           dtp_err *err) DTP_MUST_CHECK;

/* model_blocks.c */

/* Checks the shape of "blocks". */
dtp_status dtp_model__blocks(dtp_model_reader *r, dtp_err *err) DTP_MUST_CHECK;
/* Reads a node list with its repeats into the graph. */
dtp_status dtp_model__node_list(dtp_model_reader *r, dtp_model_scope *scope, const dtp_json *nodes,
                                dtp_err *err) DTP_MUST_CHECK;
/* Every block is used. */
dtp_status dtp_model__blocks_used(const dtp_model_reader *r, dtp_err *err) DTP_MUST_CHECK;

/* model_train.c */

/* Reads "train" into g->training, and which tensor the loss is. */
dtp_status dtp_model__train(dtp_model_reader *r, const dtp_model_scope *scope,
                            const dtp_json *train, dtp_tensor_id *loss,
                            dtp_err *err) DTP_MUST_CHECK;

#endif
