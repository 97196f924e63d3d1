/* From host arrays to distributed tensors: scatter, from_array, wrap, pack. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "executor/run/collect.h"
#include "dtensor/internal.h"

enum { CHUNK_ELEMS = 1 << 16 };

static dtp_shard shard_at(const dtp_device_mesh *mesh, const dtp_ttype *type,
                          const dtp_layout *layout, int32_t rank)
{
    return dtp_shard_of(type, layout, &mesh->comm->mesh, rank);
}

/* Ends the making of `t`: hands it out, or frees it. */
static dtp_status finish(dtp_status status, dtp_tensor t, dtp_tensor *out)
{
    if (status == DTP_OK) {
        *out = t;
    } else {
        dtp_tensor_destroy(t);
    }
    return status;
}

/* ---- from every rank's own copy ---- */

dtp_status dtp_tensor_from_array(dtp_device_mesh *mesh, const dtp_tensor_desc *desc,
                                 const void *data, dtp_tensor *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh, desc, out));
    dtp_ttype type;
    dtp_tensor t = {0};
    double neutral;
    DTP_TRY(dtp_tensor__type(mesh, desc, &type, err));
    if (data == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "from_array: no data");
    }
    DTP_TRY(dtp_tensor__make(mesh, &type, &desc->layout, NULL, &t, err));
    if (dtp_tensor__neutral(mesh, &desc->layout, &neutral)) {
        return finish(dtp_tensor__fill(t, neutral, err), t, out);
    }
    const dtp_shard shard = shard_at(mesh, &type, &desc->layout, mesh->comm->rank);
    dtp_shard_iterator iterator = dtp_shard_iterator_of(&shard);
    int64_t width = dtp_dtype_bytes(type.dtype), first, n;
    char *to = mesh->slots[t.slot].storage->data;
    dtp_status status = DTP_OK;
    while (status == DTP_OK && dtp_shard_iterator_next(&iterator, INT64_MAX, &first, &n)) {
        const char *from = (const char *)data + first * width;
        status = mesh->backend->ops->upload(mesh->backend, to, from, (size_t)(n * width), err);
        to += n * width;
    }
    return finish(status, t, out);
}

/* ---- from one rank ---- */

/* A scatter under way: in every round the source sends the next `chunk` elements of its shard to
 * every rank, by an all-to-all of which only the part of the source is looked at. */
typedef struct scattering {
    dtp_device_mesh *mesh;
    const dtp_tensor_slot *slot;
    int32_t source;
    const void *data;
    int64_t chunk, width;
    char *send, *receive;          /* ranks x chunk elements */
    dtp_shard_iterator *iterators; /* source: by rank */
} scattering;

static dtp_status prepare(scattering *s, int64_t elems, dtp_err *err)
{
    int32_t ranks = s->mesh->comm->size;
    bool sends = s->mesh->comm->rank == s->source;
    int64_t share = elems / ranks < 1024 ? 1024 : elems / ranks;
    s->width = dtp_dtype_bytes(s->slot->type.dtype);
    s->chunk = share < CHUNK_ELEMS ? share : CHUNK_ELEMS;
    s->chunk = s->chunk < elems ? s->chunk : elems;
    s->send = calloc((size_t)ranks, (size_t)(s->chunk * s->width));
    s->receive = calloc((size_t)ranks, (size_t)(s->chunk * s->width));
    s->iterators = calloc(sends ? (size_t)ranks : 1, sizeof *s->iterators);
    DTP_TRY(DTP_MEMORY(err, s->send, s->receive, s->iterators));
    if (sends && s->data == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "scatter: the source, rank %d, has no data", s->source);
    }
    for (int32_t r = 0; r < ranks && sends; r++) {
        dtp_shard shard = shard_at(s->mesh, &s->slot->type, &s->slot->layout, r);
        s->iterators[r] = dtp_shard_iterator_of(&shard);
    }
    return DTP_OK;
}

static dtp_status send_all(scattering *s, int64_t elems, dtp_err *err)
{
    dtp_comm *comm = s->mesh->comm;
    dtp_backend *backend = s->mesh->backend;
    const dtp_shard mine = shard_at(s->mesh, &s->slot->type, &s->slot->layout, comm->rank);
    const int64_t have = dtp_shard_elems(&mine), bytes = s->chunk * s->width;
    const dtp_coll coll = {.kind = DTP_ALL_TO_ALL,
                           .set = dtp_comm_all(comm),
                           .dtype = s->slot->type.dtype,
                           .count = s->chunk};
    for (int64_t first = 0; first < elems; first += s->chunk) {
        for (int32_t r = 0; r < comm->size && comm->rank == s->source; r++) {
            char *to = s->send + r * bytes, *const end = to + bytes;
            int64_t at, run;
            while (to < end &&
                   dtp_shard_iterator_next(&s->iterators[r], (end - to) / s->width, &at, &run)) {
                memcpy(to, (const char *)s->data + at * s->width, (size_t)(run * s->width));
                to += run * s->width;
            }
        }
        DTP_TRY(comm->ops->run(comm, &coll, s->send, s->receive, err));
        int64_t n = have - first < s->chunk ? have - first : s->chunk;
        if (n > 0) {
            DTP_TRY(backend->ops->upload(backend, (char *)s->slot->storage->data + first * s->width,
                                         s->receive + s->source * bytes, (size_t)(n * s->width),
                                         err));
        }
    }
    return DTP_OK;
}

static dtp_status scatter(dtp_tensor t, int32_t source, const void *data, dtp_err *err)
{
    dtp_device_mesh *mesh = t.mesh;
    scattering s = {.mesh = mesh, .slot = &mesh->slots[t.slot], .source = source, .data = data};
    const dtp_ttype *type = &s.slot->type;
    const dtp_layout *layout = &s.slot->layout;
    int64_t elems = dtp_tensor__bytes(mesh, type, layout) / dtp_dtype_bytes(type->dtype);
    double neutral;
    dtp_status status = dtp_comm_agree_status(mesh->comm, prepare(&s, elems, err), err);
    if (status == DTP_OK) {
        status = send_all(&s, elems, err);
        if (status == DTP_OK && dtp_tensor__neutral(mesh, &s.slot->layout, &neutral)) {
            status = dtp_tensor__fill(t, neutral, err);
        }
        status = status != DTP_OK ? dtp_call__abort(mesh, status, err) : DTP_OK;
    }
    free(s.send);
    free(s.receive);
    free(s.iterators);
    return status;
}

dtp_status dtp_tensor_scatter(dtp_device_mesh *mesh, const dtp_tensor_desc *desc, int32_t source,
                              const void *data, dtp_tensor *out, dtp_err *err)
{
    dtp_ttype type;
    dtp_tensor t = {0};
    DTP_TRY(DTP_NOT_NULL(err, mesh));
    dtp_status status = DTP_NOT_NULL(err, desc, out);
    status = status == DTP_OK ? dtp_tensor__type(mesh, desc, &type, err) : status;
    if (status == DTP_OK && (source < 0 || source >= mesh->comm->size)) {
        status = DTP_FAIL(err, DTP_INVALID, "scatter: the source is rank %d of %d", source,
                          mesh->comm->size);
    }
    if (status != DTP_OK) {
        return dtp_call__refuse(mesh, status, "scatter", err);
    }
    DTP_TRY(dtp_call__agree(mesh, "scatter", &type, &desc->layout, source, err));
    status = dtp_tensor__make(mesh, &type, &desc->layout, NULL, &t, err);
    status = dtp_comm_agree_status(mesh->comm, status, err);
    if (status == DTP_OK) {
        status = scatter(t, source, data, err);
    }
    return finish(status, t, out);
}

/* ---- from the local shard ---- */

static dtp_status check_local(const dtp_device_mesh *mesh, const dtp_ttype *type,
                              const dtp_layout *layout, const int64_t *shape, dtp_err *err)
{
    dtp_shard shard = shard_at(mesh, type, layout, mesh->comm->rank);
    bool empty = dtp_shard_elems(&shard) == 0, same = true;
    int64_t given = 1;
    for (int32_t i = 0; i < type->rank; i++) {
        same = same && shape[i] == shard.size[i];
        given *= shape[i] == 0 ? 0 : 1;
    }
    if (same || (empty && given == 0)) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < type->rank; i++) {
        if (shape[i] != shard.size[i]) {
            return DTP_FAIL(err, DTP_INVALID,
                            "wrap: dim %d of the piece of rank %d has %" PRId64
                            " elements, given are %" PRId64,
                            i, mesh->comm->rank, shard.size[i], shape[i]);
        }
    }
    return DTP_OK;
}

/* Compares a hash of the shard within every group of replicas. */
static dtp_status check_replicas(dtp_device_mesh *mesh, dtp_tensor t, const void *local,
                                 dtp_err *err)
{
    const dtp_tensor_slot *slot = &mesh->slots[t.slot];
    dtp_shard shard = shard_at(mesh, &slot->type, &slot->layout, mesh->comm->rank);
    int64_t bytes = dtp_shard_elems(&shard) * dtp_dtype_bytes(slot->type.dtype);
    uint64_t hash = dtp_hash_bytes(DTP_HASH_SEED, local, (size_t)bytes);
    int64_t high = (int64_t)(hash >> 32), low = (int64_t)(hash & UINT32_MAX);
    int64_t v[4] = {high, low, -high, -low};
    dtp_coll coll = {.kind = DTP_ALL_REDUCE, .op = DTP_REDUCE_MIN, .dtype = DTP_I64, .count = 4};
    for (int32_t m = 0; m < slot->layout.n_mesh; m++) {
        coll.set |= slot->layout.placement[m].kind == DTP_REPLICATE ? (dtp_mesh_set)1 << m : 0;
    }
    DTP_TRY(mesh->comm->ops->run(mesh->comm, &coll, v, v, err));
    dtp_status status = DTP_OK;
    if (v[0] != -v[2] || v[1] != -v[3]) {
        status = DTP_FAIL(err, DTP_INVALID,
                          "wrap: the replicas of the piece of rank %d are not all equal",
                          mesh->comm->rank);
    }
    return dtp_comm_agree_status(mesh->comm, status, err);
}

/* What this rank alone can find wrong, and the tensor with its shard. */
static dtp_status wrap_own(dtp_device_mesh *mesh, const dtp_ttype *type, const dtp_layout *layout,
                           const int64_t *local_shape, const void *local, dtp_tensor *t,
                           dtp_err *err)
{
    dtp_shard shard = shard_at(mesh, type, layout, mesh->comm->rank);
    int64_t bytes = dtp_shard_elems(&shard) * dtp_dtype_bytes(type->dtype);
    DTP_TRY(check_local(mesh, type, layout, local_shape, err));
    if (local == NULL && bytes > 0) {
        return DTP_FAIL(err, DTP_INVALID, "wrap: rank %d gives no data", mesh->comm->rank);
    }
    DTP_TRY(dtp_tensor__make(mesh, type, layout, NULL, t, err));
    void *to = mesh->slots[t->slot].storage->data;
    return bytes > 0 ? mesh->backend->ops->upload(mesh->backend, to, local, (size_t)bytes, err)
                     : DTP_OK;
}

dtp_status dtp_tensor_wrap(dtp_device_mesh *mesh, const dtp_tensor_desc *desc,
                           const int64_t *local_shape, const void *local, bool replicas,
                           dtp_tensor *out, dtp_err *err)
{
    dtp_ttype type;
    dtp_tensor t = {0};
    DTP_TRY(DTP_NOT_NULL(err, mesh));
    dtp_status status = DTP_NOT_NULL(err, desc, local_shape, out);
    status = status == DTP_OK ? dtp_tensor__type(mesh, desc, &type, err) : status;
    if (status != DTP_OK) {
        return dtp_call__refuse(mesh, status, "wrap", err);
    }
    DTP_TRY(dtp_call__agree(mesh, "wrap", &type, &desc->layout, replicas ? 1 : 0, err));
    status = wrap_own(mesh, &type, &desc->layout, local_shape, local, &t, err);
    status = dtp_call__agree_status(mesh, status, err);
    if (status == DTP_OK && replicas) {
        status = check_replicas(mesh, t, local, err);
    }
    return finish(status, t, out);
}

/* ---- from the shards of all ranks ---- */

dtp_status dtp_tensor_pack(dtp_device_mesh *mesh, const dtp_tensor_desc *desc,
                           const void *const *components, dtp_tensor *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh, desc, components, out));
    dtp_ttype type;
    dtp_tensor t = {0};
    const dtp_mesh *dims = &mesh->comm->mesh;
    DTP_TRY(dtp_tensor__type(mesh, desc, &type, err));
    size_t bytes = (size_t)dtp_tensor__bytes(mesh, &type, &desc->layout);
    if (!dtp_layout_is_even(&desc->layout, dims, &type)) {
        return DTP_FAIL(err, DTP_INVALID, "pack: the layout does not divide the tensor evenly");
    }
    for (int32_t r = 0; r < mesh->comm->size; r++) {
        /* The first rank that holds the same shard (partial values are shards of their own). */
        const dtp_layout *layout = &desc->layout;
        int32_t coords[DTP_MAX_MESH_DIMS];
        dtp_mesh_coords(dims, r, coords);
        for (int32_t m = 0; m < layout->n_mesh; m++) {
            coords[m] = layout->placement[m].kind == DTP_REPLICATE ? 0 : coords[m];
        }
        int32_t first = dtp_mesh_rank(dims, coords);
        if (components[r] == NULL || memcmp(components[r], components[first], bytes) != 0) {
            return DTP_FAIL(err, DTP_INVALID, "pack: component %d %s", r,
                            components[r] == NULL ? "is missing"
                                                  : "differs from another of the same piece");
        }
    }
    DTP_TRY(dtp_tensor__make(mesh, &type, &desc->layout, NULL, &t, err));
    dtp_status status = mesh->backend->ops->upload(mesh->backend, mesh->slots[t.slot].storage->data,
                                                   components[mesh->comm->rank], bytes, err);
    return finish(status, t, out);
}
