/* Strict JSON. Unknown keys are the caller's to reject (dtp_json_keys);
 * duplicate keys, wrong grammar, NaN/inf, trailing text, nesting deeper than DTP_JSON_MAX_DEPTH and
 * integers that are not exact are rejected here. Every value knows its line:column and its path, so
 * every error reads "FILE:LINE:COL: nodes[3].in: expected a list, found a number".
 */
#ifndef DTP_CORE_BASE_JSON_H
#define DTP_CORE_BASE_JSON_H

#include <stddef.h>

#include "core/base/status.h"

enum { DTP_JSON_MAX_DEPTH = 64 };

typedef struct dtp_json_doc dtp_json_doc;
typedef struct dtp_json dtp_json; /* one value; owned by its document */

typedef enum dtp_json_kind {
    DTP_JSON_NULL,
    DTP_JSON_BOOL,
    DTP_JSON_NUMBER,
    DTP_JSON_STRING,
    DTP_JSON_ARRAY,
    DTP_JSON_OBJECT
} dtp_json_kind;

dtp_status dtp_json_parse(const char *file, const char *text, size_t len, dtp_json_doc **out,
                          dtp_err *err) DTP_MUST_CHECK;
void dtp_json_destroy(dtp_json_doc *doc);
const dtp_json *dtp_json_root(const dtp_json_doc *doc);

dtp_json_kind dtp_json_kind_of(const dtp_json *v);
/* Elements of an array or members of an object; 0 for others. */
int32_t dtp_json_size(const dtp_json *v);
/* Element or member by index; borrowed. */
const dtp_json *dtp_json_at(const dtp_json *v, int32_t index);
/* Key of an object member (NULL for others). */
const char *dtp_json_key(const dtp_json *v);
/* Member by key, NULL when absent (or v is no object). */
const dtp_json *dtp_json_get(const dtp_json *v, const char *key);

/* Typed reads; DTP_INVALID with place and what was found. */
dtp_status dtp_json_int(const dtp_json *v, int64_t min, int64_t max, int64_t *out,
                        dtp_err *err) DTP_MUST_CHECK;
/* A size in bytes: an integer, or a text with a unit, "80GB" (core/base/number.h). */
dtp_status dtp_json_bytes(const dtp_json *v, int64_t min, int64_t max, int64_t *out,
                          dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_json_double(const dtp_json *v, double *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_json_bool(const dtp_json *v, bool *out, dtp_err *err) DTP_MUST_CHECK;
/* Borrowed, valid UTF-8 without NUL. */
dtp_status dtp_json_string(const dtp_json *v, const char **out, dtp_err *err) DTP_MUST_CHECK;
/* A string among the NULL-terminated names; *out is its index. */
dtp_status dtp_json_choice(const dtp_json *v, const char *const *names, int32_t *out,
                           dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_json_expect(const dtp_json *v, dtp_json_kind kind, dtp_err *err) DTP_MUST_CHECK;
/* Member that must be there. */
dtp_status dtp_json_require(const dtp_json *obj, const char *key, const dtp_json **out,
                            dtp_err *err) DTP_MUST_CHECK;
/* The same of members that must be there; get_kind gives the member itself. */
dtp_status dtp_json_get_int(const dtp_json *obj, const char *key, int64_t min, int64_t max,
                            int64_t *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_json_get_double(const dtp_json *obj, const char *key, double *out,
                               dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_json_get_bool(const dtp_json *obj, const char *key, bool *out,
                             dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_json_get_string(const dtp_json *obj, const char *key, const char **out,
                               dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_json_get_choice(const dtp_json *obj, const char *key, const char *const *names,
                               int32_t *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_json_get_kind(const dtp_json *obj, const char *key, dtp_json_kind kind,
                             const dtp_json **out, dtp_err *err) DTP_MUST_CHECK;
/* The root of a file: an object with "format" as given and no keys but these. */
dtp_status dtp_json_format(const dtp_json *root, const char *format, const char *const *keys,
                           dtp_err *err) DTP_MUST_CHECK;
/* Object all of whose keys are in the NULL-terminated list; names the first that is not. */
dtp_status dtp_json_keys(const dtp_json *obj, const char *const *allowed,
                         dtp_err *err) DTP_MUST_CHECK;

/* "FILE:LINE:COL: path: text" as DTP_INVALID. */
dtp_status dtp_json_fail(const dtp_json *v, dtp_err *err, const char *fmt, ...) DTP_PRINTF(3, 4);
enum { DTP_JSON_PLACE_BYTES = 800 };
/* "FILE:LINE:COL: path", without the path for the root. */
void dtp_json_place(const dtp_json *v, char *out, size_t size);
/* Puts "FILE:LINE:COL: path" before a failure from elsewhere. */
void dtp_json_prefix(const dtp_json *v, dtp_err *err);
/* Returns s, a failure with its place. */
dtp_status dtp_json_prefixed(const dtp_json *v, dtp_status s, dtp_err *err) DTP_MUST_CHECK;

#endif
