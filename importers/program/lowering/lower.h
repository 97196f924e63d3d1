/* Writing nodes of the model. An op is lowered in steps: groups for the dims of the node, operands
 * over them (dtp_use_add), tensors whose names agree (dtp_settle), the node (dtp_emit_value). */
#ifndef DTP_IMPORTERS_PROGRAM_LOWERING_LOWER_H
#define DTP_IMPORTERS_PROGRAM_LOWERING_LOWER_H

#include "importers/program/lowering/importer.h"

enum { DTP_MOST_GROUPS = 32 };

/* The dims that the operands of one node have in common: a group is one dim of the node. */
typedef struct dtp_groups {
    int32_t n;
    int32_t cls[DTP_MOST_GROUPS];
    int8_t alias[DTP_MOST_GROUPS]; /* -1: no operand has it */
} dtp_groups;

typedef struct dtp_use {
    int32_t value; /* -1: a tensor that stands for none, `id` */
    int32_t n;
    int8_t group[DTP_FLAT_PARTS]; /* of the parts of the value's axes */
    const char *id;               /* the tensor to read; NULL before dtp_settle */
    bool whole;                   /* dtp_whole made it: all dims, in the order of the axes */
} dtp_use;

/* A node that is lowered. */
struct dtp_lowering {
    dtp_importer *m;
    const dtp_aten_node *node;
    const dtp_aten_op *op;
    const char *what; /* names what is made, in place of the op; NULL */
    int32_t x, out;   /* the first operand, -1 when it is a list; the value that is made */
    dtp_groups groups;
    int32_t n;
    dtp_use uses[DTP_MOST_OPERANDS];
    int32_t firsts[DTP_MAX_RANK]; /* of the axes of `out`: the first group; -1: it has no parts */
};

static inline const dtp_aten_value *dtp_value_of(const dtp_lowering *l, int32_t value)
{
    return &l->m->g->values[value];
}

/* The node made for `value`, with no operands yet. */
dtp_lowering dtp_lowering_of(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                             int32_t value);
/* New groups for the parts of axis `axis` of a value; *first is the first of them. */
dtp_status dtp_groups_add(dtp_lowering *l, int32_t value, int32_t axis, int32_t *first,
                          dtp_err *err) DTP_MUST_CHECK;
/* The same for all axes. */
dtp_status dtp_groups_of(dtp_lowering *l, int32_t value, int32_t *firsts,
                         dtp_err *err) DTP_MUST_CHECK;
/* A further operand; for each axis of the value the first of its groups. */
dtp_status dtp_use_add(dtp_lowering *l, int32_t value, const int32_t *firsts,
                       dtp_err *err) DTP_MUST_CHECK;
/* Gives a group a name: the wanted one, or one that no other group of its class has; a group that
 * has a name keeps it. */
void dtp_name_group(dtp_groups *groups, int32_t group, int8_t wanted);
/* Tensors of the operands that have none yet: every group gets a name that no other group of the
 * node has, and operands that have others are relabelled. */
dtp_status dtp_settle(dtp_lowering *l, dtp_err *err) DTP_MUST_CHECK;
/* Repeats an operand over the groups that it lacks, and brings its dims into the order of the axes.
 */
dtp_status dtp_whole(dtp_lowering *l, dtp_use *use, dtp_err *err) DTP_MUST_CHECK;
/* Whether an axis of two values has the same dims. */
bool dtp_same_axis(const dtp_importer *m, int32_t a, int32_t b, int32_t axis);
/* Groups of all axes of the result but one, which has its own; -1: of all. */
dtp_status dtp_groups_but(dtp_lowering *l, int32_t axis, dtp_err *err) DTP_MUST_CHECK;
/* An axis that is cut, put together or one of several parts is the dim "piece" meanwhile: layout
 * rules speak of the dims before and behind it, whose sizes are those that are declared. */
#define DTP_PIECE "piece"
/* The value as a tensor in which axis `axis` is the dim "piece"; one that lacks a dim is repeated
 * over it. The other dims are those of `firsts`. */
dtp_status dtp_one_dim(dtp_lowering *l, int32_t value, int32_t axis, const int32_t *firsts,
                       const char **id, dtp_err *err) DTP_MUST_CHECK;
/* l->out from a tensor whose axis `axis` is the dim "piece"; -1: none is. */
dtp_status dtp_from_piece(dtp_lowering *l, const char *id, int32_t axis,
                          dtp_err *err) DTP_MUST_CHECK;
/* x as the only operand, settled, with groups of its own, which are those of `out`. */
dtp_status dtp_only_operand(dtp_lowering *l, dtp_err *err) DTP_MUST_CHECK;

/* A name as models may have it, from the arena; NULL without memory. */
char *dtp_shorter(const dtp_importer *m, const char *name);
/* A node named after the module and o->id. *id is its name. */
dtp_status dtp_emit(dtp_lowering *l, const dtp_out_node *o, const char **id,
                    dtp_err *err) DTP_MUST_CHECK;
/* A node over the tensor *id, which becomes its result. */
dtp_status dtp_emit_one(dtp_lowering *l, const char *what, const char *op, const char **id,
                        const char *out, const char *attrs, dtp_err *err) DTP_MUST_CHECK;
/* One number over dims; infinities become the largest numbers. */
dtp_status dtp_emit_number(dtp_lowering *l, double x, int32_t dtype, const char *dims,
                           const char **id, dtp_err *err) DTP_MUST_CHECK;
/* The same of an argument: a number, or one that is made of sizes. */
dtp_status dtp_emit_argument(dtp_lowering *l, const dtp_aten_arg *arg, int32_t dtype,
                             const char **id, dtp_err *err) DTP_MUST_CHECK;
/* "\"factor\": 0.5" of an argument, or "\"factor\": \"length^-0.5\"", or of 1 by it. A number that
 * is not finite is DTP_UNSUPPORTED. */
dtp_status dtp_number_attr(dtp_lowering *l, const char *key, const dtp_aten_arg *arg, bool inverse,
                           const char **out, dtp_err *err) DTP_MUST_CHECK;
/* The node of the operands, settled, whose result is l->out. */
dtp_status dtp_emit_value(dtp_lowering *l, const char *op, const char *attrs,
                          dtp_err *err) DTP_MUST_CHECK;

/* After the last node: what tables are read at is below their sizes where its elements come from,
 * too: before nodes whose ops move elements (DTP_OP_MOVES). */
void dtp_carry_bounds(dtp_importer *m);

/* Texts from the arena, NULL without memory. */
const char *dtp_joined(dtp_importer *m, const char *text, const char *by, const char *more);
const char *dtp_real_attr(dtp_importer *m, const char *key, double x);
/* Names of groups first .. first+n-1. */
const char *dtp_group_names(dtp_lowering *l, int32_t first, int32_t n, const char *by);
const char *dtp_group_name(dtp_lowering *l, int32_t group);
/* Number of elements of an axis as an expression over dims: "heads*d_head", "1". */
const char *dtp_axis_size(dtp_importer *m, int32_t value, int32_t axis);
/* "\"dtype\": \"f32\"". DTP_UNSUPPORTED. */
dtp_status dtp_type_attr(dtp_importer *m, int32_t dtype, const char **out,
                         dtp_err *err) DTP_MUST_CHECK;

/* How many parts an axis has. */
int32_t dtp_axis_parts(const dtp_importer *m, int32_t value, int32_t axis);
/* The tensor of a value: of inputs, parameters and constants it is made now. */
dtp_status dtp_low_get(dtp_lowering *l, int32_t value, const dtp_low **out,
                       dtp_err *err) DTP_MUST_CHECK;
/* Names of its dims, "a,b". */
const char *dtp_low_dims(dtp_importer *m, const dtp_low *low);
/* Whether a name would be that of an input in a block: "layers.0.mask" of the input "mask". */
bool dtp_hides_input(const dtp_importer *m, const char *id);
/* It has all parts, in the order of the axes. */
bool dtp_low_is_whole(const dtp_low *low);
/* l->out is the tensor of l->x with the parts in the order of `from` (of the operand's axes); -1:
 * an axis that the tensor lacks; NULL: all of them in their order. */
dtp_status dtp_low_view(dtp_lowering *l, const int32_t *from, dtp_err *err) DTP_MUST_CHECK;

#endif
