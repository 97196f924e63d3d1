/* A call of an op on distributed tensors in the one form that everything below the public functions
 * uses: dims are labels 0, 1, ... of the call, attributes are those of the op. It is compiled
 * (call.c), recorded and turned into graph nodes (tape.c). */
#ifndef DTP_DTENSOR_CANONICAL_CALL_H
#define DTP_DTENSOR_CANONICAL_CALL_H

#include "core/graph/graph.h"
#include "dtensor/internal.h"

enum { DTP_CALL_MAX_ATTRS = 24, DTP_CALL_MAX_IDS = 24, DTP_CALL_MAX_LABELS = 32 };

typedef struct dtp_canonical_call {
    const dtp_op_def *op;
    int32_t n_in, n_labels, n_attrs, n_ids;
    dtp_tensor in[DTP_MAX_OP_IN];
    dtp_ttype types[DTP_MAX_OP_IN];  /* dim ids are labels; -1: a dim of size 1 that is dropped */
    char names[DTP_CALL_MAX_LABELS]; /* one letter for each label */
    const char *function; /* by which the caller made the call, for messages; its letters are not
                             the caller's then. NULL: dtp_tensor_call */
    bool has_out;
    int32_t out_rank;
    dtp_tdim out[DTP_MAX_RANK];
    dtp_attr attrs[DTP_CALL_MAX_ATTRS]; /* only those given; `ids` of DIMS is set by fix_ids */
    int32_t first_id[DTP_CALL_MAX_ATTRS];
    dtp_dim_id ids[DTP_CALL_MAX_IDS];
    const dtp_layout *wanted; /* of output 0; NULL: free. Borrowed */
    int64_t step;             /* that the kernels see: of the optimizer, else 0 */
    double lr_scale;          /* likewise, else 1 */
} dtp_canonical_call;

/* Points the attributes into c->ids; after copying a call. */
void dtp_canonical__fix_ids(dtp_canonical_call *c);

/* Adds an id to c->ids. */
dtp_status dtp_canonical__add_id(dtp_canonical_call *c, dtp_dim_id id, dtp_err *err) DTP_MUST_CHECK;
enum { DTP_LABEL_BYTES = 40 };
/* What messages call a label: the caller's letter, else its place: "1" of the only operand, "1 of
 * operand 0" of the first of several that has it, "1 of the result". */
void dtp_canonical__label_name(const dtp_canonical_call *c, int32_t label,
                               char out[DTP_LABEL_BYTES]);
/* Size of a label in the operands, 0 when none has it. */
int64_t dtp_canonical__label_size(const dtp_canonical_call *c, int32_t label);

/* Reads a public call (canonical_read.c): letters to labels, arguments to attributes. `function`:
 * see dtp_canonical_call. */
dtp_status dtp_canonical__read(const dtp_call *call, const char *function, dtp_canonical_call *out,
                               dtp_err *err) DTP_MUST_CHECK;
/* A node of a graph, applied to tensors. */
dtp_status dtp_canonical__of_node(const dtp_graph *g, const dtp_node *node, const dtp_tensor *in,
                                  dtp_canonical_call *out, dtp_err *err) DTP_MUST_CHECK;

/* Appends the call to a graph: dims are named `prefix` and the label's letter; an operand whose
 * dims are named otherwise is relabelled first. */
dtp_status dtp_canonical__add(const dtp_canonical_call *c, dtp_graph *g, const char *prefix,
                              const dtp_tensor_id *in, dtp_tensor_id *outs,
                              dtp_err *err) DTP_MUST_CHECK;

/* dtp_tensor_call for a function by name. */
dtp_status dtp_canonical__call(const dtp_call *call, const char *function, dtp_tensor *outs,
                               dtp_err *err) DTP_MUST_CHECK;
/* Runs it: compiled at the first time. Does not record. */
dtp_status dtp_canonical__run(dtp_canonical_call *c, dtp_tensor *outs, dtp_err *err) DTP_MUST_CHECK;

/* ---- recording (tape.c) ---- */

/* Notes a call that was run (NULL: a redistribution), when a tape is on and an operand depends on a
 * watched tensor. */
dtp_status dtp_tape__record(dtp_tape *tape, const dtp_canonical_call *call, int32_t n_in,
                            const dtp_tensor *in, int32_t n_out, const dtp_tensor *out,
                            dtp_err *err) DTP_MUST_CHECK;
/* Before a variable gets the contents of `value`; nothing when it is not watched. */
dtp_status dtp_tape__record_assign(dtp_tensor variable, dtp_tensor value,
                                   dtp_err *err) DTP_MUST_CHECK;

#endif
