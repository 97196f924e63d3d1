/* JSON that other systems write (config.json, the index of a checkpoint, the graphs in a .pt2),
 * read by cJSON, which is included in foreign_json.c alone (decision 56). Size, depth and number of
 * values are bounded, and no object has a key twice. Numbers are doubles: an integer beyond 2^53 is
 * refused where one is read. cJSON keeps no places: errors read "FILE: layers[3].size: what". */
#ifndef DTP_INTEROP_FOREIGN_JSON_H
#define DTP_INTEROP_FOREIGN_JSON_H

#include <stddef.h>

#include "core/base/status.h"

enum { DTP_FOREIGN_MAX_DEPTH = 100, DTP_FOREIGN_MAX_VALUES = 1 << 24 };

typedef struct dtp_foreign_doc dtp_foreign_doc;
typedef struct cJSON dtp_foreign; /* one value; owned by its document */

typedef enum dtp_foreign_kind {
    DTP_FOREIGN_NULL,
    DTP_FOREIGN_BOOL,
    DTP_FOREIGN_NUMBER,
    DTP_FOREIGN_STRING,
    DTP_FOREIGN_LIST,
    DTP_FOREIGN_OBJECT
} dtp_foreign_kind;

/* `file` names the text in errors and is copied. DTP_INVALID, DTP_RANGE (too large), DTP_NOMEM. */
dtp_status dtp_foreign_parse(const char *file, const char *text, size_t len, dtp_foreign_doc **out,
                             dtp_err *err) DTP_MUST_CHECK;
/* The same of a file of at most `most` bytes. */
dtp_status dtp_foreign_read(const char *path, size_t most, dtp_foreign_doc **out,
                            dtp_err *err) DTP_MUST_CHECK;
void dtp_foreign_destroy(dtp_foreign_doc *doc);
const dtp_foreign *dtp_foreign_root(const dtp_foreign_doc *doc);

dtp_foreign_kind dtp_foreign_kind_of(const dtp_foreign *v);
/* Elements or members, in the order of the text: for (v = first(list); v != NULL; v = next(v)).
 * None of NULL. */
const dtp_foreign *dtp_foreign_first(const dtp_foreign *v);
const dtp_foreign *dtp_foreign_next(const dtp_foreign *v);
int32_t dtp_foreign_size(const dtp_foreign *v);    /* counts them */
const char *dtp_foreign_key(const dtp_foreign *v); /* of a member, NULL of others */
/* Member by key, a linear search; NULL when v is NULL or no object, or has none. */
const dtp_foreign *dtp_foreign_get(const dtp_foreign *v, const char *key);
bool dtp_foreign_is(const dtp_foreign *v, dtp_foreign_kind kind); /* false of NULL */

/* Typed reads of a value that is there; DTP_INVALID naming file, path and what was found. */
dtp_status dtp_foreign_require(const dtp_foreign_doc *doc, const dtp_foreign *object,
                               const char *key, dtp_foreign_kind kind, const dtp_foreign **out,
                               dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_foreign_int(const dtp_foreign_doc *doc, const dtp_foreign *v, int64_t min,
                           int64_t max, int64_t *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_foreign_double(const dtp_foreign_doc *doc, const dtp_foreign *v, double *out,
                              dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_foreign_bool(const dtp_foreign_doc *doc, const dtp_foreign *v, bool *out,
                            dtp_err *err) DTP_MUST_CHECK;
/* Borrowed, valid UTF-8. */
dtp_status dtp_foreign_string(const dtp_foreign_doc *doc, const dtp_foreign *v, const char **out,
                              dtp_err *err) DTP_MUST_CHECK;

/* "FILE: path: text" as DTP_INVALID. */
dtp_status dtp_foreign_fail(const dtp_foreign_doc *doc, const dtp_foreign *v, dtp_err *err,
                            const char *fmt, ...) DTP_PRINTF(4, 5);
/* Puts "FILE: path" before a failure from elsewhere and returns it. */
dtp_status dtp_foreign_prefixed(const dtp_foreign_doc *doc, const dtp_foreign *v, dtp_status s,
                                dtp_err *err) DTP_MUST_CHECK;

#endif
