/* The graph as auto_mtf (Mesh TensorFlow's layout optimizer) sees it: operations in graph order,
 * their input and output tensors, named dims, byte sizes, which tensors are final. Small and
 * separate from dtp_graph because its rules differ: unique operation names, parameters as
 * operations, dims that an operation forbids to split in the whole graph.
 *
 * Reference: mesh_tensorflow/auto_mtf/graph_interface.py, mesh_tensorflow/ops.py.
 */
#ifndef DTP_PLANNER_MTF_MTF_GRAPH_H
#define DTP_PLANNER_MTF_MTF_GRAPH_H

#include "core/graph/graph.h"

typedef struct dtp_mtf_dim {
    const char *name;
    int64_t size;
} dtp_mtf_dim;

typedef struct dtp_mtf_shape {
    int32_t n;
    dtp_mtf_dim dims[DTP_MAX_RANK];
} dtp_mtf_shape;

typedef struct dtp_mtf_tensor {
    const char *name; /* "<operation>:<index>" */
    dtp_dtype dtype;
    dtp_mtf_shape shape;
    int64_t bytes; /* unsplit */
    bool final;
} dtp_mtf_tensor;

typedef struct dtp_mtf_op {
    const char *name;
    int32_t n_in, n_out, n_unsplittable;
    const int32_t *in; /* tensors, one per slot: a tensor read twice is listed twice */
    const int32_t *out;
    const char *const *unsplittable; /* dim names */
} dtp_mtf_op;

typedef struct dtp_mtf_graph {
    dtp_arena *arena;
    int32_t n_ops, cap_ops, n_tensors, cap_tensors, n_used, cap_used;
    dtp_mtf_op *ops;
    dtp_mtf_tensor *tensors;
    struct dtp_mtf_used *used; /* operation names in use */
} dtp_mtf_graph;

dtp_status dtp_mtf_graph_create(dtp_mtf_graph **out, dtp_err *err) DTP_MUST_CHECK;
void dtp_mtf_graph_destroy(dtp_mtf_graph *g);

typedef struct dtp_mtf_op_spec {
    const char *name; /* made unique as Mesh TensorFlow does: case-insensitive, "a", "a_1", "a_2" */
    int32_t n_in;
    const int32_t *in; /* tensors of the graph */
    int32_t n_out;
    const dtp_mtf_shape *out;
    dtp_dtype dtype; /* of every output */
    int32_t n_unsplittable;
    const char *const *unsplittable;
} dtp_mtf_op_spec;

/* Appends an operation; first_out is the id of its first output, the others follow. Names of dims
 * are borrowed, all else is copied. DTP_RANGE when a tensor's bytes do not fit. */
dtp_status dtp_mtf_add_op(dtp_mtf_graph *g, const dtp_mtf_op_spec *spec, int32_t *first_out,
                          dtp_err *err) DTP_MUST_CHECK;

/* A dtp_graph as auto_mtf would see it: every input, parameter and state is an operation without
 * inputs placed before its first reader (unread ones are left out), model outputs and the loss are
 * final, a dim that an op needs whole is unsplittable, except that relabel, like Mesh TensorFlow's
 * reshape, forbids nothing. Names of dims are those of g, which outlives *out. DTP_INVALID when g
 * is NULL. */
dtp_status dtp_mtf_from_graph(const dtp_graph *g, dtp_mtf_graph **out, dtp_err *err) DTP_MUST_CHECK;

#endif
