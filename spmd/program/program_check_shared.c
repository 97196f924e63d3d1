/* The independent check of the arena that the chunks of a stage share (program_check.c checks each
 * program by itself). A program has bytes of its own, and what outlives a section lies there: the
 * sections of other chunks run in between. What it knows of a buffer follows from the instructions
 * that touch it. */
#include "core/base/safe_int.h"
#include "core/transform/stages.h"
#include "spmd/program/program.h"

static dtp_value_id root_of(const dtp_program *p, dtp_value_id v)
{
    while (p->values[v].parent >= 0) {
        v = p->values[v].parent;
    }
    return v;
}

/* Notes that a section touches a buffer. `section` by root: the one that does, -1: none, -2:
 * several. */
static void touch(const dtp_program *p, dtp_value_id v, int32_t now, int32_t *section)
{
    int32_t *at = &section[root_of(p, v)];
    *at = *at == -1 || *at == now ? now : -2;
}

static void find_sections(const dtp_program *p, int32_t *section)
{
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        section[v] = -1;
    }
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        const dtp_value *value = &p->values[v];
        const bool lasts = value->kind == DTP_VALUE_RESIDENT ||
                           value->arrives >= DTP_SECTION_UPDATE ||
                           (value->keep && value->sent == 0);
        section[root_of(p, v)] = lasts ? -2 : section[root_of(p, v)];
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        const int32_t now = dtp_instr_section(p, instr);
        for (int32_t k = 0; k < instr->n_in; k++) {
            touch(p, instr->in[k], now, section);
        }
        for (int32_t k = 0; k < instr->n_out; k++) {
            touch(p, instr->out[k], instr->once ? -2 : now, section);
        }
        if (instr->workspace >= 0) {
            touch(p, instr->workspace, now, section);
        }
    }
}

static dtp_status check_values(const dtp_program *p, dtp_arena *arena, dtp_err *err)
{
    int32_t *section;
    DTP_TRY(DTP_NEW(arena, section, p->n_values, err));
    find_sections(p, section);
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        const dtp_value *value = &p->values[v];
        const int64_t end = value->offset + value->bytes;
        const bool own = value->offset >= p->own_at && end <= p->own_at + p->own_bytes;
        const bool rest = value->offset >= p->rest_at && section[root_of(p, v)] != -2;
        if (value->offset >= 0 && value->bytes > 0 && !value->in_slot && !own && !rest) {
            return DTP_FAIL(err, DTP_INTERNAL,
                            "program: value %d '%s' outlives its section, but lies at %lld, where "
                            "other chunks write",
                            v, value->name, (long long)value->offset);
        }
    }
    return DTP_OK;
}

dtp_status dtp_programs_check_shared(const dtp_program *const *programs, int32_t n,
                                     int32_t n_stages, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = DTP_MEMORY(err, arena);
    for (int32_t c = 0; c < n && n > n_stages && s == DTP_OK; c++) {
        const dtp_program *p = programs[c];
        const dtp_program *before = c >= n_stages ? programs[c - n_stages] : NULL;
        int64_t stash = 0;
        bool agrees = dtp_mul_i64(p->slots, p->slot_bytes, &stash) && p->own_at >= 0 &&
                      p->own_bytes <= p->slots_at - p->own_at && p->slots_at <= p->rest_at - stash;
        if (before != NULL) {
            agrees = agrees && p->slots == before->slots && p->slots_at == before->slots_at &&
                     p->slot_bytes == before->slot_bytes && p->rest_at == before->rest_at &&
                     p->peak_bytes == before->peak_bytes &&
                     p->own_at >= before->own_at + before->own_bytes;
        }
        s = agrees ? check_values(p, arena, err)
                   : DTP_FAIL(err, DTP_INTERNAL, "program: it does not agree on the arena");
        s = dtp_err_prefixed(s, err, "chunk %d", c);
    }
    dtp_arena_destroy(arena);
    return s;
}
