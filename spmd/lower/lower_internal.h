/* Lowering of one node: what the files lower*.c share. */
#ifndef DTP_SPMD_LOWER_LOWER_INTERNAL_H
#define DTP_SPMD_LOWER_LOWER_INTERNAL_H

#include "core/plan/node_layouts.h"
#include "spmd/lower/lower.h"
#include "spmd/program/program_internal.h"

/* A copy that a node reads though another one made it: by itself it would make its own. */
typedef struct dtp_shared_copy {
    int32_t at;  /* before this instruction */
    int32_t end; /* of its own instructions, once they are made */
    dtp_node_id node;
    dtp_phase phase;
    bool scratch; /* inside the node's decomposition */
    dtp_value_id from;
    dtp_layout to;
} dtp_shared_copy;

typedef struct dtp_shared_copies {
    dtp_arena *arena;
    int32_t n, capacity;
    dtp_shared_copy *items; /* in the order of the instructions */
} dtp_shared_copies;

/* Where nodes come from: the program's graph, or the small graph that an op decomposes into. */
typedef struct dtp_lower_env {
    dtp_program *p;
    const dtp_graph *graph;
    bool scratch;         /* graph is a decomposition: its tensors are not the program's */
    dtp_node_id node;     /* scratch: the program's node that is decomposed */
    dtp_phase phase;      /* scratch: its phase */
    const bool *survives; /* by tensor id: needed after the step; NULL = none is */
    int32_t depth;        /* of decompositions */
    const bool *forgets;  /* by tensor: copies are not read in later phases; NULL: none is */
    dtp_value_id since;   /* first value of this phase: copies made before it of what `forgets` says
                             are not read again, so that a gathered one need not live from the
                             forward to the backward pass; nor other copies by a recomputation */
    dtp_value_id inside;  /* scratch: first value of the decomposition */
    bool replicas;        /* the sharding has replicas: an operand that is not in the layout the
                             strategy asks for is always redistributed from where it is read, and
                             strategies split one dim over several mesh dims in mesh order */
    bool alone; /* operands are redistributed for each node anew (dtp_lower_options.plain) */
    dtp_shared_copies *shared;  /* notes copies that nodes share; NULL: not recorded */
    dtp_redistributions *found; /* notes the redistributions outside ops; NULL: not recorded */
} dtp_lower_env;

typedef struct dtp_lower_request {
    const dtp_strategy *strategy;
    const dtp_value_id *in;        /* the operands as they are */
    const dtp_layout *out_layouts; /* where the outputs should end up; NULL: `wanted` is 0 */
    uint32_t wanted; /* bit i: output i is brought there; else it stays as the op leaves it */
} dtp_lower_request;

/* Notes a redistribution of a node's operand (-1: of an output) that is not the same layout. */
dtp_status dtp_lower__note(const dtp_lower_env *env, dtp_node_id node, int32_t operand,
                           dtp_tensor_id tensor, const dtp_layout *from, const dtp_layout *to,
                           dtp_err *err) DTP_MUST_CHECK;

/* Notes that a node does not redistribute a value, since another one has; inside a decomposition
 * once, as it would share its own copy there. shared NULL: not recorded. */
dtp_status dtp_lower__note_shared(dtp_shared_copies *shared, const dtp_shared_copy *now,
                                  dtp_err *err) DTP_MUST_CHECK;

/* Of a sharding with replicas: whether a later phase may read a copy instead of `from`, its tensor
 * or the replica of the phase. Not one that is smaller than these, nor the tensor itself instead of
 * a replica: they would end earlier than problems count them. */
bool dtp_lower__may_keep(const dtp_lower_env *env, dtp_value_id copy, dtp_value_id from);

/* Brings to the operands of a node, which are in its layouts, what it reads of them by windows;
 * `call` has global types. */
dtp_status dtp_lower__ranges(const dtp_lower_env *env, dtp_node_id node, dtp_phase phase,
                             const dtp_op_call *call, const dtp_node_layouts *layouts,
                             dtp_value_id *in, dtp_err *err) DTP_MUST_CHECK;

/* By how many places the pieces of its operand go on in a node that does no more than that, over
 * *set; 0: it does something else. Of operands in its layouts. */
int32_t dtp_lower__passed_on(const dtp_lower_env *env, const dtp_op_call *call,
                             const dtp_node_layouts *layouts, dtp_mesh_set *set);

/* Lowers one node of env->graph; out (room for its outputs) receives the final values. */
dtp_status dtp_lower__node(const dtp_lower_env *env, dtp_node_id node, const dtp_lower_request *r,
                           dtp_value_id *out, dtp_err *err) DTP_MUST_CHECK;

/* The same for a node whose op runs as its decomposition; `in` are operands in the layouts of
 * `layouts`, out receives values in whatever layouts the decomposition leaves. */
dtp_status dtp_lower__decomposed(const dtp_lower_env *env, dtp_node_id node,
                                 const dtp_node_layouts *layouts, const dtp_value_id *in,
                                 dtp_value_id *out, dtp_err *err) DTP_MUST_CHECK;

#endif
