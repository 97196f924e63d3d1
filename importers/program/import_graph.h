/* A graph of ATen ops, from whichever file, as a model of ours: its stages in their order
 * (docs/programs-of-pytorch.md). */
#ifndef DTP_IMPORTERS_PROGRAM_IMPORT_GRAPH_H
#define DTP_IMPORTERS_PROGRAM_IMPORT_GRAPH_H

#include "importers/aten/aten_graph.h"
#include "importers/program/lowering/report.h"

/* Adds to *out, which is zero or has notes of the reader; g is changed on the way. DTP_INVALID,
 * DTP_UNSUPPORTED, .. naming file and place; ops that are not supported are listed in the report,
 * all of them. */
dtp_status dtp_import_graph(dtp_aten *g, const dtp_graph_import_options *options,
                            dtp_graph_import_result *out, dtp_err *err) DTP_MUST_CHECK;

#endif
