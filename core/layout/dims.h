/* The table of dim names of a graph. Ids count up from 0 in order of first appearance. */
#ifndef DTP_CORE_LAYOUT_DIMS_H
#define DTP_CORE_LAYOUT_DIMS_H

#include "core/base/hash.h"
#include "core/layout/tensor_type.h"

struct dtp_dims {
    dtp_arena *arena; /* borrowed */
    int32_t n, capacity;
    const char **names;
    int64_t *sizes; /* declared size, 0 when the name was only made by an op */
    dtp_hash_table by_name;
};

void dtp_dims_init(dtp_dims *dims, dtp_arena *arena);
/* Id of a name, -1 when absent. */
dtp_dim_id dtp_dims_find(const dtp_dims *dims, const char *name);
/* Finds or adds a name; `size` is recorded when the name is new. */
dtp_status dtp_dims_intern(dtp_dims *dims, const char *name, int64_t size, dtp_dim_id *out,
                           dtp_err *err) DTP_MUST_CHECK;
/* Borrowed name. */
const char *dtp_dims_name(const dtp_dims *dims, dtp_dim_id id);

enum { DTP_TTYPE_TEXT_BYTES = 512 };
/* "f32[batch=128, pixels=784]", cut to the buffer. */
void dtp_ttype_print(const dtp_ttype *type, const dtp_dims *dims, char out[DTP_TTYPE_TEXT_BYTES]);

#endif
