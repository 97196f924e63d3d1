/* Readable form of a program. */
#ifndef DTP_SPMD_PROGRAM_PROGRAM_PRINT_H
#define DTP_SPMD_PROGRAM_PROGRAM_PRINT_H

#include "core/base/strbuf.h"
#include "spmd/program/program.h"

/* Appends a listing, one line per instruction. */
void dtp_program_print(const dtp_program *p, dtp_strbuf *out);

#endif
