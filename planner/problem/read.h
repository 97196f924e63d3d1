/* Reads a selection problem in the JSON of the ASPLOS/EuroSys 2025 contest on intra-operator
 * parallelism (docs/formats/iopddl.md), plain or gzip, in one pass without a tree. */
#ifndef DTP_PLANNER_PROBLEM_READ_H
#define DTP_PLANNER_PROBLEM_READ_H

#include "planner/problem/problem.h"

/* Memory that a problem may take unless told otherwise, in bytes. A.json.gz of models/selection
 * (1.4 MB, unpacked 93 MB) takes less than 100 MB. */
#define DTP_PROBLEM_MAX_BYTES (INT64_C(2) << 30)

/* max_bytes: of all lists together, at the size to which they have grown; a packed file says
 * nothing about it.
 * DTP_IO and DTP_NOMEM naming the file; DTP_INVALID or DTP_RANGE with "FILE:LINE:COL: path: what":
 * grammar, unknown, missing or repeated keys, lists of different lengths, numbers out of range,
 * more than max_bytes. */
dtp_status dtp_problem_read(const char *file, int64_t max_bytes, dtp_problem **out,
                            dtp_err *err) DTP_MUST_CHECK;

#endif
