/* Problems of tensor mode for tests: models with small dims on a machine on which splitting
 * pays, and selections drawn at random. */
#include "tests/support/tensor_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/tensors/plan_tensor.h"

/* Slow arithmetic, quick links. */
static const char MACHINE[] =
    "{\"format\": \"dtp.machine/1\", \"name\": \"test\","
    " \"device\": {\"kind\": \"cuda\", \"memory_bytes\": 1000000000, \"mem_bw_Bps\": 1e9,"
    " \"launch_s\": 1e-7, \"flops\": {\"f32\": 1e9}, \"overlap\": false, "
    "\"overlap_slowdown\": 1.0},"
    " \"levels\": [{\"name\": \"in\", \"size\": 2, \"latency_s\": 1e-7, \"bw_Bps\": 2e9},"
    " {\"name\": \"out\", \"size\": 8, \"latency_s\": 3e-7, \"bw_Bps\": 1e9}],"
    " \"provenance\": {\"how\": \"datasheet\", \"host\": \"none\"}}";

enum { MAX_DIMS = 12 };

static void read_graph(const tensor_case *c, dtp_graph **out)
{
    char text[256] = "", path[512];
    dtp_dim_override dims[MAX_DIMS];
    dtp_model_options options = {.size = sizeof options, .overrides = dims};
    dtp_err err = {0};
    (void)snprintf(text, sizeof text, "%s", c->dims != NULL ? c->dims : "");
    for (char *at = strtok(text, " "); at != NULL; at = strtok(NULL, " ")) {
        char *equals = strchr(at, '=');
        assert_non_null(equals);
        *equals = '\0';
        dims[options.n_overrides++] = (dtp_dim_override){at, strtoll(equals + 1, NULL, 10)};
    }
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/%s", c->model);
    const dtp_status s = c->model[0] == '{'
                             ? dtp_model_parse("m", c->model, strlen(c->model), &options, out, &err)
                             : dtp_model_read(path, &options, out, &err);
    if (s != DTP_OK) {
        fail_msg("%s", err.msg);
    }
}

static dtp_status change_graph(const tensor_case *c, tensor_fixture *f, dtp_err *err)
{
    dtp_graph_variant variables = {
        .microbatches = c->microbatches, .micro_dim = -1, .regather = c->regather};
    dtp_arena *arena = dtp_arena_create();
    dtp_status s =
        dtp_remat_parse(c->remat ? "all" : "none", f->model, arena, &variables.remat, err);
    s = s == DTP_OK && c->precision != NULL
            ? dtp_precision_parse(c->precision, &variables.precision, err)
            : s;
    s = s == DTP_OK && c->stages != NULL
            ? dtp_stages_parse(c->stages, c->slots, f->model, arena, &variables.stages, err)
            : s;
    s = s == DTP_OK ? dtp_graph_with_variant(f->model, &variables, 0, NULL, &f->graph, err) : s;
    dtp_arena_destroy(arena);
    return s;
}

static dtp_status read_machine(const tensor_case *c, tensor_fixture *f, dtp_err *err)
{
    char path[512];
    const char *text = c->machine != NULL ? c->machine : MACHINE;
    if (text[0] == '{') {
        return dtp_machine_parse("machine", text, strlen(text), &f->machine, err);
    }
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/machines/%s", c->machine);
    return dtp_machine_read(path, &f->machine, err);
}

void tensor_fixture_create(const tensor_case *c, tensor_fixture *f)
{
    *f = (tensor_fixture){0};
    dtp_mesh mesh;
    dtp_err err = {0};
    const dtp_target *target = c->target != NULL ? c->target : &dtp_target_cpu;
    read_graph(c, &f->model);
    dtp_status s = change_graph(c, f, &err);
    s = s == DTP_OK ? read_machine(c, f, &err) : s;
    s = s == DTP_OK ? dtp_mesh_parse(c->mesh, &mesh, &err) : s;
    s = s == DTP_OK ? dtp_pricer_init(f->machine, &mesh, target, &f->pricer, &err) : s;
    s = s == DTP_OK ? dtp_redistribution_pricer_create(&f->pricer, &f->moves, &err) : s;
    if (s != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    f->redistributor = dtp_redistribution_pricer_redistributor(f->moves);
}

void tensor_fixture_destroy(tensor_fixture *f)
{
    dtp_redistribution_pricer_destroy(f->moves);
    dtp_graph_destroy(f->graph);
    dtp_graph_destroy(f->model);
    dtp_machine_destroy(f->machine);
}

dtp_tensor_problem *tensor_fixture_problem(const tensor_fixture *f,
                                           const dtp_tensor_options *options)
{
    dtp_tensor_problem *p = NULL;
    dtp_err err = {0};
    if (dtp_tensor_problem_create(f->graph, &f->pricer, options, &p, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return p;
}

/* ---- solutions ---- */

dtp_plan_request tensor_fixture_request(const tensor_fixture *f)
{
    dtp_plan_request request = dtp_plan_request_init();
    request.options.mesh = &f->pricer.mesh;
    request.target = f->pricer.target;
    return request;
}

dtp_plan_result tensor_fixture_plan(const tensor_fixture *f, const dtp_plan_request *request)
{
    dtp_plan_result r;
    dtp_err err = {0};
    if (dtp_plan_tensor(f->graph, f->machine, request, &r, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return r;
}

int64_t tensor_optimum(const dtp_problem *p)
{
    const dtp_solve_options options = dtp_solve_options_init();
    dtp_solve_result r;
    assert_int_equal(dtp_solve(p, &options, &r, NULL), DTP_OK);
    assert_int_equal(r.status, DTP_CERT_OPTIMAL);
    const int64_t cost = r.value.cost;
    dtp_solve_result_free(&r);
    return cost;
}

void tensor_solve_limited(dtp_problem *p, dtp_solve_result *r)
{
    const dtp_solve_options options = dtp_solve_options_init();
    assert_int_equal(dtp_solve(p, &options, r, NULL), DTP_OK);
    const int64_t peak = r->value.peak;
    for (int d = 3; d < 16; d++) {
        dtp_solve_result_free(r);
        p->usage_limit = peak - (peak >> d) - 1;
        assert_int_equal(dtp_solve(p, &options, r, NULL), DTP_OK);
        if (r->assignment != NULL) {
            break;
        }
    }
    assert_non_null(r->assignment);
    assert_int_equal(r->status, DTP_CERT_OPTIMAL);
    assert_true(r->value.peak <= p->usage_limit);
}

/* ---- random selections ---- */

uint64_t tensor_draw(uint64_t *seed, uint64_t n)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*seed >> 33) % n;
}

static bool allowed(const dtp_problem *s, int32_t e, int32_t a, int32_t b)
{
    const int64_t cols = dtp_problem_n_strategies(s, s->edge_b[e]);
    return s->edge_cost[s->edge_first[e] + a * cols + b] < DTP_FORBIDDEN;
}

/* Changes one end of a forbidden pair, to any strategy that the other end allows. */
static void repair(const dtp_problem *s, int32_t e, bool change_a, int32_t *selection)
{
    const int32_t a = s->edge_a[e], b = s->edge_b[e];
    const int32_t node = change_a ? a : b, k = dtp_problem_n_strategies(s, node);
    const int32_t from = selection[node];
    for (int32_t i = 0; i < k && !allowed(s, e, selection[a], selection[b]); i++) {
        selection[node] = (from + i) % k;
    }
}

bool tensor_random_selection(const dtp_tensor_problem *p, uint64_t *seed, int32_t *selection)
{
    enum { ROUNDS = 12 };
    const dtp_problem *s = p->select;
    bool clean = false;
    for (int32_t i = 0; i < p->n_variables; i++) {
        selection[i] = (int32_t)tensor_draw(seed, (uint64_t)p->variables[i].n_strategies);
    }
    for (int round = 0; round < ROUNDS && !clean; round++) {
        clean = true;
        for (int32_t e = 0; e < s->n_edges; e++) {
            clean = clean && allowed(s, e, selection[s->edge_a[e]], selection[s->edge_b[e]]);
            repair(s, e, tensor_draw(seed, 2) == 0, selection);
            repair(s, e, tensor_draw(seed, 2) == 0, selection);
        }
    }
    return clean;
}
