/* Messages between virtual ranks: their order, sizes that differ, circles, ranks that are late or
 * fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/comm/comm_suite.h"

typedef struct message_case {
    dtp_rank_body body;
    const char *words; /* of the failure; NULL: none */
} message_case;

static dtp_status run(dtp_rank_body body, dtp_err *err)
{
    dtp_mesh mesh;
    assert_int_equal(dtp_mesh_parse("stage:3", &mesh, NULL), DTP_OK);
    return dtp_comm_sim_run(&mesh, body, NULL, err);
}

static dtp_message make(int32_t peer, int32_t channel, bool sends, void *data, int64_t bytes)
{
    return (dtp_message){
        .peer = peer, .channel = channel, .sends = sends, .data = data, .bytes = bytes};
}

static dtp_status receive_from_next(dtp_comm *comm, double timeout_s, dtp_err *err)
{
    char byte = 0;
    dtp_transport *t = &comm->transport;
    dtp_message m = make((comm->rank + 1) % 3, 0, false, &byte, 1);
    comm->timeout_s = timeout_s;
    DTP_TRY(t->ops->post(t, &m, err));
    return t->ops->finish(t, &m, err);
}

static dtp_status circle(dtp_comm *comm, void *user, dtp_err *err)
{
    (void)user;
    return receive_from_next(comm, 100.0, err);
}

/* Rank 2 ends without a word; rank 0 waits in a collective. */
static dtp_status ended(dtp_comm *comm, void *user, dtp_err *err)
{
    (void)user;
    return comm->rank == 2   ? DTP_OK
           : comm->rank == 0 ? comm->ops->barrier(comm, err)
                             : receive_from_next(comm, 100.0, err);
}

static dtp_status late(dtp_comm *comm, void *user, dtp_err *err)
{
    static atomic_int done;
    (void)user;
    if (comm->rank == 0) {
        const dtp_status s = receive_from_next(comm, 0.05, err);
        atomic_store(&done, 1);
        return s;
    }
    while (atomic_load(&done) == 0) {
    }
    return DTP_OK;
}

static dtp_status failed(dtp_comm *comm, void *user, dtp_err *err)
{
    (void)user;
    return comm->rank == 1 ? DTP_FAIL(err, DTP_IO, "the disk is full")
                           : receive_from_next(comm, 100.0, err);
}

static dtp_status sizes(dtp_comm *comm, void *user, dtp_err *err)
{
    (void)user;
    char bytes[4] = {0};
    dtp_transport *t = &comm->transport;
    dtp_message m = make(1 - comm->rank, 0, comm->rank == 0, bytes, comm->rank == 0 ? 4 : 2);
    DTP_TRY(comm->rank < 2 ? t->ops->post(t, &m, err) : DTP_OK);
    return comm->rank < 2 ? t->ops->finish(t, &m, err) : DTP_OK;
}

static void test_messages__keep_their_order(void **state)
{
    (void)state;
    dtp_err err = {0};
    for (int32_t k = 0; k < 5; k++) {
        if (run(comm_suite_messages, &err) != DTP_OK) {
            fail_msg("%s", err.msg);
        }
    }
}

static void test_messages__that_cannot_go_are_failures(void **state)
{
    (void)state;
    static const message_case cases[] = {{circle, "the ranks wait for each other"},
                                         {ended, "rank 2: has ended"},
                                         {late, "is not done after 0.05 s"},
                                         {failed, "the disk is full"},
                                         {sizes, "a message of 4 bytes from rank 0, rank 1 has 2"}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        dtp_err err = {0};
        assert_int_not_equal(run(cases[k].body, &err), DTP_OK);
        if (strstr(err.msg, cases[k].words) == NULL) {
            fail_msg("case %d: %s", (int)k, err.msg);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages__keep_their_order),
        cmocka_unit_test(test_messages__that_cannot_go_are_failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
