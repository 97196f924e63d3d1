/* What the files of baselines share: the dims of a model (baseline_dims.c), which recipes there are
 * and for what (baseline_styles.c), and the styles of a recipe as texts (baseline_texts.c). */
#ifndef DTP_PLANNER_BASELINE_INTERNAL_H
#define DTP_PLANNER_BASELINE_INTERNAL_H

#include "planner/baselines/baselines.h"

/* What the dims of a model are, read from its forward nodes: the batch, the sequence, the
 * vocabulary, feature dims that Megatron splits, experts. */
typedef struct dtp_baseline_dims {
    dtp_dim_id batch;    /* first dim of the first input that has dims; -1 = none, as below */
    dtp_dim_id sequence; /* positions of the queries of attention */
    dtp_dim_id vocab;    /* classes of the loss, made by an einsum with a parameter */
    dtp_dim_id experts;  /* a dim that parameter, other operand and output of an einsum share */
    bool *feature;       /* by dim: split by columns where a parameter makes it, by rows where one
                            contracts it; at most one of the dims of a parameter */
    bool any_feature;
    dtp_tdim indivisible; /* id >= 0: a parameter has no feature dim because `parts` does not divide
                             this one */
} dtp_baseline_dims;

/* How an einsum treats a dim of one of its operands. */
typedef enum dtp_feature_use {
    DTP_USE_NONE,       /* the operand lacks it */
    DTP_USE_MADE,       /* of the operands only this has it, and the output has it */
    DTP_USE_CONTRACTED, /* another operand has it, the output does not */
    DTP_USE_SHARED      /* another operand and the output have it */
} dtp_feature_use;

dtp_feature_use dtp_baseline__use(const dtp_graph *g, const dtp_node *n, int32_t operand,
                                  dtp_dim_id d);

/* For features split over `parts` ranks; storage from `arena`. */
dtp_status dtp_baseline__dims(const dtp_graph *g, int64_t parts, dtp_arena *arena,
                              dtp_baseline_dims *out, dtp_err *err) DTP_MUST_CHECK;

/* The styles (docs/styles.md) that a named baseline is. */
typedef struct dtp_baseline_recipe {
    const char *name;
    int32_t zero;  /* stage: 0 = none, 1, 2, 3 */
    bool data;     /* inputs split */
    bool features; /* Megatron's columns and rows; together with data on the last mesh dim */
    bool sequence; /* ... and the sequence split outside of them */
    bool experts;  /* experts split over the last mesh dims */
    bool alone;    /* on one mesh dim; features that it does not divide stay whole */
} dtp_baseline_recipe;

enum { DTP_N_BASELINE_RECIPES = 12 };

/* Appends the recipes that are worth a mention and not in the list by name, as far as `usual` wants
 * them; those that do not apply say why. Storage from `arena`. */
dtp_status dtp_baseline__add_recipes(const dtp_graph *g, const dtp_mesh *mesh, dtp_usual usual,
                                     dtp_arena *arena, int32_t *n, dtp_candidate *list,
                                     dtp_err *err) DTP_MUST_CHECK;

/* Appends those of dtp_baseline_options.for_form. */
dtp_status dtp_baseline__add_alone(const dtp_graph *g, const dtp_mesh *mesh, dtp_arena *arena,
                                   int32_t *n, dtp_candidate *list, dtp_err *err) DTP_MUST_CHECK;

/* Of n candidates the one of a name, n when there is none. */
int32_t dtp_baseline__find(const dtp_candidate *list, int32_t n, const char *name);

/* A recipe being written for a graph. Mesh dims are ranges: [from, to). */
typedef struct dtp_baseline_writing {
    const dtp_baseline_recipe *r;
    const dtp_graph *g;
    const dtp_mesh *mesh;
    dtp_arena *arena;
    dtp_baseline_dims dims;
    int32_t data_to;                    /* data: [0, data_to) */
    int32_t feature_from, experts_from; /* to the last */
    int32_t n, capacity;
    const char **texts;
    const char *why; /* it does not apply */
} dtp_baseline_writing;

/* A parameter of the experts, whose first dim counts them. */
bool dtp_baseline__is_expert_param(const dtp_baseline_writing *w, dtp_tensor_id t);
/* Fills w->texts, from w->arena. */
dtp_status dtp_baseline__write(dtp_baseline_writing *w, dtp_err *err) DTP_MUST_CHECK;

#endif
