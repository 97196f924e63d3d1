/* Lowering: programs under layout rules and under random strategies against the unsharded step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/safe_int.h"
#include "core/base/strbuf.h"
#include "cost_models/predict.h"
#include "spmd/program/program_internal.h"
#include "spmd/program/program.h"
#include "tests/lower/lower_fixture.h"
#include "tests/support/spmd_sim.h"
#include "core/graph/op_rules.h"
#include "spmd/lower/memplan.h"

static dtp_program *lower(const spmd_fixture *f, const dtp_sharding *s,
                          const dtp_lower_options *options)
{
    const dtp_lower_options all = dtp_lower_options_init(dtp_redistributor_generic());
    dtp_program *p;
    dtp_err err;
    if (dtp_lower(f->graph, s, options != NULL ? options : &all, &p, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    if (dtp_program_check(p, &err) != DTP_OK) {
        dtp_strbuf b = {0};
        dtp_program_print(p, &b);
        (void)fprintf(stderr, "%s", dtp_strbuf_text(&b));
        fail_msg("%s", err.msg);
    }
    return p;
}

/* ---- layout rules ---- */

typedef struct rules_case {
    const char *mesh, *rules;
} rules_case;

static const rules_case MLP_RULES[] = {
    {"", ""},
    {"x:2", "batch:x"},
    {"x:4", "batch:x"},
    {"x:2", "hid:x"},
    {"x:2", "cls:x"},
    {"x:3", "pix:x"},
    {"x:2;y:2", "batch:x;hid:y"},
    {"x:2;y:2", "batch:x;cls:y"},
    {"x:2;y:2", "batch:x;batch:y"},
    {"x:2;y:2", "batch:y;batch:x"},
    {"x:2;y:2", "hid:x;hid:y"},
    {"x:2;y:2", "cls:y;cls:x"},
    {"x:2;y:3", "hid:y;pix:x"},
    {"x:2;y:2;z:2", "batch:x;hid:y;cls:z"},
    {"x:2;y:2;z:2", "batch:z;cls:x;cls:y"},
    {"x:2;y:1;z:2", "batch:x;batch:y;batch:z"},
};

static void check_rules(const spmd_fixture *f, const rules_case *c)
{
    dtp_sharding s = spmd_fixture_rules(f, c->mesh, c->rules);
    for (int k = 0; k < 8; k++) {
        dtp_lower_options options = {.redistributor = dtp_redistributor_generic(),
                                     .target = &dtp_target_cpu,
                                     .merge_collectives = (k & 1) != 0,
                                     .overlap = {.bucket_bytes = (k & 2) != 0 ? 1 << 20 : 0},
                                     .in_place = (k & 4) != 0};
        dtp_program *p = lower(f, &s, &options);
        if (!spmd_fixture_agrees(f, p)) {
            dtp_strbuf b = {0};
            dtp_program_print(p, &b);
            (void)fprintf(stderr, "%s", dtp_strbuf_text(&b));
            fail_msg("mesh '%s', rules '%s', options %d", c->mesh, c->rules, k);
        }
        dtp_program_destroy(p);
    }
}

static void test_lower__rules_give_the_unsharded_step(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {{8, 12, 16, 4}, {7, 5, 6, 3}};
    for (size_t i = 0; i < 2; i++) {
        spmd_fixture f = spmd_fixture_mlp(sizes[i]);
        for (size_t c = 0; c < sizeof MLP_RULES / sizeof MLP_RULES[0]; c++) {
            check_rules(&f, &MLP_RULES[c]);
        }
        spmd_fixture_destroy(&f);
    }
}

static void test_lower__relabels_never_scramble(void **state)
{
    (void)state;
    static const rules_case cases[] = {
        {"x:2", "a:x"},
        {"x:2", "n:x"},
        {"x:2", "a:x;n:x"},
        {"x:2", "c:x;heads:x"},
        {"x:2", "b:x"},
        {"x:2", "heads:x"},
        {"x:2", "key:x"},
        {"x:3", "n:x"},
        {"x:2;y:2", "a:x;n:x;c:y;heads:y"},
        {"x:2;y:2", "n:x;n:y"},
        {"x:2;y:2", "a:x;a:y"},
        {"x:2;y:2", "a:y;n:x"},
        {"x:2;y:2", "a:y;a:x;n:y;n:x"},
        {"x:4", "n:x"},
        {"x:4", "c:x"},
        {"x:2;y:2", "a:x;b:y;n:y"},
    };
    spmd_fixture f = spmd_fixture_relabel();
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        check_rules(&f, &cases[c]);
    }
    spmd_fixture_destroy(&f);
}

static void test_lower__collective_counts(void **state)
{
    (void)state;
    static const struct {
        rules_case rules;
        int64_t bucket;
        int32_t all_reduce, others;
    } cases[] = {
        {{"x:2", "batch:x"}, 1 << 20, 2, 0},           /* loss; one bucket of gradients */
        {{"x:2", "batch:x"}, 0, 4, 0},                 /* loss; three gradients */
        {{"x:2", "hid:x"}, 1 << 20, 1, 0},             /* the second contraction */
        {{"x:2;y:2", "batch:x;hid:y"}, 1 << 20, 3, 0}, /* both */
        {{"x:2;y:2", "batch:x;batch:y"}, 1 << 20, 2, 0},
        {{"x:2", ""}, 1 << 20, 0, 0},
        {{"x:2", "pix:x"}, 1 << 20, 1, 0}, /* the first contraction */
        /* softmax: max and sum, its gradient: the row's product; loss; gradient of the hidden
           layer */
        {{"x:2", "cls:x"}, 1 << 20, 5, 0},
    };
    static const int64_t sizes[] = {8, 12, 16, 4};
    spmd_fixture f = spmd_fixture_mlp(sizes);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        dtp_sharding s = spmd_fixture_rules(&f, cases[c].rules.mesh, cases[c].rules.rules);
        dtp_lower_options options = dtp_lower_options_init(dtp_redistributor_generic());
        options.overlap.bucket_bytes = cases[c].bucket;
        dtp_program *p = lower(&f, &s, &options);
        if (spmd_count(p, DTP_ALL_REDUCE) != cases[c].all_reduce) {
            fail_msg("rules '%s': %d all-reduces, expected %d", cases[c].rules.rules,
                     spmd_count(p, DTP_ALL_REDUCE), cases[c].all_reduce);
        }
        assert_int_equal(spmd_count(p, DTP_ALL_GATHER) + spmd_count(p, DTP_REDUCE_SCATTER) +
                             spmd_count(p, DTP_ALL_TO_ALL),
                         cases[c].others);
        dtp_program_destroy(p);
    }
    spmd_fixture_destroy(&f);
}

static void test_lower__terms_of_a_sum_are_reduced_once(void **state)
{
    (void)state;
    spmd_fixture f = spmd_fixture_sum();
    dtp_sharding s = spmd_fixture_rules(&f, "x:2", "k:x");
    for (int merge = 0; merge < 2; merge++) {
        dtp_lower_options options = dtp_lower_options_init(dtp_redistributor_generic());
        options.merge_collectives = merge == 1;
        dtp_program *p = lower(&f, &s, &options);
        assert_int_equal(spmd_count(p, DTP_ALL_REDUCE), merge == 1 ? 1 : 3);
        assert_true(spmd_fixture_agrees(&f, p));
        dtp_program_destroy(p);
    }
    spmd_fixture_destroy(&f);
}

/* A producer that reduces over one mesh dim and its consumer that reduces over the other. */
static void test_lower__reductions_in_a_row_become_one(void **state)
{
    (void)state;
    spmd_fixture f = spmd_fixture_sum();
    dtp_sharding s = spmd_fixture_rules(&f, "x:2;y:2", "k:x;k:y");
    dtp_layout *p_layout = &s.layouts[dtp_graph_find(f.graph, "p")];
    p_layout->placement[1] = (dtp_placement){.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
    for (int merge = 0; merge < 2; merge++) {
        dtp_lower_options options = dtp_lower_options_init(dtp_redistributor_generic());
        options.merge_collectives = merge == 1;
        dtp_program *p = lower(&f, &s, &options);
        assert_int_equal(spmd_count(p, DTP_ALL_REDUCE), merge == 1 ? 1 : 4);
        assert_true(spmd_fixture_agrees(&f, p));
        dtp_program_destroy(p);
    }
    spmd_fixture_destroy(&f);
}

static void test_lower__updates_run_in_place(void **state)
{
    (void)state;
    static const int64_t sizes[] = {8, 12, 16, 4};
    spmd_fixture f = spmd_fixture_mlp(sizes);
    dtp_sharding s = spmd_fixture_rules(&f, "x:2", "batch:x");
    dtp_program *p = lower(&f, &s, NULL);
    int32_t copies = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        copies += p->instrs[i].kind == DTP_INSTR_COPY;
    }
    assert_int_equal(copies, 0);
    assert_int_equal(p->n_updates, 6);
    dtp_program_destroy(p);
    spmd_fixture_destroy(&f);
}

/* Optimizer state split where the parameter is not (ZeRO): reduce-scatter, gather, copy. */
static void test_lower__split_optimizer_state(void **state)
{
    (void)state;
    static const int64_t sizes[] = {8, 12, 16, 4};
    spmd_fixture f = spmd_fixture_mlp(sizes);
    dtp_sharding s = spmd_fixture_rules(&f, "x:2", "batch:x");
    dtp_tensor_id slot = dtp_graph_find(f.graph, "momentum.m.w1");
    assert_true(slot >= 0);
    int32_t update = -1;
    for (int32_t n = 0; n < f.graph->n_nodes; n++) {
        update = strcmp(f.graph->nodes[n].name, "update.w1") == 0 ? n : update;
    }
    assert_true(update >= 0);
    s.strategies[update].row[0] = 1;
    dtp_layout split = dtp_layout_replicated(2, 1);
    dtp_layout_split(&split, 0, 0);
    s.layouts[slot] = split;
    s.layouts[f.graph->nodes[update].out[1]] = split;
    dtp_tensor_id grad = f.graph->nodes[update].in[1];
    s.layouts[grad] = split;
    dtp_program *p = lower(&f, &s, NULL);
    assert_int_equal(spmd_count(p, DTP_REDUCE_SCATTER), 1);
    assert_int_equal(spmd_count(p, DTP_ALL_GATHER), 1);
    assert_true(spmd_fixture_agrees(&f, p));
    dtp_program_destroy(p);
    spmd_fixture_destroy(&f);
}

/* ---- random strategies ---- */

static void random_layout(const dtp_ttype *type, const dtp_mesh *mesh, dtp_layout *out,
                          uint64_t *seed)
{
    *out = dtp_layout_replicated(type->rank, mesh->n_dims);
    for (int32_t k = 0; k < mesh->n_dims; k++) {
        int32_t m = (int32_t)((spmd_sim_random(seed) & 1U) != 0 ? k : mesh->n_dims - 1 - k);
        uint64_t pick = spmd_sim_random(seed) % (uint64_t)(type->rank + 1);
        if (pick > 0 && out->placement[m].kind == DTP_REPLICATE) {
            dtp_layout_split(out, m, (int32_t)pick - 1);
        }
    }
}

/* A partial operand can only come from a place that is replicated or the same partial. */
static bool row_fits(const dtp_sharding *s, const dtp_node *node, const dtp_sharding_rule *row,
                     int32_t m)
{
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_placement *have = &s->layouts[node->in[i]].placement[m];
        if (row->in[i].kind == DTP_PARTIAL &&
            (have->kind == DTP_SHARD || (have->kind == DTP_PARTIAL && have->op != row->in[i].op))) {
            return false;
        }
    }
    return true;
}

/* Rows of a renaming op must split both sides evenly. */
static void drop_uneven_renames(const dtp_op_call *call, const dtp_mesh *mesh,
                                const dtp_sharding_rules *set, dtp_strategy *strategy)
{
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        int16_t r = strategy->row[m];
        int64_t parts = 1;
        for (int32_t k = 0; k < mesh->n_dims; k++) {
            parts *= strategy->row[k] == r ? mesh->sizes[k] : 1;
        }
        if (set->rows[r].dim < 0) {
            continue;
        }
        int64_t in = call->in[0].dims[set->rows[r].in[0].axis].size;
        int64_t out = call->out[0].dims[set->rows[r].out[0].axis].size;
        for (int32_t k = 0; k < mesh->n_dims; k++) {
            bool uneven = in % parts != 0 || out % parts != 0;
            strategy->row[k] = strategy->row[k] == r && uneven ? 0 : strategy->row[k];
        }
    }
}

/* A row per mesh dim; never a decomposition on one and partial sums on another. */
static void random_strategy(const spmd_fixture *f, dtp_sharding *s, dtp_node_id n, uint64_t *seed)
{
    const dtp_node *node = &f->graph->nodes[n];
    dtp_call_types types;
    dtp_sharding_rules set;
    dtp_op_call call = dtp_node_call(f->graph, node, &types);
    bool internal = false, linear = false;
    dtp_sharding_rules_of(&call, true, &set);
    for (int32_t m = 0; m < s->mesh.n_dims; m++) {
        int32_t r = (int32_t)(spmd_sim_random(seed) % (uint64_t)set.n);
        const dtp_sharding_rule *row = &set.rows[r];
        if (!row_fits(s, node, row, m) || (row->internal && linear) || (row->linear && internal)) {
            r = 0;
        }
        internal = internal || set.rows[r].internal;
        linear = linear || set.rows[r].linear;
        s->strategies[n].row[m] = (int16_t)r;
    }
    if ((node->op->flags & DTP_OP_RENAMES) != 0) {
        drop_uneven_renames(&call, &s->mesh, &set, &s->strategies[n]);
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        dtp_layout *out = &s->layouts[node->out[i]];
        random_layout(&types.out[i], &s->mesh, out, seed);
        for (int32_t m = 0; m < s->mesh.n_dims; m++) {
            const dtp_placement *raw = &set.rows[s->strategies[n].row[m]].out[i];
            if (raw->kind == DTP_PARTIAL && raw->op == DTP_REDUCE_SUM &&
                out->placement[m].kind == DTP_REPLICATE && spmd_sim_random(seed) % 2 == 0) {
                out->placement[m] = *raw;
            }
        }
    }
}

/* What replaces a parameter must be laid out like it. */
static void align_updates(const dtp_graph *g, dtp_sharding *s)
{
    for (int32_t i = 0; i < g->n_updates; i++) {
        s->layouts[g->updates[i].value] = s->layouts[g->updates[i].target];
    }
}

static void random_sharding(const spmd_fixture *f, dtp_sharding *s, uint64_t *seed)
{
    const dtp_graph *g = f->graph;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].kind != DTP_TENSOR_VALUE) {
            random_layout(&g->tensors[t].type, &s->mesh, &s->layouts[t], seed);
        }
    }
    for (int32_t n = 0; n < g->n_nodes; n++) {
        random_strategy(f, s, n, seed);
    }
    align_updates(g, s);
}

static int32_t overlapped; /* programs that need more bytes for it */
static int32_t moved;      /* casts that stand behind another number of kernels than without */

/* Largest sum of buffers that are needed at one instruction, residents included. */
static int64_t live_bytes(const dtp_program *p)
{
    dtp_interval *spans = calloc((size_t)p->n_values + 1, sizeof *spans);
    int32_t n = 0;
    for (int32_t v = 0; v < p->n_values; v++) {
        if (p->values[v].parent >= 0) {
            continue;
        }
        dtp_interval *span = &spans[n++];
        *span = (dtp_interval){.bytes = p->values[v].bytes, .first = INT32_MAX, .last = -1};
        for (int32_t c = 0; c < p->n_values; c++) {
            const dtp_value *inside = &p->values[c];
            if (dtp_value_root(p, c) == v) {
                span->first = inside->first < span->first ? inside->first : span->first;
                span->last = inside->last > span->last ? inside->last : span->last;
            }
        }
    }
    int64_t live = 0;
    for (int32_t i = 0; i < n; i++) {
        int64_t sum = 0;
        for (int32_t k = 0; k < n; k++) {
            const bool both = spans[k].first <= spans[i].first && spans[i].first <= spans[k].last;
            sum += both ? dtp_ceil_div(spans[k].bytes, DTP_BUFFER_ALIGN) * DTP_BUFFER_ALIGN : 0;
        }
        live = sum > live ? sum : live;
    }
    free(spans);
    return live;
}

/* The kernels and copies of a program in order, and how many collectives are under way at most. */
static int32_t most_under_way(const dtp_program *p)
{
    int32_t now = 0, most = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        now += p->instrs[i].kind == DTP_INSTR_START  ? 1
               : p->instrs[i].kind == DTP_INSTR_WAIT ? -1
                                                     : 0;
        most = now > most ? now : most;
    }
    assert_int_equal(now, 0);
    return most;
}

/* Kernels that are no casts before cast k; -1: there are fewer casts. */
static int32_t kernels_before_cast(const dtp_program *p, int32_t k)
{
    int32_t kernels = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        const bool cast = instr->kind == DTP_INSTR_KERNEL && (instr->op->flags & DTP_OP_CAST) != 0;
        if (cast && k-- == 0) {
            return kernels;
        }
        kernels += instr->kind == DTP_INSTR_KERNEL && !cast ? 1 : 0;
    }
    return -1;
}

/* The program in several orders: it computes the same, within the bytes that it may have. */
static void check_overlap(const spmd_fixture *f, dtp_program *p, uint64_t seed)
{
    enum { MAX_CASTS = 16 };
    static const int32_t depths[] = {1, 3, DTP_OVERLAP_MAX_DEPTH};
    const int64_t serial_bytes = live_bytes(p);
    int32_t before[MAX_CASTS], n_casts = 0;
    while (n_casts < MAX_CASTS && (before[n_casts] = kernels_before_cast(p, n_casts)) >= 0) {
        n_casts++;
    }
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        const dtp_overlap overlap = {.depth = depths[i],
                                     .memory_bytes = seed % 2 == 0 ? 1 : serial_bytes + 512};
        dtp_err err;
        assert_int_equal(dtp_program_overlap(p, &overlap, false, NULL), DTP_OK);
        if (dtp_program_check(p, &err) != DTP_OK) {
            fail_msg("depth %d: %s", depths[i], err.msg);
        }
        assert_true(spmd_fixture_agrees(f, p));
        assert_true(most_under_way(p) <= 2 * depths[i] + 1);
        for (int32_t k = 0; k < n_casts; k++) {
            moved += kernels_before_cast(p, k) != before[k] ? 1 : 0;
        }
        const int64_t more = live_bytes(p) - serial_bytes;
        overlapped += more > 0 ? 1 : 0;
        if (more < 0 || more > (seed % 2 == 0 ? 0 : 512)) {
            fail_msg("seed %d, depth %d: %lld bytes more", (int)seed, depths[i], (long long)more);
        }
    }
}

static void check_random(const spmd_fixture *f, const char *mesh, uint64_t first, uint64_t count)
{
    double peak = 0, bound = 0, worst = 1;
    for (uint64_t seed = first; seed < first + count; seed++) {
        uint64_t at = seed;
        dtp_sharding s = spmd_fixture_rules(f, mesh, "");
        random_sharding(f, &s, &at);
        bool *again = calloc((size_t)f->graph->n_tensors, sizeof *again);
        assert_non_null(again);
        for (dtp_tensor_id t = 0; t < f->graph->n_tensors; t++) {
            again[t] = spmd_sim_random(&at) % 2 == 0;
        }
        s.regather = seed % 3 > 0 ? again : NULL;
        dtp_lower_options options = dtp_lower_options_init(dtp_redistributor_generic());
        dtp_tensor_id fetch[8];
        for (int i = 0; i < 8; i++) {
            fetch[i] = (dtp_tensor_id)(spmd_sim_random(&at) % (uint64_t)f->graph->n_tensors);
        }
        options.fetch = fetch;
        options.n_fetch = (int32_t)(seed % 9);
        options.overlap.bucket_bytes = seed % 3 == 0 ? 0 : 2000;
        options.target = seed % 4 < 2 ? &dtp_target_cpu : &dtp_target_cpu_packed;
        dtp_program *p = lower(f, &s, &options);
        if (!spmd_fixture_agrees(f, p)) {
            fail_msg("mesh '%s', seed %llu", mesh, (unsigned long long)seed);
        }
        int64_t live = live_bytes(p);
        assert_true(p->peak_bytes >= live);
        peak += (double)p->peak_bytes;
        bound += (double)live;
        double ratio = (double)p->peak_bytes / (double)live;
        worst = ratio > worst ? ratio : worst;
        check_overlap(f, p, seed);
        dtp_program_destroy(p);
        free(again);
    }
    printf("mesh %-12s seeds %llu..%llu: peak / live mean %.4f worst %.4f\n", mesh,
           (unsigned long long)first, (unsigned long long)(first + count - 1), peak / bound, worst);
}

static void test_lower__random_strategies_give_the_unsharded_step(void **state)
{
    (void)state;
    static const int64_t even[] = {8, 4, 8, 4}, uneven[] = {5, 3, 6, 3};
    spmd_fixture f = spmd_fixture_mlp(even), g = spmd_fixture_mlp(uneven);
    spmd_fixture r = spmd_fixture_relabel(), t = spmd_fixture_sum(), c = spmd_fixture_cast();
    check_random(&c, "x:2", 1301, 60);
    check_random(&c, "x:4", 1401, 60);
    check_random(&c, "x:2;y:2", 1501, 120);
    assert_true(moved > 100);
    check_random(&t, "x:2;y:2", 1001, 120);
    check_random(&t, "x:4", 1201, 60);
    check_random(&f, "x:2", 1, 60);
    check_random(&f, "x:2;y:2", 101, 120);
    check_random(&f, "x:2;y:2;z:2", 301, 40);
    check_random(&g, "x:2;y:2", 401, 120);
    check_random(&g, "x:3;y:2", 601, 60);
    check_random(&r, "x:2;y:2", 701, 120);
    check_random(&r, "x:2;y:3", 901, 60);
    spmd_fixture_destroy(&f);
    spmd_fixture_destroy(&g);
    spmd_fixture_destroy(&r);
    spmd_fixture_destroy(&t);
    spmd_fixture_destroy(&c);
    printf("%d casts move with their collectives\n", moved);
    printf("%d orders hold more bytes than the serial one\n", overlapped);
    assert_true(overlapped > 100);
}

/* ---- single nodes ---- */

static void test_lower_node__is_repeatable_after_reset(void **state)
{
    (void)state;
    static const int64_t sizes[] = {8, 12, 16, 4};
    spmd_fixture f = spmd_fixture_mlp(sizes);
    dtp_sharding s = spmd_fixture_rules(&f, "x:2;y:2", "batch:x;cls:y");
    dtp_program *p;
    assert_int_equal(dtp_program_create(f.graph, &s.mesh, &dtp_target_cpu, &p, NULL), DTP_OK);
    p->redistributor = dtp_redistributor_generic();
    p->plain_names = true;
    int32_t total[2] = {0, 0};
    for (int round = 0; round < 3000; round++) {
        int32_t sum = 0;
        for (int32_t n = 0; n < f.graph->n_nodes; n++) {
            const dtp_node *node = &f.graph->nodes[n];
            dtp_layout in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
            for (int32_t i = 0; i < node->n_in; i++) {
                in[i] = s.layouts[node->in[i]];
            }
            for (int32_t i = 0; i < node->n_out; i++) {
                out[i] = s.layouts[node->out[i]];
            }
            assert_int_equal(dtp_program_reset(p, NULL), DTP_OK);
            assert_int_equal(dtp_lower_node(p, n, &s.strategies[n], in, out, NULL, NULL), DTP_OK);
            for (int32_t i = 0; i < node->n_out; i++) {
                assert_true(
                    dtp_layout_equal(&p->values[p->tensor_value[node->out[i]]].layout, &out[i]));
            }
            sum += p->n_instrs;
        }
        total[round % 2] = sum;
    }
    assert_int_equal(total[0], total[1]);
    dtp_lower_options options = {.redistributor = dtp_redistributor_generic(),
                                 .target = &dtp_target_cpu};
    dtp_program *whole = lower(&f, &s, &options);
    for (int32_t i = 0; i < whole->n_instrs; i++) { /* WAITs come with the passes */
        total[1] += whole->instrs[i].kind == DTP_INSTR_WAIT ? 1 : 0;
    }
    assert_int_equal(total[1], whole->n_instrs);
    dtp_program_destroy(whole);
    dtp_program_destroy(p);
    spmd_fixture_destroy(&f);
}

static void test_lower__same_input_same_program(void **state)
{
    (void)state;
    static const int64_t sizes[] = {8, 12, 16, 4};
    spmd_fixture f = spmd_fixture_mlp(sizes);
    dtp_sharding s = spmd_fixture_rules(&f, "x:2;y:2", "batch:x;cls:y");
    dtp_strbuf text[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        dtp_program *p = lower(&f, &s, NULL);
        dtp_program_print(p, &text[i]);
        dtp_program_destroy(p);
    }
    assert_string_equal(dtp_strbuf_text(&text[0]), dtp_strbuf_text(&text[1]));
    assert_non_null(strstr(dtp_strbuf_text(&text[0]), "all_reduce(max) over y"));
    assert_non_null(strstr(dtp_strbuf_text(&text[0]), "mesh 'x:2;y:2' (4 ranks)"));
    dtp_strbuf_free(&text[0]);
    dtp_strbuf_free(&text[1]);
    spmd_fixture_destroy(&f);
}

/* Prices and timelines need no memory plan. */
static void check_unplaced(const spmd_fixture *f, const dtp_machine *machine, const rules_case *c)
{
    dtp_sharding s = spmd_fixture_rules(f, c->mesh, c->rules);
    dtp_lower_options options = dtp_lower_options_init(dtp_redistributor_generic());
    dtp_prediction predicted[2];
    dtp_pricer pricer;
    dtp_program *p = lower(f, &s, &options), *q = NULL;
    options.unplaced = true;
    assert_int_equal(dtp_lower(f->graph, &s, &options, &q, NULL), DTP_OK);
    assert_int_equal(dtp_pricer_init(machine, &s.mesh, &dtp_target_cpu, &pricer, NULL), DTP_OK);
    assert_int_equal(dtp_predict(&pricer, p, &predicted[0], NULL), DTP_OK);
    assert_int_equal(dtp_predict(&pricer, q, &predicted[1], NULL), DTP_OK);
    assert_int_equal(p->n_instrs, q->n_instrs);
    assert_int_equal(p->n_values, q->n_values);
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *a = &p->instrs[i], *b = &q->instrs[i];
        assert_true(a->kind == b->kind && a->node == b->node && a->phase == b->phase);
        assert_true(a->n_in == b->n_in && a->n_out == b->n_out && a->op == b->op);
        assert_memory_equal(a->in, b->in, (size_t)a->n_in * sizeof *a->in);
        assert_memory_equal(a->out, b->out, (size_t)a->n_out * sizeof *a->out);
        assert_true(a->coll.kind == b->coll.kind && a->coll.count == b->coll.count);
        assert_true(a->move.kind == b->move.kind && a->move.axis == b->move.axis);
        assert_true(a->time_s >= b->time_s && a->time_s <= b->time_s);
        assert_true(a->time_s > 0.0 || a->kind == DTP_INSTR_WAIT);
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        assert_int_equal(p->values[v].bytes, q->values[v].bytes);
        assert_int_equal(p->values[v].parent, q->values[v].parent);
        assert_true(p->values[v].offset >= 0 && q->values[v].offset == -1);
    }
    assert_memory_equal(predicted[0].collectives, predicted[1].collectives,
                        sizeof predicted[0].collectives);
    assert_true(predicted[0].step_time_s >= predicted[1].step_time_s &&
                predicted[0].step_time_s <= predicted[1].step_time_s);
    assert_true(predicted[0].peak_bytes > 0);
    dtp_program_destroy(p);
    dtp_program_destroy(q);
}

static void test_lower__without_a_memory_plan_the_same_program(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {{8, 12, 16, 4}, {7, 5, 6, 3}};
    dtp_machine *machine = NULL;
    assert_int_equal(
        dtp_machine_read(DTP_SOURCE_DIR "/models/machines/a100_8.json", &machine, NULL), DTP_OK);
    for (size_t i = 0; i < 2; i++) {
        spmd_fixture f = spmd_fixture_mlp(sizes[i]);
        for (size_t c = 0; c < sizeof MLP_RULES / sizeof MLP_RULES[0]; c++) {
            check_unplaced(&f, machine, &MLP_RULES[c]);
        }
        spmd_fixture_destroy(&f);
    }
    dtp_machine_destroy(machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lower__rules_give_the_unsharded_step),
        cmocka_unit_test(test_lower__relabels_never_scramble),
        cmocka_unit_test(test_lower__collective_counts),
        cmocka_unit_test(test_lower__terms_of_a_sum_are_reduced_once),
        cmocka_unit_test(test_lower__reductions_in_a_row_become_one),
        cmocka_unit_test(test_lower__updates_run_in_place),
        cmocka_unit_test(test_lower__split_optimizer_state),
        cmocka_unit_test(test_lower__random_strategies_give_the_unsharded_step),
        cmocka_unit_test(test_lower_node__is_repeatable_after_reset),
        cmocka_unit_test(test_lower__same_input_same_program),
        cmocka_unit_test(test_lower__without_a_memory_plan_the_same_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
