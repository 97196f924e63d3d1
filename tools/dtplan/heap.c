/* With the thresholds as they are by default, glibc maps every large block on its own and unmaps it
 * when it is freed. */
#define _DEFAULT_SOURCE /* madvise */

#include "tools/dtplan/heap.h"

#include <stdint.h>
#include <stdlib.h>

#if defined(__GLIBC__) && defined(__linux__)
#include <malloc.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 1 << 21, LARGEST_BLOCK = 1 << 25 }; /* the second: what glibc allows at most */

void tool_heap_reserve(void)
{
    const size_t bytes = LARGEST_BLOCK - HUGE_PAGE;
    if (mallopt(M_MMAP_THRESHOLD, LARGEST_BLOCK) == 0 ||
        mallopt(M_TRIM_THRESHOLD, 4 * LARGEST_BLOCK) == 0) {
        return;
    }
    char *block = malloc(bytes);
    if (block != NULL) {
        const size_t before = HUGE_PAGE - (uintptr_t)block % HUGE_PAGE;
        const size_t whole = (bytes - before) / HUGE_PAGE * HUGE_PAGE;
        (void)madvise(block + before, whole, MADV_HUGEPAGE); /* may be refused */
    }
    free(block); /* it stays the heap's */
}
#else
void tool_heap_reserve(void)
{
}
#endif
