/* A device mesh: the ranks of a job, arranged along named dims, with what runs on them.
 *
 * Every function that says "collective" is called by all ranks of the mesh in the same order with
 * the same arguments. Ranks that disagree get DTP_COMM on every rank instead of a hang: creation
 * checks the mesh, and calls are checked as `agree` says. What is found by the check leaves the
 * mesh usable; ranks that run different collectives all the same break its communicator
 * (docs/tensors.md, "Ranks that disagree"). Handles are not shared between threads.
 *
 * Pointers: in all headers of dtp/, NULL where a pointer is needed is DTP_INVALID naming function
 * and parameter, and nothing is sent. NULL is allowed for `err`, for `user`, for an array of 0
 * elements and where a header says so.
 */
#ifndef DTP_DEVICE_MESH_H
#define DTP_DEVICE_MESH_H

#include "dtp/op.h"

DTP_API_BEGIN

/* ---- backends and communicators ---- */

/* "cpu", "ref" or that of a module, as "cuda" (its first device); `threads` counts for "cpu" alone.
 * A module is opened by name, dtp_cuda.so, and stays open. The first "cpu"
 * backend of the process loads OpenBLAS, with the environment variable OPENBLAS_CORETYPE set
 * meanwhile when the processor needs it: no other thread may then use the environment.
 * DTP_UNSUPPORTED when it or the module cannot be loaded, and when there is no such device. */
dtp_status dtp_backend_create(const char *name, int32_t threads, dtp_backend **out,
                              dtp_err *err) DTP_MUST_CHECK;
void dtp_backend_destroy(dtp_backend *b);
/* Gives this backend kernels for registered ops (dtp/op.h). The names are copied. DTP_INVALID when
 * an op has a kernel for one of the dtypes already or is a built-in one; then none is added. */
dtp_status dtp_backend_add_kernels(dtp_backend *b, const dtp_kernel *kernels, int32_t n,
                                   dtp_err *err) DTP_MUST_CHECK;

/* How ranks exchange data. One handle per rank, orthogonal to the backend. */
typedef struct dtp_comm dtp_comm;

/* One rank. */
dtp_status dtp_comm_self_create(dtp_comm **out, dtp_err *err) DTP_MUST_CHECK;
/* Runs body once per virtual rank, rank 0 in the calling thread and each other in its own, with a
 * sim communicator; returns the failure of the lowest rank that has one of its own. A rank that
 * fails wakes those out of their collectives that wait for it. */
typedef dtp_status (*dtp_rank_body)(dtp_comm *comm, void *user, dtp_err *err);
dtp_status dtp_comm_sim_run(const dtp_mesh *mesh, dtp_rank_body body, void *user,
                            dtp_err *err) DTP_MUST_CHECK;
/* Joins the MPI job this process was started in (initialises MPI when needed; finalised at destroy
 * of the last one). DTP_UNSUPPORTED when built without MPI; DTP_INVALID when the mesh does not have
 * as many ranks as the job. */
dtp_status dtp_comm_mpi_create(const dtp_mesh *mesh, dtp_comm **out, dtp_err *err) DTP_MUST_CHECK;
/* True when this process was started by mpirun or srun (looks at the launcher's environment as
 * given by the caller: a "NAME=value" list such as environ). */
bool dtp_comm_in_mpi_job(char *const *environment);
void dtp_comm_destroy(dtp_comm *c);

/* ---- device meshes ---- */

typedef struct dtp_device_mesh dtp_device_mesh;

typedef enum dtp_agreement {
    DTP_AGREE_NEW,    /* the first call of a kind (op, types, layouts) is compared; later ones run
                         without a check, and the next comparison covers them */
    DTP_AGREE_ALWAYS, /* every collective call is compared: one small all-reduce each */
    DTP_AGREE_NEVER
} dtp_agreement;

typedef struct dtp_device_mesh_options {
    size_t size;
    uint64_t seed;         /* key of random factories and ops */
    dtp_agreement agree;   /* default DTP_AGREE_NEW */
    bool torch;            /* choose layouts and steps as PyTorch DTensor does */
    bool strict;           /* an op that would have to redistribute an operand is an error */
    const dtp_ctx *ctx;    /* level info: log of redistributions and collectives; NULL: silent */
    const dtp_op_set *ops; /* ops that calls may name; borrowed. NULL: the built-in ones */
} dtp_device_mesh_options;

static inline dtp_device_mesh_options dtp_device_mesh_options_init(void)
{
    dtp_device_mesh_options o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    return o;
}

/* Collective. The mesh is comm's; borrows comm and backend, which must outlive it. options NULL:
 * defaults. DTP_COMM on every rank when the ranks disagree on the mesh or the options. */
dtp_status dtp_device_mesh_create(dtp_comm *comm, dtp_backend *backend,
                                  const dtp_device_mesh_options *options, dtp_device_mesh **out,
                                  dtp_err *err) DTP_MUST_CHECK;
/* All tensors on it become invalid. Sub-meshes must be destroyed first. NULL is accepted. */
void dtp_device_mesh_destroy(dtp_device_mesh *mesh);

/* The communicator and the backend of the mesh, to run a plan on (dtp/session.h); borrowed. */
dtp_comm *dtp_device_mesh_comm(const dtp_device_mesh *mesh);
dtp_backend *dtp_device_mesh_backend(const dtp_device_mesh *mesh);
/* Of mesh NULL: no dims, rank -1, size 0, nothing counted. */
const dtp_mesh *dtp_device_mesh_dims(const dtp_device_mesh *mesh); /* borrowed */
int32_t dtp_device_mesh_rank(const dtp_device_mesh *mesh);
int32_t dtp_device_mesh_size(const dtp_device_mesh *mesh);
void dtp_device_mesh_coords(const dtp_device_mesh *mesh, int32_t coords[DTP_MAX_MESH_DIMS]);
/* Coordinate along a dim by name; -1 when there is no such dim. */
int32_t dtp_device_mesh_coord(const dtp_device_mesh *mesh, const char *dim);
/* Change the choice of layouts for later calls (the same on all ranks). */
void dtp_device_mesh_set_strict(dtp_device_mesh *mesh, bool strict);

/* The part of the mesh that spans the named dims ("dp" or "dp,tp", in mesh order) and holds this
 * rank. Collective over the ranks of that part; other ranks need not make theirs. Same backend and
 * options, counts of its own. Borrows the parent. DTP_INVALID on names. */
dtp_status dtp_device_mesh_sub(dtp_device_mesh *mesh, const char *dims, dtp_device_mesh **out,
                               dtp_err *err) DTP_MUST_CHECK;
/* The same ranks with adjacent named dims (ascending in mesh order) joined into one dim `name`.
 * Collective. */
dtp_status dtp_device_mesh_flatten(dtp_device_mesh *mesh, const char *dims, const char *name,
                                   dtp_device_mesh **out, dtp_err *err) DTP_MUST_CHECK;

/* Collectives of redistributions and ops on this mesh since creation or the last reset, per kind
 * and set of mesh dims, in order of first use. What scatter, gather, unpack and the comparing of
 * calls send is not counted. */
typedef struct dtp_comm_count {
    dtp_coll_kind kind;
    dtp_mesh_set set;
    int64_t count;
    int64_t bytes; /* sum of the larger buffer of each call */
} dtp_comm_count;
DTP_ASSERT_SIZE(dtp_comm_count, 24);

/* Number of counts; *out is borrowed until the next call on the mesh. */
int32_t dtp_device_mesh_counts(const dtp_device_mesh *mesh, const dtp_comm_count **out);
/* Collectives of a kind over any mesh dims. */
int64_t dtp_device_mesh_count(const dtp_device_mesh *mesh, dtp_coll_kind kind);
void dtp_device_mesh_reset_counts(dtp_device_mesh *mesh);

DTP_API_END

#endif
