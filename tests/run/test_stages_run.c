/* A plan with stages on virtual ranks that pause at random before instructions: the same losses in
 * every bit, whoever is late; and a rank that fails ends the step of all with its failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "cost_models/job.h"
#include "executor/run/ranks.h"
#include "executor/run/runner.h"
#include "executor/session/session_internal.h"
#include "tests/support/quarter.h"

enum { STEPS = 2, SEEDS = 200, RANKS = 6 };

typedef struct stage_case {
    dtp_job *job;
    uint64_t seed; /* of the pauses; 0: none */
    int32_t fails; /* the rank that fails in its second step; -1: none does */
    double losses[RANKS][STEPS];
} stage_case;

typedef struct pauses {
    uint64_t state;
    int64_t seen;
} pauses;

static void pause_at_times(void *user, dtp_runner *r, int32_t instr, bool after)
{
    (void)r, (void)instr;
    pauses *p = user;
    p->state = p->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    if (!after && (p->state >> 33) % 32 == 0) {
        const struct timespec t = {.tv_nsec = (long)((p->state >> 40) % 200000)};
        (void)nanosleep(&t, NULL);
    }
}

static dtp_status body(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    stage_case *c = user;
    dtp_session *s = NULL;
    dtp_session_options options = dtp_session_options_init();
    pauses p = {.state = c->seed * 1000 + (uint64_t)comm->rank};
    dtp_status status =
        dtp_session_create(dtp_job_program(c->job), backend, comm, &options, &s, err);
    if (status == DTP_OK && c->seed > 0) {
        for (int32_t k = 0; k < s->n_chunks; k++) {
            dtp_runner_set_watch(s->runners[k], (dtp_runner_watch){pause_at_times, &p});
        }
    }
    for (int32_t k = 0; k < STEPS && status == DTP_OK; k++) {
        dtp_step_result step = {0};
        if (k == 1 && comm->rank == c->fails) {
            status = DTP_FAIL(err, DTP_IO, "the disk of rank %d", comm->rank);
            dtp_comm_abort(comm, err->msg);
            break;
        }
        status = dtp_session_step(s, &step, err);
        c->losses[comm->rank][k] = step.loss;
    }
    dtp_session_destroy(s);
    return status;
}

static dtp_graph *read_model(void)
{
    static const dtp_dim_override dims[] = {{"batch", 8},  {"length", 4}, {"layers", 4},
                                            {"vocab", 16}, {"d_head", 2}, {"heads", 2}};
    dtp_model_options options = dtp_model_options_init();
    dtp_graph *g = NULL;
    options.n_overrides = sizeof dims / sizeof dims[0];
    options.overrides = dims;
    assert_int_equal(dtp_model_read(DTP_SOURCE_DIR "/models/gpt2_small.json", &options, &g, NULL),
                     DTP_OK);
    return g;
}

static dtp_status run(stage_case *c, const char *stages, const char *slots, dtp_err *err)
{
    dtp_graph *g = read_model();
    dtp_mesh mesh;
    dtp_job_options options = dtp_job_options_init();
    assert_int_equal(dtp_mesh_parse("x:2", &mesh, NULL), DTP_OK);
    options.mesh = &mesh;
    options.rules = "batch:x";
    options.microbatches = "4";
    options.stages = stages;
    options.slots = slots;
    options.target = "cpu";
    assert_int_equal(dtp_job_create(g, &options, &c->job, err), DTP_OK);
    const dtp_ranks_options ranks = {.comm = "sim", .backend = "cpu", .threads = 1};
    const dtp_status status = dtp_ranks_run(&ranks, dtp_job_mesh(c->job), body, c, err);
    dtp_job_destroy(c->job);
    dtp_graph_destroy(g);
    return status;
}

static void test_stages__same_bits_whoever_is_late(void **state)
{
    (void)state;
    static const char *const SLOTS[] = {"1f1b", "gpipe", "2"};
    static const char *const STAGES[] = {"layer:0,1,3", "2x2"};
    stage_case first = {.fails = -1};
    dtp_err err = {0};
    assert_int_equal(run(&first, STAGES[0], "1f1b", &err), DTP_OK);
    assert_true(first.losses[0][0] > 0.0 && first.losses[0][0] != first.losses[0][1]);
    for (int32_t k = 0; k < SEEDS; k++) {
        stage_case c = {.seed = (uint64_t)k + 1, .fails = -1};
        if (quarter_has(k, SEEDS)) {
            if (run(&c, STAGES[k / 3 % 2], SLOTS[k % 3], &err) != DTP_OK) {
                fail_msg("seed %d: %s", k, err.msg);
            }
            for (int32_t r = 0; r < (k / 3 % 2 == 0 ? RANKS : 4); r++) {
                assert_memory_equal(c.losses[r], first.losses[0], sizeof c.losses[r]);
            }
        }
    }
}

static void test_stages__a_rank_that_fails_ends_the_step(void **state)
{
    (void)state;
    for (int32_t r = 0; r < RANKS + 4; r++) {
        const bool chunks = r >= RANKS;
        stage_case c = {.fails = chunks ? r - RANKS : r};
        dtp_err err = {0};
        assert_int_equal(run(&c, chunks ? "2x2" : "layer:0,1,3", "1f1b", &err), DTP_IO);
        assert_non_null(strstr(err.msg, "the disk of rank"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages__same_bits_whoever_is_late),
        cmocka_unit_test(test_stages__a_rank_that_fails_ends_the_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
