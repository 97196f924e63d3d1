/* What the command line says about ranks and their data, and starting them. */
#ifndef DTP_TOOLS_DTRUN_RANKS_H
#define DTP_TOOLS_DTRUN_RANKS_H

#include <stdatomic.h>

#include "dtp/status.h"
#include "executor/run/ranks.h"
#include "executor/session/feed.h"
#include "tools/options.h"

typedef struct tool_ranks {
    const tool_source *source; /* what the command line says of them; set by tool_ranks_command */
    const tool_call *call;     /* likewise */
    char **argv;               /* the whole command line, to start it again under mpirun */
    int argc;
    bool first;      /* this process has run rank 0 of an MPI job */
    bool met;        /* the ranks came to one outcome, or mpirun ran them */
    atomic_int code; /* exit code when nothing failed; a body sets it on every rank alike */
} tool_ranks;

/* Runs body on all ranks of the mesh. Alone with more than one rank and neither --comm sim nor an
 * MPI job around us: starts mpirun, waits for it and takes over its exit code as `code`. */
dtp_status tool_run_ranks(tool_ranks *ranks, const dtp_mesh *mesh, dtp_ranks_body body, void *user,
                          dtp_err *err) DTP_MUST_CHECK;

/* As tool_run, for a sub-command (argv[0] is its name, argv[-1] the program) that runs ranks. In an
 * MPI job a failure before they run is that of all, and printed once. */
int tool_ranks_command(tool_ranks *ranks, const tool_call *call, int argc, char **argv);

/* How long threads look for work before they sleep, which OpenMP reads from the environment when it
 * is loaded: the process starts itself again once with GOMP_SPINCOUNT set, unless the user has said
 * how threads wait (docs/ranks.md). */
void tool_set_spin_count(char **argv);

/* --feed texts, parsed. */
typedef struct dtrun_feeds {
    int32_t n;
    dtp_feed_spec specs[TOOL_LIST_MAX];
    char (*texts)[DTP_FEED_TEXT_BYTES];
} dtrun_feeds;

dtp_status dtrun_feeds_parse(const tool_list *list, dtrun_feeds *out, dtp_err *err) DTP_MUST_CHECK;
void dtrun_feeds_free(dtrun_feeds *feeds);

#endif
