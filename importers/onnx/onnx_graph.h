/* A program of ATen ops that is made node by node from an .onnx file. Sizes are found on the way,
 * since files need not say them; what depends on constants alone is evaluated. */
#ifndef DTP_IMPORTERS_ONNX_ONNX_GRAPH_H
#define DTP_IMPORTERS_ONNX_ONNX_GRAPH_H

#include <math.h>

#include "importers/aten/aten_const.h"
#include "importers/onnx/onnx_file.h"

typedef struct dtp_onnx_op dtp_onnx_op;

typedef struct dtp_onnx_graph {
    dtp_aten *g;
    const dtp_onnx *file;
    dtp_const_folder fold;
    dtp_name_table names;   /* of the file, of values */
    dtp_name_table symbols; /* of sizes, with the number in their place */
    dtp_name_table reads;   /* "VALUE PATH": what is read there in the place of a weight */
    dtp_name_table guessed; /* names of weights, and whether after a module */
    int32_t nodes_capacity, inputs_capacity;
    int32_t apart; /* weights that are read in several modules, and are one for each */
    /* the node that is read */
    const dtp_onnx_node *n;
    const char *path; /* of its module */
    const dtp_onnx_op *op;
    int32_t *in, *out; /* values of its operands and results; -1 */
    dtp_shape x, s;    /* of operand 0, and what the result's is made from */
} dtp_onnx_graph;

#define ARG_T(arg, v)                                                                              \
    {                                                                                              \
        .name = arg, .kind = (v) < 0 ? ATEN_NONE : ATEN_VALUE, .n = 1, .values = (int32_t[])       \
        {                                                                                          \
            v                                                                                      \
        }                                                                                          \
    }
#define ARG_VALUES(arg, count, of)                                                                 \
    {                                                                                              \
        .name = arg, .kind = ATEN_VALUES, .n = count, .values = of                                 \
    }
#define ARG_I(arg, x)                                                                              \
    {                                                                                              \
        .name = arg, .kind = ATEN_INT, .n = 1, .ints = (int64_t[])                                 \
        {                                                                                          \
            x                                                                                      \
        }                                                                                          \
    }
#define ARG_B(arg, x)                                                                              \
    {                                                                                              \
        .name = arg, .kind = ATEN_BOOLEAN, .n = 1, .ints = (int64_t[])                             \
        {                                                                                          \
            x                                                                                      \
        }                                                                                          \
    }
#define ARG_R(arg, x)                                                                              \
    {                                                                                              \
        .name = arg, .kind = isnan(x) ? ATEN_NONE : ATEN_FLOAT, .real = x                          \
    }
#define ARG_L(arg, count, of)                                                                      \
    {                                                                                              \
        .name = arg, .kind = ATEN_INTS, .n = count, .ints = of                                     \
    }
#define ARG_TEXT(arg, said)                                                                        \
    {                                                                                              \
        .name = arg, .kind = ATEN_TEXT, .text = said                                               \
    }

/* A node of ATen over args, which are copied, whose results are *out, n_out of them. It moves
 * g->values and g->nodes. */
dtp_status dtp_onnx_emit(dtp_onnx_graph *o, const char *op, int32_t n, const dtp_aten_arg *args,
                         int32_t n_out, const dtp_shape *shapes, int32_t *out,
                         dtp_err *err) DTP_MUST_CHECK;
#define EMIT(o, op, shape, out, err, ...)                                                          \
    dtp_onnx_emit((o), (op),                                                                       \
                  (int32_t)(sizeof((dtp_aten_arg[]){__VA_ARGS__}) / sizeof(dtp_aten_arg)),         \
                  (dtp_aten_arg[]){__VA_ARGS__}, 1, (shape), (out), (err))

/* A value that no node makes yet, among the inputs when it is one. DTP_INVALID: its sizes. */
dtp_status dtp_onnx_value(dtp_onnx_graph *o, const char *name, dtp_aten_role role,
                          const dtp_shape *shape, int32_t *out, dtp_err *err) DTP_MUST_CHECK;
/* A constant with elements of its own. */
dtp_status dtp_onnx_constant(dtp_onnx_graph *o, const dtp_shape *shape, const void *data,
                             int32_t *out, dtp_err *err) DTP_MUST_CHECK;
/* No axes of no type where there is no value (-1). */
dtp_shape dtp_onnx_shape(const dtp_onnx_graph *o, int32_t value);
/* The node that makes a value when it is of this op; NULL. */
const dtp_aten_node *dtp_onnx_maker(const dtp_onnx_graph *o, int32_t value, const char *op);
/* A value that is one number everywhere; NaN. */
static inline double dtp_onnx_number(const dtp_onnx_graph *o, int32_t value)
{
    const dtp_const *c = &o->fold.c[value];
    return c->kind == DTP_CONST_UNIFORM ? c->low : (double)NAN;
}

/* ---- what the node says ---- */

/* An attribute; without a name: there is none. */
const dtp_onnx_attr *dtp_onnx_attr_of(const dtp_onnx_graph *o, const char *name);
int64_t dtp_onnx_int(const dtp_onnx_graph *o, const char *name, int64_t fallback);
double dtp_onnx_real(const dtp_onnx_graph *o, const char *name, double fallback);
/* A list of integers: of operand i, which must be a constant, else of the attribute; *n is -1 when
 * there is neither. DTP_UNSUPPORTED. */
dtp_status dtp_onnx_ints(const dtp_onnx_graph *o, int32_t i, const char *name, int32_t *n,
                         int64_t **out, dtp_err *err) DTP_MUST_CHECK;
/* An axis counted from the end when negative. DTP_INVALID. */
dtp_status dtp_onnx_axis(int64_t axis, int32_t rank, int32_t *out, dtp_err *err) DTP_MUST_CHECK;
/* o->s has the sizes that operand i gives. DTP_UNSUPPORTED. */
dtp_status dtp_onnx_sizes(dtp_onnx_graph *o, int32_t i, dtp_err *err) DTP_MUST_CHECK;
/* Bits of the axes that operand 1 or the attribute "axes" names. DTP_INVALID. */
dtp_status dtp_onnx_axes(const dtp_onnx_graph *o, int32_t rank, uint32_t *set,
                         dtp_err *err) DTP_MUST_CHECK;
/* A tensor of one element that is known. */
bool dtp_onnx_is_number(const dtp_onnx_graph *o, int32_t v);
/* Sizes of *s and of b together. DTP_INVALID. */
dtp_status dtp_onnx_broadcast(dtp_shape *s, const dtp_shape *b, dtp_err *err) DTP_MUST_CHECK;
/* The value x with its axes in the order of perm. DTP_INVALID. */
dtp_status dtp_onnx_permute(dtp_onnx_graph *o, int32_t x, int64_t *perm, int32_t *out,
                            dtp_err *err) DTP_MUST_CHECK;
static inline dtp_status dtp_onnx_unsupported(const char *what, dtp_err *err)
{
    return DTP_FAIL(err, DTP_UNSUPPORTED, "%s", what);
}

#endif
