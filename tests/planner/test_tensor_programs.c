/* Tensor mode against all programs of small graphs: every combination of rows, layouts and replicas
 * is lowered and priced, without the problem's options and prices. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cost_models/predict.h"
#include "tests/support/quarter.h"
#include "tests/support/tensor_cases.h"
#include "core/graph/op_rules.h"

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
    bool uneven;
    dtp_sharding s;
    int32_t n;
    wheel wheels[MAX_WHEELS];
    dtp_layout lists[MAX_WHEELS][MAX_LAYOUTS];
    int64_t best, lowered;
} search;

/* All layouts of a tensor that may hold, partial sums too, mesh order. */
static int32_t list_layouts(const dtp_mesh *mesh, const dtp_ttype *type, bool partial, bool uneven,
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
                l.placement[m] = (dtp_placement){.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
            } else if (rest % ways > 0) {
                dtp_layout_split(&l, m, rest % ways - 1);
            }
        }
        if (dtp_layout_may_hold(&l, mesh, type, uneven)) {
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
                        s->uneven, s->lists[s->n]);
    s->n++;
}

static void add_wheels(search *s)
{
    const dtp_graph *g = s->f->graph;
    int32_t readers[32] = {0};
    for (dtp_node_id id = 0; id < g->n_nodes; id++) {
        dtp_call_types types;
        dtp_sharding_rules rules;
        const dtp_op_call call = dtp_node_call(g, &g->nodes[id], &types);
        dtp_sharding_rules_of(&call, true, &rules);
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
            add_layout_wheel(s, t, &s->s.replicas[DTP_FORWARD][t]);
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
            s->s.replicas[DTP_FORWARD][t] = s->s.layouts[t];
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
        const ptrdiff_t t = w->layout != NULL ? w->layout - s->s.replicas[DTP_FORWARD] : -1;
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

/* What planning says: its bound is not above the cheapest program, and "optimal" is just that. */
static void check_certificate(const tensor_fixture *f, bool uneven, int64_t best)
{
    dtp_plan_request request = tensor_fixture_request(f);
    request.options.uneven = uneven;
    dtp_plan_result r = tensor_fixture_plan(f, &request);
    const dtp_certificate *made = &r.plan->certificate;
    assert_int_equal(r.plan->uneven, uneven);
    assert_true(made->bound <= best && made->cost >= best && made->least_cost >= best);
    assert_true(made->status != DTP_CERT_OPTIMAL || made->cost == best);
    dtp_plan_result_free(&r);
}

static void check_enumeration(const tensor_case *c)
{
    tensor_fixture f;
    search *s = calloc(1, sizeof *s);
    dtp_tensor_options options = dtp_tensor_options_init();
    options.runs = 0;
    options.uneven = c->uneven;
    assert_non_null(s);
    tensor_fixture_create(c, &f);
    dtp_arena *arena = dtp_arena_create();
    s->f = &f;
    s->uneven = c->uneven;
    s->best = INT64_MAX;
    s->s = (dtp_sharding){
        .mesh = f.pricer.mesh, .n_tensors = f.graph->n_tensors, .n_nodes = f.graph->n_nodes};
    s->s.layouts = dtp_arena_alloc(arena, (size_t)s->s.n_tensors, sizeof *s->s.layouts);
    s->s.strategies = dtp_arena_alloc(arena, (size_t)s->s.n_nodes, sizeof *s->s.strategies);
    for (dtp_tensor_id t = 0; t < s->s.n_tensors; t++) {
        s->s.layouts[t] =
            dtp_layout_replicated(f.graph->tensors[t].type.rank, f.pricer.mesh.n_dims);
    }
    assert_int_equal(dtp_sharding_add_replicas(&s->s, arena, NULL), DTP_OK);
    add_wheels(s);
    enumerate(s);
    dtp_tensor_problem *p = tensor_fixture_problem(&f, &options);
    const int64_t cost = tensor_optimum(p->select);
    print_message("%s on %s, %s: %" PRId64 " programs, the cheapest costs %" PRId64 " ps\n",
                  f.graph->name, c->mesh, f.pricer.target->name, s->lowered, s->best);
    assert_int_equal(cost, s->best);
    check_certificate(&f, c->uneven, s->best);
    dtp_tensor_problem_destroy(p);
    dtp_arena_destroy(arena);
    tensor_fixture_destroy(&f);
    free(s);
}

static void test_tensor_programs__equals_the_cheapest_of_all_programs(void **state)
{
    (void)state;
    const dtp_target *target;
    for (int32_t i = 0; (target = dtp_target_at(i)) != NULL; i++) {
        if (!quarter_has(i, INT32_MAX)) {
            continue;
        }
        check_enumeration(&(tensor_case){.model = TWICE, .mesh = "x:2", .target = target});
        check_enumeration(&(tensor_case){.model = ONCE, .mesh = "x:4", .target = target});
        check_enumeration(&(tensor_case){.model = ONCE, .mesh = "x:2;y:2", .target = target});
        check_enumeration(
            &(tensor_case){.model = TWICE, .mesh = "x:3", .target = target, .uneven = true});
        check_enumeration(
            &(tensor_case){.model = ONCE, .mesh = "x:3;y:2", .target = target, .uneven = true});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_programs__equals_the_cheapest_of_all_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
