/* Elements of constants: what the evaluation of each op (aten_const.c) is written with. */
#ifndef DTP_INTEROP_IMPORT_ATEN_CONST_ELEMENTS_H
#define DTP_INTEROP_IMPORT_ATEN_CONST_ELEMENTS_H

#include "interop/import/aten/aten_const.h"

typedef struct dtp_const_folder {
    const dtp_aten *g;
    dtp_const *c;
    int64_t elements, looked_at; /* in all */
} dtp_const_folder;

/* What a function of one node gets. */
typedef struct dtp_const_work {
    dtp_const_folder *f;
    const dtp_aten_node *node;
    const dtp_aten_value *out; /* of the node */
    dtp_const *to;
    const dtp_const *x; /* operand 0 and its value, NULL of sources */
    const dtp_aten_value *xv;
} dtp_const_work;

/* Room for the elements of the node's output along the axes of `varies`; false above a limit. */
bool dtp_const_room(dtp_const_work *w, uint32_t varies, void **data);
/* Element number `at` of that room, in the type of the output. */
void dtp_const_put(const dtp_const_work *w, void *data, int64_t at, double x);
/* The next index over the axes of `varies`; false behind the last. */
bool dtp_const_step(const dtp_aten_value *v, uint32_t varies, int64_t *index);
int64_t dtp_const_offset(int32_t rank, const int64_t *strides, const int64_t *index);
/* The element of operand 0. */
double dtp_const_x(const dtp_const_work *w, const int64_t *index);
/* The output along the axes of `varies`, each element by a function of its index; false where it
 * has none. */
bool dtp_const_fill(dtp_const_work *w, uint32_t varies,
                    bool (*of)(const dtp_const_work *w, const int64_t *index, double *x));
/* Axes along which nothing changes get the stride 0; then what the constant is. Views of large
 * constants cost no room, but time: after so many elements the others are not known. */
void dtp_const_close(dtp_const_folder *f, const dtp_aten_value *v, dtp_const *c);

#endif
