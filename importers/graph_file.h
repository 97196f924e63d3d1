/* Programs of PyTorch: .pt2 files that torch.export.save wrote, and .onnx files, as models of ours
 * (docs/programs-of-pytorch.md). */
#ifndef DTP_IMPORTERS_GRAPH_FILE_H
#define DTP_IMPORTERS_GRAPH_FILE_H

#include "importers/program/lowering/report.h"

/* Free *out with dtp_graph_file_free, also after a failure. DTP_INVALID, DTP_UNSUPPORTED, .. naming
 * file and place; ops that are not supported are listed in the report, all of them. */
dtp_status dtp_graph_file_import(const char *path, const dtp_graph_import_options *options,
                                 dtp_graph_import_result *out, dtp_err *err) DTP_MUST_CHECK;
/* The same of a file in memory. */
dtp_status dtp_graph_file_import_bytes(const char *path, const char *bytes, int64_t size,
                                       const dtp_graph_import_options *options,
                                       dtp_graph_import_result *out, dtp_err *err) DTP_MUST_CHECK;
/* Whether these are the first bytes of such a file, or of an .onnx file. */
bool dtp_graph_file_is(const char *bytes, int64_t size);
void dtp_graph_file_free(dtp_graph_import_result *out);

#endif
