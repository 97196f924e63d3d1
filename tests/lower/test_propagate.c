/* Propagation of layouts through random graphs: the result is a legal sharding, lowers, passes the
 * independent checks, runs like one device, and at every node no other strategy is cheaper. The
 * last is found again here by trying all rows, with versions and prices kept by this file. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/plan/node_layouts.h"
#include "spmd/propagate/propagate.h"
#include "spmd/redistribute/redistribute.h"
#include "tests/support/random_graphs.h"
#include "tests/support/verify_case.h"
#include "core/graph/op_rules.h"

enum { MAX_PINS = 16, MAX_TENSORS = 256, MAX_VERSIONS = 24 };

static const char *const MESHES[] = {"x:2", "x:3", "x:2;y:2", "x:2;y:3"};

/* ---- random pins ---- */

static dtp_layout random_layout(uint64_t *state, const dtp_mesh *mesh, const dtp_ttype *type)
{
    dtp_layout out = dtp_layout_replicated(type->rank, mesh->n_dims);
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        const int32_t axis = random_below(state, type->rank + 1);
        if (axis < type->rank) {
            dtp_layout_split(&out, m, axis);
        }
    }
    return out;
}

/* Sources get random layouts, and now and then a value does. */
static int32_t random_pins(uint64_t *state, const dtp_graph *g, const dtp_mesh *mesh, dtp_pin *pins)
{
    int32_t n = 0;
    for (int32_t t = 0; t < g->n_tensors && n < MAX_PINS; t++) {
        const dtp_tensor_kind kind = g->tensors[t].kind;
        const bool source = kind == DTP_TENSOR_INPUT || kind == DTP_TENSOR_PARAM;
        bool updated = false;
        for (int32_t i = 0; i < g->n_updates; i++) {
            updated = updated || g->updates[i].value == t;
        }
        if (source || (kind == DTP_TENSOR_VALUE && !updated && random_below(state, 6) == 0)) {
            pins[n++] = (dtp_pin){
                .tensor = t, .node = -1, .layout = random_layout(state, mesh, &g->tensors[t].type)};
        }
    }
    return n;
}

/* ---- prices, again ---- */

/* Copies of every tensor, as the lowered program makes them. */
typedef struct copies {
    int32_t n[MAX_TENSORS];
    dtp_layout layouts[MAX_TENSORS][MAX_VERSIONS];
} copies;

static bool has_copy(const copies *c, dtp_tensor_id t, const dtp_layout *layout)
{
    for (int32_t i = 0; i < c->n[t]; i++) {
        if (dtp_layout_equal(&c->layouts[t][i], layout)) {
            return true;
        }
    }
    return false;
}

static void add_copy(copies *c, dtp_tensor_id t, const dtp_layout *layout)
{
    if (!has_copy(c, t, layout)) {
        assert_in_range(c->n[t], 0, MAX_VERSIONS - 1);
        c->layouts[t][c->n[t]++] = *layout;
    }
}

/* Negative: there is no such redistribution. Notes the copies when `c` is given. */
static double move_cost(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *from,
                        const dtp_layout *to, copies *c, dtp_tensor_id t)
{
    dtp_steps steps;
    dtp_layout at = *from;
    double cost = 0;
    if (dtp_redistribute_plan(mesh, type, from, to, dtp_step_generic_price, NULL, &steps, NULL) !=
        DTP_OK) {
        return -1;
    }
    for (int32_t i = 0; i < steps.n; i++) {
        cost += dtp_step_generic_price(NULL, mesh, type, &at, &steps.steps[i]);
        at = steps.steps[i].after;
        if (c != NULL) {
            add_copy(c, t, &at);
        }
    }
    return cost;
}

/* What a strategy costs outside the op; negative when it is not possible. */
static double outer_cost(const dtp_graph *g, const dtp_sharding *s, dtp_node_id id,
                         const dtp_node_layouts *l, const bool *pinned, const copies *c)
{
    const dtp_node *node = &g->nodes[id];
    double total = 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_tensor_id t = node->in[i];
        bool again = has_copy(c, t, &l->in[i]);
        for (int32_t j = 0; j < i; j++) {
            again = again || (node->in[j] == t && dtp_layout_equal(&l->in[j], &l->in[i]));
        }
        const double cost =
            again ? 0
                  : move_cost(&s->mesh, &g->tensors[t].type, &s->layouts[t], &l->in[i], NULL, t);
        if (cost < 0) {
            return -1;
        }
        total += cost;
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        const dtp_tensor_id t = node->out[i];
        const double cost = pinned[t] ? move_cost(&s->mesh, &g->tensors[t].type, &l->out[i],
                                                  &s->layouts[t], NULL, t)
                                      : 0;
        if (cost < 0) {
            return -1;
        }
        total += cost;
    }
    return total;
}

static bool find(const dtp_graph *g, const dtp_sharding *s, dtp_node_id id, const dtp_strategy *st,
                 const bool *pinned, dtp_node_layouts *out)
{
    const dtp_node *node = &g->nodes[id];
    dtp_call_types types;
    dtp_layout in[DTP_MAX_OP_IN], wanted[DTP_MAX_OP_OUT];
    dtp_op_call call = dtp_node_call(g, node, &types);
    for (int32_t i = 0; i < node->n_in; i++) {
        in[i] = s->layouts[node->in[i]];
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        wanted[i] = pinned[node->out[i]] ? s->layouts[node->out[i]]
                                         : dtp_layout_replicated(call.out[i].rank, s->mesh.n_dims);
    }
    return dtp_node_layouts_find(&s->mesh, &call, NULL, st, in, wanted, out, NULL) == DTP_OK;
}

/* Whether a tensor and all its copies are whole on mesh dim m. */
static bool is_whole(const dtp_sharding *s, const copies *c, dtp_tensor_id t, int32_t m)
{
    bool whole = s->layouts[t].placement[m].kind == DTP_REPLICATE;
    for (int32_t i = 0; i < c->n[t]; i++) {
        whole = whole && c->layouts[t][i].placement[m].kind == DTP_REPLICATE;
    }
    return whole;
}

/* Splits on some mesh dim what is whole there, and no pin of an output asks for it. */
static bool guesses(const dtp_graph *g, const dtp_sharding *s, dtp_node_id id,
                    const dtp_sharding_rules *rules, const dtp_strategy *st, const bool *pinned,
                    const copies *c)
{
    const dtp_node *node = &g->nodes[id];
    for (int32_t i = 0; i < node->n_out; i++) {
        if (pinned[node->out[i]]) {
            return false;
        }
    }
    for (int32_t m = 0; m < s->mesh.n_dims; m++) {
        bool whole = rules->rows[st->row[m]].dim >= 0;
        for (int32_t i = 0; i < node->n_in; i++) {
            whole = whole && is_whole(s, c, node->in[i], m);
        }
        if (whole) {
            return true;
        }
    }
    return false;
}

/* No strategy whose op is free inside and that does not guess is cheaper than the chosen one. */
static void check_node(const dtp_graph *g, const dtp_sharding *s, dtp_node_id id,
                       const bool *pinned, copies *c, const char *what)
{
    dtp_node_layouts chosen, other;
    dtp_call_types types;
    dtp_sharding_rules rules;
    dtp_op_call call = dtp_node_call(g, &g->nodes[id], &types);
    int64_t total = 1;
    dtp_sharding_rules_of(&call, true, &rules);
    assert_true(find(g, s, id, &s->strategies[id], pinned, &chosen));
    const double cost = outer_cost(g, s, id, &chosen, pinned, c);
    assert_true(cost >= 0);
    for (int32_t m = 0; m < s->mesh.n_dims; m++) {
        total *= rules.n;
    }
    for (int64_t code = 0; code < total; code++) {
        dtp_strategy st = {{0}};
        int64_t rest = code;
        for (int32_t m = 0; m < s->mesh.n_dims; m++, rest /= rules.n) {
            st.row[m] = (int16_t)(rest % rules.n);
        }
        if (!find(g, s, id, &st, pinned, &other) || other.internal != 0 ||
            guesses(g, s, id, &rules, &st, pinned, c)) {
            continue;
        }
        const double price = outer_cost(g, s, id, &other, pinned, c);
        if (price >= 0 && price < cost * (1 - 1e-5)) {
            fail_msg("%s: node '%s' costs %g us, rows %d/%d cost %g us", what, g->nodes[id].name,
                     1e6 * cost, st.row[0], st.row[1], 1e6 * price);
        }
    }
    for (int32_t i = 0; i < g->nodes[id].n_in; i++) {
        const dtp_tensor_id t = g->nodes[id].in[i];
        if (!has_copy(c, t, &chosen.in[i])) {
            assert_true(
                move_cost(&s->mesh, &g->tensors[t].type, &s->layouts[t], &chosen.in[i], c, t) >= 0);
        }
    }
    for (int32_t i = 0; i < g->nodes[id].n_out; i++) {
        const dtp_tensor_id t = g->nodes[id].out[i];
        add_copy(c, t, &chosen.out[i]);
        assert_true(
            move_cost(&s->mesh, &g->tensors[t].type, &chosen.out[i], &s->layouts[t], c, t) >= 0);
    }
}

/* Copies of parameters and states are not kept from one phase to the next. */
static void forget_copies(const dtp_graph *g, copies *c)
{
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const dtp_tensor_kind kind = g->tensors[t].kind;
        if (kind == DTP_TENSOR_PARAM || kind == DTP_TENSOR_STATE) {
            c->n[t] = 1;
        }
    }
}

static void check_choices(const dtp_graph *g, const dtp_sharding *s, int32_t n_pins,
                          const dtp_pin *pins, const char *what)
{
    static copies c;
    bool pinned[MAX_TENSORS] = {false};
    memset(&c, 0, sizeof c);
    assert_in_range(g->n_tensors, 1, MAX_TENSORS);
    for (int32_t i = 0; i < n_pins; i++) {
        pinned[pins[i].tensor] = true;
        assert_true(dtp_layout_equal(&pins[i].layout, &s->layouts[pins[i].tensor]));
    }
    for (int32_t i = 0; i < g->n_updates; i++) {
        pinned[g->updates[i].value] = true;
        assert_true(
            dtp_layout_equal(&s->layouts[g->updates[i].value], &s->layouts[g->updates[i].target]));
    }
    for (int32_t i = 0; i < g->n_grads; i++) { /* how a gradient is made does not depend on pins */
        pinned[g->grads[i].grad] = false;
    }
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].kind != DTP_TENSOR_VALUE) {
            add_copy(&c, t, &s->layouts[t]);
        }
    }
    for (int32_t n = 0; n < g->n_nodes; n++) {
        if (n > 0 && g->nodes[n].phase != g->nodes[n - 1].phase) {
            forget_copies(g, &c);
        }
        check_node(g, s, n, pinned, &c, what);
    }
}

/* ---- runs ---- */

/* The largest error against one device, infinite with a NaN on either side. */
static double error_of(const dtp_graph *g, const dtp_sharding *s, const char *what)
{
    verify_case c = verify_case_init(what);
    double error = 0;
    c.backend = "ref";
    c.options.steps = 1;
    c.options.tolerance = (double)INFINITY; /* judged by the caller */
    dtp_verify_result r = verify_sharding_result(g, s, NULL, &c);
    for (int32_t i = 0; i < r.n; i++) {
        const double scale = r.items[i].ref_max > 1 ? r.items[i].ref_max : 1;
        error = r.items[i].abs_err / scale > error ? r.items[i].abs_err / scale : error;
    }
    dtp_verify_result_free(&r);
    return error;
}

/* False when the graph has no finite answer on one device either. */
static bool check_run(const dtp_graph *g, const dtp_sharding *s, const char *what)
{
    const double error = error_of(g, s, what);
    if (error <= 2e-5) {
        return true;
    }
    const dtp_mesh one = {0};
    dtp_sharding whole;
    const dtp_propagate_options free = {.price = dtp_step_generic_price,
                                        .redistributor = dtp_redistributor_generic()};
    assert_int_equal(dtp_propagate(g, &one, &free, g->arena, &whole, NULL), DTP_OK);
    if (isfinite(error) || isfinite(error_of(g, &whole, what))) {
        fail_msg("%s: off by %g", what, error);
    }
    return false;
}

static bool check_graph(uint64_t seed, const char *mesh_text)
{
    char *text = NULL, what[96];
    dtp_graph *g = random_graph(seed, &text);
    dtp_mesh mesh;
    dtp_pin pins[MAX_PINS];
    dtp_sharding s;
    dtp_err err = {0};
    uint64_t state = seed * 7 + 1;
    (void)snprintf(what, sizeof what, "seed %llu on %s", (unsigned long long)seed, mesh_text);
    assert_non_null(g);
    assert_int_equal(dtp_mesh_parse(mesh_text, &mesh, NULL), DTP_OK);
    const dtp_propagate_options o = {.price = dtp_step_generic_price,
                                     .redistributor = dtp_redistributor_generic(),
                                     .pins = pins,
                                     .n_pins = random_pins(&state, g, &mesh, pins)};
    if (dtp_propagate(g, &mesh, &o, g->arena, &s, &err) != DTP_OK) {
        fail_msg("%s: %s\n%s", what, err.msg, text);
    }
    check_choices(g, &s, o.n_pins, pins, what);
    const bool compared = check_run(g, &s, what);
    dtp_graph_destroy(g);
    free(text);
    return compared;
}

static void test_propagate__random_graphs(void **unused)
{
    (void)unused;
    int compared = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        compared += check_graph(seed, MESHES[seed % (sizeof MESHES / sizeof MESHES[0])]) ? 1 : 0;
    }
    assert_in_range(compared, 180, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_propagate__random_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
