/* What an .onnx file holds (onnx.proto): nodes by the names of their operands, and tensors.
 * Everything is from one arena; data of tensors stays in the file, or in one beside it. */
#ifndef DTP_IMPORTERS_ONNX_ONNX_FILE_H
#define DTP_IMPORTERS_ONNX_ONNX_FILE_H

#include "importers/aten/aten_graph.h"
#include "importers/files/protobuf.h"

typedef struct dtp_shape {
    int32_t dtype, rank; /* dtp_aten_dtype */
    int64_t sizes[DTP_MAX_RANK];
} dtp_shape;

typedef struct dtp_onnx_tensor {
    const char *name;
    dtp_shape shape;
    const char *symbols[DTP_MAX_RANK]; /* of inputs: the name of a size that is not fixed; NULL */
    dtp_pb_span data;                  /* row by row; none of an input */
} dtp_onnx_tensor;

typedef struct dtp_onnx_attr {
    const char *name, *text;
    int64_t i;
    double f;
    dtp_pb_ints ints;
    dtp_onnx_tensor *tensor;
} dtp_onnx_attr;

typedef struct dtp_onnx_node {
    const char *op, *domain, *name;
    const char *path;     /* of the module: "layers.3.attn", ""; NULL: the file does not say */
    dtp_pb_texts in, out; /* "": none */
    int32_t n_attrs, attrs_capacity;
    dtp_onnx_attr *attrs;
} dtp_onnx_node;

typedef struct dtp_onnx_tensors {
    dtp_onnx_tensor *of;
    int32_t n, capacity;
} dtp_onnx_tensors;

typedef struct dtp_onnx {
    const char *file;
    int32_t n_graphs, n_nodes, nodes_capacity;
    int64_t opset;
    dtp_onnx_node *nodes;
    dtp_onnx_tensors weights, inputs, outputs;
} dtp_onnx;

/* dtp_aten_dtype of a number of onnx.proto; 0: none of them. */
int32_t dtp_onnx_dtype(int64_t type);
int64_t dtp_shape_elements(const dtp_shape *s);
/* Reads FILE.onnx, opset 13 to 23. DTP_INVALID naming file and place. */
dtp_status dtp_onnx_open(const char *file, const char *bytes, int64_t size, dtp_arena *arena,
                         dtp_onnx *out, dtp_err *err) DTP_MUST_CHECK;

#endif
