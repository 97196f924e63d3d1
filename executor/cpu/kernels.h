/* The kernels of the CPU backend: one table per file, and what the files share. */
#ifndef DTP_EXECUTOR_CPU_KERNELS_H
#define DTP_EXECUTOR_CPU_KERNELS_H

#include "core/graph/op.h"

typedef struct dtp_cpu_row {
    const char *op;
    dtp_kernel_fn run;
    /* Whether the kernel takes these types and attributes; asked once, before it runs. NULL: it
     * takes all that the op does. */
    dtp_status (*check)(const dtp_op_call *call, dtp_err *err);
} dtp_cpu_row;

/* X(family) stands for the rows dtp_cpu_<family>[] of a file, ended by a row without an op. */
#define DTP_CPU_FAMILIES(X)                                                                        \
    X(attention)                                                                                   \
    X(attention_grad)                                                                              \
    X(cross_entropy)                                                                               \
    X(einsum)                                                                                      \
    X(elementwise)                                                                                 \
    X(lookup)                                                                                      \
    X(norm)                                                                                        \
    X(optimizer)                                                                                   \
    X(random)                                                                                      \
    X(reduce)                                                                                      \
    X(rope)                                                                                        \
    X(row_stats)                                                                                   \
    X(shape)                                                                                       \
    X(softmax)
#define DTP_CPU_DECLARE(family) extern const dtp_cpu_row dtp_cpu_##family[];
DTP_CPU_FAMILIES(DTP_CPU_DECLARE)

/* DTP_UNSUPPORTED naming op and dtype when a float operand is not f32. */
dtp_status dtp_cpu_check_f32(const dtp_op_call *call, dtp_err *err) DTP_MUST_CHECK;
/* The same when any operand is not f32. */
dtp_status dtp_cpu_check_all_f32(const dtp_op_call *call, dtp_err *err) DTP_MUST_CHECK;

/* The dims of an attribute of kind DIM or DIMS and what is left of a view's dims. */
typedef struct dtp_cpu_over {
    int32_t n_over, n_rows;
    dtp_tdim over[DTP_MAX_RANK]; /* in the order of the view */
    dtp_tdim rows[DTP_MAX_RANK];
    int64_t count;        /* local elements of `over` */
    int64_t global_count; /* global ones */
} dtp_cpu_over;

void dtp_cpu_split(const dtp_op_call *call, const char *key, const dtp_view *x, dtp_cpu_over *out);

/* Index of the first element of `dim` in a view, and the global size of it. */
int64_t dtp_cpu_offset(const dtp_view *view, dtp_dim_id dim);
int64_t dtp_cpu_global(const dtp_view *view, dtp_dim_id dim);
/* Product of the global sizes of dims (those of a view). */
int64_t dtp_cpu_global_rows(const dtp_view *view, int32_t n, const dtp_tdim *dims);

/* DTP_RANGE for an id that is not in [0, size). */
dtp_status dtp_cpu_bad_id(const dtp_op_call *call, const char *what, int64_t id, int64_t size,
                          dtp_err *err) DTP_MUST_CHECK;

#endif
