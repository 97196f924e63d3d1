/* Opening and reading files. */
#ifndef DTP_CORE_FILES_FILE_IN_H
#define DTP_CORE_FILES_FILE_IN_H

#include <stddef.h>

#include "core/base/status.h"

/* Opens a regular file; never waits. DTP_IO naming the path, also for pipes, folders and devices.
 * The descriptor is the caller's to close. */
dtp_status dtp_file_in_open(const char *path, int *fd, dtp_err *err) DTP_MUST_CHECK;
/* Opens a file that is read once from its start to its end: pipes and devices may be read too. A
 * named pipe gets some seconds for its writer to come; without one it reads as empty. A pipe with
 * a writer is waited for as long as it is open. DTP_IO naming the path. */
dtp_status dtp_stream_in_open(const char *path, int *fd, dtp_err *err) DTP_MUST_CHECK;
/* Reads a whole file; caller frees *text. DTP_IO naming the file; DTP_RANGE above max_bytes. */
dtp_status dtp_file_read(const char *path, size_t max_bytes, char **text, size_t *len,
                         dtp_err *err) DTP_MUST_CHECK;

#endif
