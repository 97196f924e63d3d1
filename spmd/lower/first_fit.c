/* Buffers lie sorted by offset in chunks, so that inserting one moves few others, and times are
 * compared a chunk at once. A chunk that ends below the offset in question, begins above what would
 * be the end of the buffer, or has nothing in the 64ths of the time that the buffer touches, says
 * nothing; what tells that lies apart from the chunk.
 *
 * What is needed for a long time stands in everybody's way, and mostly without gaps: of each 64th
 * the bytes are known that are free of buffers that are needed during all of it. A buffer lies in
 * one of these gaps of the fullest 64th that it touches; offsets between them are not looked at. */
#include "spmd/lower/first_fit.h"

#include <string.h>

#include "core/base/clones.h"

enum { CHUNK = 128, N_PARTS = 64, MAX_GAPS = 128 };

typedef struct chunk {
    int32_t n;
    int32_t first[CHUNK], last[CHUNK]; /* beyond n: no time */
    int64_t begin[CHUNK], end[CHUNK];  /* bytes; begin is sorted */
} chunk;

/* Of a chunk. */
typedef struct summary {
    int64_t begin, most; /* the least begin, the largest end */
    uint64_t parts;      /* of time, in which something of it is needed */
    chunk *of;
} summary;

/* Bytes begin..end - 1 are free. */
typedef struct gap {
    int64_t begin, end;
} gap;

/* Of a 64th of the time. With MAX_GAPS of them, what would make one more counts as free. */
typedef struct part {
    int32_t n;
    gap gaps[MAX_GAPS]; /* by offset, the last one without end */
} part;

struct dtp_first_fit {
    part *by_part;          /* NULL: of so few buffers that one chunk has them all */
    int64_t taken[N_PARTS]; /* bytes between the gaps */
    int32_t n_chunks;
    int64_t times;
    chunk *chunks;   /* in no order */
    summary *sorted; /* by offset */
};

dtp_status dtp_first_fit_create(dtp_arena *arena, int32_t n, int32_t last, dtp_first_fit **out,
                                dtp_err *err)
{
    /* A full chunk is split, so all but one are at least half full. */
    const size_t most = 2 * (size_t)n / CHUNK + 2;
    DTP_TRY(DTP_NEW(arena, *out, 1, err));
    DTP_TRY(DTP_NEW(arena, (*out)->chunks, most, err));
    DTP_TRY(DTP_NEW(arena, (*out)->sorted, most, err));
    DTP_TRY(n > CHUNK ? DTP_NEW(arena, (*out)->by_part, N_PARTS, err) : DTP_OK);
    (*out)->times = last > 0 ? (int64_t)last + 1 : 1;
    dtp_first_fit_clear(*out);
    return DTP_OK;
}

static int32_t part_of(const dtp_first_fit *f, int32_t time)
{
    const int64_t k = time > 0 ? (int64_t)time * N_PARTS / f->times : 0;
    return (int32_t)(k < N_PARTS - 1 ? k : N_PARTS - 1);
}

static uint64_t mask_of(int32_t from, int32_t to)
{
    return (UINT64_MAX >> (N_PARTS - 1 - to)) & (UINT64_MAX << from);
}

/* Buffers from `from` on leave the chunk of a summary, which is made anew. */
static void forget_from(const dtp_first_fit *f, summary *s, int32_t from)
{
    chunk *c = s->of;
    for (int32_t i = from; i < CHUNK; i++) {
        c->first[i] = INT32_MAX;
        c->last[i] = INT32_MIN;
    }
    c->n = from;
    s->begin = from > 0 ? c->begin[0] : 0;
    s->most = 0;
    s->parts = 0;
    for (int32_t i = 0; i < from; i++) {
        s->most = c->end[i] > s->most ? c->end[i] : s->most;
        s->parts |= mask_of(part_of(f, c->first[i]), part_of(f, c->last[i]));
    }
}

void dtp_first_fit_clear(dtp_first_fit *f)
{
    f->n_chunks = 1;
    f->sorted[0].of = &f->chunks[0];
    forget_from(f, &f->sorted[0], 0);
    for (int32_t k = 0; k < N_PARTS && f->by_part != NULL; k++) {
        f->by_part[k].n = 1;
        f->by_part[k].gaps[0] = (gap){0, INT64_MAX};
        f->taken[k] = 0;
    }
}

/* ---- gaps ---- */

/* The gap of a part that an offset lies in, or else the next one. */
static int32_t gap_at(const part *x, int64_t offset)
{
    int32_t low = 0, high = x->n - 1;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        low = x->gaps[middle].end > offset ? low : middle + 1;
        high = x->gaps[middle].end > offset ? middle : high;
    }
    return low;
}

/* The lowest offset, from one on, at which bytes are free in a part; of none (NULL) that one. */
static int64_t lift(const part *x, int64_t bytes, int64_t offset)
{
    if (x == NULL) {
        return offset;
    }
    int32_t k = gap_at(x, offset);
    offset = x->gaps[k].begin > offset ? x->gaps[k].begin : offset;
    while (x->gaps[k].end - offset < bytes) {
        offset = x->gaps[++k].begin;
    }
    return offset;
}

/* Takes bytes that lie in one gap of a part. */
static void take(dtp_first_fit *f, int32_t p, int64_t begin, int64_t end)
{
    part *x = &f->by_part[p];
    const int32_t k = gap_at(x, begin);
    const gap below = {x->gaps[k].begin, begin}, above = {end, x->gaps[k].end};
    const int32_t n_below = below.begin < below.end ? 1 : 0;
    const int32_t n = n_below + (above.begin < above.end ? 1 : 0);
    if (x->n + n - 1 > MAX_GAPS) {
        return;
    }
    memmove(&x->gaps[k + n], &x->gaps[k + 1], (size_t)(x->n - k - 1) * sizeof *x->gaps);
    if (n_below > 0) {
        x->gaps[k] = below;
    }
    if (n > n_below) {
        x->gaps[k + n_below] = above;
    }
    x->n += n - 1;
    f->taken[p] += end - begin;
}

/* The fullest one of some parts; NULL: none is kept. */
static const part *fullest(const dtp_first_fit *f, int32_t from, int32_t to)
{
    int32_t at = to;
    for (int32_t k = from; k < to; k++) {
        at = f->taken[k] > f->taken[at] ? k : at;
    }
    return f->by_part != NULL ? &f->by_part[at] : NULL;
}

/* ---- where a buffer goes ---- */

/* Eight bytes of 0 or 1 as bits, the first the lowest: the product moves byte k, bit 8 k of a word,
 * to bit 56 + k. */
static uint64_t bits_of(const uint8_t *b)
{
    const uint64_t low = (uint64_t)b[0] | (uint64_t)b[1] << 8 | (uint64_t)b[2] << 16 |
                         (uint64_t)b[3] << 24,
                   high = (uint64_t)b[4] << 32 | (uint64_t)b[5] << 40 | (uint64_t)b[6] << 48 |
                          (uint64_t)b[7] << 56;
    return (low | high) * 0x0102040810204080ULL >> 56;
}

/* Lifts *at above what is in the way; true when a gap was found. */
DTP_CPU_CLONES static bool pass_chunk(const chunk *c, int64_t bytes, int32_t first, int32_t last,
                                      int64_t *at)
{
    uint8_t hit[CHUNK];
    int64_t low = *at;
    /* hit[i]: needed at a common time. Fixed length, so that it is vectorised. */
    for (int32_t i = 0; i < CHUNK; i++) {
        hit[i] = (uint8_t)((c->last[i] >= first) & (c->first[i] <= last));
    }
    for (int32_t i = 0; i < c->n; i += 64) {
        uint64_t hits = 0;
        for (int32_t k = 0; k < 64; k += 8) {
            hits |= bits_of(hit + i + k) << k;
        }
        for (; hits != 0; hits &= hits - 1) {
            const int32_t k = i + __builtin_ctzll(hits);
            if (c->begin[k] >= low + bytes) {
                *at = low;
                return true;
            }
            low = c->end[k] > low ? c->end[k] : low;
        }
    }
    *at = low;
    return false;
}

/* ---- inserting ---- */

/* Of the last chunk that begins at or below an offset, with room. */
static summary *summary_for(dtp_first_fit *f, int64_t offset)
{
    int32_t at = 0;
    while (at + 1 < f->n_chunks && f->sorted[at + 1].begin <= offset) {
        at++;
    }
    if (f->sorted[at].of->n == CHUNK) {
        /* The upper half becomes a chunk of its own, behind it. */
        const int32_t half = CHUNK / 2;
        const chunk *low = f->sorted[at].of;
        chunk *to = &f->chunks[f->n_chunks];
        memmove(&f->sorted[at + 2], &f->sorted[at + 1],
                (size_t)(f->n_chunks - at - 1) * sizeof *f->sorted);
        f->sorted[at + 1].of = to;
        memcpy(to->first, low->first + half, (size_t)half * sizeof *to->first);
        memcpy(to->last, low->last + half, (size_t)half * sizeof *to->last);
        memcpy(to->begin, low->begin + half, (size_t)half * sizeof *to->begin);
        memcpy(to->end, low->end + half, (size_t)half * sizeof *to->end);
        forget_from(f, &f->sorted[at + 1], half);
        forget_from(f, &f->sorted[at], half);
        f->n_chunks++;
        at += f->sorted[at + 1].begin <= offset ? 1 : 0;
    }
    return &f->sorted[at];
}

static int64_t find_offset(const dtp_first_fit *f, int64_t bytes, int32_t first, int32_t last)
{
    const int32_t from = part_of(f, first), to = part_of(f, last);
    const uint64_t parts = mask_of(from, to);
    const part *full = fullest(f, from, to);
    int64_t offset = lift(full, bytes, 0);
    for (int32_t i = 0; i < f->n_chunks; i++) {
        const summary *s = &f->sorted[i];
        if (s->parts != 0 && s->begin >= offset + bytes) {
            break;
        }
        if (s->most > offset && (s->parts & parts) != 0) {
            if (pass_chunk(s->of, bytes, first, last, &offset)) {
                break;
            }
            offset = lift(full, bytes, offset);
        }
    }
    return offset;
}

int64_t dtp_first_fit_place(dtp_first_fit *f, int64_t bytes, int32_t first, int32_t last)
{
    const int64_t offset = find_offset(f, bytes, first, last);
    const int32_t from = part_of(f, first), to = part_of(f, last);
    summary *s = summary_for(f, offset);
    chunk *c = s->of;
    int32_t i = c->n;
    for (; i > 0 && c->begin[i - 1] > offset; i--) {
        c->first[i] = c->first[i - 1];
        c->last[i] = c->last[i - 1];
        c->begin[i] = c->begin[i - 1];
        c->end[i] = c->end[i - 1];
    }
    c->first[i] = first;
    c->last[i] = last;
    c->begin[i] = offset;
    c->end[i] = offset + bytes;
    c->n++;
    s->begin = c->begin[0];
    s->most = c->end[i] > s->most ? c->end[i] : s->most;
    s->parts |= mask_of(from, to);
    for (int32_t k = from + 1; k < to && f->by_part != NULL; k++) {
        take(f, k, offset, offset + bytes);
    }
    return offset;
}
