/* Device meshes (include/dtp/device_mesh.h), those made of a mesh, and a mesh of ranks that are
 * started here (include/dtp/world.h). */
#include "dtp/device_mesh.h"
#include "dtp/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/graph/ops/op_table.h"
#include "executor/comm/sub_communicator.h"
#include "executor/run/ranks.h"
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

/* A failed agreement says what the ranks have. */
static dtp_status agree(const dtp_device_mesh *mesh, const char *what, const char *mine,
                        dtp_err *err)
{
    return dtp_err_prefixed(
        dtp_comm_agree_words(mesh->comm, dtp_hash_text(DTP_HASH_SEED, mine), what, mine, err), err,
        "device mesh");
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
    dtp_backend_say(backend, mesh->options.ctx);
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

/* ---- the part of a mesh that spans some dims, and dims joined into one ---- */

/* Both run over the communicator of the parent (executor/comm/sub_communicator.h) and leave the
 * other ranks alone. */

/* Reads "dp,tp": names of different dims in mesh order. */
static dtp_status read_dims(const dtp_mesh *mesh, const char *dims, const char *what,
                            dtp_mesh_set *out, dtp_err *err)
{
    *out = 0;
    for (const char *at = dims; *at != '\0';) {
        char name[DTP_MESH_NAME_BYTES] = "";
        size_t n = strcspn(at, ", ");
        if (n < sizeof name) {
            memcpy(name, at, n);
        }
        int32_t m = n < sizeof name ? dtp_mesh_find(mesh, name) : -1;
        if (m < 0 || *out >> m != 0) {
            return DTP_FAIL(err, DTP_INVALID, "%s '%.100s': '%.*s' is %s", what, dims,
                            (int)(n < 40 ? n : 40), at,
                            m < 0 ? "no dim of the mesh" : "not in mesh order");
        }
        *out |= (dtp_mesh_set)1 << m;
        at += n;
        at += strspn(at, ", ");
    }
    return *out != 0 ? DTP_OK : DTP_FAIL(err, DTP_INVALID, "%s: no mesh dim is named", what);
}

/* A mesh on a sub-communicator of the parent; `text` names its dims. */
static dtp_status make_sub(dtp_device_mesh *parent, const char *text, const dtp_mesh_set *sets,
                           dtp_device_mesh **out, dtp_err *err)
{
    dtp_mesh dims;
    dtp_comm *comm;
    DTP_TRY(dtp_mesh_parse(text, &dims, err));
    DTP_TRY(dtp_sub_communicator_create(parent->comm, &dims, sets, &comm, err));
    dtp_status status = dtp_device_mesh_create(comm, parent->backend, &parent->options, out, err);
    if (status != DTP_OK) {
        dtp_comm_destroy(comm);
        return status;
    }
    (*out)->owned_comm = comm;
    return DTP_OK;
}

static void add_dim(char text[DTP_MESH_TEXT_BYTES], const char *name, int64_t size)
{
    size_t n = strlen(text);
    snprintf(text + n, DTP_MESH_TEXT_BYTES - n, "%s%s:%lld", n > 0 ? ";" : "", name,
             (long long)size);
}

dtp_status dtp_device_mesh_sub(dtp_device_mesh *mesh, const char *dims, dtp_device_mesh **out,
                               dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh, dims, out));
    const dtp_mesh *all = &mesh->comm->mesh;
    dtp_mesh_set picked, sets[DTP_MAX_MESH_DIMS];
    char text[DTP_MESH_TEXT_BYTES] = "";
    int32_t n = 0;
    DTP_TRY(read_dims(all, dims, "sub-mesh", &picked, err));
    for (int32_t m = 0; m < all->n_dims; m++) {
        if ((picked >> m & 1U) != 0) {
            add_dim(text, all->names[m], all->sizes[m]);
            sets[n++] = (dtp_mesh_set)1 << m;
        }
    }
    return make_sub(mesh, text, sets, out, err);
}

dtp_status dtp_device_mesh_flatten(dtp_device_mesh *mesh, const char *dims, const char *name,
                                   dtp_device_mesh **out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh, dims, name, out));
    const dtp_mesh *all = &mesh->comm->mesh;
    dtp_mesh_set picked, sets[DTP_MAX_MESH_DIMS];
    char text[DTP_MESH_TEXT_BYTES] = "";
    int32_t n = 0;
    DTP_TRY(read_dims(all, dims, "flatten", &picked, err));
    dtp_mesh_set low = picked & ~(picked - 1);
    if ((picked & (picked + low)) != 0) {
        return DTP_FAIL(err, DTP_INVALID, "flatten '%.100s': the dims are not neighbours", dims);
    }
    if (strlen(name) >= DTP_MESH_NAME_BYTES) {
        return DTP_FAIL(err, DTP_INVALID, "flatten: the name '%.40s...' is too long", name);
    }
    for (int32_t m = 0; m < all->n_dims; m++) {
        bool joined = (picked >> m & 1U) != 0, first = (low >> m & 1U) != 0;
        if (!joined || first) {
            add_dim(text, joined ? name : all->names[m],
                    joined ? dtp_mesh_set_size(all, picked) : all->sizes[m]);
            sets[n++] = joined ? picked : (dtp_mesh_set)1 << m;
        }
    }
    return make_sub(mesh, text, sets, out, err);
}

/* ---- the ranks of a job ---- */

typedef struct world {
    dtp_world_options options;
    dtp_world_body body;
    void *user;
} world;

static dtp_status run_rank(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    const world *w = user;
    dtp_device_mesh *mesh = NULL;
    DTP_TRY(dtp_backend_add_kernels(backend, w->options.kernels, w->options.n_kernels, err));
    DTP_TRY(dtp_device_mesh_create(comm, backend, &w->options.mesh, &mesh, err));
    dtp_status status = w->body(mesh, w->user, err);
    dtp_device_mesh_destroy(mesh);
    return status;
}

dtp_status dtp_world_run(const char *mesh, const dtp_world_options *options, dtp_world_body body,
                         void *user, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh));
    if (body == NULL) { /* a function is no object: not for DTP_NOT_NULL */
        return DTP_FAIL(err, DTP_INVALID, "dtp_world_run: 'body' is NULL");
    }
    dtp_mesh dims;
    world w = {.options = dtp_world_options_init(), .body = body, .user = user};
    if (options != NULL) {
        DTP_TRY(dtp_options_read(__func__, options, sizeof w.options, &w.options, err));
    }
    DTP_TRY(dtp_mesh_parse(mesh, &dims, err));
    dtp_ranks_options ranks = {.comm = w.options.comm,
                               .backend = w.options.backend != NULL ? w.options.backend : "cpu",
                               .threads = w.options.threads,
                               .rank = dtp_comm_launched_rank(w.options.environment)};
    if (ranks.comm == NULL) {
        const char *alone = dtp_mesh_ranks(&dims) > 1 ? "sim" : "self";
        ranks.comm = dtp_comm_in_mpi_job(w.options.environment) ? "mpi" : alone;
    }
    return dtp_ranks_run(&ranks, &dims, run_rank, &w, err);
}
