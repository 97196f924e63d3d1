/* Collective calls: what the ranks compare, and the cache of what was called before. Programs
 * stay bound, so that a call that is known costs a lookup. */
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "dtensor/internal.h"

typedef struct known_call {
    uint64_t hash;
    const void *key;
    size_t key_bytes;
    dtp_executable *x; /* NULL: a call without a program */
} known_call;

struct dtp_call_cache {
    dtp_arena *arena;
    int32_t n, cap;
    known_call *calls;
    dtp_hash_table by_key;
};

/* Over words of 8 bytes; keys are a few hundred bytes long and hashed at every call. */
static uint64_t hash_key(const void *key, size_t n)
{
    uint64_t h = DTP_HASH_SEED, word;
    size_t i = 0;
    for (; i + sizeof word <= n; i += sizeof word) {
        memcpy(&word, (const char *)key + i, sizeof word);
        h = dtp_hash_word(h, word);
    }
    return dtp_hash_bytes(h, (const char *)key + i, n - i);
}

void dtp_call__tensor_key(const char *tag, const dtp_ttype *type, const dtp_layout *layout,
                          dtp_tensor_key *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->tag, tag, strnlen(tag, sizeof out->tag - 1));
    out->type.dtype = type->dtype;
    out->type.rank = type->rank;
    for (int32_t i = 0; i < type->rank; i++) {
        out->type.dims[i].id = type->dims[i].id;
        out->type.dims[i].size = type->dims[i].size;
    }
    out->layout = *layout;
}

/* ---- the cache ---- */

void dtp_call__cache_destroy(dtp_call_cache *t)
{
    if (t == NULL) {
        return;
    }
    for (int32_t i = 0; i < t->n; i++) {
        dtp_executable_destroy(t->calls[i].x);
    }
    dtp_arena_destroy(t->arena);
    free(t);
}

/* The call of a key, NULL when it is new. */
static const known_call *find_call(const dtp_call_cache *t, const known_call *key)
{
    const uint32_t hash = dtp_hash_fold(key->hash);
    uint32_t at = hash;
    int32_t i;
    while (t->calls != NULL && (i = dtp_hash_table_next(&t->by_key, hash, &at)) >= 0) {
        const known_call *c = &t->calls[i];
        if (c->hash == key->hash && c->key_bytes == key->key_bytes &&
            memcmp(c->key, key->key, key->key_bytes) == 0) {
            return c;
        }
    }
    return NULL;
}

static dtp_status add_call(dtp_call_cache *t, const known_call *new, dtp_err *err)
{
    char *copy = dtp_arena_alloc(t->arena, 1, new->key_bytes);
    DTP_TRY(DTP_MEMORY(err, copy));
    memcpy(copy, new->key, new->key_bytes);
    DTP_TRY(DTP_ONE_MORE(t->arena, t->calls, t->n, t->cap, err));
    DTP_TRY(dtp_hash_table_add(&t->by_key, t->arena, dtp_hash_fold(new->hash), t->n, err));
    t->calls[t->n] = *new;
    t->calls[t->n++].key = copy;
    return DTP_OK;
}

/* ---- agreement ---- */

/* Hashes what is compared; a comparison also covers what was called since the last one. When that
 * alone differs, a second one, of the call itself, finds it out: the error should not blame the
 * call. `mine`: why this rank refuses the call, with the reason in `err`, which stays; the others
 * get the reason. */
static dtp_status agree(dtp_device_mesh *mesh, uint64_t hash, const char *what, dtp_status mine,
                        dtp_err *err)
{
    const uint64_t call = dtp_hash_text(dtp_hash_i64(hash, mesh->agreed), what);
    const uint64_t all = dtp_hash_i64(call, (int64_t)mesh->history);
    dtp_err said = {0}, refused = {0};
    dtp_status status = dtp_comm_agree(mesh->comm, all, "the call", &said);
    mesh->agreed += status == DTP_OK ? 1 : 0;
    mesh->compared++;
    mesh->calls = 0;
    mesh->history = 0;
    if (status == DTP_OK) {
        return DTP_OK;
    }
    if (dtp_comm_agree_words(mesh->comm, call, "the call", what, &said) == DTP_OK) {
        status =
            DTP_FAIL(&said, DTP_COMM,
                     "the ranks passed different tensors to this call, or made different calls "
                     "since they were last compared");
    } else if (dtp_comm_agree_status(mesh->comm, mine, mine != DTP_OK ? err : &refused) != DTP_OK) {
        said = refused;
    }
    if (mine == DTP_OK && err != NULL) {
        *err = said;
        dtp_err_prefix(err, "rank %d calls %s", mesh->comm->rank, what);
    }
    return status;
}

dtp_status dtp_call__refuse(dtp_device_mesh *mesh, dtp_status status, const char *what,
                            dtp_err *err)
{
    if (status != DTP_OK && mesh != NULL && mesh->options.agree == DTP_AGREE_ALWAYS) {
        (void)agree(mesh, ~(uint64_t)status, what, status, err);
    }
    return status;
}

dtp_status dtp_call__agree_status(dtp_device_mesh *mesh, dtp_status mine, dtp_err *err)
{
    return mesh->options.agree == DTP_AGREE_NEVER ? mine
                                                  : dtp_comm_agree_status(mesh->comm, mine, err);
}

void dtp_call__reads(dtp_device_mesh *mesh, int32_t n, const dtp_tensor *in)
{
    for (int32_t i = 0; i < n; i++) {
        mesh->history = dtp_hash_word(mesh->history, mesh->slots[in[i].slot].storage->made);
    }
}

/* Looks the key up and compares it with the other ranks; *found is NULL when the call is new. */
static dtp_status agree_on_call(dtp_device_mesh *mesh, known_call *key, const char *what,
                                const known_call **found, dtp_err *err)
{
    key->hash = hash_key(key->key, key->key_bytes);
    mesh->history = dtp_hash_word(mesh->history, key->hash);
    mesh->calls++;
    if (mesh->cached == NULL) {
        dtp_call_cache *t = calloc(1, sizeof *t);
        dtp_arena *arena = dtp_arena_create();
        if (t == NULL || arena == NULL) {
            free(t);
            dtp_arena_destroy(arena);
            return dtp_call__abort(
                mesh, DTP_FAIL(err, DTP_NOMEM, "no memory for the table of calls"), err);
        }
        t->arena = arena;
        mesh->cached = t;
    }
    *found = find_call(mesh->cached, key);
    const bool compare = mesh->options.agree == DTP_AGREE_ALWAYS ||
                         (mesh->options.agree == DTP_AGREE_NEW && *found == NULL);
    return compare ? agree(mesh, key->hash, what, DTP_OK, err) : DTP_OK;
}

dtp_status dtp_call__agree(dtp_device_mesh *mesh, const char *what, const dtp_ttype *type,
                           const dtp_layout *layout, int64_t number, dtp_err *err)
{
    const known_call *found;
    dtp_tensor_key key;
    known_call call = {.key = &key, .key_bytes = sizeof key};
    dtp_call__tensor_key(what, type, layout, &key);
    key.number = number;
    DTP_TRY(agree_on_call(mesh, &call, what, &found, err));
    return found != NULL ? DTP_OK : add_call(mesh->cached, &call, err);
}

dtp_status dtp_call__find(dtp_device_mesh *mesh, const void *key, size_t key_bytes,
                          const char *what, dtp_call_build build, const void *user,
                          dtp_executable **out, dtp_err *err)
{
    const known_call *found;
    known_call call = {.key = key, .key_bytes = key_bytes};
    DTP_TRY(agree_on_call(mesh, &call, what, &found, err));
    if (found != NULL) {
        *out = found->x;
        return DTP_OK;
    }
    dtp_status status = dtp_executable_create(mesh, what, build, user, &call.x, err);
    status = dtp_call__agree_status(mesh, status, err);
    if (status == DTP_OK) {
        status = dtp_runner_prepare(call.x->runner, err);
    }
    if (status == DTP_OK) {
        status = add_call(mesh->cached, &call, err);
    }
    if (status != DTP_OK) {
        dtp_executable_destroy(call.x);
        return status;
    }
    *out = call.x;
    return DTP_OK;
}
