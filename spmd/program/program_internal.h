/* Building programs: what lowering, its passes and the memory plan use. */
#ifndef DTP_SPMD_PROGRAM_PROGRAM_INTERNAL_H
#define DTP_SPMD_PROGRAM_PROGRAM_INTERNAL_H

#include "spmd/program/program.h"

enum { DTP_BUFFER_ALIGN = 64 };

/* What a buffer takes in the arena. The caller has seen to overflow. */
static inline int64_t dtp_program__aligned(int64_t bytes)
{
    return (bytes + DTP_BUFFER_ALIGN - 1) / DTP_BUFFER_ALIGN * DTP_BUFFER_ALIGN;
}

/* A value with nothing set: no tensor, no parent, no offset, not live. */
dtp_value dtp_program__value_init(const char *name, dtp_value_kind kind);
/* Appends a value; `bytes` is computed from type and layout. */
dtp_status dtp_program__add_value(dtp_program *p, const dtp_value *value, dtp_value_id *out,
                                  dtp_err *err) DTP_MUST_CHECK;
/* The largest that a rank has of each dim of a value. */
void dtp_program__largest(const dtp_program *p, const dtp_value *v, dtp_ttype *local);
/* A flat staging buffer of parts * count elements. */
dtp_status dtp_program__add_staging(dtp_program *p, const char *name, dtp_dtype dtype,
                                    int64_t parts, int64_t count, dtp_value_id *out,
                                    dtp_err *err) DTP_MUST_CHECK;
/* Another layout of a value's tensor, linked into its chain of versions. */
dtp_status dtp_program__add_version(dtp_program *p, dtp_value_id of, const dtp_layout *layout,
                                    dtp_value_id *out, dtp_err *err) DTP_MUST_CHECK;
/* Makes v the latest version of a tensor. */
void dtp_program__bind(dtp_program *p, dtp_tensor_id t, dtp_value_id v);

/* A copy of the program as it is, in its arena: what changes one does not change the other. Operand
 * lists, which are never written, are shared. */
dtp_status dtp_program__copy(const dtp_program *p, dtp_program **out, dtp_err *err) DTP_MUST_CHECK;

/* The value that operand k of an instruction of every microbatch holds if it is made once for all
 * of them; else -1. */
dtp_value_id dtp_program__lasting(const dtp_program *p, const dtp_instr *instr, int32_t k);

/* An instruction without operands. */
dtp_instr dtp_program__instr_init(dtp_instr_kind kind, dtp_node_id node, dtp_phase phase);
/* Appends a copy of the instruction with copies of its operand lists. */
dtp_status dtp_program__add_instr(dtp_program *p, const dtp_instr *instr,
                                  dtp_err *err) DTP_MUST_CHECK;
/* Appends a collective_permute of a value over the mesh dims `set`: member i sends to member
 * (i + shift) mod n. The shards of a group must have the same shape (DTP_UNSUPPORTED). *out: the
 * value to fill, of the same layout and local size; -1 = a new TEMP like `value` that belongs to no
 * tensor. */
dtp_status dtp_program__emit_permute(dtp_program *p, dtp_value_id value, dtp_mesh_set set,
                                     int32_t shift, dtp_node_id node, dtp_phase phase,
                                     dtp_value_id *out, dtp_err *err) DTP_MUST_CHECK;
/* Room for n operand ids. */
dtp_status dtp_program__alloc_ids(dtp_program *p, int32_t n, dtp_value_id **out,
                                  dtp_err *err) DTP_MUST_CHECK;
/* Copies of attributes that outlive their graph. */
dtp_status dtp_program__copy_attrs(dtp_program *p, const dtp_attr *attrs, int32_t n,
                                   const dtp_attr **out, dtp_err *err) DTP_MUST_CHECK;

#endif
