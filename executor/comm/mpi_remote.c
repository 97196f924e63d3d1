/* The queue of collectives between hosts, and its thread, which moves the messages between stages,
 * too (mpi_internal.h).
 *
 * The thread runs one collective after the other, in the order of their starts, which is that of
 * the program on every rank. Between two looks at MPI it sleeps while kernels run, and hardly while
 * a rank waits. It also listens to what the other ranks say of themselves (mpi_control.c), when
 * it has nothing to run as well: a rank at work answers, one that is stopped does not.
 */
#include "executor/comm/mpi_internal.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "core/base/clock.h"
#include "executor/comm/mpi_control.h"

enum {
    /* between two looks, in ns: while kernels run, and while a rank waits, after some looks
     * without a pause */
    PAUSE_NS = 50000,
    PAUSE_WAITED_NS = 20000,
    SPINS = 100,
    SLACK_NS = 1,         /* that Linux may add to a pause; 50000 else */
    IDLE_NS = 10000000,   /* with nothing to run */
    STUCK_NS = 300000000, /* without a look */
    /* ms that a collective that failed has to end what is under way; nothing more comes from ranks
     * that are lost */
    ABANDON_MS = 300,
    ABANDON_LOST_MS = 100
};

/* ---- looks ---- */

static void pause_ns(long ns)
{
    const struct timespec pause = {.tv_nsec = ns};
    (void)nanosleep(&pause, NULL);
}

dtp_status dtp_comm__remote_look(dtp_comm__remote *r, dtp_err *err)
{
    dtp_comm__control_listen(r);
    if (atomic_load(&r->stop)) {
        return DTP_FAIL(err, DTP_COMM, "rank %d gives up", r->base->rank);
    }
    DTP_TRY(dtp_comm__remote_failure(r, err));
    DTP_TRY(r->move(r, err));
    return dtp_comm__control_check(r, err);
}

dtp_status dtp_comm__remote_check(dtp_comm__remote *r, int code, dtp_err *err)
{
    if (code == MPI_SUCCESS) {
        return DTP_OK;
    }
    dtp_err why = {0};
    dtp_status status =
        dtp_comm__mpi_check(code, r->base->rank, dtp_coll_name(r->coll->kind), &why);
    (void)status;
    dtp_comm__control_lose(r, r->coll, dtp_now_s() - r->since_s, why.msg);
    return dtp_comm__remote_failure(r, err);
}

dtp_status dtp_comm__remote_finish(dtp_comm__remote *r, MPI_Request *wave, dtp_err *err)
{
    const int32_t n = 2 * dtp_mesh_set_size(&r->base->mesh, r->coll->set);
    DTP_TRY(dtp_comm__reserve(&r->indices, (size_t)n * sizeof(int), err));
    r->awaited_wave = wave;
    for (int64_t looks = 0;; looks++) {
        int done = 0;
        (void)atomic_fetch_add(&r->looks, 1);
        const int code = MPI_Testsome(n, wave, &done, r->indices.data, MPI_STATUSES_IGNORE);
        DTP_TRY(dtp_comm__remote_check(r, code, err));
        if (done == MPI_UNDEFINED) {
            return DTP_OK;
        }
        DTP_TRY(dtp_comm__remote_look(r, err));
        if (done > 0) {
            looks = 0;
        } else if (atomic_load(&r->waiting) == 0) {
            pause_ns(PAUSE_NS);
        } else if (looks > SPINS) {
            pause_ns(PAUSE_WAITED_NS);
        } else {
            (void)sched_yield();
        }
    }
}

void dtp_comm__remote_take_back(dtp_comm__remote *r, int32_t n, MPI_Request *requests)
{
    const int32_t limit_ms = atomic_load(&r->lost) ? ABANDON_LOST_MS : ABANDON_MS;
    int done = 0;
    for (int32_t ms = 0; ms < limit_ms && !r->unclean; ms++) {
        for (int32_t i = 0; i < n; i++) {
            (void)MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE);
        }
        bool left = false;
        for (int32_t i = 0; i < n; i++) {
            left = left || requests[i] != MPI_REQUEST_NULL;
        }
        if (!left) {
            return;
        }
        pause_ns(1000000);
    }
    r->unclean = r->unclean || n > 0;
}

/* Takes back what a collective that failed has under way: its buffers may go. */
static void abandon(dtp_comm__remote *r)
{
    const int32_t members = dtp_mesh_set_size(&r->base->mesh, r->coll->set);
    for (int32_t i = 0; i < r->n_requests; i++) {
        if (i / members % 2 == 0 && r->requests[i] != MPI_REQUEST_NULL) {
            (void)MPI_Cancel(&r->requests[i]);
        }
    }
    dtp_comm__remote_take_back(r, r->n_requests, r->requests);
}

/* ---- the queue ---- */

static struct timespec after_ns(long ns)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += ns;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static dtp_status run_one(dtp_comm__remote *r, const dtp_request *request, dtp_err *err)
{
    r->since_s = dtp_now_s();
    r->awaited_wave = NULL;
    r->coll = &request->coll;
    r->n_requests = 0;
    dtp_status status = r->run(r, r->coll, request->ends, err);
    if (status != DTP_OK) {
        abandon(r);
    }
    r->coll = NULL;
    return status;
}

static void *thread_main(void *arg)
{
    dtp_comm__remote *r = arg;
    sigset_t broken_pipe;
    /* of a peer that has ended: an error of MPI, not the end of this process */
    (void)sigemptyset(&broken_pipe);
    (void)sigaddset(&broken_pipe, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &broken_pipe, NULL);
    (void)prctl(PR_SET_TIMERSLACK, SLACK_NS);
    while (!atomic_load(&r->stop)) {
        const struct timespec until = after_ns(r->n_moving == 0                ? IDLE_NS
                                               : atomic_load(&r->waiting) == 0 ? PAUSE_NS
                                                                               : PAUSE_WAITED_NS);
        (void)atomic_fetch_add(&r->looks, 1);
        pthread_mutex_lock(&r->lock);
        int code = 0;
        while (r->first == NULL && r->posted == NULL && !atomic_load(&r->stop) && code == 0) {
            code = pthread_cond_timedwait(&r->changed, &r->lock, &until);
        }
        const dtp_request *request = r->first;
        r->busy = request != NULL;
        pthread_mutex_unlock(&r->lock);
        dtp_err err = {0};
        dtp_status status = dtp_comm__remote_look(r, &err);
        status = status == DTP_OK && request != NULL ? run_one(r, request, &err) : status;
        if (status != DTP_OK) {
            r->abandon(r);
        } else if (request == NULL) {
            continue;
        }
        pthread_mutex_lock(&r->lock);
        if (status == DTP_OK && r->first == request) {
            r->first = request->next;
            r->last = r->first == NULL ? NULL : r->last;
            r->done = request->turn;
        }
        if (status != DTP_OK) {
            dtp_comm__remote_break_locked(r, &err);
        }
        r->busy = false;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
    }
    r->abandon(r);
    dtp_comm__control_end(r);
    return NULL;
}

dtp_status dtp_comm__remote_start(dtp_comm__remote *r, dtp_request *request, dtp_err *err)
{
    DTP_TRY(dtp_comm__remote_begin(r, err));
    DTP_TRY(dtp_comm__remote_failure(r, err));
    if (!r->runs) {
        request->pending = false;
        return run_one(r, request, err);
    }
    pthread_mutex_lock(&r->lock);
    request->pending = true;
    request->turn = ++r->started;
    request->next = NULL;
    if (r->last != NULL) {
        r->last->next = request;
    } else {
        r->first = request;
    }
    r->last = request;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return DTP_OK;
}

/* Open MPI sees that a peer has ended and waits for its daemon to take the message about it, while
 * the daemon waits to kill the process. */
bool dtp_comm__remote_stuck(dtp_comm__remote *r)
{
    const uint64_t looks = atomic_load(&r->looks);
    const struct timespec until = after_ns(STUCK_NS);
    r->stuck = pthread_cond_timedwait(&r->changed, &r->lock, &until) == ETIMEDOUT &&
               looks == atomic_load(&r->looks) && r->base->ends != NULL &&
               atomic_load(r->base->ends) != 0;
    return r->stuck;
}

dtp_status dtp_comm__remote_wait(dtp_comm__remote *r, const dtp_request *request, dtp_err *err)
{
    pthread_mutex_lock(&r->lock);
    (void)atomic_fetch_add(&r->waiting, 1);
    const bool waits = r->done < request->turn && r->shared != NULL;
    if (waits) {
        dtp_comm__deadlock_begin(r->shared, DTP_COMM_WAITS_AFAR, 0, 0);
    }
    const double since_s = dtp_now_s();
    bool ends = false;
    while (r->done < request->turn && (r->busy || !atomic_load(&r->broken)) && !ends) {
        ends = dtp_comm__remote_stuck(r);
    }
    const bool done = r->done >= request->turn;
    if (ends && !done) {
        r->wait = r->awaited; /* for none */
    }
    (void)atomic_fetch_add(&r->waiting, -1);
    pthread_mutex_unlock(&r->lock);
    if (waits) {
        dtp_comm__deadlock_end(r->shared);
    }
    if (ends && !done) {
        dtp_comm__control_lose(r, &request->coll, dtp_now_s() - since_s, NULL);
    }
    return done ? DTP_OK : dtp_comm__remote_failure(r, err);
}

/* Whether bytes of the two overlap. */
static bool meet(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y + (uintptr_t)b_bytes && y < x + (uintptr_t)a_bytes;
}

/* Whether collective i of one writes what j of the other touches, or reads what it writes. */
static bool ends_meet(const dtp_mesh *mesh, const dtp_request *one, int32_t i,
                      const dtp_request *other, int32_t j)
{
    const int64_t a = dtp_dtype_bytes(one->coll.dtype), b = dtp_dtype_bytes(other->coll.dtype);
    const dtp_coll_ends *x = &one->ends[i], *y = &other->ends[j];
    int64_t in, out, other_in, other_out;
    dtp_comm__elems(dtp_coll_at(&one->coll, i), dtp_mesh_set_size(mesh, one->coll.set), &in, &out);
    dtp_comm__elems(dtp_coll_at(&other->coll, j), dtp_mesh_set_size(mesh, other->coll.set),
                    &other_in, &other_out);
    return meet(x->out, out * a, y->in, other_in * b) ||
           meet(x->out, out * a, y->out, other_out * b) ||
           meet(x->in, in * a, y->out, other_out * b);
}

static bool depends(const dtp_comm__remote *r, const dtp_request *one, const dtp_request *other)
{
    bool found = false;
    for (int32_t i = 0; i < dtp_coll_buffers(&one->coll); i++) {
        for (int32_t j = 0; j < dtp_coll_buffers(&other->coll); j++) {
            found = found || ends_meet(&r->base->mesh, one, i, other, j);
        }
    }
    return found;
}

dtp_status dtp_comm__remote_settle(dtp_comm__remote *r, const dtp_request *other, dtp_err *err)
{
    const dtp_request *last = NULL;
    pthread_mutex_lock(&r->lock);
    for (const dtp_request *q = r->first; q != NULL; q = q->next) {
        last = depends(r, q, other) ? q : last;
    }
    pthread_mutex_unlock(&r->lock);
    return last != NULL ? dtp_comm__remote_wait(r, last, err) : DTP_OK;
}

/* ---- its life ---- */

dtp_status dtp_comm__remote_create(const dtp_comm *base, MPI_Comm world, dtp_comm__shared *shared,
                                   dtp_comm__remote **out, dtp_err *err)
{
    int level = MPI_THREAD_SINGLE;
    dtp_comm__remote *r = calloc(1, sizeof *r);
    *out = r;
    DTP_TRY(DTP_MEMORY(err, r));
    (void)MPI_Query_thread(&level);
    r->base = base;
    r->world = world;
    r->shared = shared;
    r->threaded = level == MPI_THREAD_MULTIPLE;
    r->limit = INT32_MAX;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    return dtp_comm__control_create(r, err);
}

void dtp_comm__remote_destroy(dtp_comm__remote *r)
{
    if (r == NULL) {
        return;
    }
    dtp_comm__remote_end(r, NULL);
    dtp_comm__control_destroy(r);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r->moving.data);
    free(r->moves.data);
    free(r->gone.data);
    free(r->statuses.data);
    free(r->openings.data);
    free(r->blocks.data);
    free(r->request_memory.data);
    free(r->indices.data);
    free(r->copy.data);
    free(r->bucket.data);
    free(r);
}

dtp_status dtp_comm__remote_begin(dtp_comm__remote *r, dtp_err *err)
{
    if (r->runs || atomic_load(&r->stop)) {
        return dtp_comm__remote_failure(r, err);
    }
    DTP_TRY(dtp_comm__control_begin(r, err));
    if (r->threaded && pthread_create(&r->thread, NULL, thread_main, r) != 0) {
        return DTP_FAIL(err, DTP_NOMEM, "cannot start the thread of the collectives");
    }
    r->runs = r->threaded;
    return DTP_OK;
}

void dtp_comm__remote_end(dtp_comm__remote *r, const char *why)
{
    if (atomic_load(&r->stop)) {
        return;
    }
    pthread_mutex_lock(&r->lock);
    r->last_words = why;
    atomic_store(&r->stop, true);
    dtp_err err = {0};
    dtp_status status = DTP_FAIL(&err, DTP_COMM, "rank %d runs no more collectives%s%.900s",
                                 r->base->rank, why != NULL ? ": " : "", why != NULL ? why : "");
    (void)status;
    dtp_comm__remote_break_locked(r, &err);
    pthread_mutex_unlock(&r->lock);
    if (r->runs) {
        (void)pthread_join(r->thread, NULL);
        r->runs = false;
    } else {
        if (r->n_moving > 0) {
            r->abandon(r);
        }
        dtp_comm__control_end(r);
    }
    r->last_words = NULL;
}
