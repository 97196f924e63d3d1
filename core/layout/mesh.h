/* A device mesh: ordered named dims with sizes; ranks are row-major (the last dim varies fastest).
 * Text form "x:2;y:3"; any of space , . ; separates pairs and = works for : . Sizes without names,
 * "2,3", "(2, 3)" or "[2,3]", are those of dims called x, y, z, u, v, w. TensorFlow's form
 * "NAME|x=2,y=3|DEVICES" is read too; the name and what follows the second bar are left alone. */
#ifndef DTP_CORE_LAYOUT_MESH_H
#define DTP_CORE_LAYOUT_MESH_H

#include "core/base/status.h"

enum { DTP_MAX_MESH_DIMS = 6, DTP_MESH_NAME_BYTES = 32 };

/* Plain data: copy freely. A mesh without dims is one device. */
typedef struct dtp_mesh {
    int32_t n_dims;
    char names[DTP_MAX_MESH_DIMS][DTP_MESH_NAME_BYTES];
    int64_t sizes[DTP_MAX_MESH_DIMS];
} dtp_mesh;

/* A set of mesh dims, bit m for dim m. */
typedef uint32_t dtp_mesh_set;

/* DTP_INVALID on duplicate or malformed names, zero or negative sizes, too many dims; DTP_RANGE
 * when the product exceeds 2^31-1. The empty text is the mesh of one device. */
dtp_status dtp_mesh_parse(const char *text, dtp_mesh *out, dtp_err *err) DTP_MUST_CHECK;

enum { DTP_MESH_TEXT_BYTES = DTP_MAX_MESH_DIMS * (DTP_MESH_NAME_BYTES + 22) };
/* Writes "x:2;y:3" (NUL-terminated). */
void dtp_mesh_print(const dtp_mesh *mesh, char out[DTP_MESH_TEXT_BYTES]);
/* Writes the member "mesh" of a JSON object: [["x", 2], ["y", 3]]. */
struct dtp_json_writer;
void dtp_mesh_write(struct dtp_json_writer *w, const dtp_mesh *mesh);
/* Reads that member. */
struct dtp_json;
dtp_status dtp_mesh_read(const struct dtp_json *obj, dtp_mesh *out, dtp_err *err) DTP_MUST_CHECK;

/* Number of ranks: the product of the sizes. */
int32_t dtp_mesh_ranks(const dtp_mesh *mesh);
/* Index of a dim by name, -1 when there is none. */
int32_t dtp_mesh_find(const dtp_mesh *mesh, const char *name);
/* Coordinate of a rank on every mesh dim. */
void dtp_mesh_coords(const dtp_mesh *mesh, int32_t rank, int32_t coords[DTP_MAX_MESH_DIMS]);
/* Rank at the coordinates. */
int32_t dtp_mesh_rank(const dtp_mesh *mesh, const int32_t coords[DTP_MAX_MESH_DIMS]);
/* Number of ranks in the group that spans the mesh dims of `set`. */
int32_t dtp_mesh_set_size(const dtp_mesh *mesh, dtp_mesh_set set);
/* The names of the mesh dims of a set, with `between` between them: "x+y". */
void dtp_mesh_set_print(const dtp_mesh *mesh, dtp_mesh_set set, const char *between,
                        char out[DTP_MESH_TEXT_BYTES]);
/* Index of `rank` within its group over `set`; groups are ordered row-major by mesh dim. */
int32_t dtp_mesh_set_index(const dtp_mesh *mesh, dtp_mesh_set set, int32_t rank);
/* Rank of member `index` of the group over `set` that `rank` belongs to. */
int32_t dtp_mesh_set_member(const dtp_mesh *mesh, dtp_mesh_set set, int32_t rank, int32_t index);

#endif
