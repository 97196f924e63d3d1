/* Selections of tensor mode as programs on virtual ranks: they compute what one device computes.
 * The best selection without and with a tight memory limit, and random ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "executor/verify.h"
#include "planner/candidate.h"
#include "planner/select/solve.h"
#include "spmd/program_check.h"
#include "tests/oracle/tensor_cases.h"

static const double TOLERANCE = 5e-5;

typedef struct job {
    const dtp_graph *graph, *model;
    const dtp_program *program;
    bool pass, exact; /* exact: the measured peak is the predicted one */
    double error;
} job;

static dtp_status verify_rank(dtp_comm *comm, void *user, dtp_err *err)
{
    job *j = user;
    dtp_backend *backend = NULL, *reference = NULL;
    dtp_verify_result result = {0};
    dtp_verify_options options = dtp_verify_options_init();
    DTP_TRY(dtp_backend_cpu_create(1, &backend, err));
    dtp_status s = dtp_backend_cpu_create(1, &reference, err);
    options.reference = reference;
    options.reference_graph = j->model;
    options.tolerance = TOLERANCE;
    options.steps = 2;
    if (s == DTP_OK) {
        s = dtp_verify(j->graph, j->program, backend, comm, &options, &result, err);
    }
    if (comm->rank == 0) {
        j->pass = result.pass;
        j->error = result.max_rel_err;
        j->exact = result.peak_bytes[0] == result.predicted_peak_bytes;
    }
    dtp_verify_result_free(&result);
    dtp_backend_destroy(reference);
    dtp_backend_destroy(backend);
    return s;
}

static void verify(const tensor_fixture *f, const dtp_tensor_problem *p, const int32_t *selection,
                   const char *what)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_lower_options options = dtp_lower_options_init();
    dtp_program *program = NULL;
    dtp_sharding s;
    dtp_err err = {0};
    options.redistributor = dtp_tensor_redistributor(p);
    dtp_status st = dtp_tensor_sharding(p, selection, arena, &s, &err);
    st = st == DTP_OK ? dtp_verify_fetches(f->graph, arena, &options.n_fetch, &options.fetch, &err)
                      : st;
    st = st == DTP_OK ? dtp_lower(f->graph, &s, &options, &program, &err) : st;
    st = st == DTP_OK ? dtp_program_check(program, &err) : st;
    job j = {.graph = f->graph, .model = f->model, .program = program};
    st = st == DTP_OK ? dtp_comm_sim_run(&s.mesh, verify_rank, &j, &err) : st;
    if (st != DTP_OK) {
        fail_msg("%s: %s", what, err.msg);
    }
    if (!j.pass) {
        fail_msg("%s: largest relative error %g", what, j.error);
    }
    assert_true(j.exact);
    dtp_program_destroy(program);
    dtp_arena_destroy(arena);
}

/* Solves within a limit (0: none) and runs the answer; returns its peak. */
static int64_t check_best(const tensor_fixture *f, dtp_tensor_problem *p, int64_t limit,
                          const char *what)
{
    const dtp_select_options options = dtp_select_options_init();
    dtp_select_result r;
    const int64_t none = p->select->usage_limit;
    p->select->usage_limit = limit > 0 ? limit : none;
    assert_int_equal(dtp_select_solve(p->select, &options, &r, NULL), DTP_OK);
    p->select->usage_limit = none;
    assert_true(r.choice != NULL || limit > 0);
    const int64_t peak = r.choice != NULL ? r.value.peak : 0;
    if (r.choice != NULL) {
        verify(f, p, r.choice, what);
    }
    dtp_select_result_free(&r);
    return peak;
}

static void check_case(const tensor_case *c, int32_t n_random)
{
    tensor_fixture f;
    uint64_t seed = 17;
    tensor_fixture_create(c, &f);
    dtp_tensor_problem *p = tensor_fixture_problem(&f, NULL);
    int32_t *selection = calloc((size_t)p->n_choices, sizeof *selection);
    assert_non_null(selection);
    const int64_t peak = check_best(&f, p, 0, c->mesh);
    (void)check_best(&f, p, peak * 9 / 10, c->mesh);
    for (int32_t k = 0; k < n_random; k++) {
        if (tensor_random_selection(p, &seed, selection)) {
            verify(&f, p, selection, c->mesh);
        }
    }
    free(selection);
    dtp_tensor_problem_destroy(p);
    tensor_fixture_destroy(&f);
}

static void test_tensor_plans__mlp(void **state)
{
    (void)state;
    check_case(&(tensor_case){.model = TENSOR_MLP, .mesh = "x:2", .dims = TENSOR_MLP_DIMS}, 20);
    check_case(&(tensor_case){.model = TENSOR_MLP, .mesh = "x:4", .dims = TENSOR_MLP_DIMS}, 20);
    check_case(&(tensor_case){.model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = TENSOR_MLP_DIMS}, 20);
}

static void test_tensor_plans__gpt(void **state)
{
    (void)state;
    check_case(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS}, 8);
    check_case(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:4", .dims = TENSOR_GPT_DIMS}, 8);
    check_case(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:2;y:2", .dims = TENSOR_GPT_DIMS}, 8);
}

static void test_tensor_plans__microbatches_and_recomputation(void **state)
{
    (void)state;
    check_case(
        &(tensor_case){
            .model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = TENSOR_MLP_DIMS, .microbatches = 2},
        20);
    check_case(
        &(tensor_case){.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS, .remat = true},
        6);
    check_case(
        &(tensor_case){
            .model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS, .microbatches = 4},
        6);
    check_case(&(tensor_case){.model = TENSOR_GPT,
                              .mesh = "x:2;y:2",
                              .dims = TENSOR_GPT_DIMS,
                              .remat = true,
                              .microbatches = 2},
               6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_plans__mlp),
        cmocka_unit_test(test_tensor_plans__gpt),
        cmocka_unit_test(test_tensor_plans__microbatches_and_recomputation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
