/* The order of a program with overlap.
 *
 * A unit is a collective with the copies that pack its operands and unpack its results and the
 * casts around them (of a parameter before it is gathered, of a gradient when it is reduced): its
 * head (casts, packs, START) moves up and its tail (WAIT, unpacks, casts) moves down among the
 * other instructions, the serial ones, which keep their order. Places are gaps: gap g lies before
 * serial instruction g. In a gap tails come before heads, each in serial order.
 *
 * A head may move up to behind the last kernel or copy that writes what it reads, or touches what
 * it writes; a tail may move down to before the first one that touches its results or writes its
 * operands. Both in terms of buffers (roots), so that values in one buffer stay in order.
 * A collective that only reads the result of another does not wait for it: the communication queue
 * runs in the order of the STARTs, which is kept then. A section (dtp_instr_section) is not left.
 *
 * With depth K a head does not move above the head of the K-th unit before it, nor a tail below
 * the head of the K-th unit after it: at most 2K + 1 collectives are under way. Then, in serial
 * order, a tail and a head give way until the bytes needed at every serial instruction are within
 * the limit: first the tail, which holds operands, then the head, which takes results early. A
 * cast that moves may need fewer bytes than before on its way. The instruction at which the serial
 * program needs most gets no fewer: so much any program needs, the planner proves.
 *
 * Time O(operands + sum of the distances moved).
 */
#include "spmd/lower/overlap.h"

#include <string.h>

#include "core/transform/stages.h"
#include "spmd/lower/memplan.h"
#include "spmd/lower/passes/passes.h"
#include "spmd/program/needed.h"
#include "spmd/program/program_internal.h"

/* The gaps that the head and the tail of a unit go to. */
typedef struct gaps {
    int32_t from, to;
} gaps;

/* Gaps before which (or behind which) accesses to a buffer lie: of kernels and copies, of STARTs,
 * and of WAITs, which stand for the end of what STARTs do. */
typedef struct accesses {
    int32_t read, write;
    int32_t start_read, start_write;
    int32_t wait_read, wait_write;
} accesses;

typedef struct dtp_overlap_orders {
    const dtp_program *p;
    const dtp_overlap *overlap;
    int32_t n;
    int32_t *section_of;  /* by serial instruction */
    int32_t *begin, *end; /* by section: its gaps */
    dtp_instr *serial;
    int32_t n_units;
    dtp_comm_unit *units;
    int32_t *unit_of;  /* by serial instruction; -1 = none */
    dtp_needed before; /* anything moves */
    /* Of one order. */
    gaps *gaps;   /* by unit */
    accesses *at; /* by root */
    dtp_needed needed;
    dtp_value_id *held;          /* buffers of one unit */
    int32_t *first[2], *list[2]; /* units by the gap of their head, of their tail */
    int32_t *place;              /* of a START, by unit */
} ordering;

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t most(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* ---- limits by dependence ---- */

static const accesses *of(const ordering *o, dtp_value_id v)
{
    return &o->at[o->needed.roots[v]];
}

/* Notes a place; `later`: of instructions behind, so the least counts, not the most. */
static void note(int32_t *field, int32_t place, bool later)
{
    *field = later ? least(*field, place) : most(*field, place);
}

static void note_compute(ordering *o, const dtp_instr *instr, int32_t place, bool later)
{
    for (int32_t k = 0; k < instr->n_in; k++) {
        note(&o->at[o->needed.roots[instr->in[k]]].read, place, later);
    }
    for (int32_t k = 0; k < instr->n_out; k++) {
        note(&o->at[o->needed.roots[instr->out[k]]].write, place, later);
    }
}

static void note_collective(ordering *o, const dtp_instr *start, int32_t from, int32_t to,
                            bool later)
{
    for (int32_t k = 0; k < start->n_in; k++) {
        accesses *a = &o->at[o->needed.roots[start->in[k]]];
        note(&a->start_read, from, later);
        note(&a->wait_read, to, later);
    }
    for (int32_t k = 0; k < start->n_out; k++) {
        accesses *a = &o->at[o->needed.roots[start->out[k]]];
        note(&a->start_write, from, later);
        note(&a->wait_write, to, later);
    }
}

static void clear_accesses(ordering *o, int32_t place)
{
    for (int32_t v = 0; v < o->p->n_values; v++) {
        o->at[v] = (accesses){place, place, place, place, place, place};
    }
}

/* The lowest gap before which nothing touches the results of the collective and nothing writes its
 * operands, from what is noted of the instructions behind it. */
static int32_t lowest(const ordering *o, const dtp_comm_unit *u)
{
    const dtp_instr *start = &o->serial[u->start];
    int32_t gap = o->end[o->section_of[u->head]];
    for (int32_t k = 0; k < start->n_in; k++) {
        const accesses *a = of(o, start->in[k]);
        gap = least(gap, least(a->write, a->start_write));
    }
    for (int32_t k = 0; k < start->n_out; k++) {
        const accesses *a = of(o, start->out[k]);
        gap = least(gap, least(least(a->write, a->read), a->start_write));
        gap = least(gap, a->wait_read); /* no need to keep it longer than its reader */
    }
    for (int32_t i = u->start + 1; i <= u->tail; i++) { /* what it unpacks and casts */
        const accesses *a = of(o, o->serial[i].out[0]), *from = of(o, o->serial[i].in[0]);
        gap = least(gap, least(least(a->write, a->read), least(a->start_read, a->start_write)));
        gap = least(gap, least(from->write, from->start_write));
    }
    return most(gap, u->tail + 1);
}

/* The highest gap behind everything that the head depends on, from what is noted before it. */
static int32_t highest(const ordering *o, const dtp_comm_unit *u)
{
    const dtp_instr *start = &o->serial[u->start];
    int32_t gap = o->begin[o->section_of[u->head]];
    for (int32_t k = 0; k < start->n_in; k++) {
        const accesses *a = of(o, start->in[k]);
        gap = most(gap, most(a->write, a->start_write));
    }
    for (int32_t k = 0; k < start->n_out; k++) {
        const accesses *a = of(o, start->out[k]);
        gap = most(gap, most(most(a->read, a->write), most(a->wait_read, a->wait_write)));
    }
    for (int32_t i = u->head; i < u->start; i++) { /* what it packs and casts */
        const accesses *a = of(o, o->serial[i].in[0]), *to = of(o, o->serial[i].out[0]);
        gap = most(gap, most(a->write, a->wait_write));
        gap = most(gap, most(to->read, to->write));
        gap = most(gap, most(to->wait_read, to->wait_write));
    }
    return least(gap, u->head);
}

/* Sets `to` of every unit as if there were no limit of memory. */
static void find_tails(ordering *o)
{
    const int32_t depth = o->overlap->depth;
    clear_accesses(o, INT32_MAX);
    for (int32_t i = o->n - 1; i >= 0; i--) {
        const int32_t k = o->unit_of[i];
        if (k < 0) {
            note_compute(o, &o->serial[i], i, true);
            continue;
        }
        const dtp_comm_unit *u = &o->units[k];
        int32_t to = lowest(o, u);
        if (k + depth < o->n_units) {
            to = most(least(to, o->units[k + depth].head), u->tail + 1);
        }
        o->gaps[k].to = to;
        note_collective(o, &o->serial[u->start], u->head, to, true);
        for (int32_t j = u->tail; j >= u->head; j--) {
            if (j != u->start) {
                note_compute(o, &o->serial[j], j < u->start ? u->head : u->start + 1, true);
            }
        }
        i = u->head;
    }
}

/* ---- limits by memory ---- */

static bool needs(const ordering *o, dtp_value_id root, int32_t i)
{
    return o->needed.needs[root].first <= i && i <= o->needed.needs[root].last;
}

/* Whether fewer bytes are needed at the peak when the tail (or head) of a unit, which touches the n
 * buffers that are held, moves past it: of the results of copies and casts that come later (or the
 * operands that they have read before), against what is held. */
static bool eases_peak(const ordering *o, const dtp_comm_unit *u, bool tail, int32_t n)
{
    const int32_t first = tail ? u->start + 1 : u->head, last = tail ? u->tail : u->start - 1;
    int64_t more = 0;
    for (int32_t k = 0; k < n; k++) {
        more += needs(o, o->held[k], o->needed.peak_at) ? 0 : o->needed.needs[o->held[k]].bytes;
    }
    for (int32_t i = first; i <= last; i++) {
        const dtp_value_id v = (tail ? o->serial[i].out : o->serial[i].in)[0];
        const dtp_need *need = &o->needed.needs[o->needed.roots[v]];
        const bool only = tail ? need->first >= u->start + 1 : need->last <= u->start - 1;
        more -= only && needs(o, o->needed.roots[v], o->needed.peak_at) ? need->bytes : 0;
    }
    return more < 0;
}

/* Moves the tail (or head) of a unit towards its place, a serial instruction at a time, as long as
 * memory allows. */
static void give_way(ordering *o, int32_t unit, bool tail)
{
    const dtp_comm_unit *u = &o->units[unit];
    const int32_t n = dtp_needed_buffers(&o->needed, o->serial, tail ? u->start : u->head,
                                         tail ? u->tail : u->start, 0, o->held);
    int32_t *place = tail ? &o->gaps[unit].to : &o->gaps[unit].from;
    const int32_t step = tail ? 1 : -1, peak = o->needed.peak_at;
    const int32_t end = tail ? *place : *place - 1; /* of the instructions that are passed */
    int32_t passed = tail ? u->start + 1 : u->start - 1;
    for (int32_t until = passed; passed == until && passed != end;) {
        const bool ahead = tail ? passed < peak && peak < end : passed > peak && peak > end;
        if (passed == peak && eases_peak(o, u, tail, n)) {
            break;
        }
        until = ahead ? peak : end;
        passed = dtp_needed_hold_on(&o->needed, n, o->held, passed, until, step);
    }
    int32_t gap = tail ? passed : passed + 1;
    gap = tail ? most(gap, u->tail + 1) : least(gap, u->head);
    /* Not between the copies of another unit, which stay together. */
    const dtp_comm_unit *in =
        gap < o->n && o->unit_of[gap] >= 0 ? &o->units[o->unit_of[gap]] : NULL;
    if (in != NULL && in != u && tail == (gap <= in->start)) {
        gap = tail ? in->head : in->tail + 1;
    }
    *place = gap;
}

/* ---- the order ---- */

static void find_places(ordering *o)
{
    const int32_t depth = o->overlap->depth;
    find_tails(o);
    clear_accesses(o, 0);
    for (int32_t i = 0; i < o->n; i++) {
        const int32_t k = o->unit_of[i];
        if (k < 0) {
            note_compute(o, &o->serial[i], i + 1, false);
            continue;
        }
        const dtp_comm_unit *u = &o->units[k];
        gaps *g = &o->gaps[k];
        give_way(o, k, true);
        g->from = highest(o, u);
        if (k >= depth) {
            g->from = most(g->from, o->units[k - depth].head);
        }
        give_way(o, k, false);
        note_collective(o, &o->serial[u->start], g->from, g->to, false);
        for (int32_t j = u->head; j <= u->tail; j++) {
            if (j != u->start) {
                note_compute(o, &o->serial[j], j < u->start ? g->from : g->to, false);
            }
        }
        i = u->tail;
    }
}

/* Units by the gap of their head or tail: those of gap g are list[first[g]..first[g + 1]). */
static void sort_units(const ordering *o, bool tail)
{
    int32_t *start = o->first[tail], *items = o->list[tail];
    memset(start, 0, ((size_t)o->n + 3) * sizeof *start);
    for (int32_t k = 0; k < o->n_units; k++) {
        start[(tail ? o->gaps[k].to : o->gaps[k].from) + 2]++;
    }
    for (int32_t g = 0; g <= o->n; g++) {
        start[g + 2] += start[g + 1];
    }
    for (int32_t k = 0; k < o->n_units; k++) {
        items[start[(tail ? o->gaps[k].to : o->gaps[k].from) + 1]++] = k;
    }
}

/* Whether a result of the START lies in the buffer of its operand. */
static bool in_place(const ordering *o, const dtp_instr *start, dtp_value_id operand)
{
    bool found = false;
    for (int32_t k = 0; k < start->n_out; k++) {
        found = found || o->needed.roots[start->out[k]] == o->needed.roots[operand];
    }
    return found;
}

/* The WAIT of a START; both know the other's place. */
static dtp_status add_wait(const ordering *o, dtp_instr *instrs, int32_t start, int32_t at,
                           dtp_arena *arena, dtp_err *err)
{
    const dtp_instr *s = &instrs[start];
    dtp_value_id *ids;
    int32_t n = 0;
    DTP_TRY(DTP_NEW(arena, ids, s->n_in + s->n_out, err));
    for (int32_t k = 0; k < s->n_in; k++) {
        if (!in_place(o, s, s->in[k])) {
            ids[n++] = s->in[k];
        }
    }
    for (int32_t k = 0; k < s->n_out; k++) {
        ids[n++] = s->out[k];
    }
    instrs[at] = dtp_program__instr_init(DTP_INSTR_WAIT, s->node, s->phase);
    instrs[at].once = s->once;
    instrs[at].coll = s->coll;
    instrs[at].n_in = n;
    instrs[at].in = ids;
    instrs[at].pair = start;
    instrs[start].pair = at;
    return DTP_OK;
}

static dtp_status write_order(const ordering *o, dtp_arena *arena, dtp_instr *instrs,
                              int32_t *n_out, dtp_err *err)
{
    const int32_t *heads = o->first[0], *tails = o->first[1];
    const int32_t *by_head = o->list[0], *by_tail = o->list[1];
    int32_t *place = o->place, n = 0;
    sort_units(o, false);
    sort_units(o, true);
    for (int32_t g = 0; g <= o->n; g++) {
        for (int32_t k = tails[g]; k < tails[g + 1]; k++) {
            const dtp_comm_unit *u = &o->units[by_tail[k]];
            DTP_TRY(add_wait(o, instrs, place[by_tail[k]], n++, arena, err));
            for (int32_t i = u->start + 1; i <= u->tail; i++) {
                instrs[n++] = o->serial[i];
            }
        }
        for (int32_t k = heads[g]; k < heads[g + 1]; k++) {
            const dtp_comm_unit *u = &o->units[by_head[k]];
            for (int32_t i = u->head; i <= u->start; i++) {
                place[by_head[k]] = n;
                instrs[n++] = o->serial[i];
            }
        }
        if (g < o->n && o->unit_of[g] < 0) {
            instrs[n++] = o->serial[g];
        }
    }
    *n_out = n;
    return DTP_OK;
}

/* Of a unit, plus one. */
static int32_t most_operands(const ordering *o)
{
    int32_t all = 1;
    for (int32_t k = 0; k < o->n_units; k++) {
        int32_t n = 1;
        for (int32_t i = o->units[k].head; i <= o->units[k].tail; i++) {
            n += o->serial[i].n_in + o->serial[i].n_out;
        }
        all = most(all, n);
    }
    return all;
}

dtp_status dtp_overlap_orders_create(const dtp_program *p, dtp_arena *arena,
                                     dtp_overlap_orders **out, dtp_err *err)
{
    const dtp_instr *from = p->serial != NULL ? p->serial : p->instrs;
    const int32_t n_from = p->serial != NULL ? p->n_serial : p->n_instrs;
    const size_t n_values = (size_t)p->n_values, all = (size_t)n_from;
    ordering *o;
    DTP_TRY(DTP_NEW(arena, o, 1, err));
    o->p = p;
    DTP_TRY(DTP_NEW(arena, o->serial, all, err));
    DTP_TRY(DTP_NEW(arena, o->units, all, err));
    DTP_TRY(DTP_NEW(arena, o->unit_of, all, err));
    DTP_TRY(DTP_NEW(arena, o->at, n_values, err));
    for (int32_t i = 0; i < n_from; i++) {
        if (from[i].kind != DTP_INSTR_WAIT) {
            o->serial[o->n++] = from[i];
        }
    }
    const int32_t n_sections =
        DTP_SECTION_UPDATE + (p->graph->stages != NULL ? p->graph->stages->n_parts : 1);
    DTP_TRY(DTP_NEW(arena, o->section_of, all, err));
    DTP_TRY(DTP_NEW(arena, o->begin, n_sections, err));
    DTP_TRY(DTP_NEW(arena, o->end, n_sections, err));
    for (int32_t i = 0; i < o->n; i++) {
        o->section_of[i] = dtp_instr_section(p, &o->serial[i]);
    }
    for (int32_t k = 0; k < n_sections; k++) {
        o->begin[k] = dtp_section_begin(p, o->serial, o->n, k);
        o->end[k] = dtp_section_begin(p, o->serial, o->n, k + 1);
    }
    o->n_units = dtp_comm_units_find(p, o->serial, o->n, true, o->units, o->unit_of);
    for (int i = 0; i < 2; i++) {
        DTP_TRY(DTP_NEW(arena, o->first[i], (size_t)o->n + 3, err));
        DTP_TRY(DTP_NEW(arena, o->list[i], (size_t)o->n_units + 1, err));
    }
    DTP_TRY(DTP_NEW(arena, o->gaps, (size_t)o->n_units + 1, err));
    DTP_TRY(DTP_NEW(arena, o->place, (size_t)o->n_units + 1, err));
    DTP_TRY(DTP_NEW(arena, o->held, most_operands(o), err));
    DTP_TRY(dtp_needed_find(p, o->serial, o->n, arena, &o->before, err));
    o->needed = o->before;
    DTP_TRY(DTP_NEW(arena, o->needed.needs, n_values, err));
    DTP_TRY(DTP_NEW(arena, o->needed.bytes, (size_t)o->n + 2, err));
    *out = o;
    return DTP_OK;
}

dtp_status dtp_overlap_order(dtp_overlap_orders *o, const dtp_overlap *overlap, dtp_arena *arena,
                             dtp_instr **instrs, int32_t *n, dtp_err *err)
{
    const dtp_needed *before = &o->before;
    const int64_t allowed = overlap->memory_bytes > 0 ? overlap->memory_bytes : INT64_MAX;
    const size_t room = (size_t)o->n + (size_t)o->n_units + 1;
    DTP_TRY(*instrs == NULL ? DTP_NEW(arena, *instrs, room, err) : DTP_OK);
    o->overlap = overlap;
    memcpy(o->needed.needs, before->needs, (size_t)o->p->n_values * sizeof *before->needs);
    memcpy(o->needed.bytes, before->bytes, ((size_t)o->n + 2) * sizeof *before->bytes);
    o->needed.limit = allowed > before->peak ? allowed : before->peak;
    find_places(o);
    return write_order(o, arena, *instrs, n, err);
}

/* The instructions in the order of `overlap`; what is only needed for it is in `scratch`. */
static dtp_status set_order(dtp_program *p, const dtp_overlap *overlap, dtp_arena *scratch,
                            dtp_err *err)
{
    const dtp_overlap none = {.bucket_bytes = overlap->bucket_bytes,
                              .once_bytes = overlap->once_bytes};
    dtp_overlap_orders *orders = NULL;
    if (p->serial == NULL || overlap->depth > 0) {
        DTP_TRY(dtp_overlap_orders_create(p, scratch, &orders, err));
    }
    if (p->serial == NULL) {
        DTP_TRY(dtp_overlap_order(orders, &none, p->arena, &p->serial, &p->n_serial, err));
    }
    dtp_instr *instrs = overlap->depth > 0 ? NULL : p->serial;
    int32_t n = p->n_serial;
    if (overlap->depth > 0) {
        DTP_TRY(dtp_overlap_order(orders, overlap, p->arena, &instrs, &n, err));
    }
    p->instrs = instrs;
    p->n_instrs = p->cap_instrs = n;
    p->overlap = overlap->depth > 0 ? *overlap : none;
    return p->joins ? dtp_program__join(p, scratch, err) : DTP_OK;
}

dtp_status dtp_program_overlap(dtp_program *p, const dtp_overlap *overlap, bool unplaced,
                               dtp_err *err)
{
    dtp_arena *scratch = dtp_arena_create();
    const dtp_status status = set_order(p, overlap, scratch, err);
    dtp_arena_destroy(scratch);
    DTP_TRY(status);
    dtp_program__liveness(p);
    return unplaced ? DTP_OK : dtp_program_place(p, 0, err);
}
