/* Code on distributed tensors, run on ranks under random layouts and on one device; what both note
 * is compared. The ranks are virtual, or those of the MPI job that the program is part of. */
#ifndef DTP_TESTS_DTENSOR_EAGER_RUN_H
#define DTP_TESTS_DTENSOR_EAGER_RUN_H

#include "dtp/ops.h"
#include "dtp/tape.h"

enum { EAGER_MAX_NOTES = 64, EAGER_MAX_RANKS = 8 };

/* One run of a body on one rank. */
typedef struct eager {
    dtp_device_mesh *mesh;
    const void *user;
    const struct eager_options *options;
    uint64_t seed; /* of layouts and values */
    bool single;   /* one device: layouts are replicated */
    int32_t n_inputs;
    int32_t n_notes;
    int64_t n_values[EAGER_MAX_NOTES];
    double *notes[EAGER_MAX_NOTES];
    /* For bodies that count: collectives by kind and their bytes, forward and backward. */
    int64_t counts[2][DTP_N_COLLS], bytes[2];
} eager;

typedef dtp_status (*eager_body)(eager *e, dtp_err *err);

typedef struct eager_options {
    uint64_t seed;
    bool torch, strict;
    const void *user;
    const char *what; /* for messages */
    /* For differences: element `moved_at` of input `moved_input` (counted from 1; 0: none) is
     * moved.
     */
    int32_t moved_input;
    int64_t moved_at;
    double moved_by;
} eager_options;

/* Runs the body on the mesh ("x:2;y:3") and on one device and fails the test when a note differs by
 * more than 1e-9 of its largest value. `out` (may be NULL) gets the counts of rank 0, or of this
 * process. False, and nothing is done, inside an MPI job of another size. */
bool eager_compare(const char *mesh, eager_body body, const eager_options *o, eager *out);

/* Runs it on one device alone; free the notes. */
void eager_alone(eager_body body, const eager_options *o, eager *out);
void eager_free(eager *e);

/* How values are drawn. */
typedef enum eager_fill { EAGER_ANY, EAGER_POSITIVE, EAGER_IDS, EAGER_BOOL } eager_fill;

typedef struct eager_spec {
    int32_t rank;
    int64_t shape[DTP_MAX_RANK];
    eager_fill fill;
    int64_t below;      /* IDS */
    const char *layout; /* as eager_layout reads it; NULL: random */
} eager_spec;

/* The next input; its values depend on seed and number of the input alone. */
dtp_status eager_input(eager *e, const eager_spec *spec, dtp_tensor *out,
                       dtp_err *err) DTP_MUST_CHECK;
/* "S0,R", "P(max)": one entry for each mesh dim. */
dtp_status eager_layout(const eager *e, int32_t rank, const char *text, dtp_layout *out,
                        dtp_err *err) DTP_MUST_CHECK;
/* Notes the values of a tensor, whatever its layout. */
dtp_status eager_note(eager *e, dtp_tensor t, dtp_err *err) DTP_MUST_CHECK;
/* Collectives since the last reset; phase 0 is forward, 1 backward. */
void eager_count(eager *e, int phase);
/* Numbers of a small generator. */
uint64_t eager_random(uint64_t *state);

#endif
