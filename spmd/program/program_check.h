/* What the files of the program check share; nothing of the lowering. */
#ifndef DTP_SPMD_PROGRAM_PROGRAM_CHECK_H
#define DTP_SPMD_PROGRAM_PROGRAM_CHECK_H

#include "spmd/program/program.h"

/* A flat local buffer, not a piece of a tensor. */
static inline bool dtp_check__is_flat(const dtp_value *v)
{
    return v->kind == DTP_VALUE_STAGING || v->kind == DTP_VALUE_WORKSPACE;
}
/* Operand ids are in range (checked before): layouts and counts of instruction `index`. */
dtp_status dtp_check__instr(const dtp_program *p, int32_t index, dtp_err *err) DTP_MUST_CHECK;

#endif
