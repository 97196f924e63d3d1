/* A lock between jobs: a file that is there, and locked, while its owner lives. */
#ifndef DTP_CORE_FILES_FILE_LOCK_H
#define DTP_CORE_FILES_FILE_LOCK_H

#include "core/base/status.h"

typedef struct dtp_file_lock dtp_file_lock;

/* Makes the file `path` and locks it. A file that a killed owner left is taken over. On a file
 * system without locks the file is made and excludes no process. DTP_IO: another process, or
 * another lock of this process, holds it (the message names process and host), or the file cannot
 * be made. DTP_NOMEM. */
dtp_status dtp_file_lock_take(const char *path, dtp_file_lock **out, dtp_err *err) DTP_MUST_CHECK;
/* Whether the file is still there: it may have been removed, or another job's is in its place. */
bool dtp_file_lock_holds(const dtp_file_lock *lock);
/* Removes the file, unless it is another job's by now, and frees the lock; NULL is allowed. */
void dtp_file_lock_release(dtp_file_lock *lock);

#endif
