/* Redistribution of one tensor: which pairs have a meaning, the plan of last resort, and the entry
 * point. */
#include "spmd/redistribute/redistribute.h"

#include <string.h>

#include "core/layout/placement_text.h"
#include "spmd/redistribute/redistribute_internal.h"

/* ---- the way through the replicated layout ---- */

static void append(dtp_steps *out, dtp_layout *at, dtp_step step, int32_t m, dtp_placement place)
{
    at->placement[m] = place;
    step.set = 1U << m;
    step.after = *at;
    out->steps[out->n++] = step;
}

/* The plan of last resort when there are too many layouts to search: correct, not cheapest. Makes
 * everything whole that differs: reductions, then gathers from the innermost split out; then slices
 * and partial values of the target. */
static void through_replicated(const dtp_redistribution *r, dtp_steps *out)
{
    const dtp_placement replicate = {0};
    dtp_layout at = *r->from;
    int32_t splits[DTP_MAX_MESH_DIMS];
    out->n = 0;
    for (int32_t m = 0; m < at.n_mesh; m++) {
        if (at.placement[m].kind != DTP_PARTIAL || r->to->placement[m].kind == DTP_PARTIAL) {
            continue;
        }
        dtp_step reduce = {.kind = DTP_STEP_ALL_REDUCE, .op = (dtp_reduce_op)at.placement[m].op};
        if (reduce.op == DTP_REDUCE_AVG) {
            dtp_step scale = {.kind = DTP_STEP_SCALE, .factor = 1.0 / (double)r->mesh->sizes[m]};
            reduce.op = DTP_REDUCE_SUM;
            append(out, &at, scale, m, (dtp_placement){.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM});
        }
        append(out, &at, reduce, m, replicate);
    }
    for (int32_t axis = 0; axis < r->type->rank; axis++) {
        for (int32_t n = dtp_layout_axis_splits(&at, axis, splits); n-- > 0;) {
            append(out, &at, (dtp_step){.kind = DTP_STEP_ALL_GATHER, .axis = axis}, splits[n],
                   replicate);
        }
    }
    for (int32_t axis = 0; axis < r->type->rank; axis++) {
        const int32_t n = dtp_layout_axis_splits(r->to, axis, splits);
        for (int32_t i = 0; i < n; i++) {
            append(out, &at, (dtp_step){.kind = DTP_STEP_SLICE, .axis = axis}, splits[i],
                   r->to->placement[splits[i]]);
        }
    }
    for (int32_t m = 0; m < at.n_mesh; m++) {
        const dtp_placement to = r->to->placement[m];
        if (to.kind == DTP_PARTIAL && at.placement[m].kind == DTP_REPLICATE) {
            append(out, &at, (dtp_step){.kind = DTP_STEP_KEEP_FIRST, .op = (dtp_reduce_op)to.op}, m,
                   to);
        }
    }
}

/* ---- entry ---- */

dtp_status dtp_redistribute__fail(dtp_err *err, dtp_status code, const char *what,
                                  const dtp_layout *from, const dtp_layout *to, const char *why)
{
    dtp_strbuf pair = {0};
    dtp_strbuf_add(&pair, "(");
    dtp_placements_print(from, &pair);
    dtp_strbuf_add(&pair, ") to (");
    dtp_placements_print(to, &pair);
    dtp_status s = pair.failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a layout's text")
                               : DTP_FAIL(err, code, "%s %s)%s", what, dtp_strbuf_text(&pair), why);
    dtp_strbuf_free(&pair);
    return s;
}

static dtp_status refuse(const dtp_layout *from, const dtp_layout *to, const char *why,
                         dtp_err *err)
{
    return dtp_redistribute__fail(err, DTP_UNSUPPORTED, "cannot redistribute", from, to, why);
}

/* Sum and avg commute with each other; no other two reductions do. */
static bool reductions_mix(const dtp_layout *layout)
{
    int seen = -1;
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        if (layout->placement[m].kind != DTP_PARTIAL) {
            continue;
        }
        int op =
            layout->placement[m].op == DTP_REDUCE_AVG ? DTP_REDUCE_SUM : layout->placement[m].op;
        if (seen >= 0 && seen != op) {
            return true;
        }
        seen = op;
    }
    return false;
}

dtp_status dtp_redistribute__check_pair(const dtp_ttype *type, const dtp_layout *from,
                                        const dtp_layout *to, dtp_err *err)
{
    bool is_float = dtp_dtype_is_float(type->dtype);
    for (int32_t m = 0; m < from->n_mesh; m++) {
        const dtp_placement *a = &from->placement[m], *b = &to->placement[m];
        if (a->kind == DTP_PARTIAL && b->kind == DTP_PARTIAL && a->op != b->op) {
            return refuse(from, to, ": one partial reduction does not become another", err);
        }
        if (b->kind == DTP_PARTIAL && a->kind == DTP_SHARD) {
            return refuse(from, to, ": shards do not become partial values", err);
        }
        if (b->kind == DTP_PARTIAL && a->kind == DTP_REPLICATE && b->op == DTP_REDUCE_PROD) {
            return refuse(from, to, ": replicated values do not become a partial product", err);
        }
        if (a->kind == DTP_PARTIAL && a->op == DTP_REDUCE_AVG && b->kind != DTP_PARTIAL &&
            !is_float) {
            return refuse(from, to, ": an average needs a floating-point type", err);
        }
    }
    if (reductions_mix(from) || reductions_mix(to)) {
        return refuse(from, to,
                      ": different reductions over different mesh dims have no defined order", err);
    }
    return DTP_OK;
}

static dtp_status find_steps(dtp_redistribution *r, dtp_steps *out, dtp_err *err)
{
    bool found;
    r->generic = r->price == dtp_step_generic_price;
    out->n = 0;
    if (dtp_layout_equal(r->from, r->to)) {
        return DTP_OK;
    }
    DTP_TRY(dtp_redistribute__check_pair(r->type, r->from, r->to, err));
    DTP_TRY(dtp_redistribute__search(r, out, &found, err));
    if (!found) {
        through_replicated(r, out);
    }
    return DTP_OK;
}

dtp_status dtp_redistribute_plan(const dtp_mesh *mesh, const dtp_ttype *type,
                                 const dtp_layout *from, const dtp_layout *to, dtp_step_price price,
                                 void *user, dtp_steps *out, dtp_err *err)
{
    dtp_redistribution r = {
        .mesh = mesh, .type = type, .from = from, .to = to, .price = price, .user = user};
    return find_steps(&r, out, err);
}

dtp_status dtp_redistribute_direct(const dtp_mesh *mesh, const dtp_ttype *type,
                                   const dtp_layout *from, const dtp_layout *to,
                                   dtp_step_price price, void *user, dtp_steps *out, dtp_err *err)
{
    dtp_redistribution r = {.mesh = mesh,
                            .type = type,
                            .from = from,
                            .to = to,
                            .price = price,
                            .user = user,
                            .direct = true};
    return find_steps(&r, out, err);
}

static dtp_status plan_generic(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                               const dtp_layout *from, const dtp_layout *to, dtp_steps *out,
                               dtp_err *err)
{
    return dtp_redistribute_plan(mesh, type, from, to, dtp_step_generic_price, user, out, err);
}

static dtp_status plan_direct(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                              const dtp_layout *from, const dtp_layout *to, dtp_steps *out,
                              dtp_err *err)
{
    return dtp_redistribute_direct(mesh, type, from, to, dtp_step_generic_price, user, out, err);
}

const dtp_redistributor *dtp_redistributor_generic(void)
{
    static const dtp_redistributor generic = {plan_generic, NULL};
    return &generic;
}

const dtp_redistributor *dtp_redistributor_of(const dtp_target *target)
{
    static const dtp_redistributor direct = {plan_direct, NULL};
    return target->direct ? &direct : dtp_redistributor_generic();
}

dtp_status dtp_redistribute_by(const dtp_redistributor *r, const dtp_mesh *mesh,
                               const dtp_ttype *type, const dtp_layout *from, const dtp_layout *to,
                               dtp_steps *out, dtp_err *err)
{
    return r != NULL
               ? r->plan(r->user, mesh, type, from, to, out, err)
               : DTP_FAIL(err, DTP_INVALID, "a redistribution without one who plans its steps");
}
