/* Tensor mode against exhaustive search over its own strategy space.
 *
 * Small graphs: every combination of rows, layouts and views is lowered and priced, without the
 * problem's options and prices. An MLP and two layers of a GPT: the optimum of the selection
 * problem by eliminating one choice after the other (dynamic programming over the tables of what
 * remains), and, under a memory limit, all changes of a few choices at a time. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/candidate.h"
#include "planner/select/solve.h"
#include "tests/oracle/tensor_cases.h"

/* ---- enumeration of programs -------------------------------------------------------------------
 */

/* A contraction; what it leaves is read twice. */
static const char TWICE[] =
    "{\"format\": \"dtp.model/1\", \"name\": \"twice\","
    " \"dims\": {\"batch\": 64, \"d\": 32, \"h\": 16},"
    " \"inputs\": {\"x\": {\"dims\": [\"batch\", \"d\"], \"dtype\": \"f32\"}},"
    " \"params\": {\"w\": {\"dims\": [\"d\", \"h\"], \"init\": \"ones\"}},"
    " \"nodes\": ["
    "  {\"id\": \"y\", \"op\": \"einsum\", \"in\": [\"x\", \"w\"], \"out\": [\"batch\", \"h\"]},"
    "  {\"id\": \"a\", \"op\": \"relu\", \"in\": [\"y\"]},"
    "  {\"id\": \"z\", \"op\": \"add\", \"in\": [\"y\", \"a\"]}],"
    " \"outputs\": [\"z\"]}";

static const char ONCE[] =
    "{\"format\": \"dtp.model/1\", \"name\": \"once\","
    " \"dims\": {\"batch\": 64, \"d\": 32, \"h\": 16},"
    " \"inputs\": {\"x\": {\"dims\": [\"batch\", \"d\"], \"dtype\": \"f32\"}},"
    " \"params\": {\"w\": {\"dims\": [\"d\", \"h\"], \"init\": \"ones\"}},"
    " \"nodes\": ["
    "  {\"id\": \"y\", \"op\": \"einsum\", \"in\": [\"x\", \"w\"], \"out\": [\"batch\", \"h\"]}],"
    " \"outputs\": [\"y\"]}";

enum { MAX_WHEELS = 16, MAX_LAYOUTS = 64 };

/* One decision of the enumeration: which of n; what it sets. */
typedef struct wheel {
    int32_t n, at;
    dtp_strategy *strategy; /* else a layout, with its list */
    int32_t mesh_dim;
    dtp_layout *layout;
    const dtp_layout *list;
} wheel;

typedef struct search {
    const tensor_fixture *f;
    dtp_sharding s;
    int32_t n;
    wheel wheels[MAX_WHEELS];
    dtp_layout lists[MAX_WHEELS][MAX_LAYOUTS];
    int64_t best, lowered;
} search;

/* All layouts of a tensor that divide it evenly, partial sums too, mesh order. */
static int32_t list_layouts(const dtp_mesh *mesh, const dtp_ttype *type, bool partial,
                            dtp_layout *out)
{
    const int32_t ways = 1 + type->rank + (partial ? 1 : 0);
    int32_t n = 0, all = 1;
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        all *= ways;
    }
    for (int32_t code = 0; code < all; code++) {
        dtp_layout l = dtp_layout_replicated(type->rank, mesh->n_dims);
        for (int32_t m = 0, rest = code; m < mesh->n_dims; m++, rest /= ways) {
            if (rest % ways == ways - 1 && partial) {
                l.place[m] = (dtp_place){.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
            } else if (rest % ways > 0) {
                dtp_layout_split(&l, m, rest % ways - 1);
            }
        }
        if (dtp_layout_is_even(&l, mesh, type)) {
            assert_true(n < MAX_LAYOUTS);
            out[n++] = l;
        }
    }
    return n;
}

static void add_layout_wheel(search *s, dtp_tensor_id t, dtp_layout *layout)
{
    const dtp_graph_tensor *tensor = &s->f->graph->tensors[t];
    assert_true(s->n < MAX_WHEELS);
    wheel *w = &s->wheels[s->n];
    w->layout = layout;
    w->list = s->lists[s->n];
    w->n = list_layouts(&s->f->pricer.mesh, &tensor->type, tensor->kind == DTP_TENSOR_VALUE,
                        s->lists[s->n]);
    s->n++;
}

static void add_wheels(search *s)
{
    const dtp_graph *g = s->f->graph;
    int32_t readers[32] = {0};
    for (dtp_node_id id = 0; id < g->n_nodes; id++) {
        dtp_call_types types;
        dtp_rule_set rules;
        const dtp_op_call call = dtp_node_call(g, &g->nodes[id], &types);
        dtp_op_rules(&call, true, &rules);
        for (int32_t m = 0; m < s->f->pricer.mesh.n_dims; m++) {
            assert_true(s->n < MAX_WHEELS);
            s->wheels[s->n++] =
                (wheel){.n = rules.n, .strategy = &s->s.strategies[id], .mesh_dim = m};
        }
        for (int32_t i = 0; i < g->nodes[id].n_in; i++) {
            readers[g->nodes[id].in[i]]++;
        }
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        add_layout_wheel(s, t, &s->s.layouts[t]);
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        if (readers[t] > 1) {
            add_layout_wheel(s, t, &s->s.views[DTP_FORWARD][t]);
        }
    }
}

static void set_wheel(const wheel *w)
{
    if (w->strategy != NULL) {
        w->strategy->row[w->mesh_dim] = (int16_t)w->at;
    } else if (w->layout != NULL) {
        *w->layout = w->list[w->at];
    }
}

/* Views without a wheel are the tensors themselves. */
static void price_once(search *s, const bool *has_view)
{
    int64_t cost;
    for (dtp_tensor_id t = 0; t < s->s.n_tensors; t++) {
        if (!has_view[t]) {
            s->s.views[DTP_FORWARD][t] = s->s.layouts[t];
        }
    }
    if (dtp_additive_cost(s->f->graph, &s->f->pricer, &s->s, s->f->redistributor, &cost, NULL) ==
        DTP_OK) {
        s->best = cost < s->best ? cost : s->best;
        s->lowered++;
    }
}

static void enumerate(search *s)
{
    bool has_view[32] = {false};
    int32_t i = 0;
    for (int32_t k = 0; k < s->n; k++) {
        const wheel *w = &s->wheels[k];
        const ptrdiff_t t = w->layout != NULL ? w->layout - s->s.views[DTP_FORWARD] : -1;
        if (t >= 0 && t < s->s.n_tensors) {
            has_view[t] = true;
        }
        set_wheel(w);
    }
    while (i < s->n) {
        price_once(s, has_view);
        for (i = 0; i < s->n; i++) {
            wheel *w = &s->wheels[i];
            w->at = (w->at + 1) % w->n;
            set_wheel(w);
            if (w->at != 0) {
                break;
            }
        }
    }
}

static int64_t solve(const dtp_select_problem *p)
{
    const dtp_select_options options = dtp_select_options_init();
    dtp_select_result r;
    assert_int_equal(dtp_select_solve(p, &options, &r, NULL), DTP_OK);
    assert_int_equal(r.status, DTP_CERT_OPTIMAL);
    const int64_t cost = r.value.cost;
    dtp_select_result_free(&r);
    return cost;
}

static void check_enumeration(const tensor_case *c)
{
    tensor_fixture f;
    search *s = calloc(1, sizeof *s);
    dtp_tensor_options options = dtp_tensor_options_init();
    options.fold = false;
    assert_non_null(s);
    tensor_fixture_create(c, &f);
    dtp_arena *arena = dtp_arena_create();
    s->f = &f;
    s->best = INT64_MAX;
    s->s = (dtp_sharding){
        .mesh = f.pricer.mesh, .n_tensors = f.graph->n_tensors, .n_nodes = f.graph->n_nodes};
    s->s.layouts = dtp_arena_alloc(arena, (size_t)s->s.n_tensors, sizeof *s->s.layouts);
    s->s.strategies = dtp_arena_alloc(arena, (size_t)s->s.n_nodes, sizeof *s->s.strategies);
    for (dtp_tensor_id t = 0; t < s->s.n_tensors; t++) {
        s->s.layouts[t] =
            dtp_layout_replicated(f.graph->tensors[t].type.rank, f.pricer.mesh.n_dims);
    }
    assert_int_equal(dtp_sharding_add_views(&s->s, arena, NULL), DTP_OK);
    add_wheels(s);
    enumerate(s);
    dtp_tensor_problem *p = tensor_fixture_problem(&f, &options);
    const int64_t cost = solve(p->select);
    print_message("%s on %s: %" PRId64 " programs, the cheapest costs %" PRId64 " ps\n",
                  f.graph->name, c->mesh, s->lowered, s->best);
    assert_int_equal(cost, s->best);
    dtp_tensor_problem_destroy(p);
    dtp_arena_destroy(arena);
    tensor_fixture_destroy(&f);
    free(s);
}

static void test_tensor_exact__equals_the_cheapest_of_all_programs(void **state)
{
    (void)state;
    check_enumeration(&(tensor_case){.model = TWICE, .mesh = "x:2", .dims = NULL});
    check_enumeration(&(tensor_case){.model = ONCE, .mesh = "x:4", .dims = NULL});
    check_enumeration(&(tensor_case){.model = ONCE, .mesh = "x:2;y:2", .dims = NULL});
}

/* ---- elimination -------------------------------------------------------------------------------
 */

/* A table over a few choices, row-major, the first one outermost. */
typedef struct factor {
    int32_t n, *vars;
    int64_t size, *cost;
} factor;

typedef struct elimination {
    const dtp_select_problem *p;
    int32_t n, cap;
    factor *factors;
    bool *gone; /* by choice */
    int32_t *mark, stamp;
} elimination;

enum { MAX_TABLE = 1 << 26 };

static void add_factor(elimination *e, int32_t n, const int32_t *vars, int64_t *cost)
{
    if (e->n == e->cap) {
        e->cap = e->cap > 0 ? 2 * e->cap : 256;
        e->factors = realloc(e->factors, (size_t)e->cap * sizeof *e->factors);
        assert_non_null(e->factors);
    }
    factor f = {.n = n, .size = 1, .cost = cost};
    f.vars = calloc(n > 0 ? (size_t)n : 1, sizeof *f.vars);
    assert_non_null(f.vars);
    for (int32_t i = 0; i < n; i++) {
        f.vars[i] = vars[i];
        f.size *= dtp_select_n_strategies(e->p, vars[i]);
    }
    e->factors[e->n++] = f;
}

static int64_t *copy_costs(const int64_t *from, int64_t n)
{
    int64_t *to = malloc(((size_t)n + 1) * sizeof *to);
    assert_non_null(to);
    memcpy(to, from, (size_t)n * sizeof *to);
    return to;
}

static bool has_var(const factor *f, int32_t v)
{
    for (int32_t i = 0; i < f->n; i++) {
        if (f->vars[i] == v) {
            return true;
        }
    }
    return false;
}

/* The choices that share a table with v, v itself last; returns how many. */
static int32_t neighbours(elimination *e, int32_t v, int32_t *out)
{
    int32_t n = 0;
    e->stamp++;
    e->mark[v] = e->stamp;
    for (int32_t i = 0; i < e->n; i++) {
        const factor *f = &e->factors[i];
        for (int32_t k = 0; has_var(f, v) && k < f->n; k++) {
            if (e->mark[f->vars[k]] != e->stamp) {
                e->mark[f->vars[k]] = e->stamp;
                out[n++] = f->vars[k];
            }
        }
    }
    out[n] = v;
    return n + 1;
}

static int64_t product(const elimination *e, const int32_t *vars, int32_t n)
{
    int64_t size = 1;
    for (int32_t i = 0; i < n && size <= MAX_TABLE; i++) {
        size *= dtp_select_n_strategies(e->p, vars[i]);
    }
    return size;
}

/* Adds a factor to a table over vars. */
static void spread(const elimination *e, const factor *f, const int32_t *vars, int32_t n,
                   int64_t size, int64_t *table)
{
    int32_t digit[64] = {0};
    int64_t step[64] = {0}, at = 0;
    assert_true(n <= 64);
    for (int32_t i = 0; i < n; i++) {
        int64_t stride = 1;
        for (int32_t k = f->n - 1; k >= 0; k--) {
            step[i] += f->vars[k] == vars[i] ? stride : 0;
            stride *= dtp_select_n_strategies(e->p, f->vars[k]);
        }
    }
    for (int64_t x = 0; x < size; x++) {
        table[x] = dtp_select_add_cost(table[x], f->cost[at]);
        for (int32_t i = n - 1; i >= 0; i--) {
            at += step[i];
            if (++digit[i] < dtp_select_n_strategies(e->p, vars[i])) {
                break;
            }
            at -= step[i] * digit[i];
            digit[i] = 0;
        }
    }
}

static void eliminate(elimination *e, const int32_t *vars, int32_t n)
{
    const int32_t v = vars[n - 1], k = dtp_select_n_strategies(e->p, v);
    const int64_t size = product(e, vars, n);
    assert_true(size <= MAX_TABLE);
    int64_t *table = calloc((size_t)size, sizeof *table);
    int32_t kept = 0;
    assert_non_null(table);
    for (int32_t i = 0; i < e->n; i++) {
        factor *f = &e->factors[i];
        if (has_var(f, v)) {
            spread(e, f, vars, n, size, table);
            free(f->cost);
            free(f->vars);
        } else {
            e->factors[kept++] = *f;
        }
    }
    e->n = kept;
    for (int64_t x = 0; x < size / k; x++) {
        int64_t least = table[x * k];
        for (int32_t s = 1; s < k; s++) {
            least = table[x * k + s] < least ? table[x * k + s] : least;
        }
        table[x] = least;
    }
    e->gone[v] = true;
    add_factor(e, n - 1, vars, table);
}

/* The least cost without regard to memory. */
static int64_t optimum(const dtp_select_problem *p)
{
    elimination e = {.p = p};
    int32_t *vars = calloc((size_t)p->n_nodes + 1, sizeof *vars);
    int32_t *best = calloc((size_t)p->n_nodes + 1, sizeof *best);
    e.gone = calloc((size_t)p->n_nodes, sizeof *e.gone);
    e.mark = calloc((size_t)p->n_nodes, sizeof *e.mark);
    assert_true(vars != NULL && best != NULL && e.gone != NULL && e.mark != NULL);
    for (int32_t i = 0; i < p->n_nodes; i++) {
        add_factor(&e, 1, &i, copy_costs(p->cost + p->first[i], dtp_select_n_strategies(p, i)));
    }
    for (int32_t i = 0; i < p->n_edges; i++) {
        const int32_t ends[2] = {p->edge_a[i], p->edge_b[i]};
        add_factor(
            &e, 2, ends,
            copy_costs(p->edge_cost + p->edge_first[i], p->edge_first[i + 1] - p->edge_first[i]));
    }
    for (int32_t left = p->n_nodes; left > 0; left--) {
        int32_t n_best = 0;
        int64_t smallest = INT64_MAX;
        for (int32_t v = 0; v < p->n_nodes; v++) {
            const int32_t n = e.gone[v] ? 0 : neighbours(&e, v, vars);
            if (n > 0 && product(&e, vars, n) < smallest) {
                smallest = product(&e, vars, n);
                memcpy(best, vars, (size_t)n * sizeof *best);
                n_best = n;
            }
        }
        eliminate(&e, best, n_best);
    }
    int64_t cost = 0;
    for (int32_t i = 0; i < e.n; i++) {
        cost += e.factors[i].cost[0];
        free(e.factors[i].cost);
        free(e.factors[i].vars);
    }
    free(e.factors);
    free(e.gone);
    free(e.mark);
    free(vars);
    free(best);
    return cost;
}

static void check_elimination(const tensor_case *c, bool fold)
{
    tensor_fixture f;
    dtp_tensor_options options = dtp_tensor_options_init();
    options.fold = fold;
    tensor_fixture_create(c, &f);
    dtp_tensor_problem *p = tensor_fixture_problem(&f, &options);
    const int64_t want = optimum(p->select), got = solve(p->select);
    print_message("%s on %s%s: %d choices, %" PRId64 " ps\n", f.graph->name, c->mesh,
                  fold ? ", folded" : "", p->n_choices, want);
    assert_int_equal(got, want);
    dtp_tensor_problem_destroy(p);
    tensor_fixture_destroy(&f);
}

static void test_tensor_exact__equals_elimination(void **state)
{
    (void)state;
    check_elimination(&(tensor_case){.model = TENSOR_MLP, .mesh = "x:2", .dims = TENSOR_MLP_DIMS},
                      false);
    check_elimination(&(tensor_case){.model = TENSOR_MLP, .mesh = "x:4", .dims = TENSOR_MLP_DIMS},
                      false);
    check_elimination(
        &(tensor_case){.model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = TENSOR_MLP_DIMS}, false);
    check_elimination(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS},
                      false);
    check_elimination(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:4", .dims = TENSOR_GPT_DIMS},
                      false);
    check_elimination(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS},
                      true);
    check_elimination(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:4", .dims = TENSOR_GPT_DIMS},
                      true);
}

/* Sets a limit below what the optimum without one uses and solves; the answer is proven. */
static void solve_limited(dtp_select_problem *p, dtp_select_result *r)
{
    const dtp_select_options options = dtp_select_options_init();
    assert_int_equal(dtp_select_solve(p, &options, r, NULL), DTP_OK);
    const int64_t peak = r->value.peak;
    for (int d = 3; d < 16; d++) {
        dtp_select_result_free(r);
        p->usage_limit = peak - (peak >> d) - 1;
        assert_int_equal(dtp_select_solve(p, &options, r, NULL), DTP_OK);
        if (r->choice != NULL) {
            break;
        }
    }
    assert_non_null(r->choice);
    assert_int_equal(r->status, DTP_CERT_OPTIMAL);
    assert_true(r->value.peak <= p->usage_limit);
}

/* ---- the bound of the problem without folding --------------------------------------------------
 */

static int64_t unfolded_bound(const dtp_tensor_problem *p, int32_t rounds, int32_t n,
                              const dtp_time_price *prices)
{
    int64_t bound = -1;
    dtp_err err = {0};
    if (dtp_tensor_unfolded_bound(p, rounds, n, prices, &bound, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return bound;
}

static void check_unfolded_bound(const tensor_case *c)
{
    tensor_fixture f;
    dtp_tensor_options options = dtp_tensor_options_init();
    tensor_fixture_create(c, &f);
    dtp_tensor_problem *folded = tensor_fixture_problem(&f, &options);
    options.fold = false;
    dtp_tensor_problem *plain = tensor_fixture_problem(&f, &options);
    const int64_t best = optimum(plain->select), together = optimum(folded->select);
    const int64_t start = unfolded_bound(folded, 0, 0, NULL);
    const int64_t bound = unfolded_bound(folded, 60, 0, NULL);
    print_message("%s on %s: bound %" PRId64 " <= unfolded %" PRId64 " <= folded %" PRId64 "\n",
                  f.graph->name, c->mesh, bound, best, together);
    assert_true(start <= best && bound <= best && best <= together);
    assert_true(start <= bound && bound > best - best / 20);
    assert_true(unfolded_bound(plain, 60, 0, NULL) <= best);
    dtp_tensor_problem_destroy(folded);
    dtp_tensor_problem_destroy(plain);
    tensor_fixture_destroy(&f);
}

static void test_tensor_exact__bound_without_folding(void **state)
{
    (void)state;
    check_unfolded_bound(
        &(tensor_case){.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS});
    check_unfolded_bound(
        &(tensor_case){.model = TENSOR_GPT, .mesh = "x:4", .dims = TENSOR_GPT_DIMS});
    check_unfolded_bound(
        &(tensor_case){.model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = TENSOR_MLP_DIMS});
}

/* Whatever the prices of times are, under a limit the bound holds; good ones lift it. */
static void test_tensor_exact__bound_under_a_limit(void **state)
{
    (void)state;
    tensor_fixture f;
    uint64_t seed = 9;
    dtp_tensor_options options = dtp_tensor_options_init();
    dtp_select_result r;
    tensor_fixture_create(
        &(tensor_case){.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS}, &f);
    dtp_tensor_problem *p = tensor_fixture_problem(&f, &options);
    solve_limited(p->select, &r);
    const int64_t peak_at = r.value.peak_at;
    const int64_t without = unfolded_bound(p, 40, 0, NULL);
    int64_t best = 0;
    for (int k = 0; k < 12; k++) {
        dtp_time_price prices[3] = {{peak_at, (double)(1 << k)}};
        for (int i = 1; i < 3; i++) {
            prices[i].time = (int64_t)tensor_draw(&seed, 3 * (uint64_t)f.graph->n_nodes);
            prices[i].price = (double)tensor_draw(&seed, 100) / 10;
        }
        const int64_t one = unfolded_bound(p, 40, 1, prices);
        const int64_t all = unfolded_bound(p, 40, 3, prices);
        assert_true(one <= r.value.cost && all <= r.value.cost);
        best = one > best ? one : best;
    }
    print_message("without prices %" PRId64 ", with %" PRId64 " <= %" PRId64 "\n", without, best,
                  r.value.cost);
    assert_true(best > without);
    dtp_select_result_free(&r);
    dtp_tensor_problem_destroy(p);
    tensor_fixture_destroy(&f);
}

/* ---- memory ------------------------------------------------------------------------------------
 */

enum { CHANGED = 3, TRIES = 20 };

/* All strategies of a few choices, the rest as it is: nothing that fits is cheaper. */
static void check_changes(const dtp_select_problem *p, const dtp_select_result *r, uint64_t *seed)
{
    int32_t *choice = malloc((size_t)p->n_nodes * sizeof *choice), at[CHANGED], i = 0;
    assert_non_null(choice);
    memcpy(choice, r->choice, (size_t)p->n_nodes * sizeof *choice);
    for (int k = 0; k < CHANGED; k++) {
        const int32_t third = p->n_nodes / CHANGED; /* one of every third: distinct */
        at[k] = k * third + (int32_t)tensor_draw(seed, (uint64_t)third);
        choice[at[k]] = 0;
    }
    while (i < CHANGED) {
        dtp_select_value value;
        assert_int_equal(dtp_select_evaluate(p, choice, &value, NULL), DTP_OK);
        assert_true(!value.feasible || value.cost >= r->value.cost);
        for (i = 0; i < CHANGED; i++) {
            choice[at[i]] = (choice[at[i]] + 1) % dtp_select_n_strategies(p, at[i]);
            if (choice[at[i]] != 0) {
                break;
            }
        }
    }
    free(choice);
}

static void test_tensor_exact__nothing_better_near_the_optimum_under_a_limit(void **state)
{
    (void)state;
    static const tensor_case cases[] = {
        {.model = TENSOR_MLP, .mesh = "x:2", .dims = TENSOR_MLP_DIMS},
        {.model = TENSOR_MLP, .mesh = "x:4", .dims = TENSOR_MLP_DIMS},
        {.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS}};
    uint64_t seed = 21;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tensor_fixture f;
        dtp_select_result r;
        tensor_fixture_create(&cases[i], &f);
        dtp_tensor_problem *p = tensor_fixture_problem(&f, NULL);
        solve_limited(p->select, &r);
        for (int k = 0; k < TRIES; k++) {
            check_changes(p->select, &r, &seed);
        }
        dtp_select_result_free(&r);
        dtp_tensor_problem_destroy(p);
        tensor_fixture_destroy(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_exact__equals_the_cheapest_of_all_programs),
        cmocka_unit_test(test_tensor_exact__equals_elimination),
        cmocka_unit_test(test_tensor_exact__bound_without_folding),
        cmocka_unit_test(test_tensor_exact__bound_under_a_limit),
        cmocka_unit_test(test_tensor_exact__nothing_better_near_the_optimum_under_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
