/* A job under an mpirun of our own. */
#ifndef DTP_TOOLS_DTRUN_MPIRUN_H
#define DTP_TOOLS_DTRUN_MPIRUN_H

#include "dtp/status.h"

/* Runs the command line of an mpirun and gives its exit code; 128 + the number of the signal that
 * ended it. Passes on what it prints, and what it says without Open MPI's account of ranks that
 * ended with an exit code: they report themselves. SIGINT and SIGTERM reach the ranks as SIGUSR1
 * and SIGUSR2, so that Open MPI leaves them time. mpirun ends with this process.
 *
 * mpirun waits for ever for a host that it cannot reach. It is killed, and this process ends with a
 * message, when the ranks have not begun within limit_s and the time that they need before
 * (made_s), some time after they have said that they end (with the exit code that they said) or one
 * has ended the job, and after a signal: the first one before ranks have begun, else the second.
 * DTP_COMM: it cannot be started. DTP_NOMEM. */
dtp_status tool_mpirun(char *const *argv, double limit_s, double made_s, int *code,
                       dtp_err *err) DTP_MUST_CHECK;

/* What rank 0 tells the mpirun above: the ranks have begun (code < 0), or they end with this exit
 * code. Nothing when another launcher has started it. */
void tool_mpirun_tell(int code);

#endif
