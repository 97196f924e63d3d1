/* JSON read front to back from a plain or gzip file, without a tree: for instances of hundreds of
 * megabytes. The caller asks for what must come next; anything else is DTP_INVALID
 * "FILE:LINE:COL: PATH: what", PATH being what the caller last set. Lines and columns count from 1,
 * columns in code points. core/base/json_scan keeps text and values in memory, which instances of
 * this size forbid; a stream for documents as well would make every read of a member a search.
 * Strings and unusual numbers are decoded by that scanner. */
#ifndef DTP_PLANNER_PROBLEM_JSON_STREAM_H
#define DTP_PLANNER_PROBLEM_JSON_STREAM_H

#include "core/base/status.h"

enum { SOLVER_JSON_STRING_BYTES = 1024 }; /* longest string, its quotes and escapes included */

typedef struct solver_json solver_json;

typedef struct solver_json_place {
    int64_t line, col;
} solver_json_place;

/* DTP_IO and DTP_NOMEM naming the file; DTP_NOMEM can come from every read below. */
dtp_status solver_json_open(const char *file, solver_json **out, dtp_err *err) DTP_MUST_CHECK;
void solver_json_close(solver_json *s);

/* What errors are about: "name", "name[i]" or "name[i][j]"; -1 = no such index. Borrowed. */
void solver_json_set_path(solver_json *s, const char *name, int64_t i, int64_t j);

/* Skips blanks; the next byte (-1 = the end of the file) and where it is. */
dtp_status solver_json_peek(solver_json *s, int *byte, dtp_err *err) DTP_MUST_CHECK;
solver_json_place solver_json_here(const solver_json *s);

/* Takes one mark of punctuation. */
dtp_status solver_json_take(solver_json *s, char mark, dtp_err *err) DTP_MUST_CHECK;
/* Inside a list or object closed by `close`: *more = false and the closing mark taken, or true and
 * the comma taken (no comma before element 0). */
dtp_status solver_json_next(solver_json *s, char close, int64_t element, bool *more,
                            dtp_err *err) DTP_MUST_CHECK;
/* A whole number from 0 to INT64_MAX; 1e18 and 25.0 are whole numbers too, exact up to 2^53 or from
 * 10^18 on (those become 10^18). */
dtp_status solver_json_whole(solver_json *s, int64_t *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status solver_json_string(solver_json *s, char out[SOLVER_JSON_STRING_BYTES],
                              dtp_err *err) DTP_MUST_CHECK;

/* A failure at `at`, or where the reader stands when it is NULL. */
dtp_status solver_json_fail(const solver_json *s, const solver_json_place *at, dtp_err *err,
                            const char *fmt, ...) DTP_PRINTF(4, 5);

#endif
