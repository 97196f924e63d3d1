/* Certificates of random models, and of those of models/ with random sizes, in random variants on
 * random machines and meshes, in both modes: rates and delays are drawn from what the machine file
 * takes, zero among them, with and without overlap, levels, memory limits and uneven splits. Of
 * every plan:
 *
 *   - the plan file that dtplan would write is read again;
 *   - bound <= least cost <= cost, and the cost is that of the plain program, to the picosecond;
 *   - the bound is at most the optimum of its problem, which elimination (elimination.h) finds
 *     where the problem is small, and equal to it where the plan is proven optimal;
 *   - random selections of the problem cost what their plain programs cost, and no program needs
 *     less memory than the problem says;
 *   - baselines split evenly.
 *
 * Without arguments: N_CASES cases, in quarters. By hand, COUNT cases from a seed on; of one that
 * fails the seed is printed, and with COUNT 1 its model and machine are, too:
 *
 *     build/dev/bin/test_certificates_random 700000 5000
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/plan_lowering.h"
#include "cost_models/predict.h"
#include "core/plan/node_layouts.h"
#include "planner/baselines/baselines.h"
#include "planner/plan_rules.h"
#include "planner/tensors/plan_tensor.h"
#include "tests/solver/elimination.h"
#include "tests/support/quarter.h"
#include "tests/support/random_graphs.h"
#include "tests/support/tensor_cases.h"

enum { FIRST_SEED = 700000, N_CASES = 1600, MOST_CELLS = 200000, SELECTIONS = 2 };

typedef struct tally {
    int32_t planned, infeasible, refused; /* plans; no plan; variants that a model does not have */
    int32_t optimal, exact, selections;   /* proven; compared with elimination; compared */
    int32_t failed;
} tally;

/* Of models/, one case in PER_MODEL: their dims that are drawn. */
static const struct {
    const char *file, *dims, *fixed;
} MODELS[] = {
    {"mlp_digits.json", "batch pixels hidden classes", ""},
    {"gpt_bytes.json", "batch length layers heads d_head vocab", ""},
    {"gpt_bytes_dropout.json", "batch length layers heads d_head", ""},
    {"gpt2_small.json", "batch length layers heads d_head vocab", "positions=16"},
    {"llama3_8b.json", "batch length layers kv_heads group d_head d_ff vocab", ""},
    {"mixtral_8x7b.json", "batch length layers kv_heads d_ff",
     "group=2 d_head=4 vocab=8 experts=4 "
     "capacity=3"},
    {"bert_large.json", "batch length layers heads d_head vocab", ""},
    {"mtf_lm.json", "batch length layers heads d_kv d_model d_ff vocab", "max_length=16"},
};
enum { N_MODELS = sizeof MODELS / sizeof MODELS[0], PER_MODEL = 40 };

typedef struct subject {
    uint64_t seed, draws;
    char *text, machine[1024], dims[256], name[512];
    dtp_arena *arena;
    tensor_fixture f; /* of the model as it is */
    dtp_graph *g;     /* as it is planned */
    dtp_graph_variant variant;
    dtp_plan_request request;
    bool rules;
    tally *t;
} subject;

static bool one_of(subject *s, int32_t n)
{
    return random_below(&s->draws, n) == 0;
}

static const char *draw(subject *s, const char *const *list, size_t n)
{
    return list[random_below(&s->draws, (int32_t)n)];
}

#define DRAW(s, ...)                                                                               \
    draw(s, (const char *const[]){__VA_ARGS__},                                                    \
         sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* Says what is wrong with a case; the others go on. */
static bool wrong(const subject *s, const char *what, int64_t a, int64_t b)
{
    print_error("%s: %s: %" PRId64 " and %" PRId64 "\n", s->name, what, a, b);
    s->t->failed++;
    return false;
}

static void must(const subject *s, dtp_status status, const dtp_err *err)
{
    if (status != DTP_OK) {
        fail_msg("%s: %s", s->name, err->msg);
    }
}

/* ---- cases ---- */

static void write_machine(subject *s, int32_t ranks)
{
    const bool inner = ranks == 4 && one_of(s, 2);
    const char *kind = DRAW(s, "cpu", "cuda");
    const char *const launch = DRAW(s, "0", "0", "1e-9", "1e-6", "5e-5");
    const char *const latency = DRAW(s, "0", "1e-9", "1e-6", "1e-3");
    const char *const memory = DRAW(s, "1e3", "1e8", "1e8", "1e12", "1e18");
    const char *const rate = DRAW(s, "1e3", "1e8", "1e8", "1e13", "1e21");
    const char *const link = DRAW(s, "1e2", "1e8", "1e12", "1e18");
    const char *const slow = DRAW(s, "1.0", "1.5", "100");
    (void)snprintf(
        s->machine, sizeof s->machine,
        "{\"format\": \"dtp.machine/1\", \"yes_units\": true, \"name\": \"random\", "
        "\"device\": {\"kind\": \"%s\", \"memory_bytes\": 8589934592, \"mem_bw_Bps\": %s, "
        "\"launch_s\": %s, \"flops\": {\"f32\": %s}, \"overlap\": %s, "
        "\"overlap_slowdown\": %s}, \"levels\": [{\"name\": \"a\", \"size\": %d, "
        "\"latency_s\": %s, \"bw_Bps\": %s}%s], \"provenance\": {\"how\": \"datasheet\"}}",
        kind, memory, launch, rate, one_of(s, 2) ? "true" : "false", slow, inner ? 2 : ranks,
        latency, link,
        inner ? ", {\"name\": \"b\", \"size\": 2, \"latency_s\": 1e-6, \"bw_Bps\": 1e9}" : "");
}

/* Draws a model: *remat is what may be recomputed. */
static const char *draw_model(subject *s, const char **remat)
{
    if (!one_of(s, PER_MODEL)) {
        dtp_graph *made = random_training_graph(s->seed, &s->text);
        assert_non_null(made);
        dtp_graph_destroy(made);
        return s->text;
    }
    const int32_t k = random_below(&s->draws, N_MODELS);
    dtp_strbuf b = {0};
    for (const char *at = MODELS[k].dims; *at != '\0';) {
        const int n = (int)strcspn(at, " ");
        const char *size = strncmp(at, "layers", 6) == 0 ? DRAW(s, "1", "2")
                           : strncmp(at, "d_head", 6) == 0
                               ? DRAW(s, "2", "4", "6")
                               : DRAW(s, "2", "3", "4", "5", "6", "8", "10", "12");
        dtp_strbuf_addf(&b, "%.*s=%s ", n, at, size);
        at += n + (at[n] == ' ' ? 1 : 0);
    }
    (void)snprintf(s->dims, sizeof s->dims, "%s%s", dtp_strbuf_text(&b), MODELS[k].fixed);
    dtp_strbuf_free(&b);
    *remat = k > 0 && one_of(s, 4) ? "all" : NULL;
    return MODELS[k].file;
}

/* The variant is that of the texts, or none where the model does not have it. */
static void open_variant(subject *s, const dtp_target *target, const char *remat)
{
    static const char *const copies[] = {NULL, "none", NULL, "params", NULL, "all"};
    dtp_err err = {0};
    dtp_variant_texts texts = {.precision = DRAW(s, "f32", "f32", "f32", "bf16", "f16",
                                                 "f16,gradients=f32", "bf16,gradients=f32"),
                               .microbatches = one_of(s, 4) ? "2" : NULL,
                               .remat = remat,
                               .regather = copies[s->seed % 6]};
    const bool taken =
        dtp_graph_variant_parse(&texts, s->f.model, s->arena, &s->variant, &err) == DTP_OK &&
        dtp_graph_with_variant(s->f.model, &s->variant, 0, NULL, &s->g, &err) == DTP_OK &&
        dtp_target_takes_graph(target, s->g, &err) == DTP_OK;
    if (!taken) {
        dtp_graph_destroy(s->g);
        s->g = NULL;
        s->t->refused++;
        texts = (dtp_variant_texts){0};
        must(s, dtp_graph_variant_parse(&texts, s->f.model, s->arena, &s->variant, &err), &err);
        must(s, dtp_graph_with_variant(s->f.model, &s->variant, 0, NULL, &s->g, &err), &err);
    }
}

static void open_subject(uint64_t seed, tally *t, subject *s)
{
    static const dtp_target *const targets[] = {&dtp_target_cpu, &dtp_target_cpu, &dtp_target_cuda,
                                                &dtp_target_cpu_packed, &dtp_target_torch};
    *s = (subject){.seed = seed, .draws = ~seed, .t = t, .arena = dtp_arena_create()};
    dtp_mesh mesh;
    dtp_err err = {0};
    (void)snprintf(s->name, sizeof s->name, "seed %" PRIu64, seed);
    const char *remat = NULL, *const model = draw_model(s, &remat);
    const char *text =
        DRAW(s, "x:2", "x:2", "x:3", "x:4", "x:5", "x:2;y:2", "y:2;x:3", "x:4;y:1", "x:2;y:1;z:2");
    must(s, dtp_mesh_parse(text, &mesh, &err), &err);
    write_machine(s, dtp_mesh_ranks(&mesh));
    const tensor_case c = {.model = model,
                           .mesh = text,
                           .dims = s->text == NULL ? s->dims : NULL,
                           .machine = s->machine,
                           .target = targets[random_below(&s->draws, 5)]};
    tensor_fixture_create(&c, &s->f);
    open_variant(s, c.target, remat);
    s->rules = one_of(s, 4);
    s->request = tensor_fixture_request(&s->f);
    s->request.variant = &s->variant;
    s->request.options.uneven = one_of(s, 4);
    s->request.options.threads = 1;
    s->request.options.gap = one_of(s, 3) || s->text == NULL ? 0.02 : 0.0;
    (void)snprintf(s->name, sizeof s->name,
                   "seed %" PRIu64 ", %s %s on %s for %s, %s%s, regather %s", seed,
                   s->text == NULL ? model : "random", s->dims, text, c.target->name,
                   s->rules ? "rules" : "tensor", s->request.options.uneven ? ", uneven" : "",
                   s->variant.regather != NULL ? s->variant.regather : "usual");
}

static void close_subject(subject *s)
{
    dtp_graph_destroy(s->g);
    tensor_fixture_destroy(&s->f);
    dtp_arena_destroy(s->arena);
    free(s->text);
}

/* ---- what is held ---- */

/* Of the plan that is read back. */
static bool check_file(const subject *s, const dtp_plan *made)
{
    dtp_err err = {0};
    char *text = NULL;
    dtp_plan *plan = NULL;
    dtp_plan_lowering lowering;
    int64_t cost = 0;
    must(s, dtp_plan_write(made, s->g, false, &text, &err), &err);
    const dtp_status read = dtp_plan_read("plan", text, strlen(text), s->f.model, &plan, &err);
    free(text);
    if (read != DTP_OK) {
        return wrong(s, err.msg, made->certificate.cost, made->certificate.bound);
    }
    must(s, dtp_plan_lowering_init(&lowering, plan, &err), &err);
    must(
        s,
        dtp_additive_cost(s->g, &s->f.pricer, &plan->sharding, lowering.redistributor, &cost, &err),
        &err);
    dtp_plan_destroy(plan);
    return cost == made->certificate.cost ||
           wrong(s, "the plain program and the plan cost", cost, made->certificate.cost);
}

static bool check_bound(const subject *s, const dtp_certificate *c)
{
    if (c->bound > c->least_cost) {
        return wrong(s, "bound and least cost", c->bound, c->least_cost);
    }
    if (c->least_cost > c->cost) {
        return wrong(s, "least cost and cost", c->least_cost, c->cost);
    }
    return (c->status == DTP_CERT_OPTIMAL) == (c->cost == c->bound) ||
           c->status != DTP_CERT_OPTIMAL || wrong(s, "optimal, bound and cost", c->bound, c->cost);
}

/* Whether costs, the largest of every list and matrix together, are small enough to be added up. */
static bool adds_up(const dtp_problem *p)
{
    int64_t sum = 0;
    for (int32_t k = 0; k < p->n_variables + p->n_edges; k++) {
        const int32_t e = k - p->n_variables;
        const int64_t *cost = e < 0 ? &p->cost[p->first[k]] : &p->edge_cost[p->edge_first[e]];
        const int64_t n = e < 0 ? p->first[k + 1] - p->first[k]
                                : (int64_t)dtp_problem_n_strategies(p, p->edge_a[e]) *
                                      dtp_problem_n_strategies(p, p->edge_b[e]);
        int64_t most = 0;
        for (int64_t i = 0; i < n; i++) {
            most = cost[i] < DTP_FORBIDDEN && cost[i] > most ? cost[i] : most;
        }
        sum += most < ELIMINATION_FORBIDDEN / 64 ? most : ELIMINATION_FORBIDDEN / 64;
    }
    return sum < ELIMINATION_FORBIDDEN / 64;
}

/* The optimum of the problem without a limit; -1: it is too large for elimination. */
static int64_t optimum(const dtp_problem *p)
{
    if (!adds_up(p)) {
        return -1;
    }
    elimination *e = elimination_create(p, 1, false);
    elimination_reduce(e, MOST_CELLS);
    bool all = true;
    for (int32_t i = 0; i < p->n_variables; i++) {
        all = all && e->gone[i];
    }
    const int64_t least = all ? e->least : -1;
    elimination_destroy(e);
    return least;
}

static int64_t peak_of(const subject *s, const dtp_sharding *sharding,
                       const dtp_redistributor *redistributor)
{
    dtp_lower_options options = dtp_lower_options_init(redistributor);
    dtp_program *program = NULL;
    dtp_err err = {0};
    options.target = s->f.pricer.target;
    must(s, dtp_lower(s->g, sharding, &options, &program, &err), &err);
    const int64_t peak = program->peak_bytes;
    dtp_program_destroy(program);
    return peak;
}

static bool check_selections(subject *s, const dtp_tensor_problem *p)
{
    int32_t *selection = calloc((size_t)p->n_variables, sizeof *selection);
    bool fine = true;
    assert_non_null(selection);
    for (int32_t i = 0; i < SELECTIONS && fine; i++) {
        dtp_sharding sharding;
        dtp_problem_value value;
        dtp_err err = {0};
        int64_t cost = 0;
        if (tensor_random_selection(p, &s->draws, selection)) {
            must(s, dtp_tensor_sharding(p, selection, s->arena, &sharding, &err), &err);
            must(s, dtp_problem_evaluate(p->select, selection, &value, &err), &err);
            must(s,
                 dtp_additive_cost(s->g, &s->f.pricer, &sharding, dtp_tensor_redistributor(p),
                                   &cost, &err),
                 &err);
            s->t->selections++;
            const int64_t peak = peak_of(s, &sharding, dtp_tensor_redistributor(p));
            fine = value.cost == cost ||
                   wrong(s, "a selection and its plain program cost", value.cost, cost);
            fine = fine && (value.peak <= peak ||
                            wrong(s, "a selection and its program need", value.peak, peak));
        }
    }
    free(selection);
    return fine;
}

static bool is_even(const subject *s, const dtp_sharding *sharding, dtp_node_id id)
{
    const dtp_mesh *mesh = &s->f.pricer.mesh;
    dtp_call_types types;
    dtp_layout whole[DTP_MAX_OP_IN];
    dtp_node_layouts l;
    dtp_err err = {0};
    const dtp_op_call call = dtp_node_call(s->g, &s->g->nodes[id], &types);
    bool even = true;
    for (int32_t i = 0; i < call.n_in; i++) {
        whole[i] = dtp_layout_replicated(call.in[i].rank, mesh->n_dims);
    }
    must(s,
         dtp_node_layouts_find(mesh, &call, NULL, &sharding->strategies[id], whole, NULL, &l, &err),
         &err);
    for (int32_t i = 0; i < call.n_in && even; i++) {
        even = dtp_layout_is_even(&l.in[i], mesh, &call.in[i]);
    }
    for (int32_t i = 0; i < call.n_out && even; i++) {
        even = dtp_layout_is_even(&l.out[i], mesh, &call.out[i]) &&
               dtp_layout_is_even(&sharding->layouts[s->g->nodes[id].out[i]], mesh, &call.out[i]);
    }
    return even;
}

/* Baselines split evenly, also where nothing of a parameter divides. */
static bool check_baselines(const subject *s, const dtp_redistributor *machine)
{
    dtp_err err = {0};
    int32_t n = 0;
    dtp_candidate *list = NULL;
    bool fine = true;
    const dtp_baseline_options options = {.machine = machine,
                                          .generic = dtp_redistributor_generic()};
    must(s, dtp_baselines_create(s->g, &s->f.pricer, &options, s->arena, &n, &list, &err), &err);
    for (int32_t i = 0; i < n && fine; i++) {
        for (dtp_node_id id = 0; id < s->g->n_nodes && fine && list[i].legal; id++) {
            fine = is_even(s, &list[i].sharding, id) ||
                   wrong(s, "a baseline splits unevenly: baseline, node", i, id);
        }
    }
    return fine;
}

/* The bound beside the optimum of the problem that it is of. */
static bool check_problem(subject *s, const dtp_certificate *c)
{
    dtp_err err = {0};
    dtp_tensor_problem *p = NULL;
    dtp_tensor_options options = dtp_tensor_options_init();
    options.uneven = s->request.options.uneven;
    must(s, dtp_tensor_problem_create(s->g, &s->f.pricer, &options, &p, &err), &err);
    const int64_t least = s->text != NULL ? optimum(p->select) : -1;
    bool fine = true;
    s->t->exact += least >= 0 ? 1 : 0;
    if (least >= 0 && c->bound > least) {
        fine = wrong(s, "bound and optimum", c->bound, least);
    } else if (least >= 0 && c->status == DTP_CERT_OPTIMAL && c->bound != least &&
               strcmp(c->solver, DTP_SOLVER_TWO_GROUPS) != 0) {
        fine = wrong(s, "optimal, bound and optimum", c->bound, least);
    }
    fine = fine && check_selections(s, p) &&
           (!one_of(s, 4) || check_baselines(s, dtp_tensor_redistributor(p)));
    dtp_tensor_problem_destroy(p);
    return fine;
}

/* Again within a limit that is a little below the peak. */
static bool check_limited(subject *s, int64_t peak)
{
    dtp_plan_result r;
    dtp_err err = {0};
    bool fine = true;
    s->request.options.memory_limit_bytes =
        peak - 1 - random_below(&s->draws, (int32_t)(peak / 8) + 1);
    const size_t len = strlen(s->name);
    (void)snprintf(s->name + len, sizeof s->name - len, ", memory %" PRId64,
                   s->request.options.memory_limit_bytes);
    must(s,
         (s->rules ? dtp_plan_rules : dtp_plan_tensor)(s->f.model, s->f.machine, &s->request, &r,
                                                       &err),
         &err);
    if (r.plan != NULL) {
        s->t->planned++;
        fine = check_bound(s, &r.plan->certificate) && check_file(s, r.plan);
    } else {
        s->t->infeasible++;
    }
    dtp_plan_result_free(&r);
    return fine;
}

static void check_seed(uint64_t seed, bool shown, tally *t)
{
    subject s;
    dtp_plan_result r;
    dtp_err err = {0};
    open_subject(seed, t, &s);
    if (shown) {
        printf("%s\n%s\n%s\n", s.name, s.text != NULL ? s.text : "", s.machine);
    }
    const dtp_status status =
        (s.rules ? dtp_plan_rules : dtp_plan_tensor)(s.f.model, s.f.machine, &s.request, &r, &err);
    if (status == DTP_RANGE) { /* prices that add up to more than there is room for */
        t->refused++;
        close_subject(&s);
        return;
    }
    must(&s, status, &err);
    if (r.plan == NULL) {
        fail_msg("%s: no plan", s.name);
    }
    const dtp_certificate *c = &r.plan->certificate;
    t->planned++;
    t->optimal += c->status == DTP_CERT_OPTIMAL ? 1 : 0;
    if (check_bound(&s, c) && check_file(&s, r.plan) && (s.rules || check_problem(&s, c)) &&
        one_of(&s, 3)) {
        (void)check_limited(&s, r.plan->predicted.peak_bytes);
    }
    dtp_plan_result_free(&r);
    close_subject(&s);
}

static uint64_t first_seed = FIRST_SEED;
static int64_t n_cases; /* 0: those of the test */

static void test_certificates_random__hold(void **state)
{
    (void)state;
    const int64_t n = n_cases > 0 ? n_cases : N_CASES;
    tally t = {0};
    for (int64_t i = 0; i < n; i++) {
        if (n_cases > 0 || quarter_has(i, n)) {
            check_seed(first_seed + (uint64_t)i, n == 1, &t);
        }
    }
    print_message("%d plans, %d proven optimal, %d compared with elimination; %d selections; %d "
                  "limits without a plan, %d variants or prices refused; %d wrong\n",
                  t.planned, t.optimal, t.exact, t.selections, t.infeasible, t.refused, t.failed);
    assert_int_equal(t.failed, 0);
    assert_true(n_cases > 0 ||
                (t.planned >= quarter_of(N_CASES / 2) && t.exact >= quarter_of(N_CASES / 8)));
}

/* ZeRO beside tensor parallelism splits a dim over a later mesh dim first, which the problem does
 * not; where batches do not divide into all ranks and links are quick it costs less than all of the
 * problem. */
static void test_certificates_random__hold_of_baselines_beyond_the_problem(void **state)
{
    (void)state;
    enum { TRIES = 24 };
    static const char *const rates[] = {"1e8", "1e9", "1e10", "1e11"};
    tally t = {0};
    int32_t beyond = 0;
    for (uint64_t seed = 1; seed <= TRIES; seed++) {
        subject s = {.seed = seed, .draws = seed, .t = &t, .arena = dtp_arena_create()};
        dtp_plan_result r;
        dtp_err err = {0};
        (void)snprintf(s.name, sizeof s.name, "MLP %" PRIu64, seed);
        (void)snprintf(s.dims, sizeof s.dims, "batch=%d pixels=%d hidden=%d classes=%d",
                       4 * (1 + 2 * random_below(&s.draws, 13)), 2 + 4 * random_below(&s.draws, 4),
                       8 * (1 + random_below(&s.draws, 5)), 2 + 4 * random_below(&s.draws, 2));
        (void)snprintf(s.machine, sizeof s.machine,
                       "{\"format\": \"dtp.machine/1\", \"yes_units\": true, \"name\": \"m\", "
                       "\"device\": {\"kind\": \"cpu\", \"memory_bytes\": 1e9, \"mem_bw_Bps\": %s, "
                       "\"launch_s\": 0, \"flops\": {\"f32\": 1e13}, \"overlap\": false, "
                       "\"overlap_slowdown\": 1.0}, \"levels\": [{\"name\": \"a\", \"size\": 2, "
                       "\"latency_s\": 0, \"bw_Bps\": %s}, {\"name\": \"b\", \"size\": 4, "
                       "\"latency_s\": 0, \"bw_Bps\": %s}], \"provenance\": {\"how\": "
                       "\"datasheet\"}}",
                       rates[random_below(&s.draws, 2)], rates[random_below(&s.draws, 4)],
                       rates[random_below(&s.draws, 4)]);
        const tensor_case c = {
            .model = TENSOR_MLP, .mesh = "x:4;y:2", .machine = s.machine, .dims = s.dims};
        tensor_fixture_create(&c, &s.f);
        s.g = s.f.graph;
        s.request = tensor_fixture_request(&s.f);
        must(&s, dtp_plan_tensor(s.f.model, s.f.machine, &s.request, &r, &err), &err);
        assert_non_null(r.plan);
        if (check_bound(&s, &r.plan->certificate) && check_file(&s, r.plan)) {
            dtp_tensor_problem *p = tensor_fixture_problem(&s.f, NULL);
            beyond += r.plan->certificate.least_cost < tensor_optimum(p->select) ? 1 : 0;
            dtp_tensor_problem_destroy(p);
        }
        dtp_plan_result_free(&r);
        tensor_fixture_destroy(&s.f);
        dtp_arena_destroy(s.arena);
    }
    print_message("%d of %d plans cost less than all of their problem\n", beyond, TRIES);
    assert_int_equal(t.failed, 0);
    assert_true(beyond > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_certificates_random__hold),
        cmocka_unit_test(test_certificates_random__hold_of_baselines_beyond_the_problem),
    };
    if (argc == 3) {
        first_seed = strtoull(argv[1], NULL, 10);
        n_cases = strtoll(argv[2], NULL, 10);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
