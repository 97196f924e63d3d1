/* Styles on small models: how many collectives the training step has in its forward and backward
 * pass, against the counts of PyTorch's tests of the same modules, and N virtual ranks against one
 * device. The all-reduce of a scalar loss is not counted, as it is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "core/base/strbuf.h"
#include "cost_models/comm_report.h"
#include "cost_models/plan_lowering.h"
#include "planner/plan_pins.h"
#include "interop/styles/styles.h"
#include "tests/support/verify_case.h"
#include "spmd/program/program.h"

enum { MAX_TEXTS = 10, MAX_MODULES = 9 };

static const double TOLERANCE = 2e-5;

/* all-reduce, all-gather, reduce-scatter, all-to-all */
typedef struct counts {
    int of[DTP_N_COLLS];
} counts;

typedef struct module_count {
    const char *path; /* NULL ends the list */
    counts forward;
} module_count;

typedef struct style_case {
    const char *id, *model, *mesh;
    int64_t batch; /* 0: as in the model */
    const char *styles[MAX_TEXTS], *pins[MAX_TEXTS];
    counts torch_forward, torch_backward; /* PyTorch's */
    counts forward, backward;             /* ours: never more */
    module_count modules[MAX_MODULES];
    module_count torch_modules[MAX_MODULES]; /* where they differ from `modules` */
    const char *torch_style;                 /* added in PyTorch's way */
    bool own_only;                           /* not one of PyTorch's cases */
} style_case;

#define TRANSFORMER_STYLES                                                                         \
    "{tok,pos}_embeddings: rowwise", "layers.*.attention.{wq,wk,wv}: colwise",                     \
        "layers.*.attention.wo: rowwise", "layers.*.feed_forward.w1: colwise",                     \
        "layers.*.feed_forward.w2: rowwise", "output: colwise(output=replicated)"

static const style_case CASES[] = {
    {.id = "T1",
     .model = "linear",
     .mesh = "tp:4",
     .styles = {"lin: colwise"},
     .torch_backward = {{1, 0, 0, 0}},
     .backward = {{1, 0, 0, 0}}},
    {.id = "T2",
     .model = "linear",
     .mesh = "tp:4",
     .batch = 32,
     .styles = {"lin: colwise"},
     .pins = {"x: batch@tp", "shift: batch@tp"},
     .torch_forward = {{0, 1, 0, 0}},
     .torch_backward = {{0, 0, 1, 0}},
     .forward = {{0, 1, 0, 0}},
     .backward = {{0, 0, 1, 0}}},
    {.id = "T3",
     .model = "linear",
     .mesh = "tp:4",
     .styles = {"lin: rowwise"},
     .pins = {"x: d@tp", "shift: d@tp"},
     .torch_forward = {{1, 0, 0, 0}},
     .forward = {{1, 0, 0, 0}}},
    {.id = "T3 with the batch split behind",
     .model = "linear",
     .mesh = "tp:4",
     .styles = {"lin: rowwise(output=batch)"},
     .pins = {"x: d@tp", "shift: d@tp", "t: batch@tp"},
     .torch_forward = {{0, 0, 1, 0}},
     .torch_backward = {{0, 1, 0, 0}},
     .forward = {{0, 0, 1, 0}},
     .backward = {{0, 1, 0, 0}}},
    {.id = "T4 columns", .model = "embedding", .mesh = "tp:4", .styles = {"emb: colwise"}},
    {.id = "T4 rows",
     .model = "embedding",
     .mesh = "tp:4",
     .styles = {"emb: rowwise"},
     .torch_forward = {{1, 0, 0, 0}},
     .forward = {{1, 0, 0, 0}}},
    {.id = "T4 rows with the sequence split behind",
     .model = "embedding",
     .mesh = "tp:2",
     .styles = {"emb: rowwise(output=seq)"},
     .pins = {"t: seq@tp"},
     .torch_forward = {{0, 0, 1, 0}},
     .torch_backward = {{0, 1, 0, 0}},
     .forward = {{0, 0, 1, 0}},
     .backward = {{0, 1, 0, 0}}},
    {.id = "T6",
     .model = "mlp",
     .mesh = "tp:4",
     .styles = {"net1: colwise", "net2: rowwise"},
     .torch_forward = {{1, 0, 0, 0}},
     .forward = {{1, 0, 0, 0}},
     .modules = {{"net2", {{1, 0, 0, 0}}}}},
    {.id = "T7",
     .model = "mlp",
     .mesh = "tp:4",
     .styles = {"net1: colwise", "net2: rowwise(output=batch)"},
     .pins = {"x: batch@tp", "t: batch@tp"},
     .torch_forward = {{0, 1, 1, 0}},
     .torch_backward = {{0, 1, 0, 0}},
     .forward = {{0, 1, 1, 0}},
     .backward = {{0, 1, 0, 0}},
     .modules = {{"net1", {{0, 1, 0, 0}}}, {"net2", {{0, 0, 1, 0}}}}},
    {.id = "T8",
     .model = "mlps",
     .mesh = "tp:2",
     .styles = {"**.net1: colwise", "**.net2: rowwise"},
     .torch_forward = {{2, 0, 0, 0}},
     .forward = {{2, 0, 0, 0}},
     .modules = {{"mlps.0.net2", {{1, 0, 0, 0}}}, {"mlps.1", {{1, 0, 0, 0}}}}},
    /* The normalisation is over the batch: features may stay split. */
    {.id = "T9",
     .model = "batch_norm",
     .mesh = "tp:2",
     .styles = {"fc: colwise"},
     .torch_forward = {{0, 1, 0, 0}},
     .torch_style = "bn: replicate"},
    /* One all-reduce for the sum of the two embeddings; one for queries, keys and values together.
     */
    {.id = "T10, T11",
     .model = "transformer",
     .mesh = "tp:4",
     .styles = {TRANSFORMER_STYLES},
     .torch_forward = {{6, 1, 0, 0}},
     .torch_backward = {{9, 0, 0, 0}},
     .forward = {{5, 1, 0, 0}},
     .backward = {{5, 0, 0, 0}},
     .modules = {{"h0", {{1, 0, 0, 0}}},
                 {"layers", {{4, 0, 0, 0}}},
                 {"layers.0", {{2, 0, 0, 0}}},
                 {"layers.1.attention.wo", {{1, 0, 0, 0}}},
                 {"layers.1.feed_forward.w2", {{1, 0, 0, 0}}},
                 {"output", {{0, 1, 0, 0}}}},
     .torch_modules = {{"tok_embeddings", {{1, 0, 0, 0}}},
                       {"pos_embeddings", {{1, 0, 0, 0}}},
                       {"layers", {{4, 0, 0, 0}}},
                       {"layers.0", {{2, 0, 0, 0}}},
                       {"layers.1", {{2, 0, 0, 0}}},
                       {"layers.1.attention.wo", {{1, 0, 0, 0}}},
                       {"layers.1.feed_forward.w2", {{1, 0, 0, 0}}},
                       {"output", {{0, 1, 0, 0}}}}},
    /* As T10; the gradients of all parameters are reduced in one bucket. */
    {.id = "T10 on two mesh dims",
     .model = "transformer",
     .mesh = "dp:2;tp:2",
     .styles = {TRANSFORMER_STYLES, "**: data"},
     .torch_forward = {{6, 1, 0, 0}},
     .torch_backward = {{10, 0, 0, 0}},
     .forward = {{5, 1, 0, 0}},
     .backward = {{6, 0, 0, 0}},
     .own_only = true},
};

/* ---- one case ---- */

static void verify(const dtp_graph *g, const dtp_plan *p, const char *id)
{
    verify_case c = verify_case_init(id);
    dtp_plan_lowering lowering;
    c.options.tolerance = TOLERANCE;
    c.options.steps = 2;
    assert_int_equal(dtp_plan_lowering_init(&lowering, p, NULL), DTP_OK);
    verify_sharding(g, &p->sharding, &lowering.options, &c);
}

static dtp_graph *read_model(const style_case *c)
{
    char path[512];
    dtp_graph *g = NULL;
    dtp_err err = {0};
    const dtp_dim_override batch = {.name = "batch", .size = c->batch};
    const dtp_model_options options = {
        .size = sizeof options, .n_overrides = c->batch > 0 ? 1 : 0, .overrides = &batch};
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/tests/planner/styles/%s.json", c->model);
    if (dtp_model_read(path, &options, &g, &err) != DTP_OK) {
        fail_msg("%s: %s", c->id, err.msg);
    }
    return g;
}

/* What the styles and pins of a case lead to. */
static dtp_plan *plan(const style_case *c, const dtp_graph *g, dtp_arena *arena, bool strict,
                      bool torch)
{
    dtp_err err = {0};
    dtp_mesh mesh;
    dtp_styles styles;
    dtp_machine *machine = NULL;
    dtp_plan_result result = {0};
    dtp_pin *pins = NULL, all[256];
    dtp_pin_set set = {.pins = all};
    dtp_plan_request request = dtp_plan_request_init();
    request.pins = &set;
    request.options.mesh = &mesh;
    request.options.strict = strict;
    request.options.torch = torch;
    dtp_styles_init(&styles, arena);
    dtp_status s = dtp_mesh_parse(c->mesh, &mesh, &err);
    for (int32_t i = 0; i < MAX_TEXTS && c->styles[i] != NULL && s == DTP_OK; i++) {
        s = dtp_styles_parse(c->styles[i], &styles, &err);
    }
    if (s == DTP_OK && torch && c->torch_style != NULL) {
        s = dtp_styles_parse(c->torch_style, &styles, &err);
    }
    s = s == DTP_OK ? dtp_styles_pins(g, &mesh, &styles, &set.n_pins, &pins, &err) : s;
    assert_in_range(set.n_pins, 0, 240);
    set.n_implementations = styles.n_implementations;
    set.implementations = styles.implementations;
    for (int32_t i = 0; i < set.n_pins && s == DTP_OK; i++) {
        all[i] = pins[i];
    }
    for (int32_t i = 0; i < MAX_TEXTS && c->pins[i] != NULL && s == DTP_OK; i++) {
        s = dtp_pin_parse(c->pins[i], g, &mesh, &all[set.n_pins++], &err);
    }
    s = s == DTP_OK
            ? dtp_machine_read(DTP_SOURCE_DIR "/models/machines/a100_8.json", &machine, &err)
            : s;
    s = s == DTP_OK ? dtp_plan_pins(g, machine, &request, &result, &err) : s;
    dtp_machine_destroy(machine);
    if (s != DTP_OK) {
        fail_msg("%s: %s", c->id, err.msg);
    }
    return result.plan;
}

/* Counts of one phase without scalars. */
static counts count_phase(const dtp_comm_report *r, dtp_phase phase)
{
    counts c = {{0}};
    for (int32_t i = 0; i < r->n_entries; i++) {
        if (r->entries[i].phase == phase && r->entries[i].bytes > 4) {
            c.of[r->entries[i].kind]++;
        }
    }
    return c;
}

static void compare(const char *id, const char *where, const counts *got, const counts *want,
                    const counts *limit)
{
    for (int k = 0; k < DTP_N_COLLS; k++) {
        const char *kind = dtp_coll_name((dtp_coll_kind)k);
        if (got->of[k] != want->of[k]) {
            fail_msg("%s, %s: %d %s, expected %d", id, where, got->of[k], kind, want->of[k]);
        }
        if (limit != NULL && got->of[k] > limit->of[k]) {
            fail_msg("%s, %s: %d %s, PyTorch has %d", id, where, got->of[k], kind, limit->of[k]);
        }
    }
}

static void compare_modules(const char *id, const module_count *modules, const dtp_comm_report *r)
{
    for (int32_t i = 0; i < MAX_MODULES && modules[i].path != NULL; i++) {
        counts got = {{0}};
        for (int32_t m = 0; m < r->n_modules; m++) {
            for (int k = 0; k < DTP_N_COLLS && strcmp(r->modules[m].path, modules[i].path) == 0;
                 k++) {
                got.of[k] = (int)r->modules[m].counts[DTP_FORWARD][k].count;
            }
        }
        compare(id, modules[i].path, &got, &modules[i].forward, NULL);
    }
}

/* Totals, modules and the program say the same. */
static void check_sums(const dtp_program *p, const dtp_comm_report *r)
{
    int64_t program = 0, totals = 0, total_bytes = 0, root = 0, root_bytes = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        program += p->instrs[i].kind == DTP_INSTR_START ? 1 : 0;
    }
    for (int32_t i = 0; i < r->n_totals; i++) {
        totals += r->totals[i].sum.count;
        total_bytes += r->totals[i].sum.bytes;
    }
    for (int32_t f = 0; f < DTP_N_PHASES; f++) {
        for (int32_t k = 0; k < DTP_N_COLLS; k++) {
            root += r->modules[0].counts[f][k].count;
            root_bytes += r->modules[0].counts[f][k].bytes;
        }
    }
    assert_int_equal(program, r->n_entries);
    assert_int_equal(program, totals);
    assert_int_equal(program, root);
    assert_int_equal(total_bytes, root_bytes);
    for (int32_t m = 1; m < r->n_modules; m++) {
        assert_in_range(r->modules[m].parent, 0, m - 1);
    }
}

static void check_counts(const style_case *c, const dtp_graph *g, const dtp_plan *p,
                         dtp_arena *arena)
{
    const bool torch = p->redistribution == DTP_REDISTRIBUTION_TORCH;
    dtp_plan_lowering lowering;
    dtp_program *program = NULL;
    dtp_comm_report report;
    assert_int_equal(dtp_plan_lowering_init(&lowering, p, NULL), DTP_OK);
    assert_int_equal(dtp_lower(g, &p->sharding, &lowering.options, &program, NULL), DTP_OK);
    assert_int_equal(dtp_comm_report_make(program, arena, &report, NULL), DTP_OK);
    const counts forward = count_phase(&report, DTP_FORWARD);
    const counts backward = count_phase(&report, DTP_BACKWARD);
    const counts update = count_phase(&report, DTP_UPDATE), none = {{0}};
    compare(c->id, "forward", &forward, torch ? &c->torch_forward : &c->forward, &c->torch_forward);
    compare(c->id, "backward", &backward, torch ? &c->torch_backward : &c->backward,
            &c->torch_backward);
    compare(c->id, "update", &update, &none, NULL);
    compare_modules(
        c->id, torch && c->torch_modules[0].path != NULL ? c->torch_modules : c->modules, &report);
    check_sums(program, &report);
    dtp_program_destroy(program);
}

/* The plan file says all that the program needs. */
static void check_round_trip(const style_case *c, const dtp_graph *g, const dtp_plan *p)
{
    char *text = NULL;
    dtp_plan *again = NULL;
    dtp_program *programs[2] = {NULL};
    dtp_strbuf texts[2] = {{0}};
    dtp_err err = {0};
    dtp_plan_lowering lowering;
    assert_int_equal(dtp_plan_write(p, g, false, &text, &err), DTP_OK);
    if (dtp_plan_read("plan", text, strlen(text), g, &again, &err) != DTP_OK) {
        fail_msg("%s: %s", c->id, err.msg);
    }
    assert_int_equal(again->redistribution, p->redistribution);
    assert_int_equal(dtp_plan_lowering_init(&lowering, again, NULL), DTP_OK);
    assert_int_equal(dtp_lower(g, &p->sharding, &lowering.options, &programs[0], NULL), DTP_OK);
    assert_int_equal(dtp_lower(g, &again->sharding, &lowering.options, &programs[1], NULL), DTP_OK);
    for (int i = 0; i < 2; i++) {
        dtp_program_print(programs[i], &texts[i]);
        dtp_program_destroy(programs[i]);
    }
    assert_string_equal(dtp_strbuf_text(&texts[0]), dtp_strbuf_text(&texts[1]));
    dtp_strbuf_free(&texts[0]);
    dtp_strbuf_free(&texts[1]);
    dtp_plan_destroy(again);
    free(text);
}

static void run_case(const style_case *c, bool torch)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_graph *g = read_model(c);
    dtp_plan *p = plan(c, g, arena, false, torch);
    print_message("%s\n", c->id);
    check_counts(c, g, p, arena);
    check_round_trip(c, g, p);
    verify(g, p, c->id);
    dtp_plan_destroy(p);
    dtp_graph_destroy(g);
    dtp_arena_destroy(arena);
}

static void test_styles_sim__counts_and_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        run_case(&CASES[i], false);
    }
}

/* Made and lowered in PyTorch's way, the counts are PyTorch's. */
static void test_styles_sim__torch_counts_exactly(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        if (!CASES[i].own_only) {
            run_case(&CASES[i], true);
        }
    }
}

/* ---- data parallel ---- */

typedef struct zero_case {
    const char *style;
    /* gathers forward and backward, reduce-scatters backward, gathers in the update; by parameter
     */
    int gathered_forward, gathered_backward, scattered, gathered_update;
} zero_case;

/* ZeRO on the perceptron (4 parameters, sgd). Backward only the second weight is read. */
static void test_styles_sim__zero_stages(void **state)
{
    (void)state;
    static const zero_case cases[] = {{"**: zero1", 0, 0, 0, 0},
                                      {"**: zero2", 0, 0, 4, 4},
                                      {"**: zero3", 4, 1, 4, 0},
                                      {"**: fsdp", 4, 1, 4, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const zero_case *z = &cases[i];
        const style_case c = {
            .id = z->style, .model = "mlp", .mesh = "dp:2", .styles = {"**: data", z->style}};
        dtp_arena *arena = dtp_arena_create();
        dtp_graph *g = read_model(&c);
        dtp_plan *p = plan(&c, g, arena, true, false);
        dtp_program *program = NULL;
        dtp_comm_report r;
        print_message("%s\n", c.id);
        dtp_lower_options passes = dtp_lower_options_init(dtp_redistributor_generic());
        passes.overlap.bucket_bytes = 0;
        assert_int_equal(dtp_lower(g, &p->sharding, &passes, &program, NULL), DTP_OK);
        assert_int_equal(dtp_comm_report_make(program, arena, &r, NULL), DTP_OK);
        const counts forward = count_phase(&r, DTP_FORWARD);
        const counts backward = count_phase(&r, DTP_BACKWARD);
        const counts update = count_phase(&r, DTP_UPDATE);
        assert_int_equal(forward.of[DTP_ALL_GATHER], z->gathered_forward);
        assert_int_equal(backward.of[DTP_ALL_GATHER], z->gathered_backward);
        assert_int_equal(backward.of[DTP_REDUCE_SCATTER], z->scattered);
        assert_int_equal(backward.of[DTP_ALL_REDUCE], z->scattered > 0 ? 0 : 4);
        assert_int_equal(update.of[DTP_ALL_GATHER], z->gathered_update);
        verify(g, p, c.id);
        dtp_program_destroy(program);
        dtp_plan_destroy(p);
        dtp_graph_destroy(g);
        dtp_arena_destroy(arena);
    }
}

/* ---- context parallel ---- */

typedef struct context_case {
    const char *style;
    counts forward, backward; /* inside attention, by layer */
} context_case;

/* Collectives of a kind inside attention. */
static int count_inside(const dtp_graph *g, const dtp_program *p, dtp_phase phase, int kind)
{
    int n = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        n += instr->kind == DTP_INSTR_START && (int)instr->coll.kind == kind &&
                     instr->phase == phase && instr->node >= 0 &&
                     strncmp(g->nodes[instr->node].op->name, "attention", 9) == 0
                 ? 1
                 : 0;
    }
    return n;
}

static void check_context(const context_case *x, const dtp_graph *g, const dtp_plan *p, int layers)
{
    dtp_graph *set = NULL;
    dtp_program *program = NULL;
    assert_int_equal(
        dtp_graph_with_implementations(g, p->n_implementations, p->implementations, &set, NULL),
        DTP_OK);
    dtp_lower_options passes = dtp_lower_options_init(dtp_redistributor_generic());
    assert_int_equal(dtp_lower(set, &p->sharding, &passes, &program, NULL), DTP_OK);
    for (int k = 0; k < DTP_N_COLLS; k++) {
        assert_int_equal(count_inside(set, program, DTP_FORWARD, k), layers * x->forward.of[k]);
        assert_int_equal(count_inside(set, program, DTP_BACKWARD, k), layers * x->backward.of[k]);
    }
    verify(set, p, x->style);
    dtp_program_destroy(program);
    dtp_graph_destroy(set);
}

/* The sequence of a Transformer of two layers over W = 4 ranks: a ring has W - 1 permutes forward
 * and 2W - 1 backward in each layer, gathering 1 all-gather forward, 1 and 1 reduce-scatter
 * backward. */
static void test_styles_sim__context_ring_and_gather(void **state)
{
    (void)state;
    static const context_case cases[] = {
        {"layers.*.attention.sdpa: context(cp, ring)", {{0, 0, 0, 0, 3}}, {{0, 0, 0, 0, 7}}},
        {"layers.*.attention.sdpa: context(gather)", {{0, 1, 0, 0, 0}}, {{0, 1, 1, 0, 0}}},
        {"layers.*.attention.sdpa: context", {{0, 1, 0, 0, 0}}, {{0, 1, 1, 0, 0}}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const style_case c = {.id = cases[i].style,
                              .model = "transformer",
                              .mesh = "cp:4",
                              .styles = {cases[i].style},
                              .pins = {"h0: seq@cp"}};
        dtp_arena *arena = dtp_arena_create();
        dtp_graph *g = read_model(&c);
        dtp_plan *p = plan(&c, g, arena, false, false);
        print_message("%s\n", c.id);
        assert_int_equal(p->n_implementations, i < 2 ? 4 : 0);
        check_context(&cases[i], g, p, 2);
        dtp_plan_destroy(p);
        dtp_graph_destroy(g);
        dtp_arena_destroy(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_styles_sim__counts_and_values),
        cmocka_unit_test(test_styles_sim__torch_counts_exactly),
        cmocka_unit_test(test_styles_sim__zero_stages),
        cmocka_unit_test(test_styles_sim__context_ring_and_gather),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
