/* dtrun: runs a planned program on real ranks, verifies it against one device, measures the
 * machine. */
#include "tools/dtrun/options.h"

#define RUN_dtrun(id, function) [TOOL_##id] = dtrun_##function,
#define RUN_dtplan(id, function)
#define COMMAND(id, tool, function, ...) RUN_##tool(id, function)

int main(int argc, char **argv)
{
    static int (*const runs[TOOL_N_COMMANDS])(int argc, char **argv) = {
#include "tools/options.def"
    };
    tool_set_spin_count(argv);
    return tool_main("dtrun", runs, argc, argv);
}
