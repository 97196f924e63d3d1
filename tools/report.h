/* Field tables: what a report says is one list of fields, from which JSON and tables of text come.
 */
#ifndef DTP_TOOLS_REPORT_H
#define DTP_TOOLS_REPORT_H

#include "core/base/json_writer.h"
#include "core/layout/mesh.h"

typedef enum tool_field_kind {
    FIELD_IS_END, /* ends a list of fields */
    FIELD_IS_ABSENT,
    FIELD_IS_NULL,
    FIELD_IS_INT,
    FIELD_IS_BYTES, /* an integer; with its unit in tables */
    FIELD_IS_REAL,
    FIELD_IS_BOOL,
    FIELD_IS_TEXT,   /* null when NULL */
    FIELD_IS_NOTE,   /* text that only tables have, in their last column; it is freed */
    FIELD_IS_BUFFER, /* text; it is freed */
    FIELD_IS_DIMS,   /* names of mesh dims; "x+y" in tables */
    FIELD_IS_MESH,   /* the members that dtp_mesh_write writes */
    FIELD_IS_OBJECT,
    FIELD_IS_INTS, /* arrays on one line */
    FIELD_IS_REALS,
    FIELD_IS_TEXTS, /* null for NULL */
    FIELD_IS_LINES, /* texts, one on a line */
    FIELD_IS_LIST,  /* objects, by rows */
    FIELD_IS_MAP    /* an object; rows are its members */
} tool_field_kind;

/* Where the rows of a list go: into a JSON array or object, or into a table of text. */
typedef struct tool_rows tool_rows;
/* Puts row i of a list into `rows`, by tool_row. */
typedef void (*tool_row_of)(tool_rows *rows, const void *user, int32_t i);

typedef struct tool_field {
    tool_field_kind kind;
    int32_t n; /* of arrays and lists */
    const char *key;
    union {
        int64_t i;
        double x;
        bool b;
        const char *text;
        dtp_strbuf *note;
        const struct tool_field *fields;
        const int64_t *ints;
        const double *reals;
        const char *const *texts;
        tool_row_of row;
    };
    const void *user; /* of lists */
    const dtp_mesh *mesh;
    dtp_mesh_set set;
} tool_field;

/* clang-format off */
#define FIELD_OF(is, k, member, value) {.kind = (is), .key = (k), .member = (value)}
#define FIELD_IF(on, is) ((on) ? (is) : FIELD_IS_ABSENT)
#define FIELD_INT(k, value) FIELD_OF(FIELD_IS_INT, k, i, value)
#define FIELD_BYTES(k, value) FIELD_OF(FIELD_IS_BYTES, k, i, value)
#define FIELD_REAL(k, value) FIELD_OF(FIELD_IS_REAL, k, x, value)
#define FIELD_BOOL(k, value) FIELD_OF(FIELD_IS_BOOL, k, b, value)
#define FIELD_TEXT(k, value) FIELD_OF(FIELD_IS_TEXT, k, text, value)
#define FIELD_NOTE(value) FIELD_OF(FIELD_IS_NOTE, NULL, note, value)
#define FIELD_BUFFER(k, value) FIELD_OF(FIELD_IS_BUFFER, k, note, value)
#define FIELD_DIMS(k, m, s) {.kind = FIELD_IS_DIMS, .key = (k), .mesh = (m), .set = (s)}
#define FIELD_MESH(m) FIELD_OF(FIELD_IS_MESH, NULL, mesh, m)
#define FIELD_MESH_IF(on, m) FIELD_OF(FIELD_IF(on, FIELD_IS_MESH), NULL, mesh, m)
#define FIELD_OBJECT(k, ...) FIELD_OF(FIELD_IS_OBJECT, k, fields, TOOL_FIELDS(__VA_ARGS__))
#define FIELD_GROUP(k, members) FIELD_OF(FIELD_IS_OBJECT, k, fields, members)
#define FIELD_INTS(k, count, values) \
    {.kind = FIELD_IS_INTS, .key = (k), .ints = (values), .n = (count)}
#define FIELD_REALS(k, count, values) \
    {.kind = FIELD_IS_REALS, .key = (k), .reals = (values), .n = (count)}
#define FIELD_TEXTS(k, count, values) \
    {.kind = FIELD_IS_TEXTS, .key = (k), .texts = (values), .n = (count)}
#define FIELD_LINES_IF(on, k, count, values) \
    {.kind = FIELD_IF(on, FIELD_IS_LINES), .key = (k), .texts = (values), .n = (count)}
#define FIELD_LIST(k, count, row_of, with) \
    {.kind = FIELD_IS_LIST, .key = (k), .row = (row_of), .user = (with), .n = (count)}
#define FIELD_MAP(k, count, row_of, with) \
    {.kind = FIELD_IS_MAP, .key = (k), .row = (row_of), .user = (with), .n = (count)}
/* Fields that are null, or not there, without a condition. */
#define FIELD_MAP_IF(on, k, count, row_of, with) \
    {.kind = FIELD_IF(on, FIELD_IS_MAP), .key = (k), .row = (row_of), .user = (with), .n = (count)}

#define FIELD_INT_OR_NULL(on, k, value) FIELD_OF((on) ? FIELD_IS_INT : FIELD_IS_NULL, k, i, value)
#define FIELD_INT_IF(on, k, value) FIELD_OF(FIELD_IF(on, FIELD_IS_INT), k, i, value)
#define FIELD_REAL_IF(on, k, value) FIELD_OF(FIELD_IF(on, FIELD_IS_REAL), k, x, value)
#define FIELD_BOOL_IF(on, k, value) FIELD_OF(FIELD_IF(on, FIELD_IS_BOOL), k, b, value)
#define FIELD_TEXT_IF(on, k, value) FIELD_OF(FIELD_IF(on, FIELD_IS_TEXT), k, text, value)
#define FIELD_INTS_IF(on, k, count, values) \
    {.kind = FIELD_IF(on, FIELD_IS_INTS), .key = (k), .ints = (values), .n = (count)}
#define FIELD_LIST_IF(on, k, count, row_of, with) \
    {.kind = FIELD_IF(on, FIELD_IS_LIST), .key = (k), .row = (row_of), .user = (with), .n = (count)}
#define FIELD_OBJECT_IF(on, k, ...) \
    FIELD_OF(FIELD_IF(on, FIELD_IS_OBJECT), k, fields, TOOL_FIELDS(__VA_ARGS__))
#define FIELD_OBJECT_OR_NULL(on, k, ...) \
    FIELD_OF((on) ? FIELD_IS_OBJECT : FIELD_IS_NULL, k, fields, TOOL_FIELDS(__VA_ARGS__))
#define TOOL_FIELDS(...) ((const tool_field[]){__VA_ARGS__, {.kind = FIELD_IS_END}})
/* clang-format on */

/* Throughput of a predicted step of so many devices; nothing where the model has no tokens. */
#define TOKEN_FIELDS(p, devices)                                                                   \
    FIELD_REAL_IF((p)->tokens_per_s > 0.0, "tokens_per_s", (p)->tokens_per_s),                     \
        FIELD_REAL_IF((p)->tokens_per_s > 0.0, "tokens_per_s_per_device",                          \
                      (p)->tokens_per_s / (devices)),                                              \
        FIELD_REAL_IF((p)->mfu > 0.0, "mfu", (p)->mfu),                                            \
        FIELD_REAL_IF((p)->vain > 0.0, "in_vain", (p)->vain)

/* What stands beside times of these rates (tool_rates; NULL: not known): "" but for a datasheet's.
 */
const char *tool_rates_note(const char *rates);

/* A report as JSON: an object that begins with its format, such as "dtp.explain/1"... */
void tool_report_begin(dtp_json_writer *w, const char *format);
/* ... and ends the line. */
void tool_report_end(dtp_json_writer *w);
/* Both, and members of fields between them. */
void tool_report(dtp_json_writer *w, const char *format, const tool_field *fields);
/* Members of the open object; an object of its own (key NULL in arrays). */
void tool_write(dtp_json_writer *w, const tool_field *fields);
void tool_write_object(dtp_json_writer *w, const char *key, const tool_field *fields);

/* The row of a table has the first fields, one for each column. */
void tool_row(tool_rows *rows, const tool_field *fields);

/* Rows of what stages send (dtp_pipeline): once for each message that goes between two of them. */
void tool_send_row(tool_rows *rows, const void *user, int32_t i);
/* Members of a map, of `user`: count and bytes by kind of collective (dtp_prediction); values by
 * name (dtp_counters). */
void tool_total_row(tool_rows *rows, const void *user, int32_t i);
void tool_counter_row(tool_rows *rows, const void *user, int32_t i);

typedef struct tool_column {
    const char *head; /* NULL ends the columns */
    int32_t width;    /* < 0: aligned to the left; the last may be 0 */
} tool_column;
/* Heads, then n rows. */
void tool_print_table(dtp_strbuf *out, const tool_column *columns, int32_t n, tool_row_of row,
                      const void *user);

/* Prints a report on standard output and frees it: text for people as tools/look.h says; JSON,
 * drawings and what other programs read as it is. */
dtp_status tool_put_text(dtp_strbuf *report, dtp_err *err) DTP_MUST_CHECK;
dtp_status tool_put(dtp_strbuf *report, dtp_err *err) DTP_MUST_CHECK;
/* As it is into a file (NULL: standard output). */
dtp_status tool_put_in(const char *file, dtp_strbuf *report, dtp_err *err) DTP_MUST_CHECK;
/* Writes a product to a file (NULL: leaves it out), then prints a report, which is text or goes out
 * as it is; frees both. Nothing is written when memory ran out for either. */
dtp_status tool_put_both(const char *file, dtp_strbuf *product, dtp_strbuf *report, bool text,
                         dtp_err *err) DTP_MUST_CHECK;

#endif
