/* Collective calls: what the ranks compare, and the cache of what was called before (a hash table
 * with open addressing; programs stay bound, so that a call that is known costs a lookup). */
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "dtensor/internal.h"

typedef struct entry {
    uint64_t hash;
    const void *key; /* NULL: free */
    size_t key_bytes;
    dtp_executable *x; /* NULL: a call without a program */
} entry;

struct dtp_call_cache {
    dtp_arena *arena; /* of the keys */
    int32_t n, size;  /* size: a power of two */
    entry *entries;
};

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * UINT64_C(0x100000001b3);
    return h ^ h >> 29;
}

/* FNV over words of 8 bytes; keys are a few hundred bytes long and hashed at every call. */
static uint64_t hash_key(const void *key, size_t n)
{
    uint64_t h = DTP_HASH_SEED, word;
    size_t i = 0;
    for (; i + sizeof word <= n; i += sizeof word) {
        memcpy(&word, (const char *)key + i, sizeof word);
        h = mix(h, word);
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

/* ---- the cache ----------------------------------------------------------------------------------
 */

/* Place of the key among `size` entries, or the free place where it belongs. */
static entry *place_in(entry *entries, int32_t size, const entry *key)
{
    int32_t mask = size - 1;
    int32_t at = (int32_t)(key->hash & (uint64_t)mask);
    for (;; at = (at + 1) & mask) {
        entry *e = &entries[at];
        if (e->key == NULL || (e->hash == key->hash && e->key_bytes == key->key_bytes &&
                               memcmp(e->key, key->key, key->key_bytes) == 0)) {
            return e;
        }
    }
}

static dtp_status grow(dtp_call_cache *t, dtp_err *err)
{
    int32_t size = t->size == 0 ? 64 : 2 * t->size;
    entry *old = t->entries, *entries = calloc((size_t)size, sizeof *entries);
    if (entries == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "no memory for %d compiled calls", size);
    }
    for (int32_t i = 0; i < t->size; i++) {
        if (old[i].key != NULL) {
            *place_in(entries, size, &old[i]) = old[i];
        }
    }
    t->entries = entries;
    t->size = size;
    free(old);
    return DTP_OK;
}

static dtp_status cache_of(dtp_device_mesh *mesh, dtp_err *err)
{
    if (mesh->cached == NULL) {
        dtp_call_cache *t = calloc(1, sizeof *t);
        dtp_arena *arena = dtp_arena_create();
        if (t == NULL || arena == NULL) {
            free(t);
            dtp_arena_destroy(arena);
            return DTP_FAIL(err, DTP_NOMEM, "no memory for the table of calls");
        }
        t->arena = arena;
        mesh->cached = t;
    }
    return 2 * (mesh->cached->n + 1) > mesh->cached->size ? grow(mesh->cached, err) : DTP_OK;
}

void dtp_call__cache_destroy(dtp_call_cache *t)
{
    if (t == NULL) {
        return;
    }
    for (int32_t i = 0; i < t->size; i++) {
        dtp_executable_destroy(t->entries[i].x);
    }
    free(t->entries);
    dtp_arena_destroy(t->arena);
    free(t);
}

static dtp_status remember(dtp_device_mesh *mesh, const entry *e, dtp_err *err)
{
    dtp_call_cache *t = mesh->cached;
    char *copy = dtp_arena_alloc(t->arena, 1, e->key_bytes);
    if (copy == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "no memory for the key of a call");
    }
    memcpy(copy, e->key, e->key_bytes);
    entry *at = place_in(t->entries, t->size, e);
    *at = *e;
    at->key = copy;
    t->n++;
    return DTP_OK;
}

/* ---- agreement ----------------------------------------------------------------------------------
 */

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
    dtp_status status = dtp_comm_agree(mesh->comm, all, what, &said);
    mesh->agreed += status == DTP_OK ? 1 : 0;
    mesh->compared++;
    mesh->calls = 0;
    mesh->history = 0;
    if (status == DTP_OK) {
        return DTP_OK;
    }
    if (dtp_comm_agree(mesh->comm, call, what, NULL) == DTP_OK) {
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

dtp_status dtp_call__abort(dtp_device_mesh *mesh, dtp_status status, const dtp_err *err)
{
    dtp_comm_abort(mesh->comm, err != NULL ? err->msg : dtp_status_text(status));
    return status;
}

void dtp_call__reads(dtp_device_mesh *mesh, int32_t n, const dtp_tensor *in)
{
    for (int32_t i = 0; i < n; i++) {
        mesh->history = mix(mesh->history, mesh->slots[in[i].slot].storage->made);
    }
}

/* Looks the key up and compares it with the other ranks; *found is the entry or a free one. */
static dtp_status agree_on_call(dtp_device_mesh *mesh, entry *key, const char *what, entry **found,
                                dtp_err *err)
{
    dtp_status status = cache_of(mesh, err);
    key->hash = hash_key(key->key, key->key_bytes);
    mesh->history = mix(mesh->history, key->hash);
    mesh->calls++;
    if (status != DTP_OK) {
        return dtp_call__abort(mesh, status, err);
    }
    *found = place_in(mesh->cached->entries, mesh->cached->size, key);
    bool known = (*found)->key != NULL;
    bool compare =
        mesh->options.agree == DTP_AGREE_ALWAYS || (mesh->options.agree == DTP_AGREE_NEW && !known);
    return compare ? agree(mesh, key->hash, what, DTP_OK, err) : DTP_OK;
}

dtp_status dtp_call__agree(dtp_device_mesh *mesh, const void *key, size_t key_bytes,
                           const char *what, dtp_err *err)
{
    entry *found, e = {.key = key, .key_bytes = key_bytes};
    DTP_TRY(agree_on_call(mesh, &e, what, &found, err));
    return found->key != NULL ? DTP_OK : remember(mesh, &e, err);
}

/* ---- compiled calls -----------------------------------------------------------------------------
 */

static dtp_status grow_scratch(dtp_device_mesh *mesh, int64_t bytes, dtp_err *err)
{
    if (bytes <= (mesh->scratch != NULL ? mesh->scratch->bytes : 0)) {
        return DTP_OK;
    }
    dtp_storage__release(mesh->scratch);
    mesh->scratch = NULL;
    return dtp_storage__create(mesh, bytes, &mesh->scratch, err);
}

/* Whether there is memory for a run: known before the ranks agree, so that a call too large for it
 * is refused by all. */
static dtp_status try_memory(dtp_device_mesh *mesh, const dtp_executable *x, dtp_err *err)
{
    const dtp_exec_slot *outs;
    dtp_storage *tried[DTP_MAX_OP_OUT] = {NULL};
    const int32_t n = dtp_executable_outputs(x, &outs);
    dtp_status status = grow_scratch(mesh, dtp_executable_scratch_bytes(x), err);
    for (int32_t i = 0; i < n && i < DTP_MAX_OP_OUT && status == DTP_OK; i++) {
        if (outs[i].shares < 0) {
            status = dtp_storage__create(mesh, outs[i].bytes, &tried[i], err);
        }
    }
    for (int32_t i = 0; i < DTP_MAX_OP_OUT; i++) {
        dtp_storage__release(tried[i]);
    }
    return status;
}

dtp_status dtp_call__find(dtp_device_mesh *mesh, const void *key, size_t key_bytes,
                          const char *what, dtp_call_build build, void *user, dtp_executable **out,
                          dtp_err *err)
{
    entry *found, e = {.key = key, .key_bytes = key_bytes};
    DTP_TRY(agree_on_call(mesh, &e, what, &found, err));
    if (found->key != NULL) {
        *out = found->x;
        return DTP_OK;
    }
    dtp_status status = build(mesh, user, &e.x, err);
    status = status == DTP_OK ? try_memory(mesh, e.x, err) : status;
    status = dtp_call__agree_status(mesh, status, err);
    if (status == DTP_OK) {
        status = dtp_executable_prepare(e.x, err);
    }
    if (status == DTP_OK) {
        status = remember(mesh, &e, err);
    }
    if (status != DTP_OK) {
        dtp_executable_destroy(e.x);
        return status;
    }
    *out = e.x;
    return DTP_OK;
}

static dtp_status count(dtp_device_mesh *mesh, const dtp_coll_stat *stat, dtp_err *err)
{
    int32_t i = 0;
    while (i < mesh->n_counts &&
           (mesh->counts[i].kind != stat->kind || mesh->counts[i].set != stat->set)) {
        i++;
    }
    if (i == mesh->cap_counts) {
        int32_t cap = mesh->cap_counts == 0 ? 16 : 2 * mesh->cap_counts;
        dtp_comm_count *grown = realloc(mesh->counts, (size_t)cap * sizeof *grown);
        if (grown == NULL) {
            return DTP_FAIL(err, DTP_NOMEM, "no memory to count collectives");
        }
        mesh->counts = grown;
        mesh->cap_counts = cap;
    }
    if (i == mesh->n_counts) {
        mesh->counts[mesh->n_counts++] = (dtp_comm_count){.kind = stat->kind, .set = stat->set};
    }
    mesh->counts[i].count += stat->count;
    mesh->counts[i].bytes += stat->bytes;
    return DTP_OK;
}

/* Buffers of the operands and fresh ones for the results. */
typedef struct buffers {
    void *in[DTP_CALL_MAX_OPERANDS], *out[DTP_CALL_MAX_OPERANDS];
    dtp_tensor made[DTP_CALL_MAX_OPERANDS];
    int32_t n_made;
} buffers;

static dtp_status take_buffers(dtp_device_mesh *mesh, dtp_executable *x, const dtp_tensor *in,
                               buffers *b, dtp_err *err)
{
    const dtp_exec_slot *ins, *outs;
    int32_t n_in = dtp_executable_inputs(x, &ins), n_out = dtp_executable_outputs(x, &outs);
    if (n_in > DTP_CALL_MAX_OPERANDS || n_out > DTP_CALL_MAX_OPERANDS) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "a call of %d operands and %d results; at most %d",
                        n_in, n_out, DTP_CALL_MAX_OPERANDS);
    }
    for (int32_t i = 0; i < n_in; i++) {
        dtp_tensor_slot *slot;
        DTP_TRY(dtp_tensor__slot_on(mesh, in[i], "call", &slot, err));
        b->in[i] = slot->storage->data;
    }
    for (int32_t i = 0; i < n_out; i++) {
        dtp_storage *shared =
            outs[i].shares >= 0 ? mesh->slots[in[outs[i].shares].slot].storage : NULL;
        dtp_ttype type = outs[i].type;
        for (int32_t d = 0; d < type.rank; d++) {
            type.dims[d].id = d;
        }
        DTP_TRY(dtp_tensor__make(mesh, &type, &outs[i].layout, shared, &b->made[i], err));
        b->out[i] = mesh->slots[b->made[i].slot].storage->data;
        b->n_made = i + 1;
    }
    return DTP_OK;
}

static dtp_status run(dtp_device_mesh *mesh, dtp_executable *x, int64_t step, const dtp_tensor *in,
                      buffers *b, dtp_err *err)
{
    const dtp_coll_stat *colls;
    DTP_TRY(take_buffers(mesh, x, in, b, err));
    DTP_TRY(grow_scratch(mesh, dtp_executable_scratch_bytes(x), err));
    dtp_executable_set_scratch(x, mesh->scratch != NULL ? mesh->scratch->data : NULL);
    DTP_TRY(dtp_executable_run(x, b->in, b->out, mesh->options.seed, step, err));
    int32_t n = dtp_executable_colls(x, &colls);
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(count(mesh, &colls[i], err));
    }
    dtp_call__log(mesh, dtp_executable_program(x));
    return DTP_OK;
}

/* What the ranks make of a run. One that ended early leaves the peers alone in its collectives, if
 * there are any; else the mesh goes on. A kernel that failed left nobody alone. */
static dtp_status finish(dtp_device_mesh *mesh, const dtp_executable *x, dtp_status status,
                         dtp_err *err)
{
    const dtp_coll_stat *colls;
    const dtp_err *failure = status == DTP_OK ? dtp_executable_failure(x) : NULL;
    if (status != DTP_OK && dtp_executable_colls(x, &colls) > 0) {
        return dtp_call__abort(mesh, status, err);
    }
    if (failure != NULL) {
        *err = *failure;
        status = failure->code;
    }
    if (mesh->options.agree == DTP_AGREE_NEVER || mesh->comm->size == 1) {
        return status;
    }
    if (dtp_executable_may_fail(x)) {
        return dtp_comm_agree_status_alike(mesh->comm, status, err);
    }
    return failure != NULL ? dtp_call__abort(mesh, status, err) : status;
}

dtp_status dtp_call__run(dtp_device_mesh *mesh, dtp_executable *x, int64_t step,
                         const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    buffers b;
    dtp_err local = {0};
    b.n_made = 0;
    err = err != NULL ? err : &local;
    const dtp_status status = finish(mesh, x, run(mesh, x, step, in, &b, err), err);
    for (int32_t i = 0; i < b.n_made; i++) {
        if (status == DTP_OK) {
            out[i] = b.made[i];
        } else {
            dtp_tensor_destroy(b.made[i]);
        }
    }
    return status;
}
