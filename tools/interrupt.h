/* Ending a run or a search in an orderly way when SIGINT or SIGTERM arrives. */
#ifndef DTP_TOOLS_INTERRUPT_H
#define DTP_TOOLS_INTERRUPT_H

#include <stdatomic.h>
#include <stdbool.h>

/* From here on the first of SIGINT and SIGTERM is only noted, also as SIGUSR1 and SIGUSR2, which
 * mpirun passes on to its ranks; the next one ends the process. */
void tool_interrupt_catch(void);
/* The signal noted, 0: none. */
const atomic_int *tool_interrupt_signal(void);
/* Not 0 once SIGTERM itself came, after which mpirun leaves a rank about a second. */
const atomic_int *tool_interrupt_killed(void);
/* Whether one was, for what asks by a hook. */
bool tool_interrupted(void *user);
/* "SIGINT", "SIGTERM". */
const char *tool_interrupt_name(int sig);

#endif
