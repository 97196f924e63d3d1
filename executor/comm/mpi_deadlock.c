/* Ranks of one host that can never go on.
 *
 * A rank that waits longer than usual publishes the mailbox and the turn that it waits for, and
 * from time to time reads the published states of the others. A rank waits in vain when a member of
 * its group that has not posted the turn ended, aborted, or waits in vain itself: the largest set
 * of ranks for which that holds is found by starting with all ranks that do not run and taking out
 * those that wait for running ones only (Chandy, Misra, Haas 1983; the graph is in shared memory).
 * Versions that did not change while all of that was read prove that it held at one moment; then it
 * holds for ever, since none of these ranks can act. The first rank to notice leaves the verdict in
 * its own segment, where the others find it.
 */
#include <stdio.h>
#include <time.h>

#include "executor/comm/mpi_internal.h"

/* How long a rank that failed waits for the others to learn of it before it ends the job. */
enum { GRACE_MS = 2000 };

/* ---- published state of this rank ---- */

static dtp_comm__published *own_published(dtp_comm__shared *s)
{
    return &s->bases[s->rank]->published;
}

static bool has_stopped(int32_t kind)
{
    return kind == DTP_COMM_FAILED || kind == DTP_COMM_STUCK || kind == DTP_COMM_LOST;
}

static void publish(dtp_comm__shared *s, dtp_comm__published_kind kind, int32_t mailbox,
                    uint64_t turn)
{
    dtp_comm__published *own = own_published(s);
    atomic_fetch_add(&own->version, 1);
    atomic_store(&own->kind, (int32_t)kind);
    atomic_store(&own->mailbox, mailbox);
    atomic_store(&own->turn, turn);
    atomic_fetch_add(&own->version, 1);
}

void dtp_comm__deadlock_begin(dtp_comm__shared *s, dtp_comm__published_kind kind, int32_t mailbox,
                              uint64_t turn)
{
    if (!has_stopped(atomic_load(&own_published(s)->kind))) {
        publish(s, kind, mailbox, turn);
    }
}

void dtp_comm__deadlock_end(dtp_comm__shared *s)
{
    dtp_comm__deadlock_begin(s, DTP_COMM_RUNS, 0, 0);
}

static bool stop(dtp_comm__shared *s, dtp_comm__published_kind kind, uint64_t turn, const char *why)
{
    dtp_comm__published *own = own_published(s);
    if (has_stopped(atomic_load(&own->kind))) {
        return false;
    }
    snprintf(own->why, sizeof own->why, "%s", why);
    publish(s, kind, 0, turn);
    return true;
}

bool dtp_comm__deadlock_stop(dtp_comm__shared *s, dtp_comm__published_kind kind, const char *why)
{
    return stop(s, kind, (uint64_t)s->rank, why);
}

/* ---- observed states of the others ---- */

static void look_at(dtp_comm__shared *s, int32_t r)
{
    dtp_comm__observed *o = &s->observed[r];
    dtp_comm__published *at = s->bases[r] != NULL ? &s->bases[r]->published : NULL;
    *o = (dtp_comm__observed){.kind = DTP_COMM_RUNS};
    if (at == NULL) {
        return;
    }
    o->version = atomic_load(&at->version);
    o->kind = atomic_load(&at->kind);
    o->mailbox = atomic_load(&at->mailbox);
    o->turn = atomic_load(&at->turn);
    bool sane = o->mailbox >= 0 && o->mailbox < DTP_COMM_MAILBOXES;
    const bool goes_on =
        o->kind == DTP_COMM_RUNS || o->kind == DTP_COMM_WORKS || o->kind == DTP_COMM_WAITS_AFAR;
    o->held = !goes_on && o->version % 2 == 0 && sane;
    if (o->held && o->kind == DTP_COMM_WAITS) {
        o->coll = s->bases[r]->mailboxes[o->mailbox].coll;
    }
}

/* A member that rank r waits for is held. */
static bool waits_in_vain(const dtp_comm__shared *s, int32_t r)
{
    const dtp_comm__observed *o = &s->observed[r];
    dtp_mesh_set set = dtp_comm__mailbox_set(s, o->mailbox);
    int32_t n = dtp_mesh_set_size(&s->mesh, set);
    for (int32_t i = 0; i < n; i++) {
        int32_t m = dtp_mesh_set_member(&s->mesh, set, r, i);
        if (s->observed[m].held &&
            atomic_load(&s->bases[m]->mailboxes[o->mailbox].posted) < o->turn) {
            return true;
        }
    }
    return false;
}

static bool nothing_moved(const dtp_comm__shared *s)
{
    atomic_thread_fence(memory_order_seq_cst);
    for (int32_t r = 0; r < s->size; r++) {
        if (s->observed[r].held &&
            atomic_load(&s->bases[r]->published.version) != s->observed[r].version) {
            return false;
        }
    }
    return true;
}

/* Takes over the verdict of the lowest rank that has stopped. */
static bool take_over(dtp_comm__shared *s)
{
    for (int32_t r = 0; r < s->size; r++) {
        if (s->observed[r].held && has_stopped(s->observed[r].kind)) {
            return stop(s, (dtp_comm__published_kind)s->observed[r].kind, s->observed[r].turn,
                        s->bases[r]->published.why);
        }
    }
    return false;
}

/* Whether ranks are lost, as a rank of this host or, through messages, of another one found out. */
static bool is_lost(dtp_comm__shared *s)
{
    for (int32_t r = 0; r < s->size; r++) {
        const dtp_comm__observed *o = &s->observed[r];
        if (r != s->rank && o->held && o->kind == DTP_COMM_LOST) {
            const dtp_comm__published *theirs = &s->bases[r]->published;
            (void)stop(s, DTP_COMM_LOST, o->turn, theirs->why);
            dtp_comm__remote_lose(s->remote, (int32_t)o->turn, theirs->why);
            return true;
        }
    }
    dtp_err said = {0};
    if (atomic_load(&s->remote->lost) && dtp_comm__remote_failure(s->remote, &said) != DTP_OK) {
        (void)stop(s, DTP_COMM_LOST, (uint64_t)s->remote->issuer, said.msg);
        return true;
    }
    return false;
}

bool dtp_comm__deadlock_hopeless(dtp_comm__shared *s)
{
    for (int32_t r = 0; r < s->size; r++) {
        look_at(s, r);
    }
    if (is_lost(s)) {
        return true;
    }
    /* Takes out the ranks that wait for running ones only. */
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t r = 0; r < s->size; r++) {
            dtp_comm__observed *o = &s->observed[r];
            if (o->held && o->kind == DTP_COMM_WAITS && !waits_in_vain(s, r)) {
                o->held = false;
                changed = true;
            }
        }
    }
    if (!s->observed[s->rank].held || !nothing_moved(s)) {
        return false;
    }
    if (!take_over(s)) {
        /* Writes the verdict from what was seen. */
        char text[DTP_ERR_MSG_BYTES];
        for (int32_t r = 0; r < s->size; r++) {
            const dtp_comm__observed *o = &s->observed[r];
            bool waits = o->kind == DTP_COMM_WAITS;
            s->visits[r] = (dtp_comm__visit){.state = DTP_COMM_VISIT_NONE};
            if (o->held) {
                s->visits[r].state = waits ? DTP_COMM_VISIT_WAITS : DTP_COMM_VISIT_ENDED;
                s->visits[r].coll = waits && o->mailbox != DTP_COMM_BARRIER ? &o->coll : NULL;
            }
        }
        dtp_comm__describe_waits(&s->mesh, s->size, s->visits, text);
        (void)dtp_comm__deadlock_stop(s, DTP_COMM_STUCK, text);
    }
    return true;
}

/* ---- the deadline ---- */

int32_t dtp_comm__deadlock_missing(const dtp_comm__shared *s, int32_t rank, int32_t most,
                                   int32_t *missing, dtp_coll *coll)
{
    const dtp_comm__published *at = &s->bases[rank]->published;
    const int32_t kind = atomic_load(&at->kind), mailbox = atomic_load(&at->mailbox);
    const uint64_t turn = atomic_load(&at->turn);
    const bool waits = kind == DTP_COMM_WAITS || kind == DTP_COMM_WORKS;
    int32_t found = 0;
    if (!waits || mailbox < 0 || mailbox >= DTP_COMM_MAILBOXES) {
        return 0;
    }
    const dtp_mesh_set set = dtp_comm__mailbox_set(s, mailbox);
    const int32_t n = dtp_mesh_set_size(&s->mesh, set);
    *coll = s->bases[rank]->mailboxes[mailbox].coll;
    for (int32_t i = 0; i < n && found < most; i++) {
        const int32_t m = dtp_mesh_set_member(&s->mesh, set, rank, i);
        const dtp_comm__mailbox *theirs = &s->bases[m]->mailboxes[mailbox];
        const uint64_t reached =
            atomic_load(kind == DTP_COMM_WAITS ? &theirs->posted : &theirs->done);
        if (m != rank && reached < turn) {
            missing[found++] = m;
        }
    }
    return found;
}

/* Marks those that keep this rank waiting as late, through the ranks that wait for them; whether
 * one waits for ranks of another host. */
static bool find_late(dtp_comm__shared *s)
{
    enum { MOST = 64 };
    bool afar = false;
    for (int32_t r = 0; r < s->size; r++) {
        s->visits[r] = (dtp_comm__visit){.state = DTP_COMM_VISIT_NONE};
    }
    s->visits[s->rank].state = DTP_COMM_VISIT_WAITS;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t r = 0; r < s->size; r++) {
            int32_t missing[MOST];
            dtp_coll coll;
            const int32_t n = s->visits[r].state == DTP_COMM_VISIT_WAITS
                                  ? dtp_comm__deadlock_missing(s, r, MOST, missing, &coll)
                                  : 0;
            if (n == 0 && s->visits[r].state == DTP_COMM_VISIT_WAITS && r != s->rank) {
                s->visits[r].state = DTP_COMM_VISIT_LATE; /* it could go on */
            }
            for (int32_t k = 0; k < n; k++) {
                dtp_comm__visit *visit = &s->visits[missing[k]];
                const int32_t kind = atomic_load(&s->bases[missing[k]]->published.kind);
                if (visit->state != DTP_COMM_VISIT_NONE) {
                    continue;
                }
                changed = true;
                afar = afar || kind == DTP_COMM_WAITS_AFAR;
                visit->state = kind == DTP_COMM_WAITS || kind == DTP_COMM_WORKS
                                   ? DTP_COMM_VISIT_WAITS
                                   : DTP_COMM_VISIT_LATE;
            }
        }
    }
    return afar;
}

bool dtp_comm__deadlock_overdue(dtp_comm__shared *s, double waited_s)
{
    static const double grace_s = 3; /* for a rank with a deadline of its own to find out more */
    const double limit_s = s->base->timeout_s;
    char text[DTP_ERR_MSG_BYTES];
    if (waited_s < limit_s || (find_late(s) && waited_s < limit_s + grace_s)) {
        return false;
    }
    const int32_t mailbox = atomic_load(&own_published(s)->mailbox);
    const dtp_coll *coll = &s->bases[s->rank]->mailboxes[mailbox].coll;
    dtp_comm__describe_late(&s->mesh, s->size, s->visits, s->rank,
                            mailbox == DTP_COMM_BARRIER ? NULL : coll, limit_s, text);
    (void)stop(s, DTP_COMM_LOST, (uint64_t)s->rank, text);
    dtp_comm__remote_lose(s->remote, s->rank, text);
    return true;
}

/* ---- ends ---- */

bool dtp_comm__shared_fail(dtp_comm__shared *s, const char *why)
{
    char text[DTP_ERR_MSG_BYTES];
    for (int32_t r = 0; r < s->size; r++) {
        if (s->bases[r] == NULL) {
            return false;
        }
    }
    snprintf(text, sizeof text, "rank %d failed: %.960s", s->rank, why);
    s->failed = dtp_comm__deadlock_stop(s, DTP_COMM_FAILED, text) || s->failed;
    return s->use;
}

/* Ranks that have neither stopped nor ended; -1: one has ended without stopping. */
static int32_t count_unaware(const dtp_comm__shared *s)
{
    int32_t n = 0;
    for (int32_t r = 0; r < s->size; r++) {
        int32_t kind = atomic_load(&s->bases[r]->published.kind);
        if (kind == DTP_COMM_LEFT) {
            return -1;
        }
        n += has_stopped(kind) ? 0 : 1;
    }
    return n;
}

void dtp_comm__shared_end(dtp_comm__shared *s)
{
    if (!has_stopped(atomic_load(&own_published(s)->kind))) {
        publish(s, DTP_COMM_LEFT, 0, 0);
    }
}

bool dtp_comm__shared_leave(dtp_comm__shared *s)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    if (!s->failed) {
        dtp_comm__shared_end(s);
        return true;
    }
    for (int32_t ms = 0; ms < GRACE_MS; ms++) {
        int32_t unaware = count_unaware(s);
        if (unaware <= 0) {
            return unaware == 0;
        }
        nanosleep(&pause, NULL);
    }
    return false;
}
