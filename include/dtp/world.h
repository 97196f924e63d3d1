/* The easy start of a C program: one call that runs a function on every rank of a mesh. */
#ifndef DTP_WORLD_H
#define DTP_WORLD_H

#include "dtp/device_mesh.h"

DTP_API_BEGIN

typedef struct dtp_world_options {
    size_t size;
    const char *comm; /* "self", "sim" (virtual ranks, a thread each) or "mpi"; NULL: "mpi" inside
                         an MPI job, else "self" for one rank and "sim" for more */
    const char *backend;      /* "cpu" (NULL too) or "ref" */
    int32_t threads;          /* per rank; 0: cores / ranks on this machine */
    char *const *environment; /* environ of the program: says whether this is a rank of an MPI job;
                                 NULL: it is not */
    int32_t n_kernels;        /* of registered ops, added to the backend of every rank */
    const dtp_kernel *kernels;
    dtp_device_mesh_options mesh; /* seed, registered ops and the like */
} dtp_world_options;

static inline dtp_world_options dtp_world_options_init(void)
{
    dtp_world_options o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    o.mesh.size = sizeof o.mesh;
    return o;
}

/* What every rank runs. Under "sim" several run at once in one process and share `user`. The mesh
 * and all tensors on it end with the call. */
typedef dtp_status (*dtp_world_body)(dtp_device_mesh *mesh, void *user, dtp_err *err);

/* Runs body once per rank of the mesh "x:2;y:3". options NULL: defaults. Returns the failure of
 * the lowest rank that failed by itself, under mpi on all ranks; those that wait for a rank that
 * failed do not wait for ever. DTP_INVALID on bad text or when the MPI job does not have
 * as many ranks as the mesh. A program may call it several times; MPI, where this library has
 * started it, ends with the process. */
dtp_status dtp_world_run(const char *mesh, const dtp_world_options *options, dtp_world_body body,
                         void *user, dtp_err *err) DTP_MUST_CHECK;

DTP_API_END

#endif
