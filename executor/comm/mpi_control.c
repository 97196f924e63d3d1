/* The deadlock detector between hosts (mpi_control.h).
 *
 * A rank whose collective is not done within the deadline asks all others what they do. Those that
 * do not answer within a second are stopped, dead or cut off; those that wait are asked for whom,
 * and so on: what remains are ranks that do not answer or have not come, or a circle. The rank
 * tells all others this verdict, which ends the job on each of them at its next look. A rank whose
 * process is about to be killed, as mpirun does when another one ended, asks at once.
 */
#include "executor/comm/mpi_control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"

enum {
    TAG_CONTROL = 9,
    ANSWER_MS = 1000,     /* for answers to arrive */
    ANSWER_ENDS_MS = 200, /* the same when the process is about to be killed */
    SAY_MS = 200          /* for messages to leave */
};

typedef enum control_kind { ASK, ANSWER, FAILS, LOST } control_kind;

struct dtp_comm__control {
    control_kind kind;
    int32_t rank; /* FAILS, LOST: who says so first */
    dtp_comm__answer answer;
    char text[DTP_ERR_MSG_BYTES];
    MPI_Request request; /* of the sender */
    dtp_comm__control *next;
};

dtp_status dtp_comm__control_create(dtp_comm__remote *r, dtp_err *err)
{
    const size_t n = (size_t)r->base->size;
    r->hearing = MPI_REQUEST_NULL;
    r->failed_rank = -1;
    r->heard = calloc(1, sizeof *r->heard);
    r->answers = calloc(n, sizeof *r->answers);
    r->failed = calloc(n, sizeof *r->failed);
    r->visits = calloc(n, sizeof *r->visits);
    return DTP_MEMORY(err, r->heard, r->answers, r->failed, r->visits);
}

void dtp_comm__control_destroy(dtp_comm__remote *r)
{
    while (r->said != NULL) {
        dtp_comm__control *next = r->said->next;
        int done = 0;
        if (MPI_Test(&r->said->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done) {
            break; /* MPI may still read it */
        }
        free(r->said);
        r->said = next;
    }
    free(r->heard);
    free(r->answers);
    free(r->failed);
    free(r->visits);
}

static dtp_status hear(dtp_comm__remote *r, dtp_err *err)
{
    const int code = MPI_Irecv(r->heard, sizeof *r->heard, MPI_BYTE, MPI_ANY_SOURCE, TAG_CONTROL,
                               r->world, &r->hearing);
    return dtp_comm__mpi_check(code, r->base->rank, "MPI_Irecv", err);
}

dtp_status dtp_comm__control_begin(dtp_comm__remote *r, dtp_err *err)
{
    return r->hearing == MPI_REQUEST_NULL ? hear(r, err) : DTP_OK;
}

/* A message that cannot be sent is as one that does not arrive. */
static void say(dtp_comm__remote *r, int32_t to, const dtp_comm__control *what)
{
    dtp_comm__control *c = malloc(sizeof *c);
    if (c == NULL) {
        return;
    }
    *c = *what;
    if (MPI_Isend(c, sizeof *c, MPI_BYTE, to, TAG_CONTROL, r->world, &c->request) != MPI_SUCCESS) {
        free(c);
        return;
    }
    c->next = r->said;
    r->said = c;
}

static void say_all(dtp_comm__remote *r, const dtp_comm__control *what)
{
    for (int32_t i = 0; i < r->base->size; i++) {
        if (i != r->base->rank) {
            say(r, i, what);
        }
    }
}

/* Frees what has left; whether all has. */
static bool all_said(dtp_comm__remote *r)
{
    for (dtp_comm__control **at = &r->said; *at != NULL;) {
        dtp_comm__control *c = *at;
        int done = 0;
        if (MPI_Test(&c->request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done) {
            *at = c->next;
            free(c);
        } else {
            at = &c->next;
        }
    }
    return r->said == NULL;
}

static void pause_ms(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    (void)nanosleep(&pause, NULL);
}

static void let_leave(dtp_comm__remote *r)
{
    for (int32_t ms = 0; ms < SAY_MS && !all_said(r); ms++) {
        pause_ms();
    }
}

/* ---- states ---- */

/* What this rank waits in: a message, before a collective that goes on beside it; NULL: neither. */
static const dtp_coll *at_hand(const dtp_comm__remote *r)
{
    return r->wait.on ? &r->wait.coll : r->awaited_wave != NULL ? r->coll : NULL;
}

/* Ranks that it waits for in it. */
static int32_t missing_here(const dtp_comm__remote *r, int32_t most, int32_t *missing)
{
    const dtp_mesh *mesh = &r->base->mesh;
    const int32_t n = r->wait.on || at_hand(r) == NULL ? 0 : dtp_mesh_set_size(mesh, r->coll->set);
    int32_t found = r->wait.on ? 1 : 0;
    missing[0] = r->wait.peer;
    for (int32_t i = 0; i < n && found < most; i++) {
        if (r->awaited_wave[i] != MPI_REQUEST_NULL || r->awaited_wave[n + i] != MPI_REQUEST_NULL) {
            missing[found++] = dtp_mesh_set_member(mesh, r->coll->set, r->base->rank, i);
        }
    }
    return found;
}

/* What this rank does. */
static dtp_comm__answer state_of(const dtp_comm__remote *r)
{
    dtp_comm__answer a = {.answered = true, .kind = DTP_COMM_RUNS};
    if (at_hand(r) != NULL) {
        a.coll = *at_hand(r);
        a.n_missing = missing_here(r, DTP_COMM_MISSING, a.missing);
    } else if (r->shared != NULL) {
        a.n_missing = dtp_comm__deadlock_missing(r->shared, r->base->rank, DTP_COMM_MISSING,
                                                 a.missing, &a.coll);
    }
    a.kind = a.n_missing > 0 ? DTP_COMM_WAITS : DTP_COMM_RUNS;
    return a;
}

static void take(dtp_comm__remote *r, int32_t from, const dtp_comm__control *c)
{
    dtp_comm__control answer;
    switch (c->kind) {
    case ASK:
        answer = (dtp_comm__control){.kind = ANSWER, .answer = state_of(r)};
        say(r, from, &answer);
        break;
    case ANSWER:
        r->answers[from] = c->answer;
        break;
    case FAILS:
        r->failed[from] = true;
        if (r->failed_rank < 0) {
            r->failed_rank = c->rank;
            memcpy(r->why, c->text, sizeof r->why);
        }
        break;
    case LOST:
        dtp_comm__remote_lose(r, c->rank, c->text);
        break;
    }
}

void dtp_comm__control_listen(dtp_comm__remote *r)
{
    MPI_Status status;
    int come = 0;
    while (r->hearing != MPI_REQUEST_NULL && MPI_Test(&r->hearing, &come, &status) == MPI_SUCCESS &&
           come) {
        take(r, status.MPI_SOURCE, r->heard);
        (void)hear(r, NULL);
    }
    (void)all_said(r);
    /* This rank found out, here or in shared memory. */
    if (atomic_load(&r->lost) && !r->announced) {
        dtp_comm__control lost = {.kind = LOST, .rank = r->base->rank};
        r->announced = true;
        pthread_mutex_lock(&r->lock);
        const bool mine = r->issuer == r->base->rank;
        memcpy(lost.text, r->failure.msg, sizeof lost.text);
        pthread_mutex_unlock(&r->lock);
        if (mine) {
            say_all(r, &lost);
            let_leave(r);
        }
    }
}

/* ---- the deadline ---- */

static double tenths(double s)
{
    return (double)(int64_t)(10 * s) / 10;
}

/* The ranks that keep this one waiting: those that do not answer or have not come, through the
 * ranks that wait for them. Returns whether one does not answer. */
static bool find_late(dtp_comm__remote *r, double waited_s, char text[DTP_ERR_MSG_BYTES])
{
    const int32_t size = r->base->size, me = r->base->rank;
    bool found = false, silent = false;
    r->answers[me] = state_of(r);
    for (int32_t i = 0; i < size; i++) {
        r->visits[i] = (dtp_comm__visit){.state = DTP_COMM_VISIT_NONE};
    }
    r->visits[me] = (dtp_comm__visit){.state = DTP_COMM_VISIT_WAITS, .coll = &r->answers[me].coll};
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t i = 0; i < size; i++) {
            const dtp_comm__answer *a = &r->answers[i];
            for (int32_t k = 0; k < a->n_missing && r->visits[i].state == DTP_COMM_VISIT_WAITS;
                 k++) {
                const int32_t m = a->missing[k];
                const dtp_comm__answer *its = &r->answers[m];
                if (r->visits[m].state != DTP_COMM_VISIT_NONE) {
                    continue;
                }
                changed = true;
                r->visits[m].coll = &its->coll;
                r->visits[m].state = !its->answered                ? DTP_COMM_VISIT_SILENT
                                     : its->kind == DTP_COMM_WAITS ? DTP_COMM_VISIT_WAITS
                                                                   : DTP_COMM_VISIT_LATE;
                found = found || r->visits[m].state != DTP_COMM_VISIT_WAITS;
                silent = silent || !its->answered;
            }
        }
    }
    if (found) {
        dtp_comm__describe_late(&r->base->mesh, size, r->visits, me, r->visits[me].coll, waited_s,
                                text);
    } else {
        dtp_comm__describe_waits(&r->base->mesh, size, r->visits, text);
    }
    return silent;
}

/* After `waited_s`: asks all others. When they have answered, or after limit_ms, the ranks are
 * lost; unless `late`, only if one that this rank waits for does not answer. */
static dtp_status ask_all(dtp_comm__remote *r, double waited_s, int32_t limit_ms, bool late,
                          dtp_err *err)
{
    char text[DTP_ERR_MSG_BYTES];
    const dtp_comm__control ask = {.kind = ASK};
    int32_t silent = r->base->size - 1;
    memset(r->answers, 0, (size_t)r->base->size * sizeof *r->answers);
    say_all(r, &ask);
    for (int32_t ms = 0; ms < limit_ms && silent > 0; ms++) {
        dtp_comm__control_listen(r);
        DTP_TRY(dtp_comm__remote_failure(r, err));
        pause_ms();
        silent = r->base->size - 1;
        for (int32_t i = 0; i < r->base->size; i++) {
            silent -= i != r->base->rank && r->answers[i].answered ? 1 : 0;
        }
    }
    if (!find_late(r, waited_s, text) && !late) {
        return DTP_OK;
    }
    dtp_comm__remote_lose(r, r->base->rank, text);
    dtp_comm__control_listen(r);
    return dtp_comm__remote_failure(r, err);
}

dtp_status dtp_comm__control_check(dtp_comm__remote *r, dtp_err *err)
{
    enum { MOST = 64 };
    int32_t missing[MOST];
    if (at_hand(r) == NULL) {
        return DTP_OK;
    }
    const int32_t n = r->failed_rank >= 0 ? missing_here(r, MOST, missing) : 0;
    for (int32_t i = 0; i < n; i++) {
        if (r->failed[missing[i]]) {
            return dtp_comm__relay(err, r->base->rank, r->failed_rank, r->why);
        }
    }
    const double waited_s = dtp_now_s() - (r->wait.on ? r->wait.since_s : r->since_s);
    if (waited_s >= r->base->timeout_s) {
        return ask_all(r, r->base->timeout_s, ANSWER_MS, true, err);
    }
    if (r->base->ends != NULL && atomic_load(r->base->ends) != 0 && !r->asked) {
        r->asked = true;
        return ask_all(r, tenths(waited_s), ANSWER_ENDS_MS, false, err);
    }
    return DTP_OK;
}

void dtp_comm__control_lose(dtp_comm__remote *r, const dtp_coll *coll, double waited_s,
                            const char *why)
{
    enum { MOST = 64 };
    char text[DTP_ERR_MSG_BYTES];
    const dtp_mesh *mesh = &r->base->mesh;
    const int32_t size = r->base->size, me = r->base->rank;
    int32_t missing[MOST], n = 0;
    if (r->wait.on || r->coll != NULL) {
        coll = r->wait.on ? &r->wait.coll : r->coll;
        n = missing_here(r, MOST, missing);
    }
    if (n == 0) { /* before or between its messages */
        for (; n < MOST && n < dtp_mesh_set_size(mesh, coll->set); n++) {
            missing[n] = dtp_mesh_set_member(mesh, coll->set, me, n);
        }
    }
    memset(r->visits, 0, (size_t)size * sizeof *r->visits);
    for (int32_t i = 0; i < n; i++) {
        r->visits[missing[i]].state = missing[i] != me ? DTP_COMM_VISIT_LATE : DTP_COMM_VISIT_NONE;
    }
    dtp_comm__describe_late(mesh, size, r->visits, me, coll, tenths(waited_s), text);
    const size_t len = strlen(text);
    (void)snprintf(text + len, sizeof text - len, "%s%s", why != NULL ? ": " : "",
                   why != NULL ? why : "");
    dtp_comm__remote_lose(r, me, text);
}

void dtp_comm__control_end(dtp_comm__remote *r)
{
    dtp_comm__control_listen(r);
    if (r->last_words != NULL && !atomic_load(&r->lost) && r->hearing != MPI_REQUEST_NULL) {
        dtp_comm__control fails = {.kind = FAILS, .rank = r->base->rank};
        /* of what another rank said, that one is the cause */
        if (r->failed_rank >= 0) {
            fails.rank = r->failed_rank;
            memcpy(fails.text, r->why, sizeof fails.text);
        } else {
            strncpy(fails.text, r->last_words, sizeof fails.text - 1);
        }
        say_all(r, &fails);
        let_leave(r);
    }
    if (r->hearing != MPI_REQUEST_NULL) {
        (void)MPI_Cancel(&r->hearing);
        (void)MPI_Wait(&r->hearing, MPI_STATUS_IGNORE);
    }
}
