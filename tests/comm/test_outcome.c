/* One outcome of a job: whoever fails and whoever notices first, all ranks get the failure of the
 * lowest rank that failed by itself, and one rank reports it. On virtual ranks, and in an MPI job.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "executor/run/ranks.h"

extern char **environ;

enum { RANKS = 4, NEVER = -1 };

typedef enum deed {
    RETURN, /* with the rank's failure, if it has one */
    SETTLE, /* with all ranks */
    GROUP,  /* a collective over the second mesh dim, then RETURN */
    WAIT,   /* for all ranks, which do not all come */
} deed;

typedef struct part {
    int32_t delay_ms;
    deed deed;
    dtp_status failure;
} part;

typedef struct job {
    const char *name;
    part parts[RANKS];
    int32_t cause; /* the rank whose failure counts; NEVER: none */
} job;

static const job jobs[] = {
    {"nobody fails", {{0}, {0}, {100, RETURN, DTP_OK}, {0}}, NEVER},
    {"the lower of two",
     {{0, WAIT, DTP_OK}, {0, RETURN, DTP_RANGE}, {0, RETURN, DTP_IO}, {0, WAIT, DTP_OK}},
     1},
    {"the lower one is late",
     {{0, WAIT, DTP_OK}, {200, RETURN, DTP_RANGE}, {0, RETURN, DTP_IO}, {0, WAIT, DTP_OK}},
     1},
    {"all fail, the lowest last",
     {{300, RETURN, DTP_IO},
      {200, RETURN, DTP_NOMEM},
      {100, RETURN, DTP_INVALID},
      {0, RETURN, DTP_COMM}},
     0},
    {"a verdict of all ranks",
     {{0, SETTLE, DTP_OK}, {0, SETTLE, DTP_OK}, {100, SETTLE, DTP_IO}, {0, SETTLE, DTP_OK}},
     2},
    {"others have ended",
     {{0, RETURN, DTP_OK}, {0, WAIT, DTP_OK}, {0, RETURN, DTP_OK}, {200, RETURN, DTP_RANGE}},
     3},
    {"a failure elsewhere comes first",
     {{200, GROUP, DTP_IO}, {200, GROUP, DTP_IO}, {0, GROUP, DTP_OK}, {0, RETURN, DTP_RANGE}},
     0},
};

static void sleep_ms(int32_t ms)
{
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static dtp_status own(const part *p, int32_t rank, dtp_err *err)
{
    return p->failure == DTP_OK ? DTP_OK : DTP_FAIL(err, p->failure, "rank %d by itself", rank);
}

static dtp_status play(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    const part *p = &((const job *)user)->parts[comm->rank];
    (void)backend;
    sleep_ms(p->delay_ms);
    if (p->deed == WAIT) {
        return comm->ops->barrier(comm, err);
    }
    if (p->deed == GROUP) {
        int64_t x = 1;
        const dtp_coll coll = {
            .kind = DTP_ALL_REDUCE, .set = 2, .op = DTP_REDUCE_SUM, .dtype = DTP_I64, .count = 1};
        DTP_TRY(comm->ops->run(comm, &coll, &x, &x, err));
    }
    dtp_status mine = own(p, comm->rank, err);
    return p->deed == SETTLE ? dtp_comm_agree_status(comm, mine, err) : mine;
}

static int count_report(void *user, const dtp_err *err)
{
    (void)err;
    ++*(int *)user;
    return 1;
}

/* Virtual ranks: once. MPI: on every process. */
static dtp_status check(const job *j, const char *comm, const dtp_mesh *mesh, int32_t rank,
                        dtp_err *err)
{
    char text[64] = "";
    int reports = 0;
    dtp_err got = {0};
    const dtp_comm_reporter reporter = {.report = count_report, .user = &reports};
    const dtp_ranks_options options = {
        .comm = comm, .backend = "cpu", .threads = 1, .reporter = &reporter};
    dtp_status status = dtp_ranks_run(&options, mesh, play, (void *)(uintptr_t)j, &got);
    const dtp_status want = j->cause == NEVER ? DTP_OK : j->parts[j->cause].failure;
    if (j->cause != NEVER) {
        snprintf(text, sizeof text, "rank %d by itself", j->cause);
    }
    const bool mpi = strcmp(comm, "mpi") == 0;
    const int told = mpi && rank == j->cause ? 1 : 0;
    if (status != want || got.code != want || strcmp(got.msg, text) != 0 || reports != told ||
        got.told != (mpi && want != DTP_OK)) {
        return DTP_FAIL(err, DTP_INTERNAL,
                        "%s, %s, rank %d: '%.200s' (code %d) reported %d times, expected '%s' (%d)",
                        comm, j->name, rank, got.msg, (int)status, reports, text, (int)want);
    }
    return DTP_OK;
}

static dtp_status check_all(dtp_err *err)
{
    const bool mpi = dtp_comm_in_mpi_job(environ);
    dtp_mesh mesh;
    dtp_comm *keep = NULL; /* MPI starts once */
    DTP_TRY(dtp_mesh_parse("a:2;b:2", &mesh, err));
    if (mpi) {
        DTP_TRY(dtp_comm_mpi_create(&mesh, &keep, err));
    }
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        dtp_status status =
            check(&jobs[i], mpi ? "mpi" : "sim", &mesh, keep != NULL ? keep->rank : 0, err);
        if (status != DTP_OK) {
            return status; /* the communicator ends with the process */
        }
    }
    dtp_comm_destroy(keep);
    return DTP_OK;
}

int main(void)
{
    dtp_err err = {0};
    if (check_all(&err) != DTP_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    return 0;
}
