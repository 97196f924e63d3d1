/* Casts stand beside the collective whose result they read, or whose operand they write, so that
 * they belong to its unit and move with it (spmd/lower/overlap.c). A gradient is reduced where it
 * is made, but its cast comes behind what else its node leads to.
 *
 * A cast passes no instruction that touches what it writes, or writes what it reads. What it writes
 * (or reads) is needed for longer, as far as the program needs no more bytes at its peak, and what
 * it reads (or writes) for less long, but at the peak: any program needs so much, the planner
 * proves.
 *
 * There are two sweeps: the first only moves casts up, behind their collectives, the second only
 * down, before them. So the places before a sweep say enough.
 */
#include "spmd/lower/passes/passes.h"
#include "spmd/program/needed.h"

typedef struct sweep {
    dtp_program *p;
    bool up;
    int32_t n_units;
    dtp_comm_unit *units;
    int32_t *unit_of; /* by value: the first unit that it comes out of, or goes into; -1 = none */
    int32_t *place; /* by instruction: 3k + 1 is that of k itself, 3k before it, 3k + 2 behind it */
    dtp_needed needed;
} sweep;

static void find_ends(sweep *s)
{
    for (int32_t v = 0; v < s->p->n_values; v++) {
        s->unit_of[v] = -1;
    }
    for (int32_t u = s->n_units - 1; u >= 0; u--) {
        const dtp_comm_unit *unit = &s->units[u];
        const int32_t first = s->up ? unit->start : unit->head;
        for (int32_t i = first; i <= (s->up ? unit->tail : unit->start); i++) {
            const dtp_instr *instr = &s->p->instrs[i];
            for (int32_t k = 0; k < (s->up ? instr->n_out : instr->n_in); k++) {
                s->unit_of[(s->up ? instr->out : instr->in)[k]] = u;
            }
        }
    }
}

/* Whether a cast may pass an instruction. */
static bool passes(const sweep *s, const dtp_instr *cast, const dtp_instr *other)
{
    const dtp_value_id *roots = s->needed.roots;
    const dtp_value_id in = roots[cast->in[0]], out = roots[cast->out[0]];
    bool free = other->phase == cast->phase && /* and so in the same part of a step */
                dtp_instr_section(s->p, other) == dtp_instr_section(s->p, cast);
    for (int32_t k = 0; k < other->n_in; k++) {
        free = free && roots[other->in[k]] != out;
    }
    for (int32_t k = 0; k < other->n_out; k++) {
        free = free && roots[other->out[k]] != out && roots[other->out[k]] != in;
    }
    return free;
}

/* Whether fewer bytes are needed at the peak when cast i moves past it. */
static bool eases_peak(const sweep *s, int32_t i)
{
    const dtp_instr *cast = &s->p->instrs[i];
    const dtp_value_id in = s->needed.roots[cast->in[0]], out = s->needed.roots[cast->out[0]];
    const dtp_need *a = &s->needed.needs[in], *b = &s->needed.needs[out];
    const int32_t peak = s->needed.peak_at;
    const int64_t less = s->up ? (a->last == i ? a->bytes : 0) : (b->first == i ? b->bytes : 0);
    const int64_t more = s->up ? (b->first > peak ? b->bytes : 0) : (a->last < peak ? a->bytes : 0);
    return in != out && less > more;
}

/* Where cast i goes. */
static int32_t place_of(sweep *s, int32_t i)
{
    const dtp_instr *cast = &s->p->instrs[i];
    const int32_t u = s->unit_of[(s->up ? cast->in : cast->out)[0]];
    if (u < 0 || (s->up ? s->units[u].tail > i : s->units[u].head < i)) {
        return 3 * i + 1;
    }
    const int32_t end = s->up ? s->units[u].tail : s->units[u].head;
    const int32_t first = s->up ? end + 1 : i + 1, last = s->up ? i - 1 : end - 1;
    bool free = first <= last && dtp_instrs_alike(s->p, &s->p->instrs[end], cast);
    for (int32_t k = first; k <= last && free; k++) {
        free = passes(s, cast, &s->p->instrs[k]);
    }
    free = free && !(first <= s->needed.peak_at && s->needed.peak_at <= last && eases_peak(s, i));
    const dtp_value_id longer = s->needed.roots[(s->up ? cast->out : cast->in)[0]];
    free = free && dtp_needed_hold(&s->needed, 1, &longer, s->up ? end : i, s->up ? i : end);
    return !free ? 3 * i + 1 : s->up ? 3 * end + 2 : 3 * end;
}

/* The instructions by their places, those of one place in the order that they have. */
static dtp_status write_list(const sweep *s, dtp_arena *scratch, dtp_err *err)
{
    const int32_t n = s->p->n_instrs;
    int32_t *at;
    dtp_instr *list;
    DTP_TRY(DTP_NEW(scratch, at, 3 * (size_t)n + 1, err));
    DTP_TRY(DTP_NEW(scratch, list, n, err));
    for (int32_t i = 0; i < n; i++) {
        at[s->place[i] + 1]++;
    }
    for (int32_t k = 0; k < 3 * n; k++) {
        at[k + 1] += at[k];
    }
    for (int32_t i = 0; i < n; i++) {
        list[at[s->place[i]]++] = s->p->instrs[i];
    }
    for (int32_t i = 0; i < n; i++) {
        s->p->instrs[i] = list[i];
    }
    return DTP_OK;
}

static dtp_status run_sweep(dtp_program *p, bool up, dtp_arena *scratch, dtp_err *err)
{
    const int32_t n = p->n_instrs;
    sweep s = {.p = p, .up = up};
    DTP_TRY(DTP_NEW(scratch, s.units, n, err));
    DTP_TRY(DTP_NEW(scratch, s.place, n, err));
    DTP_TRY(DTP_NEW(scratch, s.unit_of, p->n_values, err));
    s.n_units = dtp_comm_units_find(p, p->instrs, n, false, s.units, s.place);
    DTP_TRY(dtp_needed_find(p, p->instrs, n, scratch, &s.needed, err));
    find_ends(&s);
    for (int32_t i = 0; i < n; i++) {
        s.place[i] = dtp_instr_is_cast(&p->instrs[i]) ? place_of(&s, i) : 3 * i + 1;
    }
    return write_list(&s, scratch, err);
}

dtp_status dtp_program__place_casts(dtp_program *p, dtp_arena *scratch, dtp_err *err)
{
    DTP_TRY(run_sweep(p, true, scratch, err));
    return run_sweep(p, false, scratch, err);
}
