/* Distributed tensors: one global tensor, of which every rank holds the piece its layout says.
 *
 * A tensor is a small handle, passed by value; it is valid until dtp_tensor_destroy. A handle that
 * was destroyed, never made or belongs to another mesh is recognised and gives DTP_INVALID. The
 * contents of a tensor never change (a variable's do, by assignment); operations make new tensors,
 * which are the caller's to destroy; those that are left end with the mesh.
 * Errors that depend only on the arguments are found before anything is sent, so all ranks that
 * pass the same arguments get the same error.
 */
#ifndef DTP_TENSOR_H
#define DTP_TENSOR_H

#include "dtp/device_mesh.h"

DTP_API_BEGIN

typedef struct dtp_tensor {
    dtp_device_mesh *mesh;
    uint32_t slot, generation;
} dtp_tensor;
DTP_ASSERT_SIZE(dtp_tensor, 16);

/* Type, global shape and layout. */
typedef struct dtp_tensor_desc {
    dtp_dtype dtype;
    int32_t rank;
    int64_t shape[DTP_MAX_RANK];
    dtp_layout layout;
} dtp_tensor_desc;
DTP_ASSERT_SIZE(dtp_tensor_desc, 104);

/* Reads the layout in any text form of docs/layouts.md; dims of the tensor are called "0", "1", ...
 * in forms that need names: "0@x, 1@y+z, +sum(w)", "S0,R", "(Shard(0), Replicate())",
 * "P('x', None)", "sharding_specs:x,unsharded". "replicated" is everywhere whole. DTP_INVALID on
 * bad text, on a layout that does not fit rank or mesh; DTP_RANGE on sizes below 1 and on sizes
 * that overflow. */
dtp_status dtp_tensor_desc_init(const dtp_device_mesh *mesh, dtp_dtype dtype, int32_t rank,
                                const int64_t *shape, const char *layout, dtp_tensor_desc *out,
                                dtp_err *err) DTP_MUST_CHECK;
/* A layout alone, for dtp_tensor_redistribute. */
dtp_status dtp_tensor_layout(const dtp_device_mesh *mesh, int32_t rank, const char *text,
                             dtp_layout *out, dtp_err *err) DTP_MUST_CHECK;

/* ---- making ---- */

/* Factories build only the local piece and do not communicate. Values do not depend on the layout.
 * Partial layouts hold the value on the first member of each group and the neutral element
 * elsewhere, so that the reduced tensor has the values asked for. */
dtp_status dtp_tensor_zeros(dtp_device_mesh *mesh, const dtp_tensor_desc *desc, dtp_tensor *out,
                            dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_ones(dtp_device_mesh *mesh, const dtp_tensor_desc *desc, dtp_tensor *out,
                           dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_full(dtp_device_mesh *mesh, const dtp_tensor_desc *desc, double value,
                           dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
/* start + step * (row-major global index), computed in double: integers beyond 2^53 are rounded.
 * DTP_RANGE, here and in full, when a value does not fit an integer type. */
dtp_status dtp_tensor_iota(dtp_device_mesh *mesh, const dtp_tensor_desc *desc, double start,
                           double step, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
/* In [low, high); float types. The value of an element depends on (seed of the mesh, stream, global
 * element index) only. */
dtp_status dtp_tensor_uniform(dtp_device_mesh *mesh, const dtp_tensor_desc *desc, uint32_t stream,
                              double low, double high, dtp_tensor *out,
                              dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_normal(dtp_device_mesh *mesh, const dtp_tensor_desc *desc, uint32_t stream,
                             double mean, double stddev, dtp_tensor *out,
                             dtp_err *err) DTP_MUST_CHECK;

/* From a global row-major array that only rank `source` needs to have (data is ignored elsewhere
 * and may be NULL). Collective; memory on the way is bounded by the largest piece. */
dtp_status dtp_tensor_scatter(dtp_device_mesh *mesh, const dtp_tensor_desc *desc, int32_t source,
                              const void *data, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
/* From a global array that every rank has: takes the own piece, does not communicate. */
dtp_status dtp_tensor_from_array(dtp_device_mesh *mesh, const dtp_tensor_desc *desc,
                                 const void *data, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
/* From the piece that this rank holds (copied); local_shape must be the shape of the piece (any
 * shape without elements when it is empty). Collective: when one rank is refused, the others get
 * DTP_COMM. Replicas are taken on trust unless `check_replicas`, which compares hashes of them. */
dtp_status dtp_tensor_wrap(dtp_device_mesh *mesh, const dtp_tensor_desc *desc,
                           const int64_t *local_shape, const void *local, bool check_replicas,
                           dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
/* From one component per rank, given in rank order on every rank, each of the shape that follows
 * from dividing `desc` evenly (TensorFlow's pack). Does not communicate. DTP_INVALID when the
 * layout does not divide evenly or components that are replicas of each other differ. */
dtp_status dtp_tensor_pack(dtp_device_mesh *mesh, const dtp_tensor_desc *desc,
                           const void *const *components, dtp_tensor *out,
                           dtp_err *err) DTP_MUST_CHECK;
/* A second handle on the same contents. */
dtp_status dtp_tensor_share(dtp_tensor t, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
/* Frees the handle; a handle that is not valid is ignored. */
void dtp_tensor_destroy(dtp_tensor t);

/* ---- looking ---- */
bool dtp_tensor_is_valid(dtp_tensor t);
dtp_status dtp_tensor_describe(dtp_tensor t, dtp_tensor_desc *out, dtp_err *err) DTP_MUST_CHECK;
/* "f32[16,24] 0@x, +sum(y) on 'x:2;y:3'", cut to the buffer; "no tensor" for a handle that is not
 * valid. */
enum { DTP_TENSOR_TEXT_BYTES = 1024 };
void dtp_tensor_print(dtp_tensor t, char out[DTP_TENSOR_TEXT_BYTES]);

/* The piece of this rank: borrowed until the tensor is destroyed or assigned; host memory. */
typedef struct dtp_local {
    int32_t rank;
    int64_t shape[DTP_MAX_RANK];  /* local sizes; 0 when this rank holds nothing */
    int64_t offset[DTP_MAX_RANK]; /* global index of the first element */
    const void *data;
} dtp_local;
DTP_ASSERT_SIZE(dtp_local, 144);
dtp_status dtp_tensor_local(dtp_tensor t, dtp_local *out, dtp_err *err) DTP_MUST_CHECK;

/* Copies the whole tensor to the host. Never communicates: DTP_INVALID naming the layout unless it
 * is replicated on every mesh dim. `out` has room for the global shape. */
dtp_status dtp_tensor_read(dtp_tensor t, void *out, dtp_err *err) DTP_MUST_CHECK;
/* The whole tensor on every rank (collective); `root` >= 0: only there, `out` is ignored elsewhere.
 * A partial tensor is DTP_INVALID: see dtp_tensor_full_tensor. */
dtp_status dtp_tensor_gather(dtp_tensor t, int32_t root, void *out, dtp_err *err) DTP_MUST_CHECK;
/* The same for every layout: partial sums are reduced first (PyTorch's DTensor.full_tensor). */
dtp_status dtp_tensor_full_tensor(dtp_tensor t, int32_t root, void *out,
                                  dtp_err *err) DTP_MUST_CHECK;
/* The value of a tensor of one element on every rank, whatever its layout (collective). DTP_INVALID
 * for more elements. DTP_RANGE for an integer that a double does not hold exactly: the second form
 * takes every integer, and refuses floats. */
dtp_status dtp_tensor_item(dtp_tensor t, double *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_item_int(dtp_tensor t, int64_t *out, dtp_err *err) DTP_MUST_CHECK;
/* The pieces of all ranks, one after the other in rank order, on every rank (collective):
 * TensorFlow's unpack. *sizes (may be NULL, room for the ranks): elements of each. `out` has room
 * for ranks x the largest piece. */
dtp_status dtp_tensor_unpack(dtp_tensor t, void *out, int64_t *sizes, dtp_err *err) DTP_MUST_CHECK;

/* ---- moving ---- */

/* The same tensor in another layout (collective). Shares the storage when nothing moves.
 * DTP_INVALID for a layout that does not fit, DTP_UNSUPPORTED for replicated or sharded -> partial.
 */
dtp_status dtp_tensor_redistribute(dtp_tensor t, const dtp_layout *layout, dtp_tensor *out,
                                   dtp_err *err) DTP_MUST_CHECK;

/* ---- variables: tensors whose contents may be replaced, whose layout may not ---- */
dtp_status dtp_variable_create(dtp_tensor initial, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
/* DTP_INVALID, with the variable unchanged, when type, shape, layout or mesh differ. Later reads of
 * the handle see the new contents; tensors computed before keep the old ones. */
dtp_status dtp_variable_assign(dtp_tensor variable, dtp_tensor value, dtp_err *err) DTP_MUST_CHECK;

DTP_API_END

#endif
