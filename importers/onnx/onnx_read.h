/* Reads an .onnx file as a program of ATen ops: every node becomes one or a few of them
 * (onnx_ops.c). A size that has a name in the file is some number here. */
#ifndef DTP_IMPORTERS_ONNX_ONNX_READ_H
#define DTP_IMPORTERS_ONNX_ONNX_READ_H

#include "core/base/strbuf.h"
#include "importers/aten/aten_graph.h"

/* Whether bytes may be those of an .onnx file. */
bool dtp_onnx_is(const char *bytes, int64_t size);
/* As dtp_aten_read; what was assumed is in *notes. Where the table lacks ops, *out has the nodes of
 * these alone. */
dtp_status dtp_onnx_read(const char *file, const char *bytes, int64_t size, dtp_arena *arena,
                         dtp_aten *out, dtp_strbuf *notes, dtp_err *err) DTP_MUST_CHECK;

#endif
