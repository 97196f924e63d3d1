/* Layouts (dtp/layout.h): splits, shards, checks, and our text form. */
#ifndef DTP_CORE_LAYOUT_LAYOUT_H
#define DTP_CORE_LAYOUT_LAYOUT_H

#include "core/layout/dims.h"
#include "core/layout/mesh.h"
#include "core/layout/tensor_type.h"

/* Makes mesh dim m the innermost split of tensor dim `axis`; m must be replicated before. */
void dtp_layout_split(dtp_layout *layout, int32_t m, int32_t axis);
bool dtp_layout_has_partial(const dtp_layout *layout);
/* Whole where `layout` is partial. */
dtp_layout dtp_layout_without_partial(const dtp_layout *layout);

/* The mesh dims that split tensor dim `axis`, outermost first; returns how many. */
int32_t dtp_layout_axis_splits(const dtp_layout *layout, int32_t axis,
                               int32_t mesh_dims[DTP_MAX_MESH_DIMS]);

/* Into how many shards the tensor is split. */
int64_t dtp_layout_shards(const dtp_layout *layout, const dtp_mesh *mesh);

/* Chunk `index` of n elements over k ranks. */
void dtp_chunk(int64_t n, int64_t k, int64_t index, int64_t *offset, int64_t *size);

/* Shard of tensor dim `axis` (n elements) at the coordinates. With ranks beyond the data, offset =
 * n and size = 0. */
void dtp_layout_shard(const dtp_layout *layout, const dtp_mesh *mesh, int32_t axis, int64_t n,
                      const int32_t coords[DTP_MAX_MESH_DIMS], int64_t *offset, int64_t *size);

/* Local shape at a rank: sizes of `type` replaced by those of the rank's shard; offsets (may be
 * NULL) get the global index of each first element. */
void dtp_layout_local(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                      int32_t rank, dtp_ttype *local, int64_t offsets[DTP_MAX_RANK]);
/* The largest local shape of any rank (that of rank 0). */
void dtp_layout_local_max(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                          dtp_ttype *local);
/* True when every split divides evenly. */
bool dtp_layout_is_even(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type);
/* What plans are looked for among: the same or, with `uneven`, true when no split has more parts
 * than the dim has elements. */
bool dtp_layout_may_hold(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                         bool uneven);
/* True when the dims that mesh dims of `set` split divide evenly: the members of a group over `set`
 * have equal shapes. */
bool dtp_layout_is_even_over(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                             dtp_mesh_set set);

/* DTP_INVALID when ranks disagree, an axis is out of range, orders are not 0..k-1 per axis. */
dtp_status dtp_layout_check(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                            dtp_err *err) DTP_MUST_CHECK;

enum { DTP_LAYOUT_TEXT_BYTES = 992 };
/* Our text form: "batch@x, d_ff@y+z, +sum(w)"; "replicated" when nothing is split or partial. */
void dtp_layout_print(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                      const dtp_dims *dims, char out[DTP_LAYOUT_TEXT_BYTES]);
/* Reads our text form; dtp_layout_parse_any (interop/layout_forms.h) reads those of other systems
 * too. */
dtp_status dtp_layout_parse(const char *text, const dtp_mesh *mesh, const dtp_ttype *type,
                            const dtp_dims *dims, dtp_layout *out, dtp_err *err) DTP_MUST_CHECK;
/* Index of a mesh dim that the layout does not use yet; DTP_INVALID names it when unknown or
 * used. */
dtp_status dtp_layout_free_mesh_dim(const dtp_mesh *mesh, const dtp_layout *layout,
                                    const char *name, int32_t *m, dtp_err *err) DTP_MUST_CHECK;

#endif
