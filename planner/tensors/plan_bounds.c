#include "planner/tensors/plan_bounds.h"

#include "core/base/hash.h"
#include "planner/problem/check.h"
#include "planner/tensors/strategy_bounds.h"

/* ---- the problem --------------------------------------------------------------------------------
 */

static uint64_t hash_place(uint64_t h, const dtp_placement *p)
{
    return dtp_hash_i64(h, ((p->kind * 8 + p->axis) * 8 + p->op) * 8 + p->order);
}

static uint64_t hash_option(uint64_t h, const dtp_tensor_variable *c, const dtp_tensor_strategy *o,
                            int32_t n_mesh)
{
    for (int32_t m = 0; m < n_mesh; m++) {
        h = c->kind == DTP_DECIDE_OP ? dtp_hash_i64(h, o->strategy.row[m])
                                     : hash_place(h, &o->layout.placement[m]);
    }
    return dtp_hash_i64(h, o->own ? 1 : 0);
}

static uint64_t hash_options(const dtp_tensor_problem *p)
{
    uint64_t h = DTP_HASH_SEED;
    for (int32_t i = 0; i < p->n_variables; i++) {
        const dtp_tensor_variable *c = &p->variables[i];
        h = dtp_hash_i64(h, (int64_t)c->kind);
        h = dtp_hash_i64(h, c->kind == DTP_DECIDE_OP ? c->node : c->tensor);
        for (int32_t k = 0; k < c->n_strategies; k++) {
            h = hash_option(h, c, &c->options[k], p->pricer->mesh.n_dims);
        }
    }
    return h;
}

bool dtp_plan_bounds_match(const dtp_plan_strategy_bounds *b, const dtp_tensor_problem *p)
{
    bool match = b->n == p->n_variables;
    for (int32_t i = 0; i < p->n_variables && match; i++) {
        match = b->first[i + 1] - b->first[i] == p->variables[i].n_strategies;
    }
    return match && b->options_hash == hash_options(p);
}

/* ---- finding them -------------------------------------------------------------------------------
 */

/* What the plan costs in the problem; false: it is no selection of it. */
static dtp_status find_cost(const dtp_tensor_problem *p, const dtp_sharding *s, dtp_arena *arena,
                            bool *found, int64_t *cost, dtp_err *err)
{
    dtp_problem_value value = {0};
    int32_t *selection = dtp_arena_alloc(arena, (size_t)p->n_variables, sizeof *selection);
    if (selection == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a solution");
    }
    DTP_TRY(dtp_tensor_assignment(p, s, selection, found, err));
    if (*found) {
        DTP_TRY(dtp_problem_evaluate(p->select, selection, &value, err));
    }
    *found = *found && value.feasible;
    *cost = value.cost;
    return DTP_OK;
}

/* In units, rounded down. */
static dtp_status round_bounds(const dtp_tensor_problem *p, const dtp_strategy_bounds *bounds,
                               dtp_arena *arena, dtp_plan_strategy_bounds *out, dtp_err *err)
{
    const int64_t *first = p->select->first;
    const int64_t n = first[p->n_variables];
    out->first = dtp_arena_alloc(arena, (size_t)p->n_variables + 1, sizeof *out->first);
    out->above = dtp_arena_alloc(arena, (size_t)n, sizeof *out->above);
    if (out->first == NULL || out->above == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the bounds of %lld options",
                        (long long)n);
    }
    out->unit_ps = out->cost_ps / DTP_PLAN_MOST_ABOVE + 1;
    for (int64_t k = 0; k < n; k++) {
        const int64_t above = bounds->above[k] / out->unit_ps;
        out->above[k] = above < DTP_PLAN_MOST_ABOVE ? (int32_t)above : DTP_PLAN_MOST_ABOVE;
    }
    for (int32_t i = 0; i <= p->n_variables; i++) {
        out->first[i] = (int32_t)first[i];
    }
    out->n = p->n_variables;
    return DTP_OK;
}

dtp_status dtp_plan_bounds_find(const dtp_tensor_problem *p, const dtp_sharding *s,
                                int32_t n_prices, const dtp_memory_multiplier *prices,
                                dtp_arena *arena, dtp_plan_strategy_bounds *out, dtp_err *err)
{
    dtp_strategy_bounds bounds;
    bool found = false;
    *out = (dtp_plan_strategy_bounds){.runs = p->options.runs, .options_hash = hash_options(p)};
    DTP_TRY(find_cost(p, s, arena, &found, &out->cost_ps, err));
    if (!found) {
        return DTP_OK;
    }
    DTP_TRY(dtp_tensor_option_bounds(p, n_prices, prices, arena, &bounds, err));
    out->base_ps = bounds.base < out->cost_ps ? bounds.base : out->cost_ps;
    return round_bounds(p, &bounds, arena, out, err);
}

/* ---- using them ---------------------------------------------------------------------------------
 */

static int64_t bound_of(const dtp_plan_strategy_bounds *b, int32_t above)
{
    return b->base_ps + above * b->unit_ps;
}

int64_t dtp_plan_bound_at(const dtp_plan_strategy_bounds *b, int32_t assignment, int32_t k)
{
    return bound_of(b, b->above[b->first[assignment] + k]);
}

static int32_t count_within(const dtp_plan_strategy_bounds *b, int32_t above)
{
    int32_t n = 0;
    for (int32_t k = 0; k < b->first[b->n]; k++) {
        n += b->above[k] <= above ? 1 : 0;
    }
    return n;
}

/* The least number of units within which there are so many options. */
static int64_t find_units(const dtp_plan_strategy_bounds *b, int32_t most)
{
    int32_t low = 0, high = DTP_PLAN_MOST_ABOVE;
    while (low < high) {
        const int32_t mid = low + (high - low) / 2;
        if (count_within(b, mid) >= most) {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    return low;
}

int64_t dtp_plan_bounds_keep(const dtp_plan_strategy_bounds *b, int32_t most, bool *keep)
{
    const int64_t above = find_units(b, most);
    for (int32_t k = 0; k < b->first[b->n]; k++) {
        keep[k] = b->above[k] <= above;
    }
    return above < DTP_PLAN_MOST_ABOVE ? bound_of(b, (int32_t)above) : INT64_MAX;
}
