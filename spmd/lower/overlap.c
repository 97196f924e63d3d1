/* The order of a program with overlap.
 *
 * A unit is a collective with the copies that pack its operand and unpack its result: its head
 * (pack, START) moves up and its tail (WAIT, unpack) moves down among the other instructions, the
 * serial ones, which keep their order. Places are gaps: gap g lies before serial instruction g. In
 * a gap tails come before heads, each in serial order.
 *
 * A head may move up to behind the last kernel or copy that writes what it reads, or touches what
 * it writes; a tail may move down to before the first one that touches its results or writes its
 * operands. Both in terms of buffers (roots), so that values in one buffer stay in order.
 * A collective that only reads the result of another does not wait for it: the communication queue
 * runs in the order of the STARTs, which is kept then. The body of a microbatch is not left.
 *
 * With depth K a head does not move above the head of the K-th unit before it, nor a tail below
 * the head of the K-th unit after it: at most 2K + 1 collectives are under way. Then, in serial
 * order, a tail and a head give way until the bytes needed at every serial instruction are within
 * the limit: first the tail, which holds operands, then the head, which takes results early.
 *
 * Time O(operands + sum of the distances moved).
 */
#include "spmd/lower/overlap.h"

#include "spmd/lower/memplan.h"
#include "spmd/program/program_internal.h"

/* Serial instructions head..tail of a collective, and the gaps that its parts go to. */
typedef struct unit {
    int32_t head, start, tail;
    int32_t from, to;
} unit;

/* Gaps before which (or behind which) accesses to a buffer lie: of kernels and copies, of STARTs,
 * and of WAITs, which stand for the end of what STARTs do. */
typedef struct accesses {
    int32_t read, write;
    int32_t start_read, start_write;
    int32_t wait_read, wait_write;
} accesses;

/* When a buffer is needed in the serial order. */
typedef struct span {
    int32_t first, last; /* last < first: never */
    int64_t bytes;
} span;

typedef struct ordering {
    const dtp_program *p;
    const dtp_overlap *overlap;
    int32_t n, body;
    dtp_instr *serial;
    int32_t n_units;
    unit *units;
    int32_t *unit_of;    /* by serial instruction; -1 = none */
    dtp_value_id *roots; /* by value */
    accesses *at;        /* by root */
    span *spans;         /* by root */
    int64_t *needed;     /* bytes, by serial instruction */
    int64_t limit;       /* of them; INT64_MAX = none */
    dtp_value_id *held;  /* buffers of one unit */
} ordering;

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t most(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* ---- units --------------------------------------------------------------------------------------
 */

/* Whether the copy is of this kind and lies between the staging buffer and a tensor. */
static bool copies(const ordering *o, int32_t i, dtp_copy_kind kind, dtp_value_id staging)
{
    if (i < 0 || i >= o->n || o->serial[i].kind != DTP_INSTR_COPY || o->unit_of[i] >= 0) {
        return false;
    }
    const dtp_instr *copy = &o->serial[i];
    return copy->move.kind == kind && (kind == DTP_COPY_PACK ? copy->out : copy->in)[0] == staging;
}

static void find_units(ordering *o)
{
    for (int32_t i = 0; i < o->n; i++) {
        const dtp_instr *instr = &o->serial[i];
        if (instr->kind != DTP_INSTR_START) {
            continue;
        }
        const bool packs = instr->n_in == 1 && copies(o, i - 1, DTP_COPY_PACK, instr->in[0]);
        const bool unpacks = instr->n_out == 1 && copies(o, i + 1, DTP_COPY_UNPACK, instr->out[0]);
        unit *u = &o->units[o->n_units];
        *u = (unit){.head = packs ? i - 1 : i, .start = i, .tail = unpacks ? i + 1 : i};
        for (int32_t k = u->head; k <= u->tail; k++) {
            o->unit_of[k] = o->n_units;
        }
        o->n_units++;
    }
}

/* ---- limits by dependence -----------------------------------------------------------------------
 */

static const accesses *of(const ordering *o, dtp_value_id v)
{
    return &o->at[o->roots[v]];
}

/* Notes a place; `later`: of instructions behind, so the least counts, not the most. */
static void note(int32_t *field, int32_t place, bool later)
{
    *field = later ? least(*field, place) : most(*field, place);
}

static void note_compute(ordering *o, const dtp_instr *instr, int32_t place, bool later)
{
    for (int32_t k = 0; k < instr->n_in; k++) {
        note(&o->at[o->roots[instr->in[k]]].read, place, later);
    }
    for (int32_t k = 0; k < instr->n_out; k++) {
        note(&o->at[o->roots[instr->out[k]]].write, place, later);
    }
}

static void note_collective(ordering *o, const dtp_instr *start, int32_t from, int32_t to,
                            bool later)
{
    for (int32_t k = 0; k < start->n_in; k++) {
        accesses *a = &o->at[o->roots[start->in[k]]];
        note(&a->start_read, from, later);
        note(&a->wait_read, to, later);
    }
    for (int32_t k = 0; k < start->n_out; k++) {
        accesses *a = &o->at[o->roots[start->out[k]]];
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
static int32_t lowest(const ordering *o, const unit *u)
{
    const dtp_instr *start = &o->serial[u->start];
    int32_t gap = u->head < o->body ? o->body : o->n;
    for (int32_t k = 0; k < start->n_in; k++) {
        const accesses *a = of(o, start->in[k]);
        gap = least(gap, least(a->write, a->start_write));
    }
    for (int32_t k = 0; k < start->n_out; k++) {
        const accesses *a = of(o, start->out[k]);
        gap = least(gap, least(least(a->write, a->read), a->start_write));
        gap = least(gap, a->wait_read); /* no need to keep it longer than who reads it */
    }
    if (u->tail > u->start) {
        const dtp_instr *unpack = &o->serial[u->tail];
        const accesses *a = of(o, unpack->out[0]), *from = of(o, unpack->in[0]);
        gap = least(gap, least(least(a->write, a->read), least(a->start_read, a->start_write)));
        gap = least(gap, least(from->write, from->start_write));
    }
    return most(gap, u->tail + 1);
}

/* The highest gap behind everything that the head depends on, from what is noted before it. */
static int32_t highest(const ordering *o, const unit *u)
{
    const dtp_instr *start = &o->serial[u->start];
    int32_t gap = u->head < o->body ? 0 : o->body;
    for (int32_t k = 0; k < start->n_in && u->head == u->start; k++) {
        const accesses *a = of(o, start->in[k]);
        gap = most(gap, most(a->write, a->start_write));
    }
    for (int32_t k = 0; k < start->n_out; k++) {
        const accesses *a = of(o, start->out[k]);
        gap = most(gap, most(most(a->read, a->write), most(a->wait_read, a->wait_write)));
    }
    if (u->head < u->start) {
        const dtp_instr *pack = &o->serial[u->head];
        const accesses *a = of(o, pack->in[0]), *to = of(o, pack->out[0]);
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
        unit *u = &o->units[k];
        u->to = lowest(o, u);
        if (k + depth < o->n_units) {
            u->to = most(least(u->to, o->units[k + depth].head), u->tail + 1);
        }
        note_collective(o, &o->serial[u->start], u->head, u->to, true);
        for (int32_t j = u->tail; j >= u->head; j--) {
            if (j != u->start) {
                note_compute(o, &o->serial[j], j, true);
            }
        }
        i = u->head;
    }
}

/* ---- limits by memory ---------------------------------------------------------------------------
 */

static void touch(ordering *o, dtp_value_id v, int32_t i)
{
    span *s = &o->spans[o->roots[v]];
    s->first = least(s->first, i);
    s->last = most(s->last, i);
}

/* As liveness does for buffers, over serial instructions. */
static void find_spans(ordering *o)
{
    const dtp_program *p = o->p;
    for (int32_t v = 0; v < p->n_values; v++) {
        o->spans[v] = (span){INT32_MAX, -1, 0};
    }
    for (int32_t i = 0; i < o->n; i++) {
        const dtp_instr *instr = &o->serial[i];
        for (int32_t k = 0; k < instr->n_in; k++) {
            touch(o, instr->in[k], i);
        }
        for (int32_t k = 0; k < instr->n_out; k++) {
            touch(o, instr->out[k], i);
        }
        if (instr->workspace >= 0) {
            touch(o, instr->workspace, i);
        }
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        const dtp_value *value = &p->values[v];
        if (value->kind == DTP_VALUE_RESIDENT || value->kind == DTP_VALUE_INPUT) {
            touch(o, v, 0);
        }
        if (value->kind == DTP_VALUE_RESIDENT || value->keep) {
            touch(o, v, most(o->n - 1, 0));
        }
    }
    int64_t peak = 0, now = 0;
    for (int32_t v = 0; v < p->n_values; v++) {
        span *s = &o->spans[v];
        if (s->last >= s->first && !p->values[v].external) {
            s->bytes = dtp_program__aligned(p->values[v].bytes);
            o->needed[s->first] += s->bytes;
            o->needed[s->last + 1] -= s->bytes;
        }
    }
    for (int32_t i = 0; i <= o->n; i++) {
        now += o->needed[i];
        o->needed[i] = now;
        peak = now > peak ? now : peak;
    }
    o->limit = o->overlap->memory_bytes <= 0     ? INT64_MAX
               : o->overlap->memory_bytes > peak ? o->overlap->memory_bytes
                                                 : peak;
}

static int32_t hold(const ordering *o, int32_t n, dtp_value_id v)
{
    int32_t j = 0;
    while (j < n && o->held[j] != o->roots[v]) {
        j++;
    }
    o->held[j] = o->roots[v];
    return most(n, j + 1);
}

/* Lists in o->held the buffers that the tail of a unit holds or its head takes; how many. */
static int32_t find_held(const ordering *o, const unit *u, bool tail)
{
    const dtp_instr *start = &o->serial[u->start];
    int32_t n = 0;
    /* An operand that is not packed is there before the head anyway. */
    for (int32_t k = 0; k < start->n_in && (tail || u->head < u->start); k++) {
        n = hold(o, n, start->in[k]);
    }
    for (int32_t k = 0; k < start->n_out; k++) {
        n = hold(o, n, start->out[k]);
    }
    return tail && u->tail > u->start ? hold(o, n, o->serial[u->tail].out[0]) : n;
}

/* Moves the WAIT (or START) of a unit towards its place, a serial instruction at a time, as long as
 * memory allows. */
static void give_way(ordering *o, unit *u, bool tail)
{
    const int32_t n = find_held(o, u, tail);
    const int32_t step = tail ? 1 : -1;
    int32_t gap = tail ? u->start + 1 : u->start;
    const int32_t goal = tail ? u->to : u->from;
    for (; gap != goal; gap += step) {
        const int32_t i = tail ? gap : gap - 1; /* passed by the next step */
        int64_t more = 0;
        for (int32_t k = 0; k < n; k++) {
            const span *s = &o->spans[o->held[k]];
            more += (tail ? s->last < i : s->first > i) ? s->bytes : 0;
        }
        if (more > o->limit - o->needed[i]) {
            break;
        }
        o->needed[i] += more;
        for (int32_t k = 0; k < n; k++) {
            touch(o, o->held[k], i);
        }
    }
    gap = tail ? most(gap, u->tail + 1) : least(gap, u->head);
    if (tail && gap < o->n && o->unit_of[gap] >= 0 && o->units[o->unit_of[gap]].start == gap) {
        gap = o->units[o->unit_of[gap]].head; /* its START follows its pack at once */
    }
    *(tail ? &u->to : &u->from) = gap;
}

/* ---- the order ----------------------------------------------------------------------------------
 */

static void find_places(ordering *o)
{
    const int32_t depth = o->overlap->depth;
    find_tails(o);
    find_spans(o);
    clear_accesses(o, 0);
    for (int32_t i = 0; i < o->n; i++) {
        const int32_t k = o->unit_of[i];
        if (k < 0) {
            note_compute(o, &o->serial[i], i + 1, false);
            continue;
        }
        unit *u = &o->units[k];
        give_way(o, u, true);
        u->from = highest(o, u);
        if (k >= depth) {
            u->from = most(u->from, o->units[k - depth].head);
        }
        give_way(o, u, false);
        note_collective(o, &o->serial[u->start], u->from, u->to, false);
        for (int32_t j = u->head; j <= u->tail; j++) {
            if (j != u->start) {
                note_compute(o, &o->serial[j], j < u->start ? u->from : u->to, false);
            }
        }
        i = u->tail;
    }
}

/* Units by the gap of their head or tail: those of gap g are list[first[g]..first[g + 1]). */
static dtp_status sort_units(const ordering *o, bool tail, dtp_arena *arena, int32_t **first,
                             int32_t **list, dtp_err *err)
{
    int32_t *start, *items;
    DTP_TRY(DTP_NEW(arena, start, (size_t)o->n + 3, err));
    DTP_TRY(DTP_NEW(arena, items, (size_t)o->n_units + 1, err));
    for (int32_t k = 0; k < o->n_units; k++) {
        start[(tail ? o->units[k].to : o->units[k].from) + 2]++;
    }
    for (int32_t g = 0; g <= o->n; g++) {
        start[g + 2] += start[g + 1];
    }
    for (int32_t k = 0; k < o->n_units; k++) {
        items[start[(tail ? o->units[k].to : o->units[k].from) + 1]++] = k;
    }
    *first = start;
    *list = items;
    return DTP_OK;
}

/* Whether a result of the START lies in the buffer of its operand. */
static bool in_place(const ordering *o, const dtp_instr *start, dtp_value_id operand)
{
    bool found = false;
    for (int32_t k = 0; k < start->n_out; k++) {
        found = found || o->roots[start->out[k]] == o->roots[operand];
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
    instrs[at].coll = s->coll;
    instrs[at].n_in = n;
    instrs[at].in = ids;
    instrs[at].pair = start;
    instrs[start].pair = at;
    return DTP_OK;
}

static dtp_status write_order(const ordering *o, dtp_arena *arena, dtp_instr **out, int32_t *n_out,
                              dtp_err *err)
{
    int32_t *heads, *tails, *by_head, *by_tail, *place, n = 0;
    dtp_instr *instrs;
    DTP_TRY(sort_units(o, false, arena, &heads, &by_head, err));
    DTP_TRY(sort_units(o, true, arena, &tails, &by_tail, err));
    DTP_TRY(DTP_NEW(arena, place, (size_t)o->n_units + 1, err));
    DTP_TRY(DTP_NEW(arena, instrs, (size_t)o->n + (size_t)o->n_units + 1, err));
    for (int32_t g = 0; g <= o->n; g++) {
        for (int32_t k = tails[g]; k < tails[g + 1]; k++) {
            const unit *u = &o->units[by_tail[k]];
            DTP_TRY(add_wait(o, instrs, place[by_tail[k]], n++, arena, err));
            if (u->tail > u->start) {
                instrs[n++] = o->serial[u->tail];
            }
        }
        for (int32_t k = heads[g]; k < heads[g + 1]; k++) {
            const unit *u = &o->units[by_head[k]];
            if (u->head < u->start) {
                instrs[n++] = o->serial[u->head];
            }
            place[by_head[k]] = n;
            instrs[n++] = o->serial[u->start];
        }
        if (g < o->n && o->unit_of[g] < 0) {
            instrs[n++] = o->serial[g];
        }
    }
    *out = instrs;
    *n_out = n;
    return DTP_OK;
}

dtp_status dtp_overlap_order(const dtp_program *p, const dtp_overlap *overlap, dtp_arena *arena,
                             dtp_instr **instrs, int32_t *n, dtp_err *err)
{
    const dtp_instr *from = p->serial != NULL ? p->serial : p->instrs;
    const int32_t n_from = p->serial != NULL ? p->n_serial : p->n_instrs;
    const size_t n_values = (size_t)p->n_values, all = (size_t)n_from;
    ordering o = {.p = p, .overlap = overlap};
    int32_t operands = 0;
    DTP_TRY(DTP_NEW(arena, o.serial, all, err));
    DTP_TRY(DTP_NEW(arena, o.units, all, err));
    DTP_TRY(DTP_NEW(arena, o.unit_of, all, err));
    DTP_TRY(DTP_NEW(arena, o.needed, all + 2, err));
    DTP_TRY(DTP_NEW(arena, o.roots, n_values, err));
    DTP_TRY(DTP_NEW(arena, o.at, n_values, err));
    DTP_TRY(DTP_NEW(arena, o.spans, n_values, err));
    for (int32_t i = 0; i < n_from; i++) {
        if (from[i].kind != DTP_INSTR_WAIT) {
            o.unit_of[o.n] = -1;
            o.serial[o.n++] = from[i];
            operands = most(operands, from[i].n_in + from[i].n_out);
        }
    }
    o.body = o.n;
    while (dtp_program_microbatches(p) > 1 && o.body > 0 &&
           o.serial[o.body - 1].phase == DTP_UPDATE) {
        o.body--;
    }
    DTP_TRY(DTP_NEW(arena, o.held, (size_t)operands + 2, err));
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        o.roots[v] = dtp_value_root(p, v);
    }
    find_units(&o);
    find_places(&o);
    return write_order(&o, arena, instrs, n, err);
}

dtp_status dtp_program_overlap(dtp_program *p, const dtp_overlap *overlap, bool unplaced,
                               dtp_err *err)
{
    const dtp_overlap none = {0};
    if (p->serial == NULL) {
        dtp_instr *serial;
        int32_t n_serial;
        DTP_TRY(dtp_overlap_order(p, &none, p->arena, &serial, &n_serial, err));
        p->serial = serial;
        p->n_serial = n_serial;
    }
    dtp_instr *instrs = p->serial;
    int32_t n = p->n_serial;
    if (overlap->depth > 0) {
        DTP_TRY(dtp_overlap_order(p, overlap, p->arena, &instrs, &n, err));
    }
    p->instrs = instrs;
    p->n_instrs = p->cap_instrs = n;
    p->overlap = overlap->depth > 0 ? *overlap : none;
    dtp_program__liveness(p);
    return unplaced ? DTP_OK : dtp_program__plan_memory(p, err);
}
