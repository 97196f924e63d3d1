/* Names of a template (docs/formats/template.md) and what they are for one config.json: keys of
 * the file and switches of the template. */
#include "importers/hf/scope.h"

#include <math.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "core/graph/model/expr.h"

#define LARGEST_EXACT ((INT64_C(1) << 53) - 1)
#define LARGEST_SIZE ((INT64_C(1) << 48) - 1)

dtp_scope_name *dtp_scope_find(const dtp_scope *scope, const char *name)
{
    for (int32_t i = 0; i < scope->n; i++) {
        if (strcmp(scope->names[i].name, name) == 0) {
            return &scope->names[i];
        }
    }
    return NULL;
}

const char *dtp_scope_print(const dtp_scope_value *v, dtp_arena *arena)
{
    char number[32];
    switch (v->kind) {
    case DTP_SCOPE_BOOL:
        return v->i != 0 ? "true" : "false";
    case DTP_SCOPE_INT:
        return dtp_arena_printf(arena, "%lld", (long long)v->i);
    case DTP_SCOPE_REAL:
        dtp_double_print(v->x, number);
        return dtp_arena_strdup(arena, number);
    case DTP_SCOPE_TEXT:
        return v->text;
    case DTP_SCOPE_NONE:
        break;
    }
    return "null";
}

const char *dtp_scope_foreign_text(const dtp_foreign *v, dtp_arena *arena)
{
    static const char *const others[] = {[DTP_FOREIGN_NULL] = "null",
                                         [DTP_FOREIGN_LIST] = "a list",
                                         [DTP_FOREIGN_OBJECT] = "an object"};
    const dtp_foreign_kind kind = dtp_foreign_kind_of(v);
    double x = 0.0;
    bool yes = false;
    const char *text = "";
    char number[32];
    if (kind == DTP_FOREIGN_NUMBER && dtp_foreign_double(NULL, v, &x, NULL) == DTP_OK) {
        dtp_double_print(x, number);
        return dtp_arena_strdup(arena, number);
    }
    if (kind == DTP_FOREIGN_BOOL && dtp_foreign_bool(NULL, v, &yes, NULL) == DTP_OK) {
        return yes ? "true" : "false";
    }
    if (kind == DTP_FOREIGN_STRING && dtp_foreign_string(NULL, v, &text, NULL) == DTP_OK) {
        text = dtp_arena_printf(arena, "\"%.80s\"", text);
        return text != NULL ? dtp_arena_line(arena, text) : NULL;
    }
    return others[kind];
}

dtp_status dtp_scope_note(dtp_scope *scope, dtp_scope_notes *notes, const char *line, dtp_err *err)
{
    DTP_TRY(DTP_MEMORY(err, line));
    DTP_TRY(dtp_arena_grow(scope->arena, &notes->lines, notes->n, notes->n + 1, &notes->room,
                           sizeof *notes->lines, err));
    notes->lines[notes->n++] = line;
    return DTP_OK;
}

/* ---- keys of the file ---- */

static bool equal(const dtp_scope_value *a, const dtp_scope_value *b)
{
    const bool number_a = a->kind == DTP_SCOPE_INT || a->kind == DTP_SCOPE_REAL;
    const bool number_b = b->kind == DTP_SCOPE_INT || b->kind == DTP_SCOPE_REAL;
    if (number_a && number_b) {
        return (a->kind == DTP_SCOPE_INT ? (double)a->i : a->x) ==
               (b->kind == DTP_SCOPE_INT ? (double)b->i : b->x);
    }
    return a->kind == b->kind &&
           (a->kind == DTP_SCOPE_TEXT ? strcmp(a->text, b->text) == 0 : a->i == b->i);
}

static dtp_status convert(const dtp_scope *scope, const char *kind, const dtp_foreign *v,
                          dtp_scope_value *out, dtp_err *err)
{
    bool yes = false;
    *out = (dtp_scope_value){DTP_SCOPE_NONE, 0, 0.0, NULL};
    if (strcmp(kind, "size") == 0 || strcmp(kind, "int") == 0) {
        const bool size = strcmp(kind, "size") == 0;
        out->kind = DTP_SCOPE_INT;
        return dtp_foreign_int(scope->config, v, size ? 1 : -LARGEST_EXACT,
                               size ? LARGEST_SIZE : LARGEST_EXACT, &out->i, err);
    }
    if (strcmp(kind, "number") == 0) {
        out->kind = DTP_SCOPE_REAL;
        return dtp_foreign_double(scope->config, v, &out->x, err);
    }
    if (strcmp(kind, "bool") == 0) {
        out->kind = DTP_SCOPE_BOOL;
        DTP_TRY(dtp_foreign_bool(scope->config, v, &yes, err));
        out->i = yes ? 1 : 0;
        return DTP_OK;
    }
    out->kind = DTP_SCOPE_TEXT;
    if (strcmp(kind, "text") == 0) {
        return dtp_foreign_string(scope->config, v, &out->text, err);
    }
    out->text =
        dtp_foreign_is(v, DTP_FOREIGN_STRING) ? NULL : dtp_scope_foreign_text(v, scope->arena);
    return out->text != NULL ? DTP_OK : dtp_foreign_string(scope->config, v, &out->text, err);
}

/* The value, or the element of a list, that is not among those that the template knows; NULL: there
 * is none. *instead is the first that it knows. */
static dtp_status find_odd(dtp_scope *scope, const dtp_json *only, const char *kind,
                           const dtp_foreign *v, const dtp_foreign **odd, dtp_scope_value *instead,
                           dtp_err *err)
{
    const bool list = dtp_foreign_is(v, DTP_FOREIGN_LIST);
    *odd = NULL;
    *instead = (dtp_scope_value){DTP_SCOPE_NONE, 0, 0.0, NULL};
    for (const dtp_foreign *e = list ? dtp_foreign_first(v) : v; e != NULL && *odd == NULL;
         e = list ? dtp_foreign_next(e) : NULL) {
        dtp_scope_value value, known;
        *odd = e;
        DTP_TRY(convert(scope, kind, e, &value, err));
        for (int32_t i = 0; i < dtp_json_size(only) && *odd != NULL; i++) {
            DTP_TRY(dtp_scope_eval(scope, dtp_json_at(only, i), &known, err));
            *instead = i == 0 ? known : *instead;
            *odd = equal(&value, &known) ? NULL : e;
        }
    }
    return DTP_OK;
}

/* A list that says the same in turns: element i is element i of the cycle. */
static dtp_status check_cycle(dtp_scope *scope, const dtp_scope_name *name, const dtp_json *cycle,
                              dtp_err *err)
{
    int32_t i = 0;
    if (!dtp_foreign_is(name->found, DTP_FOREIGN_LIST)) {
        return dtp_foreign_fail(scope->config, name->found, err, "expected a list");
    }
    for (const dtp_foreign *e = dtp_foreign_first(name->found); e != NULL;
         e = dtp_foreign_next(e)) {
        dtp_scope_value value, known;
        DTP_TRY(convert(scope, "any", e, &value, err));
        DTP_TRY(dtp_scope_eval(scope, dtp_json_at(cycle, i++ % dtp_json_size(cycle)), &known, err));
        if (!equal(&value, &known)) {
            const char *text = dtp_scope_print(&known, scope->arena);
            DTP_TRY(DTP_MEMORY(err, text));
            return dtp_foreign_fail(scope->config, e, err,
                                    "'%.80s' is not supported in the family '%s', which has "
                                    "'%s' here",
                                    value.text, scope->family, text);
        }
    }
    return DTP_OK;
}

static dtp_status check_known(dtp_scope *scope, dtp_scope_name *name, const char *kind,
                              dtp_err *err)
{
    const dtp_json *only = dtp_json_get(name->spec, "only");
    const dtp_json *cycle = dtp_json_get(name->spec, "cycle");
    const dtp_foreign *odd = NULL;
    dtp_scope_value instead;
    DTP_TRY(cycle == NULL ? DTP_OK : check_cycle(scope, name, cycle, err));
    if (only != NULL) {
        DTP_TRY(find_odd(scope, only, kind, name->found, &odd, &instead, err));
    }
    if (odd == NULL) {
        return DTP_OK;
    }
    const char *text = dtp_scope_foreign_text(odd, scope->arena);
    DTP_TRY(DTP_MEMORY(err, text));
    if (!scope->approximate) {
        return dtp_foreign_fail(scope->config, odd, err,
                                "%s is not supported in the family '%s', and changes the model; "
                                "--allow-approximate goes on without it",
                                text, scope->family);
    }
    name->value = instead;
    const char *taken = dtp_scope_print(&instead, scope->arena);
    DTP_TRY(DTP_MEMORY(err, taken));
    const bool some = instead.kind != DTP_SCOPE_NONE;
    return dtp_scope_note(scope, &scope->unsupported,
                          dtp_arena_printf(scope->arena, "%s = %s%s%s", name->name, text,
                                           some ? " taken as " : "", some ? taken : ""),
                          err);
}

static dtp_status read_found(dtp_scope *scope, dtp_scope_name *name, dtp_err *err)
{
    const char *kind;
    DTP_TRY(dtp_json_get_string(name->spec, "kind", &kind, err));
    if (!dtp_foreign_is(name->found, DTP_FOREIGN_NULL)) {
        DTP_TRY(convert(scope, kind, name->found, &name->value, err));
        return check_known(scope, name, kind, err);
    }
    const dtp_json *null = dtp_json_get(name->spec, "null");
    return null != NULL ? dtp_scope_eval(scope, null, &name->value, err) : DTP_OK;
}

dtp_status dtp_scope_get(dtp_scope *scope, dtp_scope_name *name, dtp_scope_value *out, dtp_err *err)
{
    if (name->busy) {
        return DTP_FAIL(err, DTP_INVALID, "template: '%s' is defined by itself", name->name);
    }
    if (!name->known) {
        name->busy = true;
        name->value = (dtp_scope_value){DTP_SCOPE_NONE, 0, 0.0, NULL};
        DTP_TRY(name->found != NULL   ? read_found(scope, name, err)
                : name->given != NULL ? dtp_scope_eval(scope, name->given, &name->value, err)
                                      : DTP_OK);
        name->busy = false;
        name->known = true;
    }
    *out = name->value;
    return DTP_OK;
}

/* ---- expressions ---- */

static dtp_status named(dtp_scope *scope, const char *name, dtp_scope_value *out, dtp_err *err)
{
    dtp_scope_name *found = dtp_scope_find(scope, name);
    return found != NULL ? dtp_scope_get(scope, found, out, err)
                         : DTP_FAIL(err, DTP_INVALID, "template: there is no '%s'", name);
}

static dtp_status named_int(void *user, const char *name, int64_t *out, dtp_err *err)
{
    dtp_scope *scope = user;
    dtp_scope_value v;
    DTP_TRY(named(scope, name, &v, err));
    if (v.kind != DTP_SCOPE_INT) {
        const char *text = dtp_scope_print(&v, scope->arena);
        return DTP_FAIL(err, DTP_INVALID, "%s is %s, expected an integer", name,
                        text != NULL ? text : "");
    }
    *out = v.i;
    return DTP_OK;
}

/* The expression between `from` and `end`: a name, whose value may be of any kind, or integers. */
static dtp_status eval_expression(dtp_scope *scope, const char *from, const char *end,
                                  dtp_scope_value *out, dtp_err *err)
{
    const char *text = dtp_arena_printf(scope->arena, "%.*s", (int)(end - from), from);
    DTP_TRY(DTP_MEMORY(err, text));
    if (dtp_expr_is_name(text)) {
        return named(scope, text, out, err);
    }
    *out = (dtp_scope_value){DTP_SCOPE_INT, 0, 0.0, NULL};
    return dtp_foreign_prefixed(scope->config, dtp_foreign_root(scope->config),
                                dtp_expr_eval(text, named_int, scope, &out->i, err), err);
}

/* A text of one expression alone has the kind of its value. */
static dtp_status eval_text(dtp_scope *scope, const dtp_json *v, dtp_scope_value *out, dtp_err *err)
{
    const char *at, *text = "", *from, *to;
    DTP_TRY(dtp_json_string(v, &at, err));
    for (; (from = strstr(at, "${")) != NULL && (to = strchr(from, '}')) != NULL; at = to + 1) {
        dtp_scope_value part;
        DTP_TRY(eval_expression(scope, from + 2, to, &part, err));
        if (text[0] == '\0' && from == at && to[1] == '\0') {
            *out = part;
            return DTP_OK;
        }
        const char *printed = dtp_scope_print(&part, scope->arena);
        DTP_TRY(DTP_MEMORY(err, printed));
        text = dtp_arena_printf(scope->arena, "%s%.*s%s", text, (int)(from - at), at, printed);
        DTP_TRY(DTP_MEMORY(err, text));
    }
    text = dtp_arena_printf(scope->arena, "%s%s", text, at);
    *out = (dtp_scope_value){.kind = DTP_SCOPE_TEXT, .text = text};
    return DTP_MEMORY(err, text);
}

/* ---- functions and choices ---- */

/* least, greatest: of numbers of which some may be absent; floor: without its fraction. */
enum { LEAST, GREATEST, SUM, PRODUCT, QUOTIENT, SQRT, LOG, FLOOR, N_FUNCTIONS };

static int32_t function_of(const dtp_json *v)
{
    static const char *const names[] = {"least",    "greatest", "sum", "product",
                                        "quotient", "sqrt",     "log", "floor"};
    for (int32_t i = 0; dtp_json_size(v) == 1 && i < N_FUNCTIONS; i++) {
        if (dtp_json_get(v, names[i]) != NULL) {
            return i;
        }
    }
    return N_FUNCTIONS;
}

bool dtp_scope_is_function(const dtp_json *v)
{
    return function_of(v) < N_FUNCTIONS;
}

static double apply(int32_t function, bool first, double x, double y)
{
    switch (function) {
    case SQRT:
        return sqrt(y);
    case FLOOR:
        return floor(y);
    case LOG:
        return log(y);
    case LEAST:
        return first ? y : fmin(x, y);
    case GREATEST:
        return first ? y : fmax(x, y);
    case SUM:
        return x + y;
    case QUOTIENT:
        return first ? y : x / y;
    default:
        return first ? y : x * y;
    }
}

static dtp_status eval_function(dtp_scope *scope, const dtp_json *v, dtp_scope_value *out,
                                dtp_err *err)
{
    const int32_t function = function_of(v);
    const dtp_json *args = dtp_json_at(v, 0);
    const bool list = dtp_json_kind_of(args) == DTP_JSON_ARRAY;
    double x = 0.0;
    bool first = true;
    for (int32_t i = 0; i < (list ? dtp_json_size(args) : 1); i++) {
        const dtp_json *e = list ? dtp_json_at(args, i) : args;
        dtp_scope_value one;
        DTP_TRY(dtp_scope_choose(scope, &e, err));
        if (e == NULL) {
            continue;
        }
        DTP_TRY(dtp_scope_eval(scope, e, &one, err));
        if (one.kind != DTP_SCOPE_INT && one.kind != DTP_SCOPE_REAL) {
            return dtp_json_fail(e, err, "expected a number");
        }
        x = apply(function, first, x, one.kind == DTP_SCOPE_INT ? (double)one.i : one.x);
        first = false;
    }
    if (!(fabs(x) <= (double)LARGEST_SIZE)) {
        return dtp_foreign_fail(scope->config, dtp_foreign_root(scope->config), err,
                                "%g is too large for a number of the model", x);
    }
    const bool integer = function == LEAST || function == FLOOR;
    *out = integer ? (dtp_scope_value){DTP_SCOPE_INT, (int64_t)x, 0.0, NULL}
                   : (dtp_scope_value){DTP_SCOPE_REAL, 0, x, NULL};
    return DTP_OK;
}

dtp_status dtp_scope_eval(dtp_scope *scope, const dtp_json *v, dtp_scope_value *out, dtp_err *err)
{
    bool yes = false;
    *out = (dtp_scope_value){DTP_SCOPE_NONE, 0, 0.0, NULL};
    DTP_TRY(dtp_scope_choose(scope, &v, err));
    if (v == NULL || dtp_json_kind_of(v) == DTP_JSON_NULL) {
        return DTP_OK;
    }
    switch (dtp_json_kind_of(v)) {
    case DTP_JSON_STRING:
        return eval_text(scope, v, out, err);
    case DTP_JSON_BOOL:
        out->kind = DTP_SCOPE_BOOL;
        DTP_TRY(dtp_json_bool(v, &yes, err));
        out->i = yes ? 1 : 0;
        return DTP_OK;
    case DTP_JSON_NUMBER:
        out->kind = DTP_SCOPE_INT;
        if (dtp_json_int(v, -LARGEST_EXACT, LARGEST_EXACT, &out->i, NULL) == DTP_OK) {
            return DTP_OK;
        }
        out->kind = DTP_SCOPE_REAL;
        return dtp_json_double(v, &out->x, err);
    case DTP_JSON_OBJECT:
        if (dtp_scope_is_function(v)) {
            return eval_function(scope, v, out, err);
        }
        break;
    case DTP_JSON_NULL:
    case DTP_JSON_ARRAY:
        break;
    }
    return dtp_json_fail(v, err, "expected a scalar");
}

static dtp_status term_holds(dtp_scope *scope, const dtp_json *at, const char *term, size_t len,
                             bool *out, dtp_err *err)
{
    const bool negated = term[0] == '!';
    const char *text = dtp_arena_printf(scope->arena, "%.*s", (int)len - (negated ? 1 : 0),
                                        term + (negated ? 1 : 0));
    DTP_TRY(DTP_MEMORY(err, text));
    const char *equals = strstr(text, "==");
    const char *name =
        equals == NULL ? text : dtp_arena_printf(scope->arena, "%.*s", (int)(equals - text), text);
    dtp_scope_value v = {.kind = DTP_SCOPE_NONE};
    DTP_TRY(DTP_MEMORY(err, name));
    DTP_TRY(dtp_json_prefixed(at, named(scope, name, &v, err), err));
    if (equals != NULL) {
        const char *printed = dtp_scope_print(&v, scope->arena);
        DTP_TRY(DTP_MEMORY(err, printed));
        *out = (strcmp(printed, equals + 2) == 0) != negated;
        return DTP_OK;
    }
    *out = (v.kind != DTP_SCOPE_NONE && !(v.kind == DTP_SCOPE_BOOL && v.i == 0)) != negated;
    return DTP_OK;
}

dtp_status dtp_scope_holds(dtp_scope *scope, const dtp_json *condition, bool *out, dtp_err *err)
{
    const char *text;
    DTP_TRY(dtp_json_string(condition, &text, err));
    *out = true;
    for (const char *at = text; *out;) {
        const size_t n = strcspn(at, "&");
        DTP_TRY(term_holds(scope, condition, at, n, out, err));
        if (at[n] == '\0') {
            break;
        }
        at += n + 1;
    }
    return DTP_OK;
}

dtp_status dtp_scope_choose(dtp_scope *scope, const dtp_json **v, dtp_err *err)
{
    const dtp_json *condition;
    while (*v != NULL && (condition = dtp_json_get(*v, "if")) != NULL) {
        const dtp_json *then = dtp_json_get(*v, "then");
        bool holds;
        DTP_TRY(dtp_scope_holds(scope, condition, &holds, err));
        if (then == NULL) {
            *v = holds ? *v : NULL;
            return DTP_OK;
        }
        *v = holds ? then : dtp_json_get(*v, "else");
    }
    return DTP_OK;
}
