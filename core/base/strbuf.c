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

/* Appends a line of n bytes, broken. */
static void add_broken(dtp_strbuf *b, const char *line, size_t n, size_t width)
{
    static const char indent[] = "    ";
    size_t room = width;
    while (n > room) {
        size_t cut = room;
        while (cut > 0 && line[cut] != ' ') {
            cut--;
        }
        while (cut == 0 && line[room] != ' ' && room < n) { /* a word longer than a line */
            room++;
        }
        cut = cut == 0 ? room : cut;
        if (cut == n) {
            break;
        }
        size_t end = cut;
        while (end > 0 && line[end - 1] == ' ') {
            end--;
        }
        dtp_strbuf_addf(b, "%.*s\n%s", (int)end, line, indent);
        line += cut + 1;
        n -= cut + 1;
        room = width - (sizeof indent - 1);
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
