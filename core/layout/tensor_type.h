/* Element type and named shape of a tensor. */
#ifndef DTP_CORE_LAYOUT_TENSOR_TYPE_H
#define DTP_CORE_LAYOUT_TENSOR_TYPE_H

#include "core/base/dtype.h"

enum { DTP_MAX_RANK = 8 };

/* Index into a dim table (core/layout/dims.h); -1 = none. */
typedef int32_t dtp_dim_id;

/* One dim of a tensor. A name usually has one size in the whole graph; concat, slice and pad give
 * it others. */
typedef struct dtp_tdim {
    dtp_dim_id id;
    int64_t size;
} dtp_tdim;

/* Plain data. Dims are row-major, dims[rank-1] is contiguous; their ids are distinct. */
typedef struct dtp_ttype {
    dtp_dtype dtype;
    int32_t rank;
    dtp_tdim dims[DTP_MAX_RANK];
} dtp_ttype;

/* Position of a dim in the tensor, -1 when it is not there. */
int32_t dtp_ttype_find(const dtp_ttype *type, dtp_dim_id id);
/* Elements; DTP_RANGE when they or their bytes do not fit into int64. */
dtp_status dtp_ttype_check_size(const dtp_ttype *type, dtp_err *err) DTP_MUST_CHECK;
/* Elements and bytes of a type that passed the check (1 element for rank 0). */
int64_t dtp_ttype_elems(const dtp_ttype *type);
int64_t dtp_ttype_bytes(const dtp_ttype *type);
/* Same dtype, dims and sizes in the same order. */
bool dtp_ttype_equal(const dtp_ttype *a, const dtp_ttype *b);

#endif
