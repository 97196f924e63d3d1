/* Deterministic JSON text: members in the order written, two-space indent (short arrays of scalars
 * on one line), doubles with the fewest digits that read back exactly, NaN/inf written as null. */
#ifndef DTP_CORE_BASE_JSON_WRITER_H
#define DTP_CORE_BASE_JSON_WRITER_H

#include "core/base/strbuf.h"

typedef struct dtp_json_writer {
    dtp_strbuf buf; /* the text; free with dtp_strbuf_free */
    int32_t depth;
    bool need_comma;
    uint64_t compact_levels; /* bit d: the container opened at depth d is written on one line */
} dtp_json_writer;

/* Start from `dtp_json_writer w = {0};`. `key` is NULL inside arrays and at the top. */
void dtp_json_begin_object(dtp_json_writer *w, const char *key);
/* The same, on one line. */
void dtp_json_begin_line(dtp_json_writer *w, const char *key);
void dtp_json_end_object(dtp_json_writer *w);
void dtp_json_begin_array(dtp_json_writer *w, const char *key, bool compact);
void dtp_json_end_array(dtp_json_writer *w);
void dtp_json_write_string(dtp_json_writer *w, const char *key, const char *value);
/* A text that was put together, or that it is incomplete; frees it. */
void dtp_json_write_text(dtp_json_writer *w, const char *key, dtp_strbuf *text);
void dtp_json_write_int(dtp_json_writer *w, const char *key, int64_t value);
/* An array on one line. */
void dtp_json_write_ints(dtp_json_writer *w, const char *key, int32_t n, const int64_t *values);
void dtp_json_write_double(dtp_json_writer *w, const char *key, double value);
void dtp_json_write_bool(dtp_json_writer *w, const char *key, bool value);
void dtp_json_write_null(dtp_json_writer *w, const char *key);
/* Shortest decimal text that reads back as exactly `value` ("null" for NaN and inf). */
void dtp_double_print(double value, char out[32]);

#endif
