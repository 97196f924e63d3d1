/* Plans of redistributions are cheapest, against Dijkstra's algorithm on the complete graph of
 * layouts. The graph is made from the definition of the steps alone: for two layouts, which step
 * (if any) leads from one to the other. Also: the price obeys the triangle inequality, and a cache
 * answers what the planner answers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "interop/torch_cost.h"
#include "spmd/redistribute/redistribute_cache.h"
#include "tests/support/layout_list.h"
#include "tests/support/spmd_sim.h"
#include "tests/support/torch_price.h"

typedef struct implementation {
    const char *mesh;
    int32_t rank;
    int64_t sizes[3];
} implementation;

typedef struct fixture {
    dtp_mesh mesh;
    dtp_ttype type;
    layout_list list;
} fixture;

static fixture setup(const implementation *s, bool partial, dtp_reduce_op op)
{
    fixture f = {.type = {.dtype = DTP_F32, .rank = s->rank}};
    assert_int_equal(dtp_mesh_parse(s->mesh, &f.mesh, NULL), DTP_OK);
    for (int32_t i = 0; i < s->rank; i++) {
        f.type.dims[i] = (dtp_tdim){.id = i, .size = s->sizes[i]};
    }
    f.list = layout_list_all(s->rank, f.mesh.n_dims, partial, op);
    return f;
}

/* ---- prices, from their description ---- */

static double ceil_log2(double n)
{
    return ceil(log2(n));
}

/* 5 us per collective (twice that for an all-reduce), 10 us per doubling of the group, 10 GB/s for
 * what moves, 40 GB/s for copies. */
static double described_price(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                              const dtp_layout *before, const dtp_step *step)
{
    (void)user;
    double n = dtp_mesh_set_size(mesh, step->set);
    double part = (double)dtp_step_count(mesh, type, before, step) * 4;
    if (n < 2) {
        return 0;
    }
    if (step->kind >= DTP_STEP_SLICE) {
        return 2 * part / (step->kind == DTP_STEP_SLICE ? n : 1) / 40e9;
    }
    if (step->kind == DTP_STEP_ALL_REDUCE) {
        return 10e-6 + 10e-6 * ceil_log2(n) + 2 * part * (n - 1) / n / 10e9;
    }
    double bytes = part * (n - 1), copied = 0;
    double in = step->kind == DTP_STEP_ALL_GATHER ? 1 : n;
    double out = step->kind == DTP_STEP_REDUCE_SCATTER ? 1 : n;
    copied += dtp_step_packs(mesh, type, before, step, &dtp_target_cpu) != 0 ? 2 * part * in : 0;
    copied += dtp_step_packs(mesh, type, before, step, &dtp_target_cpu) != 0 ? 2 * part * out : 0;
    return 5e-6 + 10e-6 * ceil_log2(n) + bytes / 10e9 + copied / 40e9;
}

static double unit_price(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                         const dtp_layout *before, const dtp_step *step)
{
    (void)user;
    return 1.0 + 0.01 * (double)dtp_step_count(mesh, type, before, step);
}

static double path_price(const fixture *f, dtp_step_price price, const dtp_layout *from,
                         const dtp_steps *steps)
{
    dtp_layout at = *from;
    double sum = 0;
    for (int32_t i = 0; i < steps->n; i++) {
        sum += price(NULL, &f->mesh, &f->type, &at, &steps->steps[i]);
        at = steps->steps[i].after;
    }
    return sum;
}

/* ---- which step leads from a to b ---- */

static bool divides_evenly(const fixture *f, const dtp_layout *layout, int32_t axis)
{
    int64_t parts = 1;
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *p = &layout->placement[m];
        parts *= p->kind == DTP_SHARD && p->axis == axis ? f->mesh.sizes[m] : 1;
    }
    return f->type.dims[axis].size % parts == 0;
}

/* Whether the splits of `axis` in `more` are those in `less` and then `set`, ascending. */
static bool is_extension(const dtp_layout *less, const dtp_layout *more, int32_t axis,
                         dtp_mesh_set set)
{
    int32_t a[DTP_MAX_MESH_DIMS], b[DTP_MAX_MESH_DIMS];
    int32_t n = dtp_layout_axis_splits(less, axis, a), at = n;
    if (dtp_layout_axis_splits(more, axis, b) < n || memcmp(a, b, (size_t)n * sizeof a[0]) != 0) {
        return false;
    }
    for (int32_t m = 0; m < less->n_mesh; m++) {
        if ((set >> m & 1U) != 0 && b[at++] != m) {
            return false;
        }
    }
    return at == dtp_layout_axis_splits(more, axis, b);
}

static bool same_kind(const dtp_placement *a, const dtp_placement *b)
{
    return a->kind == b->kind && a->axis == b->axis && a->op == b->op;
}

/* The change that is common to all mesh dims that change; false when there is none. */
static bool find_change(const dtp_layout *a, const dtp_layout *b, dtp_mesh_set *set,
                        dtp_placement *from, dtp_placement *to)
{
    *set = 0;
    for (int32_t m = 0; m < a->n_mesh; m++) {
        if (same_kind(&a->placement[m], &b->placement[m])) {
            continue;
        }
        if (*set != 0 && (!same_kind(from, &a->placement[m]) || !same_kind(to, &b->placement[m]))) {
            return false;
        }
        *from = a->placement[m];
        *to = b->placement[m];
        *set |= 1U << m;
    }
    return *set != 0;
}

static bool axes_agree(const fixture *f, const dtp_layout *a, const dtp_layout *b,
                       const dtp_step *step, const dtp_placement *from, const dtp_placement *to)
{
    bool many = (step->set & (step->set - 1U)) != 0;
    for (int32_t axis = 0; axis < f->type.rank; axis++) {
        bool loses = from->kind == DTP_SHARD && from->axis == axis;
        bool gains = to->kind == DTP_SHARD && to->axis == axis;
        if (!is_extension(loses ? b : a, loses ? a : b, axis, loses || gains ? step->set : 0)) {
            return false;
        }
        if (many &&
            ((loses && !divides_evenly(f, a, axis)) || (gains && !divides_evenly(f, b, axis)))) {
            return false;
        }
    }
    return true;
}

/* A mesh dim may be split only where the target splits it (or from another split or partial), and
 * partial values of the target stay. */
static bool wanted_at(const dtp_layout *target, dtp_mesh_set set, const dtp_placement *from,
                      const dtp_placement *to)
{
    for (int32_t m = 0; m < target->n_mesh; m++) {
        const dtp_placement *t = &target->placement[m];
        if ((set >> m & 1U) == 0) {
            continue;
        }
        if ((from->kind == DTP_REPLICATE && t->kind != to->kind) ||
            (from->kind == DTP_PARTIAL && t->kind == DTP_PARTIAL)) {
            return false;
        }
    }
    return true;
}

static bool find_step(const fixture *f, const dtp_layout *a, const dtp_layout *b,
                      const dtp_layout *target, dtp_step *out)
{
    dtp_placement from = {0}, to = {0};
    *out = (dtp_step){.after = *b};
    if (!find_change(a, b, &out->set, &from, &to) || !wanted_at(target, out->set, &from, &to) ||
        !axes_agree(f, a, b, out, &from, &to)) {
        return false;
    }
    out->axis = from.kind == DTP_SHARD ? from.axis : to.axis;
    out->op = (dtp_reduce_op)(from.op + to.op);
    if (from.kind == DTP_PARTIAL) {
        out->kind = to.kind == DTP_SHARD ? DTP_STEP_REDUCE_SCATTER : DTP_STEP_ALL_REDUCE;
        return to.kind != DTP_PARTIAL;
    }
    if (from.kind == DTP_SHARD) {
        out->kind = to.kind == DTP_SHARD ? DTP_STEP_ALL_TO_ALL : DTP_STEP_ALL_GATHER;
        out->to_axis = to.axis;
        return to.kind != DTP_PARTIAL;
    }
    out->kind = to.kind == DTP_SHARD ? DTP_STEP_SLICE : DTP_STEP_KEEP_FIRST;
    return true;
}

/* Least prices from every layout to the target: cost[i], infinite when there is no way. */
static void least_prices(const fixture *f, dtp_step_price price, int32_t target, double *cost)
{
    const int32_t n = f->list.n;
    bool *done = calloc((size_t)n, sizeof *done);
    assert_non_null(done);
    for (int32_t i = 0; i < n; i++) {
        cost[i] = i == target ? 0 : (double)INFINITY;
    }
    for (;;) {
        int32_t at = -1;
        for (int32_t i = 0; i < n; i++) {
            at = !done[i] && isfinite(cost[i]) && (at < 0 || cost[i] < cost[at]) ? i : at;
        }
        if (at < 0) {
            break;
        }
        done[at] = true;
        for (int32_t i = 0; i < n; i++) {
            dtp_step step;
            if (!done[i] && find_step(f, &f->list.items[i], &f->list.items[at],
                                      &f->list.items[target], &step)) {
                double c = cost[at] + price(NULL, &f->mesh, &f->type, &f->list.items[i], &step);
                cost[i] = c < cost[i] ? c : cost[i];
            }
        }
    }
    free(done);
}

/* Shards do not become partial values in one redistribution. */
static bool splits_what_stays_partial(const dtp_layout *from, const dtp_layout *to)
{
    for (int32_t m = 0; m < from->n_mesh; m++) {
        if (from->placement[m].kind == DTP_SHARD && to->placement[m].kind == DTP_PARTIAL) {
            return true;
        }
    }
    return false;
}

static void check_exact(const implementation *s, bool unit)
{
    fixture f = setup(s, true, DTP_REDUCE_MAX);
    double *want = calloc((size_t)f.list.n, sizeof *want);
    dtp_step_price price = unit ? unit_price : described_price;
    int32_t planned = 0;
    for (int32_t j = 0; j < f.list.n; j++) {
        least_prices(&f, price, j, want);
        for (int32_t i = 0; i < f.list.n; i++) {
            dtp_steps steps;
            dtp_status status = dtp_redistribute_plan(
                &f.mesh, &f.type, &f.list.items[i], &f.list.items[j],
                unit ? unit_price : dtp_step_generic_price, NULL, &steps, NULL);
            bool refused = splits_what_stays_partial(&f.list.items[i], &f.list.items[j]);
            assert_true(isfinite(want[i]));
            assert_int_equal(status, refused ? DTP_UNSUPPORTED : DTP_OK);
            if (status == DTP_OK) {
                double got = path_price(&f, price, &f.list.items[i], &steps);
                assert_true(fabs(got - want[i]) <= 1e-9 * want[i]);
                planned++;
            }
        }
    }
    assert_true(planned > f.list.n * f.list.n / 3);
    free(want);
    layout_list_free(&f.list);
}

static void test_redistribute__plans_are_cheapest(void **state)
{
    (void)state;
    static const implementation implementations[] = {
        {"x:2;y:2;z:2", 2, {8, 16}},     {"x:2;y:2;z:2", 2, {4096, 2048}},
        {"x:2;y:2;z:2", 2, {13, 7}},     {"x:2;y:3", 3, {6, 12, 5}},
        {"x:2;y:3", 3, {600, 1200, 50}}, {"x:4;y:2", 3, {512, 3, 768}},
        {"x:2;y:1;z:3", 2, {600, 6}},    {"x:4", 3, {8, 3, 4}},
    };
    for (size_t i = 0; i < sizeof implementations / sizeof implementations[0]; i++) {
        check_exact(&implementations[i], false);
        check_exact(&implementations[i], true);
    }
}

/* ---- triangle inequality ---- */

/* Prices of all pairs; infinite where there is no plan. */
static double *all_prices(const fixture *f, bool torch)
{
    size_t n = (size_t)f->list.n;
    double *cost = calloc(n * n, sizeof *cost);
    assert_non_null(cost);
    for (size_t i = 0; i < n * n; i++) {
        const dtp_layout *a = &f->list.items[i / n], *b = &f->list.items[i % n];
        dtp_steps steps;
        if (torch) {
            cost[i] = torch_price(NULL, true, &f->mesh, &f->type, a, b);
        } else if (dtp_redistribute_plan(&f->mesh, &f->type, a, b, dtp_step_generic_price, NULL,
                                         &steps, NULL) == DTP_OK) {
            cost[i] = path_price(f, described_price, a, &steps);
        } else {
            cost[i] = (double)INFINITY;
        }
    }
    return cost;
}

/* Whether a redistribution from a to c may take the steps of those over b: it splits only what c
 * splits, keeps partial what stays partial, and makes nothing partial that does not end so. */
static bool is_on_the_way(const dtp_layout *a, const dtp_layout *b, const dtp_layout *c)
{
    for (int32_t m = 0; m < a->n_mesh; m++) {
        const bool from = a->placement[m].kind == DTP_PARTIAL,
                   to = c->placement[m].kind == DTP_PARTIAL;
        const bool at = b->placement[m].kind == DTP_PARTIAL;
        if ((b->placement[m].kind == DTP_SHARD && c->placement[m].kind != DTP_SHARD) ||
            (from && to && !at) || (at && !from && !to)) {
            return false;
        }
    }
    return true;
}

typedef struct triangles {
    bool torch;
    bool on_the_way; /* only those of is_on_the_way */
} triangles;

/* False when the triple is left out. */
static bool check_triangle(const fixture *f, const triangles *t, const double *cost, size_t a,
                           size_t b, size_t c)
{
    const size_t n = (size_t)f->list.n;
    const double direct = cost[a * n + c], around = cost[a * n + b] + cost[b * n + c];
    if (!isfinite(direct) || !isfinite(around) ||
        (t->on_the_way &&
         !is_on_the_way(&f->list.items[a], &f->list.items[b], &f->list.items[c]))) {
        return false;
    }
    if (!(direct <= around * (1 + 1e-9))) {
        fail_msg("layouts %zu, %zu, %zu of %zu: %g directly, %g around", a, b, c, n, direct,
                 around);
    }
    return true;
}

static void check_triangles(const implementation *s, triangles t)
{
    enum { RANDOM_TRIPLES = 2000000 };
    fixture f = setup(s, true, DTP_REDUCE_SUM);
    double *cost = all_prices(&f, t.torch);
    size_t n = (size_t)f.list.n, checked = 0, all = n * n * n;
    uint64_t seed = 5;
    if (all <= RANDOM_TRIPLES) {
        for (size_t i = 0; i < all; i++) {
            checked += check_triangle(&f, &t, cost, i / n / n, i / n % n, i % n);
        }
    } else {
        all = RANDOM_TRIPLES;
        for (size_t i = 0; i < RANDOM_TRIPLES; i++) {
            size_t a = spmd_sim_random(&seed) % n, b = spmd_sim_random(&seed) % n;
            checked += check_triangle(&f, &t, cost, a, b, spmd_sim_random(&seed) % n);
        }
    }
    assert_true(checked > all / 20);
    free(cost);
    layout_list_free(&f.list);
}

static void test_redistribute__price_obeys_the_triangle_inequality(void **state)
{
    (void)state;
    static const implementation implementations[] = {
        {"x:4", 3, {13, 2, 13}},         {"x:4", 2, {16, 8}},     {"x:2;y:2", 2, {16, 8}},
        {"x:2;y:2", 3, {13, 2, 13}},     {"x:2;y:3", 2, {16, 8}}, {"x:2;y:3", 3, {13, 2, 13}},
        {"x:2;y:4", 2, {16, 8}},         {"x:2;y:2;z:2", 1, {5}}, {"x:2;y:2;z:2", 2, {16, 8}},
        {"x:2;y:2;z:2", 3, {13, 2, 13}},
    };
    for (size_t i = 0; i < sizeof implementations / sizeof implementations[0]; i++) {
        check_triangles(&implementations[i], (triangles){.torch = false});
        check_triangles(&implementations[i], (triangles){.torch = true});
    }
}

/* Where bytes count more than launches, a way over mesh dims on which neither end splits anything
 * can be cheaper than the one that is taken. */
static void test_redistribute__price_of_megabytes_obeys_it_on_the_way(void **state)
{
    (void)state;
    static const implementation implementations[] = {
        {"x:4", 2, {4096, 1024}},
        {"x:2;y:2", 2, {2048, 2048}},
        {"x:2;y:3", 3, {600, 1200, 50}},
        {"x:2;y:2;z:2", 2, {4096, 2048}},
        {"x:2;y:2;z:2", 3, {512, 512, 64}},
        {"x:4;y:2;z:3", 3, {1024, 768, 48}},
        {"x:2;y:2;z:2", 3, {1021, 509, 61}},
        {"x:8;y:8", 2, {16384, 16384}},
    };
    for (size_t i = 0; i < sizeof implementations / sizeof implementations[0]; i++) {
        check_triangles(&implementations[i], (triangles){.on_the_way = true});
    }
}

/* ---- the cache ---- */

static void check_steps_equal(const dtp_steps *a, const dtp_steps *b)
{
    assert_int_equal(a->n, b->n);
    for (int32_t i = 0; i < a->n; i++) {
        const dtp_step *x = &a->steps[i], *y = &b->steps[i];
        assert_true(dtp_layout_equal(&x->after, &y->after));
        assert_true(x->kind == y->kind && x->set == y->set && x->axis == y->axis &&
                    x->to_axis == y->to_axis && x->op == y->op && x->factor == y->factor);
    }
}

/* Every pair twice; what has no plan is refused each time. */
static void check_cache(const implementation *s, dtp_redistribute_cache *cache)
{
    fixture f = setup(s, true, DTP_REDUCE_AVG);
    const dtp_redistributor *r = dtp_redistribute_cache_planner(cache);
    int64_t planned = 0, pairs = 2 * (int64_t)f.list.n * f.list.n;
    dtp_redistribute_cache_stats before = dtp_redistribute_cache_counts(cache);
    for (int64_t k = 0; k < pairs; k++) {
        const dtp_layout *from = &f.list.items[k / 2 / f.list.n];
        const dtp_layout *to = &f.list.items[k / 2 % f.list.n];
        dtp_steps plain, cached;
        dtp_status want = dtp_redistribute_plan(&f.mesh, &f.type, from, to, dtp_step_generic_price,
                                                NULL, &plain, NULL);
        assert_int_equal(dtp_redistribute_by(r, &f.mesh, &f.type, from, to, &cached, NULL), want);
        if (want == DTP_OK) {
            check_steps_equal(&plain, &cached);
            planned++;
        }
    }
    dtp_redistribute_cache_stats after = dtp_redistribute_cache_counts(cache);
    assert_int_equal(after.hits - before.hits, planned / 2);
    assert_int_equal(after.misses - before.misses, pairs - planned / 2);
    layout_list_free(&f.list);
}

static void test_redistribute__cache_answers_what_the_planner_answers(void **state)
{
    (void)state;
    /* implementations that differ in one part of the key each */
    static const implementation implementations[] = {
        {"x:2;y:2", 2, {8, 8}}, {"x:2;y:2", 2, {8, 4}},     {"x:2;y:4", 2, {8, 8}},
        {"x:4;y:2", 2, {8, 8}}, {"x:2;y:2;z:2", 2, {8, 8}}, {"x:2;y:2", 3, {8, 8, 1}},
    };
    dtp_redistribute_cache *cache;
    assert_int_equal(dtp_redistribute_cache_create(dtp_redistributor_generic(), 0, &cache, NULL),
                     DTP_OK);
    for (size_t i = 0; i < sizeof implementations / sizeof implementations[0]; i++) {
        check_cache(&implementations[i], cache);
    }
    dtp_redistribute_cache_destroy(cache);
    dtp_redistribute_cache_destroy(NULL);
}

static void test_redistribute__full_cache_starts_again(void **state)
{
    (void)state;
    static const implementation s = {"x:2;y:2", 2, {8, 8}};
    dtp_redistribute_cache *cache;
    assert_int_equal(dtp_redistribute_cache_create(dtp_redistributor_generic(), 7, &cache, NULL),
                     DTP_OK);
    check_cache(&s, cache);
    assert_in_range(dtp_redistribute_cache_counts(cache).entries, 1, 7);
    dtp_redistribute_cache_destroy(cache);
}

static void test_redistribute__cache_asks_its_planner(void **state)
{
    (void)state;
    static const implementation s = {"x:4", 2, {8, 8}};
    fixture f = setup(&s, false, DTP_REDUCE_SUM);
    dtp_torch_planner torch = {.options = {.no_all_to_all = true}};
    dtp_redistributor planner = dtp_torch_redistributor(&torch);
    dtp_redistribute_cache *cache;
    dtp_layout from = dtp_layout_replicated(2, 1), to = from;
    dtp_layout_split(&from, 0, 0);
    dtp_layout_split(&to, 0, 1);
    assert_int_equal(dtp_redistribute_cache_create(&planner, 0, &cache, NULL), DTP_OK);
    for (int32_t i = 0; i < 2; i++) {
        dtp_steps steps;
        assert_int_equal(dtp_redistribute_by(dtp_redistribute_cache_planner(cache), &f.mesh,
                                             &f.type, &from, &to, &steps, NULL),
                         DTP_OK);
        assert_int_equal(steps.n, 2);
        assert_int_equal(steps.steps[0].kind, DTP_STEP_ALL_GATHER);
    }
    dtp_redistribute_cache_destroy(cache);
    layout_list_free(&f.list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redistribute__plans_are_cheapest),
        cmocka_unit_test(test_redistribute__price_obeys_the_triangle_inequality),
        cmocka_unit_test(test_redistribute__price_of_megabytes_obeys_it_on_the_way),
        cmocka_unit_test(test_redistribute__cache_answers_what_the_planner_answers),
        cmocka_unit_test(test_redistribute__full_cache_starts_again),
        cmocka_unit_test(test_redistribute__cache_asks_its_planner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
