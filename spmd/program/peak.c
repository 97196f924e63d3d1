#include "spmd/program/peak.h"

#include <stdlib.h>
#include <string.h>

/* The time in which a buffer is needed: that of everything inside it. */
typedef struct buffer_span {
    int32_t first, last; /* last < first: never */
    dtp_value_id value;  /* at the peak */
} buffer_span;

/* By value, and how the bytes that are needed change at each instruction. */
static dtp_status find_spans(const dtp_program *p, dtp_arena *arena, buffer_span **out,
                             int64_t **out_change, dtp_err *err)
{
    buffer_span *spans;
    int64_t *change;
    DTP_TRY(DTP_NEW(arena, spans, p->n_values, err));
    DTP_TRY(DTP_NEW(arena, change, (size_t)p->n_instrs + 2, err));
    for (int32_t v = 0; v < p->n_values; v++) {
        spans[v] = (buffer_span){INT32_MAX, -1, -1};
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        const dtp_value *value = &p->values[v];
        buffer_span *s = &spans[dtp_value_root(p, v)];
        if (value->first >= 0 && !value->external) {
            s->first = value->first < s->first ? value->first : s->first;
            s->last = value->last > s->last ? value->last : s->last;
        }
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        if (spans[v].first <= spans[v].last) {
            change[spans[v].first] += p->values[v].bytes;
            change[spans[v].last + 1] -= p->values[v].bytes;
        }
    }
    *out = spans;
    *out_change = change;
    return DTP_OK;
}

static int by_bytes(const void *a, const void *b)
{
    const dtp_peak_buffer *x = a, *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return (x->value > y->value) - (x->value < y->value);
}

dtp_status dtp_peak_find(const dtp_program *p, dtp_arena *arena, dtp_peak *out, dtp_err *err)
{
    int64_t *change;
    buffer_span *spans;
    dtp_peak_buffer *list;
    DTP_TRY(find_spans(p, arena, &spans, &change, err));
    DTP_TRY(DTP_NEW(arena, list, p->n_values, err));
    int64_t now = 0;
    *out = (dtp_peak){.at = -1};
    for (int32_t i = 0; i < p->n_instrs; i++) {
        now += change[i];
        if (out->at < 0 || now > out->bytes) {
            out->at = i;
            out->bytes = now;
        }
    }
    for (int32_t v = 0; v < p->n_values; v++) { /* what is in the buffers then */
        const dtp_value *value = &p->values[v];
        buffer_span *s = &spans[dtp_value_root(p, v)];
        if (value->first >= 0 && value->first <= out->at && value->last >= out->at &&
            (s->value < 0 || (p->values[s->value].tensor < 0 && value->tensor >= 0))) {
            s->value = v;
        }
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        if (spans[v].first <= out->at && spans[v].last >= out->at) {
            list[out->n++] =
                (dtp_peak_buffer){p->values[v].bytes, spans[v].value >= 0 ? spans[v].value : v};
        }
    }
    qsort(list, (size_t)out->n, sizeof *list, by_bytes);
    out->buffers = list;
    return DTP_OK;
}

dtp_status dtp_peak_by_node(const dtp_program *p, int64_t *need, dtp_err *err)
{
    int64_t *change, now = 0;
    buffer_span *spans;
    dtp_node_id node = -1;
    dtp_arena *arena = dtp_arena_create();
    const dtp_status status = find_spans(p, arena, &spans, &change, err);
    memset(need, 0, (size_t)p->graph->n_nodes * sizeof *need);
    for (int32_t i = 0; status == DTP_OK && i < p->n_instrs; i++) {
        now += change[i];
        node = p->instrs[i].node >= 0 ? p->instrs[i].node : node;
        if (node >= 0 && now > need[node]) {
            need[node] = now;
        }
    }
    dtp_arena_destroy(arena);
    return status;
}
