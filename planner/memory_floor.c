/* What every program of a graph needs, on whatever mesh of so many ranks and in whatever
 * layouts: "does it fit?" without planning. */
#include "planner/memory_floor.h"

#include "core/base/safe_int.h"
#include "core/base/units.h"
#include "planner/problem/lifetimes.h"

/* Until when it is there for sure: then a copy may have taken its place. With stages the ranks of
 * one may be in the forward pass while those of another are in the backward pass: only what is
 * there at all times counts. */
static int64_t sure_end(const dtp_lifetimes *l, dtp_tensor_id t)
{
    const dtp_tensor_kind kind = l->graph->tensors[t].kind;
    const bool kept = kind == DTP_TENSOR_PARAM || kind == DTP_TENSOR_STATE;
    const int phase = kept ? -1 : dtp_lifetimes_last_phase(l, t);
    const int64_t end = kept || l->graph->stages == NULL ? l->end_of[t] : 0;
    const int64_t made = phase >= 0 ? dtp_lifetimes_of_copy(l, t, phase).made : end;
    return made < end ? made : end;
}

/* The time with the largest sum; *change: by time, of the sum. */
static int64_t find_peak(const int64_t *change, int64_t n, int64_t *bytes)
{
    int64_t now = 0, at = 0;
    for (int64_t i = 0; i < n; i++) {
        now += change[i];
        at = now > *bytes ? i : at;
        *bytes = now > *bytes ? now : *bytes;
    }
    return at;
}

static dtp_status find(const dtp_graph *g, const dtp_target *target, int32_t ranks,
                       dtp_arena *arena, dtp_memory_floor *out, dtp_err *err)
{
    dtp_lifetimes l;
    int64_t *change, *end, *share, all = 0;
    DTP_TRY(dtp_lifetimes_find(g, target, arena, &l, err));
    DTP_TRY(DTP_NEW(arena, change, l.end + 1, err));
    DTP_TRY(DTP_NEW(arena, end, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, share, g->n_tensors, err));
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        end[t] = sure_end(&l, t);
        share[t] = dtp_ceil_div(dtp_ttype_bytes(&g->tensors[t].type), ranks);
        if (!dtp_add_i64(all, share[t], &all)) {
            return DTP_FAIL(err, DTP_RANGE, "the tensors of '%s' take more than 2^63 bytes",
                            g->name);
        }
        if (l.begin[t] < end[t]) {
            change[l.begin[t]] += share[t];
            change[end[t]] -= share[t];
        }
    }
    const int64_t at = find_peak(change, l.end, &out->bytes);
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        if (l.begin[t] <= at && at < end[t]) {
            out->of[dtp_memory_use_of(g, t)] += share[t];
        }
    }
    return DTP_OK;
}

dtp_status dtp_memory_floor_find(const dtp_graph *g, const dtp_target *target, int32_t ranks,
                                 dtp_memory_floor *out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, arena));
    *out = (dtp_memory_floor){0};
    const dtp_status s = find(g, target, ranks, arena, out, err);
    dtp_arena_destroy(arena);
    return s;
}

const char *dtp_memory_floor_text(const dtp_memory_floor *floor, dtp_arena *arena)
{
    const char *text = "";
    for (int32_t k = 0; k < DTP_N_MEMORY_USES && text != NULL; k++) {
        if (floor->of[k] > 0) {
            text = dtp_arena_printf(arena, "%s%s%s of %s", text, text[0] != '\0' ? ", " : "",
                                    dtp_byte_count((double)floor->of[k]).text,
                                    dtp_memory_use_names[k]);
        }
    }
    return text;
}
