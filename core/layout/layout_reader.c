/* A text being read into a layout: the steps that every notation shares. */
#include "core/layout/layout_reader.h"

#include <ctype.h>
#include <string.h>

const char *dtp_layout_skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\n') {
        at++;
    }
    return at;
}

bool dtp_layout_reader_accept(dtp_layout_reader *r, const char *token)
{
    r->at = dtp_layout_skip_blanks(r->at);
    const size_t n = strlen(token);
    const bool there = strncmp(r->at, token, n) == 0;
    r->at += there ? n : 0;
    return there;
}

bool dtp_layout_reader_at_end(dtp_layout_reader *r)
{
    r->at = dtp_layout_skip_blanks(r->at);
    return *r->at == '\0';
}

bool dtp_layout_reader_int(dtp_layout_reader *r, int64_t *out)
{
    enum { MAX_DIGITS = 9 };
    r->at = dtp_layout_skip_blanks(r->at);
    const char *p = r->at;
    const bool negative = *p == '-';
    int64_t value = 0;
    int32_t digits = 0;
    for (p += negative ? 1 : 0; isdigit((unsigned char)*p) && digits <= MAX_DIGITS; p++) {
        value = 10 * value + (*p - '0');
        digits++;
    }
    if (digits == 0 || digits > MAX_DIGITS) {
        return false;
    }
    r->at = p;
    *out = negative ? -value : value;
    return true;
}

dtp_status dtp_layout_reader_split(dtp_layout_reader *r, const char *name, size_t n, int32_t axis,
                                   dtp_err *err)
{
    char copy[DTP_MESH_NAME_BYTES];
    int32_t m;
    if (n == 0 || n >= sizeof copy) {
        return dtp_layout_reader_fail(r, "the name of a mesh dim", err);
    }
    memcpy(copy, name, n);
    copy[n] = '\0';
    DTP_TRY(dtp_layout_free_mesh_dim(r->mesh, &r->layout, copy, &m, err));
    dtp_layout_split(&r->layout, m, axis);
    return DTP_OK;
}

dtp_status dtp_layout_reader_quoted(dtp_layout_reader *r, const char **text, size_t *n,
                                    dtp_err *err)
{
    r->at = dtp_layout_skip_blanks(r->at);
    const char quote = *r->at;
    const char *end = quote == '\'' || quote == '"' ? strchr(r->at + 1, quote) : NULL;
    if (end == NULL) {
        return dtp_layout_reader_fail(r, "a string that is closed", err);
    }
    *text = r->at + 1;
    *n = (size_t)(end - *text);
    r->at = end + 1;
    return DTP_OK;
}

dtp_status dtp_layout_reader_fail(const dtp_layout_reader *r, const char *what, dtp_err *err)
{
    return DTP_FAIL(err, DTP_INVALID, "layout: expected %s at character %lld, before '%.40s'", what,
                    (long long)(r->at - r->text) + 1, r->at);
}
