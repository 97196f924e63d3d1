#include "spmd/peak.h"

#include <stdlib.h>

static bool has_buffer(const dtp_value *v)
{
    return v->parent < 0 && !v->external && v->first <= v->last;
}

/* Instruction at which most bytes are needed, from the changes of the sum at each instruction. */
static void find_time(const dtp_program *p, int64_t *change, dtp_peak *out)
{
    int64_t now = 0;
    for (int32_t v = 0; v < p->n_values; v++) {
        const dtp_value *value = &p->values[v];
        if (has_buffer(value)) {
            change[value->first > 0 ? value->first : 0] += value->bytes;
            change[value->last + 1] -= value->bytes;
        }
    }
    *out = (dtp_peak){.at = -1};
    for (int32_t i = 0; i < p->n_instrs; i++) {
        now += change[i];
        if (out->at < 0 || now > out->bytes) {
            out->at = i;
            out->bytes = now;
        }
    }
}

typedef struct entry {
    int64_t bytes;
    dtp_value_id value;
} entry;

static int by_bytes(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return (x->value > y->value) - (x->value < y->value);
}

dtp_status dtp_peak_find(const dtp_program *p, dtp_arena *arena, dtp_peak *out, dtp_err *err)
{
    int64_t *change = dtp_arena_alloc(arena, (size_t)p->n_instrs + 2, sizeof *change);
    entry *list = dtp_arena_alloc(arena, (size_t)p->n_values, sizeof *list);
    if (change == NULL || list == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the buffers at the peak");
    }
    find_time(p, change, out);
    for (int32_t v = 0; v < p->n_values && out->at >= 0; v++) {
        const dtp_value *value = &p->values[v];
        if (has_buffer(value) && value->first <= out->at && value->last >= out->at) {
            list[out->n++] = (entry){value->bytes, v};
        }
    }
    qsort(list, (size_t)out->n, sizeof *list, by_bytes);
    out->values = dtp_arena_alloc(arena, (size_t)out->n, sizeof *out->values);
    if (out->values == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the buffers at the peak");
    }
    for (int32_t i = 0; i < out->n; i++) {
        out->values[i] = list[i].value;
    }
    return DTP_OK;
}
