/* A line on standard error that says what takes long: "planning, 12 s". On a terminal it is there
 * from two seconds on and changes every second; elsewhere a line is added every ten seconds. */
#include "tools/progress.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_S = 2, LINE_S = 10, SHORT_BYTES = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static const char *doing; /* NULL: nothing */
static char noted[128];
static int shown; /* columns of the line, 0: not shown */
static bool lines;

/* Waits until the work has ended or a second is over; says whether it goes on. */
static bool wait_until(const struct timespec *when)
{
    int code = 0;
    while (doing != NULL && code != ETIMEDOUT) {
        code = pthread_cond_timedwait(&ended, &lock, when);
    }
    return doing != NULL;
}

static void add_line(int s)
{
    (void)fprintf(stderr, "%s, %d s%s%s\n", doing, s, noted[0] != '\0' ? ": " : "", noted);
}

static void change_line(int s)
{
    const int columns =
        fprintf(stderr, "\r%s, %d s%s%s", doing, s, noted[0] != '\0' ? ": " : "", noted);
    (void)fprintf(stderr, "%*s", shown > columns ? shown - columns : 0, "");
    shown = columns > shown ? columns : shown;
    (void)fflush(stderr);
}

static void *show(void *user)
{
    const int first = lines ? LINE_S : FIRST_S, step = lines ? LINE_S : 1;
    struct timespec when;
    (void)user;
    (void)clock_gettime(CLOCK_REALTIME, &when);
    (void)pthread_mutex_lock(&lock);
    when.tv_sec += first;
    for (int s = first; wait_until(&when); s += step) {
        (lines ? add_line : change_line)(s);
        when.tv_sec += step;
    }
    (void)pthread_mutex_unlock(&lock);
    return NULL;
}

void tool_progress_begin(const char *what)
{
    if (doing != NULL) {
        return;
    }
    lines = isatty(STDERR_FILENO) == 0;
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
    (void)snprintf(noted, lines ? sizeof noted : SHORT_BYTES, "%s", note);
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
