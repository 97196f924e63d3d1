#include "cost_models/timeline.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* First unfinished task of a resource and the time it still needs at full speed. */
typedef struct queue {
    bool comm;
    int32_t at;    /* index of that task, n = none left */
    int32_t ended; /* tasks of this resource that have ended */
    bool running;
    double left_s;
} queue;

static void next_task(queue *q, int32_t from, int32_t n, const dtp_schedule_task *tasks)
{
    q->at = from;
    while (q->at < n && tasks[q->at].comm != q->comm) {
        q->at++;
    }
    q->running = false;
}

static void start_if_ready(queue *q, const queue queues[2], int32_t n,
                           const dtp_schedule_task *tasks)
{
    if (!q->running && q->at < n && tasks[q->at].need[0] <= queues[0].ended &&
        tasks[q->at].need[1] <= queues[1].ended) {
        q->running = true;
        q->left_s = tasks[q->at].time_s;
    }
}

dtp_schedule_result dtp_schedule_run(int32_t n, dtp_schedule_task *tasks, double slowdown)
{
    dtp_schedule_result r = {0};
    queue q[2] = {{.comm = false}, {.comm = true}};
    next_task(&q[0], 0, n, tasks);
    next_task(&q[1], 0, n, tasks);
    for (int32_t i = 0; i < n; i++) {
        tasks[i].exposed_s = 0.0;
    }
    while (q[0].at < n || q[1].at < n) {
        start_if_ready(&q[0], q, n, tasks);
        start_if_ready(&q[1], q, n, tasks);
        assert(q[0].running || q[1].running);
        bool both = q[0].running && q[1].running;
        double advance =
            both ? fmin(q[0].left_s, q[1].left_s) : (q[0].running ? q[0].left_s : q[1].left_s);
        double wall = both ? advance * slowdown : advance;
        r.end_s += wall;
        r.overlapped_s += both ? wall : 0.0;
        r.exposed_comm_s += q[0].running ? 0.0 : wall;
        if (!q[0].running) {
            tasks[q[1].at].exposed_s += wall;
        }
        for (int i = 0; i < 2; i++) {
            if (q[i].running && !(q[i].left_s > advance)) {
                q[i].ended++;
                next_task(&q[i], q[i].at + 1, n, tasks);
            } else if (q[i].running) {
                q[i].left_s -= advance;
            }
        }
    }
    return r;
}

/* Counts of tasks per resource up to and including the last writer and the last reader of a buffer.
 */
typedef struct hazard {
    int32_t written[2], read[2];
} hazard;

static void raise_to(int32_t need[2], const int32_t by[2])
{
    need[0] = need[0] > by[0] ? need[0] : by[0];
    need[1] = need[1] > by[1] ? need[1] : by[1];
}

int64_t dtp_schedule_count(const dtp_program *p)
{
    return p->n_instrs + (dtp_program_microbatches(p) - 1) * (int64_t)dtp_program_body(p);
}

bool dtp_schedule_tasks(const dtp_program *p, dtp_schedule_task *tasks)
{
    const int32_t body = dtp_program_body(p), runs = dtp_program_microbatches(p);
    hazard *hazards = calloc((size_t)p->n_values + 1, sizeof *hazards);
    if (hazards == NULL) {
        return false;
    }
    int32_t count[2] = {0, 0};
    for (int32_t j = 0; j < runs; j++) {
        const int32_t end = j + 1 < runs ? body : p->n_instrs;
        for (int32_t i = 0; i < end; i++) {
            const dtp_instr *instr = &p->instrs[i];
            dtp_schedule_task *t = tasks++;
            const bool comm = instr->kind == DTP_INSTR_COLLECTIVE;
            *t = (dtp_schedule_task){.comm = comm, .instr = i, .time_s = instr->time_s};
            for (int32_t o = 0; o < instr->n_in; o++) {
                raise_to(t->need, hazards[dtp_value_root(p, instr->in[o])].written);
            }
            for (int32_t o = 0; o < instr->n_out; o++) {
                const hazard *h = &hazards[dtp_value_root(p, instr->out[o])];
                raise_to(t->need, h->written);
                raise_to(t->need, h->read);
            }
            count[comm]++;
            for (int32_t o = 0; o < instr->n_in; o++) {
                hazards[dtp_value_root(p, instr->in[o])].read[comm] = count[comm];
            }
            for (int32_t o = 0; o < instr->n_out; o++) {
                hazards[dtp_value_root(p, instr->out[o])].written[comm] = count[comm];
            }
        }
    }
    free(hazards);
    return true;
}

bool dtp_schedule_program(const dtp_program *p, double slowdown, dtp_schedule_result *out,
                          double *exposed_s)
{
    const int64_t n = dtp_schedule_count(p);
    const size_t some = n < INT32_MAX ? (size_t)n + 1 : 0;
    dtp_schedule_task *tasks = some > 0 ? calloc(some, sizeof *tasks) : NULL;
    const bool ok = tasks != NULL && dtp_schedule_tasks(p, tasks);
    if (ok) {
        *out = dtp_schedule_run((int32_t)n, tasks, slowdown);
    }
    if (ok && exposed_s != NULL) {
        for (int32_t i = 0; i < p->n_instrs; i++) {
            exposed_s[i] = 0.0;
        }
        for (int64_t t = 0; t < n; t++) {
            exposed_s[tasks[t].instr] += tasks[t].exposed_s;
        }
    }
    free(tasks);
    return ok;
}
