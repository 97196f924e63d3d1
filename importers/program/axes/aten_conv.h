/* Convolutions and pools of ATen in all their forms, read and checked. */
#ifndef DTP_IMPORTERS_PROGRAM_AXES_ATEN_CONV_H
#define DTP_IMPORTERS_PROGRAM_AXES_ATEN_CONV_H

#include "importers/aten/aten_graph.h"

enum { DTP_ATEN_CONV_AXES = 3 };

/* x [batch, channels, spatial..], which may lack the batch, and a weight [out, channels / groups,
 * kernel..]; of a transposed convolution [channels, out / groups, kernel..]. */
typedef struct dtp_aten_conv {
    int32_t x, w, bias; /* values; bias -1: none */
    int32_t n;          /* spatial axes, the last ones */
    int32_t channels;   /* axis of x and of the result */
    bool transposed;
    int64_t groups;
    int64_t stride[DTP_ATEN_CONV_AXES], dilation[DTP_ATEN_CONV_AXES];
    int64_t before[DTP_ATEN_CONV_AXES], after[DTP_ATEN_CONV_AXES]; /* padding */
} dtp_aten_conv;

/* DTP_UNSUPPORTED, DTP_INVALID: sizes that are not those of a convolution. */
dtp_status dtp_aten_conv_of(const dtp_aten *g, const dtp_aten_node *node, dtp_aten_conv *out,
                            dtp_err *err) DTP_MUST_CHECK;

/* The maximum or mean of windows over the last n axes of x. */
typedef struct dtp_aten_pool {
    int32_t x, n;
    bool max, inside; /* a mean divides by the elements that a window has, else by its size */
    int64_t size[DTP_ATEN_CONV_AXES], stride[DTP_ATEN_CONV_AXES], dilation[DTP_ATEN_CONV_AXES];
    int64_t before[DTP_ATEN_CONV_AXES], after[DTP_ATEN_CONV_AXES];
} dtp_aten_pool;

/* DTP_UNSUPPORTED: sizes that are not those of a pool. */
dtp_status dtp_aten_pool_of(const dtp_aten *g, const dtp_aten_node *node, dtp_aten_pool *out,
                            dtp_err *err) DTP_MUST_CHECK;

#endif
