/* The planner, libdtp_planner: chooses how the tensors of a model are laid out over devices. */
#ifndef DTP_PLANNER_H
#define DTP_PLANNER_H

#include "dtp/plan.h"

DTP_API_BEGIN

typedef enum dtp_planning_mode {
    DTP_PLAN_RULES,  /* layout rules, the same for the whole model */
    DTP_PLAN_TENSOR, /* a layout for every tensor */
    DTP_PLAN_PINS    /* nothing is searched: layouts follow from styles and pins */
} dtp_planning_mode;

/* How far planning is: what is planned now, and the best plan so far. */
typedef struct dtp_plan_progress {
    const char *mesh;    /* "x:2;y:4" */
    const char *variant; /* "--remat layer --microbatches 2"; NULL: none is searched */
    double best_s;       /* predicted step time of the best plan so far; 0: there is none yet */
    int64_t best_bytes;  /* ... and its peak */
    double gap;          /* of the additive cost of the best plan on this mesh to its bound, as a
                            share; < 0: nothing is proven yet, or another mesh has the best plan */
} dtp_plan_progress;

/* Fields stand by subject, not by size. */
typedef struct dtp_plan_options { /* NOLINT(clang-analyzer-optin.performance.Padding) */
    size_t size;
    dtp_planning_mode mode;
    dtp_plan_objective objective;
    const dtp_mesh *mesh; /* NULL: the best mesh of `devices` */
    int32_t devices;
    int64_t memory_limit_bytes; /* per rank; 0: that of the machine's device; < 0: none */
    const char *rules;          /* rules mode: splits that must hold, "batch:x" */
    int32_t n_styles;           /* the other modes: what must hold, "GLOB: STYLE" */
    const char *const *styles;  /* (docs/styles.md), */
    int32_t n_style_files;      /* style plans of Hugging Face's transformers, */
    const char *const *style_files;
    int32_t n_style_names; /* names in these files and the model's, "THEIRS=OURS", */
    const char *const *style_names;
    int32_t n_pins; /* and "TENSOR: LAYOUT" */
    const char *const *pins;
    bool strict; /* pins mode: operands are sent only where one asked */
    bool torch;  /* pins mode: decide as PyTorch's DTensor */
    const char *precision, *remat, *microbatches; /* as in dtp_job_options, or "auto": searched */
    const char *rules_file;                       /* hand-written baselines, dtp.rules/1 */
    int32_t candidates; /* rules mode: plans compared by their makespan; 0: 6 */
    uint64_t seed;      /* of the solver of tensor mode */
    int32_t threads;    /* of that solver, 0: 2; the plan does not depend on it */
    double gap;         /* tensor mode: of large problems; 0.001 */
    bool prices;        /* tensor mode: say what each constraint costs */
    bool untie;         /* tensor mode: every instance of a repeated block decides for itself */
    const char *solver; /* tensor mode: "auto" (NULL), "exact", "large" or "glpk" */
    double limit_s;     /* planning ends after so many seconds with the best plan so far; 0: none */
    bool (*interrupted)(void *user); /* or once this is true; called from several threads */
    void *user;
    const dtp_ctx *ctx;
    const char *target;  /* what the program is for (docs/targets.md); NULL: "cpu" */
    const char *outputs; /* as in dtp_job_options */
    bool alone;          /* pins mode: predict no baselines beside the plan */
    bool uneven;         /* the other modes: sizes that do not divide may be split too, into no more
                            parts than elements */
    /* Called with `user`, on the thread that plans, when a mesh or a variant begins, a better plan
     * is found or a bound is proven; NULL: not called. */
    void (*progress)(void *user, const dtp_plan_progress *now);
    const char *names_file;  /* dtp.names/1: the framework's names, for style_files and expressible;
                               NULL: none */
    const char *expressible; /* a form of export: only plans of which it loses nothing, and the best
                                of all plans beside them; not in pins mode, not with `uneven`.
                                NULL: any plan */
    const char *regather;    /* as in dtp_job_options; NULL: decided within the memory limit */
    bool make_fit; /* not in pins mode: where no plan keeps the limit, or it keeps a faster usual
                      layout from it, `remat` and `microbatches` that are NULL are searched */
    const char *stages; /* as in dtp_job_options; in pins mode with rules or styles, in tensor mode
                                also "auto": `devices` are those of all stages, a mesh that of
                                each. With "auto" slots that are NULL are searched, too */
    const char *slots;  /* as in dtp_job_options */
    double slack; /* objective time: a plan may take longer than the fastest one by this share, if
                     it needs less memory or is simpler; 0.005 */
} dtp_plan_options;

static inline dtp_plan_options dtp_plan_options_init(void)
{
    dtp_plan_options o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    o.seed = 1;
    o.gap = 0.001;
    o.slack = 0.005;
    return o;
}

typedef enum dtp_mesh_outcome {
    DTP_MESH_PLANNED,
    DTP_MESH_PRUNED,     /* pruned: its bound is not below the incumbent's cost */
    DTP_MESH_INFEASIBLE, /* nothing fits the memory limit and the pins */
    DTP_MESH_SKIPPED,    /* the pins do not fit this mesh */
    DTP_MESH_ENDED,      /* planning was ended before a plan was found */
    DTP_MESH_LEFT_OUT    /* kernels alone take as long as the best plan; or of three and more dims,
                            where no mesh with two of them as one has one of the best plans */
} dtp_mesh_outcome;

/* "planned", "pruned", "infeasible", "skipped", "ended", "left out". */
const char *dtp_mesh_outcome_name(dtp_mesh_outcome outcome);

typedef struct dtp_mesh_report {
    dtp_mesh mesh;
    dtp_mesh_outcome outcome;
    int64_t bound;      /* PLANNED, PRUNED: of the certificate, in the units of the objective;
                           LEFT_OUT: picoseconds of the kernels; 0: left out for its shape */
    int64_t cost;       /* PLANNED */
    double step_time_s; /* PLANNED */
} dtp_mesh_report;
DTP_ASSERT_SIZE(dtp_mesh_report, 280);

typedef struct dtp_plan_result {
    dtp_plan *plan; /* NULL when infeasible, or when the request's incumbent was not beaten */
    bool infeasible;
    int64_t memory_limit_bytes;  /* the one that was kept; 0: none */
    int64_t smallest_peak_bytes; /* infeasible: a memory limit that works with the pins; 0: none */
    int64_t smallest_bound;      /* ... and none below this does */
    const char *needs;           /* ... as this alone needs so much, in any layouts: "21.20 GiB of
                                    parameters, ..."; a limit that works was not looked for. NULL */
    int32_t n_conflict;          /* infeasible: a smallest set of constraints that cannot hold */
    const char **conflict;       /* together: "pin h: batch@x", "memory 1024" */
    int64_t cut_bound;           /* neither plan nor infeasible: nothing costs less on the mesh */
    double kernels_s;            /* likewise of a search: kernels alone take as long; 0: not so */
    int32_t n_tried;             /* the search for a graph variant: a text for each */
    const char **tried;
    int32_t n_meshes; /* the mesh search, in its order; 0 without */
    dtp_mesh_report *meshes;
    struct dtp_arena *arena; /* of conflict, meshes and tried */
    /* infeasible: with smallest_peak_bytes the plan has so many stages, of which this one needs
     * most; 0: it has none */
    int32_t smallest_stages, smallest_stage;
} dtp_plan_result;
DTP_ASSERT_SIZE(dtp_plan_result, 128);

/* Plans a model, as it was read. The plan is never predicted worse than a legal baseline within the
 * memory limit and in keeping with the pins, but for the slack. Limits and pins that cannot hold
 * together are a result, not an error; a text that is no pin, or one that cannot be kept even
 * alone, is DTP_INVALID. DTP_STOPPED when planning is ended before there is a plan. `machine` NULL:
 * pins mode only, nothing is priced. */
dtp_status dtp_plan_make(const dtp_graph *model, const dtp_machine *machine,
                         const dtp_plan_options *options, dtp_plan_result *out,
                         dtp_err *err) DTP_MUST_CHECK;
/* Whether any plan keeps the limit: as dtp_plan_make, but where usual layouts do (ZeRO, with and
 * without tensor parallelism), one of these is the plan, which is quick; it may be slow. */
dtp_status dtp_plan_fits(const dtp_graph *model, const dtp_machine *machine,
                         const dtp_plan_options *options, dtp_plan_result *out,
                         dtp_err *err) DTP_MUST_CHECK;
/* An infeasible result: what of recomputation and microbatches, where the options leave them open,
 * makes a plan fit: "--remat layer --microbatches 2". NULL when nothing does; the caller frees
 * it. */
dtp_status dtp_plan_what_helps(const dtp_graph *model, const dtp_machine *machine,
                               const dtp_plan_options *options, char **text,
                               dtp_err *err) DTP_MUST_CHECK;
/* Not after a failure. */
void dtp_plan_result_free(dtp_plan_result *result);

DTP_API_END

#endif
