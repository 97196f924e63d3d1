/* Buffers lie sorted by offset in chunks, so that inserting one moves few others, and times are
 * compared a chunk at once. A chunk that ends below the offset in question, or begins above what
 * would be the end of the buffer, says nothing. */
#include "spmd/lower/first_fit.h"

#include <string.h>

enum { CHUNK = 128 };

typedef struct chunk {
    int32_t n;
    int32_t first[CHUNK], last[CHUNK]; /* beyond n: no time */
    int64_t begin[CHUNK], end[CHUNK];  /* bytes; begin is sorted */
    int64_t most;                      /* the largest end */
} chunk;

struct dtp_first_fit {
    int32_t n_chunks;
    chunk *chunks;  /* in no order */
    int32_t *order; /* of chunks, by offset */
};

dtp_status dtp_first_fit_create(dtp_arena *arena, int32_t n, dtp_first_fit **out, dtp_err *err)
{
    /* A full chunk is split, so all but one are at least half full. */
    const size_t most = 2 * (size_t)n / CHUNK + 2;
    DTP_TRY(DTP_NEW(arena, *out, 1, err));
    DTP_TRY(DTP_NEW(arena, (*out)->chunks, most, err));
    DTP_TRY(DTP_NEW(arena, (*out)->order, most, err));
    dtp_first_fit_clear(*out);
    return DTP_OK;
}

static void forget_from(chunk *c, int32_t from)
{
    for (int32_t i = from; i < CHUNK; i++) {
        c->first[i] = INT32_MAX;
        c->last[i] = INT32_MIN;
    }
    c->n = from;
    c->most = 0;
    for (int32_t i = 0; i < from; i++) {
        c->most = c->end[i] > c->most ? c->end[i] : c->most;
    }
}

void dtp_first_fit_clear(dtp_first_fit *f)
{
    f->n_chunks = 1;
    f->order[0] = 0;
    forget_from(&f->chunks[0], 0);
}

/* ---- where a buffer goes ---- */

/* Lifts *at above what is in the way; true when a gap was found. */
static bool pass_chunk(const chunk *c, int64_t bytes, int32_t first, int32_t last, int64_t *at)
{
    uint8_t hit[CHUNK];
    /* hit[i]: needed at a common time. Fixed length, so that it is vectorised. */
    for (int32_t i = 0; i < CHUNK; i++) {
        hit[i] = (uint8_t)((c->last[i] >= first) & (c->first[i] <= last));
    }
    for (int32_t i = 0; i < c->n; i += 8) {
        uint64_t any;
        memcpy(&any, hit + i, sizeof any);
        for (int32_t k = i; any != 0 && k < i + 8; k++) {
            if (hit[k] == 0) {
                continue;
            }
            if (c->begin[k] >= *at + bytes) {
                return true;
            }
            *at = c->end[k] > *at ? c->end[k] : *at;
        }
    }
    return false;
}

/* ---- inserting ---- */

/* The last chunk that begins at or below an offset, with room. */
static chunk *chunk_for(dtp_first_fit *f, int64_t offset)
{
    int32_t at = 0;
    while (at + 1 < f->n_chunks && f->chunks[f->order[at + 1]].begin[0] <= offset) {
        at++;
    }
    if (f->chunks[f->order[at]].n == CHUNK) {
        /* The upper half becomes a chunk of its own, behind it. */
        chunk *low = &f->chunks[f->order[at]];
        memmove(&f->order[at + 2], &f->order[at + 1],
                (size_t)(f->n_chunks - at - 1) * sizeof *f->order);
        f->order[at + 1] = f->n_chunks;
        chunk *to = &f->chunks[f->n_chunks];
        const int32_t half = CHUNK / 2;
        memcpy(to->first, low->first + half, (size_t)half * sizeof *to->first);
        memcpy(to->last, low->last + half, (size_t)half * sizeof *to->last);
        memcpy(to->begin, low->begin + half, (size_t)half * sizeof *to->begin);
        memcpy(to->end, low->end + half, (size_t)half * sizeof *to->end);
        forget_from(to, half);
        forget_from(low, half);
        f->n_chunks++;
        at += f->chunks[f->order[at + 1]].begin[0] <= offset ? 1 : 0;
    }
    return &f->chunks[f->order[at]];
}

int64_t dtp_first_fit_place(dtp_first_fit *f, int64_t bytes, int32_t first, int32_t last)
{
    int64_t offset = 0;
    for (int32_t i = 0; i < f->n_chunks; i++) {
        const chunk *c = &f->chunks[f->order[i]];
        if (c->n > 0 && c->begin[0] >= offset + bytes) {
            break;
        }
        if (c->most > offset && pass_chunk(c, bytes, first, last, &offset)) {
            break;
        }
    }
    chunk *c = chunk_for(f, offset);
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
    c->most = c->end[i] > c->most ? c->end[i] : c->most;
    c->n++;
    return offset;
}
