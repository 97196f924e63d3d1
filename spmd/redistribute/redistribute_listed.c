#include "spmd/redistribute/redistribute_listed.h"

#include <string.h>

#include "core/layout/placement_text.h"

_Static_assert((int)DTP_PLAN_MAX_STEPS == (int)DTP_MAX_STEPS, "a plan lists what the search finds");

/* ---- from layouts to steps ----------------------------------------------------------------------
 */

/* Every step counts as one, so that two layouts one step apart have this step as their cheapest. */
static double count_step(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                         const dtp_layout *before, const dtp_step *step)
{
    (void)user, (void)mesh, (void)type, (void)before, (void)step;
    return 1.0;
}

/* Averages become sums; no step of the search by itself, which does so only before a reduction. */
static bool is_scale(const dtp_mesh *mesh, const dtp_layout *before, const dtp_layout *after,
                     dtp_step *out)
{
    *out = (dtp_step){.kind = DTP_STEP_SCALE, .after = *after};
    for (int32_t m = 0; m < before->n_mesh; m++) {
        const dtp_placement *a = &before->placement[m], *b = &after->placement[m];
        if (memcmp(a, b, sizeof *a) == 0) {
            continue;
        }
        if (a->kind != DTP_PARTIAL || a->op != DTP_REDUCE_AVG || b->kind != DTP_PARTIAL ||
            b->op != DTP_REDUCE_SUM) {
            return false;
        }
        out->set |= 1U << m;
    }
    out->factor = 1.0 / (double)dtp_mesh_set_size(mesh, out->set);
    return out->set != 0;
}

static dtp_status refuse(const dtp_layout *before, const dtp_layout *after, int32_t i, dtp_err *err)
{
    dtp_strbuf from = {0}, to = {0};
    dtp_placements_print(before, &from);
    dtp_placements_print(after, &to);
    dtp_status s =
        from.failed || to.failed
            ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a layout's text")
            : DTP_FAIL(err, DTP_INVALID, "steps[%d]: no single step leads from (%s) to (%s)", i,
                       dtp_strbuf_text(&from), dtp_strbuf_text(&to));
    dtp_strbuf_free(&from);
    dtp_strbuf_free(&to);
    return s;
}

static dtp_status find_step(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *before,
                            const dtp_layout *after, bool *found, dtp_step *out)
{
    dtp_steps one;
    dtp_err why = {0};
    *found = is_scale(mesh, before, after, out);
    if (*found) {
        return DTP_OK;
    }
    const dtp_status s =
        dtp_redistribute_plan(mesh, type, before, after, count_step, NULL, &one, &why);
    *found = s == DTP_OK && one.n == 1;
    if (*found) {
        *out = one.steps[0];
    }
    return s == DTP_NOMEM ? s : DTP_OK;
}

dtp_status dtp_listed_steps(const dtp_mesh *mesh, const dtp_plan_redistribution *pair,
                            dtp_steps *out, dtp_err *err)
{
    const dtp_layout *before = &pair->from;
    out->n = 0;
    for (int32_t i = 0; i < pair->n_steps; i++) {
        bool found;
        if (find_step(mesh, &pair->type, before, &pair->after[i], &found, &out->steps[i]) !=
            DTP_OK) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for the steps of a redistribution");
        }
        if (!found) {
            return refuse(before, &pair->after[i], i, err);
        }
        before = &pair->after[i];
        out->n++;
    }
    return DTP_OK;
}

/* ---- looking up ---------------------------------------------------------------------------------
 */

static const dtp_plan_redistribution *find(int32_t n,
                                           const dtp_plan_redistribution *redistributions,
                                           const dtp_ttype *type, const dtp_layout *from,
                                           const dtp_layout *to)
{
    for (int32_t i = 0; i < n; i++) {
        if (dtp_plan_redistribution_is(&redistributions[i], type, from, to)) {
            return &redistributions[i];
        }
    }
    return NULL;
}

static dtp_status plan_listed(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                              const dtp_layout *from, const dtp_layout *to, dtp_steps *out,
                              dtp_err *err)
{
    const dtp_listed_redistributions *listed = user;
    const dtp_plan_redistribution *pair = find(listed->n, listed->redistributions, type, from, to);
    return pair != NULL
               ? dtp_listed_steps(mesh, pair, out, err)
               : dtp_redistribute_by(dtp_redistributor_generic(), mesh, type, from, to, out, err);
}

dtp_redistributor dtp_listed_redistributor(dtp_listed_redistributions *listed)
{
    return (dtp_redistributor){plan_listed, listed};
}

/* ---- noting down --------------------------------------------------------------------------------
 */

static bool same_steps(const dtp_steps *a, const dtp_steps *b)
{
    bool same = a->n == b->n;
    for (int32_t i = 0; i < a->n && same; i++) {
        same = dtp_layout_equal(&a->steps[i].after, &b->steps[i].after);
    }
    return same;
}

static dtp_status make_room(dtp_redistribution_recorder *r, dtp_err *err)
{
    if (r->n == DTP_PLAN_MAX_MOVES) {
        return DTP_FAIL(err, DTP_RANGE, "more than %d redistributions with steps of their own",
                        DTP_PLAN_MAX_MOVES);
    }
    return dtp_arena_grow(r->arena, &r->redistributions, r->n, r->n + 1, &r->cap,
                          sizeof *r->redistributions, err);
}

static dtp_status note(dtp_redistribution_recorder *r, const dtp_ttype *type,
                       const dtp_layout *from, const dtp_steps *steps, dtp_err *err)
{
    DTP_TRY(make_room(r, err));
    dtp_layout *after = dtp_arena_alloc(r->arena, (size_t)steps->n, sizeof *after);
    if (after == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the steps of a redistribution");
    }
    for (int32_t i = 0; i < steps->n; i++) {
        after[i] = steps->steps[i].after;
    }
    dtp_plan_redistribution *noted = &r->redistributions[r->n++];
    *noted = (dtp_plan_redistribution){
        .type = *type, .from = *from, .n_steps = steps->n, .after = after};
    for (int32_t i = 0; i < type->rank; i++) {
        noted->type.dims[i].id = i;
    }
    return DTP_OK;
}

static dtp_status plan_noted(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                             const dtp_layout *from, const dtp_layout *to, dtp_steps *out,
                             dtp_err *err)
{
    dtp_redistribution_recorder *r = user;
    dtp_steps usual;
    DTP_TRY(dtp_redistribute_by(r->inner, mesh, type, from, to, out, err));
    if (find(r->n, r->redistributions, type, from, to) != NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_redistribute_by(dtp_redistributor_generic(), mesh, type, from, to, &usual, err));
    return same_steps(out, &usual) ? DTP_OK : note(r, type, from, out, err);
}

dtp_redistributor dtp_recording_redistributor(dtp_redistribution_recorder *recorder)
{
    return (dtp_redistributor){plan_noted, recorder};
}
