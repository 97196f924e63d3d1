/* Tables: constants that are stored beside the weights, as parameters that nothing trains. */
#ifndef DTP_IMPORTERS_PROGRAM_LOWERING_TABLES_H
#define DTP_IMPORTERS_PROGRAM_LOWERING_TABLES_H

#include "importers/program/lowering/importer.h"

/* Buffers that nodes read, and constants that no row of the table of ops computes, become
 * parameters that are tables: integers and truth values as f32, infinities as the largest numbers,
 * axes along which nothing changes left out. Marks the nodes that are needed. DTP_UNSUPPORTED where
 * an integer is no f32. */
dtp_status dtp_tables_store(dtp_importer *m, dtp_err *err) DTP_MUST_CHECK;

#endif
