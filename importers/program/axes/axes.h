/* Named dims of a graph whose axes have none: an axis is a list of classes, the outermost first,
 * and what two axes share is found by unification. A view that splits an axis splits its class,
 * everywhere; one that merges axes puts their classes into one list. An axis of size 1 has the
 * empty list: broadcasting is by name. Sizes are those of the export; no name depends on them but
 * to say how a view splits an axis. */
#ifndef DTP_IMPORTERS_PROGRAM_AXES_AXES_H
#define DTP_IMPORTERS_PROGRAM_AXES_AXES_H

#include "importers/aten/const_kinds.h"

enum { DTP_AXIS_PARTS = 8, DTP_FLAT_PARTS = 16 };

typedef struct dtp_axis {
    int32_t n;
    int32_t cls[DTP_AXIS_PARTS];
} dtp_axis;

typedef struct dtp_class {
    int32_t parent;       /* itself: a root */
    int32_t outer, inner; /* of a root that was split; -1 */
    int64_t size;
    int32_t base; /* its size is that of another class plus `more`; -1 */
    int64_t more;
    const char *origin; /* where it was first seen: "layers.*.fc1.weight.0" */
    const char *name;   /* of the dim, once given */
    int32_t aliases;    /* further names: the same dim twice in one tensor */
    int32_t others;     /* classes named after this one */
    bool used, pieces;  /* named in the model; counts the pieces of a split */
} dtp_class;

typedef struct dtp_axes {
    dtp_arena *arena;
    const dtp_aten *g;
    const dtp_const *consts;
    int32_t n, capacity;
    dtp_class *cls;
    dtp_name_table names;         /* of classes */
    dtp_axis (*of)[DTP_MAX_RANK]; /* by value */
} dtp_axes;

int32_t dtp_class_root(const dtp_axes *x, int32_t c);
/* A class of its own. DTP_NOMEM. */
dtp_status dtp_class_new(dtp_axes *x, int64_t size, const char *origin, int32_t *out,
                         dtp_err *err) DTP_MUST_CHECK;
/* Unifies two classes of one size. */
dtp_status dtp_class_unify(dtp_axes *x, int32_t a, int32_t b, dtp_err *err) DTP_MUST_CHECK;
/* Unifies two lists of one product: splits where one boundary lies within a class. DTP_UNSUPPORTED
 * when they have no common factors. */
dtp_status dtp_axis_unify(dtp_axes *x, const dtp_axis *a, const dtp_axis *b,
                          dtp_err *err) DTP_MUST_CHECK;
/* Row-major reshape: the classes of n axes as axes of other sizes. */
dtp_status dtp_axes_regroup(dtp_axes *x, int32_t n, const dtp_axis *from, int32_t n_to,
                            const int64_t *sizes, dtp_axis *to, dtp_err *err) DTP_MUST_CHECK;
/* The unsplit classes of an axis; of n axes one after another. Returns how many; -1: above `most`.
 */
int32_t dtp_axis_leaves(const dtp_axes *x, int32_t n, const dtp_axis *axes, int32_t *out,
                        int32_t most);

/* The class of an axis that is one part; -1. */
int32_t dtp_axis_one(const dtp_axes *x, const dtp_axis *axis);

/* A fresh axis: no class when the size is 1. */
dtp_status dtp_axis_new(dtp_axes *x, int64_t size, const char *origin, dtp_axis *out,
                        dtp_err *err) DTP_MUST_CHECK;

#endif
