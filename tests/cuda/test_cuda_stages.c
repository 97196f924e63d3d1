/* Plans with pipeline stages on emulated devices: over every transport, with recorded sections and
 * without, in any order of queues, with one chunk a stage and two, the losses are the same in every
 * bit, and those of virtual ranks on the CPU nearly; every rank allocates what is predicted. A rank
 * that fails or is late ends the others. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "cost_models/job.h"
#include "cuda_emu.h"
#include "executor/run/ranks.h"
#include "executor/run/runner.h"
#include "executor/session/session.h"
#include "tests/support/quarter.h"

enum { STEPS = 3, RANKS = 6, FAILS_AT = 2 };
#if defined(__SANITIZE_THREAD__)
enum { LIMIT_S = 8 };
#else
enum { LIMIT_S = 1 };
#endif

static const char OWN_WORDS[] = "the feed has come to its end";

typedef enum ending { NONE, FAILS, IS_LATE } ending;

typedef struct stage_case {
    dtp_job *job;
    bool no_graph;
    ending ending; /* of the last rank, before step FAILS_AT */
    int32_t ranks;
    double losses[RANKS][STEPS];
    int64_t allocated[RANKS], predicted[RANKS];
    dtp_status said[RANKS];
    char words[RANKS][DTP_ERR_MSG_BYTES];
} stage_case;

static void must(dtp_status status, const dtp_err *err)
{
    if (status != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

/* Two steps are on the way where the backend has a queue. */
static dtp_status train(stage_case *c, const dtp_comm *comm, dtp_session *s, dtp_err *err)
{
    const int32_t ahead = dtp_session_ahead(s);
    for (int32_t k = 0; k < STEPS + ahead - 1; k++) {
        dtp_step_result step = {0};
        if (k == FAILS_AT && c->ending == FAILS && comm->rank == c->ranks - 1) {
            return DTP_FAIL(err, DTP_IO, "%s", OWN_WORDS);
        }
        if (k == FAILS_AT && c->ending == IS_LATE && comm->rank == c->ranks - 1) {
            (void)nanosleep(&(struct timespec){.tv_sec = 3 * LIMIT_S}, NULL);
        }
        DTP_TRY(k < STEPS ? dtp_session_start_step(s, err) : DTP_OK);
        if (k >= ahead - 1) {
            DTP_TRY(dtp_session_finish_step(s, &step, err));
            c->losses[comm->rank][k - ahead + 1] = step.loss;
        }
    }
    return DTP_OK;
}

static dtp_status body(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    stage_case *c = user;
    dtp_session *s = NULL;
    dtp_session_options options = dtp_session_options_init();
    int64_t touched = 0;
    options.no_graph = c->no_graph;
    dtp_status status =
        dtp_session_create(dtp_job_program(c->job), backend, comm, &options, &s, err);
    if (status == DTP_OK) {
        status = train(c, comm, s, err);
        dtp_session_peak(s, &c->allocated[comm->rank], &touched);
        c->predicted[comm->rank] = dtp_runner_program(dtp_session_runner(s))->peak_bytes;
        if (status != DTP_OK) {
            dtp_runner_give_up(dtp_session_runner(s), err->msg);
        }
    }
    c->said[comm->rank] = status;
    (void)snprintf(c->words[comm->rank], DTP_ERR_MSG_BYTES, "%s", status != DTP_OK ? err->msg : "");
    dtp_session_destroy(s);
    return status;
}

static const struct {
    const char *stages, *slots, *mesh, *rules, *remat;
    bool tied; /* gpt2_small, whose embedding is read on two stages */
} PLANS[] = {{"layer:0,1,3", "1f1b", "x:2", "batch:x", NULL, true},
             {"2x2", "1f1b", "x:1", "batch:x", "all", true},
             {"4", "gpipe", "x:1", "batch:x", NULL, false},
             {"2x2", "2", "x:2", "batch:x", NULL, false},
             {"2", "2", "x:2", "heads:x;d_ff:x", "all", true}};
enum { N_PLANS = sizeof PLANS / sizeof PLANS[0] };

static const struct {
    const char *transport;
    bool no_graph, each; /* a device for each rank */
} KINDS[] = {{"staged", true, false}, {"staged", false, false}, {"device", true, false},
             {"device", false, true}, {"nccl", true, true},     {"nccl", false, true}};
enum { N_KINDS = sizeof KINDS / sizeof KINDS[0] };

static dtp_status run(stage_case *c, int32_t plan, const char *backend, int32_t kind, uint64_t seed,
                      dtp_err *err)
{
    static const dtp_dim_override dims[] = {{"batch", 8},  {"length", 4}, {"layers", 4},
                                            {"vocab", 16}, {"d_head", 2}, {"heads", 2}};
    const bool cuda = strcmp(backend, "cuda") == 0;
    dtp_model_options model = dtp_model_options_init();
    dtp_job_options options = dtp_job_options_init();
    dtp_graph *g = NULL;
    dtp_mesh mesh;
    model.n_overrides = sizeof dims / sizeof dims[0];
    model.overrides = dims;
    must(dtp_model_read(PLANS[plan].tied ? DTP_SOURCE_DIR "/models/gpt2_small.json"
                                         : DTP_SOURCE_DIR "/models/gpt_bytes_dropout.json",
                        &model, &g, err),
         err);
    must(dtp_mesh_parse(PLANS[plan].mesh, &mesh, err), err);
    options.mesh = &mesh;
    options.rules = PLANS[plan].rules;
    options.microbatches = "4";
    options.stages = PLANS[plan].stages;
    options.slots = PLANS[plan].slots;
    options.remat = PLANS[plan].remat;
    options.target = backend;
    must(dtp_job_create(g, &options, &c->job, err), err);
    c->ranks = dtp_mesh_ranks(dtp_job_mesh(c->job));
    c->no_graph = KINDS[kind].no_graph;
    cuda_emu_reset();
    cuda_emu_devices(KINDS[kind].each ? c->ranks : 1);
    cuda_emu_seed(seed);
    cuda_emu_quiet(c->ending != NONE);
    const dtp_ranks_options ranks = {.comm = "sim",
                                     .backend = backend,
                                     .threads = 1,
                                     .timeout_s = c->ending == IS_LATE ? LIMIT_S : 0,
                                     .transport = cuda ? KINDS[kind].transport : NULL};
    const dtp_status status = dtp_ranks_run(&ranks, dtp_job_mesh(c->job), body, c, err);
    dtp_job_destroy(c->job);
    dtp_graph_destroy(g);
    return status;
}

static void nothing_left(void)
{
    const struct cuda_emu_counters n = cuda_emu_count();
    assert_int_equal(n.live_device + n.live_host + n.live_objects, 0);
    assert_string_equal(cuda_emu_message(), "");
}

/* The run of a plan on a kind of ranks: every rank has the losses of `first`, which are those of
 * this run where it has none, and allocates what is predicted; sections are recorded where they can
 * be. */
static void check_run(int32_t plan, int32_t kind, uint64_t seed, stage_case *first)
{
    static stage_case c;
    dtp_err err = {0};
    c = (stage_case){0};
    if (run(&c, plan, "cuda", kind, seed, &err) != DTP_OK) {
        fail_msg("plan %d, %s: %s", plan, KINDS[kind].transport, err.msg);
    }
    const bool can =
        strchr(PLANS[plan].mesh, '1') != NULL || strcmp(KINDS[kind].transport, "nccl") == 0;
    assert_true((cuda_emu_count().graph_launches > 0) == (can && !c.no_graph));
    nothing_left();
    *first = first->ranks == 0 ? c : *first;
    for (int32_t r = 0; r < c.ranks; r++) {
        for (int32_t k = 0; k < STEPS; k++) {
            if (memcmp(&c.losses[r][k], &first->losses[0][k], sizeof(double)) != 0) {
                fail_msg("plan %d, %s, rank %d, step %d: loss %.17g, not %.17g", plan,
                         KINDS[kind].transport, r, k, c.losses[r][k], first->losses[0][k]);
            }
        }
        assert_int_equal(c.allocated[r], c.predicted[r]);
    }
}

static void test_cuda_stages__same_losses(void **state)
{
    (void)state;
    for (int32_t plan = 0; plan < N_PLANS; plan++) {
        static stage_case first, cpu;
        dtp_err err = {0};
        cpu = first = (stage_case){0};
        for (int32_t kind = 0; kind < N_KINDS; kind++) {
            const int32_t i = plan * N_KINDS + kind;
            if (quarter_has(i, N_PLANS * N_KINDS)) {
                check_run(plan, kind, (uint64_t)i + 1, &first);
            }
        }
        must(first.ranks > 0 ? run(&cpu, plan, "cpu", 0, 1, &err) : DTP_OK, &err);
        for (int32_t k = 0; k < STEPS && first.ranks > 0; k++) {
            assert_true(fabs(first.losses[0][k] - cpu.losses[0][k]) <= 2e-5 * cpu.losses[0][k]);
        }
    }
}

/* Every rank ends, soon, and says why. */
static void test_cuda_stages__a_rank_that_ends_ends_all(void **state)
{
    (void)state;
    for (int32_t i = 0; i < 2 * N_KINDS; i++) {
        static stage_case c;
        dtp_err err = {0};
        const int32_t kind = i % N_KINDS;
        const double start = dtp_now_s();
        if (!quarter_has(i, 2 * N_KINDS)) {
            continue;
        }
        c = (stage_case){.ending = i < N_KINDS ? FAILS : IS_LATE};
        assert_int_not_equal(run(&c, i % 3 == 0 ? 3 : 2, "cuda", kind, (uint64_t)i + 1, &err),
                             DTP_OK);
        assert_true(dtp_now_s() - start < 20 * LIMIT_S);
        for (int32_t r = 0; r < c.ranks; r++) {
            if (c.said[r] == DTP_OK || c.words[r][0] == '\0' ||
                (c.ending == FAILS && strstr(c.words[r], OWN_WORDS) == NULL)) {
                fail_msg("%s%s, rank %d: %d: '%s'", KINDS[kind].transport,
                         c.ending == FAILS ? "" : ", late", r, (int)c.said[r], c.words[r]);
            }
        }
        const struct cuda_emu_counters n = cuda_emu_count();
        assert_int_equal(n.live_device + n.live_host + n.live_objects, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_stages__same_losses),
        cmocka_unit_test(test_cuda_stages__a_rank_that_ends_ends_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
