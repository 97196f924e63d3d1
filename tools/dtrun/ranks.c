#include "tools/dtrun/ranks.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "executor/device/cpus.h"
#include "executor/run/devices.h"
#include "executor/run/launch.h"
#include "tools/dtrun/mpirun.h"
#include "tools/interrupt.h"

extern char **environ;

static dtp_status start_mpirun(tool_ranks *ranks, int32_t n, dtp_err *err)
{
    dtp_launch launch = {.ranks = n,
                         .threads = (int32_t)ranks->source->threads,
                         .cpus = dtp_cpus_usable(),
                         .cpus_per_core = dtp_cpus_per_core(),
                         .may_bind = dtp_cpus_all(),
                         .is_root = geteuid() == 0,
                         .allow_root = ranks->source->allow_root,
                         .environment = environ,
                         .exported = TOOL_STARTED,
                         .n_args = ranks->argc,
                         .args = ranks->argv};
    char **argv = NULL;
    int code = 0;
    DTP_TRY(dtp_launch_argv(&launch, &argv, err));
    const double limit_s =
        ranks->source->timeout_s > 0 ? ranks->source->timeout_s : DTP_COMM_TIMEOUT_S;
    /* Ranks read and lower what this process has, several of them on a core. */
    const double made_s = (double)(10 + n) * (double)clock() / CLOCKS_PER_SEC;
    dtp_status s = tool_mpirun(argv, limit_s, made_s, &code, err);
    dtp_launch_argv_free(argv);
    atomic_store(&ranks->code, code);
    return s;
}

/* What the ranks run. */
typedef struct ranks_body {
    tool_ranks *ranks;
    dtp_ranks_body body;
    void *user;
} ranks_body;

static dtp_status begin(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    const ranks_body *b = user;
    if (strcmp(comm->ops->name, "mpi") == 0 && comm->rank == 0) {
        b->ranks->first = true;
        tool_mpirun_tell(-1);
    }
    return b->body(comm, backend, b->user, err);
}

static int report(void *user, const dtp_err *err)
{
    (void)user;
    return tool_fail("dtrun", err);
}

static const dtp_comm_reporter reporter = {.report = report};

dtp_status tool_run_ranks(tool_ranks *ranks, const dtp_mesh *mesh, dtp_ranks_body body, void *user,
                          dtp_err *err)
{
    const int32_t n = dtp_mesh_ranks(mesh);
    const bool in_mpi = dtp_comm_in_mpi_job(environ);
    const char *comm = ranks->source->comm;
    if (comm == NULL) {
        comm = in_mpi || n > 1 ? "mpi" : "self";
    }
    const dtp_ranks_options options = {.comm = comm,
                                       .backend = ranks->source->backend,
                                       .transport = ranks->source->transport,
                                       .switches = ranks->source->switches,
                                       .threads = (int32_t)ranks->source->threads,
                                       .timeout_s = ranks->source->timeout_s,
                                       .ends = tool_interrupt_killed(),
                                       .rank = dtp_comm_launched_rank(environ),
                                       .reporter = &reporter};
    ranks_body b = {ranks, body, user};
    const dtp_device *device =
        dtp_device_builtin(ranks->source->backend); /* modules are for the ranks */
    if (device != NULL && device->transport == NULL && ranks->source->transport != NULL) {
        return DTP_FAIL(err, DTP_INVALID, "backend '%s' has no transport '%.40s'",
                        ranks->source->backend, ranks->source->transport);
    }
    ranks->met = true;
    if (strcmp(comm, "mpi") == 0 && in_mpi) {
        DTP_TRY(dtp_comm_check_launcher(environ, err));
    }
    return strcmp(comm, "mpi") == 0 && !in_mpi ? start_mpirun(ranks, n, err)
                                               : dtp_ranks_run(&options, mesh, begin, &b, err);
}

int tool_ranks_command(tool_ranks *ranks, const tool_call *call, int argc, char **argv)
{
    dtp_err err = {0};
    ranks->source = call->source;
    ranks->argc = argc + 1;
    ranks->argv = argv - 1;
    dtp_status s = tool_perform(call, argc, argv, &err);
    const bool mpi = ranks->source->comm == NULL || strcmp(ranks->source->comm, "mpi") == 0;
    dtp_err lone = {0}; /* the failure of a task that MPI does not connect is its own */
    if (s != DTP_OK && !ranks->met && mpi && dtp_comm_in_mpi_job(environ) &&
        dtp_comm_check_launcher(environ, &lone) == DTP_OK) {
        const dtp_ranks_options options = {.rank = dtp_comm_launched_rank(environ),
                                           .reporter = &reporter};
        s = dtp_ranks_fail(&options, s, &err);
    }
    const int code = s == DTP_OK ? atomic_load(&ranks->code) : tool_fail("dtrun", &err);
    if (ranks->first) {
        tool_mpirun_tell(code);
    }
    return code;
}

/* About 10 us: threads of a step meet within that when they have their cores, and where other
 * processes have them nothing is gained by looking on. */
static const char spin_count[] = "2000";

void tool_set_spin_count(char **argv)
{
    if (getenv("GOMP_SPINCOUNT") == NULL && getenv("OMP_WAIT_POLICY") == NULL &&
        setenv("GOMP_SPINCOUNT", spin_count, 1) == 0) {
        (void)execv("/proc/self/exe", argv);
    }
}

dtp_status dtrun_feeds_parse(const tool_list *list, dtrun_feeds *out, dtp_err *err)
{
    *out = (dtrun_feeds){.n = list->n};
    if (list->n == 0) {
        return DTP_OK;
    }
    out->texts = calloc((size_t)list->n, sizeof *out->texts);
    DTP_TRY(DTP_MEMORY(err, out->texts));
    for (int32_t i = 0; i < list->n; i++) {
        dtp_status s = dtp_feed_spec_parse(list->items[i], out->texts[i], &out->specs[i], err);
        if (s != DTP_OK) {
            dtp_err_prefix(err, "--feed");
            dtrun_feeds_free(out);
            return s;
        }
    }
    return DTP_OK;
}

void dtrun_feeds_free(dtrun_feeds *feeds)
{
    free(feeds->texts);
    *feeds = (dtrun_feeds){0};
}
