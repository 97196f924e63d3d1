/* Host communicator and transport over MPI: collectives go through memory that the ranks of a host
 * share where they can (mpi_shared.c), else by messages (mpi_remote.c). The members of a group are
 * ordered as dtp_mesh_set_index says. */
#include "executor/comm/mpi_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static dtp_status mpi_prepare(dtp_transport *t, dtp_mesh_set set, dtp_err *err)
{
    const dtp_comm__mpi *c = t->self;
    return dtp_comm__check_set(&c->base, set, err);
}

/* Through shared memory it is done here; messages between hosts go on beside the caller. */
static dtp_status mpi_start(dtp_transport *t, const dtp_coll *coll, const dtp_coll_ends *ends,
                            dtp_request *request, dtp_err *err)
{
    dtp_comm__mpi *c = t->self;
    const dtp_mesh *mesh = &c->base.mesh;
    *request = (dtp_request){.coll = *coll, .ends = ends};
    DTP_TRY(dtp_comm__check_set(&c->base, coll->set, err));
    DTP_TRY(dtp_comm__can_reduce(coll, err));
    const int32_t n = dtp_mesh_set_size(mesh, coll->set);
    if (n == 1) {
        dtp_comm__single(coll, ends);
        return DTP_OK;
    }
    if (coll->count == 0) {
        return DTP_OK;
    }
    bool ran = false;
    if (c->shared != NULL && dtp_comm__shared_reaches(c->shared, coll->set)) {
        dtp_coll_ends copy;
        const int32_t me = dtp_mesh_set_index(mesh, coll->set, c->base.rank);
        DTP_TRY(dtp_comm__remote_settle(c->remote, request, err));
        DTP_TRY(dtp_comm__unalias(&c->scratch, coll, n, me, &ends, &copy, err));
        DTP_TRY(dtp_comm__shared_run(c->shared, coll, ends, &ran, err));
    }
    return ran ? DTP_OK : dtp_comm__remote_start(c->remote, request, err);
}

static dtp_status mpi_wait(dtp_transport *t, dtp_request *request, dtp_err *err)
{
    dtp_comm__mpi *c = t->self;
    return request->pending ? dtp_comm__remote_wait(c->remote, request, err) : DTP_OK;
}

static dtp_status mpi_post(dtp_transport *t, dtp_message *message, dtp_err *err)
{
    return dtp_comm__message_post(((dtp_comm__mpi *)t->self)->remote, message, err);
}

static dtp_status mpi_finish(dtp_transport *t, dtp_message *message, dtp_err *err)
{
    return dtp_comm__message_finish(((dtp_comm__mpi *)t->self)->remote, message, err);
}

static dtp_status mpi_run(dtp_comm *base, const dtp_coll *coll, const void *in, void *out,
                          dtp_err *err)
{
    /* another transport may stand in the place of this one */
    dtp_transport own = {.self = base};
    const dtp_coll_ends ends = {in, out};
    dtp_request request;
    DTP_TRY(mpi_start(&own, coll, &ends, &request, err));
    return mpi_wait(&own, &request, err);
}

static void *mpi_register_memory(dtp_transport *t, size_t bytes)
{
    dtp_comm__mpi *c = t->self;
    return c->shared != NULL ? dtp_comm__shared_alloc(c->shared, bytes) : NULL;
}

static bool mpi_release_memory(dtp_transport *t, void *ptr)
{
    dtp_comm__mpi *c = t->self;
    return c->shared != NULL && dtp_comm__shared_free(c->shared, ptr);
}

/* Between hosts, a reduction of one number. */
static dtp_status mpi_barrier(dtp_comm *base, dtp_err *err)
{
    dtp_comm__mpi *c = (dtp_comm__mpi *)base;
    bool ran = false;
    int32_t here = 1;
    if (c->shared != NULL) {
        DTP_TRY(dtp_comm__shared_barrier(c->shared, &ran, err));
    }
    return ran ? DTP_OK : dtp_comm_all_reduce(base, DTP_REDUCE_MIN, DTP_I32, 1, &here, err);
}

static void end_job(const dtp_comm__mpi *c, const char *why)
{
    fprintf(stderr, "error comm abort rank=%d %s\n", c->base.rank, why);
    dtp_comm__mpi_end_job(c->world, 1);
}

/* Peers that wait for this rank learn of the failure through shared memory or by a message, and end
 * by themselves. Where not all can, the job ends: here, or when it is concluded. */
static void mpi_abort(dtp_comm *base, const char *why)
{
    dtp_comm__mpi *c = (dtp_comm__mpi *)base;
    const bool lost = atomic_load(&c->remote->lost);
    if (c->aborted) {
        return;
    }
    c->aborted = true;
    if (lost && c->shared != NULL) {
        (void)dtp_comm__deadlock_hopeless(c->shared); /* says so to the ranks of this host */
    }
    const bool near = c->shared != NULL && dtp_comm__shared_fail(c->shared, why);
    const bool afar = c->remote->runs;
    if (!lost) {
        dtp_comm__remote_end(c->remote, why);
    } else {
        dtp_comm__messages_quiet(c->remote);
    }
    const bool told = !lost && (near || afar) && !c->remote->unclean;
    if (!told && c->outcome == MPI_COMM_NULL) {
        end_job(c, why);
    }
}

/* Once it is here no buffer of a collective is touched. */
static void mpi_stop(dtp_transport *t, const char *why)
{
    dtp_comm__mpi *c = t->self;
    mpi_abort(&c->base, why);
}

/* Of the ranks that found out that others are lost, as far as this one knows. */
static bool is_first(dtp_comm__mpi *c, const dtp_err *err)
{
    if (!atomic_load(&c->remote->lost)) {
        return !err->told;
    }
    pthread_mutex_lock(&c->remote->lock);
    int32_t issuer = c->remote->issuer;
    pthread_mutex_unlock(&c->remote->lock);
    for (int32_t r = 0; c->shared != NULL && r < issuer; r++) {
        const dtp_comm__segment *base = c->shared->bases[r];
        if (base != NULL && atomic_load(&base->published.kind) == DTP_COMM_LOST &&
            (int32_t)atomic_load(&base->published.turn) < issuer) {
            issuer = (int32_t)atomic_load(&base->published.turn);
        }
    }
    return issuer == c->base.rank;
}

static dtp_status mpi_conclude(dtp_comm *base, dtp_status mine, const dtp_comm_reporter *reporter,
                               dtp_err *err)
{
    dtp_comm__mpi *c = (dtp_comm__mpi *)base;
    if (c->outcome == MPI_COMM_NULL) {
        return mine; /* not of dtp_comm_mpi_join */
    }
    if (mine != DTP_OK) {
        mpi_abort(base, err->msg);
    } else if (c->shared != NULL) {
        dtp_comm__shared_end(c->shared);
    }
    /* A failure that this rank passes on is reported by the rank whose own it is. */
    const bool unclean = c->remote->unclean && !err->told;
    if (mine != DTP_OK && (atomic_load(&c->remote->lost) || unclean)) {
        /* Others may have found out as well, and say so at this moment. */
        const struct timespec pause = {.tv_nsec = 200000000};
        (void)nanosleep(&pause, NULL);
        dtp_comm__mpi_end_lost(c->outcome, is_first(c, err), reporter, err);
    }
    dtp_comm__remote_end(c->remote, NULL);
    c->concluded = true;
    return dtp_comm__mpi_outcome(c->outcome, base->timeout_s, mine, reporter, err);
}

/* The ranks that can share memory are those of one machine. */
static dtp_status mpi_alike_here(dtp_comm *base, uint64_t key, int32_t *index, int32_t *n,
                                 dtp_err *err)
{
    dtp_comm__mpi *c = (dtp_comm__mpi *)base;
    MPI_Comm here = MPI_COMM_NULL, alike = MPI_COMM_NULL;
    int same = 1, number = 0;
    int code =
        MPI_Comm_split_type(c->world, MPI_COMM_TYPE_SHARED, base->rank, MPI_INFO_NULL, &here);
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_split(here, (int)(key % INT_MAX), base->rank, &alike);
        MPI_Comm_free(&here);
    }
    if (code == MPI_SUCCESS) {
        MPI_Comm_size(alike, &same);
        MPI_Comm_rank(alike, &number);
        MPI_Comm_free(&alike);
    }
    *index = number;
    *n = same;
    return dtp_comm__mpi_check(code, base->rank, "MPI_Comm_split", err);
}

/* MPI starts and ends once per process: what this library has started ends with the process. Which
 * process that is and how long it may take stands where MPI keeps it for us, without a variable of
 * our own: in the name of MPI_COMM_SELF. */
#define NAME_OF_SELF "dtp process %ld, %lf s"

enum { CALL_BYTES = 160 };

/* "rank 3 on h2: MPI_Init". */
static void name_call(const char *rank, const char *call, char out[CALL_BYTES])
{
    char host[128] = "?";
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(out, CALL_BYTES, "rank %.16s on %.96s: %s", rank, host, call);
}

static void end_mpi(void)
{
    char name[MPI_MAX_OBJECT_NAME] = "", text[16], call[CALL_BYTES];
    int len = 0, over = 0, rank = 0;
    long process = 0;
    double limit_s = DTP_COMM_TIMEOUT_S;
    MPI_Finalized(&over);
    if (!over) {
        MPI_Comm_get_name(MPI_COMM_SELF, name, &len);
    }
    if (over || sscanf(name, NAME_OF_SELF, &process, &limit_s) != 2 || process != (long)getpid()) {
        return;
    }
    (void)fflush(NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)snprintf(text, sizeof text, "%d", rank);
    name_call(text, "MPI_Finalize", call);
    dtp_comm__guard *guard = dtp_comm__guard_begin(limit_s, call, 1);
    MPI_Finalize();
    dtp_comm__guard_end(guard);
}

static void mpi_destroy(dtp_comm *base)
{
    dtp_comm__mpi *c = (dtp_comm__mpi *)base;
    if (c->shared != NULL && !c->concluded && !dtp_comm__shared_leave(c->shared)) {
        end_job(c, "has failed, and not every other rank knows");
    }
    if (c->remote != NULL && c->remote->unclean && !c->concluded) {
        end_job(c, "left a collective");
    }
    dtp_comm__remote_destroy(c->remote);
    dtp_comm__guard *guard = dtp_comm__guard_begin(base->timeout_s, "MPI_Comm_free", 1);
    if (c->outcome != MPI_COMM_NULL) {
        MPI_Comm_free(&c->outcome);
    }
    if (c->world != MPI_COMM_NULL) {
        MPI_Comm_free(&c->world);
    }
    dtp_comm__shared_destroy(c->shared);
    free(c->scratch.data);
    dtp_comm__guard_end(guard);
    free(c);
}

static const dtp_comm_ops mpi_ops = {
    .name = "mpi",
    .run = mpi_run,
    .barrier = mpi_barrier,
    .conclude = mpi_conclude,
    .alike_here = mpi_alike_here,
    .abort = mpi_abort,
    .destroy = mpi_destroy,
};

static const dtp_transport_ops mpi_transport = {
    .name = "mpi",
    .prepare = mpi_prepare,
    .start = mpi_start,
    .wait = mpi_wait,
    .abort = mpi_stop,
    .register_memory = mpi_register_memory,
    .release_memory = mpi_release_memory,
    .post = mpi_post,
    .finish = mpi_finish,
};

static dtp_status start_mpi(double timeout_s, dtp_err *err)
{
    char name[MPI_MAX_OBJECT_NAME];
    int done = 0, over = 0, provided = 0;
    MPI_Initialized(&done);
    MPI_Finalized(&over);
    if (over) {
        return DTP_FAIL(err, DTP_COMM, "MPI was already shut down in this process");
    }
    if (!done && MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) {
        return DTP_FAIL(err, DTP_COMM, "MPI_Init_thread failed");
    }
    if (!done) {
        (void)snprintf(name, sizeof name, NAME_OF_SELF, (long)getpid(), timeout_s);
        MPI_Comm_set_name(MPI_COMM_SELF, name);
        return atexit(end_mpi) == 0 ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "no memory to end MPI");
    }
    return DTP_OK;
}

static dtp_status dup_world(MPI_Comm *out, const dtp_comm__mpi *c, dtp_err *err)
{
    const int32_t rank = c->base.rank;
    DTP_TRY(dtp_comm__mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, out), rank, "MPI_Comm_dup", err));
    return dtp_comm__mpi_check(MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN), rank,
                               "MPI_Comm_set_errhandler", err);
}

/* Alike on all ranks. */
static dtp_status join(dtp_comm__mpi *c, dtp_err *err)
{
    DTP_TRY(dup_world(&c->world, c, err));
    int rank = 0, size = 0;
    (void)MPI_Comm_rank(c->world, &rank); /* fail on no communicator alone */
    (void)MPI_Comm_size(c->world, &size);
    c->base.rank = rank;
    c->base.size = size;
    if (size != dtp_mesh_ranks(&c->base.mesh)) {
        char text[DTP_MESH_TEXT_BYTES];
        dtp_mesh_print(&c->base.mesh, text);
        return DTP_FAIL(err, DTP_INVALID, "the mesh '%.200s' has %d ranks but the MPI job has %d%s",
                        text, dtp_mesh_ranks(&c->base.mesh), size,
                        size == 1 ? " (under srun: --mpi=pmix)" : "");
    }
    DTP_TRY(dtp_comm__shared_create(&c->base, c->world, &c->shared, err));
    DTP_TRY(dtp_comm__remote_create(&c->base, c->world, c->shared, &c->remote, err));
    bool afar = c->shared == NULL;
    for (int32_t r = 0; r < size && !afar; r++) {
        afar = c->shared->bases[r] == NULL;
    }
    c->remote->run = dtp_comm__messages_run;
    c->remote->move = dtp_comm__messages_move;
    c->remote->abandon = dtp_comm__messages_abandon;
    if (c->shared != NULL) {
        c->shared->remote = c->remote;
    }
    c->base.transport.caps.asynchronous = afar && c->remote->threaded;
    return afar && size > 1 ? dtp_comm__remote_begin(c->remote, err) : DTP_OK;
}

/* MPI runs, and nothing else is there yet. */
static dtp_status create(const dtp_mesh *mesh, double timeout_s, dtp_comm__mpi **out, dtp_err *err)
{
    dtp_comm__mpi *c = calloc(1, sizeof *c);
    *out = c;
    DTP_TRY(DTP_MEMORY(err, c));
    c->base = (dtp_comm){.ops = &mpi_ops, .mesh = *mesh};
    c->base.transport = (dtp_transport){
        .ops = &mpi_transport, .caps = {.strided = true, .deterministic = true}, .self = c};
    c->base.timeout_s = timeout_s;
    c->world = c->outcome = MPI_COMM_NULL;
    dtp_status status = start_mpi(timeout_s, err);
    if (status != DTP_OK) {
        free(c);
        *out = NULL;
    }
    return status;
}

/* Hands out a communicator that is complete. */
static dtp_status deliver(dtp_comm__mpi *c, dtp_status status, dtp_comm **out)
{
    if (status != DTP_OK) {
        mpi_destroy(&c->base);
        return status;
    }
    *out = &c->base;
    return DTP_OK;
}

dtp_status dtp_comm_mpi_create(const dtp_mesh *mesh, dtp_comm **out, dtp_err *err)
{
    dtp_comm__mpi *c;
    DTP_TRY(DTP_NOT_NULL(err, mesh, out));
    DTP_TRY(create(mesh, DTP_COMM_TIMEOUT_S, &c, err));
    return deliver(c, join(c, err), out);
}

dtp_status dtp_comm_mpi_join(const dtp_mesh *mesh, const char *rank, double timeout_s,
                             dtp_status ready, const dtp_comm_reporter *reporter, dtp_comm **out,
                             dtp_err *err)
{
    char call[CALL_BYTES];
    dtp_comm__mpi *c;
    dtp_err own = *err;
    name_call(rank != NULL ? rank : "?", "MPI_Init", call);
    dtp_comm__guard *guard = dtp_comm__guard_begin(timeout_s, call, 1);
    dtp_status status = create(mesh, timeout_s, &c, err);
    status = status == DTP_OK ? dup_world(&c->outcome, c, err) : status;
    if (status == DTP_OK) {
        *err = own;
        status = dtp_comm__mpi_outcome(c->outcome, timeout_s, ready, reporter, err);
    }
    if (status == DTP_OK) {
        status = dtp_comm__mpi_outcome(c->outcome, timeout_s, join(c, err), reporter, err);
    }
    dtp_comm__guard_end(guard);
    return c != NULL ? deliver(c, status, out) : status;
}

void dtp_comm__mpi_limit(dtp_comm *c, int64_t max_count)
{
    ((dtp_comm__mpi *)c)->remote->limit = max_count;
}

void dtp_comm__mpi_share(dtp_comm *c, bool share)
{
    dtp_comm__shared_use(((dtp_comm__mpi *)c)->shared, share);
}
