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

dtp_status dtp_stage_table_make(int32_t n_stages, int32_t n_microbatches, int32_t n_parts,
                                const int32_t *slots, dtp_arena *arena, dtp_stage_table *t,
                                dtp_err *err)
{
    enum { BACK = DTP_SECTION_BACKWARD };
    int32_t done[DTP_MAX_STAGES + 2][2] = {{0}}; /* sections of stage s, in done[s + 1] */
    int32_t left = n_stages;
    int64_t actions;
    *t = (dtp_stage_table){
        .n_stages = n_stages, .n_microbatches = n_microbatches, .n_parts = n_parts};
    if (n_stages < 1 || n_stages > DTP_MAX_STAGES || n_microbatches < 1 || n_parts < 0 ||
        !dtp_mul_i64(2, n_microbatches, &actions) || actions > INT32_MAX - n_parts) {
        return DTP_FAIL(err, DTP_INVALID, "stages: no table of %d stages and %d microbatches",
                        n_stages, n_microbatches);
    }
    DTP_TRY(DTP_NEW(arena, t->slots, n_stages, err));
    DTP_TRY(DTP_NEW(arena, t->n_actions, n_stages, err));
    t->actions = dtp_arena_alloc(arena, (size_t)n_stages, sizeof(dtp_stage_action *));
    DTP_TRY(DTP_MEMORY(err, t->actions));
    for (int32_t s = 0; s < n_stages; s++) {
        if (slots[s] < 1) {
            return DTP_FAIL(err, DTP_INVALID, "stages: stage %d has %d slots", s, slots[s]);
        }
        t->slots[s] = slots[s] < n_microbatches ? slots[s] : n_microbatches;
        DTP_TRY(DTP_NEW(arena, t->actions[s], (size_t)actions + (size_t)n_parts, err));
    }
    done[0][0] = done[n_stages + 1][BACK] = n_microbatches; /* what the ends wait for */
    while (left > 0) {
        int32_t before[DTP_MAX_STAGES + 2][2];
        for (int32_t s = 0; s < n_stages + 2; s++) {
            before[s][0] = done[s][0];
            before[s][BACK] = done[s][BACK];
        }
        for (int32_t s = 0; s < n_stages; s++) {
            const int32_t forward = before[s + 1][0], backward = before[s + 1][BACK];
            const bool slot = forward - backward < t->slots[s] && forward < n_microbatches;
            const bool ahead = slot && forward < before[s][0];
            const bool back = backward < forward && backward < before[s + 2][BACK];
            const int32_t m = ahead ? forward : backward;
            if (ahead || back) {
                t->actions[s][t->n_actions[s]++] =
                    (dtp_stage_action){ahead ? DTP_SECTION_FORWARD : BACK, m, m % t->slots[s]};
                done[s + 1][ahead ? 0 : BACK]++;
                left -= !ahead && m + 1 == n_microbatches ? 1 : 0;
            }
        }
    }
    for (int32_t s = 0; s < n_stages; s++) {
        for (int32_t k = 0; k < n_parts; k++) {
            t->actions[s][t->n_actions[s]++] =
                (dtp_stage_action){DTP_SECTION_UPDATE + k, n_microbatches - 1, -1};
        }
    }
    return DTP_OK;
}
