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

dtp_schedule_result dtp_schedule_run(int32_t n, dtp_schedule_task *tasks, dtp_slowdown slowdown)
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
        const bool both = q[0].running && q[1].running;
        const double factor[2] = {both ? slowdown.compute : 1.0, both ? slowdown.comm : 1.0};
        const double ends[2] = {q[0].running ? q[0].left_s * factor[0] : (double)INFINITY,
                                q[1].running ? q[1].left_s * factor[1] : (double)INFINITY};
        const double wall = fmin(ends[0], ends[1]);
        r.end_s += wall;
        r.overlapped_s += both ? wall : 0.0;
        r.exposed_comm_s += q[0].running ? 0.0 : wall;
        if (!q[0].running) {
            tasks[q[1].at].exposed_s += wall;
        }
        for (int i = 0; i < 2; i++) {
            if (q[i].running && !(ends[i] > wall)) {
                q[i].ended++;
                next_task(&q[i], q[i].at + 1, n, tasks);
            } else if (q[i].running) {
                q[i].left_s -= wall / factor[i];
            }
        }
    }
    return r;
}

/* WAITs take no time and no task. */
static int64_t count_tasks(const dtp_program *p, int32_t from, int32_t to)
{
    int64_t n = 0;
    for (int32_t i = from; i < to; i++) {
        n += p->instrs[i].kind != DTP_INSTR_WAIT ? 1 : 0;
    }
    return n;
}

int64_t dtp_schedule_count(const dtp_program *p)
{
    const int32_t body = dtp_program_body(p);
    return dtp_program_microbatches(p) * count_tasks(p, 0, body) +
           count_tasks(p, body, p->n_instrs);
}

bool dtp_schedule_tasks(const dtp_program *p, dtp_schedule_task *tasks)
{
    const int32_t body = dtp_program_body(p), runs = dtp_program_microbatches(p);
    int32_t *started = calloc((size_t)p->n_instrs + 1, sizeof *started); /* by START: its number */
    if (started == NULL) {
        return false;
    }
    int32_t count[2] = {0, 0}, waited = 0;
    for (int32_t j = 0; j < runs; j++) {
        const int32_t end = j + 1 < runs ? body : p->n_instrs;
        for (int32_t i = 0; i < end; i++) {
            const dtp_instr *instr = &p->instrs[i];
            if (instr->kind == DTP_INSTR_WAIT) {
                waited = waited > started[instr->pair] ? waited : started[instr->pair];
                continue;
            }
            const bool comm = instr->kind == DTP_INSTR_START;
            *tasks = (dtp_schedule_task){.comm = comm, .instr = i, .time_s = instr->time_s};
            /* Compute goes on after the WAITs before it, a collective runs after its START. */
            tasks->need[comm ? 0 : 1] = comm ? count[0] : waited;
            tasks++;
            started[i] = ++count[comm];
        }
    }
    free(started);
    return true;
}

bool dtp_schedule_program(const dtp_program *p, dtp_slowdown slowdown, dtp_schedule_result *out,
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
