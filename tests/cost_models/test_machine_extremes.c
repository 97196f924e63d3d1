/* Every number of a machine at extreme values, planned by rules and per tensor: either an error
 * that names the file and the key, or a plan whose times are finite, whose cost is what its
 * program costs, added up here in 64 bits of a long double, and whose bound is below that and below
 * the cost of replication. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "cost_models/machine/machine_scale.h"
#include "cost_models/plan_lowering.h"
#include "cost_models/price.h"
#include "planner/plan_rules.h"
#include "planner/tensors/plan_tensor.h"
#include "tests/support/quarter.h"

static const char MODEL[] =
    "{\"format\": \"dtp.model/1\", \"name\": \"tiny\", \"dims\": {\"b\": 8, \"p\": 4, \"h\": 8, "
    "\"c\": 4}, \"inputs\": {\"x\": {\"dims\": [\"b\", \"p\"], \"dtype\": \"f32\"}, \"y\": "
    "{\"dims\": [\"b\"], \"dtype\": \"i32\", \"below\": \"c\"}}, \"params\": {\"w1\": {\"dims\": "
    "[\"p\", \"h\"], \"init\": {\"normal\": 0.1}}, \"w2\": {\"dims\": [\"h\", \"c\"], \"init\": "
    "{\"normal\": 0.1}}}, \"nodes\": [{\"id\": \"h1\", \"op\": \"einsum\", \"in\": [\"x\", "
    "\"w1\"], \"out\": [\"b\", \"h\"]}, {\"id\": \"r\", \"op\": \"relu\", \"in\": [\"h1\"]}, "
    "{\"id\": \"z\", \"op\": \"einsum\", \"in\": [\"r\", \"w2\"], \"out\": [\"b\", \"c\"]}, "
    "{\"id\": \"loss\", \"op\": \"cross_entropy\", \"in\": [\"z\", \"y\"], \"over\": \"c\", "
    "\"reduce\": \"mean\"}], \"train\": {\"loss\": \"loss\", \"optimizer\": {\"sgd\": {\"lr\": "
    "0.1}}}}";

/* "<KEY:VALUE>" is a number that is varied; errors name the key, or the list that it is in. */
#define DEVICE                                                                                     \
    "{\"format\": \"dtp.machine/1\", \"name\": \"m\", \"device\": {\"kind\": \"cpu\", "            \
    "\"memory_bytes\": <memory_bytes:1000000>, \"mem_bw_Bps\": <mem_bw_Bps:1e10>, \"launch_s\": "  \
    "<launch_s:1e-6>, \"flops\": {\"f32\": <flops.f32:5e10>, \"i32\": <flops.i32:1e10>}, "         \
    "\"overlap\": true, \"overlap_slowdown\": <overlap_slowdown:1.5>"
#define LEVELS                                                                                     \
    "}, \"levels\": [{\"name\": \"a\", \"size\": <levels[0].size:2>, \"latency_s\": "              \
    "<levels[0].latency_s:1e-6>, \"bw_Bps\": <levels[0].bw_Bps:5e9>}, {\"name\": \"b\", "          \
    "\"size\": <levels[1].size:2>, \"latency_s\": <levels[1].latency_s:1e-5>, \"bw_Bps\": "        \
    "<levels[1].bw_Bps:1e9>}], \"provenance\": {\"how\": \"datasheet\", \"threads\": "             \
    "<threads:2>, \"ranks\": <provenance.ranks:2>}}"

static const char PLAIN[] = DEVICE LEVELS;
static const char MEASURED[] = DEVICE
    ", \"curves\": {\"ops\": [{\"op\": \"*\", \"flops\": <curves.ops:1e9>, \"fit_error\": "
    "<curves.ops:0.1>, \"points\": [[<curves.ops:64>, <curves.ops:1e-6>, <curves.ops:1e-6>], "
    "[<curves.ops:65536>, <curves.ops:2e-5>, <curves.ops:2e-5>]]}], \"gemm\": {\"fit_error\": "
    "<curves.gemm:0.1>, \"points\": [[<curves.gemm:4>, <curves.gemm:4>, <curves.gemm:4>, 0, 0, "
    "<curves.gemm:1e9>], [64, 64, 64, 0, 0, <curves.gemm:1e10>]]}, \"collectives\": [{\"kind\": "
    "\"all_reduce\", \"level\": \"a\", \"ranks\": <curves.collectives:2>, \"fit_error\": "
    "<curves.collectives:0.1>, \"points\": [[<curves.collectives:64>, <curves.collectives:1e-5>, "
    "<curves.collectives:1e-5>], [<curves.collectives:65536>, <curves.collectives:1e-3>, "
    "<curves.collectives:1e-3>]]}]}" LEVELS;
static const char STATED[] = DEVICE
    "}, \"levels\": [{\"name\": \"a\", \"size\": 2, \"latency_s\": 1e-6, \"bw_Bps\": 5e9, "
    "\"collectives\": {\"all_reduce\": {\"start_s\": <levels[0].collectives:1e-6>, \"rank_s\": "
    "<levels[0].collectives:1e-6>, \"ramp_bytes\": <levels[0].collectives:1e6>, \"share\": "
    "<levels[0].collectives:0.5>, \"in_switch\": <levels[0].collectives:1.25>}, \"all_gather\": "
    "{\"start_s\": <levels[0].collectives:1e-6>, \"rank_s\": <levels[0].collectives:1e-6>, "
    "\"ramp_bytes\": <levels[0].collectives:1e6>, \"share\": <levels[0].collectives:0.5>}}}, "
    "{\"name\": \"b\", \"size\": 2, \"latency_s\": 1e-5, \"bw_Bps\": 1e9}], \"provenance\": "
    "{\"how\": \"datasheet\"}}";

static const char MODELLED[] = DEVICE
    ", \"multiprocessors\": <multiprocessors:16>, \"products\": {\"f32\": {\"rate\": "
    "<products.f32.rate:0.5>, \"burst\": <products.f32.burst:1>, \"ramp\": <products.f32.ramp:50>, "
    "\"start_s\": <products.f32.start_s:1e-6>, \"memory\": <products.f32.memory:0.5>, "
    "\"quantize\": <products.f32.quantize:0>}}" LEVELS;

static const char *const VALUES[] = {"0",
                                     "-1",
                                     "4.9e-324",
                                     "1e-300",
                                     "1e-15",
                                     "1e-9",
                                     "1",
                                     "1000",
                                     "1e6",
                                     "1e7",
                                     "9007199254740992",
                                     "1e15",
                                     "1e18",
                                     "1e21",
                                     "1e24",
                                     "1e300",
                                     "9007199254740993",
                                     "2147483647",
                                     "100",
                                     "10000",
                                     "2"};
enum { N_VALUES = sizeof VALUES / sizeof VALUES[0], TEXT_BYTES = 8192, KEY_BYTES = 64 };

static int planned, refused;

/* Number `which` gets the value, the others their own; its key, false when there is none. */
static bool fill(const char *from, int which, const char *value, char *text, char *key)
{
    bool found = false;
    for (int n = 0; *from != '\0';) {
        if (*from != '<') {
            *text++ = *from++;
            continue;
        }
        const char *colon = strchr(from, ':'), *end = strchr(from, '>');
        if (n++ == which) {
            found = true;
            text += sprintf(text, "%s", value);
            (void)snprintf(key, KEY_BYTES, "%.*s", (int)(colon - from - 1), from + 1);
        } else {
            text += sprintf(text, "%.*s", (int)(end - colon - 1), colon + 1);
        }
        from = end + 1;
    }
    *text = '\0';
    return found;
}

/* Sizes of its dims: small prices, prices whose sum reaches the limit, prices that reach it alone.
 */
static const int64_t SIZES[] = {8, 64, 4096};

static dtp_graph *read_model(int64_t size)
{
    const dtp_dim_override dims[] = {{"b", size}, {"p", size}, {"h", size}};
    const dtp_model_options options = {.size = sizeof options, .n_overrides = 3, .overrides = dims};
    dtp_graph *g = NULL;
    dtp_err err = {0};
    if (dtp_model_parse("tiny.json", MODEL, sizeof MODEL - 1, &options, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

/* ---- a plan ---- */

static long double cost_of(const dtp_graph *g, const dtp_pricer *pricer, const dtp_sharding *s,
                           const dtp_redistributor *redistributor)
{
    const dtp_lower_options plain = {
        .redistributor = redistributor, .unplaced = true, .target = &dtp_target_cpu};
    dtp_program *p = NULL;
    long double sum = 0;
    assert_int_equal(dtp_lower(g, s, &plain, &p, NULL), DTP_OK);
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const double time_s = dtp_price_instr(pricer, p, &p->instrs[i]);
        assert_true(isfinite(time_s) && time_s >= 0.0 && time_s < 1e6);
        sum += (long double)dtp_instr_runs(p, &p->instrs[i]) * roundl((long double)(time_s * 1e12));
    }
    dtp_program_destroy(p);
    return sum;
}

static long double cost_of_replication(const dtp_graph *g, const dtp_pricer *pricer)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_layout_rules rules;
    dtp_sharding s;
    assert_int_equal(dtp_layout_rules_create(arena, g->dims.n, &rules, NULL), DTP_OK);
    assert_int_equal(dtp_sharding_from_rules(g, &pricer->mesh, &rules, false, arena, &s, NULL),
                     DTP_OK);
    const long double cost = cost_of(g, pricer, &s, dtp_redistributor_generic());
    dtp_arena_destroy(arena);
    return cost;
}

static void check_plan(const dtp_graph *g, const dtp_machine *m, const dtp_plan *plan)
{
    const dtp_certificate *c = &plan->certificate;
    const dtp_prediction *p = &plan->predicted;
    dtp_plan_lowering lowering;
    dtp_pricer pricer;
    assert_int_equal(dtp_plan_lowering_init(&lowering, plan, NULL), DTP_OK);
    assert_int_equal(dtp_pricer_init(m, &plan->mesh, &dtp_target_cpu, &pricer, NULL), DTP_OK);
    assert_true(c->status == DTP_CERT_OPTIMAL || c->status == DTP_CERT_FEASIBLE);
    assert_true(c->bound >= 0 && c->bound <= c->cost);
    assert_true(c->status != DTP_CERT_OPTIMAL || c->bound == c->cost);
    assert_true(isfinite(c->gap) && c->gap >= 0.0 && c->gap <= 1.0);
    assert_true(cost_of(g, &pricer, &plan->sharding, lowering.redistributor) ==
                (long double)c->cost);
    assert_true(plan->memory_limit_bytes > 0 ||
                cost_of_replication(g, &pricer) >= (long double)c->bound);
    const double times[] = {p->step_time_s, p->comm_s, p->compute_s, p->exposed_comm_s};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        assert_true(isfinite(times[i]) && times[i] >= 0.0 && times[i] < 1e8);
    }
}

/* `memory`: with the memory of the device as limit. */
static void plan_on(const dtp_graph *g, const dtp_machine *m, bool tensor, bool memory,
                    const char *what, const char *key)
{
    dtp_mesh mesh;
    dtp_plan_request request = dtp_plan_request_init();
    dtp_plan_result r;
    dtp_err err = {0};
    assert_int_equal(dtp_mesh_parse(dtp_machine_devices(m) >= 4 ? "x:2;y:2" : "x:2", &mesh, NULL),
                     DTP_OK);
    request.options.mesh = &mesh;
    request.options.memory_limit_bytes = memory ? m->memory_bytes : 0;
    const dtp_status s = tensor ? dtp_plan_tensor(g, m, &request, &r, &err)
                                : dtp_plan_rules(g, m, &request, &r, &err);
    if (s != DTP_OK) {
        if (!dtp_status_is_input(s) || strstr(err.msg, "m.json") == NULL ||
            strstr(err.msg, key) == NULL || strchr(err.msg, '\n') != NULL) {
            fail_msg("%s: '%s' lacks file or key", what, err.msg);
        }
        refused++;
        return;
    }
    if (r.plan != NULL) {
        check_plan(g, m, r.plan);
        planned++;
    } else {
        assert_true(memory && r.infeasible);
    }
    dtp_plan_result_free(&r);
}

/* ---- the keys ---- */

static void try_value(const dtp_graph *g, const char *text, const char *value, const char *key)
{
    char what[128];
    dtp_machine *m = NULL;
    dtp_err err = {0};
    (void)snprintf(what, sizeof what, "%s = %s", key, value);
    if (dtp_machine_parse("m.json", text, strlen(text), &m, &err) != DTP_OK) {
        if (strncmp(err.msg, "m.json", 6) != 0 || strstr(err.msg, key) == NULL ||
            strchr(err.msg, '\n') != NULL) {
            fail_msg("%s: '%s' lacks file or key", what, err.msg);
        }
        refused++;
        return;
    }
    if (dtp_machine_devices(m) >= 2) {
        const bool memory = strcmp(key, "memory_bytes") == 0;
        plan_on(g, m, false, memory, what, key);
        plan_on(g, m, true, memory, what, key);
    }
    dtp_machine_destroy(m);
}

static void vary(const char *from, const char *only, int64_t size)
{
    dtp_graph *g = read_model(size);
    char *text = malloc(TEXT_BYTES), key[KEY_BYTES] = "";
    planned = refused = 0;
    for (int which = 0; fill(from, which, "0", text, key); which++) {
        for (int v = 0; v < N_VALUES && strstr(key, only) != NULL; v++) {
            if (quarter_has(which * N_VALUES + v, INT32_MAX)) {
                (void)fill(from, which, VALUES[v], text, key);
                try_value(g, text, VALUES[v], key);
            }
        }
    }
    print_message("dims of %" PRId64 ": %d plans, %d refused\n", size, planned, refused);
    assert_true(planned > quarter_of(50) && refused > quarter_of(50));
    free(text);
    dtp_graph_destroy(g);
}

static void test_extremes__every_key_of_a_datasheet(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
        vary(PLAIN, "", SIZES[i]);
    }
}

static void test_extremes__every_key_of_measurements(void **state)
{
    (void)state;
    vary(MEASURED, "curves", SIZES[0]);
    vary(MEASURED, "curves", SIZES[2]);
    vary(STATED, "levels", SIZES[0]);
}

static void test_extremes__every_key_of_a_model(void **state)
{
    (void)state;
    vary(MODELLED, "pro", SIZES[0]);
    vary(MODELLED, "products", SIZES[2]);
}

/* ---- machines that are no files ---- */

static dtp_machine *read_machine(const char *from)
{
    char *text = malloc(TEXT_BYTES), key[KEY_BYTES];
    dtp_machine *m = NULL;
    (void)fill(from, -1, "", text, key);
    assert_int_equal(dtp_machine_parse("m.json", text, strlen(text), &m, NULL), DTP_OK);
    free(text);
    return m;
}

/* What the reader refuses is refused of a machine that a program fills. */
static void test_extremes__machines_made_by_hand_obey_the_same_ranges(void **state)
{
    (void)state;
    dtp_machine *m = read_machine(MEASURED);
    double *const fields[] = {&m->mem_bw_Bps,
                              &m->launch_s,
                              &m->flops[DTP_F32],
                              &m->slowdown.compute,
                              &m->levels[1].latency_s,
                              &m->levels[1].bw_Bps,
                              &m->gemm[0].flops,
                              &m->op_curves[0].flops,
                              (double *)(uintptr_t)&m->op_curves[0].time_s.y[1],
                              &m->levels[0].rates[DTP_ALL_REDUCE].ramp_bytes};
    const char *const keys[] = {"mem_bw_Bps",
                                "launch_s",
                                "flops.f32",
                                "overlap_slowdown",
                                "levels[1].lat",
                                "levels[1].bw_Bps",
                                "gemm",
                                "ops[0].flops",
                                "ops[0].points[1]",
                                "levels[0].collectives.all_reduce.ramp_bytes"};
    const double bad[] = {-1.0, 1e-300, 1e25, 1e300, (double)INFINITY, (double)NAN};
    for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++) {
        const double good = *fields[f];
        for (size_t v = 0; v < sizeof bad / sizeof bad[0]; v++) {
            const bool least_is_0 = f == 1 || f == 4 || f == 9;
            dtp_err err = {0};
            *fields[f] = bad[v];
            const dtp_status s = dtp_machine_index(m, &err);
            if (s == DTP_OK ? !(least_is_0 && v == 1) : strstr(err.msg, keys[f]) == NULL) {
                fail_msg("%s = %g: '%s'", keys[f], bad[v], err.msg);
            }
        }
        *fields[f] = good;
        assert_int_equal(dtp_machine_index(m, NULL), DTP_OK);
    }
    dtp_machine_destroy(m);
}

/* A rate at the end of its range cannot be scaled beyond it. */
static void test_extremes__scaled_machines_obey_the_same_ranges(void **state)
{
    (void)state;
    dtp_machine *m = read_machine(PLAIN), *scaled = NULL;
    dtp_arena *arena = dtp_arena_create();
    dtp_machine_param *params = NULL;
    int32_t n = 0;
    dtp_err err = {0};
    m->mem_bw_Bps = 2.0;
    assert_int_equal(dtp_machine_params(m, arena, &n, &params, NULL), DTP_OK);
    assert_int_equal(params[1].quantity, DTP_MACHINE_MEM_BW);
    assert_int_equal(dtp_machine_scaled(m, &params[1], 0.5, &scaled, NULL), DTP_OK);
    dtp_machine_destroy(scaled);
    assert_int_equal(dtp_machine_scaled(m, &params[1], 0.25, &scaled, &err), DTP_INVALID);
    assert_non_null(
        strstr(err.msg, "device.mem_bw_Bps: expected a number in [1, 1e+18] B/s, found 0.5"));
    dtp_arena_destroy(arena);
    dtp_machine_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_extremes__every_key_of_a_datasheet),
        cmocka_unit_test(test_extremes__every_key_of_measurements),
        cmocka_unit_test(test_extremes__every_key_of_a_model),
        cmocka_unit_test(test_extremes__machines_made_by_hand_obey_the_same_ranges),
        cmocka_unit_test(test_extremes__scaled_machines_obey_the_same_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
