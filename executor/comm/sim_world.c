/* Ranks that cannot go on: failed, late, or all waiting for each other (sim_internal.h). */
#include "executor/comm/sim_internal.h"

#include <inttypes.h>
#include <stdio.h>

/* All ranks that wait at gates look whether they can go on. */
static void wake_all_locked(dtp_sim__world *w)
{
    for (int32_t r = 0; r < w->size; r++) {
        pthread_cond_signal(&w->wake[r]);
    }
}

void dtp_sim__halt_rank(dtp_sim__world *w, int32_t rank, int32_t cause, const char *why)
{
    dtp_sim__halt *h = &w->halts[rank];
    dtp_message **at = &w->messages;
    while (*at != NULL) { /* its memory may go */
        dtp_message *m = *at;
        *at = m->rank == rank ? m->next : *at;
        at = m->rank == rank ? at : &m->next;
    }
    if (!h->on) {
        *h = (dtp_sim__halt){.on = true, .cause = cause};
        snprintf(h->why, sizeof h->why, "%s", why);
        w->failed = true;
        wake_all_locked(w);
    }
}

/* When every rank waits at a gate or has ended, none of them can ever go on: they are told so. */
void dtp_sim__check_stuck(dtp_sim__world *w)
{
    if (w->n_waiting == 0 || w->n_waiting + w->n_ended < w->size || w->over) {
        return;
    }
    w->over = true;
    w->stuck = !w->failed;
    if (w->stuck) {
        dtp_comm__describe_waits(&w->mesh, w->size, w->visits, w->why);
    }
    wake_all_locked(w);
}

struct timespec dtp_sim__deadline(const dtp_sim__world *w, int32_t rank)
{
    const double limit_s = w->jobs[rank].comm->timeout_s;
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    const int64_t ns = t.tv_nsec + (int64_t)(limit_s * 1e9);
    return (struct timespec){.tv_sec = t.tv_sec + ns / 1000000000, .tv_nsec = ns % 1000000000};
}

/* A rank whose peers have not come in time halts; they run kernels. */
void dtp_sim__halt_late(dtp_sim__world *w, int32_t rank, const dtp_coll *coll)
{
    char text[DTP_ERR_MSG_BYTES];
    dtp_comm__visit *visits = w->visits;
    for (int32_t r = 0; r < w->size; r++) {
        const bool runs = visits[r].state == DTP_COMM_VISIT_NONE;
        visits[r].state = runs ? DTP_COMM_VISIT_LATE : visits[r].state;
    }
    dtp_comm__describe_late(&w->mesh, w->size, visits, rank, coll, w->jobs[rank].comm->timeout_s,
                            text);
    for (int32_t r = 0; r < w->size; r++) {
        const bool late = visits[r].state == DTP_COMM_VISIT_LATE;
        visits[r].state = late ? DTP_COMM_VISIT_NONE : visits[r].state;
    }
    dtp_sim__halt_rank(w, rank, rank, text);
    w->halts[rank].late = true;
}

dtp_status dtp_sim__give_up(dtp_sim__world *w, int32_t rank, int32_t failed, dtp_err *err)
{
    if (w->halts[rank].late) {
        return DTP_FAIL(err, DTP_COMM, "%s", w->halts[rank].why);
    }
    if (w->stuck) {
        const dtp_status status = DTP_FAIL(err, DTP_COMM, "%.1000s", w->why);
        if (err != NULL) {
            err->told = true;
        }
        return status;
    }
    const dtp_sim__halt *h = &w->halts[failed];
    const dtp_status status = dtp_comm__relay(err, rank, h->cause, h->why);
    dtp_sim__halt_rank(w, rank, h->cause, h->why);
    return status;
}
