/* dtp_comm_agree_status: every rank gets the reason of the lowest rank that failed. Runs on virtual
 * ranks and under MPI. */
#include <string.h>

#include "executor/comm/communicator.h"
#include "tests/support/misuse_main.h"

/* The call gave this code and these words, and the ranks can settle again. */
static dtp_status expect(dtp_comm *c, dtp_status got, dtp_status want, const char *words,
                         const dtp_err *said, dtp_err *err)
{
    if (got != want || strstr(said->msg, words) == NULL) {
        return DTP_FAIL(err, DTP_INTERNAL, "rank %d: got '%s' ('%.400s'), expected '%s' '%.300s'",
                        c->rank, dtp_status_text(got), said->msg, dtp_status_text(want), words);
    }
    return dtp_comm_agree_status(c, DTP_OK, err);
}

static dtp_status one_fails(dtp_comm *c, dtp_err *err)
{
    dtp_err said = {0};
    const bool last = c->rank == c->size - 1;
    dtp_status s = last ? DTP_FAIL(&said, DTP_RANGE, "label 17 is out of range") : DTP_OK;
    s = dtp_comm_agree_status(c, s, &said);
    return expect(c, s, last ? DTP_RANGE : DTP_COMM, last ? "label 17" : "failed: label 17 is out",
                  &said, err);
}

/* All ranks but one fail, each for another reason: that of the lowest is told. */
static dtp_status many_fail(dtp_comm *c, dtp_err *err)
{
    dtp_err said = {0};
    const bool last = c->rank == c->size - 1;
    dtp_status s = last ? DTP_OK : DTP_FAIL(&said, DTP_IO, "disk %d is full", c->rank);
    s = dtp_comm_agree_status(c, s, &said);
    return expect(c, s, last ? DTP_COMM : DTP_IO,
                  last ? "gives up because rank 0 failed: disk 0 is full" : "disk", &said, err);
}

/* The rank that fails keeps no message: its code is told. */
static dtp_status without_words(dtp_comm *c, dtp_err *err)
{
    dtp_err said = {0};
    dtp_status s =
        dtp_comm_agree_status(c, c->rank == 0 ? DTP_NOMEM : DTP_OK, c->rank == 0 ? NULL : &said);
    return expect(c, s, c->rank == 0 ? DTP_NOMEM : DTP_COMM,
                  c->rank == 0 ? "" : "rank 0 failed: out of memory", &said, err);
}

/* The longest message, and none that wants to hear it. */
static dtp_status long_words(dtp_comm *c, dtp_err *err)
{
    dtp_err said = {0};
    char text[2 * DTP_ERR_MSG_BYTES];
    memset(text, 'w', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    dtp_status s = c->rank == 0 ? DTP_FAIL(&said, DTP_INVALID, "%s", text) : DTP_OK;
    s = dtp_comm_agree_status(c, s, &said);
    DTP_TRY(expect(c, s, c->rank == 0 ? DTP_INVALID : DTP_COMM, "wwwwwwww", &said, err));
    s = c->rank == 0 ? DTP_FAIL(&said, DTP_INVALID, "%s", text) : DTP_OK;
    s = dtp_comm_agree_status(c, s, c->rank == 0 ? &said : NULL);
    return expect(c, s, c->rank == 0 ? DTP_INVALID : DTP_COMM, "", &said, err);
}

static const struct {
    const char *name;
    dtp_status (*body)(dtp_comm *c, dtp_err *err);
} CASES[] = {{"one_fails", one_fails},
             {"many_fail", many_fail},
             {"without_words", without_words},
             {"long_words", long_words}};

static const char *name(int32_t i, const dtp_mesh *mesh)
{
    (void)mesh;
    return CASES[i].name;
}

static dtp_status run_case(dtp_comm *c, void *user, dtp_err *err)
{
    return CASES[*(const int32_t *)user].body(c, err);
}

static dtp_status run(int32_t i, const char *text, dtp_err *err)
{
    dtp_mesh mesh;
    dtp_comm *c = NULL;
    DTP_TRY(dtp_mesh_parse(text, &mesh, err));
    if (!dtp_comm_in_mpi_job(environ)) {
        return dtp_comm_sim_run(&mesh, run_case, &i, err);
    }
    DTP_TRY(dtp_comm_mpi_create(&mesh, &c, err));
    const dtp_status s = CASES[i].body(c, err);
    dtp_comm_destroy(c);
    return s;
}

int main(int argc, char **argv)
{
    const misuse_suite suite = {
        .n = (int32_t)(sizeof CASES / sizeof CASES[0]), .name = name, .run = run};
    return misuse_main(&suite, argc, argv);
}
