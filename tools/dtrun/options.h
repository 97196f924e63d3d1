/* Options that the commands of dtrun share. */
#ifndef DTP_TOOLS_DTRUN_OPTIONS_H
#define DTP_TOOLS_DTRUN_OPTIONS_H

#include "executor/session/feed.h"
#include "tools/job.h"
#include "tools/dtrun/ranks.h"

int dtrun_run(int argc, char **argv);
int dtrun_sample(int argc, char **argv);
int dtrun_verify(int argc, char **argv);
int dtrun_regress(int argc, char **argv);
int dtrun_eval(int argc, char **argv);
int dtrun_bench(int argc, char **argv);

/* How a framework stores the parameters, after the names file of the model: where it is needed, for
 * a checkpoint `load` that another system wrote, or `save` (NULL: none). *out is NULL without a
 * names file, with which `save` is an error. */
dtp_status dtrun_stored(const tool_source *source, const tool_job *job, const char *load,
                        const char *save, const dtp_stored_params **out,
                        dtp_err *err) DTP_MUST_CHECK;

/* clang-format off */
#define DTRUN_LAYOUT_OPTIONS(source)                                                               \
    {"--plan", TOOL_STRING, "FILE", &(source).plan, 0, 0, "plan from dtplan: mesh and layouts"},   \
    {"--mesh", TOOL_STRING, "MESH", &(source).mesh, 0, 0, "mesh such as 'x:2;y:2'"},               \
    {"--rules", TOOL_STRING, "RULES", &(source).rules, 0, 0,                                       \
     "layout rules such as 'batch:x' (default: replicated)"},                                      \
    {"--uneven", TOOL_FLAG, NULL, &(source).uneven, 0, 0,                                          \
     "let rules split sizes that do not divide evenly"},                                           \
    {"--strict", TOOL_FLAG, NULL, &(source).strict, 0, 0,                                          \
     "operands may be sent only where a style or pin of the plan asked for it"}

#define DTRUN_SOURCE_OPTIONS(source)                                                               \
    DTRUN_LAYOUT_OPTIONS(source),                                                                  \
    TOOL_CHOICE_OPTIONS(source),                                                                   \
    {"--machine", TOOL_STRING, "FILE", &(source).machine, 0, 0, "machine file, to predict"},       \
    TOOL_UNITS_OPTION((source).yes_units),                                                         \
    TOOL_MODEL_OPTIONS(source)

#define DTRUN_RANK_OPTIONS(ranks)                                                                  \
    {"--comm", TOOL_STRING, "KIND", &(ranks).comm, 0, 0,                                           \
     "self, sim (threads) or mpi (default: mpi when several ranks are needed)"},                   \
    {"--backend", TOOL_STRING, "NAME", &(ranks).backend, 0, 0,                                     \
     "cpu (default), cuda or ref (f64)"},                                                          \
    {"--transport", TOOL_STRING, "NAME", &(ranks).transport, 0, 0,                                 \
     "of backend cuda: device, nccl or staged (default: what the ranks allow)"},                   \
    {"--switches", TOOL_STRING, "WORDS", &(ranks).switches, 0, 0,                                  \
     "of backend cuda, to find faults (docs/cuda.md)"},                                            \
    {"--threads", TOOL_INT, "N", &(ranks).threads, 1, 4096,                                        \
     "threads per rank (default: usable cores / ranks)"},                                          \
    {"--timeout", TOOL_REAL, "SECONDS", &(ranks).timeout_s, 0.1, 1e7,                              \
     "how long ranks wait for each other in a collective (default 600)"},                          \
    {"--allow-run-as-root", TOOL_FLAG, NULL, &(ranks).allow_root, 0, 0,                            \
     "let Open MPI start ranks as root"}
/* clang-format on */

#endif
