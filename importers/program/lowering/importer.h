/* What the stages of an import of a graph share: patterns, axes, lowering, blocks, the writer. */
#ifndef DTP_IMPORTERS_PROGRAM_LOWERING_IMPORTER_H
#define DTP_IMPORTERS_PROGRAM_LOWERING_IMPORTER_H

#include "importers/program/axes/dim_names.h"
#include "importers/program/lowering/report.h"

enum { DTP_MOST_OPERANDS = 16 };

/* A node of the model that is written. */
typedef struct dtp_out_node {
    const char *id, *op;
    int32_t n_in;
    const char *const *in;
    const char *out;   /* "batch,length": dims, each perhaps with "=size"; NULL: not written */
    const char *attrs; /* further members, as JSON: "\"over\": \"d\""; "" */
    const char *path;  /* of the module */
    int32_t next;      /* number of the next node that would have its id */
    const dtp_aten_node *from;
    int32_t below; /* of integers that a table is read at: the class of its size; -1 */
} dtp_out_node;

/* The tensor of the model that a value became. */
typedef struct dtp_low {
    const char *id; /* NULL: not yet */
    int32_t n;      /* parts of all axes, in their order */
    int32_t cls[DTP_FLAT_PARTS];
    int8_t alias[DTP_FLAT_PARTS]; /* which name of the class; -1: the tensor has no such dim, it is
                                     the same along it */
    int8_t order[DTP_FLAT_PARTS]; /* parts in the order of the tensor's dims; n_dims of them */
    int32_t n_dims;
    bool param;
    const dtp_aten_node *owner; /* of a constant: it is made again for every node that reads it */
} dtp_low;

typedef struct dtp_importer {
    dtp_arena *arena;
    dtp_aten *g;
    dtp_const *consts;
    dtp_axes axes;
    dtp_low *low; /* by value */
    int32_t n, capacity;
    dtp_out_node *nodes;
    dtp_name_table ids; /* of nodes */
    int32_t *below;     /* by value, of inputs: as `below` of a node */
    int32_t *read_by;   /* by value, of inputs and parameters: the first node of ours; -1 */
    dtp_graph_import_report *report;
    int32_t loss; /* the value; -1 */
} dtp_importer;

typedef struct dtp_aten_op dtp_aten_op;   /* aten_ops.h */
typedef struct dtp_lowering dtp_lowering; /* lower.h */

/* Nodes that depend on no layer and are read in several are those of the module around them. */
dtp_status dtp_import_share_nodes(dtp_importer *m, dtp_err *err) DTP_MUST_CHECK;

/* Model and names file. */
dtp_status dtp_import_write(dtp_importer *m, const dtp_graph_import_options *options,
                            dtp_graph_import_result *out, dtp_err *err) DTP_MUST_CHECK;

/* Weights of the parameters that are `needed`, by value, as a safetensors file that appears whole
 * or not at all. */
dtp_status dtp_weights_write(dtp_importer *m, const char *path, const bool *needed,
                             dtp_err *err) DTP_MUST_CHECK;

#endif
