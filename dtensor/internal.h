/* What the files of this folder share: what a handle stands for, and the cache of compiled calls.
 */
#ifndef DTP_DTENSOR_INTERNAL_H
#define DTP_DTENSOR_INTERNAL_H

#include "dtp/status.h"
#include "core/layout/dims.h"
#include "dtp/ops.h"
#include "dtp/tape.h"
#include "dtp/tensor.h"
#include "spmd/redistribute/redistribute_cache.h"
#include "interop/redistribute_torch.h"
#include "executor/comm/communicator.h"
#include "dtensor/executable.h"

/* Device memory, in reach of the peers' collectives where that can be had. Several handles may
 * share it; contents never change once a tensor has it. */
typedef struct dtp_storage {
    dtp_device_mesh *mesh;
    void *data;
    int64_t bytes;
    int32_t refs;
    uint64_t made; /* how the contents came about, alike on all ranks: by which collective call, or
                      from what a factory was given */
} dtp_storage;

/* What a handle stands for. */
typedef struct dtp_tensor_slot {
    uint32_t generation;    /* odd: in use */
    bool variable, watched; /* watched: a variable that the tape watches */
    dtp_ttype type;         /* global; dim ids are 0 .. rank-1 of mesh->dims ("0", "1", ...) */
    dtp_layout layout;
    dtp_storage *storage;   /* one reference */
    dtp_tensor_id recorded; /* tensor of the tape's graph that it is, -1 = none */
} dtp_tensor_slot;

typedef struct dtp_call_cache dtp_call_cache;

enum { DTP_MESH_KEPT = 8 };

struct dtp_device_mesh {
    dtp_comm *comm;
    dtp_comm *owned_comm; /* sub-mesh: its sub-communicator; else NULL */
    dtp_backend *backend;
    dtp_device_mesh_options options;
    dtp_torch_planner torch;                /* options.torch: decides on redistributions */
    dtp_redistribute_cache *cache;          /* of redistribution plans */
    const dtp_redistributor *redistributor; /* that of the cache */
    dtp_arena *arena;
    dtp_dims dims; /* "0" .. "7" */
    dtp_tensor_slot *slots;
    uint32_t n_slots, cap_slots;
    uint32_t *free_slots; /* as many as cap_slots */
    uint32_t n_free;
    dtp_comm_count *counts;
    int32_t n_counts, cap_counts;
    dtp_call_cache *cached; /* calls; NULL until one is made */
    dtp_storage *scratch;   /* of the calls; NULL until one needs it */
    int32_t n_kept;         /* storages that no tensor has, for the next ones; see tensor.c */
    dtp_storage *kept[DTP_MESH_KEPT];
    dtp_tape *tape;          /* the one that records, NULL = none */
    int64_t agreed;          /* agreements so far, part of what ranks agree on */
    int64_t compared, calls; /* comparisons of ranks so far, and collective calls since the last */
    uint64_t history;        /* hash of these calls and of the tensors that they read */
};

/* The slot of a handle; DTP_INVALID "FUNCTION: the tensor was destroyed" and the like. Slots move
 * when tensors are made: do not keep the pointer across that. */
dtp_status dtp_tensor__slot(dtp_tensor t, const char *function, dtp_tensor_slot **out,
                            dtp_err *err) DTP_MUST_CHECK;
/* The same, and the tensor is on `mesh`. */
dtp_status dtp_tensor__slot_on(const dtp_device_mesh *mesh, dtp_tensor t, const char *function,
                               dtp_tensor_slot **out, dtp_err *err) DTP_MUST_CHECK;
/* A new handle on `storage` (takes one reference; NULL: allocates). */
dtp_status dtp_tensor__make(dtp_device_mesh *mesh, const dtp_ttype *type, const dtp_layout *layout,
                            dtp_storage *storage, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_storage__create(dtp_device_mesh *mesh, int64_t bytes, dtp_storage **out,
                               dtp_err *err) DTP_MUST_CHECK;
/* Gives one reference back; NULL is accepted. */
void dtp_storage__release(dtp_storage *s);
/* Frees what is kept of released storages. */
void dtp_storage__drop_kept(dtp_device_mesh *mesh);
/* Bytes of the buffer of a tensor: its largest shard on any rank. */
int64_t dtp_tensor__bytes(const dtp_device_mesh *mesh, const dtp_ttype *type,
                          const dtp_layout *layout);
/* Type of a desc; dtype, rank, sizes and layout are checked. */
dtp_status dtp_tensor__type(const dtp_device_mesh *mesh, const dtp_tensor_desc *desc,
                            dtp_ttype *out, dtp_err *err) DTP_MUST_CHECK;
/* Whether this rank holds a neutral element (0 of a sum, 1 of a product) of a partial tensor that
 * is made from values: then *value is it. Else it holds the values. */
bool dtp_tensor__neutral(const dtp_device_mesh *mesh, const dtp_layout *layout, double *value);
/* Fills the shard of a tensor just made. */
dtp_status dtp_tensor__fill(dtp_tensor t, double value, dtp_err *err) DTP_MUST_CHECK;
/* The tensor in a layout, as a new handle: on the same contents when it lies so. Not recorded by a
 * tape. Collective when it does not lie so. */
dtp_status dtp_tensor__relaid(dtp_tensor t, const dtp_layout *layout, dtp_tensor *out,
                              dtp_err *err) DTP_MUST_CHECK;
/* "f32[16,24] 0@x" for messages. */
void dtp_tensor__text(const dtp_device_mesh *mesh, const dtp_ttype *type, const dtp_layout *layout,
                      char out[DTP_TENSOR_TEXT_BYTES]);

/* ---- collective calls ---- */

/* A collective function looks at its arguments first; what it finds wrong goes through
 * dtp_call__refuse. Then it agrees with the other ranks: dtp_call__agree for a call without a
 * program, dtp_call__find for one with a program, both with a key that holds everything that
 * decides what the call does, as bytes without padding (zero the struct's memory first; begin it
 * with a tag of its own). What the ranks compare and when, options.agree says. */

/* A key for calls on one tensor. */
typedef struct dtp_tensor_key {
    char tag[16];
    dtp_ttype type;
    dtp_layout layout, to;
    int64_t number;
} dtp_tensor_key;

/* Tag (cut to 15 bytes), type and layout; the rest is zero. */
void dtp_call__tensor_key(const char *tag, const dtp_ttype *type, const dtp_layout *layout,
                          dtp_tensor_key *out);

/* Returns `status`, a failure found before anything was sent; under DTP_AGREE_ALWAYS the ranks that
 * go on learn of it. `what` names the call. Without a mesh no other rank can. */
dtp_status dtp_call__refuse(dtp_device_mesh *mesh, dtp_status status, const char *what,
                            dtp_err *err);
/* The key is that of dtp_call__tensor_key with this number. */
dtp_status dtp_call__agree(dtp_device_mesh *mesh, const char *what, const dtp_ttype *type,
                           const dtp_layout *layout, int64_t number, dtp_err *err) DTP_MUST_CHECK;
/* Before that: the tensors that the call reads, so that a comparison, of this call or of the next
 * that is compared, notices when ranks pass different ones of one type and layout. */
void dtp_call__reads(dtp_device_mesh *mesh, int32_t n, const dtp_tensor *in);

/* Finds a compiled call, or builds it with `build` and keeps it. The ranks agree whether all could
 * build it and make its sub-communicators. Executables are owned by the mesh. */
dtp_status dtp_call__find(dtp_device_mesh *mesh, const void *key, size_t key_bytes,
                          const char *what, dtp_call_build build, const void *user,
                          dtp_executable **out, dtp_err *err) DTP_MUST_CHECK;
/* Logs the collectives of a call that was run: those of its program (call_log.c). */
void dtp_call__log(const dtp_device_mesh *mesh, const dtp_program *p);
/* Tells the peers that this rank cannot go on with a call that has begun; returns `status`. */
static inline dtp_status dtp_call__abort(const dtp_device_mesh *mesh, dtp_status status,
                                         const dtp_err *err)
{
    dtp_comm_abort(mesh->comm, err != NULL ? err->msg : dtp_status_text(status));
    return status;
}
/* One verdict of all ranks (dtp_comm_agree_status), unless they never compare. */
dtp_status dtp_call__agree_status(dtp_device_mesh *mesh, dtp_status mine,
                                  dtp_err *err) DTP_MUST_CHECK;
void dtp_call__cache_destroy(dtp_call_cache *cache);

#endif
