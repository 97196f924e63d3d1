/* One pass over a JSON text: RFC 8259 without extensions, UTF-8 without byte order mark, no NUL,
 * one value and nothing after it. */
#include "core/base/json_scan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"

typedef struct json_scanner {
    dtp_json_doc *doc;
    const char *text;
    size_t len, at;
    dtp_err *err;
} json_scanner;

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

DTP_PRINTF(3, 4)
static dtp_status fail_at(json_scanner *s, size_t offset, const char *fmt, ...)
{
    char what[256];
    int32_t line, col;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    dtp_json__place(s->text, offset, &line, &col);
    return DTP_FAIL(s->err, DTP_INVALID, "%s:%d:%d: %s", s->doc->file, line, col, what);
}

/* The byte at the cursor, -1 at the end. */
static int peek(const json_scanner *s)
{
    return s->at < s->len ? (unsigned char)s->text[s->at] : -1;
}

/* "expected X, found Y" with Y the byte at the cursor. */
static dtp_status fail_expected(json_scanner *s, const char *what)
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

static void skip_space(json_scanner *s)
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

/* ---- strings ---- */

/* Four hex digits at the cursor, -1 when they are not. */
static int32_t hex4(const json_scanner *s)
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

/* The code point of a \u escape, with the cursor behind the u; surrogates must come as a pair. */
static dtp_status scan_unicode_escape(json_scanner *s, size_t start, uint32_t *code)
{
    const int32_t high = hex4(s);
    if (high < 0) {
        return fail_at(s, start, "\\u needs four hexadecimal digits");
    }
    if (high == 0) {
        return fail_at(s, start, "\\u0000 is not allowed in a string");
    }
    s->at += 4;
    *code = (uint32_t)high;
    if (high < 0xD800 || high > 0xDFFF) {
        return DTP_OK;
    }
    int32_t low = -1;
    if (high < 0xDC00 && s->len - s->at >= 6 && s->text[s->at] == '\\' &&
        s->text[s->at + 1] == 'u') {
        s->at += 2;
        low = hex4(s);
        s->at += 4;
    }
    *code = 0x10000 + (((uint32_t)high & 0x3FFU) << 10 | ((uint32_t)low & 0x3FFU));
    return low >= 0xDC00 && low <= 0xDFFF ? DTP_OK
                                          : fail_at(s, start, "a lone surrogate in a \\u escape");
}

static dtp_status scan_escape(json_scanner *s, char **to)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const size_t start = s->at++;
    const int c = peek(s);
    if (c == 'u') {
        uint32_t code = 0;
        s->at++;
        DTP_TRY(scan_unicode_escape(s, start, &code));
        *to += dtp_utf8_put(code, *to);
        return DTP_OK;
    }
    const char *letter = c > 0 ? strchr(letters, c) : NULL;
    if (letter == NULL) {
        return fail_at(s, start, "unknown escape in a string");
    }
    *(*to)++ = meant[letter - letters];
    s->at++;
    return DTP_OK;
}

/* A string with the cursor on its opening quote; decoded it is never longer than in the text. */
static dtp_status scan_string(json_scanner *s)
{
    const size_t start = s->at++;
    char *to = s->doc->strings + s->at;
    for (;;) {
        const size_t plain = s->at;
        int c = peek(s);
        while (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') {
            s->at++;
            c = peek(s);
        }
        size_t n = 0;
        if (c >= 0x80) {
            n = dtp_utf8_next(s->text + s->at, s->len - s->at, NULL);
            if (n == 0) {
                return fail_at(s, s->at, "not UTF-8 (byte 0x%02x)", (unsigned)c);
            }
            s->at += n;
        }
        memcpy(to, s->text + plain, s->at - plain);
        to += s->at - plain;
        if (c < 0) {
            return fail_at(s, start, "the string that starts here does not end");
        }
        if (c < 0x20) {
            return fail_at(s, s->at, "control character 0x%02x in a string", (unsigned)c);
        }
        if (c == '"') {
            s->at++;
            *to = '\0';
            return DTP_OK;
        }
        if (c == '\\') {
            DTP_TRY(scan_escape(s, &to));
        }
    }
}

/* ---- numbers and words ---- */

static dtp_status scan_digits(json_scanner *s, const char *where)
{
    if (!is_digit(peek(s))) {
        return fail_expected(s, where);
    }
    while (is_digit(peek(s))) {
        s->at++;
    }
    return DTP_OK;
}

static dtp_status scan_number(json_scanner *s)
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

static bool scan_word(json_scanner *s, const char *word)
{
    size_t n = strlen(word);
    if (s->len - s->at < n || memcmp(s->text + s->at, word, n) != 0) {
        return false;
    }
    s->at += n;
    return true;
}

/* ---- values ---- */

static dtp_status add_value(json_scanner *s, int32_t parent, size_t key_offset, int32_t *out)
{
    dtp_json_doc *doc = s->doc;
    if (doc->n == DTP_JSON_MAX_VALUES) {
        return fail_at(s, s->at, "more than %d values", DTP_JSON_MAX_VALUES);
    }
    if (doc->n == doc->capacity) {
        const int32_t capacity = doc->capacity == 0 ? 64 : 2 * doc->capacity;
        dtp_json *values = realloc(doc->values, (size_t)capacity * sizeof *values);
        DTP_TRY(DTP_MEMORY(s->err, values));
        doc->values = values;
        doc->capacity = capacity;
    }
    doc->values[doc->n] = (dtp_json){.doc = doc,
                                     .offset = (uint32_t)s->at,
                                     .key_offset = (uint32_t)key_offset,
                                     .parent = parent,
                                     .kind = DTP_JSON_NULL};
    if (parent >= 0) {
        doc->values[doc->n].index = doc->values[parent].size++;
    }
    *out = doc->n++;
    return DTP_OK;
}

static dtp_status scan_value(json_scanner *s, int32_t parent, size_t key_offset, int32_t depth);

/* An array or an object, with the cursor on its bracket. */
static dtp_status scan_container(json_scanner *s, int32_t self, int32_t depth)
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
        const size_t key = s->at;
        if (object) {
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
        }
        DTP_TRY(scan_value(s, self, key, depth + 1));
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

static dtp_status scan_value(json_scanner *s, int32_t parent, size_t key_offset, int32_t depth)
{
    int32_t self = -1;
    int c = peek(s);
    DTP_TRY(add_value(s, parent, key_offset, &self));
    dtp_json_kind *kind = &s->doc->values[self].kind;
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

dtp_status dtp_json__scan(dtp_json_doc *doc, dtp_err *err)
{
    json_scanner s = {.doc = doc, .text = doc->text, .len = doc->len, .err = err};
    skip_space(&s);
    DTP_TRY(scan_value(&s, -1, s.at, 0));
    skip_space(&s);
    return s.at == s.len ? DTP_OK : fail_expected(&s, "the end of the file");
}
