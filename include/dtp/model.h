/* Models: dtp.model/1 (docs/formats/model.md), read as a graph of tensors and ops. */
#ifndef DTP_MODEL_H
#define DTP_MODEL_H

#include "dtp/op.h"

DTP_API_BEGIN

typedef struct dtp_dim_override {
    const char *name;
    int64_t size;
} dtp_dim_override;
DTP_ASSERT_SIZE(dtp_dim_override, 16);

typedef struct dtp_model_options {
    size_t size;
    int32_t n_overrides; /* sizes of dims other than the file's */
    const dtp_dim_override *overrides;
    bool forward_only;     /* leave "train" out: plan and run inference */
    bool f64;              /* every f32 tensor becomes f64 (the backend "ref") */
    const dtp_op_set *ops; /* of the nodes; borrowed by the graph. NULL: the built-in ones */
    int32_t n_freeze;      /* globs over names of parameters that are not trained, as "frozen" in
                              the file; one that matches none is an error */
    const char *const *freeze; /* copied */
} dtp_model_options;

static inline dtp_model_options dtp_model_options_init(void)
{
    dtp_model_options o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    return o;
}

/* Parses, expands blocks, infers shapes, appends gradients and updates when the model has "train".
 * `file` names the source in errors: "FILE:LINE:COL: path: what". NULL options: none. */
dtp_status dtp_model_parse(const char *file, const char *text, size_t len,
                           const dtp_model_options *options, dtp_graph **out,
                           dtp_err *err) DTP_MUST_CHECK;
/* The same from a file; DTP_IO when it cannot be read. */
dtp_status dtp_model_read(const char *path, const dtp_model_options *options, dtp_graph **out,
                          dtp_err *err) DTP_MUST_CHECK;
/* Plans, jobs and sessions of the model must be gone. NULL is accepted. */
void dtp_graph_destroy(dtp_graph *g);

/* Id of a tensor by name, -1 when there is none. */
dtp_tensor_id dtp_graph_find(const dtp_graph *g, const char *name);

DTP_API_END

#endif
