/* What the files style*.c share: the table of styles, what a glob matched, and the collection of
 * pins, which are put together mesh dim by mesh dim. */
#ifndef DTP_PLANNER_STYLE_INTERNAL_H
#define DTP_PLANNER_STYLE_INTERNAL_H

#include "interop/styles/styles.h"

/* A pin under construction: the layout is that of the mesh dims in pin.dims. */
typedef struct dtp_style_pin {
    dtp_pin pin;
    const dtp_style *by[DTP_MAX_MESH_DIMS]; /* who pinned each mesh dim */
} dtp_style_pin;

/* Lists of nodes by key: those of key k are nodes[first[k]] .. nodes[first[k + 1] - 1]. */
typedef struct dtp_node_lists {
    int32_t *first;
    dtp_node_id *nodes;
} dtp_node_lists;

/* One style being applied. */
typedef struct dtp_style_job {
    const dtp_graph *g;
    const dtp_mesh *mesh;
    dtp_arena *arena;
    int32_t n_pins, cap_pins;
    dtp_style_pin *pins;
    int32_t *first_pin, *next_pin; /* pins of one tensor: chains by tensor and by pin, -1 = end */
    int32_t cap_next;
    int32_t n_implementations;
    dtp_implementation *implementations; /* in the order of the nodes, at most one of a node */
    bool even;                           /* that of the list of styles */
    const dtp_style *style;
    int32_t m;    /* the mesh dim; of several the first */
    int32_t n_ms; /* all mesh dims of the style, outermost split first */
    int32_t ms[DTP_MAX_MESH_DIMS];
    bool *node;               /* by node: forward nodes that the glob matched */
    bool *param;              /* by tensor: parameters and inputs that the glob matched */
    dtp_tensor_id *grad;      /* by tensor: gradient of a parameter, -1 = none */
    dtp_node_lists readers;   /* by tensor: the nodes that read it */
    dtp_node_lists gradients; /* by node: the backward nodes that differentiate it */
} dtp_style_job;

/* What a style does to a node of the group; *applies says that it does something. */
typedef dtp_status (*dtp_style_node)(dtp_style_job *job, dtp_node_id n, bool *applies,
                                     dtp_err *err);

typedef struct dtp_style_def {
    const char *name;     /* NULL ends the table */
    const char *mesh_dim; /* conventional name: "tp", "dp", "cp"; dp: may be several, "x+y" */
    bool late;            /* after the styles that split parameters otherwise */
    bool takes_layout;    /* NAME=LAYOUT */
    bool rows;            /* of the styles that split parameters: rowwise */
    int32_t stage;        /* of ZeRO: 1 states of the optimizer, 2 gradients, 3 parameters too */
    dtp_status (*apply)(dtp_style_job *job, dtp_err *err); /* to the graph, or */
    dtp_style_node node;                                   /* to every node of the group ... */
    const char *wants;     /* ... of which one at least does this, in an error's words */
    dtp_style_node finish; /* when all are applied; may be NULL */
    const char *op,
        *attr; /* an option may be a choice of this implementation of this op; NULL: none */
} dtp_style_def;

/* Fills job->readers and job->gradients. */
dtp_status dtp_style__index(dtp_style_job *job, dtp_err *err) DTP_MUST_CHECK;

/* Marks job->node and job->param for the style's glob. */
dtp_status dtp_style__match(dtp_style_job *job, dtp_err *err) DTP_MUST_CHECK;

/* Pins mesh dim job->m of a tensor, or with node >= 0 of the tensor as this node reads it: split
 * over `axis`, or replicated when axis < 0. DTP_INVALID naming both styles when it was pinned
 * otherwise before. */
dtp_status dtp_style__pin(dtp_style_job *job, dtp_tensor_id t, dtp_node_id node, int32_t axis,
                          dtp_err *err) DTP_MUST_CHECK;
/* The same of a parameter and of what it is cast to, if t is a cast, everywhere but at t's readers.
 */
dtp_status dtp_style__pin_param(dtp_style_job *job, dtp_tensor_id t, int32_t axis,
                                dtp_err *err) DTP_MUST_CHECK;
/* Place that mesh dim m of a tensor, or of the tensor as node >= 0 reads it, has by the pins so
 * far; NULL = not pinned. */
const dtp_placement *dtp_style__place(const dtp_style_job *job, dtp_tensor_id t, dtp_node_id node,
                                      int32_t m);

/* Notes job->style->implementation for a node and the backward nodes that differentiate it, as far
 * as they have the attribute. DTP_INVALID when another style set it otherwise. */
dtp_status dtp_style__set(dtp_style_job *job, dtp_node_id n, dtp_err *err);

/* A parameter operand of a forward node, cast or not, that the glob matched by either name. */
bool dtp_style__is_target(const dtp_style_job *job, dtp_node_id n, int32_t operand);
/* The node was matched or has a matched parameter. */
bool dtp_style__in_group(const dtp_style_job *job, dtp_node_id n);
/* A result of the group that something outside reads, or that is an output of the model. */
bool dtp_style__leaves(const dtp_style_job *job, dtp_tensor_id t);
/* Pins mesh dim job->m of the gradient of n's output where the backward nodes of n read it: split
 * over a dim of the output, or whole when axis < 0. What is pinned already stays. */
dtp_status dtp_style__gradient(dtp_style_job *job, dtp_node_id n, int32_t axis,
                               dtp_err *err) DTP_MUST_CHECK;

/* Position of the dim called `name` in a tensor, -1 when it has none. */
int32_t dtp_style__axis(const dtp_graph *g, dtp_tensor_id t, const char *name);

/* The styles of the table (styles.c). */
dtp_status dtp_style__replicate(dtp_style_job *job, dtp_err *err);
dtp_status dtp_style__data(dtp_style_job *job, dtp_err *err);
dtp_status dtp_style__zero(dtp_style_job *job, dtp_err *err);
dtp_status dtp_style__weights(dtp_style_job *job, dtp_node_id n, bool *applies, dtp_err *err);
dtp_status dtp_style__weights_finish(dtp_style_job *job, dtp_node_id n, bool *applies,
                                     dtp_err *err);
dtp_status dtp_style__sequence(dtp_style_job *job, dtp_node_id n, bool *applies, dtp_err *err);
dtp_status dtp_style__loss_parallel(dtp_style_job *job, dtp_node_id n, bool *applies, dtp_err *err);
dtp_status dtp_style__context(dtp_style_job *job, dtp_node_id n, bool *applies, dtp_err *err);
dtp_status dtp_style__prepare_input(dtp_style_job *job, dtp_node_id n, bool *applies, dtp_err *err);
dtp_status dtp_style__prepare_output(dtp_style_job *job, dtp_node_id n, bool *applies,
                                     dtp_err *err);

#endif
