/* The file of --log-json: a line of JSON after every step (docs/formats/report.md). */
#ifndef DTP_TOOLS_DTRUN_RUN_LOG_H
#define DTP_TOOLS_DTRUN_RUN_LOG_H

#include "tools/run_report.h"

typedef struct dtrun_log {
    const char *path; /* borrowed; NULL: there is none, and nothing is written */
    int fd;
} dtrun_log;

/* Makes the file, or empties it. `resumes`: keeps its lines up to that of step `last`, of a run
 * that goes on from there; those after it are of steps that run again. DTP_IO; DTP_INVALID when the
 * lines that would be cut are not of such a file. */
dtp_status dtrun_log_open(dtrun_log *log, const char *path, bool resumes, int64_t last,
                          dtp_err *err) DTP_MUST_CHECK;
/* The line of the report's last step, in the file when this returns. DTP_OUTPUT. */
dtp_status dtrun_log_step(const dtrun_log *log, const dtp_report *r, dtp_err *err) DTP_MUST_CHECK;
void dtrun_log_close(dtrun_log *log);

#endif
