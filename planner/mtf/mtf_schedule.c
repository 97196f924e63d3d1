/* A greedy list schedule on unsplit bytes: of the operations whose inputs exist it takes the one
 * that frees most, ties by operation name. It keeps one property of the original that looks like a
 * slip but decides schedules: whether an input's last remaining reader is credited depends on the
 * *last output seen* being final (that of the operation just scheduled, or of an earlier one when
 * it has none), not on the input.
 */
#include "planner/mtf/mtf_schedule.h"

#include <string.h>

/* Users of tensor t: user[first[t] .. first[t + 1]), distinct, in graph order; `left` counts the
 * ones not yet scheduled. */
typedef struct list_state {
    const dtp_mtf_graph *g;
    int32_t *first, *user, *left;
    int32_t *in_degree;
    int64_t *freed;
    bool *done;
    int32_t last_output; /* tensor, -1 = none seen */
} list_state;

static bool first_slot(const dtp_mtf_op *op, int32_t slot)
{
    for (int32_t i = 0; i < slot; i++) {
        if (op->in[i] == op->in[slot]) {
            return false;
        }
    }
    return true;
}

/* Of the operations whose inputs exist, the one that frees most, then that of the smaller name; -1
 * when there is none. */
static int32_t find_next(const list_state *s)
{
    int32_t best = -1;
    for (int32_t o = 0; o < s->g->n_ops; o++) {
        if (s->done[o] || s->in_degree[o] > 0 || (best >= 0 && s->freed[o] < s->freed[best])) {
            continue;
        }
        if (best < 0 || s->freed[o] > s->freed[best] ||
            strcmp(s->g->ops[o].name, s->g->ops[best].name) < 0) {
            best = o;
        }
    }
    return best;
}

/* Operation o is scheduled: its outputs exist, and the last remaining reader of an input is
 * credited with it. */
static void release(list_state *s, int32_t o)
{
    const dtp_mtf_op *op = &s->g->ops[o];
    for (int32_t i = 0; i < op->n_out; i++) {
        const int32_t t = op->out[i];
        s->last_output = t;
        for (int32_t k = s->first[t]; k < s->first[t + 1]; k++) {
            s->in_degree[s->user[k]]--;
        }
    }
    for (int32_t i = 0; i < op->n_in; i++) {
        const int32_t t = op->in[i];
        if (!first_slot(op, i) || --s->left[t] != 1 ||
            (s->last_output >= 0 && s->g->tensors[s->last_output].final)) {
            continue;
        }
        for (int32_t k = s->first[t]; k < s->first[t + 1]; k++) {
            s->freed[s->user[k]] += s->done[s->user[k]] ? 0 : s->g->tensors[t].bytes;
        }
    }
}

static dtp_status list_schedule(list_state *s, dtp_arena *arena, int32_t *order, int64_t *freed,
                                dtp_err *err)
{
    const dtp_mtf_graph *g = s->g;
    size_t slots = 0;
    for (int32_t o = 0; o < g->n_ops; o++) {
        slots += (size_t)g->ops[o].n_in;
    }
    DTP_TRY(DTP_NEW(arena, s->first, g->n_tensors + 1, err));
    DTP_TRY(DTP_NEW(arena, s->left, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, s->user, slots, err));
    DTP_TRY(DTP_NEW(arena, s->in_degree, g->n_ops, err));
    DTP_TRY(DTP_NEW(arena, s->freed, g->n_ops, err));
    DTP_TRY(DTP_NEW(arena, s->done, g->n_ops, err));
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
            const int32_t t = g->ops[o].in[i];
            if (first_slot(&g->ops[o], i)) {
                s->user[s->first[t] + s->left[t]++] = o;
            }
        }
    }
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
    for (int32_t n = 0; n < g->n_ops; n++) {
        const int32_t o = find_next(s);
        if (o < 0) {
            return DTP_FAIL(err, DTP_INTERNAL, "auto_mtf: scheduled %d of %d operations", n,
                            g->n_ops);
        }
        order[n] = o;
        freed[n] = s->freed[o];
        s->done[o] = true;
        release(s, o);
    }
    return DTP_OK;
}

dtp_status dtp_mtf_schedule(const dtp_mtf_graph *g, int32_t *order, int64_t *freed, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    list_state s = {.g = g, .last_output = -1};
    const dtp_status status = list_schedule(&s, arena, order, freed, err);
    dtp_arena_destroy(arena);
    return status;
}

dtp_status dtp_mtf_live_sets(const dtp_mtf_graph *g, const int32_t *order, dtp_arena *arena,
                             dtp_mtf_live *out, dtp_err *err)
{
    int32_t *readers; /* of every tensor by slot (duplicates counted), plus one when it is final */
    bool *live;
    int32_t n = 0, capacity = 0;
    *out = (dtp_mtf_live){.n_steps = g->n_ops};
    DTP_TRY(DTP_NEW(arena, readers, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, live, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, out->first, g->n_ops + 1, err));
    for (int32_t t = 0; t < g->n_tensors; t++) {
        readers[t] = g->tensors[t].final ? 1 : 0;
    }
    for (int32_t o = 0; o < g->n_ops; o++) {
        for (int32_t i = 0; i < g->ops[o].n_in; i++) {
            readers[g->ops[o].in[i]]++;
        }
    }
    for (int32_t step = 0; step < g->n_ops; step++) {
        const dtp_mtf_op *op = &g->ops[order[step]];
        for (int32_t i = 0; i < op->n_out; i++) {
            live[op->out[i]] = true;
        }
        DTP_TRY(dtp_arena_grow(arena, &out->tensors, n, n + g->n_tensors, &capacity,
                               sizeof *out->tensors, err));
        for (int32_t t = 0; t < g->n_tensors; t++) {
            out->tensors[n] = t;
            n += live[t] ? 1 : 0;
        }
        out->first[step + 1] = n;
        for (int32_t i = 0; i < op->n_out; i++) {
            live[op->out[i]] = readers[op->out[i]] > 0;
        }
        for (int32_t i = 0; i < op->n_in; i++) {
            live[op->in[i]] = --readers[op->in[i]] > 0;
        }
    }
    return DTP_OK;
}
