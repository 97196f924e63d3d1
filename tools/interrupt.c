/* Ending a run or a search in an orderly way when SIGINT or SIGTERM arrives. */
#include "tools/interrupt.h"

#include <signal.h>
#include <stddef.h>

static atomic_int noted, killed; /* lock-free: a handler may write it, any thread reads it */

static void note(int sig)
{
    if (noted != 0) {
        (void)signal(sig, SIG_DFL);
        (void)raise(sig); /* delivered when this handler returns */
    }
    killed = sig == SIGTERM;
    noted = sig == SIGINT || sig == SIGUSR1 ? SIGINT : SIGTERM;
}

void tool_interrupt_catch(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction a = {.sa_handler = note, .sa_flags = SA_RESTART};
        (void)sigemptyset(&a.sa_mask);
        (void)sigaction(signals[i], &a, NULL);
    }
}

const atomic_int *tool_interrupt_signal(void)
{
    return &noted;
}

const atomic_int *tool_interrupt_killed(void)
{
    return &killed;
}

bool tool_interrupted(void *user)
{
    (void)user;
    return noted != 0;
}

const char *tool_interrupt_name(int sig)
{
    return sig == SIGINT ? "SIGINT" : "SIGTERM";
}
