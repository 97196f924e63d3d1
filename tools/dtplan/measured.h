/* People's own measurements: what nccl-tests print, and tables of measured parts. */
#ifndef DTP_TOOLS_DTPLAN_MEASURED_H
#define DTP_TOOLS_DTPLAN_MEASURED_H

#include "cost_models/machine/coll.h"

/* Collectives of `level` in the text that all_reduce_perf and the like of nccl-tests print (out of
 * place), of one run or of several one after the other. `kind` (a name, or NULL) says what a text
 * measures that does not say it itself. Storage of *out is of the machine. DTP_INVALID names file,
 * line and what is wrong: a text that is cut off, reports errors, or whose ranks are none that end
 * at the level. */
dtp_status tool_nccl_tests_read(const char *file, const char *kind, dtp_machine *machine,
                                int32_t level, int32_t *n, dtp_coll_sample **out,
                                dtp_err *err) DTP_MUST_CHECK;

/* One line of a table of measured parts, and what the machine predicts. */
typedef struct tool_measured {
    const char *group; /* "all_reduce, 8 ranks", "bf16", "head_dim 128" */
    const char *what;  /* the row, for the list of the worst */
    int32_t size;      /* class of its size: small, middle, large */
    double measured_s, predicted_s;
} tool_measured;

typedef struct tool_measured_rows {
    int32_t n, capacity;
    tool_measured *items;                      /* by group and class of size */
    const char *classes[3];                    /* what the classes are, "below 1 MiB" */
    int32_t other_devices, unhealthy, unknown; /* rows that were left out, by reason */
} tool_measured_rows;

/* Reads a CSV of products, attention, collectives of one host or collectives across hosts, which
 * its columns tell, and prices every row of a device by the name of the machine. Storage is of the
 * machine. DTP_INVALID names file, line, column and value. */
dtp_status tool_measured_read(const char *file, dtp_machine *machine, tool_measured_rows *out,
                              dtp_err *err) DTP_MUST_CHECK;

#endif
