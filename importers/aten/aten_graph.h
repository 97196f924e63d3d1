/* A program of ATen ops, as torch.export writes it: values, and nodes in the order in which they
 * run. Everything is from the arena of dtp_aten. */
#ifndef DTP_IMPORTERS_ATEN_ATEN_GRAPH_H
#define DTP_IMPORTERS_ATEN_ATEN_GRAPH_H

#include "core/base/arena.h"
#include "dtp/layout.h"
#include "importers/files/name_table.h"

/* torch's numbers of element types (c10::ScalarType + 1, as the schema has them). */
enum dtp_aten_dtype {
    ATEN_U8 = 1,
    ATEN_I8 = 2,
    ATEN_I16 = 3,
    ATEN_I32 = 4,
    ATEN_I64 = 5,
    ATEN_F16 = 6,
    ATEN_F32 = 7,
    ATEN_F64 = 8,
    ATEN_BOOL = 12,
    ATEN_BF16 = 13
};

typedef enum dtp_aten_role {
    ATEN_NODE,
    ATEN_INPUT,
    ATEN_PARAM,
    ATEN_BUFFER,
    ATEN_CONST /* found to be one that can be written down: its node is not needed */
} dtp_aten_role;

typedef struct dtp_aten_value {
    const char *name;   /* of the graph */
    const char *source; /* parameters and buffers: the name in the module */
    const char *id;     /* parameters: the name in the model, if it is another one; NULL */
    dtp_aten_role role;
    bool guessed; /* the name is made up after the module that reads it */
    bool turned;  /* the module has it with its two axes the other way round */
    bool frozen;  /* parameters: no gradient is wanted of it (requires_grad=False) */
    int32_t dtype;
    int32_t rank;
    int64_t sizes[DTP_MAX_RANK];
    const char *symbols[DTP_MAX_RANK]; /* name of a size that is not fixed; NULL */
    const char *sympy[DTP_MAX_RANK];   /* the expression of such a size (sym_expr.h); NULL */
    int32_t node;                      /* that makes it; -1 */
    const char *data; /* elements, row by row, in `bytes` bytes; NULL: not in the file */
    int64_t bytes;
    int32_t update; /* of a buffer: the value that replaces it after a step; 0: none does */
    bool table; /* PARAM: numbers that nothing trains, a buffer or a constant that was computed */
    int32_t stored; /* of a table: the element type of `data` */
    uint32_t same;  /* of a table: bits of the axes along which it is the same; `data` lacks them */
} dtp_aten_value;

typedef enum dtp_aten_kind {
    ATEN_NONE,
    ATEN_VALUE,  /* values[0] */
    ATEN_VALUES, /* n of them, -1: None */
    ATEN_INT,
    ATEN_FLOAT,
    ATEN_BOOLEAN,
    ATEN_TEXT,
    ATEN_INTS,  /* n of them */
    ATEN_REALS, /* n of them */
    ATEN_OTHER  /* none of these: a device, a memory format, .. */
} dtp_aten_kind;

typedef struct dtp_aten_arg {
    const char *name;
    dtp_aten_kind kind;
    int32_t n;
    int32_t *values;
    int64_t *ints; /* also ints[0] of an INT or BOOLEAN; symbolic sizes by their example */
    double real;   /* of FLOAT and INT */
    const char *text;
    double *reals;
    const char
        *sympy; /* of a number, and of the first such one of a list: the expression over sizes
                          of which `real` and `ints` are an example (sym_expr.h); NULL: a number */
} dtp_aten_arg;

typedef struct dtp_aten_node {
    const char *op; /* "aten.linear.default"; those of patterns begin with "dtp." */
    int32_t n_args, n_outs;
    dtp_aten_arg *args;
    int32_t *outs;       /* values; -1: not a tensor */
    const char *path;    /* of the module: "layers.3.attn"; "" */
    const char *where;   /* the innermost source line, "" */
    bool windowed;       /* it reads what was made by windows of an image */
    bool live, effect;   /* an output needs it; it changes a tensor that others may read */
    const char *refused; /* the argument because of which it was not written anew; NULL */
} dtp_aten_node;

typedef struct dtp_aten {
    dtp_arena *arena;
    const char *file;
    int32_t n_values, n_nodes, n_inputs, n_outputs;
    int32_t values_capacity;
    dtp_aten_value *values;
    dtp_aten_node *nodes;
    int32_t *inputs;        /* parameters, buffers and what is fed, in their order */
    int32_t *outputs;       /* those of users */
    dtp_name_table sources; /* inputs and parameters by their names */
} dtp_aten;

/* Bytes of an element and our name of its type: 0 of types not named above, NULL of those that are
 * none of ours. */
int64_t dtp_aten_bytes(int32_t dtype);
const char *dtp_aten_type(int32_t dtype);

static inline bool dtp_aten_real_type(int32_t dtype)
{
    return dtype == ATEN_F16 || dtype == ATEN_F32 || dtype == ATEN_F64 || dtype == ATEN_BF16;
}

/* The type to which both convert; of two of one kind (truths, integers, floats) the wider one if
 * they are `equal` in rank, else the first. -1: none yet. */
int32_t dtp_aten_promote(int32_t a, int32_t b, bool equal);

/* Reads FILE.pt2: schema 8 only. Data of weights and buffers stays in `bytes`. */
dtp_status dtp_aten_read(const char *file, const char *bytes, int64_t size, dtp_arena *arena,
                         dtp_aten *out, dtp_err *err) DTP_MUST_CHECK;

/* NULL when a node has no such argument, or None there. */
const dtp_aten_arg *dtp_aten_arg_of(const dtp_aten_node *node, const char *name);
/* The value of a tensor argument, -1 when it is absent; *fallback* for the others. */
int32_t dtp_aten_operand(const dtp_aten_node *node, const char *name);
/* The value of argument i, -1 when it is no tensor, or there is no node. */
static inline int32_t dtp_aten_input(const dtp_aten_node *node, int32_t i)
{
    return node != NULL && i < node->n_args && node->args[i].kind == ATEN_VALUE
               ? node->args[i].values[0]
               : -1;
}
/* How many of a->values are tensors, or None (-1). */
static inline int32_t dtp_aten_tensors(const dtp_aten_arg *a)
{
    return a->kind == ATEN_VALUE || a->kind == ATEN_VALUES ? a->n : 0;
}
int64_t dtp_aten_int(const dtp_aten_node *node, const char *name, int64_t fallback);
double dtp_aten_real(const dtp_aten_node *node, const char *name, double fallback);
/* Whether an argument of integers is absent, or each of them is `is`. */
bool dtp_aten_all_are(const dtp_aten_node *node, const char *name, int64_t is);

/* Marks the nodes that outputs need and those with an effect, and no others. */
void dtp_aten_mark(dtp_aten *g);

/* An axis counted from the end when negative; -1 when it is not within the rank. */
static inline int32_t dtp_aten_axis(int64_t axis, int32_t rank)
{
    axis += axis < 0 ? rank : 0;
    return axis < 0 || axis >= rank ? -1 : (int32_t)axis;
}

/* Whether it is the op "aten.NAME", of any overload; a pattern by its whole name, "dtp.rope". */
bool dtp_aten_is(const dtp_aten_node *node, const char *name);
/* The axis of operand 0 that axis i of the output is, of permute, transpose, t and expand; -1:
 * none, or one that is repeated. */
int32_t dtp_aten_from(const dtp_aten *g, const dtp_aten_node *node, int32_t i);
/* Whether a reduction is over the axis. */
bool dtp_aten_reduces(const dtp_aten *g, const dtp_aten_node *node, int32_t axis);

#endif
