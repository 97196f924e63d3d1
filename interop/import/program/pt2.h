/* Programs of PyTorch: .pt2 files that torch.export.save wrote, and .onnx files, as models of ours
 * (docs/programs-of-pytorch.md). */
#ifndef DTP_INTEROP_IMPORT_PROGRAM_PT2_H
#define DTP_INTEROP_IMPORT_PROGRAM_PT2_H

#include "core/base/strbuf.h"

typedef struct dtp_pt2_options {
    const char *name;    /* of the model */
    const char *loss;    /* output that is the loss; NULL: a single floating-point scalar */
    const char *weights; /* file for the weights, safetensors; NULL: not written */
} dtp_pt2_options;

typedef struct dtp_pt2_report {
    int64_t parameters; /* elements */
    int32_t nodes, attention, causal, norms, rope, gelu, blocks, repeats;
    dtp_strbuf notes;       /* a line for each thing that was assumed or left out */
    dtp_strbuf unsupported; /* a line for each op that stops the import */
} dtp_pt2_report;

typedef struct dtp_pt2_result {
    dtp_strbuf model, names; /* dtp.model/1 and dtp.names/1 */
    dtp_pt2_report report;
} dtp_pt2_result;

/* Free *out with dtp_pt2_free, also after a failure. DTP_INVALID, DTP_UNSUPPORTED, .. naming file
 * and place; ops that are not supported are listed in the report, all of them. */
dtp_status dtp_import_pt2(const char *path, const dtp_pt2_options *options, dtp_pt2_result *out,
                          dtp_err *err) DTP_MUST_CHECK;
/* The same of a file in memory. */
dtp_status dtp_import_pt2_bytes(const char *path, const char *bytes, int64_t size,
                                const dtp_pt2_options *options, dtp_pt2_result *out,
                                dtp_err *err) DTP_MUST_CHECK;
/* Whether these are the first bytes of such a file, or of an .onnx file. */
bool dtp_pt2_is(const char *bytes, int64_t size);
void dtp_pt2_free(dtp_pt2_result *out);

#endif
