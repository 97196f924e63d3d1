/* Whether a model that was written can be read, and computes with the types and sizes that the
 * program has. */
#ifndef DTP_IMPORTERS_PROGRAM_LOWERING_READ_BACK_H
#define DTP_IMPORTERS_PROGRAM_LOWERING_READ_BACK_H

#include "importers/program/lowering/blocks.h"

/* Reads the text as every later command does, with its training graph, lowers the forward program
 * on one device, and compares the tensors that values of the program became. What fails is
 * DTP_UNSUPPORTED, and names the file, op, module and source line where it is about a node. */
dtp_status dtp_import_read_back(const dtp_importer *m, int32_t n_blocks, const dtp_block *blocks,
                                const char *text, size_t len, dtp_err *err) DTP_MUST_CHECK;

#endif
