/* How the kernels of a backend run a convolution or one of its derivatives on one rank
 * (core/graph/ops/conv.h): sizes and strides of the dims by what they are, and on a CPU the blocks
 * of the implicit matrix product.
 *
 * On a CPU, a column matrix holds the elements of x that a block of channels `in` and the whole
 * kernel meet (its rows) at a tile of places of y (its columns). With W the matrix of the kernel,
 * out x (in kernel), and Y the places, out x tile,
 *   conv            Y  = W col
 *   conv_transpose  col = W' Y, added to x
 *   conv_weight     W += Y col'
 * Places are counted over the spatial dims and, where these are few, over a chunk of the batch. W
 * and Y are used where they lie when they are f32 and rows of a matrix; else they are copied. So is
 * x, in place of columns, where a window is one element.
 */
#ifndef DTP_SPMD_TARGET_CONV_PLAN_H
#define DTP_SPMD_TARGET_CONV_PLAN_H

#include "core/graph/ops/conv.h"

/* Dims that are walked as one, outermost first; strides in elements of x, w, y, 0 where a tensor
 * lacks the dim. */
typedef struct dtp_conv_run {
    int32_t n;
    int64_t total;
    int64_t size[DTP_MAX_RANK];
    int64_t stride[DTP_CONV_PARTS][DTP_MAX_RANK];
} dtp_conv_run;

enum { DTP_CONV_MOST_SETS = 16 };

/* How a library that has an order of its own for channels runs it: pieces of the batch, of groups
 * and of channels of the result, brought into that order in the workspace. They depend on shapes
 * alone. */
typedef struct dtp_conv_piece {
    int64_t batch, groups, ins, outs; /* of a piece */
    int64_t n[3];                     /* pieces of the batch, of groups, of channels */
    int64_t parts;                    /* of the batch, whose weight gradients are added; else 1 */
    bool all_channels;                /* of a tensor are in a piece */
    int64_t bytes;                    /* of the workspace; 0: it does not run it */
} dtp_conv_piece;

typedef struct dtp_conv_plan {
    dtp_conv_part result;
    int32_t at[DTP_CONV_PARTS]; /* operand number, -1: the result */
    dtp_dtype dtype[DTP_CONV_PARTS];
    dtp_conv_run groups, batch, ins, outs;
    dtp_conv_axis axis[DTP_CONV_AXES];           /* always three: the first may be of size 1 */
    int64_t step[DTP_CONV_PARTS][DTP_CONV_AXES]; /* strides of the axes */
    int64_t taps, places;                        /* products of the kernel, of the places of y */
    /* On a CPU. */
    int64_t block;    /* channels `in` of a column matrix */
    int64_t chunk;    /* batch elements whose places are counted together */
    int64_t tile;     /* columns */
    bool w_matrix;    /* W is used where it lies */
    bool y_rows;      /* so are the places of a row of Y, within a batch element */
    bool x_rows;      /* and those of a row of x, where windows are its elements: no columns */
    bool wide;        /* a 16-bit result is summed in f32 in the workspace */
    int64_t sets;     /* column and Y tiles: of so many threads */
    int64_t elems[3]; /* f32 in the workspace: W, the wide result, the tiles of a set */
    double madds;     /* multiply-adds */
    dtp_conv_piece piece;
} dtp_conv_plan;

/* `call` with local types. `before` of the axes is right for kernels alone, which know where their
 * operands lie in the whole tensors. */
void dtp_conv_plan_make(const dtp_op_call *call, dtp_conv_plan *plan);
void dtp_conv_plan_bind(const dtp_kernel_args *args, dtp_conv_plan *plan);
/* Offset of element `index` of a run in a tensor. */
int64_t dtp_conv_offset(const dtp_conv_run *run, dtp_conv_part part, int64_t index);

/* For the row of the target: bytes of the workspace, and work with the column matrices written. */
int64_t dtp_cpu_conv_workspace(const dtp_op_call *call);
void dtp_cpu_conv_work(const dtp_op_call *call, dtp_work *out);
/* On a CUDA device a product that has few results is made in parts, kept in the workspace. */
int64_t dtp_cuda_conv_parts(const dtp_conv_plan *plan);
int64_t dtp_cuda_conv_workspace(const dtp_op_call *call);

#endif
