/* Collectives between ranks of one host through shared memory (mpi_internal.h).
 *
 * A collective over a group on one host: each member posts what it runs and where its buffers lie,
 * and waits until all have posted. When all buffers can be reached, each does its share of the work
 * in place (transfer.c): every byte moves once. It says that it is done and waits for the others;
 * then buffers and mailboxes may change again. Small buffers elsewhere go through the bounce
 * buffers. Turns are counted per set of mesh dims; the members of a group run the same collectives
 * in order. A rank whose peers do not come within some time looks for the reason (mpi_deadlock.c);
 * once ranks disagree, the communicator is of no more use to them.
 */
#include "executor/comm/mpi_internal.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"

enum {
    YIELDS_PER_PROGRESS = 64, /* then MPI may need to move something for another rank */
    /* between two looks for the reason of a wait. Not so many yields: on a busy machine each of
     * them costs the time slices of all others */
    WATCH_NS = 1000000
};

/* The group that uses a mailbox. */
static dtp_status find_group(dtp_comm__shared *s, int32_t mailbox, dtp_comm__group **out,
                             dtp_err *err)
{
    dtp_comm__group *g = &s->groups[mailbox];
    dtp_mesh_set set = dtp_comm__mailbox_set(s, mailbox);
    *out = g;
    if (g->known) {
        return DTP_OK;
    }
    g->n = dtp_mesh_set_size(&s->mesh, set);
    g->me = dtp_mesh_set_index(&s->mesh, set, s->rank);
    g->members = dtp_arena_alloc(s->arena, (size_t)g->n, sizeof(dtp_comm__segment *));
    g->ends = dtp_arena_alloc(s->arena, (size_t)g->n, sizeof(const dtp_coll_ends *));
    g->ends_of = dtp_arena_alloc(s->arena, (size_t)g->n * DTP_MAX_BUCKET, sizeof *g->ends_of);
    DTP_TRY(DTP_MEMORY(err, g->members, g->ends, g->ends_of));
    for (int32_t i = 0; i < g->n; i++) {
        g->ends[i] = g->ends_of + (ptrdiff_t)i * DTP_MAX_BUCKET;
        g->members[i] = s->bases[dtp_mesh_set_member(&s->mesh, set, s->rank, i)];
    }
    g->known = true;
    return DTP_OK;
}

bool dtp_comm__shared_reaches(dtp_comm__shared *s, dtp_mesh_set set)
{
    dtp_comm__group *g = &s->groups[set];
    int32_t n = g->looked ? 0 : dtp_mesh_set_size(&s->mesh, set);
    g->reachable = g->looked ? g->reachable : true;
    for (int32_t i = 0; i < n; i++) {
        int32_t member = dtp_mesh_set_member(&s->mesh, set, s->rank, i);
        g->reachable = g->reachable && s->bases[member] != NULL;
    }
    g->looked = true;
    return s->use && g->reachable;
}

/* This rank ran into a verdict before. */
static dtp_status check_usable(const dtp_comm__shared *s, dtp_err *err)
{
    const dtp_comm__published *own = &s->bases[s->rank]->published;
    const int32_t kind = atomic_load(&own->kind);
    if (kind != DTP_COMM_STUCK && kind != DTP_COMM_FAILED && kind != DTP_COMM_LOST) {
        return DTP_OK;
    }
    dtp_status status =
        kind == DTP_COMM_FAILED
            ? DTP_FAIL(err, DTP_COMM, "rank %d gives up because %.900s", s->rank, own->why)
            : DTP_FAIL(err, DTP_COMM, "%s", own->why);
    if (err != NULL) {
        err->told = kind != DTP_COMM_LOST || atomic_load(&own->turn) != (uint64_t)s->rank;
    }
    return status;
}

/* Lets others use the core, and MPI move what other ranks wait for when no thread does. */
static void give_way(const dtp_comm__shared *s, int32_t yields)
{
    sched_yield();
    if (yields % YIELDS_PER_PROGRESS == 0 && !s->remote->runs) {
        int flag;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, s->world, &flag, MPI_STATUS_IGNORE);
    }
}

static int64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Waits until all members have posted the turn (WAITS) or are done with it (WORKS). */
static dtp_status wait_members(dtp_comm__shared *s, const dtp_comm__group *g, int32_t mailbox,
                               dtp_comm__published_kind kind, dtp_err *err)
{
    int32_t looks = 0, yields = 0;
    int64_t watched_ns = 0;
    double since_s = 0;
    for (int32_t i = 0; i < g->n; i++) {
        dtp_comm__mailbox *theirs = &g->members[i]->mailboxes[mailbox];
        _Atomic uint64_t *reached = kind == DTP_COMM_WAITS ? &theirs->posted : &theirs->done;
        while (atomic_load_explicit(reached, memory_order_acquire) < g->turn) {
            if (++looks < s->spins) {
                continue;
            }
            if (yields++ == 0) {
                dtp_comm__deadlock_begin(s, kind, mailbox, g->turn);
                watched_ns = now_ns();
                since_s = dtp_now_s();
            }
            give_way(s, yields);
            /* Looks for the reason of the wait when it is time to. */
            const int64_t now = now_ns();
            if (now - watched_ns < WATCH_NS) {
                continue;
            }
            watched_ns = now;
            if (dtp_comm__deadlock_hopeless(s) ||
                dtp_comm__deadlock_overdue(s, dtp_now_s() - since_s)) {
                return check_usable(s, err);
            }
        }
    }
    if (yields > 0) {
        dtp_comm__deadlock_end(s);
    }
    return DTP_OK;
}

/* A buffer of the caller as the others find it: where it is, or at *used of a bounce buffer that it
 * fits into. */
static int64_t reach(const dtp_comm__shared *s, const void *data, char *bounce, int64_t bytes,
                     int64_t *used)
{
    const int64_t offset = dtp_comm__shared_offset(s, data);
    if (offset >= 0 || bytes > DTP_COMM_BOUNCE_BYTES - *used) {
        return offset;
    }
    const int64_t at = *used;
    *used += (bytes + DTP_COMM_LINE_BYTES - 1) / DTP_COMM_LINE_BYTES * DTP_COMM_LINE_BYTES;
    return dtp_comm__shared_offset(s, bounce + at);
}

/* Posts what this member runs. Inputs must be in reach; outputs only where others write them. */
static void post(dtp_comm__shared *s, dtp_comm__group *g, const dtp_coll *coll,
                 const dtp_coll_ends *ends)
{
    dtp_comm__segment *own = s->bases[s->rank];
    dtp_comm__mailbox *mailbox = &own->mailboxes[coll->set];
    int64_t width = dtp_dtype_bytes(coll->dtype), used_in = 0, used_out = 0;
    mailbox->coll = *coll;
    mailbox->coll.bucket = NULL; /* means nothing to the others */
    for (int32_t k = 0; k < dtp_coll_buffers(coll); k++) {
        int64_t n_in, n_out;
        dtp_comm__elems(dtp_coll_at(coll, k), g->n, &n_in, &n_out);
        const int64_t before = used_in;
        mailbox->in[k] = reach(s, ends[k].in, own->bounce_in, n_in * width, &used_in);
        if (used_in > before) {
            memcpy(own->bounce_in + before, ends[k].in, (size_t)(n_in * width));
        }
        mailbox->out[k] = dtp_comm__pushes(coll)
                              ? reach(s, ends[k].out, own->bounce_out, n_out * width, &used_out)
                              : 0;
    }
    atomic_store_explicit(&mailbox->posted, g->turn, memory_order_release);
}

/* Finds where the buffers of all members are in this process; false when some cannot be reached. */
static bool find_ends(dtp_comm__group *g, const dtp_coll *coll, const dtp_coll_ends *own)
{
    bool found = true;
    for (int32_t i = 0; i < g->n; i++) {
        const dtp_comm__mailbox *mailbox = &g->members[i]->mailboxes[coll->set];
        dtp_coll_ends *ends = g->ends_of + (ptrdiff_t)i * DTP_MAX_BUCKET;
        char *base = (char *)g->members[i];
        for (int32_t k = 0; k < dtp_coll_buffers(coll); k++) {
            found = found && mailbox->in[k] >= 0 && mailbox->out[k] >= 0;
            ends[k] = (dtp_coll_ends){
                .in = base + mailbox->in[k],
                .out = i == g->me && !dtp_comm__pushes(coll) ? own[k].out : base + mailbox->out[k]};
        }
    }
    return found;
}

/* Every member sees what all run, so every one finds the same first difference; the ranks that it
 * would meet later learn of it too. */
static dtp_status check_same(dtp_comm__shared *s, const dtp_comm__group *g, dtp_mesh_set set,
                             char why[DTP_ERR_MSG_BYTES])
{
    const dtp_coll *first = &g->members[0]->mailboxes[set].coll;
    for (int32_t i = 1; i < g->n; i++) {
        const dtp_coll *other = &g->members[i]->mailboxes[set].coll;
        if (dtp_comm__differs(&s->mesh, s->rank, 0, first, i, other, why)) {
            return DTP_COMM;
        }
    }
    return DTP_OK;
}

dtp_status dtp_comm__shared_run(dtp_comm__shared *s, const dtp_coll *coll,
                                const dtp_coll_ends *ends, bool *ran, dtp_err *err)
{
    dtp_comm__group *g;
    char why[DTP_ERR_MSG_BYTES];
    *ran = false;
    DTP_TRY(check_usable(s, err));
    if (!dtp_comm__shared_reaches(s, coll->set)) {
        return DTP_OK;
    }
    DTP_TRY(find_group(s, (int32_t)coll->set, &g, err));
    g->turn++;
    post(s, g, coll, ends);
    DTP_TRY(wait_members(s, g, (int32_t)coll->set, DTP_COMM_WAITS, err));
    /* Members that have given this one up have posted, and use their buffers no more. */
    for (int32_t i = 0; i < g->n; i++) {
        if (atomic_load(&g->members[i]->published.kind) == DTP_COMM_LOST &&
            dtp_comm__deadlock_hopeless(s)) {
            return check_usable(s, err);
        }
    }
    dtp_status same = check_same(s, g, coll->set, why);
    *ran = same == DTP_OK && find_ends(g, coll, ends);
    if (*ran) {
        dtp_comm__transfer(coll, g->n, g->me, g->ends);
    }
    atomic_store_explicit(&s->bases[s->rank]->mailboxes[coll->set].done, g->turn,
                          memory_order_release);
    DTP_TRY(wait_members(s, g, (int32_t)coll->set, DTP_COMM_WORKS, err));
    if (same != DTP_OK) {
        (void)dtp_comm__deadlock_stop(s, DTP_COMM_STUCK, why);
        return check_usable(s, err);
    }
    for (int32_t k = 0; k < dtp_coll_buffers(coll) && *ran && dtp_comm__pushes(coll); k++) {
        const dtp_coll *one = dtp_coll_at(coll, k);
        const void *pushed = g->ends[g->me][k].out;
        const int64_t elems = one->count * dtp_coll_parts_out(one, g->n);
        if (pushed != ends[k].out) {
            memcpy(ends[k].out, pushed, (size_t)(elems * dtp_dtype_bytes(coll->dtype)));
        }
    }
    return DTP_OK;
}

dtp_status dtp_comm__shared_barrier(dtp_comm__shared *s, bool *ran, dtp_err *err)
{
    dtp_comm__group *g;
    *ran = false;
    DTP_TRY(check_usable(s, err));
    if (!dtp_comm__shared_reaches(s, dtp_comm__mailbox_set(s, DTP_COMM_BARRIER))) {
        return DTP_OK;
    }
    DTP_TRY(find_group(s, DTP_COMM_BARRIER, &g, err));
    g->turn++;
    atomic_store_explicit(&s->bases[s->rank]->mailboxes[DTP_COMM_BARRIER].posted, g->turn,
                          memory_order_release);
    *ran = true;
    return wait_members(s, g, DTP_COMM_BARRIER, DTP_COMM_WAITS, err);
}
