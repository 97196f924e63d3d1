/* dtplan: picks the layouts of a model on a mesh, and shows every stage on the way. */
#include "tools/options.h"

#define RUN_dtplan(id, function) [TOOL_##id] = dtplan_##function,
#define RUN_dtrun(id, function)
#define COMMAND(id, tool, function, ...) RUN_##tool(id, function)

int main(int argc, char **argv)
{
    static int (*const runs[TOOL_N_COMMANDS])(int argc, char **argv) = {
#include "tools/options.def"
    };
    return tool_main("dtplan", runs, argc, argv);
}
