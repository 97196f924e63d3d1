/* The replay of a table. A section begins when the one before it on its stage has ended and what it
 * reads has arrived. Messages of one queue (sender, receiver, section) go one after the other:
 * forward when the slot of the microbatch is free at the receiver, which is when the backward
 * section of the microbatch before it in the slot has ended and its gradients are sent, for which
 * the first chunk, which receives nothing, waits itself; those of
 * the update when the receiver's last microbatch has ended. */
#include <string.h>

#include "cost_models/pipeline.h"

typedef struct replay {
    const dtp_stage_table *t;
    const dtp_pipeline_times *times;
    int32_t *run;       /* by stage: actions that have ended, */
    double *now_s;      /* and when the last of them did */
    double **begin_s;   /* by stage, by action */
    double **end_s;     /* the same */
    int32_t *place[2];  /* by chunk * M + microbatch: of its forward and its backward section */
    int32_t *before;    /* the same: which of them had the slot before; -1 = none */
    int32_t *n_sent;    /* by message: how many are sent, */
    double *free_s;     /* when the queue is free, */
    double **arrival_s; /* and by microbatch (of the update: [0]) when it arrives; -1 = not sent */
} replay;

static int32_t at(const replay *r, int32_t chunk, int32_t m)
{
    return chunk * r->t->n_microbatches + m;
}

static bool is_single(const dtp_stage_message *x)
{
    return x->once || x->section >= DTP_SECTION_UPDATE;
}

double dtp_pipeline_section_s(const dtp_stage_table *t, const dtp_pipeline_times *times,
                              const dtp_stage_action *a)
{
    const int32_t n_sections = DTP_SECTION_UPDATE + t->n_parts;
    return times->section_s[2 * (a->chunk * n_sections + a->section) + (a->microbatch > 0 ? 1 : 0)];
}

/* When everything is sent behind the backward section of a microbatch in a chunk, `of` = at(); -1:
 * not yet. */
static double sent_s(const replay *r, int32_t of)
{
    const int32_t i = r->place[DTP_SECTION_BACKWARD][of];
    const int32_t chunk = of / r->t->n_microbatches, m = of % r->t->n_microbatches;
    const int32_t s = chunk % r->t->n_stages;
    double sent = r->run[s] > i ? r->end_s[s][i] : -1.0;
    for (int32_t k = 0; k < r->times->n_messages && sent >= 0.0; k++) {
        const dtp_stage_message *x = &r->times->messages[k];
        if (x->from == chunk && x->section == DTP_SECTION_BACKWARD && !x->once) {
            const double arrives = r->arrival_s[k][m];
            sent = arrives < 0.0 ? -1.0 : arrives > sent ? arrives : sent;
        }
    }
    return sent;
}

/* When the next action of stage s may begin; -1: not yet known. */
static double ready_s(const replay *r, int32_t s)
{
    const dtp_stage_action *a = &r->t->actions[s][r->run[s]];
    double ready = r->now_s[s];
    if (a->section == DTP_SECTION_FORWARD && r->before[at(r, a->chunk, a->microbatch)] >= 0) {
        const double free = sent_s(r, r->before[at(r, a->chunk, a->microbatch)]);
        ready = free < 0.0 ? -1.0 : free > ready ? free : ready;
    }
    for (int32_t k = 0; k < r->times->n_messages && ready >= 0.0; k++) {
        const dtp_stage_message *x = &r->times->messages[k];
        const int32_t part = x->once ? DTP_SECTION_UPDATE + 1 : x->section + 1;
        const bool needed = is_single(x) ? a->section == part : a->section == x->section;
        if (x->to == a->chunk && needed) {
            const double arrives = r->arrival_s[k][is_single(x) ? 0 : a->microbatch];
            ready = arrives < 0.0 ? -1.0 : arrives > ready ? arrives : ready;
        }
    }
    return ready;
}

/* Sends the next message of queue k; false: it cannot go yet. `i`: where its section is looked for,
 * in the order of the sender. */
static bool send_next(replay *r, int32_t k, int32_t *i)
{
    const dtp_stage_message *x = &r->times->messages[k];
    const dtp_stage_table *t = r->t;
    const int32_t from = x->from % t->n_stages, to = x->to % t->n_stages;
    const int32_t of = x->once ? t->n_microbatches - 1 : -1;
    while (*i < r->run[from] &&
           (t->actions[from][*i].section != x->section || t->actions[from][*i].chunk != x->from ||
            (of >= 0 && t->actions[from][*i].microbatch != of))) {
        (*i)++;
    }
    if (*i >= r->run[from]) {
        return false;
    }
    const int32_t m = t->actions[from][*i].microbatch;
    double credit = 0.0;
    if (is_single(x)) {
        const int32_t last = t->n_actions[to] - t->n_parts * (t->n_chunks / t->n_stages) - 1;
        credit = r->run[to] > last ? r->end_s[to][last] : -1.0;
    } else if (x->section == DTP_SECTION_FORWARD && r->before[at(r, x->to, m)] >= 0) {
        credit = sent_s(r, r->before[at(r, x->to, m)]);
    }
    if (credit < 0.0) {
        return false;
    }
    double begin = r->end_s[from][*i];
    begin = r->free_s[k] > begin ? r->free_s[k] : begin;
    begin = credit > begin ? credit : begin;
    r->free_s[k] = r->arrival_s[k][is_single(x) ? 0 : m] = begin + x->time_s;
    (*i)++;
    return true;
}

static dtp_status create(replay *r, dtp_arena *arena, dtp_err *err)
{
    const dtp_stage_table *t = r->t;
    const size_t all = (size_t)t->n_chunks * (size_t)t->n_microbatches;
    const size_t n_messages = (size_t)r->times->n_messages;
    int32_t *holds;
    DTP_TRY(DTP_NEW(arena, r->run, t->n_stages, err));
    DTP_TRY(DTP_NEW(arena, r->now_s, t->n_stages, err));
    DTP_TRY(DTP_NEW(arena, r->begin_s, t->n_stages, err));
    DTP_TRY(DTP_NEW(arena, r->end_s, t->n_stages, err));
    DTP_TRY(DTP_NEW(arena, r->place[0], all, err));
    DTP_TRY(DTP_NEW(arena, r->place[1], all, err));
    DTP_TRY(DTP_NEW(arena, r->before, all, err));
    DTP_TRY(DTP_NEW(arena, r->n_sent, n_messages, err));
    DTP_TRY(DTP_NEW(arena, r->free_s, n_messages, err));
    DTP_TRY(DTP_NEW(arena, r->arrival_s, n_messages, err));
    for (size_t k = 0; k < n_messages; k++) {
        DTP_TRY(DTP_NEW(arena, r->arrival_s[k], t->n_microbatches, err));
        for (int32_t m = 0; m < t->n_microbatches; m++) {
            r->arrival_s[k][m] = -1.0;
        }
    }
    for (int32_t s = 0; s < t->n_stages; s++) {
        DTP_TRY(DTP_NEW(arena, r->begin_s[s], t->n_actions[s], err));
        DTP_TRY(DTP_NEW(arena, r->end_s[s], t->n_actions[s], err));
        DTP_TRY(DTP_NEW(arena, holds, t->slots[s], err));
        memset(holds, -1, (size_t)t->slots[s] * sizeof *holds);
        for (int32_t i = 0; i < t->n_actions[s]; i++) {
            const dtp_stage_action *a = &t->actions[s][i];
            if (a->section < DTP_SECTION_UPDATE) {
                r->place[a->section][at(r, a->chunk, a->microbatch)] = i;
            }
            if (a->section == DTP_SECTION_FORWARD) {
                r->before[at(r, a->chunk, a->microbatch)] = holds[a->slot];
                holds[a->slot] = at(r, a->chunk, a->microbatch);
            }
        }
    }
    return DTP_OK;
}

dtp_status dtp_pipeline_replay(const dtp_stage_table *t, const dtp_pipeline_times *times,
                               dtp_arena *arena, dtp_pipeline_step *out, dtp_err *err)
{
    replay r = {.t = t, .times = times};
    bool moved = true;
    DTP_TRY(create(&r, arena, err));
    *out = (dtp_pipeline_step){.begin_s = r.begin_s, .arrival_s = r.arrival_s};
    while (moved) {
        moved = false;
        for (int32_t s = 0; s < t->n_stages; s++) {
            while (r.run[s] < t->n_actions[s]) {
                const int32_t i = r.run[s];
                r.begin_s[s][i] = ready_s(&r, s);
                if (r.begin_s[s][i] < 0.0) {
                    break;
                }
                r.now_s[s] = r.end_s[s][i] =
                    r.begin_s[s][i] + dtp_pipeline_section_s(t, times, &t->actions[s][i]);
                r.run[s]++;
                moved = true;
            }
        }
        for (int32_t k = 0; k < times->n_messages; k++) {
            while (send_next(&r, k, &r.n_sent[k])) {
                moved = true;
            }
        }
    }
    for (int32_t s = 0; s < t->n_stages; s++) {
        if (r.run[s] < t->n_actions[s]) {
            return DTP_FAIL(err, DTP_INVALID,
                            "stages wait for each other in a circle: stage %d at "
                            "action %d",
                            s, r.run[s]);
        }
        out->end_s = r.now_s[s] > out->end_s ? r.now_s[s] : out->end_s;
    }
    for (int32_t k = 0; k < times->n_messages; k++) { /* new values of copies */
        out->end_s = r.free_s[k] > out->end_s ? r.free_s[k] : out->end_s;
    }
    return DTP_OK;
}
