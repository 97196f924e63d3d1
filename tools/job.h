/* What dtplan and dtrun share: from files and flags to a graph, a sharding and a priced program. */
#ifndef DTP_TOOLS_JOB_H
#define DTP_TOOLS_JOB_H

#include "dtp/session.h"
#include "spmd/target/target.h"
#include "tools/options.h"
#include "tools/report.h"

/* Whether any style or pin was given. */
static inline bool tool_styles_given(const tool_source *source)
{
    return source->styles.n + source->style_files.n + source->pins.n > 0;
}

/* A file that belongs to a model: `given`, else MODEL.KIND.json beside MODEL.json when there is
 * one, its path in *path; NULL: there is none. */
const char *tool_beside(const tool_source *source, const char *given, const char *kind,
                        tool_path *path);

/* What a program is made for, and what it computes in. */
typedef struct tool_target {
    const dtp_target *target;
    const char *precision; /* NULL: that of the model */
} tool_target;

/* Whether it is a machine of accelerators: of another kind than cpu. */
bool tool_accelerated(const dtp_machine *machine);

/* Both of a program whose layouts no plan decides, for every command: as the options say; without
 * --target the target of the backend that runs it; else on a machine of kind cpu `cpu`; else
 * `torch` for a model that was imported (`framework`, that of dtp_graph, NULL: it was not) and on
 * machines on which dtrun has no backend; else `cuda`. What no backend runs here is in bf16 on a
 * machine of accelerators that states its rate, where --precision is not given and the target is
 * not of the CPU. The machine (NULL: none) is set to the runtime of --runtime, else of the target.
 * DTP_INVALID naming the targets or runtimes there are. */
dtp_status tool_target_find(const tool_source *source, const char *framework, dtp_machine *machine,
                            tool_target *out, dtp_err *err) DTP_MUST_CHECK;
/* Sets the machine to the runtime that a plan was made with. */
dtp_status tool_plan_runtime(const dtp_plan *plan, dtp_machine *machine,
                             dtp_err *err) DTP_MUST_CHECK;

/* Where the prices of a machine come from, else (NULL) those of a plan: "datasheet", "measured" or
 * "fitted"; NULL: nothing is priced, or nothing says it. */
const char *tool_rates(const dtp_machine *machine, const dtp_plan *plan);

/* Mesh and sizes of the model for a plan that is made for others. */
typedef struct tool_smaller {
    dtp_mesh mesh; /* with the plan's names */
    int32_t n;
    const dtp_dim_override *dims;
} tool_smaller;

/* A job (dtp/session.h) with what it was made from. Owns everything. */
typedef struct tool_job {
    dtp_graph *model;     /* as it was read */
    dtp_machine *machine; /* NULL when none was given */
    dtp_plan *plan;       /* NULL without --plan */
    /* Where `model` and `plan` are smaller than the plan's file says: what it says; else NULL. */
    dtp_graph *planned_model;
    dtp_mesh planned_mesh;
    /* Where `plan` is for the target of the backend: that of its file; else NULL. */
    const dtp_target *planned_for;
    bool without_tf32; /* its products are then in f32 */
    dtp_job *run;
} tool_job;

/* Reads the model only. */
dtp_status tool_read_graph(const tool_source *source, dtp_graph **out, dtp_err *err) DTP_MUST_CHECK;

/* Reads the plan, and the model with the dims that the plan was made for and those of the command
 * line. Others on the command line are DTP_INVALID where no machine is given that prices them. */
dtp_status tool_read_planned(const tool_source *source, dtp_graph **model, dtp_plan **plan,
                             dtp_err *err) DTP_MUST_CHECK;

/* Whether the backend computes in f64 what is f32 (the reference), */
bool tool_is_wide(const tool_source *source);
/* and of a job that does so the model in f64, with the plan on it. */
dtp_status tool_read_wide(const tool_source *source, tool_job *job, dtp_err *err) DTP_MUST_CHECK;
/* "batch=96, layers=2": the sizes of the plan that the model does not have, with the plan's sizes
 * or the model's. */
void tool_print_other_dims(const dtp_plan *plan, const dtp_graph *model, bool of_plan,
                           dtp_strbuf *out);

/* Whether the plan was made for this model and machine (NULL: any). */
bool tool_plan_is_current(const dtp_plan *plan, const dtp_graph *model, const dtp_machine *machine);
/* Says once per job, in the log, that it was made for other dims, another model or machine, and
 * what the step takes now (`now`; NULL: it is not known yet). */
void tool_plan_say_changes(const tool_source *source, const dtp_plan *plan, const dtp_graph *model,
                           const dtp_machine *machine, const dtp_prediction *now,
                           const dtp_ctx *ctx);

/* Puts the plan of the job and its model on a mesh of at most source->ranks_at_most ranks, unless
 * it has no more; `planned_model` and `planned_mesh` are then what they were. DTP_INVALID where no
 * smaller mesh keeps what the plan splits evenly and unevenly (job_smaller.c). */
dtp_status tool_job_make_smaller(const tool_source *source, tool_job *job,
                                 dtp_err *err) DTP_MUST_CHECK;

/* Reads the model, then plan or rules, lowers with the given fetches (`results`: with those of
 * dtp_job_options) and predicts. A plan made for another model or machine is re-priced with a
 * warning in the log. */
dtp_status tool_job_create(const tool_source *source, int32_t n_fetch, const char *const *fetch,
                           bool results, const dtp_ctx *ctx, tool_job *out,
                           dtp_err *err) DTP_MUST_CHECK;

void tool_job_free(tool_job *job);

#endif
