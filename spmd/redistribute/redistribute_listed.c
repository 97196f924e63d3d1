/* Redistributions whose steps a plan lists (core/plan/plan.h): read back as steps, and noted
 * down. */
#include "spmd/redistribute/redistribute_listed.h"

#include <inttypes.h>
#include <string.h>

#include "spmd/redistribute/redistribute_graph.h"
#include "spmd/redistribute/redistribute_internal.h"

_Static_assert((int)DTP_PLAN_MAX_STEPS == (int)DTP_MAX_STEPS, "a plan lists what the search finds");

/* ---- from layouts to steps ---- */

/* The step that leads to one layout. */
typedef struct step_search {
    const dtp_layout_graph *graph;
    const dtp_layout *after;
    bool found;
    dtp_step step;
} step_search;

static dtp_status match(void *user, const dtp_layout *at, const dtp_layout_hop *hop)
{
    step_search *s = user;
    (void)at;
    if (hop->key == dtp_layout__key(s->after)) {
        s->found = true;
        s->step = dtp_layout_graph__step(s->graph, hop, hop->key);
    }
    return DTP_OK;
}

static bool find_step(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *before,
                      const dtp_layout *after, dtp_step *out)
{
    dtp_layout_graph graph;
    step_search s = {.graph = &graph, .after = after};
    dtp_mesh_set changed = 0;
    for (int32_t m = 0; m < before->n_mesh; m++) {
        const dtp_placement *a = &before->placement[m], *b = &after->placement[m];
        changed |= memcmp(a, b, sizeof *a) != 0 ? 1U << m : 0U;
    }
    dtp_layout_graph__init(&graph, mesh, type);
    graph.reduced = graph.sliced = changed;
    for (int op = 0; op < DTP_N_REDUCE_OPS; op++) {
        graph.kept[op] = changed;
    }
    const dtp_status status = dtp_layout_graph__expand(&graph, dtp_layout__key(before), match, &s);
    *out = s.step;
    return status == DTP_OK && s.found &&
           dtp_redistribute__check_pair(type, before, after, NULL) == DTP_OK;
}

dtp_status dtp_listed_steps(const dtp_mesh *mesh, const dtp_plan_redistribution *pair,
                            dtp_steps *out, dtp_err *err)
{
    const dtp_layout *before = &pair->from;
    for (out->n = 0; out->n < pair->n_steps; out->n++) {
        const dtp_layout *after = &pair->after[out->n];
        if (!find_step(mesh, &pair->type, before, after, &out->steps[out->n])) {
            const dtp_status s = dtp_redistribute__fail(
                err, DTP_INVALID, "no single step leads from", before, after, "");
            return dtp_err_prefixed(s, err, "steps[%d]", out->n);
        }
        before = after;
    }
    return DTP_OK;
}

/* ---- looking up ---- */

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
    dtp_ttype run = *type; /* plans list the types of programs that run */
    run.dtype = type->dtype == DTP_F8 ? DTP_BF16 : type->dtype;
    const dtp_plan_redistribution *pair = find(listed->n, listed->redistributions, &run, from, to);
    out->n = 0;
    if (pair != NULL || dtp_layout_equal(from, to)) {
        return pair != NULL ? dtp_listed_steps(mesh, pair, out, err) : DTP_OK;
    }
    if (listed->unlisted != NULL) {
        return dtp_redistribute_by(listed->unlisted, mesh, type, from, to, out, err);
    }
    dtp_strbuf text = {0};
    dtp_strbuf_addf(&text, "the plan lists no redistribution of %s[", dtp_dtype_name(type->dtype));
    for (int32_t i = 0; i < type->rank; i++) {
        dtp_strbuf_addf(&text, "%s%" PRId64, i > 0 ? "," : "", type->dims[i].size);
    }
    dtp_strbuf_add(&text, "] from");
    const dtp_status s = text.failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a layout's text")
                                     : dtp_redistribute__fail(err, DTP_INVALID,
                                                              dtp_strbuf_text(&text), from, to, "");
    dtp_strbuf_free(&text);
    return s;
}

dtp_redistributor dtp_listed_redistributor(dtp_listed_redistributions *listed)
{
    return (dtp_redistributor){plan_listed, listed};
}

/* ---- noting down ---- */

static dtp_status plan_noted(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                             const dtp_layout *from, const dtp_layout *to, dtp_steps *out,
                             dtp_err *err)
{
    dtp_redistribution_recorder *r = user;
    DTP_TRY(dtp_redistribute_by(r->inner, mesh, type, from, to, out, err));
    if (out->n == 0 || find(r->n, r->redistributions, type, from, to) != NULL) {
        return DTP_OK;
    }
    if (r->n == DTP_PLAN_MAX_REDISTRIBUTIONS) {
        return DTP_FAIL(err, DTP_RANGE, "a plan of more than %d different redistributions",
                        DTP_PLAN_MAX_REDISTRIBUTIONS);
    }
    DTP_TRY(dtp_arena_grow(r->arena, &r->redistributions, r->n, r->n + 1, &r->cap,
                           sizeof *r->redistributions, err));
    dtp_layout *after = dtp_arena_alloc(r->arena, (size_t)out->n, sizeof *after);
    DTP_TRY(DTP_MEMORY(err, after));
    for (int32_t i = 0; i < out->n; i++) {
        after[i] = out->steps[i].after;
    }
    dtp_plan_redistribution *noted = &r->redistributions[r->n++];
    *noted =
        (dtp_plan_redistribution){.type = *type, .from = *from, .n_steps = out->n, .after = after};
    for (int32_t i = 0; i < type->rank; i++) {
        noted->type.dims[i].id = i;
    }
    return DTP_OK;
}

dtp_redistributor dtp_recording_redistributor(dtp_redistribution_recorder *recorder)
{
    return (dtp_redistributor){plan_noted, recorder};
}
