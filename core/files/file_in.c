/* Opening and reading files. */
#include "core/files/file_in.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Reads to the end of the file, at most max_bytes. */
static dtp_status read_all(const char *path, FILE *f, size_t max_bytes, char **text, size_t *len,
                           dtp_err *err)
{
    size_t capacity = 1 << 16;
    *len = 0;
    *text = malloc(capacity);
    while (*text != NULL) {
        *len += fread(*text + *len, 1, capacity - 1 - *len, f);
        if (ferror(f)) {
            return DTP_FAIL(err, DTP_IO, "%s: cannot read: %s", path, strerror(errno));
        }
        if (*len > max_bytes) {
            return DTP_FAIL(err, DTP_RANGE, "%s: larger than %zu bytes", path, max_bytes);
        }
        if (*len < capacity - 1) {
            (*text)[*len] = '\0';
            return DTP_OK;
        }
        capacity *= 2;
        char *grown = realloc(*text, capacity);
        if (grown == NULL) {
            break;
        }
        *text = grown;
    }
    return DTP_FAIL(err, DTP_NOMEM, "%s: out of memory for %zu bytes", path, capacity);
}

dtp_status dtp_file_read(const char *path, size_t max_bytes, char **text, size_t *len, dtp_err *err)
{
    char *read = NULL;
    int fd = -1;
    DTP_TRY(dtp_stream_in_open(path, &fd, err));
    FILE *f = fdopen(fd, "rb");
    if (f == NULL) {
        const dtp_status failed =
            DTP_FAIL(err, DTP_IO, "%s: cannot open: %s", path, strerror(errno));
        (void)close(fd);
        return failed;
    }
    dtp_status s = read_all(path, f, max_bytes, &read, len, err);
    (void)fclose(f);
    if (s != DTP_OK) {
        free(read);
        return s;
    }
    *text = read;
    return DTP_OK;
}
