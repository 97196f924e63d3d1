/* Making tables of sections (stage_table.h). */
#include "spmd/program/stage_table.h"

#include <stdio.h>

#include "core/base/safe_int.h"

dtp_section_text dtp_section_name(int32_t section)
{
    dtp_section_text out;
    const char *name = section == DTP_SECTION_FORWARD    ? "forward"
                       : section == DTP_SECTION_BACKWARD ? "backward"
                                                         : "update";
    if (section > DTP_SECTION_UPDATE) {
        (void)snprintf(out.text, sizeof out.text, "%s.%d", name, section - DTP_SECTION_UPDATE);
    } else {
        (void)snprintf(out.text, sizeof out.text, "%s", name);
    }
    return out;
}

/* The k-th section of a stage in a direction. */
static dtp_stage_action nth(const dtp_stage_table *t, int32_t s, int32_t section, int32_t k)
{
    const int32_t n = t->n_chunks / t->n_stages, m_n = t->n_microbatches;
    const int32_t group = k / (n * t->n_stages) * t->n_stages; /* its first microbatch */
    const int32_t width = m_n - group < t->n_stages ? m_n - group : t->n_stages;
    const int32_t chunk = (k - group * n) / width, m = group + (k - group * n) % width;
    const int32_t own = section == DTP_SECTION_FORWARD ? chunk : n - 1 - chunk;
    return (dtp_stage_action){.section = section, .chunk = own * t->n_stages + s, .microbatch = m};
}

/* Whether the k-th section of a stage may run: what it reads is there. `done` by direction, by
 * chunk * microbatches + microbatch. */
static bool arrived(const dtp_stage_table *t, int32_t s, int32_t section, int32_t k,
                    bool *const *done)
{
    const dtp_stage_action a = nth(t, s, section, k);
    const int32_t m_n = t->n_microbatches, at = a.chunk * m_n + a.microbatch;
    return section == DTP_SECTION_FORWARD
               ? a.chunk == 0 || done[0][at - m_n]
               : done[0][at] && (a.chunk + 1 == t->n_chunks || done[1][at + m_n]);
}

static dtp_status alloc_table(dtp_arena *arena, dtp_stage_table *t, int64_t *each, dtp_err *err)
{
    const int32_t *slots = t->slots;
    const int32_t chunks = t->n_stages > 0 ? t->n_chunks / t->n_stages : 0;
    const int32_t first = t->n_microbatches < t->n_stages ? t->n_microbatches : t->n_stages;
    if (t->n_stages < 1 || t->n_chunks > DTP_MAX_STAGES || t->n_microbatches < 1 ||
        t->n_parts < 0 || chunks < 1 || chunks * t->n_stages != t->n_chunks ||
        !dtp_mul_i64((int64_t)2 * chunks, t->n_microbatches, each) ||
        *each > INT32_MAX / 2 - (int64_t)t->n_parts * chunks) {
        return DTP_FAIL(err, DTP_INVALID,
                        "stages: no table of %d stages, %d chunks and %d microbatches", t->n_stages,
                        t->n_chunks, t->n_microbatches);
    }
    *each /= 2;
    DTP_TRY(DTP_NEW(arena, t->slots, t->n_stages, err));
    DTP_TRY(DTP_NEW(arena, t->n_actions, t->n_stages, err));
    t->actions = dtp_arena_alloc(arena, (size_t)t->n_stages, sizeof(dtp_stage_action *));
    DTP_TRY(DTP_MEMORY(err, t->actions));
    for (int32_t s = 0; s < t->n_stages; s++) {
        const int64_t least = (int64_t)(chunks - 1) * first + 1;
        if (slots[s] < least) {
            return DTP_FAIL(err, DTP_INVALID, "stages: stage %d has %d slots, it needs %d", s,
                            slots[s], (int32_t)least);
        }
        t->slots[s] = slots[s] < *each ? slots[s] : (int32_t)*each;
        DTP_TRY(DTP_NEW(arena, t->actions[s],
                        2 * (size_t)*each + (size_t)t->n_parts * (size_t)chunks, err));
    }
    return DTP_OK;
}

/* The section of a stage that runs next, from what has ended so far: forward if it may, else
 * backward; false: none may. `run` by direction: how many the stage has run. */
static bool next_action(const dtp_stage_table *t, int32_t s, const int32_t *run, bool *const *done,
                        dtp_stage_action *out)
{
    const int32_t each = t->n_chunks / t->n_stages * t->n_microbatches;
    const bool slot = run[0] - run[1] < t->slots[s] && run[0] < each;
    const bool ahead = slot && arrived(t, s, DTP_SECTION_FORWARD, run[0], done);
    const bool back = run[1] < each && arrived(t, s, DTP_SECTION_BACKWARD, run[1], done);
    if (ahead || back) {
        const int32_t section = ahead ? DTP_SECTION_FORWARD : DTP_SECTION_BACKWARD;
        *out = nth(t, s, section, run[section]);
    }
    return ahead || back;
}

/* Appends an action. Slots are used in turn, the one that is free longest first: `free` has those
 * that were given back, by backward section; `slot` those of microbatches. */
static void append(dtp_stage_table *t, int32_t s, dtp_stage_action a, int32_t *run, int32_t *free,
                   int32_t *slot)
{
    int32_t *of = &slot[a.chunk * t->n_microbatches + a.microbatch];
    if (a.section == DTP_SECTION_FORWARD) {
        *of = run[0] < t->slots[s] ? run[0] : free[run[0] - t->slots[s]];
    } else {
        free[run[1]] = *of;
    }
    a.slot = *of;
    run[a.section]++;
    t->actions[s][t->n_actions[s]++] = a;
}

dtp_status dtp_stage_table_make(const dtp_stage_table *size, dtp_arena *arena, dtp_stage_table *t,
                                dtp_err *err)
{
    int32_t run[DTP_MAX_STAGES][2] = {{0}}, *free[DTP_MAX_STAGES], *slot;
    dtp_stage_action turn[DTP_MAX_STAGES];
    bool *done[2], moved = true;
    int64_t each = 0;
    *t = *size;
    DTP_TRY(alloc_table(arena, t, &each, err));
    const size_t all = (size_t)t->n_chunks * (size_t)t->n_microbatches;
    DTP_TRY(DTP_NEW(arena, done[0], all, err));
    DTP_TRY(DTP_NEW(arena, done[1], all, err));
    DTP_TRY(DTP_NEW(arena, slot, all, err));
    for (int32_t s = 0; s < t->n_stages; s++) {
        DTP_TRY(DTP_NEW(arena, free[s], each, err));
    }
    while (moved) {
        moved = false;
        for (int32_t s = 0; s < t->n_stages; s++) {
            const bool runs = next_action(t, s, run[s], done, &turn[s]);
            turn[s].section = runs ? turn[s].section : -1;
        }
        for (int32_t s = 0; s < t->n_stages; s++) {
            const dtp_stage_action a = turn[s];
            if (a.section >= 0) {
                append(t, s, a, run[s], free[s], slot);
                done[a.section][a.chunk * t->n_microbatches + a.microbatch] = moved = true;
            }
        }
    }
    for (int32_t s = 0; s < t->n_stages; s++) {
        for (int32_t k = 0; k < t->n_parts * (t->n_chunks / t->n_stages); k++) {
            const int32_t own = k % (t->n_chunks / t->n_stages);
            t->actions[s][t->n_actions[s]++] =
                (dtp_stage_action){.section = DTP_SECTION_UPDATE + k / (t->n_chunks / t->n_stages),
                                   .chunk = own * t->n_stages + s,
                                   .microbatch = t->n_microbatches - 1,
                                   .slot = -1};
        }
    }
    return DTP_OK;
}

dtp_status dtp_stage_table_of(const dtp_graph *g, dtp_arena *arena, dtp_stage_table *out,
                              dtp_err *err)
{
    int32_t slots[DTP_MAX_STAGES];
    for (int32_t s = 0; s < g->stages->n; s++) {
        slots[s] = dtp_stage_slots(g, s);
    }
    const dtp_stage_table size = {.n_stages = g->stages->n,
                                  .n_chunks = g->stages->n_chunks,
                                  .n_microbatches = g->microbatches,
                                  .n_parts = g->stages->n_parts,
                                  .slots = slots};
    return dtp_stage_table_make(&size, arena, out, err);
}
