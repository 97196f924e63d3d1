/* Device meshes (include/dtp/device_mesh.h). */
#include "dtp/device_mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/graph/ops/op_table.h"
#include "dtensor/internal.h"

static dtp_status new_mesh(dtp_comm *comm, dtp_backend *backend,
                           const dtp_device_mesh_options *options, dtp_device_mesh **out,
                           dtp_err *err)
{
    dtp_device_mesh *mesh = calloc(1, sizeof *mesh);
    *out = mesh;
    DTP_TRY(DTP_MEMORY(err, mesh));
    mesh->comm = comm;
    mesh->backend = backend;
    DTP_TRY(dtp_options_read("dtp_device_mesh_create", options, sizeof mesh->options,
                             &mesh->options, err));
    if (mesh->options.ops == NULL) {
        mesh->options.ops = dtp_builtin_ops();
    }
    mesh->arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, mesh->arena));
    mesh->torch.options.price = dtp_step_generic_price;
    const dtp_redistributor torch = dtp_torch_redistributor(&mesh->torch);
    DTP_TRY(dtp_redistribute_cache_create(
        mesh->options.torch ? &torch : dtp_redistributor_generic(), 0, &mesh->cache, err));
    mesh->redistributor = dtp_redistribute_cache_planner(mesh->cache);
    /* The names of tensor dims in layout texts. */
    dtp_dims_init(&mesh->dims, mesh->arena);
    for (int32_t i = 0; i < DTP_MAX_RANK; i++) {
        char name[12];
        dtp_dim_id id;
        snprintf(name, sizeof name, "%d", i);
        DTP_TRY(dtp_dims_intern(&mesh->dims, name, 0, &id, err));
    }
    return DTP_OK;
}

/* A failed agreement says what this rank has. */
static dtp_status agree(const dtp_device_mesh *mesh, const char *what, const char *mine,
                        dtp_err *err)
{
    dtp_status status = dtp_comm_agree(mesh->comm, dtp_hash_text(DTP_HASH_SEED, mine), what, err);
    if (status != DTP_OK) {
        dtp_err_prefix(err, "device mesh: rank %d has %s '%s'", mesh->comm->rank, what, mine);
    }
    return status;
}

static dtp_status agree_all(const dtp_device_mesh *mesh, dtp_err *err)
{
    const dtp_device_mesh_options *o = &mesh->options;
    char text[DTP_MESH_TEXT_BYTES];
    dtp_mesh_print(&mesh->comm->mesh, text);
    DTP_TRY(agree(mesh, "the mesh", text, err));
    snprintf(text, sizeof text, "%llu", (unsigned long long)o->seed);
    DTP_TRY(agree(mesh, "the seed", text, err));
    snprintf(text, sizeof text, "agree=%d torch=%d strict=%d", (int)o->agree, o->torch, o->strict);
    return agree(mesh, "the options", text, err);
}

dtp_status dtp_device_mesh_create(dtp_comm *comm, dtp_backend *backend,
                                  const dtp_device_mesh_options *options, dtp_device_mesh **out,
                                  dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, comm, backend, out));
    dtp_device_mesh *mesh;
    dtp_status status = new_mesh(comm, backend, options, &mesh, err);
    status = dtp_comm_agree_status(comm, status, err);
    if (status == DTP_OK) {
        status = agree_all(mesh, err);
    }
    if (status != DTP_OK) {
        dtp_device_mesh_destroy(mesh);
        return status;
    }
    *out = mesh;
    return DTP_OK;
}

void dtp_device_mesh_destroy(dtp_device_mesh *mesh)
{
    if (mesh == NULL) {
        return;
    }
    for (uint32_t s = 0; s < mesh->n_slots; s++) {
        dtp_storage__release(mesh->slots[s].storage);
    }
    dtp_call__cache_destroy(mesh->cached);
    dtp_storage__release(mesh->scratch);
    dtp_storage__drop_kept(mesh);
    free(mesh->slots);
    free(mesh->free_slots);
    free(mesh->counts);
    dtp_redistribute_cache_destroy(mesh->cache);
    dtp_arena_destroy(mesh->arena);
    dtp_comm_destroy(mesh->owned_comm);
    free(mesh);
}

dtp_comm *dtp_device_mesh_comm(const dtp_device_mesh *mesh)
{
    return mesh != NULL ? mesh->comm : NULL;
}

dtp_backend *dtp_device_mesh_backend(const dtp_device_mesh *mesh)
{
    return mesh != NULL ? mesh->backend : NULL;
}

const dtp_mesh *dtp_device_mesh_dims(const dtp_device_mesh *mesh)
{
    return mesh != NULL ? &mesh->comm->mesh : NULL;
}

int32_t dtp_device_mesh_rank(const dtp_device_mesh *mesh)
{
    return mesh != NULL ? mesh->comm->rank : -1;
}

int32_t dtp_device_mesh_size(const dtp_device_mesh *mesh)
{
    return mesh != NULL ? mesh->comm->size : 0;
}

void dtp_device_mesh_coords(const dtp_device_mesh *mesh, int32_t coords[DTP_MAX_MESH_DIMS])
{
    if (mesh != NULL && coords != NULL) {
        dtp_mesh_coords(&mesh->comm->mesh, mesh->comm->rank, coords);
    }
}

int32_t dtp_device_mesh_coord(const dtp_device_mesh *mesh, const char *dim)
{
    int32_t coords[DTP_MAX_MESH_DIMS];
    const int32_t m = mesh != NULL && dim != NULL ? dtp_mesh_find(&mesh->comm->mesh, dim) : -1;
    dtp_device_mesh_coords(mesh, coords);
    return m < 0 ? -1 : coords[m];
}

void dtp_device_mesh_set_strict(dtp_device_mesh *mesh, bool strict)
{
    if (mesh != NULL) {
        mesh->options.strict = strict;
    }
}

int32_t dtp_device_mesh_counts(const dtp_device_mesh *mesh, const dtp_comm_count **out)
{
    if (out != NULL) {
        *out = mesh != NULL ? mesh->counts : NULL;
    }
    return mesh != NULL ? mesh->n_counts : 0;
}

int64_t dtp_device_mesh_count(const dtp_device_mesh *mesh, dtp_coll_kind kind)
{
    int64_t n = 0;
    for (int32_t i = 0; mesh != NULL && i < mesh->n_counts; i++) {
        n += mesh->counts[i].kind == kind ? mesh->counts[i].count : 0;
    }
    return n;
}

void dtp_device_mesh_reset_counts(dtp_device_mesh *mesh)
{
    if (mesh != NULL) {
        mesh->n_counts = 0;
    }
}
