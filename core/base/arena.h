/* A bump allocator: an IR object owns one arena, everything inside it is freed together. */
#ifndef DTP_CORE_BASE_ARENA_H
#define DTP_CORE_BASE_ARENA_H

#include <stddef.h>

#include "core/base/status.h"

typedef struct dtp_arena dtp_arena;

/* NULL when out of memory. */
dtp_arena *dtp_arena_create(void);
void dtp_arena_destroy(dtp_arena *arena);

/* Zeroed memory for n elements of `size` bytes, aligned for any type; NULL when out of memory, when
 * n * size overflows, or when arena is NULL: who made the arena need not look. n == 0 gives a valid
 * pointer. The arena owns the memory. */
void *dtp_arena_alloc(dtp_arena *arena, size_t n, size_t size);

/* The same for the pointer *out (`&list` of a `T *list`); DTP_NOMEM. See DTP_NEW. */
dtp_status dtp_arena_new(dtp_arena *arena, void *out, size_t n, size_t size, const char *file,
                         int line, dtp_err *err) DTP_MUST_CHECK;

/* `T *list; DTP_TRY(DTP_NEW(arena, list, n, err));`: zeroed memory for n elements. */
#define DTP_NEW(arena, pointer, n, err)                                                            \
    dtp_arena_new((arena), &(pointer), (size_t)(n), sizeof *(pointer), __FILE__, __LINE__, (err))

/* Calls fn(user) when the arena is destroyed, the last one first, before memory is freed; at once
 * when there is no memory to remember it. */
dtp_status dtp_arena_at_end(dtp_arena *arena, void (*fn)(void *user), void *user,
                            dtp_err *err) DTP_MUST_CHECK;

/* A copy of a string; NULL when out of memory. */
char *dtp_arena_strdup(dtp_arena *arena, const char *text);
/* A copy as one line (dtp_one_line): of a name or a note in a file, which reports print. */
char *dtp_arena_line(dtp_arena *arena, const char *text);

/* printf into the arena; NULL when out of memory. */
char *dtp_arena_printf(dtp_arena *arena, const char *fmt, ...) DTP_PRINTF(2, 3);

/* Grows *array (of *capacity elements of `size` bytes, the first `used` in use) so that it holds at
 * least `need`; the old storage stays in the arena. */
dtp_status dtp_arena_grow(dtp_arena *arena, void *array, int32_t used, int32_t need,
                          int32_t *capacity, size_t size, dtp_err *err) DTP_MUST_CHECK;

/* `DTP_TRY(DTP_ONE_MORE(arena, list, n, capacity, err)); list[n++] = x;` */
#define DTP_ONE_MORE(arena, list, n, capacity, err)                                                \
    dtp_arena_grow((arena), &(list), (n), (n) + 1, &(capacity), sizeof *(list), (err))

#endif
