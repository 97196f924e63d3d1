/* Element types, shapes, and where a tensor lives on a mesh.
 *
 * A layout has for every mesh dim a placement: it splits one tensor dim, or the tensor is
 * replicated over it, or every rank holds a summand (partial). When several mesh dims split one
 * tensor dim their order is part of the layout: order[m] = 0 is the outermost split.
 *
 * Chunking (torch semantics): splitting n elements over k ranks gives chunks of ceil(n/k); trailing
 * ranks get short or empty chunks, an empty chunk has offset n. Nested splits apply in order.
 *   n=10,k=4 -> 3,3,3,1 at 0,3,6,9    n=5,k=4 -> 2,2,1,0 at 0,2,4,5
 */
#ifndef DTP_LAYOUT_H
#define DTP_LAYOUT_H

#include "dtp/mesh.h"

DTP_API_BEGIN

typedef enum dtp_dtype {
    DTP_F32,
    DTP_F64,
    DTP_BF16,
    DTP_F16,
    DTP_I32,
    DTP_I64,
    DTP_BOOL, /* one byte, 0 or 1 */
    DTP_N_DTYPES,
    DTP_F8 = DTP_N_DTYPES /* an 8-bit float, of quantized values in programs that are priced alone:
                             no model, file or kernel has it */
} dtp_dtype;

/* Bytes of one element. */
int64_t dtp_dtype_bytes(dtp_dtype dtype);
/* "f32", "bf16", ... */
const char *dtp_dtype_name(dtp_dtype dtype);
/* DTP_INVALID when the name is none of the above. */
dtp_status dtp_dtype_parse(const char *name, dtp_dtype *out, dtp_err *err) DTP_MUST_CHECK;

enum { DTP_MAX_RANK = 8 };

/* The dim names of a graph, and an index into them; -1 = none. */
typedef struct dtp_dims dtp_dims;
typedef int32_t dtp_dim_id;

/* One dim of a tensor. A name usually has one size in the whole graph; concat, slice and pad give
 * it others. */
typedef struct dtp_tdim {
    dtp_dim_id id;
    int64_t size;
} dtp_tdim;
DTP_ASSERT_SIZE(dtp_tdim, 16);

/* Element type and named shape. Plain data. Dims are row-major, dims[rank-1] is contiguous; their
 * ids are distinct. */
typedef struct dtp_ttype {
    dtp_dtype dtype;
    int32_t rank;
    dtp_tdim dims[DTP_MAX_RANK];
} dtp_ttype;
DTP_ASSERT_SIZE(dtp_ttype, 136);

/* Elements and bytes (1 element for rank 0). */
int64_t dtp_ttype_elems(const dtp_ttype *type);
int64_t dtp_ttype_bytes(const dtp_ttype *type);

typedef enum dtp_reduce_op {
    DTP_REDUCE_SUM,
    DTP_REDUCE_AVG,
    DTP_REDUCE_PROD,
    DTP_REDUCE_MIN,
    DTP_REDUCE_MAX,
    DTP_N_REDUCE_OPS
} dtp_reduce_op;

/* "sum", "avg", ... */
const char *dtp_reduce_op_name(dtp_reduce_op op);

typedef enum dtp_placement_kind { DTP_REPLICATE, DTP_SHARD, DTP_PARTIAL } dtp_placement_kind;

/* Placement of one tensor on one mesh dim. */
typedef struct dtp_placement {
    int8_t kind;  /* dtp_placement_kind */
    int8_t axis;  /* DTP_SHARD: position of the tensor dim, else 0 */
    int8_t op;    /* DTP_PARTIAL: dtp_reduce_op, else 0 */
    int8_t order; /* DTP_SHARD: depth among the splits of the same tensor dim, else 0 */
} dtp_placement;
DTP_ASSERT_SIZE(dtp_placement, 4);

/* Plain data; unused entries are zero, so equal layouts are equal bytes. */
typedef struct dtp_layout {
    int8_t rank;   /* of the tensor */
    int8_t n_mesh; /* dims of the mesh */
    dtp_placement placement[DTP_MAX_MESH_DIMS];
} dtp_layout;
DTP_ASSERT_SIZE(dtp_layout, 26);

/* Replicated on every mesh dim. */
dtp_layout dtp_layout_replicated(int32_t rank, int32_t n_mesh);
bool dtp_layout_equal(const dtp_layout *a, const dtp_layout *b);

DTP_API_END

#endif
