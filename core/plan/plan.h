/* The plan file (dtp/plan.h): the decision, what it is predicted to cost, and the certificate. */
#ifndef DTP_CORE_PLAN_PLAN_H
#define DTP_CORE_PLAN_PLAN_H

#include "core/base/stop.h"
#include "core/transform/graph_variant.h"
#include "core/plan/sharding.h"
#include "core/base/strbuf.h"
#include "dtp/plan.h"

/* Whose steps redistributions take (cost_models/plan_lowering.h): those that the plan lists, those
 * of PyTorch DTensor's rules, each collective where it decides on it, or, in a plan that lists none
 * (written by hand or by an older version), those that are cheapest on the generic machine. */
typedef enum dtp_plan_chooser {
    DTP_REDISTRIBUTION_GENERIC,
    DTP_REDISTRIBUTION_LISTED,
    DTP_REDISTRIBUTION_TORCH
} dtp_plan_chooser;

/* (cost - bound) / cost, 0 when cost is 0. */
double dtp_gap(int64_t cost, int64_t bound);

typedef struct dtp_baseline {
    const char *name;
    const char *rules; /* text; NULL: made from styles */
    int32_t n_styles;
    const char *const *styles;
    bool legal; /* false: does not fit the model's sizes on this mesh; see why */
    const char *why;
    dtp_prediction predicted;
} dtp_baseline;

/* How tensors of one type go from one layout to another: the layout after every step, which says
 * what the step is. */
typedef struct dtp_plan_redistribution {
    dtp_ttype type; /* element type and sizes; dims are numbered */
    dtp_layout from;
    int32_t n_steps;         /* at least 1 */
    const dtp_layout *after; /* of each step; the last is where the tensor goes */
} dtp_plan_redistribution;

enum { DTP_PLAN_MAX_REDISTRIBUTIONS = 4096, DTP_PLAN_MAX_STEPS = 24 };

/* A plan of which a form of export loses nothing, beside the best plan of any form. */
typedef struct dtp_plan_expressible {
    const char *form; /* NULL: all plans were searched */
    bool bounded;     /* the bound of the certificate is one of such plans alone */
    double all_step_time_s;
    int64_t all_peak_bytes;
    /* Of a form that says plans by styles of modules or by placements alone: */
    const char *by;           /* "modules" or "placements"; NULL: no such form */
    double other_step_time_s; /* the best plan that was found by the other; 0: none */
    int64_t other_peak_bytes;
    const char *failing; /* why placements alone were not searched; NULL: they were */
} dtp_plan_expressible;

/* The fastest plan that was found, where one that takes longer by a share of `slack` at most was
 * taken, for its memory or its form. */
typedef struct dtp_plan_fastest {
    double slack;
    double step_time_s; /* 0: the plan is the fastest */
    int64_t peak_bytes;
    bool by_placements; /* while it is searched */
} dtp_plan_fastest;

struct dtp_plan {
    dtp_arena *arena;
    const char *model;
    int32_t n_dims, n_freeze;
    const dtp_dim_override *dims; /* the sizes of the model that it was made for; none: not said */
    const char *const *freeze;    /* globs over parameters that the model was read with as frozen */
    const char *machine; /* name; NULL: made without a machine, so no times are predicted */
    const char *rates;   /* of the machine: "datasheet", "measured", "fitted"; "" = not said */
    const char *runtime; /* whose efficiency is in the rates; "" = none */
    const char *target;  /* name (spmd/target/target.h); "cpu" in a file that says none */
    dtp_mesh mesh;
    bool rules_mode; /* else per tensor */
    bool uneven;     /* splits that do not divide a size are allowed */
    bool forward;    /* for the model without training */
    dtp_plan_objective objective;
    dtp_plan_chooser redistribution; /* torch: tensor mode only */
    int64_t memory_limit_bytes;      /* 0 = none */
    dtp_layout_rules rules;          /* rules mode */
    dtp_sharding sharding;
    dtp_overlap overlap;
    dtp_graph_variant variant; /* layouts, strategies, implementations are for the graph
                                  that they make of the model's */
    int32_t n_tried;           /* the search for a variant: what came of each, the best first */
    const char **tried;
    int32_t n_implementations; /* tensor mode: how nodes run, in the order of the nodes */
    dtp_implementation *implementations;
    int32_t n_redistributions; /* with DTP_REDISTRIBUTION_LISTED: all that a program of the plan
                                  needs; no two of one type, start, end */
    dtp_plan_redistribution *redistributions;
    dtp_prediction predicted;
    dtp_certificate certificate;
    dtp_plan_expressible expressible;
    dtp_plan_fastest fastest;
    int32_t n_pins;
    const char **pins; /* texts such as "rules batch:x" and "memory 2147483648" */
    int32_t n_baselines;
    dtp_baseline *baselines;
    uint64_t model_hash, machine_hash;
};

dtp_status dtp_plan_create(dtp_plan **out, dtp_err *err) DTP_MUST_CHECK;

/* Whether a plan that was searched for a form is said by placements alone. */
static inline bool dtp_plan_by_placements(const dtp_plan *plan)
{
    return plan->expressible.by != NULL && strcmp(plan->expressible.by, "placements") == 0;
}

/* Whether the peak of a legal baseline is within the plan's memory limit; true for others. */
bool dtp_plan_baseline_fits(const dtp_plan *plan, const dtp_baseline *b);

/* What the backward pass gathers again, by tensor of g, the plan's graph; NULL: nothing was decided
 * beside the variant. DTP_NOMEM, DTP_RANGE. */
dtp_status dtp_plan_set_regather(dtp_plan *plan, const dtp_graph *g, const bool *again,
                                 dtp_err *err) DTP_MUST_CHECK;

/* Whether a redistribution is that of tensors of this type between these layouts. */
bool dtp_plan_redistribution_is(const dtp_plan_redistribution *r, const dtp_ttype *type,
                                const dtp_layout *from, const dtp_layout *to);

/* The graph that the program of a plan is lowered from: dtp_graph_with_variant with the plan's
 * variant and implementations. `model` is the graph as it was read and must outlive it. */
dtp_status dtp_plan_graph(const dtp_plan *plan, const dtp_graph *model, dtp_graph **out,
                          dtp_err *err) DTP_MUST_CHECK;

/* Deterministic JSON text, ended by a newline. g is the plan's graph (dtp_plan_graph). `timings`
 * adds certificate.solve_s. */
dtp_status dtp_plan_write(const dtp_plan *plan, const dtp_graph *g, bool timings, char **text,
                          dtp_err *err) DTP_MUST_CHECK;
/* Reads a plan for the graph of a model: names are resolved, layouts checked (an illegal layout is
 * an error). Hashes are read, not compared. `file` is for messages. */
dtp_status dtp_plan_read(const char *file, const char *text, size_t len, const dtp_graph *g,
                         dtp_plan **out, dtp_err *err) DTP_MUST_CHECK;

/* The same for a model with other sizes, which layouts may split unevenly, and on another mesh with
 * dims of the same names (NULL: the plan's). */
dtp_status dtp_plan_read_resized(const char *file, const char *text, size_t len, const dtp_graph *g,
                                 const dtp_mesh *mesh, dtp_plan **out, dtp_err *err) DTP_MUST_CHECK;

/* Which version of the model a plan is for: hash and dims. DTP_NOMEM. */
dtp_status dtp_plan_set_model(dtp_plan *plan, const dtp_graph *model, dtp_err *err) DTP_MUST_CHECK;
/* How the model of a plan file is to be read: with these dims (none in files of older versions),
 * without training or with it, and with these parameters frozen. Lists and texts from `arena`. */
dtp_status dtp_plan_read_model(const char *file, const char *text, size_t len, dtp_arena *arena,
                               dtp_model_options *out, dtp_err *err) DTP_MUST_CHECK;
/* The text of a plan file; the caller frees it. */
dtp_status dtp_plan_file_read(const char *path, char **text, size_t *len,
                              dtp_err *err) DTP_MUST_CHECK;

/* What a plan takes under another target than its own. */
typedef struct dtp_plan_elsewhere {
    const char *target, *rates;
    int64_t limit_bytes; /* of its peak; 0: none */
    dtp_prediction predicted;
} dtp_plan_elsewhere;

/* For people: certificate, predictions, baselines. g is the plan's graph; `other` stands beside
 * the plan's own throughput and memory (NULL: none). */
void dtp_plan_print(const dtp_plan *plan, const dtp_graph *g, const dtp_plan_elsewhere *other,
                    dtp_strbuf *out);

/* Some lines of what a search tried: the first texts and how many more there are. */
void dtp_plan_print_tried(int32_t n, const char *const *tried, dtp_strbuf *out);
/* A pin or another constraint; a memory limit with its unit. */
void dtp_pin_print(const char *pin, dtp_strbuf *out);

enum { DTP_STRATEGY_TEXT_BYTES = DTP_MAX_MESH_DIMS * (DTP_MESH_NAME_BYTES + 200) };
/* How a node runs, in words: "x: batch, y: d_ff" (docs/formats/plan.md); "replicated". */
void dtp_strategy_print(const dtp_graph *g, dtp_node_id node, const dtp_mesh *mesh,
                        const dtp_strategy *strategy, char out[DTP_STRATEGY_TEXT_BYTES]);

#endif
