/* One pass over a JSON text: RFC 8259 without extensions, UTF-8 without byte order mark, no NUL,
 * one value and nothing after it. Records every value in document order with its place and decodes
 * the strings. planner/problem/json_stream stays a second reader: it reads gzip files of hundreds
 * of megabytes of which neither the text nor the values may be in memory, which this scanner
 * records. Strings and unusual numbers it hands to this scanner, so that the grammar has one
 * home. */
#ifndef DTP_CORE_BASE_JSON_SCAN_H
#define DTP_CORE_BASE_JSON_SCAN_H

#include <stddef.h>

#include "core/base/json.h"

enum {
    DTP_JSON_MAX_BYTES = 1 << 30,
    DTP_JSON_MAX_VALUES = 1 << 22,
    DTP_JSON_MAX_NUMBER_BYTES = 60
};

/* One value. Containers list their children by `parent`; `index` counts within the parent. */
struct dtp_json {
    const dtp_json_doc *doc;
    uint32_t offset;     /* of the first byte of the value */
    uint32_t key_offset; /* of the key's opening quote, = offset without a key */
    int32_t parent;      /* -1 for the root */
    int32_t index;
    int32_t size;  /* number of children */
    int32_t first; /* of the children, in doc->children and doc->sorted */
    dtp_json_kind kind;
};

struct dtp_json_doc {
    char *file, *text;
    size_t len;
    char *strings; /* by offset in the text, behind the opening quote: decoded, with its NUL */
    int32_t n, capacity;
    dtp_json *values;          /* document order; 0 is the root */
    const dtp_json **children; /* grouped by parent, document order */
    const dtp_json **sorted;   /* the same groups, members ordered by key */
};

/* Fills values and strings of a document that has file, text and room for strings.
 * DTP_INVALID "FILE:LINE:COL: what". */
dtp_status dtp_json__scan(dtp_json_doc *doc, dtp_err *err) DTP_MUST_CHECK;

/* Line and column, both from 1; the column counts code points. */
void dtp_json__place(const char *text, size_t offset, int32_t *line, int32_t *col);

#endif
