/* LIST is a greedy list schedule on unsplit bytes: of the operations whose inputs exist it takes
 * the one that frees most, ties by operation name. It keeps one property of the original that looks
 * like a slip but decides schedules: whether an input's last remaining reader is credited depends
 * on the *last output seen* being final (that of the operation just scheduled, or of an earlier one
 * when it has none), not on the input.
 */
#include "planner/mtf/mtf_schedule.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    int64_t freed;
    int32_t op;
} entry;

/* Users of tensor t: user[first[t] .. first[t + 1]), distinct, in graph order; `left` counts the
 * ones not yet scheduled. */
typedef struct list_state {
    const dtp_mtf_graph *g;
    int32_t *first, *user, *left;
    int32_t *in_degree;
    int64_t *freed;
    bool *done;
    entry *heap;
    int32_t n_heap;
    int32_t last_output; /* tensor, -1 = none seen */
} list_state;

/* ---- heap: most freed first, then the smaller name ---- */

static bool before(const list_state *s, entry a, entry b)
{
    if (a.freed != b.freed) {
        return a.freed > b.freed;
    }
    return strcmp(s->g->ops[a.op].name, s->g->ops[b.op].name) < 0;
}

static void push(list_state *s, int32_t op)
{
    int32_t at = s->n_heap++;
    s->heap[at] = (entry){.freed = s->freed[op], .op = op};
    while (at > 0 && before(s, s->heap[at], s->heap[(at - 1) / 2])) {
        entry swap = s->heap[at];
        s->heap[at] = s->heap[(at - 1) / 2];
        s->heap[(at - 1) / 2] = swap;
        at = (at - 1) / 2;
    }
}

static entry pop(list_state *s)
{
    entry top = s->heap[0];
    s->heap[0] = s->heap[--s->n_heap];
    int32_t at = 0;
    for (;;) {
        int32_t best = at;
        for (int32_t child = 2 * at + 1; child <= 2 * at + 2 && child < s->n_heap; child++) {
            best = before(s, s->heap[child], s->heap[best]) ? child : best;
        }
        if (best == at) {
            return top;
        }
        entry swap = s->heap[at];
        s->heap[at] = s->heap[best];
        s->heap[best] = swap;
        at = best;
    }
}

/* ---- set-up ---- */

static bool first_slot(const dtp_mtf_op *op, int32_t slot)
{
    for (int32_t i = 0; i < slot; i++) {
        if (op->in[i] == op->in[slot]) {
            return false;
        }
    }
    return true;
}

static void count_users(list_state *s)
{
    const dtp_mtf_graph *g = s->g;
    for (int32_t o = 0; o < g->n_ops; o++) {
        for (int32_t i = 0; i < g->ops[o].n_in; i++) {
            if (first_slot(&g->ops[o], i)) {
                s->left[g->ops[o].in[i]]++;
                s->in_degree[o]++;
            }
        }
    }
    for (int32_t t = 0; t < g->n_tensors; t++) {
        s->first[t + 1] = s->first[t] + s->left[t];
        s->left[t] = 0;
    }
    for (int32_t o = 0; o < g->n_ops; o++) {
        for (int32_t i = 0; i < g->ops[o].n_in; i++) {
            int32_t t = g->ops[o].in[i];
            if (first_slot(&g->ops[o], i)) {
                s->user[s->first[t] + s->left[t]++] = o;
            }
        }
    }
}

static void initial_freed(list_state *s)
{
    const dtp_mtf_graph *g = s->g;
    for (int32_t o = 0; o < g->n_ops; o++) {
        const dtp_mtf_op *op = &g->ops[o];
        for (int32_t i = 0; i < op->n_in; i++) {
            const dtp_mtf_tensor *t = &g->tensors[op->in[i]];
            s->freed[o] += s->left[op->in[i]] == 1 && !t->final ? t->bytes : 0;
        }
        for (int32_t i = 0; i < op->n_out; i++) {
            const dtp_mtf_tensor *t = &g->tensors[op->out[i]];
            s->freed[o] -= s->left[op->out[i]] > 0 || t->final ? t->bytes : 0;
            s->last_output = op->out[i];
        }
    }
}

/* ---- the pass ---- */

static int32_t remaining_user(const list_state *s, int32_t t)
{
    for (int32_t k = s->first[t]; k < s->first[t + 1]; k++) {
        if (!s->done[s->user[k]]) {
            return s->user[k];
        }
    }
    return -1;
}

static void release(list_state *s, int32_t o)
{
    const dtp_mtf_op *op = &s->g->ops[o];
    for (int32_t i = 0; i < op->n_out; i++) {
        int32_t t = op->out[i];
        s->last_output = t;
        for (int32_t k = s->first[t]; k < s->first[t + 1]; k++) {
            if (--s->in_degree[s->user[k]] == 0) {
                push(s, s->user[k]);
            }
        }
    }
    for (int32_t i = 0; i < op->n_in; i++) {
        int32_t t = op->in[i];
        if (!first_slot(op, i)) {
            continue;
        }
        s->left[t]--;
        if (s->left[t] != 1 || (s->last_output >= 0 && s->g->tensors[s->last_output].final)) {
            continue;
        }
        int32_t other = remaining_user(s, t);
        s->freed[other] += s->g->tensors[t].bytes;
        if (s->in_degree[other] == 0) {
            push(s, other);
        }
    }
}

static int32_t list_pass(list_state *s, int32_t *order, int64_t *freed)
{
    int32_t n = 0;
    for (int32_t o = 0; o < s->g->n_ops; o++) {
        if (s->in_degree[o] == 0) {
            push(s, o);
        }
    }
    while (s->n_heap > 0) {
        entry e = pop(s);
        if (s->done[e.op] || s->freed[e.op] != e.freed) {
            continue;
        }
        if (freed != NULL) {
            freed[n] = e.freed;
        }
        order[n++] = e.op;
        s->done[e.op] = true;
        release(s, e.op);
    }
    return n;
}

static dtp_status list_schedule(const dtp_mtf_graph *g, dtp_arena *arena, int32_t *order,
                                int64_t *freed, dtp_err *err)
{
    size_t slots = 0;
    for (int32_t o = 0; o < g->n_ops; o++) {
        slots += (size_t)g->ops[o].n_in;
    }
    list_state s = {.g = g, .last_output = -1};
    s.first = dtp_arena_alloc(arena, (size_t)g->n_tensors + 1, sizeof *s.first);
    s.left = dtp_arena_alloc(arena, (size_t)g->n_tensors, sizeof *s.left);
    s.user = dtp_arena_alloc(arena, slots, sizeof *s.user);
    s.in_degree = dtp_arena_alloc(arena, (size_t)g->n_ops, sizeof *s.in_degree);
    s.freed = dtp_arena_alloc(arena, (size_t)g->n_ops, sizeof *s.freed);
    s.done = dtp_arena_alloc(arena, (size_t)g->n_ops, sizeof *s.done);
    s.heap = dtp_arena_alloc(arena, (size_t)g->n_ops + slots, sizeof *s.heap);
    if (s.first == NULL || s.left == NULL || s.user == NULL || s.in_degree == NULL ||
        s.freed == NULL || s.done == NULL || s.heap == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the schedule of %d operations",
                        g->n_ops);
    }
    count_users(&s);
    initial_freed(&s);
    int32_t n = list_pass(&s, order, freed);
    if (n != g->n_ops) {
        return DTP_FAIL(err, DTP_INTERNAL, "auto_mtf: scheduled %d of %d operations", n, g->n_ops);
    }
    return DTP_OK;
}

dtp_status dtp_mtf_schedule(const dtp_mtf_graph *g, dtp_mtf_scheduler alg, int32_t *order,
                            int64_t *freed, dtp_err *err)
{
    if (alg == DTP_MTF_NAIVE) {
        for (int32_t o = 0; o < g->n_ops; o++) {
            order[o] = o;
            if (freed != NULL) {
                freed[o] = 0;
            }
        }
        return DTP_OK;
    }
    dtp_arena *arena = dtp_arena_create();
    if (arena == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the schedule");
    }
    dtp_status status = list_schedule(g, arena, order, freed, err);
    dtp_arena_destroy(arena);
    return status;
}

/* ---- live sets ---- */

/* Readers of every tensor by slot (duplicates counted), plus one when it is final. */
static void count_readers(const dtp_mtf_graph *g, int32_t *readers)
{
    for (int32_t t = 0; t < g->n_tensors; t++) {
        readers[t] = g->tensors[t].final ? 1 : 0;
    }
    for (int32_t o = 0; o < g->n_ops; o++) {
        for (int32_t i = 0; i < g->ops[o].n_in; i++) {
            readers[g->ops[o].in[i]]++;
        }
    }
}

static int32_t record(const dtp_mtf_graph *g, const bool *live, int32_t *tensors, int32_t n)
{
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (live[t]) {
            if (tensors != NULL) {
                tensors[n] = t;
            }
            n++;
        }
    }
    return n;
}

/* One pass over the schedule; with tensors == NULL it only counts. */
static int32_t walk(const dtp_mtf_graph *g, const int32_t *order, int32_t *readers, bool *live,
                    dtp_mtf_live *out)
{
    int32_t n = 0;
    memset(live, 0, (size_t)g->n_tensors * sizeof *live);
    count_readers(g, readers);
    for (int32_t step = 0; step < g->n_ops; step++) {
        const dtp_mtf_op *op = &g->ops[order[step]];
        for (int32_t i = 0; i < op->n_out; i++) {
            live[op->out[i]] = true;
        }
        out->first[step] = n;
        n = record(g, live, out->tensors, n);
        for (int32_t i = 0; i < op->n_out; i++) {
            live[op->out[i]] = readers[op->out[i]] > 0;
        }
        for (int32_t i = 0; i < op->n_in; i++) {
            live[op->in[i]] = --readers[op->in[i]] > 0;
        }
    }
    out->first[g->n_ops] = n;
    return n;
}

dtp_status dtp_mtf_live_sets(const dtp_mtf_graph *g, const int32_t *order, dtp_arena *arena,
                             dtp_mtf_live *out, dtp_err *err)
{
    *out = (dtp_mtf_live){.n_steps = g->n_ops};
    int32_t *readers = dtp_arena_alloc(arena, (size_t)g->n_tensors, sizeof *readers);
    bool *live = dtp_arena_alloc(arena, (size_t)g->n_tensors, sizeof *live);
    out->first = dtp_arena_alloc(arena, (size_t)g->n_ops + 1, sizeof *out->first);
    if (readers == NULL || live == NULL || out->first == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the live sets");
    }
    int32_t n = walk(g, order, readers, live, out);
    out->tensors = dtp_arena_alloc(arena, (size_t)n, sizeof *out->tensors);
    if (out->tensors == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the live sets");
    }
    (void)walk(g, order, readers, live, out);
    return DTP_OK;
}
