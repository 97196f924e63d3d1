/* Messages between virtual ranks. The second of two ends that is posted copies the bytes, under the
 * lock of the world: both ranks may go on, and neither buffer is in use before its end is finished.
 * A rank that waits in finish counts as one that waits at a gate. */
#include "executor/comm/sim_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* The rank whose failure keeps a message from going, -1: none. */
static int32_t halted(const dtp_sim__world *w, const dtp_message *m)
{
    int32_t any = w->halts[m->peer].on ? m->peer : -1;
    for (int32_t r = 0; w->over && r < w->size && any < 0; r++) {
        any = w->halts[r].on ? r : -1;
    }
    return any;
}

static void done(dtp_sim__world *w, dtp_message *m)
{
    m->pending = false;
    if (m->awaited) {
        m->awaited = false;
        w->n_waiting--;
        pthread_cond_signal(&w->wake[m->rank]);
    }
}

/* Puts a message with its other end, or behind those that wait for theirs. */
static dtp_status match(dtp_sim__world *w, dtp_message *m, dtp_err *err)
{
    dtp_message **at = &w->messages;
    while (*at != NULL && ((*at)->sends == m->sends || (*at)->rank != m->peer ||
                           (*at)->peer != m->rank || (*at)->channel != m->channel)) {
        at = &(*at)->next;
    }
    dtp_message *other = *at;
    if (other == NULL) {
        *at = m;
        return DTP_OK;
    }
    if (other->bytes != m->bytes) {
        return DTP_FAIL(err, DTP_COMM,
                        "a message of %" PRId64 " bytes from rank %d, rank %d has %" PRId64,
                        m->sends ? m->bytes : other->bytes, m->sends ? m->rank : m->peer,
                        m->sends ? m->peer : m->rank, m->sends ? other->bytes : m->bytes);
    }
    *at = other->next;
    if (m->move != NULL) {
        DTP_TRY(m->move(m, other, err));
    } else if (m->bytes > 0) {
        memcpy(m->sends ? other->data : m->data, m->sends ? m->data : other->data,
               (size_t)m->bytes);
    }
    done(w, other);
    done(w, m);
    return DTP_OK;
}

dtp_status dtp_sim__post(dtp_transport *t, dtp_message *m, dtp_err *err)
{
    dtp_sim__comm *c = t->self;
    dtp_sim__world *w = c->world;
    dtp_status status = DTP_OK;
    m->rank = c->base.rank;
    m->pending = true;
    m->awaited = false;
    m->next = NULL;
    pthread_mutex_lock(&w->lock);
    status = w->over || halted(w, m) >= 0 ? dtp_sim__give_up(w, m->rank, halted(w, m), err)
                                          : match(w, m, err);
    pthread_mutex_unlock(&w->lock);
    return status;
}

dtp_status dtp_sim__finish(dtp_transport *t, dtp_message *m, dtp_err *err)
{
    dtp_sim__comm *c = t->self;
    dtp_sim__world *w = c->world;
    const dtp_coll coll = dtp_comm__message_coll(&w->mesh, m);
    const struct timespec until = dtp_sim__deadline(w, m->rank);
    dtp_status status = DTP_OK;
    pthread_mutex_lock(&w->lock);
    if (m->pending && !w->over && halted(w, m) < 0) {
        w->visits[m->rank] = (dtp_comm__visit){.state = DTP_COMM_VISIT_WAITS, .coll = &coll};
        m->awaited = true;
        w->n_waiting++;
        dtp_sim__check_stuck(w);
        while (m->pending && !w->over && halted(w, m) < 0 && !w->halts[m->rank].late) {
            const int late = pthread_cond_timedwait(&w->wake[m->rank], &w->lock, &until);
            if (late == ETIMEDOUT && m->pending) {
                dtp_sim__halt_late(w, m->rank, &coll);
            }
        }
        w->visits[m->rank].state = DTP_COMM_VISIT_NONE;
        w->n_waiting -= m->pending ? 1 : 0;
        m->awaited = false;
    }
    status = m->pending ? dtp_sim__give_up(w, m->rank, halted(w, m), err) : DTP_OK;
    pthread_mutex_unlock(&w->lock);
    return status;
}
