/* Names of a template (docs/formats/template.md) and what they are for one config.json: keys of the
 * file and switches of the template. A value is found when it is asked for. */
#ifndef DTP_IMPORTERS_HF_SCOPE_H
#define DTP_IMPORTERS_HF_SCOPE_H

#include "core/base/arena.h"
#include "core/base/json.h"
#include "interop/foreign_json.h"

typedef enum dtp_scope_kind {
    DTP_SCOPE_NONE, /* absent, or null */
    DTP_SCOPE_BOOL,
    DTP_SCOPE_INT,
    DTP_SCOPE_REAL,
    DTP_SCOPE_TEXT
} dtp_scope_kind;

typedef struct dtp_scope_value {
    dtp_scope_kind kind;
    int64_t i; /* of a BOOL 0 or 1 */
    double x;
    const char *text;
} dtp_scope_value;

/* "4096", "1e-05", "true", "silu", "null"; from `arena`, NULL when out of memory. */
const char *dtp_scope_print(const dtp_scope_value *v, dtp_arena *arena);

typedef struct dtp_scope_name {
    const char *name;
    const dtp_json *spec;     /* of a key: what the template says of it; NULL: a switch */
    const dtp_json *given;    /* a key's default, a switch's value; NULL: none */
    const dtp_foreign *found; /* of a key: what the file says; NULL: nothing */
    const char *found_at;     /* under which path */
    bool known, busy;         /* `value` was found; is being looked for */
    dtp_scope_value value;
} dtp_scope_name;

/* Keys that were not taken from the file as they stand there, or not at all. */
typedef struct dtp_scope_notes {
    int32_t n, room;
    const char **lines; /* "hidden_act = relu" */
} dtp_scope_notes;

typedef struct dtp_scope {
    dtp_arena *arena;
    const dtp_foreign_doc *config;
    const char *family;
    bool approximate; /* unsupported values are noted, and replaced by supported ones */
    int32_t n;
    dtp_scope_name *names;
    dtp_scope_notes unsupported, left_out;
} dtp_scope;

dtp_scope_name *dtp_scope_find(const dtp_scope *scope, const char *name);

/* DTP_INVALID: a value of the file is of another kind or not supported, an expression cannot be
 * evaluated. All messages name the file. */
dtp_status dtp_scope_get(dtp_scope *scope, dtp_scope_name *name, dtp_scope_value *out,
                         dtp_err *err) DTP_MUST_CHECK;

/* A scalar of a template: a literal, a text with ${EXPRESSION}, a function of scalars, or a choice
 * among them. */
dtp_status dtp_scope_eval(dtp_scope *scope, const dtp_json *v, dtp_scope_value *out,
                          dtp_err *err) DTP_MUST_CHECK;
/* Whether v is a function of scalars: {"least": [..]}, {"product": [..]}, {"quotient": [..]},
 * {"sqrt": x}, {"floor": x}. */
bool dtp_scope_is_function(const dtp_json *v);

/* Follows choices {"if": C, "then": A, "else": B} to the value that they stand for, an object with
 * "if" and its own members to itself; *v is NULL when there is none. */
dtp_status dtp_scope_choose(dtp_scope *scope, const dtp_json **v, dtp_err *err) DTP_MUST_CHECK;
/* A condition: names joined by '&', each with an optional '!' before it or '==TEXT' behind it. A
 * name holds when its value is neither absent nor false. */
dtp_status dtp_scope_holds(dtp_scope *scope, const dtp_json *condition, bool *out,
                           dtp_err *err) DTP_MUST_CHECK;

dtp_status dtp_scope_note(dtp_scope *scope, dtp_scope_notes *notes, const char *line,
                          dtp_err *err) DTP_MUST_CHECK;
/* What a message says of a value of the file: "4096", "\"silu\"", "a list". */
const char *dtp_scope_foreign_text(const dtp_foreign *v, dtp_arena *arena);

#endif
