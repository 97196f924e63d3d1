/* N virtual ranks in one process, one thread each.
 *
 * Ranks of a group synchronise at the group's gate (a counting barrier under one world lock) before
 * and after the transfer (transfer.c). In between every member may read the inputs of all others,
 * and each compares what they are about to do. A rank that fails halts and wakes those
 * that wait for it; they return DTP_COMM and halt too. So do all when they wait at gates that none
 * of them can complete, or have ended.
 *
 * Rank 0 is the thread that runs the world; the threads of the others stay until the world is
 * destroyed and wait for the next run in between.
 */
#include "executor/comm/sim_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dtp_mesh_set all_dims(const dtp_sim__world *w)
{
    return ((dtp_mesh_set)1 << w->mesh.n_dims) - 1;
}

static void fail(dtp_sim__world *w, int32_t rank, const char *why)
{
    pthread_mutex_lock(&w->lock);
    dtp_sim__halt_rank(w, rank, rank, why);
    pthread_mutex_unlock(&w->lock);
}

/* The rank whose failure keeps a group from passing its gate, -1: none. A failure elsewhere does
 * not, so that a rank's own failure does not depend on who fails first. */
static int32_t halted_locked(const dtp_sim__world *w, dtp_mesh_set set, int32_t rank)
{
    const int32_t n = w->failed ? dtp_mesh_set_size(&w->mesh, set) : 0;
    int32_t any = -1;
    for (int32_t j = 0; j < n && any < 0; j++) {
        const int32_t m = dtp_mesh_set_member(&w->mesh, set, rank, j);
        any = w->halts[m].on ? m : -1;
    }
    for (int32_t r = 0; w->over && r < w->size && any < 0; r++) {
        any = w->halts[r].on ? r : -1;
    }
    return any;
}

/* Waits until all n members of a group have arrived; false when they never will, unless all are
 * `sure` to come. `coll` NULL: the barrier. Called with the lock held. */
static bool pass_locked(dtp_sim__world *w, dtp_sim__gate *g, int32_t n, int32_t rank,
                        const dtp_coll *coll, bool sure)
{
    const dtp_mesh_set set = coll != NULL ? coll->set : all_dims(w);
    if (!sure && (w->over || halted_locked(w, set, rank) >= 0)) {
        return false;
    }
    uint64_t generation = g->generation;
    if (++g->arrived == n) {
        g->arrived = 0;
        g->generation++;
        w->n_waiting -= n - 1;
        for (int32_t j = 0; j < n; j++) {
            pthread_cond_signal(&w->wake[dtp_mesh_set_member(&w->mesh, set, rank, j)]);
        }
        return true;
    }
    w->visits[rank] = (dtp_comm__visit){.state = DTP_COMM_VISIT_WAITS, .coll = coll};
    w->n_waiting++;
    dtp_sim__check_stuck(w);
    const struct timespec until = dtp_sim__deadline(w, rank);
    int timed_out = 0;
    while (g->generation == generation && (sure || (!w->over && halted_locked(w, set, rank) < 0))) {
        timed_out = pthread_cond_timedwait(&w->wake[rank], &w->lock, &until);
        if (timed_out == ETIMEDOUT && !sure && g->generation == generation) {
            dtp_sim__halt_late(w, rank, coll);
        }
    }
    w->visits[rank].state = DTP_COMM_VISIT_NONE;
    if (g->generation == generation) {
        w->n_waiting--;
    }
    return g->generation != generation;
}

/* `coll` NULL: the barrier. */
static dtp_status rendezvous(dtp_sim__comm *c, dtp_sim__gate *g, int32_t n, const dtp_coll *coll,
                             dtp_err *err)
{
    dtp_sim__world *w = c->world;
    const int32_t rank = c->base.rank;
    dtp_status status = DTP_OK;
    pthread_mutex_lock(&w->lock);
    if (!pass_locked(w, g, n, rank, coll, false)) {
        const dtp_mesh_set set = coll != NULL ? coll->set : all_dims(w);
        status = dtp_sim__give_up(w, rank, halted_locked(w, set, rank), err);
    }
    pthread_mutex_unlock(&w->lock);
    return status;
}

/* Called with the lock held. */
static dtp_status divide_locked(dtp_sim__world *w, dtp_mesh_set set, dtp_err *err)
{
    const int32_t n = dtp_mesh_set_size(&w->mesh, set);
    dtp_sim__division *d;
    const dtp_coll_ends **ends;
    dtp_coll *colls;
    DTP_TRY(DTP_NEW(w->arena, d, 1, err));
    d->n_groups = w->size / n;
    DTP_TRY(DTP_NEW(w->arena, d->groups, d->n_groups, err));
    DTP_TRY(DTP_NEW(w->arena, colls, w->size, err));
    ends = dtp_arena_alloc(w->arena, (size_t)w->size, sizeof(const dtp_coll_ends *));
    DTP_TRY(DTP_MEMORY(err, ends));
    for (int32_t i = 0; i < d->n_groups; i++) {
        ptrdiff_t first = (ptrdiff_t)i * n;
        d->groups[i] = (dtp_sim__group){.n = n, .ends = ends + first, .colls = colls + first};
    }
    w->divisions[set] = d;
    return DTP_OK;
}

/* The group of a rank; made by the first rank that asks. */
static dtp_status group_of(dtp_sim__comm *c, dtp_mesh_set set, dtp_sim__group **out, dtp_err *err)
{
    dtp_sim__world *w = c->world;
    DTP_TRY(dtp_comm__check_set(&c->base, set, err));
    pthread_mutex_lock(&w->lock);
    if (w->divisions[set] == NULL) {
        (void)divide_locked(w, set, NULL); /* its only error is said below */
    }
    const dtp_sim__division *d = w->divisions[set];
    pthread_mutex_unlock(&w->lock);
    if (d == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "no memory for groups of ranks");
    }
    const dtp_mesh_set others = all_dims(w) & ~set;
    *out = &d->groups[dtp_mesh_set_index(&w->mesh, others, c->base.rank)];
    return DTP_OK;
}

static dtp_status sim_prepare(dtp_transport *t, dtp_mesh_set set, dtp_err *err)
{
    dtp_sim__group *g;
    return group_of(t->self, set, &g, err);
}

/* Every member sees all descriptions at the gate, so every one finds the same first difference. */
static dtp_status check_same(const dtp_sim__comm *c, const dtp_sim__group *g, dtp_err *err)
{
    char why[DTP_ERR_MSG_BYTES];
    for (int32_t j = 1; j < g->n; j++) {
        if (dtp_comm__differs(&c->base.mesh, c->base.rank, 0, &g->colls[0], j, &g->colls[j], why)) {
            return DTP_FAIL(err, DTP_COMM, "%s", why);
        }
    }
    return DTP_OK;
}

static dtp_status meet_group(dtp_sim__comm *c, dtp_sim__group *g, const dtp_coll *coll,
                             const dtp_coll_ends *ends, dtp_comm_transfer share, void *user,
                             dtp_err *err)
{
    const int32_t me = dtp_mesh_set_index(&c->base.mesh, coll->set, c->base.rank);
    g->ends[me] = ends;
    g->colls[me] = *coll;
    DTP_TRY(rendezvous(c, &g->gate, g->n, coll, err));
    /* every member finds a difference by itself: all leave the gate together, so that each of them
     * reports it and none reports only the failure of a peer */
    dtp_status status = check_same(c, g, err);
    if (status == DTP_OK) {
        status = share(user, coll, g->n, me, g->ends, err);
    }
    /* Members that passed the gate pass it again, whatever happens elsewhere: until then each may
     * be in the buffers of the others. */
    pthread_mutex_lock(&c->world->lock);
    (void)pass_locked(c->world, &g->gate, g->n, c->base.rank, coll, true);
    pthread_mutex_unlock(&c->world->lock);
    return status;
}

static dtp_status sim_meet(dtp_comm *base, const dtp_coll *coll, const dtp_coll_ends *ends,
                           dtp_comm_transfer share, void *user, dtp_err *err)
{
    dtp_sim__comm *c = (dtp_sim__comm *)base;
    dtp_sim__group *g;
    dtp_err local = {0};
    err = err != NULL ? err : &local;
    DTP_TRY(group_of(c, coll->set, &g, err));
    const dtp_status status = meet_group(c, g, coll, ends, share, user, err);
    if (status != DTP_OK) {
        fail(c->world, base->rank, err->msg);
    }
    return status;
}

static dtp_status transfer(void *user, const dtp_coll *coll, int32_t n, int32_t me,
                           const dtp_coll_ends *const *ends, dtp_err *err)
{
    (void)user, (void)err;
    dtp_comm__transfer(coll, n, me, ends);
    return DTP_OK;
}

static dtp_status run_ends(dtp_sim__comm *c, const dtp_coll *coll, const dtp_coll_ends *ends,
                           dtp_err *err)
{
    dtp_coll_ends copy;
    DTP_TRY(dtp_comm__check_set(&c->base, coll->set, err));
    DTP_TRY(dtp_comm__can_reduce(coll, err));
    const int32_t n = dtp_mesh_set_size(&c->base.mesh, coll->set);
    if (n == 1) {
        dtp_comm__single(coll, ends);
        return DTP_OK;
    }
    const int32_t me = dtp_mesh_set_index(&c->base.mesh, coll->set, c->base.rank);
    DTP_TRY(dtp_comm__unalias(&c->scratch, coll, n, me, &ends, &copy, err));
    return sim_meet(&c->base, coll, ends, transfer, NULL, err);
}

/* Whether a rank that this one may wait for has halted. */
static dtp_status sim_look(dtp_comm *base, dtp_err *err)
{
    dtp_sim__world *w = ((dtp_sim__comm *)base)->world;
    dtp_status status = DTP_OK;
    pthread_mutex_lock(&w->lock);
    for (const dtp_sim__halt *h = w->halts; status == DTP_OK && h < w->halts + w->size; h++) {
        status = h->on ? dtp_comm__relay(err, base->rank, h->cause, h->why) : DTP_OK;
    }
    pthread_mutex_unlock(&w->lock);
    return status;
}

static dtp_status sim_run(dtp_comm *base, const dtp_coll *coll, const void *in, void *out,
                          dtp_err *err)
{
    return run_ends((dtp_sim__comm *)base, coll, &(dtp_coll_ends){in, out}, err);
}

/* Does the collective at once, or late: when it or a later one is waited for. */
static dtp_status sim_start(dtp_transport *t, const dtp_coll *coll, const dtp_coll_ends *ends,
                            dtp_request *request, dtp_err *err)
{
    dtp_sim__comm *c = t->self;
    *request = (dtp_request){.coll = *coll, .ends = ends, .pending = c->late};
    if (!c->late) {
        return run_ends(c, coll, ends, err);
    }
    if (c->first == NULL) {
        c->first = request;
    } else {
        c->last->next = request;
    }
    c->last = request;
    return DTP_OK;
}

static dtp_status sim_wait(dtp_transport *t, dtp_request *request, dtp_err *err)
{
    dtp_sim__comm *c = t->self;
    while (request->pending) {
        dtp_request *next = c->first;
        c->first = next->next;
        next->pending = false;
        DTP_TRY(run_ends(c, &next->coll, next->ends, err));
    }
    return DTP_OK;
}

static dtp_status sim_barrier(dtp_comm *base, dtp_err *err)
{
    dtp_sim__comm *c = (dtp_sim__comm *)base;
    return rendezvous(c, &c->world->all, c->world->size, NULL, err);
}

static void sim_abort(dtp_comm *base, const char *why)
{
    fail(((dtp_sim__comm *)base)->world, base->rank, why);
}

static void sim_destroy(dtp_comm *base)
{
    dtp_sim__comm *c = (dtp_sim__comm *)base;
    free(c->scratch.data);
    free(c);
}

static const dtp_comm_ops sim_ops = {
    .name = "sim",
    .run = sim_run,
    .barrier = sim_barrier,
    .abort = sim_abort,
    .meet = sim_meet,
    .look = sim_look,
    .destroy = sim_destroy,
};

static const dtp_transport_ops sim_transport = {
    .name = "sim",
    .prepare = sim_prepare,
    .start = sim_start,
    .wait = sim_wait,
    .post = dtp_sim__post,
    .finish = dtp_sim__finish,
};

void dtp_comm__sim_late(dtp_comm *c, bool late)
{
    ((dtp_sim__comm *)c)->late = late;
    c->transport.caps.asynchronous = late;
}

static void run_rank(dtp_sim__world *w, dtp_sim__rank *job)
{
    dtp_sim__comm *c = (dtp_sim__comm *)job->comm;
    c->first = c->last = NULL; /* a run that failed may have left some */
    c->late = false;
    c->base.transport.caps.asynchronous = false;
    job->err = (dtp_err){0};
    job->status = w->body(job->comm, w->user, &job->err);
    if (job->status != DTP_OK) {
        sim_abort(job->comm, job->err.msg);
    }
    const int32_t rank = job->comm->rank;
    pthread_mutex_lock(&w->lock);
    w->n_ended++;
    w->visits[rank].state = DTP_COMM_VISIT_ENDED;
    dtp_sim__check_stuck(w);
    if (w->n_ended == w->size) {
        pthread_cond_signal(&w->ends);
    }
    pthread_mutex_unlock(&w->lock);
}

/* Runs a rank whenever its world runs, until the world is closed. */
static void *rank_main(void *arg)
{
    dtp_sim__rank *job = arg;
    dtp_sim__world *w = ((dtp_sim__comm *)job->comm)->world;
    uint64_t seen = 0;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        while (w->run == seen && !w->closed) {
            pthread_cond_wait(&w->begins, &w->lock);
        }
        const bool again = w->run != seen;
        seen = w->run;
        pthread_mutex_unlock(&w->lock);
        if (!again) {
            return NULL;
        }
        run_rank(w, job);
    }
}

static dtp_status start_ranks(dtp_sim__world *w, dtp_err *err)
{
    for (int32_t r = 0; r < w->size; r++) {
        dtp_sim__comm *c = calloc(1, sizeof *c);
        DTP_TRY(DTP_MEMORY(err, c));
        c->base = (dtp_comm){.ops = &sim_ops,
                             .mesh = w->mesh,
                             .rank = r,
                             .size = w->size,
                             .timeout_s = DTP_COMM_TIMEOUT_S};
        c->base.transport = (dtp_transport){
            .ops = &sim_transport, .caps = {.strided = true, .deterministic = true}, .self = c};
        c->world = w;
        w->jobs[r].comm = &c->base;
    }
    for (int32_t r = 1; r < w->size; r++) {
        if (pthread_create(&w->jobs[r].thread, NULL, rank_main, &w->jobs[r]) != 0) {
            return DTP_FAIL(err, DTP_NOMEM, "cannot start the thread of virtual rank %d of %d", r,
                            w->size);
        }
        w->jobs[r].started = true;
    }
    return DTP_OK;
}

static dtp_status world_run(dtp_sim__world *w, dtp_rank_body body, void *user, dtp_err *err)
{
    pthread_mutex_lock(&w->lock);
    if (w->failed || w->over) {
        /* A run that failed leaves ranks counted at gates that never opened. */
        w->all.arrived = 0;
        for (int32_t s = 0; s < DTP_SIM__SETS; s++) {
            dtp_sim__division *d = w->divisions[s];
            for (int32_t i = 0; d != NULL && i < d->n_groups; i++) {
                d->groups[i].gate.arrived = 0;
            }
        }
        memset(w->halts, 0, (size_t)w->size * sizeof *w->halts);
    }
    w->failed = w->over = w->stuck = false;
    w->messages = NULL; /* a run that failed may have left some */
    w->n_waiting = w->n_ended = 0;
    memset(w->visits, 0, (size_t)w->size * sizeof *w->visits);
    w->body = body;
    w->user = user;
    w->run++;
    pthread_cond_broadcast(&w->begins);
    pthread_mutex_unlock(&w->lock);
    run_rank(w, &w->jobs[0]);
    pthread_mutex_lock(&w->lock);
    while (w->n_ended < w->size) {
        pthread_cond_wait(&w->ends, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    /* The failure of the lowest rank that has one of its own, else of the lowest that has any. */
    const dtp_sim__rank *jobs = w->jobs;
    int32_t pick = -1;
    for (int32_t r = 0; r < w->size; r++) {
        if (jobs[r].status != DTP_OK && (pick < 0 || (jobs[pick].err.told && !jobs[r].err.told))) {
            pick = r;
        }
    }
    if (pick < 0) {
        return DTP_OK;
    }
    if (err != NULL) {
        *err = jobs[pick].err;
        err->told = false;
    }
    return jobs[pick].status;
}

static void world_destroy(dtp_sim__world *w)
{
    if (w == NULL) {
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->closed = true;
    pthread_cond_broadcast(&w->begins);
    pthread_mutex_unlock(&w->lock);
    for (int32_t r = 0; r < w->size; r++) {
        if (w->jobs[r].started) {
            pthread_join(w->jobs[r].thread, NULL);
        }
        dtp_comm_destroy(w->jobs[r].comm);
    }
    pthread_cond_destroy(&w->ends);
    pthread_cond_destroy(&w->begins);
    for (int32_t r = 0; r < w->size; r++) {
        pthread_cond_destroy(&w->wake[r]);
    }
    pthread_mutex_destroy(&w->lock);
    dtp_arena_destroy(w->arena);
}

static dtp_status world_create(const dtp_mesh *mesh, dtp_sim__world **out, dtp_err *err)
{
    const int32_t size = dtp_mesh_ranks(mesh);
    dtp_arena *arena = dtp_arena_create();
    dtp_sim__world *w = dtp_arena_alloc(arena, 1, sizeof *w);
    dtp_comm__visit *visits = dtp_arena_alloc(arena, (size_t)size, sizeof *visits);
    dtp_sim__halt *halts = dtp_arena_alloc(arena, (size_t)size, sizeof *halts);
    dtp_sim__rank *jobs = dtp_arena_alloc(arena, (size_t)size, sizeof *jobs);
    pthread_cond_t *wake = dtp_arena_alloc(arena, (size_t)size, sizeof *wake);
    dtp_status status = DTP_MEMORY(err, w, visits, halts, jobs, wake);
    if (status != DTP_OK) {
        dtp_arena_destroy(arena);
        return status;
    }
    *w = (dtp_sim__world){.arena = arena,
                          .mesh = *mesh,
                          .size = size,
                          .wake = wake,
                          .visits = visits,
                          .halts = halts,
                          .jobs = jobs};
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    for (int32_t r = 0; r < size; r++) {
        pthread_cond_init(&wake[r], &monotonic);
    }
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&w->begins, NULL);
    pthread_cond_init(&w->ends, NULL);
    status = start_ranks(w, err);
    if (status != DTP_OK) {
        world_destroy(w);
        return status;
    }
    *out = w;
    return DTP_OK;
}

dtp_status dtp_comm_sim_run(const dtp_mesh *mesh, dtp_rank_body body, void *user, dtp_err *err)
{
    dtp_sim__world *w = NULL;
    DTP_TRY(DTP_NOT_NULL(err, mesh));
    DTP_TRY(world_create(mesh, &w, err));
    dtp_status status = world_run(w, body, user, err);
    world_destroy(w);
    return status;
}

/* ---- worlds that stay ---- */

struct dtp_sim_pool {
    dtp_arena *arena;
    int32_t n, capacity;
    dtp_sim__world **worlds;
};

dtp_status dtp_sim_pool_create(dtp_sim_pool **out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    *out = dtp_arena_alloc(arena, 1, sizeof **out);
    const dtp_status status = DTP_MEMORY(err, *out);
    if (status != DTP_OK) {
        dtp_arena_destroy(arena);
        return status;
    }
    (*out)->arena = arena;
    return DTP_OK;
}

void dtp_sim_pool_destroy(dtp_sim_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    for (int32_t i = 0; i < pool->n; i++) {
        world_destroy(pool->worlds[i]);
    }
    dtp_arena_destroy(pool->arena);
}

static bool same_mesh(const dtp_mesh *a, const dtp_mesh *b)
{
    bool same = a->n_dims == b->n_dims;
    for (int32_t m = 0; same && m < a->n_dims; m++) {
        same = a->sizes[m] == b->sizes[m] && strcmp(a->names[m], b->names[m]) == 0;
    }
    return same;
}

dtp_status dtp_sim_pool_run(dtp_sim_pool *pool, const dtp_mesh *mesh, dtp_rank_body body,
                            void *user, dtp_err *err)
{
    if (pool == NULL) {
        return dtp_comm_sim_run(mesh, body, user, err);
    }
    int32_t i = 0;
    while (i < pool->n && !same_mesh(&pool->worlds[i]->mesh, mesh)) {
        i++;
    }
    if (i == pool->n) {
        DTP_TRY(dtp_arena_grow(pool->arena, &pool->worlds, i, i + 1, &pool->capacity,
                               sizeof(dtp_sim__world *), err));
        DTP_TRY(world_create(mesh, &pool->worlds[i], err));
        pool->n++;
    }
    return world_run(pool->worlds[i], body, user, err);
}
