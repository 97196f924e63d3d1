/* From distributed tensors to host arrays: read, gather, unpack. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "executor/device/convert.h"
#include "executor/run/collect.h"
#include "dtensor/internal.h"

dtp_status dtp_tensor_read(dtp_tensor t, void *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, out));
    dtp_tensor_slot *slot;
    DTP_TRY(dtp_tensor__slot(t, "read", &slot, err));
    const dtp_mesh *mesh = &t.mesh->comm->mesh;
    for (int32_t m = 0; m < slot->layout.n_mesh; m++) {
        if (slot->layout.placement[m].kind != DTP_REPLICATE && mesh->sizes[m] > 1) {
            char text[DTP_TENSOR_TEXT_BYTES];
            dtp_tensor__text(t.mesh, &slot->type, &slot->layout, text);
            return DTP_FAIL(err, DTP_INVALID,
                            "read: %.400s is not replicated on mesh dim '%s': use %s", text,
                            mesh->names[m],
                            dtp_ttype_elems(&slot->type) == 1       ? "dtp_tensor_item"
                            : dtp_layout_has_partial(&slot->layout) ? "dtp_tensor_full_tensor"
                                                                    : "dtp_tensor_gather");
        }
    }
    return t.mesh->backend->ops->download(t.mesh->backend, out, slot->storage->data,
                                          (size_t)dtp_ttype_bytes(&slot->type), err);
}

/* ---- gather ---- */

static dtp_status gather(dtp_device_mesh *mesh, const dtp_tensor_slot *slot, int32_t root,
                         void *out, dtp_err *err)
{
    dtp_comm *comm = mesh->comm;
    const bool wanted = root < 0 || root == comm->rank;
    dtp_collection c = {.comm = comm,
                        .backend = mesh->backend,
                        .mesh = &comm->mesh,
                        .type = &slot->type,
                        .layout = slot->layout,
                        .data = slot->storage->data,
                        .out = wanted ? out : NULL};
    for (int32_t m = 0; m < slot->layout.n_mesh; m++) {
        c.set |= slot->layout.placement[m].kind == DTP_SHARD ? (dtp_mesh_set)1 << m : 0;
    }
    dtp_status status = dtp_collect_prepare(&c, err);
    if (status == DTP_OK && wanted && out == NULL) {
        status =
            DTP_FAIL(err, DTP_INVALID, "gather: rank %d has no room for the result", comm->rank);
    }
    status = dtp_comm_agree_status(comm, status, err);
    if (status == DTP_OK) {
        bool takes_part = root < 0;
        for (int32_t j = 0; j < c.members; j++) {
            takes_part =
                takes_part || dtp_mesh_set_member(&comm->mesh, c.set, comm->rank, j) == root;
        }
        status = takes_part ? dtp_collect_run(&c, err) : DTP_OK;
        status = status != DTP_OK ? dtp_call__abort(mesh, status, err) : DTP_OK;
    }
    dtp_collect_free(&c);
    return status;
}

dtp_status dtp_tensor_gather(dtp_tensor t, int32_t root, void *out, dtp_err *err)
{
    static const char what[] = "gather";
    dtp_tensor_slot *slot;
    dtp_status status = dtp_tensor__slot(t, what, &slot, err);
    if (status == DTP_OK && root >= t.mesh->comm->size) {
        status = DTP_FAIL(err, DTP_INVALID, "gather: the root is rank %d of %d", root,
                          t.mesh->comm->size);
    }
    if (status == DTP_OK && dtp_layout_has_partial(&slot->layout)) {
        char text[DTP_TENSOR_TEXT_BYTES];
        dtp_tensor__text(t.mesh, &slot->type, &slot->layout, text);
        status = DTP_FAIL(err, DTP_INVALID, "gather: %.400s is partial: use dtp_tensor_full_tensor",
                          text);
    }
    if (status != DTP_OK) {
        return dtp_call__refuse(t.mesh, status, what, err);
    }
    dtp_call__reads(t.mesh, 1, &t);
    DTP_TRY(dtp_call__agree(t.mesh, what, &slot->type, &slot->layout, root < 0 ? -1 : root, err));
    return gather(t.mesh, slot, root, out, err);
}

/* ---- any layout ---- */

dtp_status dtp_tensor_full_tensor(dtp_tensor t, int32_t root, void *out, dtp_err *err)
{
    dtp_tensor_slot *slot;
    dtp_tensor whole = {0};
    dtp_status status = dtp_tensor__slot(t, "full_tensor", &slot, err);
    if (status != DTP_OK) {
        return dtp_call__refuse(t.mesh, status, "full_tensor", err);
    }
    dtp_layout reduced = slot->layout;
    for (int32_t m = 0; m < reduced.n_mesh; m++) {
        if (reduced.placement[m].kind == DTP_PARTIAL) {
            reduced.placement[m] = (dtp_placement){.kind = DTP_REPLICATE};
        }
    }
    DTP_TRY(dtp_tensor__relaid(t, &reduced, &whole, err));
    status = dtp_tensor_gather(whole, root, out, err);
    dtp_tensor_destroy(whole);
    return status;
}

/* The one element of a tensor, in 8 bytes, and its type. */
static dtp_status item(dtp_tensor t, bool ints_only, char out[8], dtp_dtype *dtype, dtp_err *err)
{
    dtp_tensor_slot *slot;
    dtp_status status = dtp_tensor__slot(t, "item", &slot, err);
    if (status == DTP_OK && (dtp_ttype_elems(&slot->type) != 1 ||
                             (ints_only && dtp_dtype_is_float(slot->type.dtype)))) {
        char text[DTP_TENSOR_TEXT_BYTES];
        dtp_tensor__text(t.mesh, &slot->type, &slot->layout, text);
        status = DTP_FAIL(err, DTP_INVALID, "item: %.400s is not one %s", text,
                          ints_only ? "integer: use dtp_tensor_item" : "element");
    }
    if (status != DTP_OK) {
        return dtp_call__refuse(t.mesh, status, "item", err);
    }
    *dtype = slot->type.dtype;
    return dtp_tensor_full_tensor(t, -1, out, err);
}

dtp_status dtp_tensor_item(dtp_tensor t, double *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, out));
    _Alignas(8) char value[8] = {0};
    dtp_dtype dtype = DTP_F32;
    DTP_TRY(item(t, false, value, &dtype, err));
    *out = dtp_element(dtype, value, 0);
    if (dtype == DTP_I64) {
        int64_t exact;
        memcpy(&exact, value, sizeof exact);
        if (exact > INT64_C(1) << 53 || exact < -(INT64_C(1) << 53)) {
            return DTP_FAIL(err, DTP_RANGE,
                            "item: a double does not hold %" PRId64 ": use dtp_tensor_item_int",
                            exact);
        }
    }
    return DTP_OK;
}

dtp_status dtp_tensor_item_int(dtp_tensor t, int64_t *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, out));
    _Alignas(8) char value[8] = {0};
    dtp_dtype dtype = DTP_F32;
    DTP_TRY(item(t, true, value, &dtype, err));
    if (dtype == DTP_I64) {
        memcpy(out, value, sizeof *out);
    } else {
        *out = (int64_t)dtp_element(dtype, value, 0);
    }
    return DTP_OK;
}

/* ---- unpack ---- */

/* Gathers padded shards into `out` and closes the gaps. */
static dtp_status unpack(dtp_device_mesh *mesh, const dtp_tensor_slot *slot, char *mine, char *out,
                         int64_t *sizes, dtp_err *err)
{
    dtp_comm *comm = mesh->comm;
    int64_t width = dtp_dtype_bytes(slot->type.dtype), at = 0;
    int64_t bytes = dtp_tensor__bytes(mesh, &slot->type, &slot->layout);
    dtp_shard shard = dtp_shard_of(&slot->type, &slot->layout, &comm->mesh, comm->rank);
    const dtp_coll coll = {.kind = DTP_ALL_GATHER,
                           .set = dtp_comm_all(comm),
                           .dtype = slot->type.dtype,
                           .count = bytes / width};
    DTP_TRY(mesh->backend->ops->download(mesh->backend, mine, slot->storage->data,
                                         (size_t)(dtp_shard_elems(&shard) * width), err));
    DTP_TRY(comm->ops->run(comm, &coll, mine, out, err));
    for (int32_t r = 0; r < comm->size; r++) {
        shard = dtp_shard_of(&slot->type, &slot->layout, &comm->mesh, r);
        int64_t n = dtp_shard_elems(&shard);
        memmove(out + at, out + r * bytes, (size_t)(n * width));
        at += n * width;
        if (sizes != NULL) {
            sizes[r] = n;
        }
    }
    return DTP_OK;
}

dtp_status dtp_tensor_unpack(dtp_tensor t, void *out, int64_t *sizes, dtp_err *err)
{
    static const char what[] = "unpack";
    dtp_tensor_slot *slot;
    dtp_status status = dtp_tensor__slot(t, what, &slot, err);
    if (status != DTP_OK) {
        return dtp_call__refuse(t.mesh, status, what, err);
    }
    dtp_device_mesh *mesh = t.mesh;
    dtp_call__reads(mesh, 1, &t);
    DTP_TRY(dtp_call__agree(mesh, what, &slot->type, &slot->layout, 0, err));
    char *mine = calloc(1, (size_t)dtp_tensor__bytes(mesh, &slot->type, &slot->layout));
    const bool room = mine != NULL && out != NULL;
    if (!room) {
        status = DTP_FAIL(err, mine == NULL ? DTP_NOMEM : DTP_INVALID,
                          "unpack: rank %d has no room for the pieces", mesh->comm->rank);
    }
    status = dtp_comm_agree_status(mesh->comm, status, err);
    if (status == DTP_OK && room) {
        status = unpack(mesh, slot, mine, out, sizes, err);
        status = status != DTP_OK ? dtp_call__abort(mesh, status, err) : DTP_OK;
    }
    free(mine);
    return status;
}
