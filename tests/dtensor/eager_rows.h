/* Rows of the replay cases (docs/compat-torch.md) as eager calls: one function of some inputs, how
 * many collectives it and its gradient take, and the layout of its output. */
#ifndef DTP_TESTS_DTENSOR_EAGER_ROWS_H
#define DTP_TESTS_DTENSOR_EAGER_ROWS_H

#include "tests/dtensor/eager_run.h"

enum { EAGER_MAX_IN = 40 };

typedef dtp_status (*eager_row_fn)(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err);

/* Which runs of rows are counted; values are compared in all. Ours never have more collectives than
 * PyTorch, forward nor backward, but where two permutes of margins take the place of a gather. */
typedef enum eager_counted {
    EAGER_BOTH,    /* with `torch` exactly these counts, without not more */
    EAGER_TORCH,   /* with `torch` exactly these counts, without any */
    EAGER_OWN,     /* without `torch` exactly these counts; with it the row is not run */
    EAGER_AT_MOST, /* without `torch` not more than these counts; with it any */
    EAGER_COMPARED /* without `torch` not more than with it */
} eager_counted;

/* Counts are all-reduce, all-gather, reduce-scatter, all-to-all, permute. */
typedef struct eager_row {
    const char *id, *mesh;
    eager_row_fn fn;
    /* "12,3 S0", ids as "4 ids:5 R"; '!' at the end: gets a gradient, as it lies; '+': one that is
     * left as partial sums */
    const char *in[EAGER_MAX_IN];
    const char *out; /* layout of the output where counts are exact; NULL: not stated */
    int forward[DTP_N_COLLS], backward[DTP_N_COLLS];
    const char
        *reason; /* why the counts are not PyTorch's (stated here as ours, which are lower) */
} eager_row;

/* Runs the rows that fit the job; a difference fails the test. */
void eager_check_rows(const eager_row *rows, size_t n, eager_counted counted);

/* The tensor in the layout of the text; on one device the tensor itself. */
dtp_status eager_to(eager *e, dtp_tensor t, const char *text, dtp_tensor *out,
                    dtp_err *err) DTP_MUST_CHECK;

#endif
