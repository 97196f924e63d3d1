/* A rank that leaves, fails or is late ends the others, on emulated devices: over every transport
 * of the CUDA backend, with recorded steps and without, each says what it waited for and closes. */
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
#include "executor/run/runner_data.h"
#include "executor/session/session.h"
#include "tests/support/small_models.h"

enum { RANKS = 4, LAST = RANKS - 1, FAILS_AT = 3, STEPS = FAILS_AT + 3 };

/* The deadline of a collective, in seconds. Under the thread sanitizer a rank that works needs more
 * than one second for the launches between two collectives. */
#if defined(__SANITIZE_THREAD__)
enum { LIMIT_S = 8 };
#else
enum { LIMIT_S = 1 };
#endif

static const char MESH[] = "x:2;y:2", RULES[] = "batch:x;hidden:y";
/* Many microbatches: of BATCH rows. */
enum { BATCH = 256 };
static const char MICROBATCHES[] = "batch=64";
static const char OWN_WORDS[] = "the feed has come to its end";

/* What the last rank does before it starts step FAILS_AT. */
typedef enum ending { LEAVES, FAILS, IS_LATE, KERNEL_FAILS, N_ENDINGS } ending;
static const char *const ENDINGS[N_ENDINGS] = {"leaves", "fails", "is late", "has a bad kernel"};

typedef struct job {
    const dtp_program *program;
    ending ending;
    int32_t kind;
    size_t launch_queue; /* of the device; 0: any number */
    bool others_quit;    /* the others start step FAILS_AT, and end without a wait for it */
    dtp_status said[RANKS];
    char words[RANKS][DTP_ERR_MSG_BYTES];
} job;

static void must(dtp_status status, const dtp_err *err)
{
    if (status != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

/* What a rank does before step k; *ends: it takes no more. */
static dtp_status deviate(const job *j, const dtp_comm *comm, int32_t k, bool *ends, dtp_err *err)
{
    if (k != FAILS_AT || comm->rank != LAST) {
        return DTP_OK;
    }
    *ends = j->ending == LEAVES;
    if (j->ending == IS_LATE) {
        (void)nanosleep(&(struct timespec){.tv_sec = 2 * LIMIT_S, .tv_nsec = 500000000}, NULL);
    }
    if (j->ending == KERNEL_FAILS) {
        cuda_emu_set_fault(CUDA_EMU_FAIL_LAUNCH, 1);
    }
    return j->ending == FAILS ? DTP_FAIL(err, DTP_IO, "%s", OWN_WORDS) : DTP_OK;
}

static dtp_status train(const job *j, const dtp_comm *comm, dtp_session *s, dtp_err *err)
{
    for (int32_t k = 0; k < STEPS; k++) {
        dtp_step_result result;
        bool ends = false;
        DTP_TRY(deviate(j, comm, k, &ends, err));
        if (ends) {
            return DTP_OK;
        }
        DTP_TRY(dtp_session_start_step(s, err));
        if (j->others_quit && k == FAILS_AT) {
            return DTP_FAIL(err, DTP_IO, "%s", OWN_WORDS);
        }
        DTP_TRY(dtp_session_finish_step(s, &result, err));
    }
    return DTP_OK;
}

/* The transports, on as many devices; only nccl can be recorded. */
static const struct {
    const char *transport;
    int devices;
    bool no_graph;
} KINDS[] = {
    {"device", 1, false}, {"nccl", RANKS, false}, {"nccl", RANKS, true}, {"staged", 1, false}};
enum { PLAIN_NCCL = 2, N_KINDS = sizeof KINDS / sizeof KINDS[0] };

static dtp_status run_rank(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    job *j = user;
    dtp_session *s = NULL;
    dtp_session_options options = dtp_session_options_init();
    options.no_graph = KINDS[j->kind].no_graph;
    dtp_status status = dtp_session_create(j->program, backend, comm, &options, &s, err);
    status = status == DTP_OK ? train(j, comm, s, err) : status;
    if (s != NULL && status != DTP_OK && !j->others_quit) {
        dtp_runner_give_up(dtp_session_runner(s), err->msg);
    }
    j->said[comm->rank] = status;
    (void)snprintf(j->words[comm->rank], DTP_ERR_MSG_BYTES, "%s", status != DTP_OK ? err->msg : "");
    dtp_session_destroy(s);
    return status;
}

static dtp_status execute(job *j, uint64_t seed)
{
    const dtp_ranks_options ranks = {.comm = "sim",
                                     .backend = "cuda",
                                     .transport = KINDS[j->kind].transport,
                                     .timeout_s = LIMIT_S};
    dtp_mesh mesh;
    dtp_err err = {0};
    must(dtp_mesh_parse(MESH, &mesh, &err), &err);
    memset(j->said, 0, sizeof j->said);
    memset(j->words, 0, sizeof j->words);
    cuda_emu_reset();
    cuda_emu_devices(KINDS[j->kind].devices);
    cuda_emu_seed(seed);
    cuda_emu_quiet(1);
    cuda_emu_launch_queue(j->launch_queue);
    const double start = dtp_now_s();
    const dtp_status status = dtp_ranks_run(&ranks, &mesh, run_rank, j, &err);
    /* the deadline and the questions to others, many times for a busy machine */
    assert_true(dtp_now_s() - start < 20 * LIMIT_S);
    const struct cuda_emu_counters c = cuda_emu_count();
    assert_int_equal(c.live_device + c.live_host + c.live_objects, 0);
    if (j->ending != KERNEL_FAILS) {
        assert_string_equal(cuda_emu_message(), "");
    }
    return status;
}

/* A step of `microbatches` microbatches; NULL: of one. */
static dtp_job *make_job(const char *microbatches, dtp_graph **g)
{
    dtp_job_options options = dtp_job_options_init();
    dtp_job *made = NULL;
    dtp_mesh mesh;
    dtp_err err = {0};
    small_model model = *small_model_find("mlp_digits");
    assert_string_equal(model.dims[0].name, "batch");
    model.dims[0].size = microbatches != NULL ? BATCH : model.dims[0].size;
    *g = small_model_read(&model, false);
    must(dtp_mesh_parse(MESH, &mesh, &err), &err);
    options.mesh = &mesh;
    options.rules = RULES;
    options.microbatches = microbatches;
    options.target = "cuda";
    must(dtp_job_create(*g, &options, &made, &err), &err);
    return made;
}

/* Whether the words of a rank that waited name the step, the instruction, its node and why. A rank
 * may hear of a failure when it is not yet through the step before. */
static bool tells(const job *j, const char *words)
{
    char step[32], before[32];
    (void)snprintf(step, sizeof step, "step %d: ", FAILS_AT);
    (void)snprintf(before, sizeof before, "step %d: ", FAILS_AT - 1);
    if (j->ending != KERNEL_FAILS && strstr(words, step) == NULL &&
        (j->ending == IS_LATE || strstr(words, before) == NULL)) {
        return false;
    }
    const char *why = j->ending == FAILS    ? OWN_WORDS
                      : j->ending == LEAVES ? "rank 3"
                                            : "has not come";
    return j->ending == KERNEL_FAILS || /* the ranks of a device fail alike, whatever they do */
           (strstr(words, "instruction ") != NULL && strstr(words, "node '") != NULL &&
            strstr(words, why) != NULL);
}

static void test_peers__one_that_ends_ends_all(void **state)
{
    (void)state;
    dtp_graph *g = NULL;
    dtp_job *made = make_job(NULL, &g);
    for (int32_t i = 0; i < N_KINDS * N_ENDINGS; i++) {
        job j = {
            .program = dtp_job_program(made), .kind = i % N_KINDS, .ending = (ending)(i / N_KINDS)};
        const dtp_status status = execute(&j, (uint64_t)i + 1);
        assert_int_not_equal(status, DTP_OK);
        for (int32_t r = 0; r < RANKS; r++) {
            const bool own = r == LAST && j.ending != IS_LATE;
            if (own ? (j.said[r] == DTP_OK) != (j.ending == LEAVES)
                    : j.said[r] == DTP_OK || !tells(&j, j.words[r])) {
                fail_msg("%s%s: rank 3 %s: rank %d: %d: '%s'", KINDS[j.kind].transport,
                         KINDS[j.kind].no_graph ? " without graphs" : "", ENDINGS[j.ending], r,
                         (int)j.said[r], j.words[r]);
            }
        }
    }
    dtp_job_destroy(made);
    dtp_graph_destroy(g);
}

/* Ranks with collectives on their queues, for which the last one will never come, end for a reason
 * of their own. */
static void test_peers__one_that_never_comes_lets_the_others_close(void **state)
{
    (void)state;
    dtp_graph *g = NULL;
    dtp_job *made = make_job(NULL, &g);
    for (int32_t i = 0; i < N_KINDS * IS_LATE; i++) {
        job j = {.program = dtp_job_program(made),
                 .kind = i % N_KINDS,
                 .others_quit = true,
                 .ending = (ending)(i / N_KINDS)};
        assert_int_not_equal(execute(&j, (uint64_t)i + 1), DTP_OK);
        for (int32_t r = 0; r < RANKS; r++) {
            assert_true(j.said[r] != DTP_OK || (r == LAST && j.ending == LEAVES));
        }
    }
    dtp_job_destroy(made);
    dtp_graph_destroy(g);
}

/* A step has more instructions than the launch queue holds. A rank whose queue is full would not
 * return from a launch, and nothing would end it: a host ahead of its device by DTP_RUNNER_PACE
 * instructions waits where it looks at the transport. */
static void test_peers__a_full_launch_queue_does_not_hold_a_rank(void **state)
{
    (void)state;
    dtp_graph *g = NULL;
    dtp_job *made = make_job(MICROBATCHES, &g);
    const dtp_program *p = dtp_job_program(made);
    const size_t launch_queue = 3 * DTP_RUNNER_PACE;
    assert_true((size_t)(dtp_program_body(p) * dtp_program_microbatches(p)) > 2 * launch_queue);
    for (int32_t i = 0; i < 4; i++) {
        job j = {.program = p,
                 .kind = PLAIN_NCCL,
                 .ending = i % 2 == 0 ? LEAVES : IS_LATE,
                 .launch_queue = launch_queue};
        assert_int_not_equal(execute(&j, (uint64_t)i + 1), DTP_OK);
        for (int32_t r = 0; r < LAST; r++) {
            if (j.said[r] == DTP_OK || !tells(&j, j.words[r])) {
                fail_msg("rank 3 %s: rank %d: %d: '%s'", ENDINGS[j.ending], r, (int)j.said[r],
                         j.words[r]);
            }
        }
    }
    dtp_job_destroy(made);
    dtp_graph_destroy(g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peers__one_that_ends_ends_all),
        cmocka_unit_test(test_peers__one_that_never_comes_lets_the_others_close),
        cmocka_unit_test(test_peers__a_full_launch_queue_does_not_hold_a_rank),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
