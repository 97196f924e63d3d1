/* Starting the ranks of a job with Open MPI's mpirun. */
#include "executor/run/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/comm/communicator.h"

/* Whether the environment gives mpirun hosts to use: an allocation of a batch system, or a host
 * file. Else ranks run on this machine. */
static bool has_hosts(char *const *environment)
{
    static const char *const marks[] = {"OMPI_MCA_orte_default_hostfile",
                                        "SLURM_NODELIST",
                                        "SLURM_JOB_NODELIST",
                                        "PBS_NODEFILE",
                                        "LSB_DJOB_HOSTFILE",
                                        "PE_HOSTFILE",
                                        NULL};
    return dtp_comm_environment_any(environment, marks) != NULL;
}

static bool is_one(char *const *environment, const char *name)
{
    const char *value = dtp_comm_environment(environment, name);
    return value != NULL && strcmp(value, "1") == 0;
}

typedef struct words {
    char **list;
    size_t n;
    bool failed;
} words;

static void add(words *w, const char *text)
{
    char *copy = strdup(text);
    w->failed = w->failed || copy == NULL;
    if (copy != NULL) {
        w->list[w->n++] = copy;
    }
}

dtp_status dtp_launch_argv(const dtp_launch *launch, char ***out, dtp_err *err)
{
    enum { OWN_WORDS = 16 };
    if (launch->ranks < 1 || launch->n_args < 1) {
        return DTP_FAIL(err, DTP_INVALID, "cannot start %d ranks of a command of %d words",
                        launch->ranks, launch->n_args);
    }
    /* Both variables are Open MPI's own way to allow root. */
    if (launch->is_root && !launch->allow_root &&
        !(is_one(launch->environment, "OMPI_ALLOW_RUN_AS_ROOT") &&
          is_one(launch->environment, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"))) {
        return DTP_FAIL(
            err, DTP_UNSUPPORTED,
            "Open MPI refuses to start ranks as root: give --allow-run-as-root, or set "
            "OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, or use --comm sim");
    }
    words w = {.list = calloc((size_t)launch->n_args + OWN_WORDS, sizeof *w.list)};
    DTP_TRY(DTP_MEMORY(err, w.list));
    char count[16];
    snprintf(count, sizeof count, "%d", launch->ranks);
    add(&w, launch->mpirun != NULL ? launch->mpirun : "mpirun");
    if (launch->is_root && launch->allow_root) {
        add(&w, "--allow-run-as-root");
    }
    if (launch->exported != NULL) {
        add(&w, "-x");
        add(&w, launch->exported);
    }
    add(&w, "-n");
    add(&w, count);
    add(&w, "--stdin");
    add(&w, "none");
    /* Where the ranks go. PE counts cores; more ranks than cores may share one. */
    const bool hosts = has_hosts(launch->environment);
    const int32_t fair = launch->cpus / launch->ranks, least = fair < 1 ? 1 : fair;
    const int32_t threads = launch->threads > 0 || hosts ? launch->threads : least;
    const int32_t smt = launch->cpus_per_core < 1 ? 1 : launch->cpus_per_core;
    const int64_t wanted = (int64_t)launch->ranks * threads;
    const bool fits = hosts ? threads > 0 : launch->may_bind && wanted <= launch->cpus;
    if (!hosts) {
        add(&w, "--oversubscribe");
    }
    if (fits) {
        char by[32];
        snprintf(by, sizeof by, "slot:PE=%d", (threads + smt - 1) / smt);
        add(&w, "--map-by");
        add(&w, by);
    }
    add(&w, "--bind-to");
    add(&w, fits ? "core:overload-allowed" : "none");
    for (int32_t i = 0; i < launch->n_args; i++) {
        add(&w, launch->args[i]);
    }
    if (w.failed) {
        dtp_launch_argv_free(w.list);
        return DTP_FAIL(err, DTP_NOMEM, "no memory for the command line of mpirun");
    }
    *out = w.list;
    return DTP_OK;
}

void dtp_launch_argv_free(char **argv)
{
    for (size_t i = 0; argv != NULL && argv[i] != NULL; i++) {
        free(argv[i]);
    }
    free(argv);
}
