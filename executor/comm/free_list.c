/* Free list of a block of memory: first fit over a list sorted by address. */
#include "executor/comm/free_list.h"

#include <stdlib.h>
#include <string.h>

bool dtp_comm__free_list_init(dtp_comm__free_list *r, int64_t bytes)
{
    enum { FIRST = 16 };
    *r = (dtp_comm__free_list){.items = calloc(FIRST, sizeof *r->items)};
    if (r->items == NULL) {
        return false;
    }
    r->capacity = FIRST;
    r->n = 1;
    r->items[0] = (dtp_comm__free_block){.bytes = bytes};
    return true;
}

void dtp_comm__free_list_clear(dtp_comm__free_list *r)
{
    free(r->items);
    *r = (dtp_comm__free_list){0};
}

static void erase(dtp_comm__free_list *r, int32_t i)
{
    memmove(&r->items[i], &r->items[i + 1], (size_t)(r->n - i - 1) * sizeof *r->items);
    r->n--;
}

int64_t dtp_comm__free_list_take(dtp_comm__free_list *r, int64_t bytes)
{
    for (int32_t i = 0; i < r->n; i++) {
        dtp_comm__free_block *at = &r->items[i];
        if (at->used || at->bytes < bytes) {
            continue;
        }
        if (at->bytes > bytes) {
            if (r->n == r->capacity) {
                dtp_comm__free_block *grown =
                    r->capacity <= INT32_MAX / 2
                        ? realloc(r->items, 2 * (size_t)r->capacity * sizeof *grown)
                        : NULL;
                if (grown == NULL) {
                    return -1;
                }
                r->items = grown;
                r->capacity *= 2;
            }
            at = &r->items[i];
            dtp_comm__free_block rest = {.start = at->start + bytes, .bytes = at->bytes - bytes};
            at->bytes = bytes;
            memmove(&r->items[i + 2], &r->items[i + 1], (size_t)(r->n - i - 1) * sizeof *r->items);
            r->items[i + 1] = rest;
            r->n++;
        }
        r->items[i].used = true;
        return r->items[i].start;
    }
    return -1;
}

bool dtp_comm__free_list_release(dtp_comm__free_list *r, int64_t start)
{
    int32_t i = 0;
    while (i < r->n && (r->items[i].start != start || !r->items[i].used)) {
        i++;
    }
    if (i == r->n) {
        return false;
    }
    r->items[i].used = false;
    if (i + 1 < r->n && !r->items[i + 1].used) {
        r->items[i].bytes += r->items[i + 1].bytes;
        erase(r, i + 1);
    }
    if (i > 0 && !r->items[i - 1].used) {
        r->items[i - 1].bytes += r->items[i].bytes;
        erase(r, i);
    }
    return true;
}
