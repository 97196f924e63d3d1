/* A job under an mpirun of our own. */
#ifndef DTP_TOOLS_DTRUN_MPIRUN_H
#define DTP_TOOLS_DTRUN_MPIRUN_H

#include "dtp/status.h"

/* Runs the command line of an mpirun and gives its exit code; 128 + the number of the signal that
 * ended it. Passes on what it prints, and what it says without Open MPI's account of ranks that
 * ended with an exit code: they report themselves. SIGINT and SIGTERM reach the ranks as SIGUSR1
 * and SIGUSR2, so that Open MPI leaves them time; another signal ends mpirun. mpirun ends with this
 * process. DTP_COMM: it cannot be started. DTP_NOMEM. */
dtp_status tool_mpirun(char *const *argv, int *code, dtp_err *err) DTP_MUST_CHECK;

#endif
