/* What makes up the peak: the buffers that are needed at the time when most bytes are needed. */
#include "spmd/program/peak.h"

#include <stdlib.h>
#include <string.h>

#include "core/transform/regather.h"

bool dtp_value_is_kept_copy(const dtp_program *p, dtp_value_id v)
{
    const dtp_value *value = &p->values[v];
    const dtp_tensor_id t = value->tensor;
    return t >= 0 && v != p->tensor_value[t] && value->kind == DTP_VALUE_TEMP &&
           dtp_value_root(p, v) == v && dtp_regather_applies(p->graph, t) && value->first >= 0 &&
           value->last > value->first && p->instrs[value->first].kind != DTP_INSTR_KERNEL &&
           p->instrs[value->first].phase == DTP_FORWARD &&
           p->instrs[value->last].phase == DTP_BACKWARD;
}

int32_t dtp_held_kind(const dtp_program *p, dtp_value_id v)
{
    const dtp_tensor_id t = p->values[v].tensor;
    return dtp_value_is_kept_copy(p, v) ? (int32_t)DTP_HELD_COPIES
           : t >= 0                     ? (int32_t)dtp_memory_use_of(p->graph, t)
                                        : (int32_t)DTP_HELD_BUFFERS;
}

const char *dtp_held_name(int32_t kind)
{
    return kind < DTP_HELD_BUFFERS   ? dtp_memory_use_names[kind]
           : kind == DTP_HELD_COPIES ? "gathered copies"
                                     : "buffers";
}

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
    return dtp_peak_at(p, -1, arena, out, err);
}

dtp_status dtp_peak_at(const dtp_program *p, int32_t at, dtp_arena *arena, dtp_peak *out,
                       dtp_err *err)
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
        if (i == at || (at < 0 && (out->at < 0 || now > out->bytes))) {
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

/* The first value with a tensor that is in the buffer then, else the first value, holds it. */
static void find_holders(const dtp_program *p, const dtp_value_id *next, dtp_value_id first,
                         dtp_value_id *holder)
{
    for (int pass = 0; pass < 2; pass++) {
        for (dtp_value_id v = first; v >= 0; v = next[v]) {
            const dtp_value *value = &p->values[v];
            const bool now = value->first >= 0 && (value->tensor >= 0) == (pass == 0);
            for (int32_t i = value->first; now && i <= value->last && i < p->n_instrs; i++) {
                holder[i] = holder[i] < 0 ? v : holder[i];
            }
        }
    }
}

dtp_status dtp_held_over_time(const dtp_program *p, dtp_arena *arena, int64_t (**out)[DTP_N_HELD],
                              dtp_err *err)
{
    int64_t *unused, (*bytes)[DTP_N_HELD];
    buffer_span *spans;
    dtp_value_id *first, *next, *holder;
    DTP_TRY(find_spans(p, arena, &spans, &unused, err));
    DTP_TRY(DTP_NEW(arena, bytes, (size_t)p->n_instrs + 1, err));
    DTP_TRY(DTP_NEW(arena, first, p->n_values, err));
    DTP_TRY(DTP_NEW(arena, next, p->n_values, err));
    DTP_TRY(DTP_NEW(arena, holder, (size_t)p->n_instrs + 1, err));
    memset(first, -1, (size_t)p->n_values * sizeof *first);
    for (int32_t v = p->n_values - 1; v >= 0; v--) { /* the values of a buffer, in order */
        const dtp_value_id root = dtp_value_root(p, v);
        next[v] = first[root];
        first[root] = v;
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        const int32_t begin = spans[v].first, end = spans[v].last;
        if (begin > end) {
            continue;
        }
        for (int32_t i = begin; i <= end && i < p->n_instrs; i++) {
            holder[i] = -1;
        }
        find_holders(p, next, first[v], holder);
        int32_t kind = dtp_held_kind(p, v);
        for (int32_t i = begin; i <= end && i < p->n_instrs; i++) {
            if (holder[i] >= 0 && (i == begin || holder[i] != holder[i - 1])) {
                kind = dtp_held_kind(p, holder[i]);
            }
            bytes[i][kind] += p->values[v].bytes;
        }
    }
    *out = bytes;
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
