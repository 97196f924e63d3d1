/* Whole files in, whole files out (declared in core/base/json.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file_in.h"
#include "core/files/file_out.h"
#include "core/base/json.h"

static dtp_status io_error(const char *what, const char *path, dtp_err *err)
{
    return DTP_FAIL(err, DTP_IO, "%s: cannot %s: %s", path, what, strerror(errno));
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
            return io_error("read", path, err);
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
        dtp_status failed = io_error("open", path, err);
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

dtp_status dtp_file_write(const char *path, const char *text, size_t len, dtp_err *err)
{
    dtp_file_out *out = NULL;
    DTP_TRY(dtp_file_out_open(path, &out, err));
    dtp_status s = dtp_file_out_write(out, text, len, err);
    if (s != DTP_OK) {
        dtp_file_out_discard(out);
        return s;
    }
    return dtp_file_out_commit(out, err);
}
