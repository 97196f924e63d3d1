/* Recording: calls are kept with handles on what they read and made (include/dtp/tape.h). */
#include <stdlib.h>
#include <string.h>

#include "dtensor/tape_internal.h"

/* ---- recording ---- */

dtp_status dtp_tape_create(dtp_device_mesh *mesh, dtp_tape **out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh, out));
    if (mesh->tape != NULL) {
        return DTP_FAIL(err, DTP_INVALID, "the mesh has a tape that records already");
    }
    dtp_tape *tape = calloc(1, sizeof *tape);
    dtp_arena *arena = dtp_arena_create();
    if (tape == NULL || arena == NULL) {
        free(tape);
        dtp_arena_destroy(arena);
        return DTP_FAIL(err, DTP_NOMEM, "no memory for a tape");
    }
    *tape = (dtp_tape){.mesh = mesh, .arena = arena};
    mesh->tape = tape;
    *out = tape;
    return DTP_OK;
}

void dtp_tape_destroy(dtp_tape *tape)
{
    if (tape == NULL) {
        return;
    }
    tape->mesh->tape = NULL;
    for (uint32_t i = 0; i < tape->mesh->n_slots; i++) {
        tape->mesh->slots[i].recorded = -1;
        tape->mesh->slots[i].watched = false;
    }
    for (int32_t i = 0; i < tape->n_values; i++) {
        dtp_tensor_destroy(tape->values[i].tensor);
    }
    dtp_arena_destroy(tape->arena);
    free(tape);
}

int32_t dtp_tape__find(const dtp_tape *tape, dtp_tensor t)
{
    const dtp_tensor_slot *slot = &tape->mesh->slots[t.slot];
    if (slot->recorded < 0 || slot->recorded >= tape->n_values) {
        return -1;
    }
    const dtp_tensor own = tape->values[slot->recorded].tensor;
    return tape->mesh->slots[own.slot].storage == slot->storage ? slot->recorded : -1;
}

/* A new value with the contents of t, which `handle` stands for from here on. */
static dtp_status add_value(dtp_tape *tape, dtp_tensor handle, dtp_tensor t, bool depends,
                            int32_t *out, dtp_err *err)
{
    dtp_tape_value v = {.depends = depends, .first = -1};
    DTP_TRY(DTP_ONE_MORE(tape->arena, tape->values, tape->n_values, tape->cap_values, err));
    DTP_TRY(dtp_tensor_share(t, &v.tensor, err));
    *out = tape->n_values;
    tape->values[tape->n_values++] = v;
    tape->mesh->slots[handle.slot].recorded = *out;
    tape->mesh->slots[v.tensor.slot].recorded = *out;
    return DTP_OK;
}

/* The value of an operand, new when the tape has not seen it. */
static dtp_status value_of(dtp_tape *tape, dtp_tensor t, int32_t *out, dtp_err *err)
{
    *out = dtp_tape__find(tape, t);
    return *out >= 0 ? DTP_OK : add_value(tape, t, t, false, out, err);
}

void dtp_tape_keep_partial(dtp_tape *tape, bool keep)
{
    if (tape != NULL) {
        tape->keep_partial = keep;
    }
}

dtp_status dtp_tape_watch(dtp_tape *tape, dtp_tensor t, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, tape));
    dtp_tensor_slot *slot;
    int32_t v;
    DTP_TRY(dtp_tensor__slot(t, "dtp_tape_watch", &slot, err));
    if (t.mesh != tape->mesh) {
        return DTP_FAIL(err, DTP_INVALID, "dtp_tape_watch: the tensor is on another mesh");
    }
    if (!dtp_dtype_is_float(slot->type.dtype)) {
        return DTP_FAIL(err, DTP_INVALID, "dtp_tape_watch: a tensor of %s has no gradient",
                        dtp_dtype_name(slot->type.dtype));
    }
    if (slot->variable && !slot->watched) { /* what its contents depend on no longer counts */
        DTP_TRY(add_value(tape, t, t, true, &v, err));
        tape->mesh->slots[t.slot].watched = true;
        return DTP_OK;
    }
    DTP_TRY(value_of(tape, t, &v, err));
    tape->values[v].depends = true;
    return DTP_OK;
}

dtp_status dtp_tape__record_assign(dtp_tensor variable, dtp_tensor value, dtp_err *err)
{
    dtp_tape *tape = variable.mesh->tape;
    const dtp_tensor_slot *slot = &variable.mesh->slots[variable.slot];
    if (tape == NULL || !slot->watched) {
        return DTP_OK;
    }
    const int32_t before = slot->recorded, first = tape->values[before].first;
    int32_t v;
    DTP_TRY(add_value(tape, variable, value, true, &v, err));
    tape->values[v].first = first >= 0 ? first : before;
    return DTP_OK;
}

static bool depends(const dtp_tape *tape, int32_t n, const dtp_tensor *in)
{
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = dtp_tape__find(tape, in[i]);
        if (v >= 0 && tape->values[v].depends) {
            return true;
        }
    }
    return false;
}

dtp_status dtp_tape__record(dtp_tape *tape, const dtp_canonical_call *call, int32_t n_in,
                            const dtp_tensor *in, int32_t n_out, const dtp_tensor *out,
                            dtp_err *err)
{
    dtp_tape_entry e = {0};
    if (tape == NULL || tape->paused || !depends(tape, n_in, in)) {
        return DTP_OK;
    }
    DTP_TRY(DTP_ONE_MORE(tape->arena, tape->entries, tape->n_entries, tape->cap_entries, err));
    if (call != NULL) {
        DTP_TRY(DTP_NEW(tape->arena, e.call, 1, err));
        *e.call = *call;
        e.call->wanted = NULL;
        dtp_canonical__fix_ids(e.call);
    }
    for (int32_t i = 0; i < n_in; i++) {
        DTP_TRY(value_of(tape, in[i], &e.in[i], err));
    }
    for (int32_t i = 0; i < n_out; i++) {
        DTP_TRY(add_value(tape, out[i], out[i], true, &e.out[i], err));
    }
    tape->entries[tape->n_entries++] = e;
    return DTP_OK;
}
