/* dtrun: runs a planned program on real ranks, verifies it against one device, measures the
 * machine. */
#include "tools/dtrun/options.h"

int main(int argc, char **argv)
{
    static const tool_command commands[] = {
        {"run", "MODEL", "run or train a model under a plan or layout rules", dtrun_run},
        {"eval", "MODEL", "loss and metrics over the whole of files, each row once", dtrun_eval},
        {"sample", "MODEL", "continue a prompt, token by token", dtrun_sample},
        {"verify", "MODEL", "compare N ranks with one device", dtrun_verify},
        {"regress", "SUITE", "run the jobs of a suite: what moved, and why", dtrun_regress},
        {"bench", "", "measure this machine and write a machine file", dtrun_bench},
        {NULL, NULL, NULL, NULL},
    };
    tool_set_spin_count(argv);
    return tool_main("dtrun", commands, argc, argv);
}
