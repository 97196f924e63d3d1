/* dtplan: picks the layouts of a model on a mesh, and shows every stage on the way. */
#include <stdlib.h> /* __GLIBC__ */

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "tools/options.h"

#define RUN_dtplan(id, function) [TOOL_##id] = dtplan_##function,
#define RUN_dtrun(id, function)
#define COMMAND(id, tool, function, ...) RUN_##tool(id, function)

int main(int argc, char **argv)
{
    static int (*const runs[TOOL_N_COMMANDS])(int argc, char **argv) = {
#include "tools/options.def"
    };
#ifdef __GLIBC__
    /* One candidate after the other takes the memory that the one before it gave back. */
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 25);
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
    return tool_main("dtplan", runs, argc, argv);
}
