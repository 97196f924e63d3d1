/* The signature of an op, "mk,kn->mn": letters for the dims of operands and outputs, by place. A
 * term may start with "...", which stands for any further dims, the same in every such term. */
#ifndef DTP_CORE_GRAPH_OP_SIGNATURE_H
#define DTP_CORE_GRAPH_OP_SIGNATURE_H

#include "core/graph/op.h"

enum { DTP_SIGNATURE_MAX_LETTERS = DTP_MAX_OP_DIMS };

/* One operand or output. */
typedef struct dtp_signature_term {
    bool dots;
    int8_t n;                    /* letters behind the dots */
    int8_t letter[DTP_MAX_RANK]; /* indices of letters */
} dtp_signature_term;

typedef struct dtp_signature {
    int32_t n_in, n_out, n_letters;
    char letters[DTP_SIGNATURE_MAX_LETTERS]; /* in order of first appearance */
    dtp_signature_term in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
} dtp_signature;

/* What the letters and the dots mean in one call. */
typedef struct dtp_signature_dims {
    dtp_tdim letter[DTP_SIGNATURE_MAX_LETTERS];
    int32_t n_dots; /* -1: not seen */
    dtp_tdim dots[DTP_MAX_RANK];
} dtp_signature_dims;

/* DTP_INVALID naming the character: not a letter, one letter twice in a term, too many terms or
 * dims, "->" missing, a letter or dots of an output that no operand has. */
dtp_status dtp_signature_parse(const char *text, dtp_signature *out, dtp_err *err) DTP_MUST_CHECK;
/* Index of a letter, -1 = none. */
int32_t dtp_signature_find(const dtp_signature *s, char letter);

/* Reads the dims off the operands. DTP_INVALID when a rank does not fit, a letter or the dots are
 * two different dims or sizes, or two letters are one dim. */
dtp_status dtp_signature_bind(const dtp_signature *s, const dtp_op_call *call,
                              dtp_signature_dims *out, dtp_err *err) DTP_MUST_CHECK;
/* The dims of output i. DTP_INVALID when it has more than DTP_MAX_RANK. */
dtp_status dtp_signature_out(const dtp_signature *s, int32_t i, const dtp_signature_dims *dims,
                             dtp_ttype *out, dtp_err *err) DTP_MUST_CHECK;

/* Does the term have the letter, or (letter -1) the dots? */
bool dtp_signature_has(const dtp_signature_term *term, int32_t letter);
/* Letter of the dim in a call whose operands fit; -1 for a dim of the dots. */
int32_t dtp_signature_letter_of(const dtp_signature *s, const dtp_op_call *call, dtp_dim_id d);

#endif
