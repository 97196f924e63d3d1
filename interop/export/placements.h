/* What a plan says to another framework, computed once from plan and graph: where parameters,
 * activations, inputs and outputs lie, under the framework's names and over its axes, and what that
 * leaves out. The forms (interop/export/forms.h) write it. */
#ifndef DTP_INTEROP_EXPORT_PLACEMENTS_H
#define DTP_INTEROP_EXPORT_PLACEMENTS_H

#include "core/plan/plan.h"
#include "interop/names.h"
#include "spmd/program/program.h"

/* What a form cannot say; the words are in lost.c. */
typedef enum dtp_lost_kind {
    DTP_LOST_UNEVEN,
    DTP_LOST_MESH_ORDER,
    DTP_LOST_INNER_FACTOR,
    DTP_LOST_FUSED,
    DTP_LOST_PARTS,
    DTP_LOST_READERS,
    DTP_LOST_BACKWARD,
    DTP_LOST_GRADIENTS,
    DTP_LOST_STATES,
    DTP_LOST_INSIDE,
    DTP_LOST_STEPS,
    DTP_LOST_OVERLAP,
    DTP_LOST_MESH_DIMS,
    DTP_LOST_STYLE,
    DTP_LOST_OUTPUT,
    DTP_LOST_RECOMPUTED,
    DTP_LOST_PARTIAL,
    DTP_LOST_RULES,
    DTP_LOST_NAME,
    DTP_LOST_FROZEN,
    DTP_LOST_TERMS,
    DTP_LOST_STATISTICS,
    DTP_N_LOST
} dtp_lost_kind;

/* Lists of names by kind. */
typedef struct dtp_lost {
    bool any[DTP_N_LOST];
    int32_t n[DTP_N_LOST], capacity[DTP_N_LOST];
    const char **names[DTP_N_LOST];
} dtp_lost;

/* A word for a kind ("uneven"), why it is lost and what to do instead. */
const char *dtp_lost_name(dtp_lost_kind kind);
const char *dtp_lost_why(dtp_lost_kind kind);
const char *dtp_lost_instead(dtp_lost_kind kind);
/* Of a tensor, or (name NULL) of the plan as a whole. */
dtp_status dtp_lost_add(dtp_lost *lost, dtp_arena *arena, dtp_lost_kind kind, const char *name,
                        dtp_err *err) DTP_MUST_CHECK;

/* A tensor as the framework has it. */
typedef struct dtp_placed {
    const char *name; /* a parameter's in the framework; of others our own */
    const char
        *module;  /* the framework's, that holds the parameter or makes the value; NULL: none */
    int32_t n_of; /* tensors of ours: several parts of a fused parameter */
    const dtp_tensor_id *of;
    const dtp_name_entry *entry; /* of a parameter with a names file; NULL: axes are our dims */
    dtp_ttype type;              /* their axes; the id of one is that of the outermost dim in it */
    dtp_layout kept;             /* over their axes */
    dtp_layout read;             /* by the forward pass; kept where nothing reads it */
    dtp_node_id reader;          /* the forward node that reads it so, -1: none */
    int32_t operand;             /* of the reader */
    bool frozen;                 /* of a parameter, in a plan of training: it is not trained */
} dtp_placed;

/* How the nodes of the graph read and make tensors, by tensor of ours; that of a cast parameter is
 * the parameter. */
typedef struct dtp_uses_of_layouts {
    dtp_node_id *reader; /* the first forward node that reads it, -1: none */
    int32_t *operand;    /* of the reader */
    dtp_layout *read;    /* as that node reads it */
    dtp_layout *made;    /* as its producer leaves it, before it is brought to where it is kept */
    bool *several;       /* other forward nodes read it in another layout */
    bool *backward;      /* backward nodes read it in another layout */
} dtp_uses_of_layouts;

typedef struct dtp_placements {
    dtp_arena *arena;
    const dtp_plan *plan;
    const dtp_graph *graph; /* the plan's (dtp_plan_graph) */
    const dtp_names *names; /* NULL: the names and axes are ours */
    const dtp_program
        *program; /* of the plan; NULL, as dtp_placements_make leaves it: not lowered */
    dtp_uses_of_layouts uses;
    const char **module; /* by tensor: the framework's, that holds a parameter; NULL: none */
    const char **tied;   /* by tensor: another module that holds it, for nodes of another op than
                            that of its first reader; NULL: none */
    const dtp_name_entry **entry; /* by tensor: what the names file says of a parameter */
    int32_t n_params, n_tied, n_activations, n_inputs, n_outputs;
    dtp_placed *params;      /* one per parameter of the framework, in the order of ours; behind
                                them n_tied that are parameters among them in a second module */
    dtp_placed *activations; /* forward values that are redistributed */
    dtp_placed *inputs, *outputs;
    dtp_lost lost; /* what placements cannot say */
} dtp_placements;

/* Everything from an arena; borrows the rest. DTP_INVALID as dtp_names_find, and when two
 * parameters that are not parts of one have one name. */
dtp_status dtp_placements_make(const dtp_plan *plan, const dtp_graph *graph, const dtp_names *names,
                               dtp_arena *arena, dtp_placements *out, dtp_err *err) DTP_MUST_CHECK;

/* A value of the forward pass, but no parameter in another type. */
bool dtp_placements_is_value(const dtp_graph *g, dtp_tensor_id t);
/* Whether the mesh dims that split an axis do so by their ranks, the outermost first; those below 0
 * do not count. NULL: in mesh order. */
bool dtp_placements_in_order(const dtp_layout *layout, const int32_t *rank);
/* The module of the parameters that a node reads; NULL: none, or of several. */
const char *dtp_placements_module(const dtp_placements *p, dtp_node_id n);
/* The module whose output a value is: its producer reads parameters of the module, and no reader
 * does; NULL: none. */
const char *dtp_placements_maker(const dtp_placements *p, dtp_tensor_id t);

/* ---- for a search (interop/export/form_space.h) ---- */

/* What the layouts of a tensor of ours lose: bits of kinds. `kept`: of the one in which it is kept.
 */
uint32_t dtp_placements_loses(const dtp_placements *p, dtp_tensor_id t, const dtp_layout *layout,
                              bool kept);
/* The value that the module of a value's producer makes next of it: the sum of product and bias;
 * -1: none. */
dtp_tensor_id dtp_placements_sum(const dtp_placements *p, dtp_tensor_id t);
/* The parameter whose state an operand of an update is; -1: none. */
dtp_tensor_id dtp_placements_state_of(const dtp_graph *g, const dtp_node *node, int32_t operand);

/* Whether a node sums its operands, not into an accumulator of microbatches. */
bool dtp_placements_sums(const dtp_graph *g, const dtp_node *node);

/* The tensor whose layout an operand is: of a recomputed value that value, of a cast parameter the
 * parameter; -1: read by a cast, whose readers count. */
dtp_tensor_id dtp_uses_of_layouts_tensor(const dtp_graph *g, const dtp_node *node, int32_t operand);
/* Fills `uses` for a sharding of the graph. */
dtp_status dtp_uses_of_layouts_find(const dtp_graph *g, const dtp_sharding *s, dtp_arena *arena,
                                    dtp_uses_of_layouts *uses, dtp_err *err) DTP_MUST_CHECK;

#endif
