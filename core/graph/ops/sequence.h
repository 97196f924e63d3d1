/* The order in which a sequence is stored. `contiguous`: place s holds position s. `zigzag` over C
 * chunks (head-tail): the positions are cut into 2C equal runs; places are too, and run 2r of the
 * places holds run r of the positions, run 2r + 1 holds run 2C - 1 - r. A split of the places into
 * C equal parts then gives every part one early and one late run: under a causal mask all parts see
 * the same number of keys.
 */
#ifndef DTP_CORE_GRAPH_OPS_SEQUENCE_H
#define DTP_CORE_GRAPH_OPS_SEQUENCE_H

#include "core/graph/op.h"

typedef enum dtp_order { DTP_ORDER_CONTIGUOUS, DTP_ORDER_ZIGZAG } dtp_order;

/* Choices of an "order" attribute; it comes with an INT attribute "chunks", from 1. */
extern const char *const dtp_order_choices[];

typedef struct dtp_sequence {
    int64_t size; /* places = positions */
    int64_t run;  /* places of one run; size when contiguous */
} dtp_sequence;

/* A zigzag sequence; contiguous when chunks is 0. The size is a multiple of 2 chunks. */
dtp_sequence dtp_sequence_make(int64_t size, int64_t chunks);
/* The sequence of `size` that the attributes of a call describe. */
dtp_sequence dtp_sequence_of(const dtp_op_call *call, int64_t size);
/* DTP_INVALID unless 2 chunks divide the size of dim d. */
dtp_status dtp_sequence_check(const dtp_op_call *call, dtp_dim_id d, int64_t size, int64_t chunks,
                              dtp_err *err) DTP_MUST_CHECK;

/* Position stored at a place; place that stores a position. */
int64_t dtp_sequence_position(const dtp_sequence *s, int64_t place);
int64_t dtp_sequence_place(const dtp_sequence *s, int64_t position);
/* Places from this one on that hold consecutive positions. */
int64_t dtp_sequence_left(const dtp_sequence *s, int64_t place);

/* Rates of the pairs of rope (sequence.c), in radians a position: of pair j, with
 * r = base^(-j/half) and s = by_rate r + by_pair j + share, limited to [0, 1], it is
 * r (s + (1 - s) slowed). */
typedef struct dtp_rope_rates {
    double base, half;
    double by_rate, by_pair, share;
    double slowed;
} dtp_rope_rates;

double dtp_rope_rate(const dtp_rope_rates *r, int64_t pair);
/* Of a call whose types were inferred. */
dtp_rope_rates dtp_rope_rates_of(const dtp_op_call *call, int64_t half);

#endif
