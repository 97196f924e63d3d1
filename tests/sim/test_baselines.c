/* Every baseline of every small model on virtual ranks against one device, in f64: outputs,
 * gradients and parameters after a step, and the predicted peak. Which baselines apply is part
 * of the expectation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "executor/verify.h"
#include "planner/baselines/baselines.h"
#include "tests/sim/small_models.h"
#include "spmd/lower.h"

static const double TOLERANCE = 1e-9;
/* A bias of keys has no gradient but what rounding leaves. */
static const double NOTHING = 1e-13;

typedef struct job {
    const dtp_graph *graph;
    const dtp_program *program;
    dtp_verify_result result; /* of rank 0 */
} job;

static dtp_status verify_rank(dtp_comm *comm, void *user, dtp_err *err)
{
    job *j = user;
    dtp_backend *backend = NULL, *reference = NULL;
    dtp_verify_result result = {0};
    dtp_verify_options options = dtp_verify_options_init();
    DTP_TRY(dtp_backend_ref_create(&backend, err));
    dtp_status s = dtp_backend_ref_create(&reference, err);
    options.reference = reference;
    options.tolerance = TOLERANCE;
    options.steps = 1;
    if (s == DTP_OK) {
        s = dtp_verify(j->graph, j->program, backend, comm, &options, &result, err);
    }
    if (comm->rank == 0) {
        j->result = result;
    } else {
        dtp_verify_result_free(&result);
    }
    dtp_backend_destroy(reference);
    dtp_backend_destroy(backend);
    return s;
}

static void check_result(const job *j, const char *what)
{
    const dtp_verify_result *r = &j->result;
    for (int32_t i = 0; i < r->n; i++) {
        const dtp_verify_item *item = &r->items[i];
        if (item->rel_err > TOLERANCE && !(item->abs_err < NOTHING && item->ref_max < NOTHING)) {
            fail_msg("%s: %s of '%s': relative error %g, largest value %g", what,
                     dtp_verify_kind_name(item->kind), item->name, item->rel_err, item->ref_max);
        }
    }
    for (int32_t k = 0; k < r->ranks; k++) {
        assert_int_equal(r->peak_bytes[k], j->program->peak_bytes);
    }
}

static void verify_baseline(const dtp_graph *g, const dtp_sharding *s, const char *what)
{
    dtp_err err = {0};
    dtp_arena *arena = dtp_arena_create();
    dtp_lower_options options = dtp_lower_options_init();
    job j = {.graph = g};
    dtp_program *program = NULL;
    dtp_status st = dtp_sharding_check(g, s, &err);
    st = st == DTP_OK ? dtp_verify_fetches(g, arena, &options.n_fetch, &options.fetch, &err) : st;
    st = st == DTP_OK ? dtp_lower(g, s, &options, &program, &err) : st;
    st = st == DTP_OK ? dtp_program_check(program, &err) : st;
    j.program = program;
    st = st == DTP_OK ? dtp_comm_sim_run(&s->mesh, verify_rank, &j, &err) : st;
    if (st != DTP_OK) {
        fail_msg("%s: %s", what, err.msg);
    }
    check_result(&j, what);
    dtp_verify_result_free(&j.result);
    dtp_program_destroy(program);
    dtp_arena_destroy(arena);
}

/* Whether a baseline must apply to a small model. */
static bool must_apply(const small_model *m, const char *baseline)
{
    return m->dense_sequence || strstr(baseline, "_sp") == NULL;
}

static int verify_model(const small_model *m, const char *mesh)
{
    const dtp_baseline_options options = {0};
    dtp_arena *arena = dtp_arena_create();
    dtp_graph *g = small_model_read(m, true);
    small_pricer p = small_pricer_read("a100_8", mesh);
    dtp_candidate *list = NULL;
    dtp_err err = {0};
    int32_t n = 0;
    int legal = 0;
    if (dtp_baselines_create(g, &p.pricer, &options, arena, &n, &list, &err) != DTP_OK) {
        fail_msg("%s on '%s': %s", m->name, mesh, err.msg);
    }
    for (int32_t i = 0; i < n; i++) {
        char what[256];
        (void)snprintf(what, sizeof what, "%s of %s on '%s'", list[i].name, m->name, mesh);
        if (list[i].legal != must_apply(m, list[i].name)) {
            fail_msg("%s: legal %d: %s", what, list[i].legal, list[i].legal ? "" : list[i].why);
        }
        if (list[i].legal) {
            verify_baseline(g, &list[i].sharding, what);
            legal++;
        } else {
            assert_int_equal(list[i].sharding.n_nodes, 0);
            assert_true(strlen(list[i].why) > 0);
        }
    }
    (void)printf("%s on '%s': %d of %d baselines apply and agree with one device\n", m->name, mesh,
                 legal, n);
    small_pricer_free(&p);
    dtp_graph_destroy(g);
    dtp_arena_destroy(arena);
    return legal;
}

static void verify_models(const char *mesh, int least)
{
    int legal = 0;
    for (const small_model *m = small_models(); m->name != NULL; m++) {
        legal += verify_model(m, mesh);
    }
    assert_true(legal >= least);
}

static void test_baselines__agree_with_one_device_on_2(void **state)
{
    (void)state;
    verify_models("x:2", 42);
}

static void test_baselines__agree_with_one_device_on_4(void **state)
{
    (void)state;
    verify_models("x:4", 42);
}

static void test_baselines__agree_with_one_device_on_2_by_2(void **state)
{
    (void)state;
    verify_models("x:2;y:2", 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_baselines__agree_with_one_device_on_2),
        cmocka_unit_test(test_baselines__agree_with_one_device_on_4),
        cmocka_unit_test(test_baselines__agree_with_one_device_on_2_by_2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
