/* A device mesh: ordered named dims with sizes; ranks are row-major (the last dim varies fastest).
 * Text form "x:2;y:3"; any of space , . ; separates pairs and = works for : . Sizes without names,
 * "2,3", "(2, 3)" or "[2,3]", are those of dims called x, y, z, u, v, w. TensorFlow's form
 * "NAME|x=2,y=3|DEVICES" is read too; the name and what follows the second bar are left alone. */
#ifndef DTP_MESH_H
#define DTP_MESH_H

#include "dtp/status.h"

DTP_API_BEGIN

enum { DTP_MAX_MESH_DIMS = 6, DTP_MESH_NAME_BYTES = 32 };

/* Plain data: copy freely. A mesh without dims is one device. */
typedef struct dtp_mesh {
    int32_t n_dims;
    char names[DTP_MAX_MESH_DIMS][DTP_MESH_NAME_BYTES];
    int64_t sizes[DTP_MAX_MESH_DIMS];
} dtp_mesh;
DTP_ASSERT_SIZE(dtp_mesh, 248);

/* A set of mesh dims, bit m for dim m. */
typedef uint32_t dtp_mesh_set;

/* DTP_INVALID on duplicate or malformed names, zero or negative sizes, too many dims; DTP_RANGE
 * when the product exceeds 2^31-1. The empty text is the mesh of one device. */
dtp_status dtp_mesh_parse(const char *text, dtp_mesh *out, dtp_err *err) DTP_MUST_CHECK;

enum { DTP_MESH_TEXT_BYTES = DTP_MAX_MESH_DIMS * (DTP_MESH_NAME_BYTES + 22) };
/* Writes "x:2;y:3" (NUL-terminated). */
void dtp_mesh_print(const dtp_mesh *mesh, char out[DTP_MESH_TEXT_BYTES]);

/* Number of ranks: the product of the sizes. */
int32_t dtp_mesh_ranks(const dtp_mesh *mesh);
/* Index of a dim by name, -1 when there is none. */
int32_t dtp_mesh_find(const dtp_mesh *mesh, const char *name);
/* Coordinate of a rank on every mesh dim. */
void dtp_mesh_coords(const dtp_mesh *mesh, int32_t rank, int32_t coords[DTP_MAX_MESH_DIMS]);
/* Rank at the coordinates. */
int32_t dtp_mesh_rank(const dtp_mesh *mesh, const int32_t coords[DTP_MAX_MESH_DIMS]);
/* The names of the mesh dims of a set, with `between` between them: "x+y". */
void dtp_mesh_set_print(const dtp_mesh *mesh, dtp_mesh_set set, const char *between,
                        char out[DTP_MESH_TEXT_BYTES]);

/* Collectives over a set of mesh dims. */
typedef enum dtp_coll_kind {
    DTP_ALL_REDUCE,
    DTP_ALL_GATHER,
    DTP_REDUCE_SCATTER,
    DTP_ALL_TO_ALL,
    DTP_PERMUTE,
    DTP_N_COLLS
} dtp_coll_kind;

/* "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute". */
const char *dtp_coll_name(dtp_coll_kind kind);

DTP_API_END

#endif
