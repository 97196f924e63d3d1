/* Messages of the transports of the CUDA backend, on emulated devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "executor/comm/communicator_internal.h"
#include "tests/cuda/comm_rounds.h"
#include "tests/cuda/device_controls.h"

static dtp_message end_of(const dtp_comm *c, int32_t by, bool sends, int32_t channel, float *at)
{
    return (dtp_message){.peer = (c->rank + c->size + by) % c->size,
                         .channel = channel,
                         .sends = sends,
                         .data = at,
                         .bytes = (int64_t)(sizeof(float) * ELEMS)};
}

/* Messages round the ranks, from each one to itself, and back, beside a collective, without a wait
 * of the host. What is sent is made right before, and overwritten right after it has gone; what has
 * come is read right after, and one receive has the memory of a message that is under way. Receives
 * are posted long before they are needed. */
static dtp_status pass_round(dtp_comm *c, dtp_backend *b, float *const m[BUFFERS], int32_t round,
                             dtp_err *err)
{
    enum { ON, BACK, OWN };
    dtp_transport *t = &c->transport;
    float *noted = m[6] + (ptrdiff_t)2 * round * ALL;
    const dtp_coll sum = {
        .kind = DTP_ALL_REDUCE, .set = dtp_comm_all(c), .dtype = DTP_F32, .count = ELEMS};
    dtp_message on[2] = {end_of(c, 1, true, ON, m[1]), end_of(c, -1, false, ON, m[2])};
    dtp_message back[2] = {end_of(c, -1, true, BACK, m[3]), end_of(c, 1, false, BACK, m[1])};
    dtp_message own[2] = {end_of(c, 0, true, OWN, m[4]), end_of(c, 0, false, OWN, m[5])};
    DTP_TRY(t->ops->post(t, &on[1], err));
    DTP_TRY(t->ops->post(t, &own[1], err));
    DTP_TRY(rounds_scale(b, m[0], 0.5, m[1], ELEMS, err));
    DTP_TRY(t->ops->post(t, &on[0], err));
    DTP_TRY(rounds_scale(b, m[0], 4.0, m[3], ELEMS, err));
    DTP_TRY(dtp_transport_run(t, &sum, m[3], m[3], err));
    DTP_TRY(t->ops->post(t, &back[1], err)); /* all have posted the other end of on[0] */
    DTP_TRY(rounds_scale(b, m[0], 2.0, m[4], ELEMS, err));
    DTP_TRY(t->ops->post(t, &own[0], err));
    DTP_TRY(rounds_scale(b, m[0], -1.0, m[3], ELEMS, err));
    DTP_TRY(t->ops->post(t, &back[0], err));
    DTP_TRY(t->ops->finish(t, &on[1], err));
    DTP_TRY(rounds_scale(b, m[2], 1.0, noted, ELEMS, err));
    DTP_TRY(t->ops->finish(t, &own[1], err));
    DTP_TRY(rounds_scale(b, m[5], 0.5, noted + ALL, ELEMS, err));
    DTP_TRY(t->ops->finish(t, &own[0], err));
    DTP_TRY(rounds_scale(b, m[5], 8.0, m[4], ELEMS, err));
    DTP_TRY(t->ops->finish(t, &on[0], err));
    DTP_TRY(t->ops->finish(t, &back[1], err));
    DTP_TRY(rounds_scale(b, m[1], 1.0, noted + ELEMS, ELEMS, err));
    DTP_TRY(rounds_scale(b, m[1], -1.0, m[0], ELEMS, err));
    DTP_TRY(t->ops->finish(t, &back[0], err));
    DTP_TRY(rounds_scale(b, m[0], 16.0, m[3], ELEMS, err));
    DTP_TRY(rounds_scale(b, m[0], 16.0, m[5], ELEMS, err));
    return rounds_scale(b, m[0], 0.25, m[2], ELEMS, err);
}

static dtp_status messages_round(dtp_comm *c, dtp_backend *b, float *const m[BUFFERS], dtp_err *err)
{
    dtp_transport *t = &c->transport;
    const dtp_message ends[4] = {end_of(c, 1, true, 0, NULL), end_of(c, -1, false, 0, NULL),
                                 end_of(c, -1, true, 1, NULL), end_of(c, 1, false, 1, NULL)};
    DTP_TRY(t->ops->connect != NULL && c->size > 1 ? t->ops->connect(t, 4, ends, err) : DTP_OK);
    for (int32_t round = 0; round < ROUNDS; round++) {
        DTP_TRY(pass_round(c, b, m, round, err));
    }
    return DTP_OK;
}

static dtp_status messages(dtp_comm *c, void *backend, dtp_err *err)
{
    return rounds_on(c, backend, messages_round, err);
}

static void test_cuda_messages__any_order_of_queues_gives_the_same_bits(void **state)
{
    static float expected[MAX_RANKS][2 * ROUNDS * ALL];
    static const char *const meshes[] = {"x:2", "x:3", "x:2;y:2"};
    (void)state;
    for (int32_t i = 0; i < 3 * N_RANKS_KINDS * 12; i++) {
        const int32_t k = i % N_RANKS_KINDS;
        const char *mesh = meshes[i / (N_RANKS_KINDS * 12)];
        dtp_err err = {0};
        if (i % (N_RANKS_KINDS * 12) == 0) {
            rounds_expect(mesh, messages, expected);
        }
        ranks_begin(k, (uint64_t)i + 1);
        if (ranks_can(k, mesh)) {
            memset(results, 0, sizeof results);
            ranks_must(ranks_run(mesh, RANKS_KINDS[k].name, messages, &err), &err);
            assert_memory_equal(results, expected, sizeof results);
        }
        ranks_nothing_left();
    }
}

/* Whether a wait for an event that rank 0 leaves out shows, in one of several orders. */
static bool shows(uint64_t wait, const void *expected)
{
    enum { NCCL = 2 };
    for (uint64_t seed = 1; seed <= 200; seed++) {
        dtp_err err = {0};
        ranks_begin(NCCL, seed);
        cuda_emu_quiet(1);
        cuda_emu_set_fault(CUDA_EMU_DROP_WAIT, wait);
        memset(results, 0, sizeof results);
        if (ranks_run("x:2", "nccl", messages, &err) != DTP_OK ||
            memcmp(results, expected, sizeof results) != 0) {
            return true;
        }
    }
    return false;
}

/* Over NCCL, whose ranks each put their own waits on their queues, in one order: 15 in a round.
 * Left out are those of the collective and four that others imply. */
static void test_cuda_messages__a_wait_left_out_shows(void **state)
{
    enum { EACH = 15 };
    static const uint64_t needed[] = {1, 2, 6, 7, 9, 10, 11, 14, 15};
    static float expected[MAX_RANKS][2 * ROUNDS * ALL];
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* the sanitizer ends the program where a wait is missing */
#endif
    rounds_expect("x:2", messages, expected);
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (!shows(EACH + needed[i], expected)) { /* of the second round */
            fail_msg("nothing misses wait %d", (int)needed[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_messages__any_order_of_queues_gives_the_same_bits),
        cmocka_unit_test(test_cuda_messages__a_wait_left_out_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
