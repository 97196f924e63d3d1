/* Convolutions. Three tensors stand in one trilinear form,
 *   sum of x[batch, group, in, o stride - before + k dilation] w[group, out, in, k]
 *          y[batch, group, out, o]
 * over the places o of y and k of the kernel that hit an element of x; outside of x is zero.
 * `conv` is its derivative by y, `conv_transpose` by x, `conv_weight` by w: each is a gradient of
 * the two others. Every dim but the spatial ones and those of the kernel is told by who has it, as
 * in einsum: batch x and y; group all three; in x and w; out w and y.
 */
#ifndef DTP_CORE_GRAPH_OPS_CONV_H
#define DTP_CORE_GRAPH_OPS_CONV_H

#include "core/graph/op.h"

enum { DTP_CONV_AXES = 3 }; /* spatial dims, at most */

typedef enum dtp_conv_part { DTP_CONV_X, DTP_CONV_W, DTP_CONV_Y, DTP_CONV_PARTS } dtp_conv_part;

/* Place o of y reads the places o stride - before + k dilation of x, 0 <= k < kernel. */
typedef struct dtp_conv_axis {
    dtp_dim_id spatial, kernel; /* of x and y, and of w */
    int64_t in, size, out;      /* of x, the kernel, y */
    int64_t stride, dilation, before;
} dtp_conv_axis;

typedef struct dtp_conv_form {
    const dtp_ttype *type[DTP_CONV_PARTS]; /* those of the call */
    int32_t at[DTP_CONV_PARTS];            /* operand number, -1: the result */
    int32_t n;
    dtp_conv_axis axis[DTP_CONV_AXES];
} dtp_conv_form;

/* Of a call that inference took, with whole spatial dims; of one with local types only `before` is
 * not right. */
dtp_conv_form dtp_conv_form_of(const dtp_op_call *call);
/* Of what a rank runs: `before` counts from the elements of x and y that the views have. */
dtp_conv_form dtp_conv_form_here(const dtp_kernel_args *args);
/* Is it a spatial dim or one of the kernel? */
bool dtp_conv_has_window(const dtp_conv_form *form, dtp_dim_id d);

/* Elements of x that a window of `size` places, `dilation` apart, reaches over, and places of a
 * window in `in` elements with padding. DTP_RANGE, DTP_INVALID naming dim and values. `padding`:
 * before and after; with `same` they are set, so that there are in / stride places, rounded up. */
typedef struct dtp_window {
    const char *dim; /* for messages */
    int64_t size, stride, dilation;
    int64_t padding[2];
    bool same;
} dtp_window;
dtp_status dtp_window_places(dtp_window *window, int64_t in, int64_t *places,
                             dtp_err *err) DTP_MUST_CHECK;
/* What a piece of the places reads of x, what a piece of x has of places whose windows it is in. */
dtp_dim_window dtp_window_of_x(const dtp_conv_axis *axis);
dtp_dim_window dtp_window_of_places(const dtp_conv_axis *axis);
/* `before` of an axis of the whole tensors, for views that have parts of x and of the places. */
int64_t dtp_window_before(const dtp_conv_axis *axis, const dtp_view *x, const dtp_view *places);
/* Elements of which a window with these places takes all: the size of x in a transposed
 * convolution that does not say it. */
dtp_status dtp_window_reach(const dtp_window *window, int64_t places, int64_t *in,
                            dtp_err *err) DTP_MUST_CHECK;

#endif
