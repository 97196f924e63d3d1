/* The memory plan: an offset for every buffer such that buffers needed at the same time do not
 * overlap, with a low peak. (Dynamic storage allocation: minimising the peak is NP-hard.)
 *
 * Offline first fit: buffers are placed one after the other, each at the lowest offset at which it
 * meets no buffer already placed that is needed at a common time. Several orders are tried (large
 * first, long-lived bulk first, by time) and the lowest peak wins; the search stops at once when
 * the peak equals the largest sum of simultaneously needed bytes, below which nothing fits.
 * Resident buffers come first, packed from offset 0: they are needed always.
 *
 * Of a stage what lives from a forward section to the backward section, and what either sends or
 * receives, lies behind them in slots of equal size, one for each microbatch in flight: placed
 * once, over the time of one microbatch. Sections of different microbatches alternate, but none
 * of them uses another one's slot, and the other buffers end with their section. Programs of
 * several chunks of a stage have one arena: what outlives a section lies apart, in front, and each
 * program has its own; the slots and what a section alone needs are shared.
 */
#include "core/base/safe_int.h"
#include "core/base/sort.h"
#include "core/transform/stages.h"
#include "spmd/lower/first_fit.h"
#include "spmd/lower/fsdp_memory.h"
#include "spmd/lower/memplan.h"
#include "spmd/lower/overlap.h"
#include "spmd/program/program_internal.h"

/* ---- lower bound ---- */

/* Events by time, those that free bytes before those that take some. */
static int64_t find_bound(const dtp_interval *items, int32_t n, dtp_keyed *events,
                          dtp_keyed *scratch)
{
    int64_t sum = 0, most = 0;
    for (int32_t i = 0; i < n; i++) {
        const int64_t bytes = dtp_program__aligned(items[i].bytes);
        events[i] = (dtp_keyed){dtp_sort_key((int64_t)items[i].last + 1), -bytes};
        events[n + i] = (dtp_keyed){dtp_sort_key(items[i].first), bytes};
    }
    dtp_sort_keyed(events, scratch, 2 * (int64_t)n);
    for (int32_t i = 0; i < 2 * n; i++) {
        sum += events[i].item;
        most = sum > most ? sum : most;
    }
    return most;
}

/* ---- first fit ---- */

typedef enum fit_order { BY_SIZE, BY_AREA, BY_LENGTH, BY_TIME, N_ORDERS } fit_order;

static int64_t sort_key(const dtp_interval *item, fit_order by)
{
    int64_t length = (int64_t)item->last - item->first + 1, area;
    switch (by) {
    case BY_SIZE:
        return item->bytes;
    case BY_AREA:
        return dtp_mul_i64(item->bytes, length, &area) ? area : INT64_MAX;
    case BY_LENGTH:
        return length;
    default:
        return -(int64_t)item->first;
    }
}

static dtp_status place(dtp_arena *arena, dtp_interval *items, int32_t n, int64_t enough,
                        int64_t *peak, dtp_err *err)
{
    dtp_first_fit *fit;
    dtp_keyed *order;
    int64_t *offset;
    int32_t last = 0;
    for (int32_t i = 0; i < n; i++) {
        last = items[i].last > last ? items[i].last : last;
    }
    DTP_TRY(dtp_first_fit_create(arena, n, last, &fit, err));
    DTP_TRY(DTP_NEW(arena, order, 4 * (size_t)n, err));
    DTP_TRY(DTP_NEW(arena, offset, n, err));
    const int64_t least = find_bound(items, n, order, order + 2 * (size_t)n);
    const int64_t bound = enough > least ? enough : least;
    *peak = INT64_MAX;
    for (int by = 0; by<N_ORDERS && * peak> bound; by++) {
        /* Larger keys first; ties by time, then by id, so that the result is the same everywhere.
         * `order` has room for 2 n, `offset` for n. */
        int64_t got = 0;
        for (int32_t i = 0; i < n; i++) {
            order[i] = (dtp_keyed){dtp_sort_key(items[i].first), i};
        }
        dtp_sort_keyed(order, order + n, n);
        for (int32_t i = 0; i < n; i++) {
            order[i].key = ~dtp_sort_key(sort_key(&items[order[i].item], (fit_order)by));
        }
        dtp_sort_keyed(order, order + n, n);
        dtp_first_fit_clear(fit);
        for (int32_t i = 0; i < n && got < *peak; i++) { /* else it is not the lowest */
            const dtp_interval *x = &items[order[i].item];
            const int64_t bytes = dtp_program__aligned(x->bytes);
            const int64_t at = dtp_first_fit_place(fit, bytes, x->first, x->last);
            offset[order[i].item] = at;
            got = at + bytes > got ? at + bytes : got;
        }
        for (int32_t i = 0; i < n && got < *peak; i++) {
            items[i].offset = offset[i];
        }
        *peak = got < *peak ? got : *peak;
    }
    return DTP_OK;
}

dtp_status dtp_memplan__place(dtp_interval *items, int32_t n, int64_t enough, int64_t *peak,
                              dtp_err *err)
{
    int64_t total = 0;
    for (int32_t i = 0; i < n; i++) {
        if (items[i].bytes > INT64_MAX - DTP_BUFFER_ALIGN ||
            !dtp_add_i64(total, dtp_program__aligned(items[i].bytes), &total)) {
            return DTP_FAIL(err, DTP_RANGE, "the buffers of one rank exceed 2^63 bytes");
        }
    }
    dtp_arena *arena = dtp_arena_create();
    const dtp_status status = place(arena, items, n, enough, peak, err);
    dtp_arena_destroy(arena);
    return status;
}

/* ---- programs ---- */

/* By root: whether the buffer belongs to the stash of a stage. */
static dtp_status find_stash(const dtp_program *p, const dtp_interval *spans, dtp_arena *arena,
                             bool **out, dtp_err *err)
{
    const int32_t back = dtp_section_begin(p, p->instrs, p->n_instrs, DTP_SECTION_BACKWARD);
    const int32_t body = dtp_program_body(p);
    bool *is;
    DTP_TRY(DTP_NEW(arena, is, p->n_values, err));
    for (dtp_value_id v = 0; v < p->n_values && p->slots > 0; v++) {
        const dtp_value *value = &p->values[v];
        const dtp_value_id root = dtp_value_root(p, v);
        const bool crosses =
            spans[root].first < back && spans[root].last >= back && !p->values[root].once;
        const bool received = value->kind == DTP_VALUE_INPUT && value->tensor >= 0 &&
                              p->graph->tensors[value->tensor].kind == DTP_TENSOR_VALUE;
        const bool sent = value->sent > 0 && value->sent <= DTP_SECTION_BACKWARD + 1;
        is[root] = is[root] || crosses || ((received || sent) && spans[root].first < body);
    }
    *out = is;
    return DTP_OK;
}

/* By root, of a program that shares its arena: whether the buffer outlives a section. */
static dtp_status find_lasting(const dtp_program *p, const dtp_interval *spans, dtp_arena *arena,
                               bool **out, dtp_err *err)
{
    const bool shares = dtp_graph_chunks(p->graph) > dtp_graph_stages(p->graph);
    DTP_TRY(DTP_NEW(arena, *out, p->n_values, err));
    for (dtp_value_id v = 0; v < p->n_values && shares; v++) {
        const dtp_value_id root = dtp_value_root(p, v);
        const bool stays = p->values[root].once || p->values[v].arrives >= DTP_SECTION_UPDATE ||
                           (p->values[v].keep && p->values[v].sent == 0);
        const bool crosses = spans[root].last >= 0 && p->n_instrs > 0 &&
                             dtp_instr_section(p, &p->instrs[spans[root].first]) !=
                                 dtp_instr_section(p, &p->instrs[spans[root].last]);
        (*out)[root] = (*out)[root] || stays || crosses;
    }
    return DTP_OK;
}

/* Buffers that are placed together. */
typedef enum buffer_group { LASTING, STASH, PASSING, N_GROUPS } buffer_group;

typedef struct buffer_list {
    int32_t n;
    dtp_value_id *ids;
    dtp_interval *spans;
} buffer_list;

/* Places a group behind `base`; *bytes: what it takes. */
static dtp_status place_group(dtp_program *p, buffer_list *l, int64_t base, int64_t enough,
                              int64_t *bytes, dtp_err *err)
{
    *bytes = 0;
    DTP_TRY(l->n > 0 ? dtp_memplan__place(l->spans, l->n, enough, bytes, err) : DTP_OK);
    for (int32_t i = 0; i < l->n; i++) {
        p->values[l->ids[i]].offset = base + l->spans[i].offset;
    }
    return DTP_OK;
}

/* The parts of the arena behind `base`, where residents end. */
static dtp_status place_parts(dtp_program *p, buffer_list *lists, int64_t base, int64_t enough,
                              dtp_err *err)
{
    int64_t lasting, stash, peak;
    DTP_TRY(place_group(p, &lists[LASTING], base, 0, &lasting, err));
    if (!dtp_add_i64(base, lasting, &p->slots_at)) {
        return DTP_FAIL(err, DTP_RANGE, "the buffers of one rank exceed 2^63 bytes");
    }
    DTP_TRY(place_group(p, &lists[STASH], p->slots_at, 0, &p->slot_bytes, err));
    for (int32_t i = 0; i < lists[STASH].n; i++) {
        p->values[lists[STASH].ids[i]].in_slot = true;
    }
    if (!dtp_mul_i64(p->slot_bytes, p->slots, &stash) ||
        !dtp_add_i64(p->slots_at, stash, &p->rest_at)) {
        return DTP_FAIL(err, DTP_RANGE, "the stash of one rank exceeds 2^63 bytes");
    }
    p->own_at = 0;
    p->own_bytes = p->slots_at;
    DTP_TRY(place_group(p, &lists[PASSING], p->rest_at, enough - p->rest_at, &peak, err));
    return dtp_add_i64(p->rest_at, peak, &p->peak_bytes)
               ? DTP_OK
               : DTP_FAIL(err, DTP_RANGE, "the buffers of one rank exceed 2^63 bytes");
}

static dtp_status place_program(dtp_program *p, int64_t enough, dtp_arena *arena, dtp_err *err)
{
    int64_t base = 0, held = 0;
    dtp_interval *spans;
    buffer_list lists[N_GROUPS] = {{0}};
    bool *in_stash, *is_lasting;
    DTP_TRY(DTP_NEW(arena, spans, p->n_values, err));
    for (int k = 0; k < N_GROUPS; k++) {
        DTP_TRY(DTP_NEW(arena, lists[k].ids, p->n_values, err));
        DTP_TRY(DTP_NEW(arena, lists[k].spans, p->n_values, err));
    }
    /* The time in which the buffer of each root is needed: that of everything inside it. */
    for (int32_t v = 0; v < p->n_values; v++) {
        spans[v] = (dtp_interval){.bytes = p->values[v].bytes, .first = INT32_MAX, .last = -1};
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        const dtp_value *value = &p->values[v];
        dtp_interval *span = &spans[dtp_value_root(p, v)];
        if (value->first < 0) {
            continue;
        }
        span->first = value->first < span->first ? value->first : span->first;
        span->last = value->last > span->last ? value->last : span->last;
    }
    DTP_TRY(find_stash(p, spans, arena, &in_stash, err));
    DTP_TRY(find_lasting(p, spans, arena, &is_lasting, err));
    for (int32_t v = 0; v < p->n_values; v++) {
        p->values[v].offset = -1;
        p->values[v].in_slot = false;
        if (p->values[v].parent >= 0 || spans[v].last < 0 || p->values[v].external) {
            continue;
        }
        if (p->values[v].kind == DTP_VALUE_RESIDENT) {
            p->values[v].offset = base;
            if (p->values[v].bytes > INT64_MAX - DTP_BUFFER_ALIGN ||
                !dtp_add_i64(base, dtp_program__aligned(p->values[v].bytes), &base)) {
                return DTP_FAIL(err, DTP_RANGE, "parameters and state exceed 2^63 bytes");
            }
            continue;
        }
        buffer_list *l = &lists[in_stash[v] ? STASH : is_lasting[v] ? LASTING : PASSING];
        l->ids[l->n] = v;
        l->spans[l->n++] = spans[v];
    }
    if (p->target->fsdp) {
        DTP_TRY(dtp_fsdp_bytes(p, arena, &held, err));
    }
    if (!dtp_add_i64(base, held, &base)) {
        return DTP_FAIL(err, DTP_RANGE, "parameters and state exceed 2^63 bytes");
    }
    DTP_TRY(place_parts(p, lists, base, enough, err));
    for (int32_t v = 0; v < p->n_values; v++) {
        p->values[v].offset = p->values[dtp_value_root(p, v)].offset;
        p->values[v].in_slot = p->values[dtp_value_root(p, v)].in_slot;
    }
    return DTP_OK;
}

dtp_status dtp_program_place(dtp_program *p, int64_t enough, dtp_err *err)
{
    if (p->placed) {
        return DTP_OK;
    }
    dtp_arena *arena = dtp_arena_create();
    const dtp_status status = place_program(p, enough, arena, err);
    dtp_arena_destroy(arena);
    p->placed = status == DTP_OK && p->peak_bytes > enough;
    return status;
}

/* ---- programs of one arena ---- */

/* Moves what lies in each part of the arena of a program. */
static void move_parts(dtp_program *p, int64_t own_at, int64_t slots_at, int64_t rest_at)
{
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        dtp_value *value = &p->values[v];
        const bool own = value->offset < p->own_bytes;
        value->offset += value->offset < 0 ? 0
                         : value->in_slot  ? slots_at - p->slots_at
                         : own             ? own_at - p->own_at
                                           : rest_at - p->rest_at;
    }
    p->own_at = own_at;
    p->slots_at = slots_at;
    p->rest_at = rest_at;
}

dtp_status dtp_programs_share(dtp_program *const *programs, int32_t n, int32_t n_stages,
                              dtp_err *err)
{
    for (int32_t s = 0; s < n_stages && n > n_stages; s++) {
        int64_t own = 0, slot = 0, rest = 0, slots_at = 0, stash = 0, rest_at, peak;
        bool fits = true;
        for (int32_t c = s; c < n; c += n_stages) {
            const int64_t behind = programs[c]->peak_bytes - programs[c]->rest_at;
            fits = fits && dtp_add_i64(slots_at, programs[c]->own_bytes, &slots_at);
            slot = programs[c]->slot_bytes > slot ? programs[c]->slot_bytes : slot;
            rest = behind > rest ? behind : rest;
        }
        fits = fits && dtp_mul_i64(slot, programs[s]->slots, &stash) &&
               dtp_add_i64(slots_at, stash, &rest_at) && dtp_add_i64(rest_at, rest, &peak);
        for (int32_t c = s; c < n && fits; c += n_stages) {
            move_parts(programs[c], own, slots_at, rest_at);
            own += programs[c]->own_bytes;
            programs[c]->slot_bytes = slot;
            programs[c]->peak_bytes = peak;
        }
        if (!fits) {
            return DTP_FAIL(err, DTP_RANGE, "the chunks of stage %d exceed 2^63 bytes", s);
        }
    }
    return DTP_OK;
}
