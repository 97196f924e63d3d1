#include "core/base/json_scan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/one_line.h"

typedef struct scanner {
    const char *file, *text;
    size_t len, at;
    dtp_json_marks *out;
    dtp_err *err;
} scanner;

void dtp_json__place(const char *text, size_t offset, int32_t *line, int32_t *col)
{
    *line = 1;
    *col = 1;
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            (*line)++;
            *col = 1;
        } else if (((unsigned char)text[i] & 0xC0U) != 0x80U) {
            (*col)++;
        }
    }
}

static dtp_status fail_at(scanner *s, size_t offset, const char *fmt, ...) DTP_PRINTF(3, 4);

static dtp_status fail_at(scanner *s, size_t offset, const char *fmt, ...)
{
    char what[256];
    int32_t line, col;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    dtp_json__place(s->text, offset, &line, &col);
    return DTP_FAIL(s->err, DTP_INVALID, "%s:%d:%d: %s", s->file, line, col, what);
}

/* The byte at the cursor, -1 at the end. */
static int peek(const scanner *s)
{
    return s->at < s->len ? (unsigned char)s->text[s->at] : -1;
}

/* "expected X, found Y" with Y the byte at the cursor. */
static dtp_status fail_expected(scanner *s, const char *what)
{
    int c = peek(s);
    if (c < 0) {
        return fail_at(s, s->at, "expected %s, found the end of the file", what);
    }
    if (c < 0x20 || c >= 0x7F) {
        return fail_at(s, s->at, "expected %s, found the byte 0x%02x", what, (unsigned)c);
    }
    return fail_at(s, s->at, "expected %s, found '%c'", what, c);
}

static void skip_space(scanner *s)
{
    while (s->at < s->len && (s->text[s->at] == ' ' || s->text[s->at] == '\n' ||
                              s->text[s->at] == '\t' || s->text[s->at] == '\r')) {
        s->at++;
    }
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

/* ---- strings -----------------------------------------------------------------------------------
 */

/* Four hex digits at the cursor, -1 when they are not. */
static int32_t hex4(const scanner *s)
{
    int32_t value = 0;
    if (s->len - s->at < 4) {
        return -1;
    }
    for (size_t i = 0; i < 4; i++) {
        char c = s->text[s->at + i];
        int digit = is_digit(c)              ? c - '0'
                    : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                    : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                             : -1;
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

/* A \u escape with the cursor behind the u; surrogates must come as a pair. */
static dtp_status scan_unicode_escape(scanner *s, size_t start)
{
    int32_t high = hex4(s);
    if (high < 0) {
        return fail_at(s, start, "\\u needs four hexadecimal digits");
    }
    if (high == 0) {
        return fail_at(s, start, "\\u0000 is not allowed in a string");
    }
    s->at += 4;
    if (high < 0xD800 || high > 0xDFFF) {
        return DTP_OK;
    }
    bool pair =
        high < 0xDC00 && s->len - s->at >= 6 && s->text[s->at] == '\\' && s->text[s->at + 1] == 'u';
    if (pair) {
        s->at += 2;
        int32_t low = hex4(s);
        pair = low >= 0xDC00 && low <= 0xDFFF;
        s->at += 4;
    }
    return pair ? DTP_OK : fail_at(s, start, "a lone surrogate in a \\u escape");
}

static dtp_status scan_escape(scanner *s)
{
    size_t start = s->at++;
    int c = peek(s);
    if (c == 'u') {
        s->at++;
        return scan_unicode_escape(s, start);
    }
    if (c <= 0 || strchr("\"\\/bfnrt", c) == NULL) {
        return fail_at(s, start, "unknown escape in a string");
    }
    s->at++;
    return DTP_OK;
}

/* One character or escape of a string, with the cursor on it. */
static dtp_status scan_char(scanner *s)
{
    int c = peek(s);
    if (c < 0x20) {
        return fail_at(s, s->at, "control character 0x%02x in a string", (unsigned)c);
    }
    if (c == '\\') {
        return scan_escape(s);
    }
    size_t n = dtp_utf8_next(s->text + s->at, s->len - s->at, NULL);
    if (n == 0) {
        return fail_at(s, s->at, "not UTF-8 (byte 0x%02x)", (unsigned)c);
    }
    s->at += n;
    return DTP_OK;
}

/* Characters of a string that need no second look. */
static void skip_plain(scanner *s)
{
    const unsigned char *text = (const unsigned char *)s->text;
    size_t at = s->at;
    while (at < s->len && text[at] >= 0x20 && text[at] < 0x80 && text[at] != '"' &&
           text[at] != '\\') {
        at++;
    }
    s->at = at;
}

static dtp_status scan_string(scanner *s)
{
    size_t start = s->at++;
    for (skip_plain(s); peek(s) >= 0; skip_plain(s)) {
        if (peek(s) == '"') {
            s->at++;
            return DTP_OK;
        }
        DTP_TRY(scan_char(s));
    }
    return fail_at(s, start, "the string that starts here does not end");
}

/* ---- numbers and words -------------------------------------------------------------------------
 */

static dtp_status scan_digits(scanner *s, const char *where)
{
    if (!is_digit(peek(s))) {
        return fail_expected(s, where);
    }
    while (is_digit(peek(s))) {
        s->at++;
    }
    return DTP_OK;
}

static dtp_status scan_number(scanner *s)
{
    size_t start = s->at;
    if (peek(s) == '-') {
        s->at++;
    }
    if (peek(s) == '0') {
        s->at++;
        if (is_digit(peek(s))) {
            return fail_at(s, start, "a number with a leading zero");
        }
    } else {
        DTP_TRY(scan_digits(s, "a digit"));
    }
    if (peek(s) == '.') {
        s->at++;
        DTP_TRY(scan_digits(s, "a digit after the decimal point"));
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-') {
            s->at++;
        }
        DTP_TRY(scan_digits(s, "a digit in the exponent"));
    }
    if (s->at - start > DTP_JSON_MAX_NUMBER_BYTES) {
        return fail_at(s, start, "a number of more than %d characters", DTP_JSON_MAX_NUMBER_BYTES);
    }
    return DTP_OK;
}

static bool scan_word(scanner *s, const char *word)
{
    size_t n = strlen(word);
    if (s->len - s->at < n || memcmp(s->text + s->at, word, n) != 0) {
        return false;
    }
    s->at += n;
    return true;
}

/* ---- values ------------------------------------------------------------------------------------
 */

static dtp_status add_mark(scanner *s, int32_t parent, size_t key_offset, int32_t *out)
{
    dtp_json_marks *m = s->out;
    if (m->n == DTP_JSON_MAX_VALUES) {
        return fail_at(s, s->at, "more than %d values", DTP_JSON_MAX_VALUES);
    }
    if (m->n == m->capacity) {
        int32_t capacity = m->capacity == 0 ? 64 : 2 * m->capacity;
        dtp_json_mark *marks = realloc(m->marks, (size_t)capacity * sizeof *marks);
        if (marks == NULL) {
            return DTP_FAIL(s->err, DTP_NOMEM, "%s: out of memory for %d values", s->file,
                            capacity);
        }
        m->marks = marks;
        m->capacity = capacity;
    }
    m->marks[m->n] = (dtp_json_mark){.offset = (uint32_t)s->at,
                                     .key_offset = (uint32_t)key_offset,
                                     .parent = parent,
                                     .kind = DTP_JSON_NULL};
    if (parent >= 0) {
        m->marks[m->n].index = m->marks[parent].size++;
    }
    *out = m->n++;
    return DTP_OK;
}

static dtp_status scan_value(scanner *s, int32_t parent, size_t key_offset, int32_t depth);

static dtp_status scan_member(scanner *s, int32_t self, int32_t depth)
{
    size_t key = s->at;
    if (peek(s) != '"') {
        return fail_expected(s, "a key in double quotes");
    }
    DTP_TRY(scan_string(s));
    skip_space(s);
    if (peek(s) != ':') {
        return fail_expected(s, "':' after the key");
    }
    s->at++;
    skip_space(s);
    return scan_value(s, self, key, depth);
}

/* An array or an object, with the cursor on its bracket. */
static dtp_status scan_container(scanner *s, int32_t self, int32_t depth)
{
    bool object = peek(s) == '{';
    int close = object ? '}' : ']';
    size_t start = s->at++;
    if (depth >= DTP_JSON_MAX_DEPTH) {
        return fail_at(s, start, "nested deeper than %d", DTP_JSON_MAX_DEPTH);
    }
    skip_space(s);
    if (peek(s) == close) {
        s->at++;
        return DTP_OK;
    }
    for (;;) {
        skip_space(s);
        DTP_TRY(object ? scan_member(s, self, depth + 1) : scan_value(s, self, s->at, depth + 1));
        skip_space(s);
        if (peek(s) == close) {
            s->at++;
            return DTP_OK;
        }
        if (peek(s) != ',') {
            return fail_expected(s, object ? "',' or '}'" : "',' or ']'");
        }
        s->at++;
    }
}

static dtp_status scan_value(scanner *s, int32_t parent, size_t key_offset, int32_t depth)
{
    int32_t self = -1;
    int c = peek(s);
    DTP_TRY(add_mark(s, parent, key_offset, &self));
    dtp_json_kind *kind = &s->out->marks[self].kind;
    if (c == '{' || c == '[') {
        *kind = c == '{' ? DTP_JSON_OBJECT : DTP_JSON_ARRAY;
        return scan_container(s, self, depth);
    }
    if (c == '"') {
        *kind = DTP_JSON_STRING;
        return scan_string(s);
    }
    if (c == '-' || is_digit(c)) {
        *kind = DTP_JSON_NUMBER;
        return scan_number(s);
    }
    if (scan_word(s, "true") || scan_word(s, "false")) {
        *kind = DTP_JSON_BOOL;
        return DTP_OK;
    }
    return scan_word(s, "null") ? DTP_OK : fail_expected(s, "a value");
}

dtp_status dtp_json__scan(const char *file, const char *text, size_t len, dtp_json_marks *out,
                          dtp_err *err)
{
    scanner s = {.file = file, .text = text, .len = len, .out = out, .err = err};
    if (len > DTP_JSON_MAX_BYTES) {
        return DTP_FAIL(err, DTP_RANGE, "%s: %zu bytes of JSON, the limit is %d", file, len,
                        DTP_JSON_MAX_BYTES);
    }
    skip_space(&s);
    DTP_TRY(scan_value(&s, -1, s.at, 0));
    skip_space(&s);
    return s.at == s.len ? DTP_OK : fail_expected(&s, "the end of the file");
}
