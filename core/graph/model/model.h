/* Reads dtp.model/1 (docs/formats/model.md). */
#ifndef DTP_CORE_GRAPH_MODEL_MODEL_H
#define DTP_CORE_GRAPH_MODEL_MODEL_H

#include "core/graph/graph.h"

typedef struct dtp_dim_override {
    const char *name;
    int64_t size;
} dtp_dim_override;

typedef struct dtp_model_options {
    int32_t n_overrides; /* --dim batch=64 */
    const dtp_dim_override *overrides;
    bool forward_only;     /* leave "train" out: plan and run inference */
    bool f64;              /* every f32 tensor becomes f64 (the reference backend) */
    const dtp_op_set *ops; /* of the nodes; borrowed by the graph. NULL: the built-in ones */
} dtp_model_options;

/* Parses, expands blocks, infers shapes, appends gradients and updates when the model has "train".
 * `file` names the source in errors: "FILE:LINE:COL: path: what". NULL options: none. */
dtp_status dtp_model_parse(const char *file, const char *text, size_t len,
                           const dtp_model_options *options, dtp_graph **out,
                           dtp_err *err) DTP_MUST_CHECK;
/* The same from a file; DTP_IO when it cannot be read. */
dtp_status dtp_model_read(const char *path, const dtp_model_options *options, dtp_graph **out,
                          dtp_err *err) DTP_MUST_CHECK;

#endif
