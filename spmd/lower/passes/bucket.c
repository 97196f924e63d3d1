/* Fuses the all-reduces of gradients into buckets.
 *
 * A member's partial value is given a place inside the bucket's buffer, so that the op that makes
 * it writes there directly; one all-reduce over the whole buffer runs where the last member's was,
 * and the reduced values lie in the same places. Nothing is copied.
 *
 * An all-reduce may wait for later ones as long as nobody reads its output in between, so a bucket
 * is closed before the first reader of any member. Members reduce over the same mesh dims with the
 * same element type, and run equally often. Gaps from alignment are reduced with the rest and never
 * read.
 */
#include "spmd/lower/passes/passes.h"
#include "spmd/program/program_internal.h"

enum { MAX_OPEN = 8, MAX_MEMBERS = 1024 };

typedef struct bucket {
    int32_t n;
    int32_t *members; /* instructions, room for MAX_MEMBERS */
    int64_t bytes;    /* with every member aligned */
    int32_t closes;   /* first reader of any member */
} bucket;

typedef struct bucketing {
    dtp_program *p;
    int64_t limit;
    dtp_usage *usage;
    int32_t *first_read; /* by root value: of anything inside */
    int32_t n_open;
    bucket open[MAX_OPEN];
    int32_t *members; /* the storage of all buckets */
    dtp_instr *fused; /* by instruction: n_in > 0 = runs in its place */
    bool *dropped;    /* by instruction: member of a bucket */
} bucketing;

static bool may_join(const bucketing *b, int32_t i)
{
    const dtp_instr *instr = &b->p->instrs[i];
    if (instr->kind != DTP_INSTR_START || instr->coll.kind != DTP_ALL_REDUCE ||
        instr->coll.op != DTP_REDUCE_SUM || instr->phase == DTP_FORWARD || instr->n_in != 1) {
        return false;
    }
    const dtp_value *in = &b->p->values[instr->in[0]], *out = &b->p->values[instr->out[0]];
    const dtp_usage *used = &b->usage[instr->in[0]];
    return in->kind == DTP_VALUE_TEMP && in->parent < 0 && !in->keep && used->reads == 1 &&
           used->replicas == 0 && used->written >= 0 && out->kind == DTP_VALUE_TEMP &&
           out->parent < 0 && dtp_program__aligned(in->bytes) <= b->limit;
}

/* ---- closing a bucket ---------------------------------------------------------------------------
 */

static void place_member(dtp_program *p, dtp_value_id v, dtp_value_id buffer, int64_t offset)
{
    p->values[v].parent = buffer;
    p->values[v].parent_offset = offset;
}

static dtp_status close_bucket(bucketing *b, bucket *k, dtp_err *err)
{
    dtp_program *p = b->p;
    dtp_value_id buffers[2], *ids;
    int64_t offset = 0;
    if (k->n < 2) {
        k->n = 0;
        return DTP_OK;
    }
    int32_t last = k->members[k->n - 1];
    dtp_instr fused = p->instrs[last];
    fused.coll.count = k->bytes / dtp_dtype_bytes(fused.coll.dtype);
    for (int i = 0; i < 2; i++) {
        DTP_TRY(dtp_program__add_staging(p, i == 0 ? "bucket" : "bucket.reduced", fused.coll.dtype,
                                         1, fused.coll.count, &buffers[i], err));
    }
    p->values[buffers[1]].parent = buffers[0];
    DTP_TRY(dtp_program__alloc_ids(p, 2 * (k->n + 1), &ids, err));
    fused.n_in = fused.n_out = k->n + 1;
    fused.in = ids;
    fused.out = ids + k->n + 1;
    ids[0] = buffers[0];
    ids[k->n + 1] = buffers[1];
    for (int32_t i = 0; i < k->n; i++) {
        const dtp_instr *member = &p->instrs[k->members[i]];
        ids[1 + i] = member->in[0];
        ids[k->n + 2 + i] = member->out[0];
        place_member(p, member->in[0], buffers[0], offset);
        place_member(p, member->out[0], buffers[1], offset);
        offset += dtp_program__aligned(p->values[member->in[0]].bytes);
        b->dropped[k->members[i]] = true;
    }
    b->fused[last] = fused;
    k->n = 0;
    return DTP_OK;
}

/* ---- scanning -----------------------------------------------------------------------------------
 */

/* The open bucket that instruction i belongs to by its key, or an empty one. */
static dtp_status find_bucket(bucketing *b, int32_t i, bucket **out, dtp_err *err)
{
    const dtp_instr *instrs = b->p->instrs, *instr = &instrs[i];
    for (int32_t k = 0; k < b->n_open; k++) {
        bucket *at = &b->open[k];
        const dtp_instr *first = at->n > 0 ? &instrs[at->members[0]] : instr;
        if (first->coll.set == instr->coll.set && first->coll.dtype == instr->coll.dtype &&
            dtp_instr_runs(b->p, first) == dtp_instr_runs(b->p, instr)) {
            *out = at;
            return DTP_OK;
        }
    }
    if (b->n_open == MAX_OPEN) {
        *out = &b->open[0];
        return close_bucket(b, *out, err);
    }
    *out = &b->open[b->n_open];
    (*out)->members = b->members + (size_t)b->n_open * MAX_MEMBERS;
    b->n_open++;
    return DTP_OK;
}

static dtp_status join(bucketing *b, int32_t i, dtp_err *err)
{
    const dtp_instr *instr = &b->p->instrs[i];
    int64_t bytes = dtp_program__aligned(b->p->values[instr->in[0]].bytes);
    bucket *k;
    DTP_TRY(find_bucket(b, i, &k, err));
    if (k->n > 0 && (k->closes <= i || k->bytes + bytes > b->limit || k->n == MAX_MEMBERS)) {
        DTP_TRY(close_bucket(b, k, err));
    }
    if (k->n == 0) {
        k->bytes = 0;
        k->closes = INT32_MAX;
    }
    int32_t first = b->first_read[instr->out[0]];
    k->members[k->n++] = i;
    k->bytes += bytes;
    k->closes = first < k->closes ? first : k->closes;
    return DTP_OK;
}

dtp_status dtp_program__bucket(dtp_program *p, int64_t bytes, dtp_arena *scratch, dtp_err *err)
{
    const int32_t nv = p->n_values, n = p->n_instrs;
    bucketing b = {.p = p, .limit = bytes};
    int32_t kept = 0;
    DTP_TRY(dtp_program__count_uses(p, scratch, &b.usage, err));
    DTP_TRY(DTP_NEW(scratch, b.first_read, nv, err));
    DTP_TRY(DTP_NEW(scratch, b.fused, n, err));
    DTP_TRY(DTP_NEW(scratch, b.dropped, n, err));
    DTP_TRY(DTP_NEW(scratch, b.members, MAX_OPEN * MAX_MEMBERS, err));
    for (int32_t v = 0; v < nv; v++) {
        b.first_read[v] = n;
    }
    for (int32_t i = n - 1; i >= 0; i--) {
        for (int32_t k = 0; k < p->instrs[i].n_in; k++) {
            b.first_read[dtp_value_root(p, p->instrs[i].in[k])] = i;
        }
    }
    for (int32_t i = 0; i < n; i++) {
        if (may_join(&b, i)) {
            DTP_TRY(join(&b, i, err));
        }
    }
    for (int32_t k = 0; k < b.n_open; k++) {
        DTP_TRY(close_bucket(&b, &b.open[k], err));
    }
    for (int32_t i = 0; i < n; i++) {
        if (b.fused[i].n_in > 0) {
            p->instrs[kept++] = b.fused[i];
        } else if (!b.dropped[i]) {
            p->instrs[kept++] = p->instrs[i];
        }
    }
    p->n_instrs = kept;
    return DTP_OK;
}
