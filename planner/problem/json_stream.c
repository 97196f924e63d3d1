/* JSON read front to back from a plain or gzip file, without a tree: for instances of hundreds
 * of megabytes. */
#include "planner/problem/json_stream.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "core/files/file_in.h"
#include "core/base/json.h"
#include "core/base/json_scan.h"

enum { BUFFER_BYTES = 1 << 18 };

struct solver_json {
    const char *file;
    gzFile in;
    size_t at, len;      /* in the buffer */
    int64_t base;        /* offset of the buffer in the (unpacked) file */
    int64_t line, begin; /* the line, and the offset at which its columns start */
    const char *path;
    int64_t i, j;
    unsigned char buffer[BUFFER_BYTES];
};

dtp_status solver_json_open(const char *file, solver_json **out, dtp_err *err)
{
    solver_json *s = calloc(1, sizeof *s);
    DTP_TRY(DTP_MEMORY(err, s));
    int fd = -1;
    dtp_status status = dtp_stream_in_open(file, &fd, err);
    if (status != DTP_OK) {
        free(s);
        return status;
    }
    *s = (solver_json){.file = file, .in = gzdopen(fd, "rb"), .line = 1, .i = -1, .j = -1};
    if (s->in == NULL) {
        (void)close(fd);
        free(s);
        return DTP_FAIL(err, DTP_NOMEM, "%s: out of memory", file);
    }
    (void)gzbuffer(s->in, BUFFER_BYTES);
    *out = s;
    return DTP_OK;
}

void solver_json_close(solver_json *s)
{
    if (s != NULL) {
        (void)gzclose(s->in);
        free(s);
    }
}

void solver_json_set_path(solver_json *s, const char *name, int64_t i, int64_t j)
{
    s->path = name;
    s->i = i;
    s->j = j;
}

solver_json_place solver_json_here(const solver_json *s)
{
    return (solver_json_place){s->line, s->base + (int64_t)s->at - s->begin + 1};
}

dtp_status solver_json_fail(const solver_json *s, const solver_json_place *at, dtp_err *err,
                            const char *fmt, ...)
{
    char what[256], path[96] = "";
    const solver_json_place here = solver_json_here(s);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    at = at != NULL ? at : &here;
    if (s->path != NULL && s->i < 0) {
        (void)snprintf(path, sizeof path, "%s: ", s->path);
    } else if (s->path != NULL && s->j < 0) {
        (void)snprintf(path, sizeof path, "%s[%" PRId64 "]: ", s->path, s->i);
    } else if (s->path != NULL) {
        (void)snprintf(path, sizeof path, "%s[%" PRId64 "][%" PRId64 "]: ", s->path, s->i, s->j);
    }
    return DTP_FAIL(err, DTP_INVALID, "%s:%" PRId64 ":%" PRId64 ": %s%s", s->file, at->line,
                    at->col, path, what);
}

/* Reads on when the buffer is used up; afterwards at == len means the end of the file. */
static dtp_status refill(solver_json *s, dtp_err *err)
{
    if (s->at < s->len) {
        return DTP_OK;
    }
    s->base += (int64_t)s->len;
    s->at = s->len = 0;
    const int n = gzread(s->in, s->buffer, BUFFER_BYTES);
    int code = Z_OK;
    (void)gzerror(s->in, &code);
    if (n < 0 && code == Z_ERRNO) {
        return DTP_FAIL(err, DTP_IO, "%s: cannot read: %s", s->file, strerror(errno));
    }
    if (n < 0 && code == Z_MEM_ERROR) {
        return DTP_FAIL(err, DTP_NOMEM, "%s: out of memory for a buffer", s->file);
    }
    if (n < 0 || (n == 0 && code == Z_BUF_ERROR)) {
        return DTP_FAIL(err, DTP_INVALID, "%s: the gzip data is damaged or cut short", s->file);
    }
    s->len = (size_t)n;
    return DTP_OK;
}

dtp_status solver_json_peek(solver_json *s, int *byte, dtp_err *err)
{
    for (;;) {
        DTP_TRY(refill(s, err));
        if (s->at == s->len) {
            *byte = -1;
            return DTP_OK;
        }
        const unsigned char c = s->buffer[s->at];
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r') {
            *byte = c;
            return DTP_OK;
        }
        s->at++;
        if (c == '\n') {
            s->line++;
            s->begin = s->base + (int64_t)s->at;
        }
    }
}

static dtp_status fail_expected(solver_json *s, const char *what, int found, dtp_err *err)
{
    if (found < 0) {
        return solver_json_fail(s, NULL, err, "expected %s, found the end of the file", what);
    }
    if (found < 0x20 || found >= 0x7F) {
        return solver_json_fail(s, NULL, err, "expected %s, found the byte 0x%02x", what,
                                (unsigned)found);
    }
    return solver_json_fail(s, NULL, err, "expected %s, found '%c'", what, found);
}

dtp_status solver_json_take(solver_json *s, char mark, dtp_err *err)
{
    int c = -1;
    DTP_TRY(solver_json_peek(s, &c, err));
    if (c != mark) {
        const char what[] = {'\'', mark, '\'', '\0'};
        return fail_expected(s, what, c, err);
    }
    s->at++;
    return DTP_OK;
}

dtp_status solver_json_next(solver_json *s, char close, int64_t element, bool *more, dtp_err *err)
{
    int c = -1;
    DTP_TRY(solver_json_peek(s, &c, err));
    *more = c != close;
    if (!*more || (element > 0 && c == ',')) {
        s->at++;
        return DTP_OK;
    }
    const char what[] = {'\'', ',', '\'', ' ', 'o', 'r', ' ', '\'', close, '\'', '\0'};
    return element == 0 ? DTP_OK : fail_expected(s, what, c, err);
}

/* ---- tokens ---- */

/* Bytes for which `part` holds, into text; the one that follows is left. */
static dtp_status collect(solver_json *s, bool (*part)(int), char *text, size_t room, size_t *n,
                          dtp_err *err)
{
    for (*n = 0;; s->at++) {
        DTP_TRY(refill(s, err));
        if (s->at == s->len || !part(s->buffer[s->at])) {
            text[*n] = '\0';
            return DTP_OK;
        }
        if (*n + 1 == room) {
            return solver_json_fail(s, NULL, err, "more than %zu characters", room - 1);
        }
        text[(*n)++] = (char)s->buffer[s->at];
    }
}

static bool is_number_part(int c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* A number that is not plain digits. */
static dtp_status whole_from_text(solver_json *s, solver_json_place at, const char *text, size_t n,
                                  int64_t *out, dtp_err *err)
{
    dtp_json_doc *doc = NULL;
    double value = -1.0;
    const dtp_status parsed = dtp_json_parse("", text, n, &doc, NULL);
    const bool ok = parsed == DTP_OK && dtp_json_double(dtp_json_root(doc), &value, NULL) == DTP_OK;
    dtp_json_destroy(doc);
    if (parsed == DTP_NOMEM) {
        return DTP_FAIL(err, DTP_NOMEM, "%s: out of memory for a number", s->file);
    }
    if (ok && value >= 1e18 && value < 9.2e18) {
        *out = INT64_C(1000000000000000000);
        return DTP_OK;
    }
    if (!ok || !(value >= 0.0 && value <= 9007199254740992.0) || value > (double)(int64_t)value) {
        return solver_json_fail(s, &at, err, "'%s' is not a whole number from 0 to 2^63 - 1", text);
    }
    *out = (int64_t)value;
    return DTP_OK;
}

dtp_status solver_json_whole(solver_json *s, int64_t *out, dtp_err *err)
{
    char text[DTP_JSON_MAX_NUMBER_BYTES + 1];
    int c = -1;
    size_t n;
    int64_t value = 0;
    DTP_TRY(solver_json_peek(s, &c, err));
    if (c != '-' && (c < '0' || c > '9')) {
        return fail_expected(s, "a number", c, err);
    }
    if (s->len - s->at > 20) { /* the common case: up to 18 digits inside the buffer */
        const unsigned char *p = s->buffer + s->at;
        for (n = 0; n < 19 && p[n] >= '0' && p[n] <= '9'; n++) {
            value = n < 18 ? value * 10 + (p[n] - '0') : value;
        }
        if (n > 0 && n < 19 && !is_number_part(p[n]) && (p[0] != '0' || n == 1)) {
            s->at += n;
            *out = value;
            return DTP_OK;
        }
    }
    const solver_json_place at = solver_json_here(s);
    DTP_TRY(collect(s, is_number_part, text, sizeof text, &n, err));
    if (strspn(text, "0123456789") != n || (text[0] == '0' && n > 1)) {
        return whole_from_text(s, at, text, n, out, err);
    }
    errno = 0;
    const long long whole = strtoll(text, NULL, 10);
    *out = whole;
    return errno == 0 ? DTP_OK
                      : solver_json_fail(s, &at, err,
                                         "'%s' is not a whole number from 0 to 2^63 - 1", text);
}

/* Copies the string with its quotes; the strict reader of core/json then decodes it. */
static dtp_status raw_string(solver_json *s, char *raw, size_t *n, dtp_err *err)
{
    bool escaped = false;
    const solver_json_place start = solver_json_here(s);
    for (*n = 0;; s->at++) {
        DTP_TRY(refill(s, err));
        if (s->at == s->len) {
            return solver_json_fail(s, &start, err, "the string that starts here does not end");
        }
        if (*n == SOLVER_JSON_STRING_BYTES) {
            return solver_json_fail(s, &start, err, "a string of more than %d bytes",
                                    SOLVER_JSON_STRING_BYTES);
        }
        const unsigned char c = s->buffer[s->at];
        s->begin += (c & 0xC0U) == 0x80U ? 1 : 0;
        raw[(*n)++] = (char)c;
        if (c == '"' && *n > 1 && !escaped) {
            s->at++;
            return DTP_OK;
        }
        escaped = c == '\\' && !escaped;
    }
}

dtp_status solver_json_string(solver_json *s, char out[SOLVER_JSON_STRING_BYTES], dtp_err *err)
{
    char raw[SOLVER_JSON_STRING_BYTES];
    const char *text = NULL;
    dtp_json_doc *doc = NULL;
    dtp_err inner = {0};
    size_t n;
    int c = -1;
    DTP_TRY(solver_json_peek(s, &c, err));
    if (c != '"') {
        return fail_expected(s, "a string", c, err);
    }
    const solver_json_place start = solver_json_here(s);
    DTP_TRY(raw_string(s, raw, &n, err));
    dtp_status st = dtp_json_parse("in the string", raw, n, &doc, &inner);
    st = st == DTP_OK ? dtp_json_string(dtp_json_root(doc), &text, &inner) : st;
    if (st == DTP_OK) {
        (void)snprintf(out, SOLVER_JSON_STRING_BYTES, "%s", text);
    }
    dtp_json_destroy(doc);
    if (st == DTP_NOMEM) {
        return DTP_FAIL(err, DTP_NOMEM, "%s: out of memory for a string", s->file);
    }
    return st == DTP_OK ? DTP_OK : solver_json_fail(s, &start, err, "%s", inner.msg);
}
