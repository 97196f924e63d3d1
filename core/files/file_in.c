#include "core/files/file_in.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITER_WAIT_MS = 2000 };

/* O_NONBLOCK keeps the opening of a named pipe from waiting for a writer. */
static dtp_status open_now(const char *path, int *fd, struct stat *st, dtp_err *err)
{
    *fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (*fd >= 0 && fstat(*fd, st) == 0) {
        return DTP_OK;
    }
    const int code = errno;
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
    return DTP_FAIL(err, DTP_IO, "%s: cannot open: %s", path, strerror(code));
}

dtp_status dtp_file_in_open(const char *path, int *fd, dtp_err *err)
{
    struct stat st;
    DTP_TRY(open_now(path, fd, &st, err));
    if (!S_ISREG(st.st_mode)) {
        (void)close(*fd);
        *fd = -1;
        return DTP_FAIL(err, DTP_IO, "%s: not a regular file%s", path,
                        S_ISFIFO(st.st_mode)  ? " but a pipe"
                        : S_ISDIR(st.st_mode) ? " but a folder"
                                              : "");
    }
    return DTP_OK;
}

dtp_status dtp_stream_in_open(const char *path, int *fd, dtp_err *err)
{
    struct stat st;
    DTP_TRY(open_now(path, fd, &st, err));
    if (S_ISFIFO(st.st_mode)) {
        /* Until there is something to read, or the writer has come and gone. */
        struct pollfd waiting = {.fd = *fd, .events = POLLIN};
        (void)poll(&waiting, 1, WRITER_WAIT_MS);
    }
    const int flags = fcntl(*fd, F_GETFL);
    if (flags >= 0 && fcntl(*fd, F_SETFL, flags & ~O_NONBLOCK) == 0) {
        return DTP_OK;
    }
    const int code = errno;
    (void)close(*fd);
    *fd = -1;
    return DTP_FAIL(err, DTP_IO, "%s: cannot open: %s", path, strerror(code));
}
