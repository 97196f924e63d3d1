/* A bump allocator: an IR object owns one arena, everything inside it is freed together. */
#include "core/base/arena.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/safe_int.h"
#include "core/base/text.h"

/* Blocks double from the first to the last size: many arenas hold little. */
enum { FIRST_BYTES = 1 << 11, BLOCK_BYTES = 1 << 16, SHORT_TEXT = 256 };

/* How many elements an array has room for at first: few large ones. */
enum { LARGE = 256, FEW = 2, MANY = 16 };

typedef struct block {
    struct block *next;
    size_t used, capacity;
    alignas(max_align_t) unsigned char data[];
} block;

/* What is called at the end. */
typedef struct at_end {
    struct at_end *next;
    void (*fn)(void *user);
    void *user;
} at_end;

struct dtp_arena {
    block *head;
    at_end *last;
};

dtp_arena *dtp_arena_create(void)
{
    return calloc(1, sizeof(dtp_arena));
}

void dtp_arena_destroy(dtp_arena *arena)
{
    if (arena == NULL) {
        return;
    }
    for (const at_end *e = arena->last; e != NULL; e = e->next) {
        e->fn(e->user);
    }
    block *b = arena->head;
    while (b != NULL) {
        block *next = b->next;
        free(b);
        b = next;
    }
    free(arena);
}

static block *block_create(const block *before, size_t bytes)
{
    const size_t twice = before == NULL ? FIRST_BYTES : 2 * before->capacity;
    const size_t usual = twice < BLOCK_BYTES ? twice : BLOCK_BYTES;
    const size_t capacity = bytes > usual ? bytes : usual;
    if (capacity > SIZE_MAX - sizeof(block)) {
        return NULL;
    }
    block *b = calloc(1, sizeof(block) + capacity);
    if (b != NULL) {
        b->capacity = capacity;
    }
    return b;
}

void *dtp_arena_alloc(dtp_arena *arena, size_t n, size_t size)
{
    size_t bytes;
    if (arena == NULL || !dtp_mul_size(n, size, &bytes) || bytes > SIZE_MAX / 2) {
        return NULL;
    }
    const size_t align = alignof(max_align_t);
    bytes = (bytes + align - 1) / align * align;
    block *b = arena->head;
    if (b == NULL || b->capacity - b->used < bytes) {
        b = block_create(arena->head, bytes);
        if (b == NULL) {
            return NULL;
        }
        b->next = arena->head;
        arena->head = b;
    }
    void *p = b->data + b->used;
    b->used += bytes;
    return p;
}

dtp_status dtp_arena_new(dtp_arena *arena, void *out, size_t n, size_t size, const char *file,
                         int line, dtp_err *err)
{
    void *p = dtp_arena_alloc(arena, n, size);
    memcpy(out, &p, sizeof p);
    return p != NULL ? DTP_OK
                     : dtp_err_set(err, DTP_NOMEM, file, line,
                                   "out of memory for %zu elements of %zu bytes", n, size);
}

dtp_status dtp_arena_at_end(dtp_arena *arena, void (*fn)(void *user), void *user, dtp_err *err)
{
    at_end *e = dtp_arena_alloc(arena, 1, sizeof *e);
    if (e == NULL) {
        fn(user);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory");
    }
    *e = (at_end){arena->last, fn, user};
    arena->last = e;
    return DTP_OK;
}

char *dtp_arena_line(dtp_arena *arena, const char *text)
{
    enum { MOST = 4 }; /* bytes for one: \xHH */
    const size_t room = MOST * strlen(text) + 1;
    char *line = dtp_arena_alloc(arena, room, 1);
    if (line != NULL) {
        (void)dtp_one_line(text, line, room);
    }
    return line;
}

char *dtp_arena_strdup(dtp_arena *arena, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = dtp_arena_alloc(arena, n, 1);
    if (copy != NULL) {
        memcpy(copy, text, n);
    }
    return copy;
}

char *dtp_arena_printf(dtp_arena *arena, const char *fmt, ...)
{
    char short_text[SHORT_TEXT];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(short_text, sizeof short_text, fmt, ap);
    va_end(ap);
    if (n < 0) {
        return NULL;
    }
    char *text = dtp_arena_alloc(arena, (size_t)n + 1, 1);
    if (text != NULL && n < SHORT_TEXT) {
        memcpy(text, short_text, (size_t)n + 1);
    } else if (text != NULL) {
        va_start(ap, fmt);
        (void)vsnprintf(text, (size_t)n + 1, fmt, ap);
        va_end(ap);
    }
    return text;
}

dtp_status dtp_arena_grow(dtp_arena *arena, void *array, int32_t used, int32_t need,
                          int32_t *capacity, size_t size, dtp_err *err)
{
    if (need <= *capacity) {
        return DTP_OK;
    }
    const int32_t least = size < LARGE ? MANY : FEW;
    int32_t cap = *capacity < least ? least : *capacity;
    while (cap < need) {
        if (cap > INT32_MAX / 2) {
            return DTP_FAIL(err, DTP_RANGE, "more than %d elements in one array", INT32_MAX / 2);
        }
        cap *= 2;
    }
    void *old;
    memcpy(&old, array, sizeof old);
    void *fresh = dtp_arena_alloc(arena, (size_t)cap, size);
    DTP_TRY(DTP_MEMORY(err, fresh));
    if (used > 0) {
        memcpy(fresh, old, (size_t)used * size);
    }
    memcpy(array, &fresh, sizeof fresh);
    *capacity = cap;
    return DTP_OK;
}
