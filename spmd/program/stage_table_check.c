/* The independent check of a table. It shares nothing with the scheduler: first each stage alone
 * (what it runs, in which order, in which slots), then a run of all stages without times, in which
 * a section waits for what the chunk before (forward) or behind (backward) sends, and a message
 * forward waits for those of its queue before it and for the slot at its end. */
#include "spmd/program/stage_table.h"

typedef struct table_checker {
    const dtp_stage_table *t;
    int32_t *place[2]; /* by chunk * M + microbatch: of its forward and of its backward section */
    int32_t *free_at;  /* the same: actions of the stage that must be behind it before the slot of
                          the microbatch is free */
    int32_t *run;      /* by stage: actions that have run */
    int32_t *sent;     /* by chunk: messages forward that have arrived at the next one, */
    int32_t *order;    /* and by chunk * M + k: the microbatch of the k-th forward section */
    int32_t *n_order;
} table_checker;

static dtp_status wrong(const dtp_stage_table *t, int32_t s, int32_t i, const char *what,
                        dtp_err *err)
{
    const dtp_stage_action *a = &t->actions[s][i];
    return DTP_FAIL(err, DTP_INVALID,
                    "stage %d: action %d (%s of chunk %d, microbatch %d, slot %d): %s", s, i,
                    dtp_section_name(a->section).text, a->chunk, a->microbatch, a->slot, what);
}

/* Updates come last, part by part, in each the chunks in turn. */
static dtp_status check_update(const dtp_stage_table *t, int32_t s, int32_t i, dtp_err *err)
{
    const dtp_stage_action *a = &t->actions[s][i];
    const int32_t n = t->n_chunks / t->n_stages, k = i - 2 * n * t->n_microbatches;
    if (k < 0 || a->section != DTP_SECTION_UPDATE + k / n || a->chunk != k % n * t->n_stages + s) {
        return wrong(t, s, i, "it is not its turn", err);
    }
    return a->slot == -1 && a->microbatch == t->n_microbatches - 1
               ? DTP_OK
               : wrong(t, s, i, "an update has no slot and is of the last microbatch", err);
}

/* `holds` by slot: chunk * M + microbatch in it, -1: none; `emptied`: the action behind which it
 * became so. */
static dtp_status check_action(table_checker *c, int32_t s, int32_t i, int32_t *holds,
                               int32_t *emptied, dtp_err *err)
{
    const dtp_stage_table *t = c->t;
    const dtp_stage_action *a = &t->actions[s][i];
    if (a->section >= DTP_SECTION_UPDATE) {
        return check_update(t, s, i, err);
    }
    if (a->section < 0 || i >= 2 * t->n_chunks / t->n_stages * t->n_microbatches) {
        return wrong(t, s, i, "it is not its turn", err);
    }
    if (a->microbatch < 0 || a->microbatch >= t->n_microbatches || a->slot < 0 ||
        a->slot >= t->slots[s] || a->chunk < 0 || a->chunk >= t->n_chunks ||
        a->chunk % t->n_stages != s) {
        return wrong(t, s, i, "there is no such chunk, microbatch or slot", err);
    }
    const int32_t at = a->chunk * t->n_microbatches + a->microbatch;
    if (c->place[a->section][at] >= 0) {
        return wrong(t, s, i, "it runs twice", err);
    }
    c->place[a->section][at] = i;
    if (a->section == DTP_SECTION_FORWARD) {
        if (holds[a->slot] >= 0) {
            return wrong(t, s, i, "it overwrites a slot that is not free", err);
        }
        holds[a->slot] = at;
        c->free_at[at] = emptied[a->slot];
        c->order[a->chunk * t->n_microbatches + c->n_order[a->chunk]++] = a->microbatch;
        return DTP_OK;
    }
    if (holds[a->slot] != at) {
        return wrong(t, s, i, "the slot does not hold this microbatch", err);
    }
    holds[a->slot] = -1;
    emptied[a->slot] = i + 1;
    return DTP_OK;
}

/* Whether the next action of stage s has what it waits for. */
static bool may_run(const table_checker *c, int32_t s)
{
    const dtp_stage_table *t = c->t;
    const int32_t m_n = t->n_microbatches, i = c->run[s];
    const dtp_stage_action *a = &t->actions[s][i];
    bool may = true;
    if (a->section == DTP_SECTION_FORWARD && a->chunk > 0) {
        may = false;
        for (int32_t k = 0; k < c->sent[a->chunk - 1] && !may; k++) {
            may = c->order[(a->chunk - 1) * m_n + k] == a->microbatch;
        }
    } else if (a->section == DTP_SECTION_BACKWARD && a->chunk + 1 < t->n_chunks) {
        may = c->run[(a->chunk + 1) % t->n_stages] >
              c->place[DTP_SECTION_BACKWARD][(a->chunk + 1) * m_n + a->microbatch];
    } else if (a->section > DTP_SECTION_UPDATE) { /* it may need any other chunk's part before */
        const int32_t n = t->n_chunks / t->n_stages;
        for (int32_t o = 0; o < t->n_stages; o++) {
            may = may && c->run[o] >= 2 * n * m_n + n * (a->section - DTP_SECTION_UPDATE);
        }
    }
    return may;
}

/* Sends the next message of a chunk to the next chunk, if its slot is free. */
static bool send_next(table_checker *c, int32_t chunk)
{
    const dtp_stage_table *t = c->t;
    const int32_t m_n = t->n_microbatches;
    if (chunk + 1 == t->n_chunks || c->sent[chunk] == m_n) {
        return false;
    }
    const int32_t m = c->order[chunk * m_n + c->sent[chunk]];
    const bool sends =
        c->run[chunk % t->n_stages] > c->place[DTP_SECTION_FORWARD][chunk * m_n + m] &&
        c->run[(chunk + 1) % t->n_stages] >= c->free_at[(chunk + 1) * m_n + m];
    c->sent[chunk] += sends ? 1 : 0;
    return sends;
}

static dtp_status check(table_checker *c, dtp_arena *arena, dtp_err *err)
{
    const dtp_stage_table *t = c->t;
    const size_t all = (size_t)t->n_chunks * (size_t)t->n_microbatches;
    int32_t *holds, *emptied;
    DTP_TRY(DTP_NEW(arena, c->place[0], all, err));
    DTP_TRY(DTP_NEW(arena, c->place[1], all, err));
    DTP_TRY(DTP_NEW(arena, c->free_at, all, err));
    DTP_TRY(DTP_NEW(arena, c->order, all, err));
    DTP_TRY(DTP_NEW(arena, c->run, t->n_stages, err));
    DTP_TRY(DTP_NEW(arena, c->sent, t->n_chunks, err));
    DTP_TRY(DTP_NEW(arena, c->n_order, t->n_chunks, err));
    for (size_t k = 0; k < all; k++) {
        c->place[0][k] = c->place[1][k] = -1;
    }
    for (int32_t s = 0; s < t->n_stages; s++) {
        const int32_t chunks = t->n_chunks / t->n_stages;
        if (t->slots[s] < 1 || t->n_actions[s] != chunks * (2 * t->n_microbatches + t->n_parts)) {
            return DTP_FAIL(err, DTP_INVALID,
                            "stage %d: %d actions and %d slots for %d microbatches of %d chunks", s,
                            t->n_actions[s], t->slots[s], t->n_microbatches, chunks);
        }
        DTP_TRY(DTP_NEW(arena, holds, t->slots[s], err));
        DTP_TRY(DTP_NEW(arena, emptied, t->slots[s], err));
        for (int32_t k = 0; k < t->slots[s]; k++) {
            holds[k] = -1;
        }
        for (int32_t i = 0; i < t->n_actions[s]; i++) {
            DTP_TRY(check_action(c, s, i, holds, emptied, err));
        }
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int32_t s = 0; s < t->n_stages; s++) {
            while (c->run[s] < t->n_actions[s] && may_run(c, s)) {
                c->run[s]++;
                moved = true;
            }
        }
        for (int32_t k = 0; k < t->n_chunks; k++) {
            while (send_next(c, k)) {
                moved = true;
            }
        }
    }
    for (int32_t s = 0; s < t->n_stages; s++) {
        if (c->run[s] < t->n_actions[s]) {
            return wrong(t, s, c->run[s], "stages wait for each other in a circle", err);
        }
    }
    return DTP_OK;
}

dtp_status dtp_stage_table_check(const dtp_stage_table *table, dtp_err *err)
{
    table_checker c = {.t = table};
    dtp_arena *arena = dtp_arena_create();
    const dtp_status s = check(&c, arena, err);
    dtp_arena_destroy(arena);
    return s;
}
