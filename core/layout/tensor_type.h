/* Element types, and element type with named shape of a tensor (dtp_dtype and dtp_ttype in
 * dtp/layout.h). */
#ifndef DTP_CORE_LAYOUT_TENSOR_TYPE_H
#define DTP_CORE_LAYOUT_TENSOR_TYPE_H

#include "core/base/status.h"
#include "dtp/layout.h"

bool dtp_dtype_is_float(dtp_dtype dtype);
/* bf16 and f16. */
bool dtp_dtype_is_half(dtp_dtype dtype);
/* Float types of which the second has every value of the first and is another one. */
bool dtp_dtype_widens(dtp_dtype from, dtp_dtype to);
/* DTP_INVALID when the number is none of the enumeration. */
dtp_status dtp_dtype_check(int64_t code, dtp_err *err) DTP_MUST_CHECK;

/* Position of a dim in the tensor, -1 when it is not there. */
int32_t dtp_ttype_find(const dtp_ttype *type, dtp_dim_id id);
/* Size along a dim, 1 without it. */
int64_t dtp_ttype_size(const dtp_ttype *type, dtp_dim_id id);
/* DTP_RANGE when the elements or their bytes do not fit into int64; dtp_ttype_elems and _bytes are
 * for types that passed. */
dtp_status dtp_ttype_check_size(const dtp_ttype *type, dtp_err *err) DTP_MUST_CHECK;
/* Same dtype, dims and sizes in the same order. */
bool dtp_ttype_equal(const dtp_ttype *a, const dtp_ttype *b);
/* Same dtype and sizes in the same order, whatever the names of the dims are. */
bool dtp_ttype_same_sizes(const dtp_ttype *a, const dtp_ttype *b);

#endif
