/* The tape's record: what the recording (tape.c) and the gradient (tape_gradient.c) share. */
#ifndef DTP_DTENSOR_TAPE_INTERNAL_H
#define DTP_DTENSOR_TAPE_INTERNAL_H

#include "dtensor/canonical_call.h"

/* A tensor that the tape knows. */
typedef struct dtp_tape_value {
    dtp_tensor tensor; /* own handle */
    bool depends;      /* on a watched tensor */
    int32_t first;     /* later contents of a watched variable: the value of its first ones, else
                          -1 */
} dtp_tape_value;

typedef struct dtp_tape_entry {
    dtp_canonical_call *call; /* NULL: a redistribution */
    int32_t in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
} dtp_tape_entry;

struct dtp_tape {
    dtp_device_mesh *mesh;
    dtp_arena *arena;
    bool paused, keep_partial;
    int32_t n_values, cap_values, n_entries, cap_entries;
    dtp_tape_value *values;
    dtp_tape_entry *entries;
};

/* The value that a handle stands for; -1 when it is none, or a variable that was assigned and is
 * not watched. */
int32_t dtp_tape__find(const dtp_tape *tape, dtp_tensor t);

#endif
