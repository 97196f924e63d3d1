/* The problem of layout rules against enumeration: on random graphs every rule set is followed
 * through the graph, every node is lowered and priced, memory is simulated step by step; GLPK and
 * the solver of our own must find exactly the best value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/problem/rules/rules_internal.h"
#include "planner/problem/overlay.h"
#include "planner/solver/minimum_memory.h"
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
static void decode(bruteforce *b, uint64_t code)
{
    const int32_t n_mesh = b->pricer.mesh.n_dims;
    for (dtp_dim_id d = 0; d < b->g->dims.n; d++) {
        b->rules.splits[d] =
            dtp_rules__splits_of((uint8_t)(code >> (d * n_mesh) & ((1U << n_mesh) - 1U)));
    }
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
    int32_t *assignment = calloc((size_t)p->select->n_variables, sizeof *assignment);
    assert_non_null(assignment);
    for (uint64_t code = 0; code < n; code++) {
        dtp_problem_value v;
        decode(b, code);
        const outcome o = evaluate(b);
        if (!dtp_rules_assignment(p, &b->rules, assignment)) {
            assert_false(o.legal);
            continue;
        }
        assert_int_equal(dtp_problem_evaluate(p->select, assignment, &v, NULL), DTP_OK);
        assert_int_equal(v.feasible, o.legal);
        if (o.legal) {
            assert_int_equal(v.cost, o.cost_ps);
            assert_int_equal(v.peak, o.peak_bytes);
            all.code[all.n] = code;
            all.legal[all.n++] = o;
        }
    }
    free(assignment);
    return all;
}

/* ---- comparison with the solvers ----------------------------------------------------------------
 */

typedef struct question {
    const dtp_layout_rules *pins; /* NULL: none */
    bool memory;                  /* the least peak, else the least cost */
    int64_t limit_bytes;          /* 0: none */
} question;

/* Best cost (or peak) among the legal rule sets within the limit that hold the pin; -1 = none. */
static int64_t best_of(bruteforce *b, const table *all, const question *q)
{
    int64_t best = -1;
    for (int32_t i = 0; i < all->n; i++) {
        bool holds = q->limit_bytes == 0 || all->legal[i].peak_bytes <= q->limit_bytes;
        decode(b, all->code[i]);
        for (dtp_dim_id d = 0; q->pins != NULL && d < q->pins->n; d++) {
            const dtp_rule_splits *want = &q->pins->splits[d];
            holds = holds && (want->n == 0 || memcmp(want, &b->rules.splits[d], sizeof *want) == 0);
        }
        const int64_t value = q->memory ? all->legal[i].peak_bytes : all->legal[i].cost_ps;
        best = holds && (best < 0 || value < best) ? value : best;
    }
    return best;
}

static int64_t least_cost(const dtp_problem *p, const dtp_solve_options *o, int64_t limit)
{
    dtp_overlay overlay;
    dtp_solve_result r;
    dtp_err err = {0};
    dtp_overlay_init(p, &overlay);
    overlay.problem.usage_limit = limit > 0 ? limit : p->usage_limit;
    if (dtp_solve(&overlay.problem, o, &r, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    const bool found = r.assignment != NULL;
    assert_int_equal(r.status, found ? DTP_CERT_OPTIMAL : DTP_CERT_INFEASIBLE);
    assert_true(!found || (r.value.feasible && r.bound == r.value.cost));
    dtp_solve_result_free(&r);
    dtp_overlay_free(&overlay);
    return found ? r.value.cost : -1;
}

static int64_t least_peak(const dtp_problem *p, const dtp_solve_options *o, int64_t limit)
{
    dtp_minimum_memory m;
    dtp_err err = {0};
    if (dtp_minimum_memory_find(p, o, limit, &m, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    const bool found = m.assignment != NULL && (limit == 0 || m.usage <= limit);
    assert_true(!found || m.bound == m.usage);
    dtp_minimum_memory_free(&m);
    return found ? m.usage : -1;
}

static void compare(bruteforce *b, const table *all, const question *q)
{
    static const dtp_solver solvers[] = {DTP_SOLVER_GLPK, DTP_SOLVER_AUTO};
    const int64_t best = best_of(b, all, q);
    dtp_rules_problem *p = NULL;
    dtp_err err = {0};
    if (dtp_rules_problem_create(b->g, &b->pricer, b->scratch->redistributor, q->pins, &p, &err) !=
        DTP_OK) {
        fail_msg("%s", err.msg);
    }
    for (int32_t i = 0; i < 2; i++) {
        dtp_solve_options o = dtp_solve_options_init();
        o.solver = solvers[i];
        assert_int_equal(q->memory ? least_peak(p->select, &o, q->limit_bytes)
                                   : least_cost(p->select, &o, q->limit_bytes),
                         best);
    }
    dtp_rules_problem_destroy(p);
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

static void compare_objectives(bruteforce *b, const table *all, uint64_t *state)
{
    question q = {0};
    dtp_layout_rules pins;
    compare(b, all, &q);
    q.limit_bytes = some_limit(all, state);
    compare(b, all, &q);
    q.memory = true;
    compare(b, all, &q);
    q.limit_bytes = 0;
    compare(b, all, &q);
    /* Pin one dim as some legal rule set has it. */
    decode(b, all->code[random_below(state, all->n)]);
    assert_int_equal(dtp_layout_rules_create(b->g->arena, b->g->dims.n, &pins, NULL), DTP_OK);
    const int32_t d = random_below(state, b->g->dims.n);
    pins.splits[d] = b->rules.splits[d];
    q.pins = &pins;
    compare(b, all, &q);
    q.memory = false;
    q.limit_bytes = some_limit(all, state);
    compare(b, all, &q);
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
    assert_int_equal(dtp_pricer_init(machine, &mesh, &dtp_target_cpu, &b.pricer, NULL), DTP_OK);
    assert_int_equal(dtp_program_create(g, &mesh, &dtp_target_cpu, &b.scratch, NULL), DTP_OK);
    b.scratch->redistributor = dtp_redistributor_generic();
    assert_int_equal(dtp_layout_rules_create(g->arena, g->dims.n, &b.rules, NULL), DTP_OK);
    if (dtp_rules_problem_create(g, &b.pricer, b.scratch->redistributor, NULL, &p, &err) !=
        DTP_OK) {
        fail_msg("%s", err.msg);
    }
    table all = enumerate(&b, p);
    const int32_t n = all.n;
    assert_true(n >= 1);
    compare_objectives(&b, &all, &state);
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
