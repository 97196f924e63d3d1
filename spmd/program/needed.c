/* The bytes that a list of instructions needs at each of them, while a pass moves instructions. */
#include "spmd/program/needed.h"

#include "spmd/program/program_internal.h"

/* ---- the bytes ---- */

static void touch(dtp_needed *needed, dtp_value_id v, int32_t i)
{
    dtp_need *need = &needed->needs[needed->roots[v]];
    need->first = i < need->first ? i : need->first;
    need->last = i > need->last ? i : need->last;
}

static void find_needs(dtp_needed *needed, const dtp_program *p, const dtp_instr *instrs, int32_t n)
{
    for (int32_t v = 0; v < p->n_values; v++) {
        needed->needs[v] = (dtp_need){INT32_MAX, -1, 0};
    }
    int32_t body = n; /* instructions of a microbatch */
    while (dtp_program_microbatches(p) > 1 && body > 0 && instrs[body - 1].phase == DTP_UPDATE) {
        body--;
    }
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < instrs[i].n_in; k++) {
            touch(needed, instrs[i].in[k], i);
            if (dtp_program__lasting(p, &instrs[i], k) >= 0) {
                touch(needed, instrs[i].in[k], 0);
                touch(needed, instrs[i].in[k], body - 1);
            }
        }
        for (int32_t k = 0; k < instrs[i].n_out; k++) {
            touch(needed, instrs[i].out[k], i);
        }
        if (instrs[i].workspace >= 0) {
            touch(needed, instrs[i].workspace, i);
        }
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        const dtp_value *value = &p->values[v];
        if (value->kind == DTP_VALUE_RESIDENT || value->kind == DTP_VALUE_INPUT) {
            touch(needed, v, 0);
        }
        if (value->sent > 0) {
            touch(needed, v, dtp_section_begin(p, instrs, n, value->sent) - 1);
        } else if (value->kind == DTP_VALUE_RESIDENT || value->keep) {
            touch(needed, v, n > 0 ? n - 1 : 0);
        }
    }
}

dtp_status dtp_needed_find(const dtp_program *p, const dtp_instr *instrs, int32_t n,
                           dtp_arena *arena, dtp_needed *out, dtp_err *err)
{
    int64_t now = 0;
    *out = (dtp_needed){0};
    DTP_TRY(DTP_NEW(arena, out->roots, p->n_values, err));
    DTP_TRY(DTP_NEW(arena, out->needs, p->n_values, err));
    DTP_TRY(DTP_NEW(arena, out->bytes, (size_t)n + 2, err));
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        out->roots[v] = dtp_value_root(p, v);
    }
    find_needs(out, p, instrs, n);
    for (int32_t v = 0; v < p->n_values; v++) {
        dtp_need *need = &out->needs[v];
        if (need->last >= need->first && !p->values[v].external) {
            need->bytes = dtp_program__aligned(p->values[v].bytes);
            out->bytes[need->first] += need->bytes;
            out->bytes[need->last + 1] -= need->bytes;
        }
    }
    for (int32_t i = 0; i <= n; i++) {
        now += out->bytes[i];
        out->bytes[i] = now;
        out->peak_at = now > out->peak ? i : out->peak_at;
        out->peak = now > out->peak ? now : out->peak;
    }
    out->limit = out->peak;
    return DTP_OK;
}

static int32_t add_buffer(dtp_value_id root, int32_t n, dtp_value_id *roots)
{
    int32_t k = 0;
    while (k < n && roots[k] != root) {
        k++;
    }
    roots[k] = root;
    return k < n ? n : n + 1;
}

int32_t dtp_needed_buffers(const dtp_needed *needed, const dtp_instr *instrs, int32_t first,
                           int32_t last, int32_t n, dtp_value_id *roots)
{
    for (int32_t i = first; i <= last; i++) {
        for (int32_t k = 0; k < instrs[i].n_in; k++) {
            n = add_buffer(needed->roots[instrs[i].in[k]], n, roots);
        }
        for (int32_t k = 0; k < instrs[i].n_out; k++) {
            n = add_buffer(needed->roots[instrs[i].out[k]], n, roots);
        }
    }
    return n;
}

bool dtp_needed_hold(dtp_needed *needed, int32_t n, const dtp_value_id *roots, int32_t first,
                     int32_t last)
{
    for (int pass = first == last; pass < 2; pass++) { /* looks, unless there is one; then holds */
        for (int32_t i = first; i <= last; i++) {
            int64_t more = 0;
            for (int32_t k = 0; k < n; k++) {
                const dtp_need *need = &needed->needs[roots[k]];
                more += i < need->first || i > need->last ? need->bytes : 0;
            }
            if (more > needed->limit - needed->bytes[i]) {
                return false;
            }
            needed->bytes[i] += pass == 1 ? more : 0;
        }
    }
    for (int32_t k = 0; k < n && first <= last; k++) {
        touch(needed, roots[k], first);
        touch(needed, roots[k], last);
    }
    return true;
}

/* The bytes of buffers that are not needed at instruction i yet, where instructions from `from` to
 * it are held; *change: the next one at which they may be others. */
static int64_t find_more(const dtp_needed *needed, int32_t n, const dtp_value_id *roots,
                         int32_t from, int32_t i, int32_t step, int32_t *change)
{
    int64_t more = 0;
    *change = step > 0 ? INT32_MAX : INT32_MIN;
    for (int32_t k = 0; k < n; k++) {
        const dtp_need *need = &needed->needs[roots[k]];
        const bool before = step > 0 ? i < need->first : i > need->last;
        const bool behind = step > 0 ? i > need->last : i < need->first;
        int32_t next = *change;
        if (before && i == from) {
            next = i + step; /* held there, it is needed up to where it is anyway */
        } else if (!behind) {
            next = step > 0 ? need->last + 1 : need->first - 1;
        }
        more += (before && i == from) || behind ? need->bytes : 0;
        *change = step > 0 ? (next < *change ? next : *change) : next > *change ? next : *change;
    }
    return more;
}

int32_t dtp_needed_hold_on(dtp_needed *needed, int32_t n, const dtp_value_id *roots, int32_t from,
                           int32_t end, int32_t step)
{
    int32_t i = from, change = from;
    int64_t more = 0;
    for (; i != end; i += step) {
        if (i == change) {
            more = find_more(needed, n, roots, from, i, step, &change);
        }
        if (more > needed->limit - needed->bytes[i]) {
            break;
        }
        needed->bytes[i] += more;
    }
    for (int32_t k = 0; k < n && i != from; k++) {
        touch(needed, roots[k], from);
        touch(needed, roots[k], i - step);
    }
    return i;
}

/* ---- units ---- */

bool dtp_instr_is_cast(const dtp_instr *instr)
{
    return instr->kind == DTP_INSTR_KERNEL && (instr->op->flags & DTP_OP_CAST) != 0 &&
           instr->n_in == 1 && instr->n_out == 1 && instr->workspace < 0;
}

/* Whether v is an operand (or result) of the START of a unit, or is packed into one (or unpacked
 * from one) by a copy of the unit. */
static bool at_end(const dtp_instr *instrs, const dtp_comm_unit *u, bool head, dtp_value_id v)
{
    const dtp_instr *start = &instrs[u->start];
    bool found = false;
    for (int32_t k = 0; k < (head ? start->n_in : start->n_out) && !found; k++) {
        found = (head ? start->in : start->out)[k] == v;
    }
    for (int32_t i = head ? u->head : u->start + 1; i < (head ? u->start : u->tail + 1); i++) {
        const bool copy = instrs[i].kind == DTP_INSTR_COPY;
        found = found || (copy && (head ? instrs[i].in : instrs[i].out)[0] == v);
    }
    return found;
}

/* Whether a copy or cast that stands beside a unit belongs to its head, or tail. */
static bool belongs(const dtp_program *p, const dtp_instr *instrs, const dtp_comm_unit *u,
                    bool head, bool casts, const dtp_instr *instr)
{
    const dtp_copy_kind kind = head ? DTP_COPY_PACK : DTP_COPY_UNPACK;
    const bool copy = instr->kind == DTP_INSTR_COPY && instr->move.kind == kind;
    return (copy || (casts && dtp_instr_is_cast(instr))) &&
           dtp_instrs_alike(p, instr, &instrs[u->start]) &&
           at_end(instrs, u, head, head ? instr->out[0] : instr->in[0]);
}

int32_t dtp_comm_units_find(const dtp_program *p, const dtp_instr *instrs, int32_t n, bool casts,
                            dtp_comm_unit *units, int32_t *unit_of)
{
    int32_t n_units = 0;
    for (int32_t i = 0; i < n; i++) {
        unit_of[i] = -1;
    }
    for (int32_t i = 0; i < n; i++) {
        if (instrs[i].kind != DTP_INSTR_START) {
            continue;
        }
        dtp_comm_unit u = {.head = i, .start = i, .tail = i};
        while (u.head > 0 && unit_of[u.head - 1] < 0 &&
               belongs(p, instrs, &u, true, casts, &instrs[u.head - 1])) {
            u.head--;
        }
        while (u.tail + 1 < n && belongs(p, instrs, &u, false, casts, &instrs[u.tail + 1])) {
            u.tail++;
        }
        for (int32_t k = u.head; k <= u.tail; k++) {
            unit_of[k] = n_units;
        }
        units[n_units++] = u;
    }
    return n_units;
}
