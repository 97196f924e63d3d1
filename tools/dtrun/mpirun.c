/* A job under an mpirun of our own. */
#include "tools/dtrun/mpirun.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/strbuf.h"
#include "tools/interrupt.h"
#include "tools/options.h"

/* For the signal handlers. */
static volatile sig_atomic_t job;      /* process of mpirun */
static volatile sig_atomic_t received; /* the first signal */
static volatile sig_atomic_t again;    /* a second one came */
static volatile sig_atomic_t begun;    /* the ranks have said so */
static volatile sig_atomic_t said;     /* 1 + the exit code that they end with; 0: none yet */

enum {
    LAST_S = 30, /* how long mpirun has to end after its ranks, at most */
    END_S = 4    /* the same after a rank ended the job, and after a signal */
};

/* mpirun waits for a host that it cannot reach, whose daemon keeps the pipes open. What the ranks
 * said was passed on. */
static void end_now(int sig)
{
    static const char text[] = "dtrun: mpirun did not end, so it was killed: it waits for a host "
                               "that it cannot reach, or for ranks that hang\n";
    (void)sig;
    (void)kill(-(pid_t)job, SIGKILL);
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(said > 0 ? said - 1 : received != 0 ? 128 + received : TOOL_FAILURE);
}

static void forward(int sig)
{
    const int first = sig == SIGINT ? SIGUSR1 : SIGUSR2;
    (void)kill((pid_t)job, received == 0 ? first : SIGTERM);
    again = received != 0;
    if (again || !begun) {
        (void)alarm(END_S);
    }
    received = received == 0 ? sig : received;
}

static void handle(int sig, void (*handler)(int))
{
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART};
    (void)sigemptyset(&a.sa_mask);
    (void)sigaction(sig, &a, NULL);
}

/* ---- what mpirun says ---- */

static const char aborted[] = "MPI_ABORT was invoked on rank";

/* Words of messages about ranks that ended as they meant to, and of the one about a signal that
 * this process passed on. */
static bool is_noise(const char *text)
{
    static const char *const words[] = {"Primary job  terminated normally, but",
                                        "processes exited with non-zero status", aborted,
                                        "unexpectedly disconnected", "exited on signal"};
    const size_t n = sizeof words / sizeof *words - (received != 0 ? 0 : 1);
    for (size_t i = 0; i < n; i++) {
        if (strstr(text, words[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* ---- what rank 0 says ---- */

static const char mark[] = "\036dtrun ranks ";

void tool_mpirun_tell(int code)
{
    char line[48];
    if (getenv(TOOL_STARTED) != NULL) {
        const int n = snprintf(line, sizeof line, "%s%d\n", mark, code);
        (void)fflush(NULL);
        (void)!write(STDERR_FILENO, line, (size_t)n);
    }
}

/* Cuts what rank 0 says off a line; gives the time by which mpirun has to end. */
static double hear(char *line, double limit_s, double end_s)
{
    char *at = strstr(line, mark);
    if (at == NULL) {
        return end_s;
    }
    const int code = atoi(at + sizeof mark - 1);
    *at = '\0';
    if (code < 0) {
        begun = 1;
        (void)(again ? 0 : alarm(0));
        return INFINITY;
    }
    said = 1 + code;
    return dtp_now_s() + fmax(END_S, fmin(limit_s, LAST_S));
}

/* ---- passing on ---- */

/* The next line of a stream without a buffer, whose bytes are all in the pipe; false: its end.
 * Without one by `end_s` (INFINITY: no limit) the program ends. */
static bool next_line(FILE *from, double end_s, char **line, size_t *room)
{
    struct pollfd p = {.fd = fileno(from), .events = POLLIN};
    int ready;
    do {
        const double left_s = fmax(end_s - dtp_now_s(), 0.0);
        ready = left_s == 0.0 ? 0 : poll(&p, 1, isinf(left_s) ? -1 : (int)(1e3 * left_s) + 1);
    } while (ready < 0 && errno == EINTR);
    if (ready == 0) {
        end_now(0);
    }
    return getline(line, room, from) >= 0;
}

/* Passes lines on until mpirun and what it started have ended. */
static void pass_on(FILE *from, double limit_s, double made_s)
{
    static const char forwards[] = "mpirun: Forwarding signal";
    dtp_strbuf framed = {0};
    bool inside = false;
    char *line = NULL;
    size_t room = 0;
    /* ranks have this limit as well, and say more */
    double end_s = dtp_now_s() + made_s + limit_s + END_S;
    (void)setvbuf(from, NULL, _IONBF, 0);
    while (next_line(from, end_s, &line, &room)) {
        end_s = hear(line, limit_s, end_s);
        /* Open MPI frames each of its messages by lines of dashes. */
        const size_t dashes = strspn(line, "-");
        const bool bar = dashes > 60 && strcmp(line + dashes, "\n") == 0;
        if ((received != 0 && strncmp(line, forwards, sizeof forwards - 1) == 0) ||
            strstr(line, "sent help message help-mpi-api.txt") != NULL ||
            strstr(line, "\"orte_base_help_aggregate\"") != NULL) {
            continue;
        }
        if (inside || bar) {
            dtp_strbuf_add(&framed, line);
        } else {
            (void)fputs(line, stderr);
        }
        if (inside && bar) {
            if (strstr(dtp_strbuf_text(&framed), aborted) != NULL) {
                end_s = fmin(end_s, dtp_now_s() + END_S);
            }
            if (!is_noise(dtp_strbuf_text(&framed))) {
                (void)fputs(dtp_strbuf_text(&framed), stderr);
            }
            dtp_strbuf_free(&framed);
        }
        inside = bar ? !inside : inside;
    }
    (void)fputs(framed.len > 0 ? dtp_strbuf_text(&framed) : "", stderr);
    dtp_strbuf_free(&framed);
    free(line);
}

/* ---- its process ---- */

/* Pipes from the process: what it prints, what it says, and the reason why it did not start. */
enum { PRINTED, SAID, FAILED, N_PIPES };
typedef int ends[2];

static void close_pipes(ends *pipes, int n, int end)
{
    for (int i = 0; i < n; i++) {
        (void)close(pipes[i][end]);
    }
}

static bool make_pipes(ends pipes[N_PIPES])
{
    for (int i = 0; i < N_PIPES; i++) {
        if (pipe(pipes[i]) != 0) {
            close_pipes(pipes, i, 0);
            close_pipes(pipes, i, 1);
            return false;
        }
        (void)fcntl(pipes[i][0], F_SETFD, FD_CLOEXEC);
        (void)fcntl(pipes[i][1], F_SETFD, FD_CLOEXEC);
    }
    return true;
}

/* A group of its own: the terminal's signals go to this process alone. */
static void become(char *const *argv, pid_t parent, ends *pipes)
{
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent && dup2(pipes[PRINTED][1], STDOUT_FILENO) >= 0 &&
        dup2(pipes[SAID][1], STDERR_FILENO) >= 0) {
        execvp(argv[0], argv);
    }
    const int code = errno;
    (void)!write(pipes[FAILED][1], &code, sizeof code);
    _exit(127);
}

/* Starts it; the reading ends of PRINTED and SAID are the caller's. */
static dtp_status start(char *const *argv, ends pipes[N_PIPES], dtp_err *err)
{
    int code = 0;
    sigset_t ending, before;
    const pid_t parent = getpid();
    if (!make_pipes(pipes)) {
        return DTP_FAIL(err, DTP_COMM, "cannot start '%s': %s", argv[0], strerror(errno));
    }
    /* Open MPI gives rank 0 a terminal, which says nothing about where its output ends. */
    if (!isatty(STDOUT_FILENO)) {
        (void)setenv("NO_COLOR", "1", 1);
    }
    (void)setenv(TOOL_STARTED, isatty(STDERR_FILENO) ? TOOL_ON_TERMINAL : "1", 1);
    (void)fflush(NULL);
    (void)sigemptyset(&ending); /* no signal comes between the process and its handlers */
    (void)sigaddset(&ending, SIGINT);
    (void)sigaddset(&ending, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &ending, &before);
    const pid_t child = fork();
    if (child == 0) {
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        become(argv, parent, pipes);
    }
    code = child < 0 ? errno : 0;
    job = (sig_atomic_t)child;
    if (child > 0) {
        handle(SIGALRM, end_now);
        handle(SIGINT, forward);
        handle(SIGTERM, forward);
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    close_pipes(pipes, N_PIPES, 1);
    if (child > 0 && read(pipes[FAILED][0], &code, sizeof code) > 0) {
        (void)waitpid(child, NULL, 0);
    }
    (void)close(pipes[FAILED][0]);
    if (code != 0) {
        close_pipes(pipes, FAILED, 0);
        return DTP_FAIL(err, DTP_COMM, "cannot start '%s': %s (is Open MPI installed?)", argv[0],
                        strerror(code));
    }
    return DTP_OK;
}

/* mpirun forgets errors of its standard output; ours notes them until the end of the program. */
static void *print_on(void *user)
{
    const int from = *(const int *)user;
    char block[1 << 14];
    ssize_t n;
    while ((n = read(from, block, sizeof block)) > 0 || (n < 0 && errno == EINTR)) {
        (void)fwrite(block, 1, n > 0 ? (size_t)n : 0, stdout);
        (void)fflush(stdout);
    }
    return NULL;
}

/* Exit code of the process; a job that ended by the signal and not with its own account of it is
 * reported here. */
static int finish(void)
{
    int status = 0;
    while (waitpid((pid_t)job, &status, 0) < 0 && errno == EINTR) {
    }
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    const bool own = code == 0 || code == 128 + SIGINT || code == 128 + SIGTERM;
    if (received == 0 || (own && WIFEXITED(status))) {
        return code;
    }
    (void)fprintf(stderr, "dtrun: interrupted by %s\n", tool_interrupt_name(received));
    return 128 + received;
}

/* Passes on what mpirun prints and says, until it and all that it started have ended. */
static dtp_status follow(ends *pipes, double limit_s, double made_s, dtp_err *err)
{
    pthread_t printer;
    FILE *errors = fdopen(pipes[SAID][0], "r");
    const int code =
        errors == NULL ? ENOMEM : pthread_create(&printer, NULL, print_on, &pipes[PRINTED][0]);
    if (code != 0) {
        (void)kill((pid_t)job, SIGTERM);
    } else {
        pass_on(errors, limit_s, made_s);
        (void)pthread_join(printer, NULL);
    }
    (void)(errors != NULL ? fclose(errors) : close(pipes[SAID][0]));
    (void)close(pipes[PRINTED][0]);
    return code == 0 ? DTP_OK
                     : DTP_FAIL(err, DTP_NOMEM, "cannot follow mpirun: %s", strerror(code));
}

dtp_status tool_mpirun(char *const *argv, double limit_s, double made_s, int *code, dtp_err *err)
{
    ends pipes[N_PIPES];
    DTP_TRY(start(argv, pipes, err));
    const dtp_status s = follow(pipes, limit_s, made_s, err);
    *code = finish();
    handle(SIGINT, SIG_DFL);
    handle(SIGTERM, SIG_DFL);
    (void)alarm(0);
    return s;
}
