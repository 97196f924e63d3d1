/* The transports of the CUDA backend, on emulated devices or on a card. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "executor/comm/communicator_internal.h"
#include "executor/comm/sub_communicator.h"
#include "tests/comm/comm_buffers.h"
#include "tests/comm/comm_suite.h"
#include "tests/cuda/comm_rounds.h"
#include "tests/cuda/device_controls.h"

static const char *const MESHES[] = {"x:1", "x:2", "x:4", "x:2;y:2"};
enum { N_MESHES = sizeof MESHES / sizeof MESHES[0] };

static void test_cuda_comm__conforms(void **state)
{
    (void)state;
    for (int32_t k = 0; k < N_RANKS_KINDS; k++) {
        for (size_t m = 0; m < N_MESHES; m++) {
            dtp_err err = {0};
            ranks_begin(k, 1 + m);
            ranks_must(ranks_can(k, MESHES[m])
                           ? ranks_run(MESHES[m], RANKS_KINDS[k].name, comm_suite, &err)
                           : DTP_OK,
                       &err);
            ranks_nothing_left();
        }
    }
}

static void test_cuda_comm__conforms_in_flight_and_on_views(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        for (int32_t k = 0; k < N_RANKS_KINDS; k++) {
            dtp_err err = {0};
            const bool ordered = strcmp(RANKS_KINDS[k].name, "nccl") != 0;
            const char *mesh = MESHES[seed % N_MESHES];
            ranks_begin(k, seed);
            if (ranks_can(k, mesh)) {
                ranks_must(ranks_run(mesh, RANKS_KINDS[k].name, comm_suite_flight, &err), &err);
                ranks_must(ordered ? ranks_run(mesh, RANKS_KINDS[k].name, comm_suite_order, &err)
                                   : DTP_OK,
                           &err);
            }
            ranks_must(seed == 1 && ranks_can(k, "x:3;y:2")
                           ? ranks_run("x:3;y:2", RANKS_KINDS[k].name, comm_suite_views, &err)
                           : DTP_OK,
                       &err);
            ranks_nothing_left();
        }
    }
}

/* Groups of one rank go over NCCL where a switch says so, else they are copies. */
static void test_cuda_comm__nccl_takes_groups_of_one_by_a_switch(void **state)
{
    static const char *const meshes[] = {"", "x:1", "x:1;y:1", "x:2;y:1"};
    enum { NCCL = 2 };
    (void)state;
    for (size_t i = 0; i < 2 * sizeof meshes / sizeof meshes[0]; i++) {
        dtp_err err = {0};
        const char *mesh = meshes[i / 2];
        const bool several = strchr(mesh, '2') != NULL;
        ranks_begin(NCCL, 1 + i);
        ranks_switches = i % 2 == 1 ? "nccl_alone" : NULL;
        if (!ranks_can(NCCL, mesh)) {
            continue;
        }
        const dtp_status suite = ranks_run(mesh, "nccl", comm_suite, &err);
        const uint64_t n = cuda_emu_count().collectives;
        const dtp_status flight =
            suite == DTP_OK ? ranks_run(mesh, "nccl", comm_suite_flight, &err) : suite;
        ranks_switches = NULL;
        ranks_must(flight, &err);
        if (!ON_CARD && (n > 0) != (i % 2 == 1 || several)) {
            fail_msg("mesh '%s': %d collectives of NCCL", mesh, (int)n);
        }
        ranks_nothing_left();
    }
}

static void test_cuda_comm__a_word_that_is_no_switch_is_refused(void **state)
{
    static const char *const words[] = {"no_epilogue", "nccl_alone,magic", ",nccl_alone"};
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        dtp_err err = {0};
        ranks_begin(0, 1);
        ranks_switches = words[i];
        const dtp_status s = ranks_run("", "auto", comm_suite, &err);
        ranks_switches = NULL;
        assert_int_equal(s, DTP_INVALID);
        assert_non_null(strstr(err.msg, "there are: no_epilogues, nccl_alone"));
    }
}

/* ---- the order of queues ---- */

/* Kernels and collectives without a wait of the host: inputs are made right before START and
 * overwritten right after WAIT, results are read right after WAIT and noted in m[6]. In a chain the
 * second collective reads the results of the first, else every wait for an event is needed. All
 * values are exact, whatever the order of a sum. */
static dtp_status run_rounds(dtp_comm *c, dtp_backend *b, float *const m[BUFFERS], bool is_chain,
                             dtp_err *err)
{
    dtp_transport *t = &c->transport;
    const int64_t n = (int64_t)MAX_RANKS * ELEMS;
    const dtp_mesh_set all = dtp_comm_all(c), one = c->mesh.n_dims > 1 ? 2 : all;
    for (int32_t round = 0; round < ROUNDS; round++) {
        const dtp_coll first = {
            .kind = DTP_ALL_REDUCE, .set = all, .dtype = DTP_F32, .count = n - 1};
        const dtp_coll second = {.kind = (dtp_coll_kind)(1 + round % (DTP_N_COLLS - 1)),
                                 .set = one,
                                 .dtype = DTP_F32,
                                 .count = ELEMS,
                                 .shift = 1};
        const dtp_coll_ends ends[2] = {{m[1], m[2]}, {is_chain ? m[2] : m[5], m[3]}};
        dtp_request requests[2];
        float *noted = m[6] + (ptrdiff_t)2 * round * ALL;
        DTP_TRY(rounds_scale(b, m[0], 0.5, m[1], n, err));
        DTP_TRY(t->ops->start(t, &first, &ends[0], &requests[0], err));
        DTP_TRY(rounds_scale(b, m[0] + n / 2, -1.0, m[5], n / 2, err));
        DTP_TRY(rounds_scale(b, m[0], -1.0, m[5] + n / 2, n / 2, err));
        DTP_TRY(t->ops->start(t, &second, &ends[1], &requests[1], err));
        DTP_TRY(rounds_scale(b, m[0], 2.0, m[4], n, err));
        if (is_chain) {
            DTP_TRY(t->ops->wait(t, &requests[1], err));
            DTP_TRY(rounds_scale(b, m[3], 1.0, noted, n, err));
            DTP_TRY(rounds_scale(b, m[3], 0.5, m[0], n, err));
            DTP_TRY(t->ops->wait(t, &requests[0], err));
            DTP_TRY(rounds_scale(b, m[2], 1.0, noted + n, n, err));
            DTP_TRY(rounds_scale(b, m[4], 0.25, m[2], n / 2, err));
        } else {
            DTP_TRY(t->ops->wait(t, &requests[0], err));
            DTP_TRY(rounds_scale(b, m[2], 1.0, noted, n, err));
            DTP_TRY(rounds_scale(b, m[2], 0.25, m[0], n / 2, err));
            DTP_TRY(rounds_scale(b, m[4], 16.0, m[1], n, err));
            DTP_TRY(t->ops->wait(t, &requests[1], err));
            DTP_TRY(rounds_scale(b, m[3], 1.0, noted + n, n, err));
            DTP_TRY(rounds_scale(b, m[3], 0.5, m[0] + n / 2, n / 2, err));
            DTP_TRY(rounds_scale(b, m[4], 8.0, m[5], n, err));
        }
        DTP_TRY(rounds_scale(b, m[4], 0.25, m[1], n, err));
        DTP_TRY(rounds_scale(b, m[4], -1.0, m[3], n / 2, err));
    }
    return DTP_OK;
}

static dtp_status chain_rounds(dtp_comm *c, dtp_backend *b, float *const m[BUFFERS], dtp_err *err)
{
    return run_rounds(c, b, m, true, err);
}

static dtp_status pair_rounds(dtp_comm *c, dtp_backend *b, float *const m[BUFFERS], dtp_err *err)
{
    return run_rounds(c, b, m, false, err);
}

static dtp_status chain(dtp_comm *c, void *backend, dtp_err *err)
{
    return rounds_on(c, backend, chain_rounds, err);
}

static dtp_status pairs(dtp_comm *c, void *backend, dtp_err *err)
{
    return rounds_on(c, backend, pair_rounds, err);
}

static void test_cuda_comm__any_order_of_queues_gives_the_same_bits(void **state)
{
    static float expected[MAX_RANKS][2 * ROUNDS * ALL];
    (void)state;
    for (size_t m = 0; m < N_MESHES; m++) {
        for (int32_t i = 0; i < N_RANKS_KINDS * 40; i++) {
            const int32_t k = i % N_RANKS_KINDS;
            dtp_status (*body)(dtp_comm *, void *, dtp_err *) =
                i < N_RANKS_KINDS * 20 ? chain : pairs;
            if (i % (N_RANKS_KINDS * 20) == 0) {
                rounds_expect(MESHES[m], body, expected);
            }
            dtp_err err = {0};
            ranks_begin(k, (uint64_t)(i / N_RANKS_KINDS) % 20 + 1);
            if (ranks_can(k, MESHES[m])) {
                memset(results, 0, sizeof results);
                ranks_must(ranks_run(MESHES[m], RANKS_KINDS[k].name, body, &err), &err);
                assert_memory_equal(results, expected, sizeof results);
            }
            ranks_nothing_left();
        }
    }
}

/* Whether a wait for an event that rank 0 leaves out shows, in one of several orders. It takes a
 * tenth of them or more. */
static bool shows(int32_t kind, uint64_t wait, const void *expected)
{
    for (uint64_t seed = 1; seed <= 400; seed++) {
        dtp_err err = {0};
        ranks_begin(kind, seed);
        cuda_emu_quiet(1);
        cuda_emu_set_fault(CUDA_EMU_DROP_WAIT, wait);
        memset(results, 0, sizeof results);
        if (ranks_run("x:2", RANKS_KINDS[kind].name, pairs, &err) != DTP_OK ||
            memcmp(results, expected, sizeof results) != 0) {
            return true;
        }
    }
    return false;
}

static void test_cuda_comm__a_wait_left_out_shows(void **state)
{
    static float expected[MAX_RANKS][2 * ROUNDS * ALL];
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* the sanitizer ends the program where a wait is missing */
#endif
    if (ON_CARD) {
        skip();
    }
    rounds_expect("x:2", pairs, expected);
    for (int32_t k = 0; k < N_RANKS_KINDS; k++) {
        dtp_err err = {0};
        if (strcmp(RANKS_KINDS[k].name, "staged") == 0) {
            continue; /* it has none */
        }
        ranks_begin(k, 1);
        ranks_must(ranks_run("x:2", RANKS_KINDS[k].name, pairs, &err), &err);
        const uint64_t n = cuda_emu_count().event_waits / 2; /* of each rank */
        assert_true(n > 0);
        for (uint64_t wait = 1; wait <= n; wait++) {
            if (!shows(k, wait, expected)) {
                fail_msg("%s: nothing misses wait %d of %d", RANKS_KINDS[k].name, (int)wait,
                         (int)n);
            }
        }
    }
}

/* ---- failures ---- */

static dtp_status said[MAX_RANKS];
static char words[MAX_RANKS][DTP_ERR_MSG_BYTES];

/* Runs a body that no rank may survive: each must end with DTP_COMM. */
static void all_fail(int32_t kind, const char *mesh, ranks_body body)
{
    dtp_err err = {0};
    ranks_begin(kind, 1);
    cuda_emu_quiet(1);
    memset(said, 0, sizeof said);
    memset(words, 0, sizeof words);
    const dtp_status s = ranks_run(mesh, RANKS_KINDS[kind].name, body, &err);
    if (s != DTP_COMM) {
        fail_msg("%s: %d: '%s'", RANKS_KINDS[kind].name, (int)s, err.msg);
    }
    cuda_emu_quiet(0);
}

/* Runs collectives one after the other and notes how that ends. */
static dtp_status run_colls(dtp_comm *c, dtp_backend *b, int32_t n, const dtp_coll *colls,
                            dtp_err *err)
{
    enum { BYTES = 1024 };
    void *in = NULL, *out = NULL;
    dtp_status s = c->transport.ops->prepare(&c->transport, 1, err);
    s = s == DTP_OK ? c->transport.ops->prepare(&c->transport, dtp_comm_all(c), err) : s;
    s = s == DTP_OK ? c->ops->barrier(c, err) : s;
    s = s == DTP_OK ? b->ops->alloc(b, BYTES, &in, err) : s;
    s = s == DTP_OK ? b->ops->alloc(b, BYTES, &out, err) : s;
    for (int32_t i = 0; i < n && s == DTP_OK; i++) {
        s = dtp_transport_run(&c->transport, &colls[i], in, out, err);
    }
    s = s == DTP_OK ? comm_await(c, b, err) : s;
    s = s == DTP_OK ? c->ops->barrier(c, err) : s; /* a rank whose own part was done learns there */
    said[c->rank] = s;
    (void)snprintf(words[c->rank], sizeof words[0], "%s", s != DTP_OK ? err->msg : "");
    if (s != DTP_OK && c->transport.ops->abort != NULL) {
        c->transport.ops->abort(&c->transport, err->msg);
    }
    b->ops->free(b, out, BYTES);
    b->ops->free(b, in, BYTES);
    return s;
}

static int32_t dispute_at;

static dtp_status dispute(dtp_comm *c, void *backend, dtp_err *err)
{
    const comm_dispute *d = &comm_disputes[dispute_at];
    c->timeout_s = 0.5;
    return run_colls(c, backend, 1, c->rank == 0 ? &d->first : &d->other, err);
}

static void test_cuda_comm__different_collectives_end_every_rank(void **state)
{
    (void)state;
    for (int32_t k = 0; k < N_RANKS_KINDS; k++) {
        for (dispute_at = 0; dispute_at < comm_n_disputes && ranks_can(k, "x:4"); dispute_at++) {
            const comm_dispute *d = &comm_disputes[dispute_at];
            const bool nccl = strcmp(RANKS_KINDS[k].name, "nccl") == 0;
            if (nccl && (d->other.in_outer > 1 || d->other.out_outer > 1)) {
                continue; /* it takes no strided parts */
            }
            all_fail(k, "x:4", dispute);
            for (int32_t r = 0; r < 4; r++) {
                if (said[r] != DTP_COMM || (!nccl && (strstr(words[r], d->words[0]) == NULL ||
                                                      strstr(words[r], d->words[1]) == NULL))) {
                    fail_msg("%s: rank %d: %d: '%s'", RANKS_KINDS[k].name, r, (int)said[r],
                             words[r]);
                }
            }
        }
    }
}

/* The last rank has two collectives the other way round. */
static dtp_status other_order(dtp_comm *c, void *backend, dtp_err *err)
{
    const dtp_coll a = {.kind = DTP_ALL_REDUCE, .set = 1, .dtype = DTP_F32, .count = 8};
    const dtp_coll b = {.kind = DTP_ALL_GATHER, .set = 3, .dtype = DTP_F32, .count = 4};
    const dtp_coll colls[] = {a, b, a};
    c->timeout_s = 1;
    return run_colls(c, backend, 2, c->rank == 3 ? colls + 1 : colls, err);
}

static void test_cuda_comm__another_order_ends_every_rank(void **state)
{
    (void)state;
    for (int32_t k = 0; k < N_RANKS_KINDS; k++) {
        if (!ranks_can(k, "x:2;y:2")) {
            continue;
        }
        all_fail(k, "x:2;y:2", other_order);
        for (int32_t r = 0; r < 4; r++) {
            assert_int_equal(said[r], DTP_COMM);
        }
    }
}

/* Over a sub-communicator of all ranks. */
static dtp_status deadline_of_sub(dtp_comm *c, void *backend, dtp_err *err)
{
    const dtp_mesh_set sets[] = {1, 2};
    dtp_comm *sub = NULL;
    DTP_TRY(dtp_sub_communicator_create(c, &c->mesh, sets, &sub, err));
    c->timeout_s = 0.5;
    const dtp_status s = comm_suite_deadline(sub, backend, err);
    dtp_comm_destroy(sub);
    return s;
}

static void test_cuda_comm__a_rank_that_does_not_come_is_named(void **state)
{
    (void)state;
    for (int32_t k = 0; k < N_RANKS_KINDS; k++) {
        dtp_err err = {0};
        ranks_begin(k, 1);
        ranks_must(!ranks_can(k, "x:2;y:2")
                       ? DTP_OK
                       : ranks_run("x:2;y:2", RANKS_KINDS[k].name,
                                   k < 2 ? comm_suite_deadline : deadline_of_sub, &err),
                   &err);
    }
}

/* A step that is recorded, put on the queue again by all, then by all but the last rank. */
static dtp_status recorded_in(dtp_comm *c, dtp_backend *b, float *x, dtp_recording **made,
                              dtp_err *err)
{
    const dtp_queue_ops *queue = b->ops->queue;
    const dtp_coll sum = {
        .kind = DTP_ALL_REDUCE, .set = dtp_comm_all(c), .dtype = DTP_F32, .count = 4};
    float got[4] = {1, 1, 1, 1};
    dtp_err late = {0};
    DTP_TRY(c->transport.ops->prepare(&c->transport, sum.set, err));
    DTP_TRY(b->ops->upload(b, x, got, sizeof got, err));
    DTP_TRY(dtp_transport_run(&c->transport, &sum, x, x, err));
    DTP_TRY(queue->recording_begin(b, err));
    const dtp_status s = dtp_transport_run(&c->transport, &sum, x, x, err);
    DTP_TRY(queue->recording_end(b, s == DTP_OK ? made : NULL, err));
    DTP_TRY(s);
    DTP_TRY(queue->recording_put(b, *made, err));
    DTP_TRY(queue->recording_put(b, *made, err));
    DTP_TRY(comm_await(c, b, err));
    DTP_TRY(b->ops->download(b, got, x, sizeof got, err));
    for (int32_t i = 0; i < 4; i++) {
        assert_true(got[i] == (float)(c->size * c->size * c->size));
    }
    c->timeout_s = 0.3;
    if (c->rank == c->size - 1) {
        (void)nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        return DTP_OK;
    }
    DTP_TRY(queue->recording_put(b, *made, err));
    const dtp_status ended = comm_await(c, b, &late);
    queue->recording_destroy(b, *made);
    *made = NULL;
    c->transport.ops->abort(&c->transport, late.msg);
    assert_int_equal(ended, DTP_COMM);
    assert_non_null(strstr(late.msg, "rank 1 has not come"));
    return DTP_OK;
}

static dtp_status recorded(dtp_comm *c, void *backend, dtp_err *err)
{
    dtp_backend *b = backend;
    dtp_recording *made = NULL;
    void *x = NULL;
    DTP_TRY(b->ops->alloc(b, 16, &x, err));
    const dtp_status s = recorded_in(c, b, x, &made, err);
    b->ops->queue->recording_destroy(b, made);
    b->ops->free(b, x, 16);
    return s;
}

static void test_cuda_comm__recorded_collectives_have_a_deadline(void **state)
{
    dtp_err err = {0};
    (void)state;
    ranks_begin(2, 3);
    if (!ranks_can(2, "x:2")) {
        skip();
    }
    ranks_must(ranks_run("x:2", "nccl", recorded, &err), &err);
    ranks_nothing_left();
}

/* ---- what is refused ---- */

/* A collective that is refused leaves nothing behind that a later one on its buffers meets. */
static dtp_status refuse_first(dtp_comm *c, void *backend, dtp_err *err)
{
    dtp_backend *b = backend;
    dtp_transport *t = &c->transport;
    const dtp_coll refused = {.kind = DTP_ALL_REDUCE,
                              .set = dtp_comm_all(c),
                              .op = DTP_REDUCE_SUM,
                              .dtype = DTP_BOOL,
                              .count = 4};
    const dtp_coll least = {.kind = DTP_ALL_REDUCE,
                            .set = dtp_comm_all(c),
                            .op = DTP_REDUCE_MIN,
                            .dtype = DTP_F32,
                            .count = 4};
    const float start[4] = {1, 2, 3, 4};
    float got[4] = {0};
    dtp_request request = {0};
    void *x = NULL;
    DTP_TRY(t->ops->prepare(t, refused.set, err));
    DTP_TRY(b->ops->alloc(b, sizeof start, &x, err));
    const dtp_coll_ends ends = {x, x};
    assert_int_equal(t->ops->start(t, &refused, &ends, &request, NULL), DTP_UNSUPPORTED);
    DTP_TRY(b->ops->upload(b, x, start, sizeof start, err));
    DTP_TRY(dtp_transport_run(t, &least, x, x, err));
    DTP_TRY(comm_await(c, b, err));
    DTP_TRY(b->ops->download(b, got, x, sizeof got, err));
    b->ops->free(b, x, sizeof start);
    return memcmp(got, start, sizeof got) == 0
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "%g %g %g %g instead of 1 2 3 4", (double)got[0],
                          (double)got[1], (double)got[2], (double)got[3]);
}

static void test_cuda_comm__a_refused_collective_leaves_nothing(void **state)
{
    (void)state;
    for (int32_t k = 0; k < 2 * N_RANKS_KINDS; k++) {
        const char *mesh = k % 2 == 0 ? "x:1" : "x:2";
        dtp_err err = {0};
        ranks_begin(k / 2, 1);
        if (ranks_can(k / 2, mesh) &&
            ranks_run(mesh, RANKS_KINDS[k / 2].name, refuse_first, &err) != DTP_OK) {
            fail_msg("%s on '%s': %s", RANKS_KINDS[k / 2].name, mesh, err.msg);
        }
        ranks_nothing_left();
    }
}

/* ---- memory ---- */

/* Large memory that all ranks take alike is NCCL's, and collectives run in it. */
static dtp_status share_memory(dtp_comm *c, void *backend, dtp_err *err)
{
    enum { BYTES = 1 << 23 };
    dtp_backend *b = backend;
    const bool nccl = strcmp(c->transport.ops->name, "nccl") == 0;
    const dtp_coll sum = {
        .kind = DTP_ALL_REDUCE, .set = dtp_comm_all(c), .dtype = DTP_F32, .count = 4};
    float got[4] = {1, 1, 1, 1};
    void *large = NULL, *small = NULL, *own = NULL;
    DTP_TRY(dtp_transport_alloc(&c->transport, b, BYTES, true, &large, err));
    DTP_TRY(dtp_transport_alloc(&c->transport, b, BYTES / 2, true, &small, err));
    DTP_TRY(dtp_transport_alloc(&c->transport, b, BYTES, false, &own, err));
    assert_int_equal(b->allocated_bytes, BYTES / 2 * 5);
    DTP_TRY(c->ops->barrier(c, err));
    assert_true(ON_CARD || cuda_emu_count().live_nccl == (nccl ? (uint64_t)c->size : 0));
    DTP_TRY(c->transport.ops->prepare(&c->transport, sum.set, err));
    DTP_TRY(b->ops->upload(b, large, got, sizeof got, err));
    DTP_TRY(dtp_transport_run(&c->transport, &sum, large, large, err));
    DTP_TRY(comm_await(c, b, err));
    DTP_TRY(b->ops->download(b, got, large, sizeof got, err));
    assert_true(got[0] == 2 && got[3] == 2);
    dtp_transport_free(&c->transport, b, own, BYTES);
    dtp_transport_free(&c->transport, b, large, BYTES);
    dtp_transport_free(&c->transport, b, small, BYTES / 2);
    assert_int_equal(b->allocated_bytes, 0);
    return DTP_OK;
}

static void test_cuda_comm__large_memory_of_all_ranks_is_that_of_nccl(void **state)
{
    (void)state;
    for (int32_t k = 0; k < N_RANKS_KINDS; k++) {
        dtp_err err = {0};
        ranks_begin(k, 1);
        ranks_must(ranks_can(k, "x:2") ? ranks_run("x:2", RANKS_KINDS[k].name, share_memory, &err)
                                       : DTP_OK,
                   &err);
        ranks_nothing_left();
    }
}

/* ---- the choice ---- */

static const char *wanted;

static dtp_status has_name(dtp_comm *c, void *backend, dtp_err *err)
{
    (void)backend;
    return strcmp(c->transport.ops->name, wanted) == 0
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "%s instead of %s", c->transport.ops->name, wanted);
}

static void test_cuda_comm__chooses(void **state)
{
    static const struct {
        int devices;
        const char *mesh, *name, *gets, *says;
    } cases[] = {{1, "x:2", NULL, "device", NULL},
                 {2, "x:2", "auto", "device", NULL},
                 {1, "", "auto", "device", NULL},
                 {2, "x:2", "nccl", "nccl", NULL},
                 {2, "x:2", "staged", "staged", NULL},
                 {1, "x:2", "nccl", NULL, "a card for every rank"},
                 {1, "x:2", "magic", NULL, "there are: auto, device, nccl, staged"}};
    (void)state;
    if (ON_CARD) {
        skip(); /* the number of cards is what it is */
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_err err = {0};
        ranks_begin(0, 1);
        cuda_emu_devices(cases[i].devices);
        wanted = cases[i].gets;
        const dtp_status s = ranks_run(cases[i].mesh, cases[i].name, has_name, &err);
        if (cases[i].says == NULL) {
            ranks_must(s, &err);
        } else {
            assert_int_equal(s, DTP_INVALID);
            assert_non_null(strstr(err.msg, cases[i].says));
        }
        ranks_nothing_left();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_comm__conforms),
        cmocka_unit_test(test_cuda_comm__conforms_in_flight_and_on_views),
        cmocka_unit_test(test_cuda_comm__nccl_takes_groups_of_one_by_a_switch),
        cmocka_unit_test(test_cuda_comm__a_word_that_is_no_switch_is_refused),
        cmocka_unit_test(test_cuda_comm__any_order_of_queues_gives_the_same_bits),
        cmocka_unit_test(test_cuda_comm__a_wait_left_out_shows),
        cmocka_unit_test(test_cuda_comm__different_collectives_end_every_rank),
        cmocka_unit_test(test_cuda_comm__another_order_ends_every_rank),
        cmocka_unit_test(test_cuda_comm__a_rank_that_does_not_come_is_named),
        cmocka_unit_test(test_cuda_comm__recorded_collectives_have_a_deadline),
        cmocka_unit_test(test_cuda_comm__a_refused_collective_leaves_nothing),
        cmocka_unit_test(test_cuda_comm__large_memory_of_all_ranks_is_that_of_nccl),
        cmocka_unit_test(test_cuda_comm__chooses),
    };
    const int skipped = skip_without_card();
    return skipped != 0 ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
