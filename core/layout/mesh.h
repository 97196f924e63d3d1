/* Meshes (dtp/mesh.h): in JSON, and groups of ranks over a set of mesh dims. */
#ifndef DTP_CORE_LAYOUT_MESH_H
#define DTP_CORE_LAYOUT_MESH_H

#include "core/base/status.h"
#include "dtp/mesh.h"

/* Writes the member "mesh" of a JSON object: [["x", 2], ["y", 3]]. */
struct dtp_json_writer;
void dtp_mesh_write(struct dtp_json_writer *w, const dtp_mesh *mesh);
/* Reads that member. */
struct dtp_json;
dtp_status dtp_mesh_read(const struct dtp_json *obj, dtp_mesh *out, dtp_err *err) DTP_MUST_CHECK;

/* Number of ranks in the group that spans the mesh dims of `set`. */
int32_t dtp_mesh_set_size(const dtp_mesh *mesh, dtp_mesh_set set);
/* "mesh dim 'x'", "mesh dims 'x', 'y'", "no mesh dim". */
enum { DTP_MESH_SET_TEXT_BYTES = DTP_MESH_TEXT_BYTES + 16 };
const char *dtp_mesh_set_words(const dtp_mesh *mesh, dtp_mesh_set set,
                               char out[DTP_MESH_SET_TEXT_BYTES]);
/* Index of `rank` within its group over `set`; groups are ordered row-major by mesh dim. */
int32_t dtp_mesh_set_index(const dtp_mesh *mesh, dtp_mesh_set set, int32_t rank);
/* Rank of member `index` of the group over `set` that `rank` belongs to. */
int32_t dtp_mesh_set_member(const dtp_mesh *mesh, dtp_mesh_set set, int32_t rank, int32_t index);

#endif
