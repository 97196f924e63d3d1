/* A growing text buffer. */
#include "core/base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(dtp_strbuf *b, size_t extra)
{
    size_t need = b->len + extra + 1;
    if (b->failed) {
        return false;
    }
    if (need > b->capacity) {
        size_t capacity = b->capacity < 128 ? 128 : b->capacity;
        while (capacity < need) {
            capacity *= 2;
        }
        char *text = realloc(b->text, capacity);
        if (text == NULL) {
            b->failed = true;
            return false;
        }
        b->text = text;
        b->capacity = capacity;
    }
    return true;
}

void dtp_strbuf_add(dtp_strbuf *b, const char *text)
{
    size_t n = strlen(text);
    if (reserve(b, n)) {
        memcpy(b->text + b->len, text, n + 1);
        b->len += n;
    }
}

void dtp_strbuf_addf(dtp_strbuf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !reserve(b, (size_t)n)) {
        b->failed = true;
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(b->text + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
}

void dtp_strbuf_add_xml(dtp_strbuf *b, const char *text)
{
    for (; *text != '\0'; text++) {
        const char one[2] = {*text, '\0'};
        dtp_strbuf_add(b, *text == '&'    ? "&amp;"
                          : *text == '<'  ? "&lt;"
                          : *text == '>'  ? "&gt;"
                          : *text == '"'  ? "&quot;"
                          : *text == '\'' ? "&#39;"
                                          : one);
    }
}

void dtp_strbuf_join(dtp_strbuf *b, dtp_strbuf *from)
{
    dtp_strbuf_add(b, dtp_strbuf_text(from));
    b->failed = b->failed || from->failed;
    dtp_strbuf_free(from);
}

void dtp_strbuf_free(dtp_strbuf *b)
{
    free(b->text);
    *b = (dtp_strbuf){0};
}

const char *dtp_strbuf_text(const dtp_strbuf *b)
{
    return b->text == NULL ? "" : b->text;
}

/* The column where what continues a line begins: that of the last column of a table (after two
 * spaces, not beyond 3/5 of the width), else a little more than the line's own indent. */
static size_t continued_at(const char *line, size_t n, size_t width)
{
    const size_t own = strspn(line, " ");
    size_t found = own > 0 ? own + 2 : 4, column = own;
    for (size_t i = own; i < n && column <= 3 * width / 5; i++) {
        if (i > own + 1 && line[i] != ' ' && line[i - 1] == ' ' && line[i - 2] == ' ') {
            found = column;
        }
        column += ((unsigned char)line[i] & 0xC0U) != 0x80U ? 1 : 0;
    }
    return found < width / 2 + width / 8 ? found : 4;
}

/* Bytes of the text that take `room` columns, up to n. */
static size_t fitting(const char *text, size_t n, size_t room)
{
    size_t i = 0;
    for (size_t columns = 0; i < n; i++) {
        columns += ((unsigned char)text[i] & 0xC0U) != 0x80U ? 1 : 0;
        if (columns > room) {
            break;
        }
    }
    return i;
}

/* Whether a line may end at its space i: not between a number and its unit. */
static bool may_break(const char *line, size_t i)
{
    static const char *const units[] = {"s",   "ms",  "us",  "ns",  "%",   "B",
                                        "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (line[i] != ' ' || i == 0 || line[i - 1] < '0' || line[i - 1] > '9') {
        return line[i] == ' ';
    }
    const size_t n = strcspn(line + i + 1, " ,;:).\n");
    for (size_t k = 0; k < sizeof units / sizeof units[0]; k++) {
        if (strlen(units[k]) == n && strncmp(units[k], line + i + 1, n) == 0) {
            return false;
        }
    }
    return true;
}

/* Appends a line of n bytes, broken, without spaces at its end. */
static void add_broken(dtp_strbuf *b, const char *line, size_t n, size_t width)
{
    while (n > 0 && line[n - 1] == ' ') {
        n--;
    }
    const size_t indent = continued_at(line, n, width);
    size_t room = width, lead = strspn(line, " ");
    for (size_t fits = fitting(line, n, room); fits < n; fits = fitting(line, n, room)) {
        size_t cut = fits;
        while (cut > lead && !may_break(line, cut)) {
            cut--;
        }
        if (cut <= lead) { /* a word longer than a line */
            cut = fits;
            while (cut < n && !may_break(line, cut)) {
                cut++;
            }
        }
        if (cut == n) {
            break;
        }
        const size_t next = cut + strspn(line + cut, " ");
        while (cut > 0 && line[cut - 1] == ' ') {
            cut--;
        }
        dtp_strbuf_addf(b, "%.*s\n%*s", (int)cut, line, (int)indent, "");
        line += next;
        n -= next;
        room = width - indent;
        lead = 0;
    }
    dtp_strbuf_addf(b, "%.*s", (int)n, line);
}

void dtp_strbuf_wrap(dtp_strbuf *b, size_t from, size_t width)
{
    dtp_strbuf out = {0};
    if (b->failed || b->text == NULL) {
        return;
    }
    dtp_strbuf_addf(&out, "%.*s", (int)from, b->text);
    for (const char *line = b->text + from; *line != '\0';) {
        const size_t n = strcspn(line, "\n");
        add_broken(&out, line, n, width);
        dtp_strbuf_add(&out, line[n] == '\n' ? "\n" : "");
        line += n + (line[n] == '\n' ? 1 : 0);
    }
    out.failed = out.failed || (b->len > 0 && out.text == NULL);
    dtp_strbuf_free(b);
    *b = out;
}
