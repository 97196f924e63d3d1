/* The independent check of a table. It shares nothing with the scheduler: first each stage alone
 * (what it runs, in which order, in which slots), then a run of all stages without times, in which
 * a section waits for what the stage before (forward) or behind (backward) sends, and a message
 * forward waits for those of its queue before it and for the slot at its end. */
#include "spmd/program/stage_table.h"

typedef struct table_checker {
    const dtp_stage_table *t;
    int32_t *place[2]; /* by stage * M + microbatch: of its forward and of its backward section */
    int32_t *free_at;  /* the same: actions of the stage that must be behind it before the slot of
                          the microbatch is free */
    int32_t *run;      /* by stage: actions that have run */
    int32_t *sent;     /* by stage: messages forward that have arrived at the next one, */
    int32_t *order;    /* and by stage * M + k: the microbatch of the k-th forward section */
} table_checker;

static dtp_status wrong(const dtp_stage_table *t, int32_t s, int32_t i, const char *what,
                        dtp_err *err)
{
    const dtp_stage_action *a = &t->actions[s][i];
    return DTP_FAIL(err, DTP_INVALID, "stage %d: action %d (%s of microbatch %d, slot %d): %s", s,
                    i, dtp_section_name(a->section).text, a->microbatch, a->slot, what);
}

static dtp_status check_action(table_checker *c, int32_t s, int32_t i, int32_t *n_forward,
                               int32_t *holds, int32_t *emptied, dtp_err *err)
{
    const dtp_stage_table *t = c->t;
    const dtp_stage_action *a = &t->actions[s][i];
    const int32_t part = i - 2 * t->n_microbatches;
    const bool update = a->section >= DTP_SECTION_UPDATE;
    if (a->section < 0 || (part >= 0) != update ||
        (update && a->section != DTP_SECTION_UPDATE + part)) {
        return wrong(t, s, i, "it is not its turn", err);
    }
    if (update) {
        return a->slot == -1 && a->microbatch == t->n_microbatches - 1
                   ? DTP_OK
                   : wrong(t, s, i, "an update has no slot and is of the last microbatch", err);
    }
    if (a->microbatch < 0 || a->microbatch >= t->n_microbatches || a->slot < 0 ||
        a->slot >= t->slots[s]) {
        return wrong(t, s, i, "there is no such microbatch or slot", err);
    }
    const int32_t at = s * t->n_microbatches + a->microbatch;
    if (c->place[a->section][at] >= 0) {
        return wrong(t, s, i, "it runs twice", err);
    }
    c->place[a->section][at] = i;
    if (a->section == DTP_SECTION_FORWARD) {
        if (holds[a->slot] >= 0) {
            return wrong(t, s, i, "it overwrites a slot that is not free", err);
        }
        holds[a->slot] = a->microbatch;
        c->free_at[at] = emptied[a->slot];
        c->order[s * t->n_microbatches + (*n_forward)++] = a->microbatch;
        return DTP_OK;
    }
    if (holds[a->slot] != a->microbatch) {
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
    if (a->section == DTP_SECTION_FORWARD && s > 0) {
        may = false;
        for (int32_t k = 0; k < c->sent[s - 1] && !may; k++) {
            may = c->order[(s - 1) * m_n + k] == a->microbatch;
        }
    } else if (a->section == DTP_SECTION_BACKWARD && s + 1 < t->n_stages) {
        may = c->run[s + 1] > c->place[DTP_SECTION_BACKWARD][(s + 1) * m_n + a->microbatch];
    } else if (a->section > DTP_SECTION_UPDATE) { /* it may need any other stage's part before */
        for (int32_t o = 0; o < t->n_stages; o++) {
            may = may && c->run[o] >= i;
        }
    }
    return may;
}

static dtp_status check(table_checker *c, dtp_arena *arena, dtp_err *err)
{
    const dtp_stage_table *t = c->t;
    const int32_t m_n = t->n_microbatches;
    const size_t all = (size_t)t->n_stages * (size_t)m_n;
    int32_t *holds, *emptied;
    DTP_TRY(DTP_NEW(arena, c->place[0], all, err));
    DTP_TRY(DTP_NEW(arena, c->place[1], all, err));
    DTP_TRY(DTP_NEW(arena, c->free_at, all, err));
    DTP_TRY(DTP_NEW(arena, c->order, all, err));
    DTP_TRY(DTP_NEW(arena, c->run, t->n_stages, err));
    DTP_TRY(DTP_NEW(arena, c->sent, t->n_stages, err));
    for (size_t k = 0; k < all; k++) {
        c->place[0][k] = c->place[1][k] = -1;
    }
    for (int32_t s = 0; s < t->n_stages; s++) {
        int32_t n_forward = 0;
        if (t->slots[s] < 1 || t->n_actions[s] != 2 * t->n_microbatches + t->n_parts) {
            return DTP_FAIL(err, DTP_INVALID,
                            "stage %d: %d actions and %d slots for %d "
                            "microbatches",
                            s, t->n_actions[s], t->slots[s], t->n_microbatches);
        }
        DTP_TRY(DTP_NEW(arena, holds, t->slots[s], err));
        DTP_TRY(DTP_NEW(arena, emptied, t->slots[s], err));
        for (int32_t k = 0; k < t->slots[s]; k++) {
            holds[k] = -1;
        }
        for (int32_t i = 0; i < t->n_actions[s]; i++) {
            DTP_TRY(check_action(c, s, i, &n_forward, holds, emptied, err));
        }
    }
    int32_t left = t->n_stages;
    for (bool moved = true; moved && left > 0;) {
        moved = false;
        for (int32_t s = 0; s < t->n_stages; s++) {
            while (c->run[s] < t->n_actions[s] && may_run(c, s)) {
                c->run[s]++;
                left -= c->run[s] == t->n_actions[s] ? 1 : 0;
                moved = true;
            }
            for (bool sends = s + 1 < t->n_stages;
                 sends && c->sent[s] < m_n;) { /* to the next one */
                const int32_t m = c->order[s * m_n + c->sent[s]];
                sends = c->run[s] > c->place[DTP_SECTION_FORWARD][s * m_n + m] &&
                        c->run[s + 1] >= c->free_at[(s + 1) * m_n + m];
                c->sent[s] += sends ? 1 : 0;
                moved = moved || sends;
            }
        }
    }
    for (int32_t s = 0; s < t->n_stages && left > 0; s++) {
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
