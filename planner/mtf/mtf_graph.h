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
    const char *name; /* NULL in a plain TensorFlow tensor */
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
    int32_t op, out_index;
    const char *device; /* NULL: none, then it counts on every device */
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
    const char
        *canonical_device; /* tensors on another one count as size 0 in the model; NULL: none */
    int32_t n_ops, cap_ops, n_tensors, cap_tensors, n_used, cap_used;
    dtp_mtf_op *ops;
    dtp_mtf_tensor *tensors;
    struct dtp_mtf_used *used; /* operation names in use */
} dtp_mtf_graph;

dtp_status dtp_mtf_graph_create(dtp_mtf_graph **out, dtp_err *err) DTP_MUST_CHECK;
void dtp_mtf_graph_destroy(dtp_mtf_graph *g);

/* A name not used yet, as Mesh TensorFlow makes it: case-insensitive, "a", "a_1", "a_2"; in the
 * arena. */
dtp_status dtp_mtf_unique_name(dtp_mtf_graph *g, const char *name, const char **out,
                               dtp_err *err) DTP_MUST_CHECK;

typedef struct dtp_mtf_op_spec {
    const char *name;   /* made unique */
    const char *device; /* of its outputs; NULL: none */
    int32_t n_in;
    const int32_t *in;
    int32_t n_out;
    const dtp_mtf_shape *out;
    dtp_dtype dtype; /* of every output */
    int32_t n_unsplittable;
    const char *const *unsplittable;
} dtp_mtf_op_spec;

/* Appends an operation; first_out (may be NULL) is the id of its first output, the others follow.
 * Everything is copied. DTP_RANGE when a tensor's bytes do not fit, DTP_INVALID on a size below 1,
 * a dim twice in one tensor, or an input that does not exist. */
dtp_status dtp_mtf_add_op(dtp_mtf_graph *g, const dtp_mtf_op_spec *spec, int32_t *first_out,
                          dtp_err *err) DTP_MUST_CHECK;

/* An operation without inputs; name NULL: "constant". */
dtp_status dtp_mtf_constant(dtp_mtf_graph *g, const char *name, dtp_dtype dtype,
                            const dtp_mtf_shape *shape, int32_t *out, dtp_err *err) DTP_MUST_CHECK;
void dtp_mtf_set_final(dtp_mtf_graph *g, int32_t tensor);
bool dtp_mtf_on_canonical_device(const dtp_mtf_graph *g, int32_t tensor);
/* Index of a named dim in a shape, -1 when it is not there. */
int32_t dtp_mtf_shape_find(const dtp_mtf_shape *shape, const char *dim);

/* A dtp_graph as auto_mtf would see it: every input, parameter and state is an operation without
 * inputs placed before its first reader (unread ones are left out), model outputs and the loss are
 * final, a dim that an op needs whole is unsplittable, except that relabel, like Mesh TensorFlow's
 * reshape, forbids nothing. DTP_INVALID when g is NULL. */
dtp_status dtp_mtf_from_graph(const dtp_graph *g, dtp_mtf_graph **out, dtp_err *err) DTP_MUST_CHECK;

/* ---- cost graph (TensorFlow's CostGraphDef) ---- */

typedef struct dtp_mtf_cost_output {
    int64_t bytes; /* 0 when the tensor is on none of the devices asked for */
    dtp_dtype dtype;
    int32_t alias_input_port; /* always -1 */
    bool has_shape;
    dtp_mtf_shape shape;
} dtp_mtf_cost_output;

typedef struct dtp_mtf_cost_input {
    int32_t preceding_node, preceding_port;
} dtp_mtf_cost_input;

typedef struct dtp_mtf_cost_node {
    int32_t id;
    const char *name, *device; /* device NULL: none */
    int32_t n_in, n_out;
    const dtp_mtf_cost_input *in;
    const dtp_mtf_cost_output *out;
    bool is_final; /* an output is final */
} dtp_mtf_cost_node;

/* One node per operation, allocated in g's arena. devices NULL: all; else tensors with a device
 * that is not listed have no size and no shape. */
dtp_status dtp_mtf_cost_graph(const dtp_mtf_graph *g, int32_t n_devices, const char *const *devices,
                              const dtp_mtf_cost_node **out, dtp_err *err) DTP_MUST_CHECK;

#endif
