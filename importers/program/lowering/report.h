/* What is asked of an import of a graph, and what comes out of it. */
#ifndef DTP_IMPORTERS_PROGRAM_LOWERING_REPORT_H
#define DTP_IMPORTERS_PROGRAM_LOWERING_REPORT_H

#include "core/base/strbuf.h"

typedef struct dtp_graph_import_options {
    const char *name;    /* of the model */
    const char *loss;    /* output that is the loss; NULL: a single floating-point scalar */
    const char *weights; /* file for the weights, safetensors; NULL: not written */
} dtp_graph_import_options;

typedef struct dtp_graph_import_report {
    int64_t parameters; /* elements */
    int32_t nodes, attention, causal, norms, rope, gelu, blocks, repeats;
    dtp_strbuf notes;       /* a line for each thing that was assumed or left out */
    dtp_strbuf unsupported; /* a line for each op that stops the import */
} dtp_graph_import_report;

typedef struct dtp_graph_import_result {
    dtp_strbuf model, names; /* dtp.model/1 and dtp.names/1 */
    dtp_graph_import_report report;
} dtp_graph_import_result;

#endif
