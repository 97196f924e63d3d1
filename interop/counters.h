/* Counters with the names of Mesh TensorFlow: element counts over all ranks, found from the
 * program. */
#ifndef DTP_INTEROP_COUNTERS_H
#define DTP_INTEROP_COUNTERS_H

#include "core/base/strbuf.h"
#include "spmd/program/program.h"

typedef struct dtp_counter {
    const char *name; /* "einsum", "allreduce/[0, 1]/einsum_op", ... */
    double value;
} dtp_counter;

typedef struct dtp_counters {
    dtp_arena *arena; /* borrowed: holds names and list */
    int32_t n, capacity;
    int32_t runs;      /* while counting: of the node or instruction in a step */
    dtp_counter *list; /* sorted by name; includes every '/'-prefix with the sum of what is below */
} dtp_counters;

/* Counts the instructions of one step. */
dtp_status dtp_counters_of(const dtp_program *p, dtp_arena *arena, dtp_counters *out,
                           dtp_err *err) DTP_MUST_CHECK;
/* One line per counter, indented by one blank per '/', with three digits: "einsum: 1.02e+03". */
void dtp_counters_print(const dtp_counters *c, dtp_strbuf *out);
/* 0 when there is none. */
double dtp_counters_get(const dtp_counters *c, const char *name);

#endif
