/* Decisions that were made before: nodes of blocks that repeat each other are alike, and their
 * operands arrive in the same layouts. What a decision depends on is written down as bytes. */
#include <string.h>

#include "core/base/hash.h"
#include "spmd/propagate/propagate_internal.h"

typedef struct decided {
    int32_t n;
    const char *key;
    dtp_strategy strategy;
    dtp_node_layouts layouts;
} decided;

struct dtp_known_decisions {
    dtp_arena *arena;
    char *key; /* that is looked for */
    int32_t n_key, cap_key;
    decided *items;
    int32_t n, capacity;
    dtp_hash_table by_key;
};

dtp_status dtp_propagate__known_create(dtp_arena *arena, dtp_known_decisions **out, dtp_err *err)
{
    DTP_TRY(DTP_NEW(arena, *out, 1, err));
    (*out)->arena = arena;
    return DTP_OK;
}

/* ---- keys ---- */

static dtp_status add(dtp_known_decisions *k, const void *bytes, size_t n, dtp_err *err)
{
    DTP_TRY(
        dtp_arena_grow(k->arena, &k->key, k->n_key, k->n_key + (int32_t)n, &k->cap_key, 1, err));
    if (n > 0) { /* a scalar has no dims */
        memcpy(k->key + k->n_key, bytes, n);
    }
    k->n_key += (int32_t)n;
    return DTP_OK;
}

static dtp_status add_type(dtp_known_decisions *k, const dtp_ttype *type, dtp_err *err)
{
    DTP_TRY(add(k, &type->dtype, sizeof type->dtype, err));
    DTP_TRY(add(k, &type->rank, sizeof type->rank, err));
    return add(k, type->dims, (size_t)type->rank * sizeof *type->dims, err);
}

/* A pin and the mesh dims that it speaks of. */
static dtp_status add_pin(dtp_known_decisions *k, const dtp_layout *pin, dtp_mesh_set dims,
                          dtp_err *err)
{
    const bool pinned = pin != NULL;
    DTP_TRY(add(k, &pinned, sizeof pinned, err));
    DTP_TRY(pinned ? add(k, pin, sizeof *pin, err) : DTP_OK);
    return pinned ? add(k, &dims, sizeof dims, err) : DTP_OK;
}

static dtp_status add_call(dtp_known_decisions *k, const dtp_op_call *call, dtp_err *err)
{
    const uintptr_t op = (uintptr_t)call->op;
    DTP_TRY(add(k, &op, sizeof op, err));
    DTP_TRY(add(k, &call->n_in, sizeof call->n_in, err));
    DTP_TRY(add(k, &call->n_attrs, sizeof call->n_attrs, err));
    for (int32_t i = 0; i < call->n_attrs; i++) {
        const dtp_attr *a = &call->attrs[i];
        DTP_TRY(add(k, &a->key, sizeof a->key, err));
        DTP_TRY(add(k, &a->i, sizeof a->i, err));
        DTP_TRY(add(k, &a->f, sizeof a->f, err));
        DTP_TRY(add(k, &a->n, sizeof a->n, err));
        DTP_TRY(a->n > 0 ? add(k, a->ids, (size_t)a->n * sizeof *a->ids, err) : DTP_OK);
    }
    for (int32_t i = 0; i < call->n_in; i++) {
        DTP_TRY(add_type(k, &call->in[i], err));
    }
    for (int32_t i = 0; i < call->n_out; i++) {
        DTP_TRY(add_type(k, &call->out[i], err));
    }
    return DTP_OK;
}

static dtp_status write_key(dtp_known_decisions *k, const dtp_decision *d, dtp_err *err)
{
    k->n_key = 0;
    DTP_TRY(add_call(k, d->call, err));
    for (int32_t i = 0; i < d->call->n_in; i++) {
        const dtp_operand *o = &d->operands[i];
        DTP_TRY(add(k, &o->first, sizeof o->first, err));
        DTP_TRY(add(k, o->at, sizeof *o->at, err));
        DTP_TRY(add(k, &o->n_versions, sizeof o->n_versions, err));
        DTP_TRY(add(k, o->versions, (size_t)o->n_versions * sizeof *o->versions, err));
        DTP_TRY(add_pin(k, o->pinned, o->pinned_dims, err));
    }
    for (int32_t i = 0; i < d->call->n_out; i++) {
        DTP_TRY(add_pin(k, d->wanted[i], d->wanted_dims[i], err));
    }
    return DTP_OK;
}

/* ---- the decision ---- */

static const decided *find(const dtp_known_decisions *k, uint32_t hash)
{
    uint32_t at = hash;
    for (int32_t i; (i = dtp_hash_table_next(&k->by_key, hash, &at)) >= 0;) {
        const decided *item = &k->items[i];
        if (item->n == k->n_key && memcmp(item->key, k->key, (size_t)item->n) == 0) {
            return item;
        }
    }
    return NULL;
}

dtp_status dtp_propagate__decide(dtp_known_decisions *k, const dtp_decision *d,
                                 dtp_strategy *strategy, dtp_node_layouts *layouts, dtp_err *err)
{
    DTP_TRY(write_key(k, d, err));
    const uint32_t hash = dtp_hash_fold(dtp_hash_bytes(DTP_HASH_SEED, k->key, (size_t)k->n_key));
    const decided *known = find(k, hash);
    if (known != NULL) {
        *strategy = known->strategy;
        *layouts = known->layouts;
        return DTP_OK;
    }
    char *key;
    DTP_TRY(dtp_propagate__choose(d, strategy, layouts, err));
    DTP_TRY(
        dtp_arena_grow(k->arena, &k->items, k->n, k->n + 1, &k->capacity, sizeof *k->items, err));
    DTP_TRY(DTP_NEW(k->arena, key, (size_t)k->n_key, err));
    memcpy(key, k->key, (size_t)k->n_key);
    k->items[k->n] = (decided){k->n_key, key, *strategy, *layouts};
    return dtp_hash_table_add(&k->by_key, k->arena, hash, k->n++, err);
}
