/* Repeated blocks: nodes of the instances of a numbered list of modules ("layers.0", "layers.1",
 * ..) that are the same but for the number. */
#ifndef DTP_IMPORTERS_PROGRAM_LOWERING_BLOCKS_H
#define DTP_IMPORTERS_PROGRAM_LOWERING_BLOCKS_H

#include "importers/program/lowering/importer.h"

enum { DTP_MOST_CARRIED = 16 };

typedef struct dtp_block {
    int32_t begin, length, count; /* nodes of instance 0; instances lie one after another */
    const char *prefix;           /* "layers": instance 3 names its things "layers.3.." */
    int32_t n_carry, n_with;
    const char *carry_from[DTP_MOST_CARRIED]; /* the tensor that instance 0 reads */
    const char *carry_out[DTP_MOST_CARRIED];  /* what it is in instance 0 for the next one */
    const char *with[DTP_MOST_CARRIED];       /* tensors that all instances see */
} dtp_block;

/* Blocks in the order of their nodes, from the arena. */
dtp_status dtp_blocks_find(dtp_importer *m, int32_t *n, dtp_block **out,
                           dtp_err *err) DTP_MUST_CHECK;

/* Whether instance 0 has the tensor: one of its nodes makes it, or it is a parameter of its module
 * that one of them is the first to read. */
bool dtp_block_has(const dtp_importer *m, const dtp_block *b, const char *name);

/* The block of an instance, *k, to which the tensor belongs; NULL: none. */
const dtp_block *dtp_block_of(const dtp_importer *m, int32_t n, const dtp_block *blocks,
                              const char *name, int32_t *k);

/* "attn.q" of "layers.3.attn.q", behind the first number; NULL: there is none. */
const char *dtp_block_tail(const char *name);

/* "attn.q" of "layers.3.attn.q" in instance k of a block; NULL: not of this instance. */
const char *dtp_block_local(const dtp_block *b, int32_t k, const char *name);

/* What instance 0 calls a tensor that it has, or reads: its own names, then what is carried and
 * seen; b may be NULL. From the arena. */
const char *dtp_block_inner(const dtp_importer *m, const dtp_block *b, const char *name);

#endif
