/* dtplan: picks the layouts of a model on a mesh, and shows every stage on the way. */
#include "tools/dtplan/options.h"

int main(int argc, char **argv)
{
    static const tool_command commands[] = {
        {"plan", "MODEL", "choose layouts and write a plan", dtplan_plan},
        {"show", "MODEL", "print a stage: graph, strategies, problem, plan, program, memory",
         dtplan_show},
        {"verify-rules", "[OP]", "run ops under every sharding rule against the unsharded op",
         dtplan_verify_rules},
        {"redistribute", "", "steps from one layout of a tensor to another, run if asked for",
         dtplan_redistribute},
        {"viz", "[MODEL]", "draw a tensor on its mesh: who holds which piece", dtplan_viz},
        {"explain", "MODEL PLAN NAME", "why a tensor or node is as it is, and its alternatives",
         dtplan_explain},
        {"diff", "MODEL A B", "what two plans do differently, and what that costs", dtplan_diff},
        {"pareto", "MODEL", "memory against time: the fastest plans within falling limits",
         dtplan_pareto},
        {"sensitivity", "MODEL PLAN",
         "how far the machine may be off before another plan is better", dtplan_sensitivity},
        {"regress", "SUITE", "plan the cases of a suite: what moved, and why", dtplan_regress},
        {"machines", "", "the machines that have a name", dtplan_machines},
        {"import", "FOLDER|FILE.pt2", "a model of Hugging Face or torch.export as a model file",
         dtplan_import},
        {"export", "MODEL PLAN", "write a plan in the words of another framework", dtplan_export},
        {"solve", "FILE", "solve a selection problem, with a bound", dtplan_solve},
        {NULL, NULL, NULL, NULL},
    };
    return tool_main("dtplan", commands, argc, argv);
}
