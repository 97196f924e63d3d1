/* Writing nodes of the model: names, operands whose dims have to be given other names first. */
#ifndef DTP_INTEROP_IMPORT_PROGRAM_LOWER_H
#define DTP_INTEROP_IMPORT_PROGRAM_LOWER_H

#include "interop/import/program/importer.h"

enum { DTP_MOST_GROUPS = 32 };

/* The dims that the operands of one node have in common: a group is one dim of the node. */
typedef struct dtp_groups {
    int32_t n;
    int32_t cls[DTP_MOST_GROUPS];
    int8_t alias[DTP_MOST_GROUPS]; /* -1: no operand has it */
} dtp_groups;

typedef struct dtp_use {
    int32_t value;
    int32_t n;
    int8_t group[DTP_FLAT_PARTS]; /* of the parts of the value's axes */
    const char *id;               /* the tensor to read, after dtp_settle */
    bool whole;                   /* dtp_whole_use made it: all dims, in the order of the axes */
} dtp_use;

/* New groups for the parts of axis `axis` of a value; *first is the first of them. */
dtp_status dtp_groups_add(dtp_importer *m, dtp_groups *groups, int32_t value, int32_t axis,
                          int32_t *first, dtp_err *err) DTP_MUST_CHECK;
/* For each axis of the value the first of its groups, in `firsts`; -1: an axis without parts. */
dtp_status dtp_use_make(dtp_importer *m, int32_t value, const int32_t *firsts, dtp_use *out,
                        dtp_err *err) DTP_MUST_CHECK;
/* Gives a group a name: the wanted one, or one that no other group of its class has; a group that
 * has a name keeps it. */
void dtp_name_group(dtp_groups *groups, int32_t group, int8_t wanted);
/* Gives every group a name that no other group of the node has, and relabels operands that have
 * others. */
dtp_status dtp_settle(dtp_importer *m, const dtp_aten_node *node, int32_t n, dtp_use *uses,
                      dtp_groups *groups, dtp_err *err) DTP_MUST_CHECK;
/* Repeats an operand over the groups that it lacks, and brings its dims into the order of the axes.
 */
dtp_status dtp_whole_use(dtp_importer *m, const dtp_aten_node *node, dtp_use *use,
                         dtp_groups *groups, dtp_err *err) DTP_MUST_CHECK;

/* A node named after the module and `what`; `out`: dims or NULL. *id is its name. */
dtp_status dtp_emit(dtp_importer *m, const dtp_aten_node *node, const char *what, const char *op,
                    int32_t n_in, const char *const *in, const char *out, const char *attrs,
                    const char **id, dtp_err *err) DTP_MUST_CHECK;
/* The same for a node of settled operands whose result is the value `out`, with the groups of
 * firsts[axis] that `use` or any operand has. */
dtp_status dtp_emit_value(dtp_importer *m, const dtp_aten_node *node, const char *op, int32_t n,
                          const dtp_use *uses, const dtp_groups *groups, int32_t out,
                          const int32_t *firsts, const char *attrs, dtp_err *err) DTP_MUST_CHECK;

/* "a,b" of the parts of a value that its tensor has. */
const char *dtp_low_dims(dtp_importer *m, const dtp_low *low);
/* Names of groups first .. first+n-1 joined by `by`. */
const char *dtp_group_names(dtp_importer *m, const dtp_groups *groups, int32_t first, int32_t n,
                            const char *by);
/* How many parts an axis has. */
int32_t dtp_axis_parts(const dtp_importer *m, int32_t value, int32_t axis);
/* Number of elements of an axis as an expression over dims: "heads*d_head", "1". */
const char *dtp_axis_size(dtp_importer *m, int32_t value, int32_t axis);

/* The tensor of a value: of inputs, parameters and constants it is made now. */
dtp_status dtp_low_get(dtp_importer *m, const dtp_aten_node *node, int32_t value,
                       const dtp_low **out, dtp_err *err) DTP_MUST_CHECK;
/* A value that is the operand's tensor with the parts in the order of `from` (of the operand's
 * axes); -1: an axis that the tensor lacks; NULL: all of them in their order. */
dtp_status dtp_low_view(dtp_importer *m, const dtp_aten_node *node, int32_t value, int32_t out,
                        const int32_t *from, dtp_err *err) DTP_MUST_CHECK;

const char *dtp_type_name(int32_t dtype); /* NULL: none of ours */

#endif
