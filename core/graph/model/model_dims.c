/* The "dims" of a model: sizes that may be expressions over each other, in any order, evaluated
 * depth first with an explicit stack. */
#include <inttypes.h>
#include <string.h>

#include "core/graph/model/expr.h"
#include "core/graph/model/model_internal.h"

static const int64_t MAX_SIZE = (INT64_C(1) << DTP_MODEL_MAX_DIM_BITS) - 1;

typedef struct evaluation {
    const dtp_model_reader *r;
    const uint8_t *states; /* NULL: every dim is known */
    dtp_dim_id pending;    /* a dim that has to be evaluated first, -1 = none */
} evaluation;

static dtp_status look_up(void *user, const char *name, int64_t *out, dtp_err *err)
{
    evaluation *e = user;
    dtp_dim_id d = dtp_dims_find(&e->r->declared, name);
    if (d < 0) {
        return DTP_FAIL(err, DTP_INVALID, "'%s' is not declared in dims", name);
    }
    if (e->states != NULL && e->states[d] != DTP_DIM_DONE) {
        e->pending = d;
        return DTP_FAIL(err, DTP_INVALID, "'%s' is not evaluated yet", name);
    }
    *out = e->r->dim_values[d];
    return DTP_OK;
}

/* An integer or an expression; pending >= 0 after a failure means "evaluate that one first". */
static dtp_status read_int(evaluation *e, const dtp_json *v, int64_t min, int64_t max, int64_t *out,
                           dtp_err *err)
{
    const char *text;
    if (dtp_json_kind_of(v) != DTP_JSON_STRING) {
        return dtp_json_int(v, min, max, out, err);
    }
    DTP_TRY(dtp_json_string(v, &text, err));
    const dtp_status status = dtp_expr_eval(text, look_up, e, out, err);
    if (e->pending >= 0) {
        return status; /* no fault: finding its place would read the file for every such dim */
    }
    DTP_TRY(dtp_json_prefixed(v, status, err));
    if (*out < min || *out > max) {
        return dtp_json_fail(v, err, "'%s' is %" PRId64 ", not in %" PRId64 "..%" PRId64, text,
                             *out, min, max);
    }
    return DTP_OK;
}

dtp_status dtp_model__int(const dtp_model_reader *r, const dtp_json *v, int64_t min, int64_t max,
                          int64_t *out, dtp_err *err)
{
    evaluation e = {.r = r, .pending = -1};
    return read_int(&e, v, min, max, out, err);
}

dtp_status dtp_model__real(const dtp_model_reader *r, const dtp_json *v, double *out, dtp_err *err)
{
    const char *text;
    evaluation e = {.r = r, .pending = -1};
    if (dtp_json_kind_of(v) != DTP_JSON_STRING) {
        return dtp_json_double(v, out, err);
    }
    DTP_TRY(dtp_json_string(v, &text, err));
    return dtp_json_prefixed(v, dtp_expr_real(text, look_up, &e, out, err), err);
}

/* Evaluates one dim and what it depends on; `stack` has room for every dim. */
static dtp_status evaluate(dtp_model_reader *r, const dtp_json *dims, dtp_dim_id first,
                           uint8_t *states, dtp_dim_id *stack, dtp_err *err)
{
    int32_t n = 0;
    stack[n++] = first;
    while (n > 0) {
        dtp_dim_id d = stack[n - 1];
        const dtp_json *v = dtp_json_at(dims, d);
        evaluation e = {.r = r, .states = states, .pending = -1};
        states[d] = DTP_DIM_BUSY;
        dtp_status s = read_int(&e, v, 1, MAX_SIZE, &r->dim_values[d], err);
        if (s == DTP_OK) {
            states[d] = DTP_DIM_DONE;
            n--;
            continue;
        }
        if (e.pending < 0) {
            return s;
        }
        if (states[e.pending] == DTP_DIM_BUSY) {
            return dtp_json_fail(v, err, "the size depends on itself (through '%s')",
                                 r->declared.names[e.pending]);
        }
        stack[n++] = e.pending;
    }
    return DTP_OK;
}

/* Keeps the sizes that are no expressions over others, `chosen` ones among them. */
static dtp_status keep_given(const dtp_model_reader *r, const dtp_json *dims, const uint8_t *chosen,
                             dtp_err *err)
{
    dtp_graph *g = r->g;
    dtp_dim_override *given;
    DTP_TRY(DTP_NEW(g->arena, given, r->declared.n, err));
    for (int32_t d = 0; d < r->declared.n; d++) {
        if (chosen[d] != DTP_DIM_DONE &&
            dtp_json_kind_of(dtp_json_at(dims, d)) == DTP_JSON_STRING) {
            continue;
        }
        const char *name = dtp_arena_strdup(g->arena, r->declared.names[d]);
        DTP_TRY(DTP_MEMORY(err, name));
        given[g->n_given++] = (dtp_dim_override){.name = name, .size = r->dim_values[d]};
    }
    g->given = given;
    return DTP_OK;
}

dtp_status dtp_model__dims(dtp_model_reader *r, dtp_err *err)
{
    const dtp_json *dims;
    DTP_TRY(dtp_json_get_kind(r->root, "dims", DTP_JSON_OBJECT, &dims, err));
    size_t n = (size_t)dtp_json_size(dims);
    uint8_t *states = dtp_arena_alloc(r->scratch, n, sizeof *states);
    uint8_t *chosen = dtp_arena_alloc(r->scratch, n, sizeof *chosen);
    dtp_dim_id *stack = dtp_arena_alloc(r->scratch, n, sizeof *stack);
    r->dim_values = dtp_arena_alloc(r->scratch, n, sizeof *r->dim_values);
    DTP_TRY(DTP_MEMORY(err, states, chosen, stack, r->dim_values));
    /* The ids are the positions in the file. */
    for (int32_t i = 0; i < dtp_json_size(dims); i++) {
        const dtp_json *v = dtp_json_at(dims, i);
        const char *name = dtp_json_key(v);
        dtp_dim_id id;
        if (!dtp_expr_is_name(name) || name[0] == '_') {
            return dtp_json_fail(v, err,
                                 "a dim name has letters, digits and _, and starts with a letter");
        }
        DTP_TRY(dtp_dims_intern(&r->declared, name, 0, &id, err));
    }
    for (int32_t i = 0; i < r->options->n_overrides; i++) {
        const dtp_dim_override *o = &r->options->overrides[i];
        dtp_dim_id d = dtp_dims_find(&r->declared, o->name);
        if (d < 0) {
            return DTP_FAIL(err, DTP_INVALID, "%s: --dim %s=%" PRId64 ": the model has no dim '%s'",
                            r->file, o->name, o->size, o->name);
        }
        if (o->size < 1 || o->size > MAX_SIZE) {
            return DTP_FAIL(err, DTP_INVALID,
                            "%s: --dim %s=%" PRId64 ": the size is not in 1..%" PRId64, r->file,
                            o->name, o->size, MAX_SIZE);
        }
        if (states[d] == DTP_DIM_DONE) {
            return DTP_FAIL(err, DTP_INVALID, "%s: --dim %s=%" PRId64 ": given twice", r->file,
                            o->name, o->size);
        }
        states[d] = DTP_DIM_DONE;
        r->dim_values[d] = o->size;
    }
    if (n > 0) {
        memcpy(chosen, states, n * sizeof *chosen);
    }
    for (int32_t d = 0; d < r->declared.n; d++) {
        DTP_TRY(states[d] == DTP_DIM_DONE ? DTP_OK : evaluate(r, dims, d, states, stack, err));
    }
    return keep_given(r, dims, chosen, err);
}

/* ---- dims of tensors ---- */

dtp_status dtp_model__dim(dtp_model_reader *r, const dtp_json *v, dtp_dim_id *out, dtp_err *err)
{
    const char *name;
    DTP_TRY(dtp_json_string(v, &name, err));
    dtp_dim_id declared = dtp_dims_find(&r->declared, name);
    *out = dtp_dims_find(&r->g->dims, name);
    if (*out >= 0) {
        return DTP_OK;
    }
    if (declared < 0) {
        return dtp_json_fail(v, err, "'%s' is not declared in dims", name);
    }
    return dtp_dims_intern(&r->g->dims, name, r->dim_values[declared], out, err);
}

/* "name=expression": the name with a size of its own. */
static dtp_status read_sized_dim(dtp_model_reader *r, const dtp_json *v, const char *text,
                                 dtp_tdim *out, dtp_err *err)
{
    char name[DTP_EXPR_MAX_NAME] = "";
    const char *equals = strchr(text, '=');
    size_t n = (size_t)(equals - text);
    if (n < sizeof name) {
        memcpy(name, text, n);
        name[n] = '\0';
    }
    if (!dtp_expr_is_name(name) || name[0] == '_') {
        return dtp_json_fail(v, err, "expected 'DIM' or 'DIM=SIZE', found '%.80s'", text);
    }
    evaluation e = {.r = r, .pending = -1};
    DTP_TRY(dtp_json_prefixed(v, dtp_expr_eval(equals + 1, look_up, &e, &out->size, err), err));
    if (out->size < 1 || out->size > MAX_SIZE) {
        return dtp_json_fail(v, err, "the size of '%s' is %" PRId64 ", not in 1..%" PRId64, name,
                             out->size, MAX_SIZE);
    }
    dtp_dim_id declared = dtp_dims_find(&r->declared, name);
    return dtp_dims_intern(&r->g->dims, name, declared < 0 ? 0 : r->dim_values[declared], &out->id,
                           err);
}

dtp_status dtp_model__dim_list(dtp_model_reader *r, const dtp_json *v, int32_t *rank,
                               dtp_tdim dims[DTP_MAX_RANK], dtp_err *err)
{
    DTP_TRY(dtp_json_expect(v, DTP_JSON_ARRAY, err));
    if (dtp_json_size(v) > DTP_MAX_RANK) {
        return dtp_json_fail(v, err, "%d dims, the limit is %d", dtp_json_size(v), DTP_MAX_RANK);
    }
    *rank = dtp_json_size(v);
    for (int32_t i = 0; i < *rank; i++) {
        const dtp_json *item = dtp_json_at(v, i);
        const char *text;
        DTP_TRY(dtp_json_string(item, &text, err));
        const dtp_dim_id declared = dtp_dims_find(&r->declared, text);
        if (strchr(text, '=') != NULL) {
            DTP_TRY(read_sized_dim(r, item, text, &dims[i], err));
        } else if (declared >= 0) {
            dims[i].size = r->dim_values[declared];
            DTP_TRY(dtp_dims_intern(&r->g->dims, text, dims[i].size, &dims[i].id, err));
        } else {
            return dtp_json_fail(item, err,
                                 "'%.80s' is not declared in dims (a dim with a size of its own is "
                                 "written 'NAME=SIZE')",
                                 text);
        }
        for (int32_t j = 0; j < i; j++) {
            if (dims[j].id == dims[i].id) {
                return dtp_json_fail(item, err, "dim '%s' occurs twice in one tensor",
                                     dtp_dims_name(&r->g->dims, dims[i].id));
            }
        }
    }
    return DTP_OK;
}
