/* The grammar pass of the JSON reader: RFC 8259 without extensions, UTF-8 without byte order mark,
 * no NUL, one value and nothing after it. Records every value in document order with its place, so
 * that the values of the tree that cJSON builds can be matched to places by walking it in the same
 * order. */
#ifndef DTP_CORE_BASE_JSON_SCAN_H
#define DTP_CORE_BASE_JSON_SCAN_H

#include <stddef.h>

#include "core/base/json.h"

enum {
    DTP_JSON_MAX_BYTES = 1 << 30,
    DTP_JSON_MAX_VALUES = 1 << 22,
    DTP_JSON_MAX_NUMBER_BYTES = 60 /* cJSON cuts longer numbers */
};

/* One value. Containers list their children by `parent`; `index` counts within the parent. */
typedef struct dtp_json_mark {
    uint32_t offset;     /* of the first byte of the value */
    uint32_t key_offset; /* of the key's opening quote, = offset without a key */
    int32_t parent;      /* -1 for the root */
    int32_t index;
    int32_t size; /* number of children */
    dtp_json_kind kind;
} dtp_json_mark;

typedef struct dtp_json_marks {
    dtp_json_mark *marks; /* malloc'ed, the caller frees it, also after a failure */
    int32_t n, capacity;
} dtp_json_marks;

/* DTP_INVALID "FILE:LINE:COL: what". */
dtp_status dtp_json__scan(const char *file, const char *text, size_t len, dtp_json_marks *out,
                          dtp_err *err) DTP_MUST_CHECK;

/* Line and column, both from 1; the column counts code points. */
void dtp_json__place(const char *text, size_t offset, int32_t *line, int32_t *col);

#endif
