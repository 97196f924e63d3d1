/* A line on standard error that says what takes long: "planning, 12 s", from two seconds on, on
 * a terminal alone. */
#include "tools/progress.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_S = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static const char *doing; /* NULL: nothing */
static char noted[64];
static int shown; /* columns of the line, 0: not shown */

/* Waits until the work has ended or a second is over; says whether it goes on. */
static bool wait_until(const struct timespec *when)
{
    int code = 0;
    while (doing != NULL && code != ETIMEDOUT) {
        code = pthread_cond_timedwait(&ended, &lock, when);
    }
    return doing != NULL;
}

static void *show(void *user)
{
    struct timespec when;
    (void)user;
    (void)clock_gettime(CLOCK_REALTIME, &when);
    (void)pthread_mutex_lock(&lock);
    when.tv_sec += FIRST_S;
    for (int s = FIRST_S; wait_until(&when); s++) {
        const int columns =
            fprintf(stderr, "\r%s, %d s%s%s", doing, s, noted[0] != '\0' ? ": " : "", noted);
        (void)fprintf(stderr, "%*s", shown > columns ? shown - columns : 0, "");
        shown = columns > shown ? columns : shown;
        (void)fflush(stderr);
        when.tv_sec++;
    }
    (void)pthread_mutex_unlock(&lock);
    return NULL;
}

void tool_progress_begin(const char *what)
{
    if (isatty(STDERR_FILENO) == 0 || doing != NULL) {
        return;
    }
    doing = what;
    noted[0] = '\0';
    shown = 0;
    if (pthread_create(&thread, NULL, show, NULL) != 0) {
        doing = NULL;
    }
}

void tool_progress_note(const char *note)
{
    (void)pthread_mutex_lock(&lock);
    (void)snprintf(noted, sizeof noted, "%s", note);
    (void)pthread_mutex_unlock(&lock);
}

void tool_progress_end(void)
{
    if (doing == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&lock);
    doing = NULL;
    (void)pthread_cond_signal(&ended);
    (void)pthread_mutex_unlock(&lock);
    (void)pthread_join(thread, NULL);
    if (shown > 0) {
        (void)fprintf(stderr, "\r%*s\r", shown, "");
        (void)fflush(stderr);
    }
}
