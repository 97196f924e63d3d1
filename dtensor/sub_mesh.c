/* Meshes made of a mesh: the part that spans some dims, and dims joined into one. Both run over the
 * communicator of the parent (executor/comm/sub_communicator.h) and leave the other ranks alone. */
#include <stdio.h>
#include <string.h>

#include "executor/comm/sub_communicator.h"
#include "dtensor/internal.h"

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
static dtp_status create(dtp_device_mesh *parent, const char *text, const dtp_mesh_set *sets,
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
    return create(mesh, text, sets, out, err);
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
    return create(mesh, text, sets, out, err);
}
