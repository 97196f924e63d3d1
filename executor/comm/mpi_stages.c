/* Messages between the stages of a pipeline (dtp_transport_ops.post) as MPI messages from rank to
 * rank, on one host and between hosts (mpi_internal.h).
 *
 * The thread of the collectives (mpi_remote.c) begins what was posted and sees it end, between two
 * looks at a collective as well: bytes go while both ranks compute, and neither messages nor
 * collectives wait for each other. A channel is a tag; what is too long for one call goes in parts,
 * which MPI keeps in order. Deadlines and ranks that are lost are those of mpi_control.c.
 */
#include "executor/comm/mpi_internal.h"

#include <inttypes.h>

#include "core/base/clock.h"
#include "core/base/safe_int.h"
#include "executor/comm/mpi_control.h"

enum {
    TAG_CHANNEL = 16, /* of channel 0; those below are of collectives */
    PART_BYTES = 1 << 30,
    QUIET_LOOKS = 10 /* at a thread that may be stuck in MPI */
};

static dtp_comm__wait wait_for(const dtp_comm__remote *r, const dtp_message *m)
{
    return (dtp_comm__wait){.on = m->pending,
                            .peer = m->peer,
                            .coll = dtp_comm__message_coll(&r->base->mesh, m),
                            .since_s = dtp_now_s()};
}

/* ---- on the thread ---- */

/* The other rank of a message is lost, says MPI. */
static dtp_status lose(dtp_comm__remote *r, const dtp_message *m, int code, dtp_err *err)
{
    dtp_err why = {0};
    const dtp_status status = dtp_comm__mpi_check(code, r->base->rank, "message", &why);
    (void)status;
    r->wait = wait_for(r, m);
    dtp_comm__control_lose(r, NULL, 0.0, why.msg);
    return dtp_comm__remote_failure(r, err);
}

static dtp_status begin(dtp_comm__remote *r, dtp_message *m, dtp_err *err)
{
    const int64_t most = r->limit < PART_BYTES ? r->limit : PART_BYTES;
    const int64_t n = m->bytes > 0 ? dtp_ceil_div(m->bytes, most) : 1;
    const size_t room = (size_t)(r->n_moving + n);
    DTP_TRY(dtp_comm__reserve(&r->moving, room * sizeof(MPI_Request), err));
    DTP_TRY(dtp_comm__reserve(&r->moves, room * sizeof(dtp_message *), err));
    for (int64_t i = 0; i < n; i++) {
        MPI_Request *request = (MPI_Request *)r->moving.data + r->n_moving;
        char *at = (char *)m->data + i * most;
        const int64_t left = m->bytes - i * most;
        const int bytes = (int)(left < most ? left : most), tag = TAG_CHANNEL + m->channel;
        const int code = m->sends ? MPI_Isend(at, bytes, MPI_BYTE, m->peer, tag, r->world, request)
                                  : MPI_Irecv(at, bytes, MPI_BYTE, m->peer, tag, r->world, request);
        if (code != MPI_SUCCESS) {
            return lose(r, m, code, err);
        }
        ((dtp_message **)r->moves.data)[r->n_moving++] = m;
        m->parts++;
    }
    return DTP_OK;
}

/* A part has gone; with the lock held. */
static dtp_status note(dtp_comm__remote *r, dtp_message *m, const MPI_Status *status, dtp_err *err)
{
    int bytes = 0;
    if (!m->sends) {
        (void)MPI_Get_count(status, MPI_BYTE, &bytes);
        m->come += bytes;
    }
    if (--m->parts > 0) {
        return DTP_OK;
    }
    if (!m->sends && m->come != m->bytes) {
        return DTP_FAIL(err, DTP_COMM,
                        "a message of %" PRId64 " bytes from rank %d, rank %d has %" PRId64,
                        m->come, m->peer, m->rank, m->bytes);
    }
    m->pending = false;
    r->n_messages--;
    return DTP_OK;
}

/* Takes note of what has gone. */
static dtp_status look(dtp_comm__remote *r, dtp_err *err)
{
    const size_t room = (size_t)r->n_moving;
    int n = 0;
    DTP_TRY(dtp_comm__reserve(&r->gone, room * sizeof(int), err));
    DTP_TRY(dtp_comm__reserve(&r->statuses, room * sizeof(MPI_Status), err));
    MPI_Request *requests = r->moving.data;
    dtp_message **of = r->moves.data;
    const int *at = r->gone.data;
    const MPI_Status *statuses = r->statuses.data;
    const int code = MPI_Testsome(r->n_moving, requests, &n, r->gone.data, r->statuses.data);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
        return lose(r, of[0], code, err);
    }
    for (int i = 0; i < n; i++) { /* n is below 0 where there is none */
        if (code != MPI_SUCCESS && statuses[i].MPI_ERROR != MPI_SUCCESS) {
            return lose(r, of[at[i]], statuses[i].MPI_ERROR, err);
        }
        pthread_mutex_lock(&r->lock);
        const dtp_status s = note(r, of[at[i]], &statuses[i], err);
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
        DTP_TRY(s);
    }
    int32_t kept = 0;
    for (int32_t i = 0; i < r->n_moving; i++) {
        if (requests[i] != MPI_REQUEST_NULL) {
            requests[kept] = requests[i];
            of[kept++] = of[i];
        }
    }
    r->n_moving = kept;
    return DTP_OK;
}

/* Whether a receive has memory that is being sent. */
static bool must_wait(const dtp_comm__remote *r, const dtp_message *m)
{
    const dtp_message *const *of = r->moves.data;
    bool waits = false;
    for (int32_t i = 0; i < r->n_moving && !m->sends; i++) {
        waits = waits || (of[i]->sends && dtp_comm__messages_meet(of[i], m));
    }
    return waits;
}

dtp_status dtp_comm__messages_move(dtp_comm__remote *r, dtp_err *err)
{
    dtp_message **at = &r->held;
    bool holds = false;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    pthread_mutex_lock(&r->lock);
    *at = r->posted;
    r->posted = r->last_posted = NULL;
    r->wait = r->awaited;
    pthread_mutex_unlock(&r->lock);
    at = &r->held;
    while (*at != NULL) {
        dtp_message *m = *at;
        holds = holds || must_wait(r, m);
        if (holds && !m->sends) { /* receives keep their order */
            at = &m->next;
        } else {
            *at = m->next;
            DTP_TRY(begin(r, m, err));
        }
    }
    return r->n_moving > 0 ? look(r, err) : DTP_OK;
}

/* Where the thread has failed: nothing is touched any more. */
void dtp_comm__messages_abandon(dtp_comm__remote *r)
{
    MPI_Request *requests = r->moving.data;
    dtp_message **of = r->moves.data;
    for (int32_t i = 0; i < r->n_moving; i++) {
        if (requests[i] != MPI_REQUEST_NULL && !of[i]->sends) {
            (void)MPI_Cancel(&requests[i]);
        }
    }
    dtp_comm__remote_take_back(r, r->n_moving, requests);
    r->n_moving = 0;
    pthread_mutex_lock(&r->lock);
    r->posted = r->last_posted = r->held = NULL;
    r->n_messages = 0;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* ---- on the thread of the program ---- */

dtp_status dtp_comm__message_post(dtp_comm__remote *r, dtp_message *m, dtp_err *err)
{
    int *most = NULL, found = 0;
    m->rank = r->base->rank;
    m->pending = true;
    m->parts = 0;
    m->come = 0;
    m->next = NULL;
    DTP_TRY(dtp_comm__remote_begin(r, err));
    DTP_TRY(dtp_comm__remote_failure(r, err));
    (void)MPI_Comm_get_attr(r->world, MPI_TAG_UB, &most, &found);
    if (found && m->channel > *most - TAG_CHANNEL) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "MPI has tags up to %d, too few for channel %d",
                        *most, m->channel);
    }
    pthread_mutex_lock(&r->lock);
    if (r->last_posted != NULL) {
        r->last_posted->next = m;
    } else {
        r->posted = m;
    }
    r->last_posted = m;
    r->n_messages++;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return r->runs ? DTP_OK : dtp_comm__remote_look(r, err);
}

/* Waits until a message has gone, which is the answer, or nothing goes any more; *ends: the thread
 * is stuck in MPI, and the process is about to be killed. */
static bool await_thread(dtp_comm__remote *r, const dtp_message *m, bool *ends)
{
    pthread_mutex_lock(&r->lock);
    (void)atomic_fetch_add(&r->waiting, 1);
    r->awaited = wait_for(r, m);
    while (m->pending && (!atomic_load(&r->broken) || r->n_messages > 0) && !*ends) {
        *ends = dtp_comm__remote_stuck(r);
    }
    const bool gone = !m->pending;
    if (!gone && *ends) {
        r->wait = r->awaited; /* which the thread does not do */
    }
    r->awaited.on = false;
    (void)atomic_fetch_add(&r->waiting, -1);
    pthread_mutex_unlock(&r->lock);
    return gone;
}

/* Without a thread the rank that waits looks itself. */
static dtp_status look_until(dtp_comm__remote *r, const dtp_message *m, dtp_err *err)
{
    dtp_status s = DTP_OK;
    r->awaited = wait_for(r, m);
    while (m->pending && s == DTP_OK) {
        s = dtp_comm__remote_look(r, err);
    }
    r->awaited.on = false;
    if (s != DTP_OK) {
        dtp_comm__messages_abandon(r);
    }
    return s;
}

dtp_status dtp_comm__message_finish(dtp_comm__remote *r, dtp_message *m, dtp_err *err)
{
    if (!r->runs) {
        DTP_TRY(m->pending ? dtp_comm__remote_failure(r, err) : DTP_OK);
        return look_until(r, m, err);
    }
    const double since_s = dtp_now_s();
    bool ends = false;
    if (r->shared != NULL) {
        dtp_comm__deadlock_begin(r->shared, DTP_COMM_WAITS_AFAR, 0, 0);
    }
    const bool gone = await_thread(r, m, &ends);
    if (r->shared != NULL) {
        dtp_comm__deadlock_end(r->shared);
    }
    if (gone) {
        return DTP_OK;
    }
    if (ends) {
        dtp_comm__control_lose(r, NULL, dtp_now_s() - since_s, NULL);
    }
    return dtp_comm__remote_failure(r, err);
}

void dtp_comm__messages_quiet(dtp_comm__remote *r)
{
    pthread_mutex_lock(&r->lock);
    for (int32_t k = 0; k < QUIET_LOOKS && r->runs && r->n_messages > 0 && !r->stuck; k++) {
        (void)dtp_comm__remote_stuck(r);
    }
    pthread_mutex_unlock(&r->lock);
}
