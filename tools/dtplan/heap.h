/* Where a tool's memory comes from. */
#ifndef DTP_TOOLS_DTPLAN_HEAP_H
#define DTP_TOOLS_DTPLAN_HEAP_H

/* For tools whose whole run is some ten milliseconds: asks for huge pages behind the first 30 MiB
 * of the heap, and that all blocks come from there, since a page fault per 4 KiB is a sixth of such
 * a run. To be called before much is allocated. Without glibc, or where the system grants no huge
 * pages, nothing changes. */
void tool_heap_reserve(void);

#endif
