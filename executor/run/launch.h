/* Starting the ranks of a job with Open MPI's mpirun. */
#ifndef DTP_EXECUTOR_RUN_LAUNCH_H
#define DTP_EXECUTOR_RUN_LAUNCH_H

#include "core/base/strbuf.h"

typedef struct dtp_launch {
    int32_t ranks;
    int32_t threads;          /* per rank; 0: the ranks choose */
    int32_t cpus;             /* that this process may use, for a job on this machine */
    int32_t cpus_per_core;    /* of this machine; 0 counts as 1 */
    bool may_bind;            /* these are all of the machine: mpirun knows no other set */
    bool is_root;             /* effective user 0 */
    bool allow_root;          /* the user's flag --allow-run-as-root */
    char *const *environment; /* "NAME=value" list, such as environ */
    const char *mpirun;       /* NULL: "mpirun" */
    const char *exported;     /* variable of this process that ranks of all hosts get; NULL: none */
    int32_t n_args;           /* the program to start and its arguments */
    char *const *args;
} dtp_launch;

/* The command line, NULL-terminated; free with dtp_launch_argv_free. On this machine every rank is
 * bound to as many cores as its threads need when there are enough for all, else to none, and there
 * may be more ranks than cores. Given hosts say by their slots how many ranks fit; ranks are bound
 * there when `threads` is known. Standard input goes to no rank. As root Open MPI needs to be
 * allowed: the flag, or OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 in the
 * environment; else DTP_UNSUPPORTED saying so. */
dtp_status dtp_launch_argv(const dtp_launch *launch, char ***out, dtp_err *err) DTP_MUST_CHECK;
void dtp_launch_argv_free(char **argv);

#endif
