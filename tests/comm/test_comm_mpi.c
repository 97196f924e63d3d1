/* The MPI communicator; started by mpirun with any number of ranks. Every rank runs every check, so
 * a failure on one of them cannot leave the others waiting: they all reach the next collective or
 * the job is aborted. */
#include "executor/comm/communicator_internal.h"
#include "tests/comm/comm_suite.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* limit 0: as users get it; else all calls go to MPI, in pieces of at most `limit` elements. */
static dtp_status on_mesh(const char *text, int64_t limit, dtp_err *err)
{
    dtp_mesh mesh;
    dtp_comm *c = NULL;
    DTP_TRY(dtp_mesh_parse(text, &mesh, err));
    DTP_TRY(dtp_comm_mpi_create(&mesh, &c, err));
    if (limit > 0) {
        dtp_comm__mpi_limit(c, limit);
        dtp_comm__mpi_share(c, false);
    }
    dtp_status status = comm_suite(c, NULL, err);
    if (status == DTP_OK) {
        status = comm_suite_agree(c, NULL, err);
    }
    if (status == DTP_OK) {
        status = comm_suite_flight(c, NULL, err);
    }
    if (status == DTP_OK) {
        status = comm_suite_views(c, NULL, err);
    }
    if (status == DTP_OK) {
        status = comm_suite_order(c, NULL, err);
    }
    if (status == DTP_OK) {
        status = comm_suite_messages(c, NULL, err);
    }
    if (status != DTP_OK) {
        dtp_comm_abort(c, err->msg);
    }
    dtp_comm_destroy(c);
    return status;
}

static dtp_status dispute_on(const char *text, const comm_dispute *d, bool share, dtp_err *err)
{
    float in[32] = {0}, out[32];
    dtp_mesh mesh;
    dtp_comm *c = NULL;
    dtp_err said = {0};
    DTP_TRY(dtp_mesh_parse(text, &mesh, err));
    DTP_TRY(dtp_comm_mpi_create(&mesh, &c, err));
    dtp_comm__mpi_share(c, share);
    dtp_status got =
        dtp_transport_run(&c->transport, c->rank == 0 ? &d->first : &d->other, in, out, &said);
    const bool right = got == DTP_COMM && strstr(said.msg, d->words[0]) != NULL &&
                       strstr(said.msg, d->words[1]) != NULL;
    dtp_status status =
        right ? DTP_OK
              : DTP_FAIL(err, DTP_INTERNAL, "rank %d: '%.600s' is not '%s', '%s'", c->rank,
                         got == DTP_OK ? "" : said.msg, d->words[0], d->words[1]);
    dtp_comm_destroy(c);
    return status;
}

/* One rank is late, through shared memory or messages; nobody aborts, so that all can tell. */
static dtp_status late_on(const char *text, bool share, dtp_err *err)
{
    dtp_mesh mesh;
    dtp_comm *c = NULL;
    DTP_TRY(dtp_mesh_parse(text, &mesh, err));
    DTP_TRY(dtp_comm_mpi_create(&mesh, &c, err));
    dtp_comm__mpi_share(c, share);
    dtp_status status = comm_suite_deadline(c, NULL, err);
    dtp_comm_destroy(c);
    return status;
}

/* The last rank sends nothing within the deadline, or fewer bytes than rank 0 expects. */
static dtp_status message_on(const char *text, bool late, dtp_err *err)
{
    char bytes[8] = {0};
    dtp_mesh mesh;
    dtp_comm *c = NULL;
    dtp_err said = {0};
    const struct timespec pause = {.tv_sec = 1};
    DTP_TRY(dtp_mesh_parse(text, &mesh, err));
    DTP_TRY(dtp_comm_mpi_create(&mesh, &c, err));
    const int32_t last = c->size - 1;
    const bool sends = c->rank == last;
    c->timeout_s = sends ? c->timeout_s : late ? 0.2 : 20;
    dtp_message m = {
        .peer = sends ? 0 : last, .sends = sends, .data = bytes, .bytes = sends ? 4 : 8};
    dtp_status got = DTP_COMM;
    if (c->rank == 0 || (sends && !late)) {
        got = c->transport.ops->post(&c->transport, &m, &said);
        got = got == DTP_OK ? c->transport.ops->finish(&c->transport, &m, &said) : got;
    } else if (sends) {
        (void)nanosleep(&pause, NULL);
    }
    char words[64];
    (void)snprintf(words, sizeof words, late ? "rank %d does not answer" : "4 bytes from rank %d",
                   last);
    const bool right = c->rank != 0 || (got == DTP_COMM && strstr(said.msg, words) != NULL);
    dtp_comm_destroy(c);
    return right ? DTP_OK : DTP_FAIL(err, DTP_INTERNAL, "'%.600s' is not '%s'", said.msg, words);
}

/* The last rank fails while the others wait for it: each of them gets its message, or the job ends
 * with it. */
static dtp_status leave_waiting(dtp_comm *c, dtp_err *err)
{
    float x = 0;
    dtp_coll coll = {.kind = DTP_ALL_REDUCE, .set = 1, .dtype = DTP_F32, .count = 1};
    if (c->rank == c->size - 1) {
        dtp_comm_abort(c, "on purpose");
    }
    return c->ops->run(c, &coll, &x, &x, err);
}

static dtp_status run(int ranks, bool fail, dtp_err *err)
{
    char line[32], wrong[32];
    snprintf(line, sizeof line, "x:%d", ranks);
    snprintf(wrong, sizeof wrong, "x:%d", ranks + 1);
    dtp_mesh mesh;
    dtp_comm *keep = NULL; /* keeps MPI alive over the checks */
    DTP_TRY(dtp_mesh_parse(line, &mesh, err));
    DTP_TRY(dtp_comm_mpi_create(&mesh, &keep, err));
    dtp_status status = fail ? leave_waiting(keep, err) : on_mesh(line, 0, err);
    if (status == DTP_OK) {
        status = on_mesh(line, INT32_MAX, err);
    }
    if (status == DTP_OK) {
        status = on_mesh(line, 7, err); /* counts above the limit of one call */
    }
    if (status == DTP_OK && ranks == 4) {
        status = on_mesh("x:2;y:2", 0, err);
    }
    if (status == DTP_OK && ranks == 4) {
        status = on_mesh("x:1;y:2;z:2", 1000, err);
    }
    for (int32_t i = 0; i < 2 * comm_n_disputes && status == DTP_OK && ranks > 1; i++) {
        status = dispute_on(line, &comm_disputes[i / 2], i % 2 == 0, err);
    }
    if (status == DTP_OK && ranks > 1) {
        status = late_on(line, true, err);
    }
    if (status == DTP_OK && ranks > 1) {
        status = late_on(line, false, err);
    }
    for (int32_t late = 0; late < 2 && status == DTP_OK && ranks > 1; late++) {
        status = message_on(line, late == 1, err);
    }
    dtp_err quiet = {0};
    if (status == DTP_OK && on_mesh(wrong, 0, &quiet) != DTP_INVALID) {
        status = DTP_FAIL(err, DTP_INTERNAL, "a mesh of %d ranks was accepted", ranks + 1);
    }
    dtp_comm_destroy(keep);
    return status;
}

int main(int argc, char **argv)
{
    dtp_err err = {0};
    int ranks = argc > 1 ? atoi(argv[1]) : 1;
    dtp_status status = run(ranks, argc > 2 && strcmp(argv[2], "fail") == 0, &err);
    if (status == DTP_UNSUPPORTED && strstr(err.msg, "no MPI") != NULL) {
        return 77;
    }
    if (status != DTP_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    return 0;
}
