/* The rules planner against enumeration: on random graphs every rule set is followed through the
 * graph, every node is lowered and priced, memory is simulated step by step; the integer program
 * must find exactly the best value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/problem/rules/rules_internal.h"
#include "planner/rules_solve.h"
#include "tests/support/random_graphs.h"
#include "spmd/lower/lower.h"

enum { N_GRAPHS = 600, FIRST_SEED = 20240700 };

static const char *const MESHES[] = {"x:2",     "x:3",     "x:4",    "x:2;y:2",
                                     "x:3;y:2", "x:2;y:4", "x:4;y:3"};
enum { N_MESHES = sizeof MESHES / sizeof MESHES[0] };

typedef struct outcome {
    bool legal;
    int64_t cost_ps, peak_bytes;
} outcome;

typedef struct bruteforce {
    const dtp_graph *g;
    dtp_pricer pricer;
    dtp_program *scratch;
    dtp_layout_rules rules;
    int32_t *last_read; /* by tensor; n_nodes for what survives the step */
    int32_t *owner;     /* by tensor: the tensor in whose buffer it lies */
    bool *live;         /* by tensor: its buffer is in use */
} bruteforce;

/* ---- one rule set -------------------------------------------------------------------------------
 */

static bool layout_of(const bruteforce *b, dtp_tensor_id t, dtp_layout *out)
{
    return dtp_layout_rules_layout(&b->rules, &b->pricer.mesh, &b->g->dims, &b->g->tensors[t].type,
                                   false, out, NULL) == DTP_OK;
}

/* Buffers are aligned to 64 bytes. */
static int64_t buffer_bytes(const bruteforce *b, dtp_tensor_id t)
{
    dtp_layout layout;
    dtp_ttype local;
    assert_true(layout_of(b, t, &layout));
    dtp_layout_local_max(&layout, &b->pricer.mesh, &b->g->tensors[t].type, &local);
    return (dtp_ttype_bytes(&local) + 63) / 64 * 64;
}

static bool lower_node(bruteforce *b, dtp_node_id n)
{
    const dtp_node *node = &b->g->nodes[n];
    dtp_layout in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
    dtp_strategy strategy;
    for (int32_t i = 0; i < node->n_in; i++) {
        if (!layout_of(b, node->in[i], &in[i])) {
            return false;
        }
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        if (!layout_of(b, node->out[i], &out[i])) {
            return false;
        }
    }
    assert_int_equal(dtp_program_reset(b->scratch, NULL), DTP_OK);
    return dtp_strategy_from_rules(b->g, n, &b->pricer.mesh, &b->rules, &strategy, NULL) ==
               DTP_OK &&
           dtp_lower_node(b->scratch, n, &strategy, in, out, NULL) == DTP_OK;
}

static bool uses(const dtp_program *p, const dtp_instr *instr, dtp_value_id root)
{
    bool found = instr->workspace == root;
    for (int32_t i = 0; i < instr->n_in; i++) {
        found = found || dtp_value_root(p, instr->in[i]) == root;
    }
    for (int32_t i = 0; i < instr->n_out; i++) {
        found = found || dtp_value_root(p, instr->out[i]) == root;
    }
    return found;
}

static bool is_result(const bruteforce *b, dtp_node_id n, dtp_value_id root)
{
    const dtp_node *node = &b->g->nodes[n];
    for (int32_t i = 0; i < node->n_out; i++) {
        if (dtp_value_root(b->scratch, b->scratch->tensor_value[node->out[i]]) == root) {
            return true;
        }
    }
    return false;
}

/* Intermediates, staging and workspace at instruction k of the lowered node. */
static int64_t temporaries_at(const bruteforce *b, dtp_node_id n, int32_t k)
{
    const dtp_program *p = b->scratch;
    int64_t sum = 0;
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        bool before = false, after = false;
        if (p->values[v].parent >= 0 || p->values[v].kind == DTP_VALUE_INPUT ||
            is_result(b, n, v)) {
            continue;
        }
        for (int32_t i = 0; i < p->n_instrs; i++) {
            const bool used = uses(p, &p->instrs[i], v);
            before = before || (used && i <= k);
            after = after || (used && i >= k);
        }
        sum += before && after ? p->values[v].bytes : 0;
    }
    return sum;
}

/* The operand that output i of node n overwrites, -1 = none. */
static dtp_tensor_id overwritten(const bruteforce *b, dtp_node_id n, int32_t i)
{
    const dtp_node *node = &b->g->nodes[n];
    const int32_t j = node->op->inplace_in[i] - 1;
    if (j < 0 || j >= node->n_in) {
        return -1;
    }
    const dtp_tensor_id in = node->in[j];
    int32_t slots = 0;
    for (int32_t k = 0; k < node->n_in; k++) {
        slots += node->in[k] == in ? 1 : 0;
    }
    const bool update = (node->op->flags & DTP_OP_UPDATE) != 0;
    const bool dies = b->g->tensors[in].kind == DTP_TENSOR_VALUE && b->last_read[in] == n;
    const bool same = dtp_ttype_equal(&b->g->tensors[in].type, &b->g->tensors[node->out[i]].type);
    return same && (update || (dies && slots == 1)) ? in : -1;
}

static void enter(bruteforce *b, dtp_node_id n)
{
    const dtp_node *node = &b->g->nodes[n];
    for (int32_t i = 0; i < node->n_out; i++) {
        const dtp_tensor_id in = overwritten(b, n, i);
        b->owner[node->out[i]] = in >= 0 ? b->owner[in] : node->out[i];
        b->live[b->owner[node->out[i]]] = true;
    }
}

/* Frees what nobody reads after node n. A buffer lives while a tensor in it does. */
static void leave(bruteforce *b, dtp_node_id n)
{
    for (dtp_tensor_id t = 0; t < b->g->n_tensors; t++) {
        b->live[t] = false;
    }
    for (dtp_tensor_id t = 0; t < b->g->n_tensors; t++) {
        const bool made = b->g->tensors[t].producer <= n;
        if (made && b->last_read[t] > n) {
            b->live[b->owner[t]] = true;
        }
    }
}

static outcome evaluate(bruteforce *b)
{
    outcome o = {.legal = true};
    dtp_layout layout;
    for (dtp_tensor_id t = 0; t < b->g->n_tensors; t++) {
        b->owner[t] = t;
        b->live[t] = b->g->tensors[t].kind != DTP_TENSOR_VALUE;
        o.legal = o.legal && layout_of(b, t, &layout);
    }
    for (dtp_node_id n = 0; n < b->g->n_nodes && o.legal; n++) {
        int64_t live = 0, temp = 0;
        o.legal = lower_node(b, n);
        enter(b, n);
        for (dtp_tensor_id t = 0; t < b->g->n_tensors && o.legal; t++) {
            live += b->live[t] ? buffer_bytes(b, t) : 0;
        }
        for (int32_t k = 0; k < b->scratch->n_instrs && o.legal; k++) {
            const int64_t now = temporaries_at(b, n, k);
            temp = now > temp ? now : temp;
            o.cost_ps +=
                dtp_picoseconds(dtp_price_instr(&b->pricer, b->scratch, &b->scratch->instrs[k]));
        }
        o.peak_bytes = live + temp > o.peak_bytes ? live + temp : o.peak_bytes;
        leave(b, n);
    }
    return o;
}

/* ---- all rule sets ------------------------------------------------------------------------------
 */

/* Rule set number `code`: n_mesh bits for each dim of the graph, splits in mesh order. */
static void decode(bruteforce *b, uint64_t code, uint8_t *masks)
{
    const int32_t n_mesh = b->pricer.mesh.n_dims;
    for (dtp_dim_id d = 0; d < b->g->dims.n; d++) {
        masks[d] = (uint8_t)(code >> (d * n_mesh) & ((1U << n_mesh) - 1U));
        b->rules.splits[d] = dtp_rules__splits_of(masks[d]);
    }
}

/* The same as a choice; false when it splits a name that the planner never splits. */
static bool to_choice(const dtp_rules_problem *p, const uint8_t *masks, dtp_rules_choice *choice)
{
    memset(choice, 0, sizeof *choice);
    for (dtp_dim_id d = 0; d < p->graph->dims.n; d++) {
        if (masks[d] != 0 && p->name_of[d] < 0) {
            return false;
        }
        if (masks[d] != 0) {
            choice->mesh_dims[p->name_of[d]] = masks[d];
        }
    }
    return true;
}

typedef struct table {
    int32_t n;
    outcome *legal; /* of the legal rule sets */
    uint64_t *code;
} table;

/* Evaluates every rule set and compares each with the planner's tables. */
static table enumerate(bruteforce *b, const dtp_rules_problem *p)
{
    const uint64_t n = UINT64_C(1) << (b->g->dims.n * b->pricer.mesh.n_dims);
    table all = {.legal = calloc((size_t)n, sizeof *all.legal),
                 .code = calloc((size_t)n, sizeof *all.code)};
    assert_non_null(all.legal);
    assert_non_null(all.code);
    for (uint64_t code = 0; code < n; code++) {
        uint8_t masks[64];
        dtp_rules_choice choice;
        decode(b, code, masks);
        const outcome o = evaluate(b);
        if (!to_choice(p, masks, &choice)) {
            assert_false(o.legal);
            continue;
        }
        dtp_rules_value v;
        assert_int_equal(dtp_rules_evaluate(p, &choice, &v, NULL), DTP_OK);
        assert_int_equal(v.legal, o.legal);
        if (o.legal) {
            assert_int_equal(v.cost_ps, o.cost_ps);
            assert_int_equal(v.peak_bytes, o.peak_bytes);
            all.code[all.n] = code;
            all.legal[all.n++] = o;
        }
    }
    return all;
}

/* ---- comparison with the integer program --------------------------------------------------------
 */

/* Best cost (or peak) among the legal rule sets within the limit that hold the pin; -1 = none. */
static int64_t best_of(bruteforce *b, const table *all, const dtp_rules_request *r)
{
    int64_t best = -1;
    for (int32_t i = 0; i < all->n; i++) {
        uint8_t masks[64];
        bool holds = r->limit_bytes == 0 || all->legal[i].peak_bytes <= r->limit_bytes;
        decode(b, all->code[i], masks);
        for (dtp_dim_id d = 0; r->pins != NULL && d < r->pins->n; d++) {
            const dtp_rule_splits *want = &r->pins->splits[d];
            holds = holds && (want->n == 0 || memcmp(want, &b->rules.splits[d], sizeof *want) == 0);
        }
        const int64_t value =
            r->objective == DTP_OBJECTIVE_TIME ? all->legal[i].cost_ps : all->legal[i].peak_bytes;
        best = holds && (best < 0 || value < best) ? value : best;
    }
    return best;
}

static void compare(bruteforce *b, const table *all, const dtp_rules_problem *p,
                    const dtp_rules_request *r)
{
    const int64_t best = best_of(b, all, r);
    dtp_rules_result result;
    dtp_err err = {0};
    if (dtp_rules_solve(p, r, &result, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    if (best < 0) {
        assert_int_equal(result.status, DTP_CERT_INFEASIBLE);
        assert_int_equal(result.n, 0);
        return;
    }
    assert_int_equal(result.status, DTP_CERT_OPTIMAL);
    assert_true(result.n >= 1);
    for (int32_t i = 0; i < result.n; i++) {
        const dtp_rules_value *v = &result.solutions[i].value;
        const int64_t value = r->objective == DTP_OBJECTIVE_TIME ? v->cost_ps : v->peak_bytes;
        dtp_rules_value again;
        assert_int_equal(dtp_rules_evaluate(p, &result.solutions[i].choice, &again, NULL), DTP_OK);
        assert_true(again.legal && again.cost_ps == v->cost_ps &&
                    again.peak_bytes == v->peak_bytes);
        assert_true(i == 0 ? value == best : value >= best);
        assert_true(r->limit_bytes == 0 || v->peak_bytes <= r->limit_bytes);
        for (int32_t k = 0; k < i; k++) {
            assert_true(memcmp(&result.solutions[k].choice, &result.solutions[i].choice,
                               sizeof(dtp_rules_choice)) != 0);
        }
    }
    assert_true(result.bound <= best);
}

/* A limit between the smallest and the largest peak of the legal rule sets, or just below the
 * smallest. */
static int64_t some_limit(const table *all, uint64_t *state)
{
    int64_t low = INT64_MAX, high = 0;
    for (int32_t i = 0; i < all->n; i++) {
        low = all->legal[i].peak_bytes < low ? all->legal[i].peak_bytes : low;
        high = all->legal[i].peak_bytes > high ? all->legal[i].peak_bytes : high;
    }
    const int32_t kind = random_below(state, 8);
    if (kind == 0) {
        return low - 1;
    }
    return kind == 1 ? low : low + (int64_t)(random_next(state) % (uint64_t)(high - low + 1));
}

static void compare_objectives(bruteforce *b, const table *all, const dtp_rules_problem *p,
                               uint64_t *state)
{
    dtp_rules_request r = dtp_rules_request_init();
    dtp_layout_rules pins;
    uint8_t masks[64];
    r.max_solutions = 1 + random_below(state, 4);
    compare(b, all, p, &r);
    r.limit_bytes = some_limit(all, state);
    compare(b, all, p, &r);
    r.objective = DTP_OBJECTIVE_MEMORY;
    compare(b, all, p, &r);
    r.limit_bytes = 0;
    compare(b, all, p, &r);
    /* Pin one dim as some legal rule set has it. */
    decode(b, all->code[random_below(state, all->n)], masks);
    assert_int_equal(dtp_layout_rules_create(b->g->arena, b->g->dims.n, &pins, NULL), DTP_OK);
    const int32_t d = random_below(state, b->g->dims.n);
    pins.splits[d] = b->rules.splits[d];
    r.pins = &pins;
    compare(b, all, p, &r);
    r.objective = DTP_OBJECTIVE_TIME;
    r.limit_bytes = some_limit(all, state);
    compare(b, all, p, &r);
}

/* ---- the graphs ---------------------------------------------------------------------------------
 */

static void find_last_reads(bruteforce *b)
{
    const dtp_graph *g = b->g;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        b->last_read[t] =
            g->tensors[t].kind == DTP_TENSOR_VALUE ? g->tensors[t].producer : g->n_nodes;
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in; i++) {
            const dtp_tensor_id t = g->nodes[n].in[i];
            b->last_read[t] = b->last_read[t] < n ? n : b->last_read[t];
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        b->last_read[g->outputs[i]] = g->n_nodes;
    }
    if (g->loss >= 0) {
        b->last_read[g->loss] = g->n_nodes;
    }
}

static int32_t check_graph(const dtp_machine *machine, uint64_t seed)
{
    char *text = NULL;
    uint64_t state = seed ^ UINT64_C(0x5bd1e995);
    dtp_mesh mesh;
    dtp_rules_problem *p = NULL;
    dtp_err err = {0};
    dtp_graph *g = random_graph(seed, &text);
    assert_non_null(g);
    bruteforce b = {.g = g,
                    .last_read = calloc((size_t)g->n_tensors, sizeof *b.last_read),
                    .owner = calloc((size_t)g->n_tensors, sizeof *b.owner),
                    .live = calloc((size_t)g->n_tensors, sizeof *b.live)};
    const char *mesh_text = MESHES[random_below(&state, g->dims.n > 5 ? 3 : N_MESHES)];
    print_message("seed %llu mesh %s: %d nodes, %d dims\n", (unsigned long long)seed, mesh_text,
                  g->n_nodes, g->dims.n);
    find_last_reads(&b);
    assert_int_equal(dtp_mesh_parse(mesh_text, &mesh, NULL), DTP_OK);
    assert_int_equal(dtp_pricer_init(machine, &mesh, &b.pricer, NULL), DTP_OK);
    assert_int_equal(dtp_program_create(g, &mesh, &b.scratch, NULL), DTP_OK);
    b.scratch->redistributor = dtp_redistributor_generic();
    assert_int_equal(dtp_layout_rules_create(g->arena, g->dims.n, &b.rules, NULL), DTP_OK);
    if (dtp_rules_problem_create(g, &b.pricer, b.scratch->redistributor, &p, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    table all = enumerate(&b, p);
    const int32_t n = all.n;
    assert_true(n >= 1);
    compare_objectives(&b, &all, p, &state);
    dtp_rules_problem_destroy(p);
    dtp_program_destroy(b.scratch);
    dtp_graph_destroy(g);
    free(all.legal);
    free(all.code);
    free(b.last_read);
    free(b.owner);
    free(b.live);
    free(text);
    return n;
}

static void test_rules_ilp__equals_brute_force(void **state)
{
    (void)state;
    dtp_machine *machine = NULL;
    int32_t choices = 0, real = 0;
    assert_int_equal(
        dtp_machine_read(DTP_SOURCE_DIR "/models/machines/h100_64.json", &machine, NULL), DTP_OK);
    for (uint64_t k = 0; k < N_GRAPHS; k++) {
        const int32_t n = check_graph(machine, FIRST_SEED + k);
        choices += n;
        real += n > 4 ? 1 : 0;
    }
    print_message("%d legal rule sets on %d graphs; %d graphs with more than four\n", choices,
                  N_GRAPHS, real);
    assert_true(real > N_GRAPHS / 2);
    dtp_machine_destroy(machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_ilp__equals_brute_force),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
