/* Handles: slots with generations, storages with references (include/dtp/tensor.h). */
#include "dtp/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interop/layout_forms.h"
#include "core/base/hash.h"
#include "core/base/strbuf.h"
#include "executor/comm/communicator.h"
#include "dtensor/canonical_call.h"

/* ---- storages ---- */

/* The large released ones are kept for calls that are repeated (mapping and clearing fresh pages
 * costs more than most calls). Kept memory counts as allocated and never raises the backend's peak:
 * it goes before that would. */

enum { KEEP_BYTES = 1 << 20 /* smaller ones are not worth it */ };

static void free_storage(dtp_device_mesh *mesh, dtp_storage *s)
{
    dtp_transport_free(&mesh->comm->transport, mesh->backend, s->data, (size_t)s->bytes);
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
    dtp_status status =
        dtp_transport_alloc(&mesh->comm->transport, b, (size_t)bytes, false, out, err);
    if (status == DTP_OK || mesh->n_kept == 0) {
        return status;
    }
    dtp_storage__drop_kept(mesh);
    return dtp_transport_alloc(&mesh->comm->transport, b, (size_t)bytes, false, out, err);
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

/* ---- slots ---- */

bool dtp_tensor_is_valid(dtp_tensor t)
{
    return t.mesh != NULL && t.slot < t.mesh->n_slots &&
           t.mesh->slots[t.slot].generation == t.generation && (t.generation & 1U) != 0;
}

dtp_status dtp_tensor__slot(dtp_tensor t, const char *function, dtp_tensor_slot **out, dtp_err *err)
{
    if (!dtp_tensor_is_valid(t)) {
        return DTP_FAIL(err, DTP_INVALID, "%s: the tensor %s", function,
                        t.mesh == NULL ? "was never made" : "was destroyed");
    }
    *out = &t.mesh->slots[t.slot];
    return DTP_OK;
}

dtp_status dtp_tensor__slot_on(const dtp_device_mesh *mesh, dtp_tensor t, const char *function,
                               dtp_tensor_slot **out, dtp_err *err)
{
    DTP_TRY(dtp_tensor__slot(t, function, out, err));
    if (t.mesh != mesh) {
        char theirs[DTP_MESH_TEXT_BYTES], ours[DTP_MESH_TEXT_BYTES];
        dtp_mesh_print(&t.mesh->comm->mesh, theirs);
        dtp_mesh_print(&mesh->comm->mesh, ours);
        return DTP_FAIL(err, DTP_INVALID,
                        "%s: the tensor is on another mesh ('%.200s') than the call ('%.200s')",
                        function, theirs, ours);
    }
    return DTP_OK;
}

/* A slot that is not in use. */
static dtp_status take_slot(dtp_device_mesh *mesh, uint32_t *out, dtp_err *err)
{
    if (mesh->n_free > 0) {
        *out = mesh->free_slots[--mesh->n_free];
        return DTP_OK;
    }
    if (mesh->n_slots == mesh->cap_slots) {
        const uint32_t cap = mesh->cap_slots == 0 ? 64 : mesh->cap_slots * 2;
        dtp_tensor_slot *slots =
            cap <= INT32_MAX / 2 ? realloc(mesh->slots, cap * sizeof *slots) : NULL;
        DTP_TRY(DTP_MEMORY(err, slots));
        mesh->slots = slots;
        uint32_t *list = realloc(mesh->free_slots, cap * sizeof *list);
        DTP_TRY(DTP_MEMORY(err, list));
        mesh->free_slots = list;
        mesh->cap_slots = cap;
    }
    *out = mesh->n_slots++;
    mesh->slots[*out] = (dtp_tensor_slot){0};
    return DTP_OK;
}

dtp_status dtp_tensor__make(dtp_device_mesh *mesh, const dtp_ttype *type, const dtp_layout *layout,
                            dtp_storage *storage, dtp_tensor *out, dtp_err *err)
{
    uint32_t index;
    dtp_storage *own = storage;
    if (storage == NULL) {
        DTP_TRY(dtp_storage__create(mesh, dtp_tensor__bytes(mesh, type, layout), &own, err));
    }
    dtp_status status = take_slot(mesh, &index, err);
    if (status != DTP_OK) {
        if (storage == NULL) {
            dtp_storage__release(own);
        }
        return status;
    }
    if (storage != NULL) {
        storage->refs++;
    }
    dtp_tensor_slot *slot = &mesh->slots[index];
    *slot = (dtp_tensor_slot){.generation = slot->generation + 1,
                              .type = *type,
                              .layout = *layout,
                              .storage = own,
                              .recorded = -1};
    *out = (dtp_tensor){.mesh = mesh, .slot = index, .generation = slot->generation};
    return DTP_OK;
}

void dtp_tensor_destroy(dtp_tensor t)
{
    if (!dtp_tensor_is_valid(t)) {
        return;
    }
    dtp_tensor_slot *slot = &t.mesh->slots[t.slot];
    dtp_storage__release(slot->storage);
    slot->storage = NULL;
    slot->generation++;
    if (slot->generation != 0) { /* a slot that has used up its generations is not used again */
        t.mesh->free_slots[t.mesh->n_free++] = t.slot;
    }
}

dtp_status dtp_tensor_share(dtp_tensor t, dtp_tensor *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, out));
    dtp_tensor_slot *slot;
    DTP_TRY(dtp_tensor__slot(t, "share", &slot, err));
    dtp_ttype type = slot->type;
    dtp_layout layout = slot->layout;
    dtp_tensor_id recorded = slot->recorded;
    DTP_TRY(dtp_tensor__make(t.mesh, &type, &layout, slot->storage, out, err));
    t.mesh->slots[out->slot].recorded = recorded;
    return DTP_OK;
}

int64_t dtp_tensor__bytes(const dtp_device_mesh *mesh, const dtp_ttype *type,
                          const dtp_layout *layout)
{
    dtp_ttype local;
    dtp_layout_local_max(layout, &mesh->comm->mesh, type, &local);
    return dtp_ttype_bytes(&local);
}

/* ---- types and layouts ---- */

static dtp_status shape_type(dtp_dtype dtype, int32_t rank, const int64_t *shape, dtp_ttype *out,
                             dtp_err *err)
{
    DTP_TRY(dtp_dtype_check((int64_t)dtype, err));
    if (rank < 0 || rank > DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_INVALID, "a tensor of rank %d; 0 to %d are possible", rank,
                        DTP_MAX_RANK);
    }
    *out = (dtp_ttype){.dtype = dtype, .rank = rank};
    for (int32_t i = 0; i < rank; i++) {
        if (shape[i] < 1) {
            return DTP_FAIL(err, DTP_RANGE, "dim %d has size %" PRId64, i, shape[i]);
        }
        out->dims[i] = (dtp_tdim){.id = i, .size = shape[i]};
    }
    return dtp_ttype_check_size(out, err);
}

dtp_status dtp_tensor__type(const dtp_device_mesh *mesh, const dtp_tensor_desc *desc,
                            dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(shape_type(desc->dtype, desc->rank, desc->shape, out, err));
    return dtp_layout_check(&desc->layout, &mesh->comm->mesh, out, err);
}

dtp_status dtp_tensor_layout(const dtp_device_mesh *mesh, int32_t rank, const char *text,
                             dtp_layout *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh, text, out));
    dtp_ttype type;
    int64_t shape[DTP_MAX_RANK];
    for (int32_t i = 0; i < DTP_MAX_RANK; i++) {
        shape[i] = 1;
    }
    DTP_TRY(shape_type(DTP_F32, rank, shape, &type, err));
    return dtp_layout_parse_any(text, &mesh->comm->mesh, &type, &mesh->dims, out, err);
}

dtp_status dtp_tensor_desc_init(const dtp_device_mesh *mesh, dtp_dtype dtype, int32_t rank,
                                const int64_t *shape, const char *layout, dtp_tensor_desc *out,
                                dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh, layout, out));
    if (rank > 0) {
        DTP_TRY(DTP_NOT_NULL(err, shape));
    }
    dtp_ttype type;
    dtp_tensor_desc desc = {.dtype = dtype, .rank = rank};
    DTP_TRY(shape_type(dtype, rank, shape, &type, err));
    for (int32_t i = 0; i < rank; i++) {
        desc.shape[i] = shape[i];
    }
    DTP_TRY(dtp_layout_parse_any(layout, &mesh->comm->mesh, &type, &mesh->dims, &desc.layout, err));
    *out = desc;
    return DTP_OK;
}

/* ---- looking ---- */

dtp_status dtp_tensor_describe(dtp_tensor t, dtp_tensor_desc *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, out));
    dtp_tensor_slot *slot;
    DTP_TRY(dtp_tensor__slot(t, "describe", &slot, err));
    *out = (dtp_tensor_desc){
        .dtype = slot->type.dtype, .rank = slot->type.rank, .layout = slot->layout};
    for (int32_t i = 0; i < slot->type.rank; i++) {
        out->shape[i] = slot->type.dims[i].size;
    }
    return DTP_OK;
}

void dtp_tensor__text(const dtp_device_mesh *mesh, const dtp_ttype *type, const dtp_layout *layout,
                      char out[DTP_TENSOR_TEXT_BYTES])
{
    char shape[DTP_MAX_RANK * 21 + 1] = "", text[DTP_LAYOUT_TEXT_BYTES];
    int n = 0;
    for (int32_t i = 0; i < type->rank; i++) {
        n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%" PRId64, i > 0 ? "," : "",
                      type->dims[i].size);
    }
    dtp_layout_print(layout, &mesh->comm->mesh, type, &mesh->dims, text);
    const int room = (int)(DTP_TENSOR_TEXT_BYTES - sizeof shape - 16); /* behind dtype and shape */
    snprintf(out, DTP_TENSOR_TEXT_BYTES, "%s[%s] %.*s", dtp_dtype_name(type->dtype), shape, room,
             text);
}

void dtp_tensor_print(dtp_tensor t, char out[DTP_TENSOR_TEXT_BYTES])
{
    char text[DTP_TENSOR_TEXT_BYTES], mesh[DTP_MESH_TEXT_BYTES];
    if (out == NULL) {
        return;
    }
    if (!dtp_tensor_is_valid(t)) {
        snprintf(out, DTP_TENSOR_TEXT_BYTES, "no tensor");
        return;
    }
    const dtp_tensor_slot *slot = &t.mesh->slots[t.slot];
    dtp_tensor__text(t.mesh, &slot->type, &slot->layout, text);
    dtp_mesh_print(&t.mesh->comm->mesh, mesh);
    snprintf(out, DTP_TENSOR_TEXT_BYTES, "%.700s on '%.300s'", text, mesh);
}

dtp_status dtp_tensor_local(dtp_tensor t, dtp_local *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, out));
    dtp_tensor_slot *slot;
    dtp_ttype local;
    DTP_TRY(dtp_tensor__slot(t, "local", &slot, err));
    *out = (dtp_local){.rank = slot->type.rank, .data = slot->storage->data};
    dtp_layout_local(&slot->layout, &t.mesh->comm->mesh, &slot->type, t.mesh->comm->rank, &local,
                     out->offset);
    for (int32_t i = 0; i < local.rank; i++) {
        out->shape[i] = local.dims[i].size;
    }
    return DTP_OK;
}
