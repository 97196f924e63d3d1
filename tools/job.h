/* What dtplan and dtrun share: from files and flags to a graph, a sharding and a priced program. */
#ifndef DTP_TOOLS_JOB_H
#define DTP_TOOLS_JOB_H

#include "dtp/session.h"
#include "spmd/target/target.h"
#include "tools/options.h"
#include "tools/report.h"

/* Where the job comes from; filled by the option tables. NULL and 0 mean "not given". */
typedef struct tool_source {
    const char *model;
    tool_list dims;           /* --dim name=size */
    const char *mesh;         /* --mesh x:2;y:2 */
    const char *rules;        /* --rules batch:x */
    const char *plan;         /* --plan FILE: mesh and layouts */
    const char *machine;      /* --machine FILE: prices */
    bool yes_units;           /* --yes-units: of a machine file */
    const char *runtime;      /* --runtime NAME: whose kernels they are of */
    const char *target;       /* --target cuda */
    const char *outputs;      /* --outputs logits */
    const char *precision;    /* --precision bf16 */
    const char *remat;        /* --remat layer */
    const char *microbatches; /* --microbatches 4 */
    bool forward;             /* --forward */
    bool uneven;              /* --uneven */
    const char *backend;      /* --backend NAME; NULL: no programs are run */
    bool unrecorded; /* steps are not recorded: launches cost more where a machine says so */
    bool any_dims;   /* a plan may be for other dims: the command shows no prices */
    dtp_evaluation_kind evaluation; /* the forward pass alone (dtp_job_options) */
    bool strict;                    /* --strict: operands move only where a pin asked for it */
    tool_list styles;               /* --style "GLOB: STYLE" */
    tool_list style_files;          /* --style-file: of Hugging Face's transformers */
    tool_list style_names;          /* --style-names THEIRS=OURS, for the files */
    const char *names;              /* --names FILE: of a framework */
    tool_list pins;                 /* --pin "TENSOR: LAYOUT" */
} tool_source;

/* Whether any style or pin was given. */
static inline bool tool_styles_given(const tool_source *source)
{
    return source->styles.n + source->style_files.n + source->pins.n > 0;
}

/* A file that belongs to a model: `given`, else MODEL.KIND.json beside MODEL.json when there is
 * one, its path in *path; NULL: there is none. */
typedef struct tool_path {
    char text[4096];
} tool_path;
const char *tool_beside(const tool_source *source, const char *given, const char *kind,
                        tool_path *path);

/* What a program is made for, and what it computes in. */
typedef struct tool_target {
    const dtp_target *target;
    const char *precision; /* NULL: that of the model */
} tool_target;

/* Both of a program whose layouts no plan decides, for every command: as the options say; without
 * --target the target of the backend that runs it, else `cuda` on a machine of kind cuda, else
 * `cpu`. What no backend runs here is in bf16 on a machine of kind cuda that states its rate,
 * where --precision is not given and the target is not of the CPU. The machine (NULL: none) is set
 * to the runtime of --runtime, else of the target. DTP_INVALID naming the targets or runtimes
 * there are. */
dtp_status tool_target_find(const tool_source *source, dtp_machine *machine, tool_target *out,
                            dtp_err *err) DTP_MUST_CHECK;
/* Sets the machine to the runtime that a plan was made with. */
dtp_status tool_plan_runtime(const dtp_plan *plan, dtp_machine *machine,
                             dtp_err *err) DTP_MUST_CHECK;

/* Where the prices of a machine come from, else (NULL) those of a plan: "datasheet", "measured" or
 * "fitted"; NULL: nothing is priced, or nothing says it. */
const char *tool_rates(const dtp_machine *machine, const dtp_plan *plan);

/* A job (dtp/session.h) with what it was made from. Owns everything. */
typedef struct tool_job {
    dtp_graph *model;     /* as it was read */
    dtp_machine *machine; /* NULL when none was given */
    dtp_plan *plan;       /* NULL without --plan */
    dtp_job *run;
} tool_job;

/* Reads the model only. */
dtp_status tool_read_graph(const tool_source *source, dtp_graph **out, dtp_err *err) DTP_MUST_CHECK;

/* Reads the plan, and the model with the dims that the plan was made for and those of the command
 * line. Others on the command line are DTP_INVALID where no machine is given that prices them. */
dtp_status tool_read_planned(const tool_source *source, dtp_graph **model, dtp_plan **plan,
                             dtp_err *err) DTP_MUST_CHECK;

/* Whether the plan was made for this model and machine (NULL: any). */
bool tool_plan_is_current(const dtp_plan *plan, const dtp_graph *model, const dtp_machine *machine);
/* Says once per job, in the log, that it was made for other dims, another model or machine, and
 * what the step takes now (`now`; NULL: it is not known yet). */
void tool_plan_say_changes(const tool_source *source, const dtp_plan *plan, const dtp_graph *model,
                           const dtp_machine *machine, const dtp_prediction *now,
                           const dtp_ctx *ctx);

/* Reads the model, then plan or rules, lowers with the given fetches (`results`: with those of
 * dtp_job_options) and predicts. A plan made for another model or machine is re-priced with a
 * warning in the log. */
dtp_status tool_job_create(const tool_source *source, int32_t n_fetch, const char *const *fetch,
                           bool results, const dtp_ctx *ctx, tool_job *out,
                           dtp_err *err) DTP_MUST_CHECK;

/* clang-format off */
#define TOOL_UNITS_OPTION(given)                                                                   \
    {"--yes-units", TOOL_FLAG, NULL, &(given), 0, 0,                                               \
     "numbers of the machine file that look as if they were in other units are meant"}
#define TOOL_TARGET_OPTION(source)                                                                 \
    {"--target", TOOL_STRING, "NAME", &(source).target, 0, 0,                                      \
     "what the program is for: cpu, cpu_packed, ref, cuda, torch or torch_compile "                \
     "(default: cuda on a machine of kind cuda, else cpu)"},                                       \
    {"--runtime", TOOL_STRING, "NAME", &(source).runtime, 0, 0,                                    \
     "whose kernels are priced: a runtime of the machine's efficiencies "                          \
     "(default: the target's), or datasheet"}
#define TOOL_OUTPUTS_OPTION(source)                                                                \
    {"--outputs", TOOL_STRING, "NAMES", &(source).outputs, 0, 0,                                   \
     "outputs of the model to keep: all (default), none or names such as 'logits'"}
#define TOOL_CHOICE_OPTIONS(source)                                                                \
    TOOL_OUTPUTS_OPTION(source),                                                                   \
    {"--precision", TOOL_STRING, "NAME", &(source).precision, 0, 0,                                \
     "type of activations and their gradients: f32 (default), bf16 or f16, with "                  \
     "',gradients=f32' for gradients of parameters in f32; or tf32: f32, with "                    \
     "products in tf32"},                                                                          \
    {"--remat", TOOL_STRING, "BLOCKS", &(source).remat, 0, 0,                                      \
     "recompute blocks in the backward pass: none, all, or names such as 'layer' or 'layer:0-3'; " \
     "'layer keep=GLOB,...' keeps results by the names of their nodes"},                           \
    {"--microbatches", TOOL_STRING, "N", &(source).microbatches, 0, 0,                             \
     "run a step as N parts of the batch, such as 4 or 'batch=4'"}
#define TOOL_MODEL_OPTIONS(source)                                                                 \
    {"--dim", TOOL_LIST, "NAME=N", &(source).dims, 0, 0, "override a dim of the model"},           \
    {"--forward", TOOL_FLAG, NULL, &(source).forward, 0, 0, "leave training out"}
#define TOOL_NAMES_OPTION(source)                                                                  \
    {"--names", TOOL_STRING, "FILE", &(source).names, 0, 0,                                        \
     "a framework's names of the parameters (default: MODEL.names.json when there is one)"}
#define TOOL_STYLE_OPTIONS(source)                                                                 \
    {"--style", TOOL_LIST, "GLOB:STYLE", &(source).styles, 0, 0,                                   \
     "a style for nodes or parameters, such as 'layers.*.mlp.up: colwise'"},                       \
    {"--style-file", TOOL_LIST, "FILE", &(source).style_files, 0, 0,                               \
     "style plan of Hugging Face's transformers, JSON"},                                           \
    {"--style-names", TOOL_LIST, "THEIRS=OURS", &(source).style_names, 0, 0,                       \
     "name in a style file and the model's name for it"},                                          \
    TOOL_NAMES_OPTION(source),                                                                     \
    {"--pin", TOOL_LIST, "TENSOR:LAYOUT", &(source).pins, 0, 0,                                    \
     "a layout that must hold, such as 'h: batch@x' or 'w1 at h: replicated'"}
#define TOOL_END_OPTIONS {NULL, TOOL_FLAG, NULL, NULL, 0, 0, NULL}
/* clang-format on */

void tool_job_free(tool_job *job);

#endif
