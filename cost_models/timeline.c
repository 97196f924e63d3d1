/* Simulated schedule of one rank with queues of compute (kernels and copies) and communication
 * (collectives), each one task at a time in program order. */
#include "cost_models/timeline.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REACH = 16 }; /* instructions before a reduce-scatter that are searched for its product */

/* First unfinished task of a queue and the time it still needs at full speed. */
typedef struct queue {
    int32_t at;    /* index of that task, n = none left */
    int32_t ended; /* tasks of this queue that have ended */
    bool running;
    double left_s;
} queue;

static void next_task(queue *q, dtp_lane which, int32_t from, int32_t n,
                      const dtp_schedule_task *tasks)
{
    q->at = from;
    while (q->at < n && tasks[q->at].lane != which) {
        q->at++;
    }
    q->running = false;
}

/* Whether what the next task needs has ended; it may still have to be issued. */
static bool is_ready(const queue *q, const queue queues[DTP_N_LANES], int32_t n,
                     const dtp_schedule_task *tasks)
{
    bool ready = q->at < n;
    for (int k = 0; k < DTP_N_LANES && ready; k++) {
        ready = tasks[q->at].need[k] <= queues[k].ended;
    }
    return ready;
}

/* The running collective that compute waits for: one that its next task needs, else any. */
static int32_t awaited(const queue q[DTP_N_LANES], int32_t n, const dtp_schedule_task *tasks)
{
    const queue *compute = &q[DTP_LANE_COMPUTE];
    int32_t at = -1;
    for (int k = DTP_N_LANES - 1; k > DTP_LANE_COMPUTE; k--) {
        const bool needed = compute->at < n && tasks[compute->at].need[k] > q[k].ended;
        at = q[k].running && (at < 0 || needed) ? q[k].at : at;
    }
    return at;
}

dtp_schedule_result dtp_schedule_run(int32_t n, dtp_schedule_task *tasks, dtp_slowdown slowdown)
{
    dtp_schedule_result r = {0};
    queue q[DTP_N_LANES] = {0};
    bool left = false;
    for (int k = 0; k < DTP_N_LANES; k++) {
        next_task(&q[k], (dtp_lane)k, 0, n, tasks);
        left = left || q[k].at < n;
    }
    for (int32_t i = 0; i < n; i++) {
        tasks[i].exposed_s = 0.0;
    }
    while (left) {
        double issued_s[DTP_N_LANES], ends_s[DTP_N_LANES], wall_s = (double)INFINITY;
        for (int k = 0; k < DTP_N_LANES; k++) {
            if (!q[k].running && is_ready(&q[k], q, n, tasks) &&
                tasks[q[k].at].issued_s <= r.end_s) {
                q[k].running = true;
                q[k].left_s = tasks[q[k].at].time_s;
                tasks[q[k].at].begin_s = r.end_s;
            }
        }
        const bool computes = q[DTP_LANE_COMPUTE].running;
        const bool sends = q[DTP_LANE_COMM].running || q[DTP_LANE_FAR].running;
        const double slower = computes && sends ? slowdown.comm : 1.0;
        const double factor[DTP_N_LANES] = {computes && sends ? slowdown.compute : 1.0, slower,
                                            slower};
        for (int k = 0; k < DTP_N_LANES; k++) {
            const bool comes = !q[k].running && is_ready(&q[k], q, n, tasks);
            issued_s[k] = comes ? tasks[q[k].at].issued_s - r.end_s : (double)INFINITY;
            ends_s[k] = q[k].running ? q[k].left_s * factor[k] : (double)INFINITY;
            wall_s = fmin(wall_s, fmin(issued_s[k], ends_s[k]));
        }
        assert(wall_s < (double)INFINITY);
        const bool host = !computes && (isfinite(issued_s[DTP_LANE_COMPUTE]) || !sends);
        r.end_s += wall_s;
        r.overlapped_s += computes && sends ? wall_s : 0.0;
        r.host_s += host ? wall_s : 0.0;
        if (!computes && !host) {
            r.exposed_comm_s += wall_s;
            tasks[awaited(q, n, tasks)].exposed_s += wall_s;
        }
        left = false;
        for (int k = 0; k < DTP_N_LANES; k++) {
            if (q[k].running && !(ends_s[k] > wall_s)) {
                q[k].ended++;
                tasks[q[k].at].end_s = r.end_s;
                next_task(&q[k], (dtp_lane)k, q[k].at + 1, n, tasks);
            } else if (q[k].running) {
                q[k].left_s -= wall_s / factor[k];
            }
            left = left || q[k].at < n;
        }
    }
    return r;
}

/* ---- chunks (dtp_target.chunks) ---- */

static bool is_among(int32_t n, const dtp_value_id *values, dtp_value_id v)
{
    for (int32_t i = 0; i < n; i++) {
        if (values[i] == v) {
            return true;
        }
    }
    return false;
}

static bool is_product(const dtp_instr *instr)
{
    return instr->kind == DTP_INSTR_KERNEL && (instr->op->flags & DTP_OP_CONTRACTION) != 0;
}

/* The product that reads what the START gathers, at once after the WAIT; -1: none. */
static int32_t reader(const dtp_program *p, int32_t start)
{
    int32_t i = p->instrs[start].pair;
    while (++i < p->n_instrs &&
           (p->instrs[i].kind == DTP_INSTR_WAIT || p->instrs[i].kind == DTP_INSTR_START)) {
    }
    const bool reads = i < p->n_instrs && is_product(&p->instrs[i]) &&
                       is_among(p->instrs[i].n_in, p->instrs[i].in, p->instrs[start].out[0]);
    return reads ? i : -1;
}

/* The last product of which the START reduces the result or a sum; -1: none, or it is not near. */
static int32_t maker(const dtp_program *p, int32_t start)
{
    dtp_value_id terms[2 * REACH + 1] = {p->instrs[start].in[0]};
    int32_t n = 1;
    for (int32_t i = start - 1; i >= 0 && start - i <= REACH; i--) {
        const dtp_instr *instr = &p->instrs[i];
        if (instr->kind != DTP_INSTR_KERNEL || !is_among(n, terms, instr->out[0])) {
            continue;
        }
        if (is_product(instr)) {
            return i;
        }
        if (instr->op->linear != DTP_LINEAR_JOINT || instr->n_in != 2) {
            return -1;
        }
        terms[n++] = instr->in[0];
        terms[n++] = instr->in[1];
    }
    return -1;
}

/* The product beside which the START runs in chunks; -1: none. */
static int32_t chunked(const dtp_program *p, int32_t start)
{
    const dtp_instr *instr = &p->instrs[start];
    if (!p->target->chunks || instr->coll.n_bucket > 0 || instr->once || instr->pair < 0) {
        return -1;
    }
    return instr->coll.kind == DTP_ALL_GATHER       ? reader(p, start)
           : instr->coll.kind == DTP_REDUCE_SCATTER ? maker(p, start)
                                                    : -1;
}

/* ---- tasks ---- */

/* WAITs take no time and no task, collectives in chunks take two. */
int64_t dtp_schedule_count(const dtp_program *p)
{
    int64_t n = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr_kind kind = p->instrs[i].kind;
        const int64_t tasks = kind == DTP_INSTR_WAIT                          ? 0
                              : kind == DTP_INSTR_START && chunked(p, i) >= 0 ? 2
                                                                              : 1;
        n += tasks * dtp_instr_runs(p, &p->instrs[i]);
    }
    return n;
}

/* Tasks that are made one after the other. */
typedef struct task_list {
    const dtp_program *p;
    double host_s, issued_s;
    dtp_schedule_task *next;
    int32_t *started; /* by START: its number in its queue */
    int32_t count[DTP_N_LANES], waited[DTP_N_LANES];
    int32_t rest[DTP_N_LANES]; /* the last chunk that compute waits for after its next task */
} task_list;

static bool begin_tasks(task_list *l, const dtp_program *p, double host_s, dtp_schedule_task *tasks)
{
    *l = (task_list){.p = p, .host_s = host_s, .next = tasks};
    l->started = calloc((size_t)p->n_instrs + 1, sizeof *l->started);
    return l->started != NULL;
}

static dtp_lane lane_of(const dtp_instr *instr)
{
    return instr->kind != DTP_INSTR_START ? DTP_LANE_COMPUTE
           : instr->far                   ? DTP_LANE_FAR
                                          : DTP_LANE_COMM;
}

/* Compute waits for a collective; for the first chunk of a gather, and behind the product for all
 * of it. */
static void add_wait(task_list *l, int32_t start)
{
    const bool part = l->p->instrs[start].coll.kind == DTP_ALL_GATHER && chunked(l->p, start) >= 0;
    const int32_t until = l->started[start] - (part ? 1 : 0);
    int32_t *waited = &l->waited[lane_of(&l->p->instrs[start])];
    int32_t *rest = &l->rest[lane_of(&l->p->instrs[start])];
    *waited = *waited > until ? *waited : until;
    *rest = part && l->started[start] > *rest ? l->started[start] : *rest;
}

/* Two tasks: of a gather the first chunk, then the others; of a reduce-scatter all but the last
 * one, beside the product or, of a sum, beside what follows its last product, then that one. */
static void add_chunks(task_list *l, int32_t start)
{
    const dtp_instr *instr = &l->p->instrs[start];
    const double share = 1.0 / (double)dtp_mesh_set_size(&l->p->mesh, instr->coll.set);
    const bool gathers = instr->coll.kind == DTP_ALL_GATHER;
    const int32_t product = chunked(l->p, start), after = l->started[product];
    const bool sum = !gathers && l->p->instrs[product].out[0] != instr->in[0];
    const int32_t before = sum || after == 0 ? after : after - 1;
    const double first_s = instr->time_s * (gathers ? share : 1.0 - share);
    for (int32_t k = 0; k < 2; k++) {
        *l->next = (dtp_schedule_task){.lane = lane_of(instr),
                                       .rest = k == 1,
                                       .instr = start,
                                       .time_s = k == 0 ? first_s : instr->time_s - first_s,
                                       .issued_s = l->issued_s};
        l->next->need[DTP_LANE_COMPUTE] = gathers || k == 1 ? l->count[DTP_LANE_COMPUTE] : before;
        l->next++;
    }
    l->count[lane_of(instr)] += 2;
    l->started[start] = l->count[lane_of(instr)];
}

/* What instructions from..to - 1 run in microbatch j. */
static void add_tasks(task_list *l, int32_t from, int32_t to, int32_t j)
{
    for (int32_t i = from; i < to; i++) {
        const dtp_instr *instr = &l->p->instrs[i];
        if (!dtp_instr_runs_in(l->p, instr, j)) {
            continue;
        }
        if (instr->kind == DTP_INSTR_WAIT) {
            add_wait(l, instr->pair);
            continue;
        }
        const dtp_lane lane = lane_of(instr);
        l->issued_s += instr->joined ? 0.0 : l->host_s;
        if (lane != DTP_LANE_COMPUTE && chunked(l->p, i) >= 0) {
            add_chunks(l, i);
            continue;
        }
        *l->next = (dtp_schedule_task){
            .lane = lane, .instr = i, .time_s = instr->time_s, .issued_s = l->issued_s};
        l->started[i] = ++l->count[lane];
        if (lane != DTP_LANE_COMPUTE) { /* a collective runs after its START */
            l->next->need[DTP_LANE_COMPUTE] = l->count[DTP_LANE_COMPUTE];
        }
        for (int k = DTP_LANE_COMM; k < DTP_N_LANES && lane == DTP_LANE_COMPUTE; k++) {
            l->next->need[k] = l->waited[k]; /* compute goes on after the WAITs before it */
            l->waited[k] = l->rest[k] > l->waited[k] ? l->rest[k] : l->waited[k];
        }
        l->next++;
    }
}

bool dtp_schedule_tasks(const dtp_program *p, double host_s, dtp_schedule_task *tasks)
{
    task_list l;
    if (!begin_tasks(&l, p, host_s, tasks)) {
        return false;
    }
    for (int32_t j = 0; j < dtp_program_microbatches(p); j++) {
        add_tasks(&l, 0, p->n_instrs, j);
    }
    free(l.started);
    return true;
}

/* Every task needs all before it. */
static void one_at_a_time(int64_t n, dtp_schedule_task *tasks)
{
    int32_t count[DTP_N_LANES] = {0};
    for (int64_t t = 0; t < n; t++) {
        memcpy(tasks[t].need, count, sizeof count);
        count[tasks[t].lane]++;
    }
}

/* One task for each instruction that runs; behind them tasks of no time. */
static void merge_chunks(int64_t n, dtp_schedule_task *tasks)
{
    int64_t last = -1;
    for (int64_t t = 0; t < n; t++) {
        if (!tasks[t].rest) {
            tasks[++last] = tasks[t];
            continue;
        }
        tasks[last].time_s += tasks[t].time_s;
        tasks[last].exposed_s += tasks[t].exposed_s;
        tasks[last].end_s = tasks[t].end_s;
    }
    while (++last < n) {
        tasks[last] = (dtp_schedule_task){0};
    }
}

dtp_schedule_task *dtp_schedule_simulate(const dtp_program *p, const dtp_machine *machine,
                                         bool overlaps, dtp_schedule_result *out)
{
    const int64_t n = dtp_schedule_count(p);
    const size_t some = n < INT32_MAX ? (size_t)n + 1 : 0;
    dtp_schedule_task *tasks = some > 0 ? calloc(some, sizeof *tasks) : NULL;
    if (tasks == NULL || !dtp_schedule_tasks(p, overlaps ? machine->host_s : 0.0, tasks)) {
        free(tasks);
        return NULL;
    }
    if (!overlaps) {
        one_at_a_time(n, tasks);
    }
    *out = dtp_schedule_run((int32_t)n, tasks, machine->slowdown);
    merge_chunks(n, tasks);
    return tasks;
}

dtp_schedule_task *dtp_schedule_section(const dtp_program *p, const dtp_machine *machine,
                                        bool overlaps, int32_t section, bool first,
                                        dtp_schedule_result *out)
{
    const int32_t from = dtp_section_begin(p, p->instrs, p->n_instrs, section);
    const int32_t to = dtp_section_begin(p, p->instrs, p->n_instrs, section + 1);
    const int32_t last = dtp_program_microbatches(p) - 1;
    dtp_schedule_task *tasks = calloc(2 * (size_t)(to - from) + 1, sizeof *tasks);
    task_list l = {0};
    if (tasks == NULL || !begin_tasks(&l, p, overlaps ? machine->host_s : 0.0, tasks)) {
        free(tasks);
        return NULL;
    }
    add_tasks(&l, from, to, first ? 0 : last);
    if (!overlaps) {
        one_at_a_time(l.next - tasks, tasks);
    }
    *out = dtp_schedule_run((int32_t)(l.next - tasks), tasks, machine->slowdown);
    merge_chunks(l.next - tasks, tasks);
    free(l.started);
    return tasks;
}

bool dtp_schedule_program(const dtp_program *p, const dtp_machine *machine,
                          dtp_schedule_result *out, double *exposed_s)
{
    dtp_schedule_task *tasks = dtp_schedule_simulate(p, machine, true, out);
    if (tasks != NULL && exposed_s != NULL) {
        const int64_t n = dtp_schedule_count(p);
        for (int32_t i = 0; i < p->n_instrs; i++) {
            exposed_s[i] = 0.0;
        }
        for (int64_t t = 0; t < n; t++) {
            exposed_s[tasks[t].instr] += tasks[t].exposed_s;
        }
    }
    const bool ok = tasks != NULL;
    free(tasks);
    return ok;
}
