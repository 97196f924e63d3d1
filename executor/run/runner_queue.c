/* What a runner has on the queue of a device: graphs of recorded microbatches, the ends of
 * steps, and times from events. */
#include "executor/run/runner_queue.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/transform/stages.h"
#include "executor/run/runner_names.h"

dtp_status dtp_runner__open_queue(dtp_runner *r, dtp_err *err)
{
    const dtp_queue_ops *queue = r->backend->ops->queue;
    const size_t n = (size_t)dtp_program_microbatches(r->program);
    const size_t n_marks = (size_t)r->program->n_instrs + (size_t)r->n_sections;
    const size_t words = 2 * (size_t)r->state.n_words * sizeof(dtp_error_word);
    DTP_TRY(DTP_NEW(r->arena, r->parts, n * (size_t)r->n_sections, err));
    for (int32_t k = 0; k < 2; k++) {
        DTP_TRY(queue->event_create(r->backend, &r->pace[k], err));
    }
    for (int32_t k = 0; k < DTP_RUNNER_AHEAD; k++) {
        dtp_runner__flight *f = &r->flights[k];
        void *raw = NULL;
        DTP_TRY(queue->take(r->backend, false, DTP_RUNNER_RAW + words, &raw, err));
        f->raw = raw;
        f->marks = dtp_arena_alloc(r->arena, n * n_marks, sizeof(void *));
        DTP_TRY(DTP_MEMORY(err, f->marks));
        DTP_TRY(queue->event_create(r->backend, &f->begin, err));
        DTP_TRY(queue->event_create(r->backend, &f->end, err));
    }
    return DTP_OK;
}

static void forget(const dtp_runner *r, dtp_runner__part *part)
{
    r->backend->ops->queue->recording_destroy(r->backend, part->recording);
    *part = (dtp_runner__part){0};
}

void dtp_runner__forget(dtp_runner *r)
{
    const int32_t n = dtp_program_microbatches(r->program) * r->n_sections;
    for (int32_t i = 0; r->parts != NULL && i < n; i++) {
        forget(r, &r->parts[i]);
    }
}

void dtp_runner__forget_all(dtp_runner *r)
{
    dtp_runner *each = r;
    do {
        dtp_runner__forget(each);
        each = each->beside;
    } while (each != r);
}

dtp_runner__part *dtp_runner__part_at(dtp_runner *r)
{
    const int32_t n = dtp_program_microbatches(r->program);
    dtp_runner__part *part = &r->parts[r->section * n + r->state.record.microbatch];
    const int32_t slot = r->section < DTP_SECTION_UPDATE ? r->slot : 0; /* updates have none */
    if (part->slot != slot) {
        forget(r, part);
        part->slot = slot;
    }
    return part;
}

/* ---- waiting ---- */

/* The START whose request that is; -1: none of this program. */
static int32_t start_of(const dtp_runner *r, const dtp_request *request)
{
    for (int32_t i = 0; i < r->program->n_instrs; i++) {
        if (&r->instrs[i].request == request) {
            return i;
        }
    }
    return -1;
}

/* Waits until the compute queue has passed an event of a step, or a collective has failed. */
static dtp_status pass(dtp_runner *r, dtp_event *event, int64_t step, dtp_err *err)
{
    dtp_transport *t = &r->comm->transport;
    const double start = dtp_now_s();
    dtp_status s = DTP_OK;
    for (bool passed = false; s == DTP_OK && !passed;) {
        const dtp_request *at = NULL;
        s = r->backend->ops->queue->event_passed(r->backend, event, &passed, err);
        const double waited_s = dtp_now_s() - start;
        if (s == DTP_OK && t->caps.queued && t->ops->poll != NULL) {
            s = t->ops->poll(t, waited_s, passed ? NULL : &at, err);
        }
        if (s != DTP_OK && err != NULL) {
            dtp_runner__name_instr(r, step, start_of(r, at), err);
        }
        /* looks on for a sixteenth of the wait, 0.2 ms at most */
        const double pause_s = passed ? 0 : fmin(waited_s / 16, 2e-4);
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * pause_s)}, NULL);
    }
    return s;
}

dtp_status dtp_runner__pace(dtp_runner *r, int64_t step, dtp_err *err)
{
    const int64_t half = DTP_RUNNER_PACE / 2;
    const bool waits = r->n_stats > 0 || r->n_sections > 1; /* for other ranks */
    if (r->recording || !waits || !r->comm->transport.caps.queued || ++r->n_paced % half != 0) {
        return DTP_OK;
    }
    const int64_t k = r->n_paced / half;
    DTP_TRY(r->backend->ops->queue->event_put(r->backend, DTP_QUEUE_COMPUTE, r->pace[k % 2], err));
    return k > 1 ? pass(r, r->pace[(k - 1) % 2], step, err) : DTP_OK;
}

/* Waits for what unfinished steps have on the queues. A collective of a step that failed
 * half-way, or that fails now, would never end: then the transport is given up. */
static void drain(dtp_runner *r)
{
    dtp_transport *t = &r->comm->transport;
    void (*stop)(dtp_transport *, const char *) = t->ops->abort;
    dtp_event *end = r->flights[0].end;
    dtp_err why = {0};
    bool ends = true;
    for (int32_t i = 0; r->instrs != NULL && i < r->program->n_instrs; i++) {
        ends = ends && !r->instrs[i].request.pending;
    }
    if (!ends) {
        (void)DTP_FAIL(&why, DTP_COMM, "rank %d: a step failed half-way", r->comm->rank);
    } else if (end != NULL) {
        ends =
            r->backend->ops->queue->event_put(r->backend, DTP_QUEUE_COMPUTE, end, &why) == DTP_OK &&
            pass(r, end, r->flights[0].step, &why) == DTP_OK;
    }
    if (!ends && stop != NULL) {
        dtp_runner__forget_all(r);
        stop(t, why.msg);
    }
    (void)r->backend->ops->sync(r->backend, NULL);
}

void dtp_runner__close_queue(dtp_runner *r)
{
    const dtp_queue_ops *queue = r->backend->ops->queue;
    const int32_t n = dtp_program_microbatches(r->program) * (r->program->n_instrs + r->n_sections);
    if (queue == NULL) {
        return;
    }
    drain(r);
    dtp_runner__forget(r);
    for (int32_t k = 0; k < 2; k++) {
        queue->event_destroy(r->backend, r->pace[k]);
    }
    for (int32_t k = 0; k < DTP_RUNNER_AHEAD; k++) {
        dtp_runner__flight *f = &r->flights[k];
        for (int32_t i = 0; f->marks != NULL && i < n; i++) {
            queue->event_destroy(r->backend, f->marks[i]);
        }
        queue->event_destroy(r->backend, f->begin);
        queue->event_destroy(r->backend, f->end);
        queue->give(r->backend, false, f->raw);
    }
}

/* ---- marks ---- */

/* Mark i, of a section and microbatch. */
static dtp_event **mark_of(const dtp_runner *r, const dtp_runner__flight *f, int32_t microbatch,
                           int32_t section, int32_t i)
{
    return &f->marks[microbatch * (r->program->n_instrs + r->n_sections) + i + section];
}

static int32_t section_of(const dtp_runner *r, int32_t i)
{
    return r->n_sections > 1 ? dtp_instr_section(r->program, &r->program->instrs[i]) : 0;
}

static bool is_wait(const dtp_runner *r, int32_t i)
{
    return i >= 0 && i < r->program->n_instrs && r->program->instrs[i].kind == DTP_INSTR_WAIT;
}

dtp_status dtp_runner__mark(dtp_runner *r, dtp_runner__flight *f, int32_t i, dtp_err *err)
{
    const dtp_queue_ops *queue = r->backend->ops->queue;
    const bool waits = r->comm->transport.caps.queued && (is_wait(r, i) || is_wait(r, i - 1));
    dtp_event **mark = mark_of(r, f, r->state.record.microbatch, r->section, i);
    if (r->recording || (r->profile == NULL && !waits)) {
        return DTP_OK;
    }
    if (*mark == NULL) {
        DTP_TRY(queue->event_create(r->backend, mark, err));
    }
    return queue->event_put(r->backend, DTP_QUEUE_COMPUTE, *mark, err);
}

/* ---- the end of a step ---- */

/* Notes when instruction i of microbatch j ran, for s seconds. The instruction before ended *now_s
 * after the begin of the step; the first one of a section began later. */
static dtp_status read_profile(dtp_runner *r, const dtp_runner__flight *f, int32_t j, int32_t i,
                               double s, double *now_s, dtp_err *err)
{
    const int32_t section = section_of(r, i);
    if (i == 0 || section_of(r, i - 1) != section) {
        double begin_s = 0;
        DTP_TRY(r->backend->ops->queue->event_time(r->backend, f->begin,
                                                   *mark_of(r, f, j, section, i), &begin_s, err));
        *now_s = r->n_sections > 1 ? begin_s : fmax(*now_s, begin_s);
    }
    dtp_runner__note_time(r, j, i, *now_s, s);
    *now_s += s;
    return DTP_OK;
}

/* Times from the marks: those of instructions, and what compute waited for collectives. */
static dtp_status read_marks(dtp_runner *r, dtp_runner__flight *f, dtp_err *err)
{
    const int32_t n = dtp_program_microbatches(r->program);
    double now_s = 0;
    for (int32_t j = 0; j < n; j++) {
        const int32_t n_instrs = j + 1 == n ? r->program->n_instrs : dtp_program_body(r->program);
        for (int32_t i = 0; i < n_instrs; i++) {
            const bool waits = r->comm->transport.caps.queued && is_wait(r, i);
            dtp_event *const *mark = mark_of(r, f, j, section_of(r, i), i);
            double s = 0;
            if (waits || r->profile != NULL) {
                DTP_TRY(r->backend->ops->queue->event_time(r->backend, mark[0], mark[1], &s, err));
            }
            f->times.comm_s += waits ? s : 0;
            DTP_TRY(r->profile != NULL ? read_profile(r, f, j, i, s, &now_s, err) : DTP_OK);
        }
    }
    return DTP_OK;
}

dtp_status dtp_runner__await(dtp_runner *r, dtp_runner__flight *f, dtp_err *err)
{
    const double start = dtp_now_s();
    DTP_TRY(pass(r, f->end, f->step, err));
    const bool by_host = r->n_stats > 0 && !r->comm->transport.caps.queued;
    if (by_host && r->n_sections == 1) { /* the host took part: it timed it */
        f->times.total_s += dtp_now_s() - start;
    } else {
        DTP_TRY(r->backend->ops->queue->event_time(r->backend, f->begin, f->end, &f->times.total_s,
                                                   err));
    }
    if (f->marked) {
        return read_marks(r, f, err);
    }
    if (r->n_stats > 0) {
        f->times.comm_s = (double)NAN; /* a graph does not tell */
    }
    return DTP_OK;
}
