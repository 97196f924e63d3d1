/* The owner removes the file before it unlocks it. A process that opened the file before that and
 * locks it after that holds a lock on a file without a name: it checks whether the name still means
 * its file, and starts over if not. flock locks belong to the open file: they hold between threads,
 * and end with the process. */
#include "core/files/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/files/file_out.h"

enum { HOST_BYTES = 128, OWNER_BYTES = 256, MAX_ATTEMPTS = 1000 };

struct dtp_file_lock {
    char *path;
    int fd;
};

bool dtp_file_lock_holds(const dtp_file_lock *lock)
{
    return dtp_file__is_named(lock->fd, lock->path);
}

void dtp_file_lock_release(dtp_file_lock *lock)
{
    if (lock == NULL) {
        return;
    }
    if (lock->fd >= 0) {
        if (dtp_file_lock_holds(lock)) {
            (void)unlink(lock->path);
        }
        (void)close(lock->fd);
    }
    free(lock->path);
    free(lock);
}

/* The text is for people: a disk that is full does not keep anybody from locking. */
static void write_owner(int fd)
{
    char host[HOST_BYTES] = "", text[OWNER_BYTES];
    if (gethostname(host, sizeof host - 1) != 0) {
        host[0] = '\0';
    }
    const int n = snprintf(text, sizeof text, "process %ld on %s", (long)getpid(), host);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n) {
        errno = 0;
    }
}

/* *fd is -1 when the file lost its name meanwhile. */
static dtp_status try_lock(const char *path, int *fd, dtp_err *err)
{
    *fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (*fd < 0) {
        return DTP_FAIL(err, DTP_IO, "%s: cannot make a lock: %s", path, strerror(errno));
    }
    dtp_status status = DTP_OK;
    const bool held = flock(*fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (dtp_file__is_named(*fd, path)) {
        if (!held) {
            write_owner(*fd);
            return DTP_OK;
        }
        char owner[OWNER_BYTES];
        const ssize_t n = pread(*fd, owner, sizeof owner - 1, 0);
        owner[n > 0 ? n : 0] = '\0';
        status = DTP_FAIL(err, DTP_IO, "%s: held by another job%s%s%s", path, n > 0 ? " (" : "",
                          owner, n > 0 ? ")" : "");
    }
    (void)close(*fd);
    *fd = -1;
    return status;
}

dtp_status dtp_file_lock_take(const char *path, dtp_file_lock **out, dtp_err *err)
{
    dtp_file_lock *lock = calloc(1, sizeof *lock);
    DTP_TRY(DTP_MEMORY(err, lock));
    lock->fd = -1;
    lock->path = strdup(path);
    dtp_status status = DTP_MEMORY(err, lock->path);
    for (int i = 0; status == DTP_OK && lock->fd < 0; i++) {
        status = i < MAX_ATTEMPTS ? try_lock(path, &lock->fd, err)
                                  : DTP_FAIL(err, DTP_IO, "%s: the lock changes hands", path);
    }
    if (status != DTP_OK) {
        dtp_file_lock_release(lock);
        return status;
    }
    *out = lock;
    return DTP_OK;
}
