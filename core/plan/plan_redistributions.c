/* The list "redistributions" of dtp.plan/1: steps that the machine's prices chose otherwise than
 * the default price would. Layouts are written per mesh dim, as dtp_placements_print does: such a
 * tensor may be a value inside of a node, whose dims have no names that a plan could use. */
#include <string.h>

#include "core/layout/placement_text.h"
#include "core/plan/plan_internal.h"

bool dtp_plan_redistribution_is(const dtp_plan_redistribution *move, const dtp_ttype *type,
                                const dtp_layout *from, const dtp_layout *to)
{
    if (!dtp_layout_equal(&move->from, from) ||
        !dtp_layout_equal(&move->after[move->n_steps - 1], to) || move->type.dtype != type->dtype ||
        move->type.rank != type->rank) {
        return false;
    }
    for (int32_t i = 0; i < type->rank; i++) {
        if (move->type.dims[i].size != type->dims[i].size) {
            return false;
        }
    }
    return true;
}

/* ---- writing ------------------------------------------------------------------------------------
 */

static void write_layout(dtp_json_writer *w, const char *key, const dtp_layout *layout)
{
    dtp_strbuf text = {0};
    dtp_placements_print(layout, &text);
    dtp_json_write_text(w, key, &text);
}

static void write_redistribution(dtp_json_writer *w, const dtp_plan_redistribution *move)
{
    dtp_json_begin_object(w, NULL);
    dtp_json_write_string(w, "dtype", dtp_dtype_name(move->type.dtype));
    dtp_json_begin_array(w, "shape", true);
    for (int32_t i = 0; i < move->type.rank; i++) {
        dtp_json_write_int(w, NULL, move->type.dims[i].size);
    }
    dtp_json_end_array(w);
    write_layout(w, "from", &move->from);
    dtp_json_begin_array(w, "steps", true);
    for (int32_t i = 0; i < move->n_steps; i++) {
        write_layout(w, NULL, &move->after[i]);
    }
    dtp_json_end_array(w);
    dtp_json_end_object(w);
}

void dtp_plan__write_moves(dtp_json_writer *w, const dtp_plan *plan)
{
    dtp_json_begin_array(w, "redistributions", false);
    for (int32_t i = 0; i < plan->n_redistributions; i++) {
        write_redistribution(w, &plan->redistributions[i]);
    }
    dtp_json_end_array(w);
}

/* ---- reading ------------------------------------------------------------------------------------
 */

static dtp_status prefixed(const dtp_json *v, dtp_status s, dtp_err *err)
{
    if (s != DTP_OK) {
        dtp_json_prefix(v, err);
    }
    return s;
}

static dtp_status read_type(const dtp_json *v, dtp_ttype *out, dtp_err *err)
{
    const dtp_json *dtype, *shape;
    const char *name;
    DTP_TRY(dtp_json_require(v, "dtype", &dtype, err));
    DTP_TRY(dtp_json_string(dtype, &name, err));
    DTP_TRY(prefixed(dtype, dtp_dtype_parse(name, &out->dtype, err), err));
    DTP_TRY(dtp_json_require(v, "shape", &shape, err));
    DTP_TRY(dtp_json_expect(shape, DTP_JSON_ARRAY, err));
    if (dtp_json_size(shape) > DTP_MAX_RANK) {
        return dtp_json_fail(shape, err, "%d dims, the limit is %d", dtp_json_size(shape),
                             DTP_MAX_RANK);
    }
    out->rank = dtp_json_size(shape);
    for (int32_t i = 0; i < out->rank; i++) {
        out->dims[i].id = i;
        DTP_TRY(dtp_json_int(dtp_json_at(shape, i), 1, INT64_MAX, &out->dims[i].size, err));
    }
    return prefixed(shape, dtp_ttype_check_size(out, err), err);
}

static dtp_status read_layout(const dtp_json *v, const dtp_mesh *mesh, const dtp_ttype *type,
                              dtp_layout *out, dtp_err *err)
{
    const char *text;
    DTP_TRY(dtp_json_string(v, &text, err));
    DTP_TRY(prefixed(v, dtp_placements_parse(text, mesh, type, out, err), err));
    return prefixed(v, dtp_layout_check(out, mesh, type, err), err);
}

static dtp_status read_steps(const dtp_json *v, dtp_plan *plan, dtp_plan_redistribution *move,
                             dtp_err *err)
{
    DTP_TRY(dtp_json_expect(v, DTP_JSON_ARRAY, err));
    const int32_t n = dtp_json_size(v);
    if (n < 1 || n > DTP_PLAN_MAX_STEPS) {
        return dtp_json_fail(v, err, "%d steps, expected 1 to %d", n, DTP_PLAN_MAX_STEPS);
    }
    dtp_layout *after = dtp_arena_alloc(plan->arena, (size_t)n, sizeof *after);
    if (after == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d steps", n);
    }
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(read_layout(dtp_json_at(v, i), &plan->mesh, &move->type, &after[i], err));
    }
    move->n_steps = n;
    move->after = after;
    return dtp_layout_equal(&move->from, &after[n - 1])
               ? dtp_json_fail(v, err, "the steps lead back to where they start")
               : DTP_OK;
}

static dtp_status read_redistribution(const dtp_json *v, dtp_plan *plan, dtp_err *err)
{
    static const char *const keys[] = {"dtype", "shape", "from", "steps", NULL};
    const dtp_json *from, *steps;
    dtp_plan_redistribution *move = &plan->redistributions[plan->n_redistributions];
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(read_type(v, &move->type, err));
    DTP_TRY(dtp_json_require(v, "from", &from, err));
    DTP_TRY(read_layout(from, &plan->mesh, &move->type, &move->from, err));
    DTP_TRY(dtp_json_require(v, "steps", &steps, err));
    DTP_TRY(read_steps(steps, plan, move, err));
    for (int32_t i = 0; i < plan->n_redistributions; i++) {
        if (dtp_plan_redistribution_is(&plan->redistributions[i], &move->type, &move->from,
                                       &move->after[move->n_steps - 1])) {
            return dtp_json_fail(v, err, "the same redistribution as entry %d", i);
        }
    }
    plan->n_redistributions++;
    return DTP_OK;
}

dtp_status dtp_plan__read_moves(const dtp_json *root, dtp_plan *plan, dtp_err *err)
{
    const dtp_json *list = dtp_json_get(root, "redistributions");
    if (list == NULL) {
        return DTP_OK;
    }
    if (plan->rules_mode || plan->redistribution == DTP_REDISTRIBUTION_TORCH) {
        return dtp_json_fail(list, err,
                             "only a plan in tensor mode with redistributions of our "
                             "own lists steps");
    }
    DTP_TRY(dtp_json_expect(list, DTP_JSON_ARRAY, err));
    const int32_t n = dtp_json_size(list);
    if (n > DTP_PLAN_MAX_MOVES) {
        return dtp_json_fail(list, err, "%d entries, the limit is %d", n, DTP_PLAN_MAX_MOVES);
    }
    plan->redistributions = dtp_arena_alloc(plan->arena, (size_t)n, sizeof *plan->redistributions);
    if (plan->redistributions == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d redistributions", n);
    }
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(read_redistribution(dtp_json_at(list, i), plan, err));
    }
    return DTP_OK;
}
