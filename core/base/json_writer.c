/* Deterministic JSON text. */
#include "core/base/json_writer.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_compact(const dtp_json_writer *w)
{
    return w->depth > 0 && (w->compact_levels >> (w->depth - 1) & 1U) != 0;
}

static void new_line(dtp_json_writer *w)
{
    dtp_strbuf_add(&w->buf, "\n");
    for (int32_t i = 0; i < w->depth; i++) {
        dtp_strbuf_add(&w->buf, "  ");
    }
}

static void add_quoted(dtp_strbuf *b, const char *text)
{
    char chunk[8] = {0};
    dtp_strbuf_add(b, "\"");
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            (void)snprintf(chunk, sizeof chunk, "\\%c", c);
        } else if (c == '\n') {
            (void)snprintf(chunk, sizeof chunk, "\\n");
        } else if (c < 0x20) {
            (void)snprintf(chunk, sizeof chunk, "\\u%04x", (unsigned)c);
        } else {
            chunk[0] = (char)c;
            chunk[1] = '\0';
        }
        dtp_strbuf_add(b, chunk);
    }
    dtp_strbuf_add(b, "\"");
}

/* Comma, line break and key: everything before a value. */
static void begin_value(dtp_json_writer *w, const char *key)
{
    if (w->need_comma) {
        dtp_strbuf_add(&w->buf, ",");
    }
    if (w->depth > 0) {
        if (!is_compact(w)) {
            new_line(w);
        } else if (w->need_comma) {
            dtp_strbuf_add(&w->buf, " ");
        }
    }
    if (key != NULL) {
        add_quoted(&w->buf, key);
        dtp_strbuf_add(&w->buf, ": ");
    }
    w->need_comma = true;
}

static void begin_container(dtp_json_writer *w, const char *key, const char *open, bool compact)
{
    bool inside_compact = is_compact(w);
    begin_value(w, key);
    dtp_strbuf_add(&w->buf, open);
    assert(w->depth < 64);
    uint64_t bit = UINT64_C(1) << w->depth;
    w->compact_levels =
        compact || inside_compact ? w->compact_levels | bit : w->compact_levels & ~bit;
    w->depth++;
    w->need_comma = false;
}

static void end_container(dtp_json_writer *w, const char *close)
{
    bool compact = is_compact(w), empty = !w->need_comma;
    assert(w->depth > 0);
    w->depth--;
    if (!compact && !empty) {
        new_line(w);
    }
    dtp_strbuf_add(&w->buf, close);
    w->need_comma = true;
}

void dtp_json_begin_object(dtp_json_writer *w, const char *key)
{
    begin_container(w, key, "{", false);
}

void dtp_json_begin_line(dtp_json_writer *w, const char *key)
{
    begin_container(w, key, "{", true);
}

void dtp_json_end_object(dtp_json_writer *w)
{
    end_container(w, "}");
}

void dtp_json_begin_array(dtp_json_writer *w, const char *key, bool compact)
{
    begin_container(w, key, "[", compact);
}

void dtp_json_end_array(dtp_json_writer *w)
{
    end_container(w, "]");
}

void dtp_json_write_string(dtp_json_writer *w, const char *key, const char *value)
{
    begin_value(w, key);
    add_quoted(&w->buf, value);
}

void dtp_json_write_text(dtp_json_writer *w, const char *key, dtp_strbuf *text)
{
    dtp_json_write_string(w, key, dtp_strbuf_text(text));
    w->buf.failed = w->buf.failed || text->failed;
    dtp_strbuf_free(text);
}

void dtp_json_write_int(dtp_json_writer *w, const char *key, int64_t value)
{
    begin_value(w, key);
    dtp_strbuf_addf(&w->buf, "%" PRId64, value);
}

void dtp_json_write_ints(dtp_json_writer *w, const char *key, int32_t n, const int64_t *values)
{
    dtp_json_begin_array(w, key, true);
    for (int32_t i = 0; i < n; i++) {
        dtp_json_write_int(w, NULL, values[i]);
    }
    dtp_json_end_array(w);
}

void dtp_json_write_double(dtp_json_writer *w, const char *key, double value)
{
    char text[32];
    dtp_double_print(value, text);
    begin_value(w, key);
    dtp_strbuf_add(&w->buf, text);
}

void dtp_json_write_bool(dtp_json_writer *w, const char *key, bool value)
{
    begin_value(w, key);
    dtp_strbuf_add(&w->buf, value ? "true" : "false");
}

void dtp_json_write_null(dtp_json_writer *w, const char *key)
{
    begin_value(w, key);
    dtp_strbuf_add(&w->buf, "null");
}

void dtp_double_print(double value, char out[32])
{
    if (!isfinite(value)) {
        (void)snprintf(out, 32, "null");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(out, 32, "%.*g", digits, value);
        double back = strtod(out, NULL);
        if (back <= value && back >= value) {
            return;
        }
    }
}
