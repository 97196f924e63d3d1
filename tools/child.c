/* Programs that a command starts and waits for. */
#include "tools/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/files/file_in.h"
#include "tools/progress.h"

dtp_status tool_program_path(char *path, size_t size, dtp_err *err)
{
    const ssize_t n = readlink("/proc/self/exe", path, size);
    if (n < 0 || (size_t)n >= size) {
        return DTP_FAIL(err, DTP_IO, "/proc/self/exe: %s", strerror(n < 0 ? errno : ENAMETOOLONG));
    }
    path[n] = '\0';
    return DTP_OK;
}

enum { PATH_BYTES = 4096, END_S = 5 }; /* how long they have to end */

/* ---- files without a name ---- */

dtp_status tool_unnamed_file(int *fd, dtp_err *err)
{
    char path[PATH_BYTES];
    const char *folder = getenv("TMPDIR");
    const int n = snprintf(path, sizeof path, "%s/dtp-XXXXXX",
                           folder != NULL && folder[0] != '\0' ? folder : "/tmp");
    if (n >= (int)sizeof path) {
        return DTP_FAIL(err, DTP_IO, "TMPDIR: the path is too long");
    }
    *fd = mkstemp(path);
    if (*fd < 0) {
        return DTP_FAIL(err, DTP_IO, "%s: cannot make a temporary file: %s", path, strerror(errno));
    }
    (void)unlink(path);
    (void)fcntl(*fd, F_SETFD, FD_CLOEXEC);
    return DTP_OK;
}

dtp_status tool_unnamed_read(int fd, size_t max_bytes, char **text, size_t *len, dtp_err *err)
{
    char path[32];
    (void)snprintf(path, sizeof path, "/dev/fd/%d", fd);
    return dtp_file_read(path, max_bytes, text, len, err);
}

/* ---- signals ---- */

static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_ENDING = sizeof ending / sizeof *ending };

/* For the handler. */
static volatile sig_atomic_t children[TOOL_CHILDREN_MAX]; /* process groups, 0: none */
static volatile sig_atomic_t received;                    /* the first signal */

static int n_children;
static struct sigaction before[N_ENDING + 1]; /* of the signals, and of SIGALRM */

static void tell(int sig)
{
    for (int i = 0; i < TOOL_CHILDREN_MAX; i++) {
        if (children[i] > 0) {
            (void)kill(-(pid_t)children[i], sig);
        }
    }
}

static void end_children(int sig)
{
    tell(received == 0 ? SIGTERM : SIGKILL);
    if (received == 0) {
        received = sig;
        (void)alarm(END_S);
    }
}

/* A signal that is ignored, as in a job of nohup, stays so. */
static void catch_signals(void)
{
    struct sigaction a = {.sa_handler = end_children};
    (void)sigemptyset(&a.sa_mask);
    for (int i = 0; i < N_ENDING; i++) {
        (void)sigaddset(&a.sa_mask, ending[i]);
    }
    (void)sigaddset(&a.sa_mask, SIGALRM);
    for (int i = 0; i <= N_ENDING; i++) {
        const int sig = i < N_ENDING ? ending[i] : SIGALRM;
        (void)sigaction(sig, NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) {
            (void)sigaction(sig, &a, NULL);
        }
    }
}

static void leave_signals(void)
{
    for (int i = 0; i <= N_ENDING; i++) {
        (void)sigaction(i < N_ENDING ? ending[i] : SIGALRM, &before[i], NULL);
    }
}

static void block_signals(bool on)
{
    sigset_t set;
    (void)sigemptyset(&set);
    for (int i = 0; i < N_ENDING; i++) {
        (void)sigaddset(&set, ending[i]);
    }
    (void)sigprocmask(on ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

/* ---- processes ---- */

static void become(const char *program, char *const *argv, int out, int errors, pid_t parent)
{
    const int none = open("/dev/null", O_RDONLY);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    leave_signals();
    block_signals(false);
    if (getppid() != parent || none < 0 || dup2(none, STDIN_FILENO) < 0 ||
        (out >= 0 && dup2(out, STDOUT_FILENO) < 0) ||
        (errors >= 0 && dup2(errors, STDERR_FILENO) < 0)) {
        _exit(127);
    }
    (void)execvp(program, argv);
    (void)fprintf(stderr, "%s: %s\n", program, strerror(errno));
    (void)fflush(stderr);
    _exit(127);
}

static int free_place(void)
{
    int i = 0;
    while (i < TOOL_CHILDREN_MAX && children[i] > 0) {
        i++;
    }
    return i;
}

dtp_status tool_child_start(const char *program, char *const *argv, int out, int errors, pid_t *pid,
                            dtp_err *err)
{
    const pid_t parent = getpid();
    const int place = free_place();
    if (received != 0) {
        (void)tool_child_wait(-1, NULL); /* does not return */
    }
    if (place == TOOL_CHILDREN_MAX) {
        return DTP_FAIL(err, DTP_INTERNAL, "more than %d programs at a time", TOOL_CHILDREN_MAX);
    }
    if (n_children == 0) {
        catch_signals();
    }
    (void)fflush(NULL);
    block_signals(true);
    *pid = fork();
    if (*pid == 0) {
        become(program, argv, out, errors, parent);
    }
    const int code = errno;
    if (*pid > 0) {
        (void)setpgid(*pid, *pid);
        children[place] = (sig_atomic_t)*pid;
        n_children++;
    } else if (n_children == 0) {
        leave_signals();
    }
    block_signals(false);
    return *pid > 0 ? DTP_OK
                    : DTP_FAIL(err, DTP_IO, "cannot start '%s': %s", program, strerror(code));
}

static void forget(pid_t pid)
{
    for (int i = 0; i < TOOL_CHILDREN_MAX; i++) {
        if (children[i] == (sig_atomic_t)pid) {
            children[i] = 0;
            n_children--;
        }
    }
    if (n_children == 0 && received == 0) {
        leave_signals();
    }
}

/* Ends this process by the signal that came. */
static void end_by_signal(void)
{
    const int sig = received;
    tool_progress_end();
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
    _exit(128 + sig);
}

pid_t tool_child_wait(pid_t pid, int *status)
{
    for (;;) {
        int code = 0;
        const pid_t ended = waitpid(received != 0 ? -1 : pid, &code, 0);
        if (ended > 0) {
            forget(ended);
        }
        if (received != 0) {
            if (n_children == 0) {
                end_by_signal();
            }
            continue;
        }
        if (ended > 0 || errno != EINTR) {
            if (status != NULL) {
                *status = code;
            }
            return ended;
        }
    }
}
