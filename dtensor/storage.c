/* Memory of tensors: storages with references, and the large released ones, kept for
 * calls that are repeated (mapping and clearing fresh pages costs more than most calls). Kept
 * memory counts as allocated and never raises the backend's peak: it goes before that would. */
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/hash.h"
#include "executor/comm/communicator.h"
#include "dtensor/internal.h"

enum { KEEP_BYTES = 1 << 20 /* smaller ones are not worth it */ };

static void free_storage(dtp_device_mesh *mesh, dtp_storage *s)
{
    dtp_comm_free(mesh->comm, mesh->backend, s->data, (size_t)s->bytes);
    free(s);
}

/* Takes entry i off the list, which is ordered by age. */
static dtp_storage *unkeep(dtp_device_mesh *mesh, int32_t i)
{
    dtp_storage *s = mesh->kept[i];
    mesh->n_kept--;
    for (; i < mesh->n_kept; i++) {
        mesh->kept[i] = mesh->kept[i + 1];
    }
    return s;
}

void dtp_storage__drop_kept(dtp_device_mesh *mesh)
{
    while (mesh->n_kept > 0) {
        free_storage(mesh, unkeep(mesh, 0));
    }
}

static dtp_status allocate(dtp_device_mesh *mesh, int64_t bytes, void **out, dtp_err *err)
{
    dtp_backend *b = mesh->backend;
    while (mesh->n_kept > 0 && b->allocated_bytes > b->peak_allocated_bytes - bytes) {
        free_storage(mesh, unkeep(mesh, 0));
    }
    dtp_status status = dtp_comm_alloc(mesh->comm, b, (size_t)bytes, out, err);
    if (status == DTP_OK || mesh->n_kept == 0) {
        return status;
    }
    dtp_storage__drop_kept(mesh);
    return dtp_comm_alloc(mesh->comm, b, (size_t)bytes, out, err);
}

dtp_status dtp_storage__create(dtp_device_mesh *mesh, int64_t bytes, dtp_storage **out,
                               dtp_err *err)
{
    dtp_storage *s = NULL;
    for (int32_t i = mesh->n_kept - 1; i >= 0 && s == NULL; i--) {
        s = mesh->kept[i]->bytes == bytes ? unkeep(mesh, i) : NULL;
    }
    const uint64_t made = dtp_hash_i64(dtp_hash_i64(DTP_HASH_SEED, mesh->compared), mesh->calls);
    if (s != NULL) {
        s->refs = 1;
        s->made = made;
        *out = s;
        return DTP_OK;
    }
    s = malloc(sizeof *s);
    DTP_TRY(DTP_MEMORY(err, s));
    *s = (dtp_storage){.mesh = mesh, .bytes = bytes, .refs = 1, .made = made};
    dtp_status status = allocate(mesh, bytes, &s->data, err);
    if (status != DTP_OK) {
        free(s);
        return status;
    }
    *out = s;
    return DTP_OK;
}

void dtp_storage__release(dtp_storage *s)
{
    if (s == NULL || --s->refs > 0) {
        return;
    }
    dtp_device_mesh *mesh = s->mesh;
    if (s->bytes < KEEP_BYTES) {
        free_storage(mesh, s);
        return;
    }
    if (mesh->n_kept == DTP_MESH_KEPT) {
        free_storage(mesh, unkeep(mesh, 0));
    }
    mesh->kept[mesh->n_kept++] = s;
}
