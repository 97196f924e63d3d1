/* Collectives between hosts: MPI messages from rank to rank (mpi_internal.h).
 *
 * Every member first sends every other one an opening: what it runs, and its data when they are
 * few. So each knows which ranks have come and that all run the same before data move. The rest
 * goes in segments, the next of which are under way while one is combined. An all-reduce is a
 * reduce-scatter and an all-gather of chunks (Rabenseifner 2004, by direct exchange). Reductions
 * combine here, in member order: the bits are those of transfer.c. There is no limit on counts.
 */
#include "executor/comm/mpi_internal.h"

#include <stddef.h>
#include <string.h>

#include "core/base/safe_int.h"

enum {
    INLINE_BYTES = 4096, /* data of an opening */
    /* of a segment that is packed or combined */
    SEGMENT_BYTES = 512 << 10,
    SEGMENT_LEAST = 64 << 10,
    FLIGHT = 16, /* segments under way: a message is announced behind the data of those before it */
    MESSAGE_BYTES = 1 << 30, /* of one message that needs neither */
    TAG_OPENING = 1,
    TAG_EXCHANGE,
    TAG_GATHER
};

/* What a member sends first. */
typedef struct opening {
    dtp_coll coll;
    char data[INLINE_BYTES];
} opening;

/* The collective at hand. */
typedef struct op {
    dtp_comm__remote *r;
    const dtp_coll *coll;
    const char *in;
    char *out;
    int32_t n, me;
    int64_t width;
    bool reduces, direct;    /* direct: nothing is packed or combined */
    int64_t segment;         /* elements */
    opening *sent, *opened;  /* by member */
    char *packed, *received; /* of FLIGHT segments, by segment and member */
} op;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int rank_of(const op *o, int32_t member)
{
    const dtp_comm *c = o->r->base;
    return dtp_mesh_set_member(&c->mesh, o->coll->set, c->rank, member);
}

/* Whether this member receives data from, or sends them to, another one. */
static bool meets(const op *o, bool receives, int32_t member)
{
    if (o->coll->kind != DTP_PERMUTE) {
        return member != o->me;
    }
    const int32_t from = receives ? member : o->me, to = receives ? o->me : member;
    return member != o->me && dtp_coll_source(o->coll, o->n, to) == from;
}

/* ---- requests ---- */

/* Requests of one exchange: received from each member, then sent to each. */
typedef enum wave {
    WAVE_OPENING,
    WAVE_EXCHANGE,
    WAVE_GATHER = WAVE_EXCHANGE + FLIGHT,
    N_WAVES = WAVE_GATHER + FLIGHT
} wave;

static MPI_Request *wave_of(const op *o, wave kind, int64_t segment)
{
    const int32_t w = (int32_t)kind + (kind == WAVE_OPENING ? 0 : (int32_t)(segment % FLIGHT));
    return o->r->requests + (ptrdiff_t)w * 2 * o->n;
}

static int receive(const op *o, MPI_Request *requests, int tag, int32_t member, void *to,
                   int64_t bytes)
{
    return MPI_Irecv(to, (int)bytes, MPI_BYTE, rank_of(o, member), tag, o->r->world,
                     &requests[member]);
}

static int send(const op *o, MPI_Request *requests, int tag, int32_t member, const void *from,
                int64_t bytes)
{
    return MPI_Isend(from, (int)bytes, MPI_BYTE, rank_of(o, member), tag, o->r->world,
                     &requests[o->n + member]);
}

static dtp_status check(const op *o, int code, dtp_err *err)
{
    return dtp_comm__remote_check(o->r, code, err);
}

/* ---- openings ---- */

/* Bytes that each member has for each other one. */
static int64_t part_bytes(const op *o)
{
    return o->coll->count * o->width;
}

static bool is_small(const op *o)
{
    return part_bytes(o) <= INLINE_BYTES;
}

static dtp_status open_all(const op *o, dtp_err *err)
{
    MPI_Request *requests = wave_of(o, WAVE_OPENING, 0);
    const int64_t parts = dtp_coll_parts_in(o->coll, o->n);
    const int64_t head = (int64_t)offsetof(opening, data);
    int code = MPI_SUCCESS;
    for (int32_t i = 0; i < o->n && code == MPI_SUCCESS; i++) {
        opening *sent = i == o->me ? &o->opened[i] : &o->sent[i];
        const bool given = is_small(o) && (i == o->me || meets(o, false, i));
        const int64_t data = given ? part_bytes(o) : 0;
        const dtp_comm__part from = dtp_comm__part_of(o->coll, true, o->n, parts > 1 ? i : 0);
        const dtp_comm__part to = {.run = data, .stride = data};
        sent->coll = *o->coll;
        dtp_comm__copy(sent->data, to, 0, o->in, from, 0, data);
        if (i != o->me) {
            code = receive(o, requests, TAG_OPENING, i, &o->opened[i], sizeof *o->opened);
        }
        if (i != o->me && code == MPI_SUCCESS) {
            code = send(o, requests, TAG_OPENING, i, sent, head + data);
        }
    }
    DTP_TRY(check(o, code, err));
    return dtp_comm__remote_finish(o->r, requests, err);
}

/* All members run the same. */
static dtp_status check_same(const op *o, dtp_err *err)
{
    const dtp_comm *c = o->r->base;
    char why[DTP_ERR_MSG_BYTES];
    for (int32_t i = 1; i < o->n; i++) {
        if (dtp_comm__differs(&c->mesh, c->rank, 0, &o->opened[0].coll, i, &o->opened[i].coll,
                              why)) {
            return DTP_FAIL(err, DTP_COMM, "%s", why);
        }
    }
    return DTP_OK;
}

/* The data of all members have come with their openings. */
static void finish_small(const op *o)
{
    const int64_t bytes = part_bytes(o);
    const dtp_comm__part from = {.run = bytes, .stride = bytes};
    if (o->reduces) {
        for (int32_t i = 1; i < o->n; i++) {
            dtp_comm__combine(o->coll->op, o->coll->dtype, o->opened[0].data, o->opened[i].data,
                              o->coll->count);
        }
        memcpy(o->out, o->opened[0].data, (size_t)bytes);
    } else if (o->coll->kind == DTP_PERMUTE) {
        memcpy(o->out, o->opened[dtp_coll_source(o->coll, o->n, o->me)].data, (size_t)bytes);
    } else {
        for (int32_t i = 0; i < o->n; i++) {
            const dtp_comm__part to = dtp_comm__part_of(o->coll, false, o->n, i);
            dtp_comm__copy(o->out, to, 0, o->opened[i].data, from, 0, bytes);
        }
    }
}

/* ---- segments ---- */

/* Where what member `source` has for member `target` lies, in the input of the first or the output
 * of the second, and how many elements these are. */
static dtp_comm__part shard_of(const op *o, bool input, int32_t source, int32_t target,
                               int64_t *elems)
{
    *elems = o->coll->count;
    if (o->coll->kind == DTP_ALL_REDUCE) {
        int64_t start;
        dtp_chunk(o->coll->count, o->n, target, &start, elems);
        const int64_t run = *elems * o->width;
        return (dtp_comm__part){.start = start * o->width, .run = run, .stride = run};
    }
    const int64_t parts =
        input ? dtp_coll_parts_in(o->coll, o->n) : dtp_coll_parts_out(o->coll, o->n);
    const int32_t part = input ? target : source;
    return dtp_comm__part_of(o->coll, input, o->n, parts > 1 ? part : 0);
}

/* Elements [*first, *first + result) of `elems` are in a segment. */
static int64_t cut(const op *o, int64_t segment, int64_t elems, int64_t *first)
{
    *first = segment * o->segment;
    const int64_t left = elems - *first;
    return left <= 0 ? 0 : least(left, o->segment);
}

static char *block_of(const op *o, char *blocks, int64_t segment, int32_t member)
{
    return blocks + ((segment % FLIGHT) * o->n + member) * o->segment * o->width;
}

static bool is_whole(const op *o, const dtp_comm__part *part, int64_t elems)
{
    return part->run == elems * o->width;
}

/* Sends to a member what this one has for it in a segment. */
static int send_shard(const op *o, int64_t segment, int32_t member)
{
    int64_t elems, first;
    const dtp_comm__part from = shard_of(o, true, o->me, member, &elems);
    const int64_t k = cut(o, segment, elems, &first), bytes = k * o->width;
    const char *at = o->in + from.start + first * o->width;
    if (k > 0 && !is_whole(o, &from, elems)) {
        char *packed = block_of(o, o->packed, segment, member);
        const dtp_comm__part to = {.run = bytes, .stride = bytes};
        dtp_comm__copy(packed, to, 0, o->in, from, first * o->width, bytes);
        at = packed;
    }
    return k > 0 ? send(o, wave_of(o, WAVE_EXCHANGE, segment), TAG_EXCHANGE, member, at, bytes)
                 : MPI_SUCCESS;
}

static int receive_shard(const op *o, int64_t segment, int32_t member)
{
    int64_t elems, first;
    const dtp_comm__part to = shard_of(o, false, member, o->me, &elems);
    const int64_t k = cut(o, segment, elems, &first);
    char *at = o->reduces || !is_whole(o, &to, elems) ? block_of(o, o->received, segment, member)
                                                      : o->out + to.start + first * o->width;
    return k > 0 ? receive(o, wave_of(o, WAVE_EXCHANGE, segment), TAG_EXCHANGE, member, at,
                           k * o->width)
                 : MPI_SUCCESS;
}

/* Starts a segment. Sends come first: MPI announces a long message, and the peer asks for it. What
 * this rank announces must not wait behind data that a peer has asked for already, or the two
 * directions take turns. */
static dtp_status start_exchange(const op *o, int64_t segment, dtp_err *err)
{
    int code = MPI_SUCCESS;
    for (int32_t i = 0; i < o->n && code == MPI_SUCCESS; i++) {
        code = meets(o, false, i) ? send_shard(o, segment, i) : code;
    }
    for (int32_t i = 0; i < o->n && code == MPI_SUCCESS; i++) {
        code = meets(o, true, i) ? receive_shard(o, segment, i) : code;
    }
    return check(o, code, err);
}

/* What has come becomes the sum, in member order, or goes to its place. */
static void use_exchange(const op *o, int64_t segment)
{
    int64_t elems, first;
    char *sum = block_of(o, o->received, segment, 0);
    for (int32_t i = 0; i < o->n; i++) {
        char *block = block_of(o, o->received, segment, i);
        const dtp_comm__part own = shard_of(o, true, o->me, o->me, &elems);
        const dtp_comm__part to = shard_of(o, false, i, o->me, &elems);
        const int64_t k = cut(o, segment, elems, &first), bytes = k * o->width;
        const dtp_comm__part from = {.run = bytes, .stride = bytes};
        if (k == 0) {
            continue;
        }
        if (o->reduces) {
            if (i == o->me) {
                dtp_comm__copy(block, from, 0, o->in, own, first * o->width, bytes);
            }
            if (i > 0) {
                dtp_comm__combine(o->coll->op, o->coll->dtype, sum, block, k);
            }
        } else if (meets(o, true, i) && !is_whole(o, &to, elems)) {
            dtp_comm__copy(o->out, to, first * o->width, block, from, 0, bytes);
        }
    }
    if (o->reduces) {
        const dtp_comm__part to = shard_of(o, false, 0, o->me, &elems);
        const int64_t bytes = cut(o, segment, elems, &first) * o->width;
        memcpy(o->out + to.start + first * o->width, sum, (size_t)bytes);
    }
}

/* Of an all-reduce: each member hands its part of the sum to all others; sends first, as above. */
static dtp_status start_gather(const op *o, int64_t segment, dtp_err *err)
{
    MPI_Request *requests = wave_of(o, WAVE_GATHER, segment);
    int code = MPI_SUCCESS;
    int64_t elems, first;
    for (int32_t j = 0; j < 2 * o->n && code == MPI_SUCCESS; j++) {
        const bool sends = j < o->n;
        const int32_t i = j % o->n;
        const dtp_comm__part shard =
            shard_of(o, false, sends ? i : o->me, sends ? o->me : i, &elems);
        const int64_t bytes = cut(o, segment, elems, &first) * o->width;
        char *at = o->out + shard.start + first * o->width;
        if (i != o->me && bytes > 0) {
            code = sends ? send(o, requests, TAG_GATHER, i, at, bytes)
                         : receive(o, requests, TAG_GATHER, i, at, bytes);
        }
    }
    return check(o, code, err);
}

/* What this member has for itself; not of a reduction. */
static void copy_own(const op *o)
{
    int64_t elems;
    const bool permutes = o->coll->kind == DTP_PERMUTE;
    if (o->reduces || (permutes && dtp_coll_source(o->coll, o->n, o->me) != o->me)) {
        return;
    }
    const dtp_comm__part from = shard_of(o, true, o->me, o->me, &elems);
    const dtp_comm__part to = shard_of(o, false, o->me, o->me, &elems);
    if (o->in + from.start != o->out + to.start || from.run != to.run) {
        dtp_comm__copy(o->out, to, 0, o->in, from, 0, part_bytes(o));
    }
}

static dtp_status run_segments(const op *o, dtp_err *err)
{
    const bool two = o->coll->kind == DTP_ALL_REDUCE;
    int64_t elems, n = 0;
    for (int32_t i = 0; i < o->n; i++) { /* chunks of an all-reduce differ by one */
        (void)shard_of(o, true, o->me, i, &elems);
        const int64_t segments = dtp_ceil_div(elems, o->segment);
        n = segments > n ? segments : n;
    }
    copy_own(o);
    for (int64_t s = 0; s < n && s + 1 < FLIGHT; s++) {
        DTP_TRY(start_exchange(o, s, err));
    }
    for (int64_t s = 0; s < n; s++) {
        if (s + FLIGHT - 1 < n) {
            DTP_TRY(start_exchange(o, s + FLIGHT - 1, err));
        }
        DTP_TRY(dtp_comm__remote_finish(o->r, wave_of(o, WAVE_EXCHANGE, s), err));
        use_exchange(o, s);
        if (two) {
            DTP_TRY(dtp_comm__remote_finish(o->r, wave_of(o, WAVE_GATHER, s), err));
            DTP_TRY(start_gather(o, s, err));
        }
    }
    for (int64_t s = 0; s < FLIGHT; s++) {
        DTP_TRY(dtp_comm__remote_finish(o->r, wave_of(o, WAVE_GATHER, s), err));
    }
    return DTP_OK;
}

/* ---- a collective ---- */

static void choose_segment(op *o)
{
    int64_t elems;
    const dtp_comm__part in = shard_of(o, true, o->me, 0, &elems);
    const bool in_whole = is_whole(o, &in, elems);
    const dtp_comm__part out = shard_of(o, false, 0, o->me, &elems);
    o->direct = !o->reduces && in_whole && is_whole(o, &out, elems);
    int64_t bytes = SEGMENT_BYTES / o->n * 2;
    bytes = bytes > SEGMENT_BYTES ? SEGMENT_BYTES : bytes < SEGMENT_LEAST ? SEGMENT_LEAST : bytes;
    const int64_t k = least((o->direct ? MESSAGE_BYTES : bytes) / o->width, o->r->limit);
    o->segment = least(k, o->coll->count);
}

static dtp_status reserve(op *o, dtp_err *err)
{
    dtp_comm__remote *r = o->r;
    const size_t n = (size_t)o->n;
    const size_t n_requests = (size_t)N_WAVES * 2 * n;
    DTP_TRY(dtp_comm__reserve(&r->openings, 2 * n * sizeof(opening), err));
    o->sent = r->openings.data;
    o->opened = o->sent + n;
    const size_t block = n * (size_t)(o->segment * o->width);
    if (!o->direct && !is_small(o)) {
        DTP_TRY(dtp_comm__reserve(&r->blocks, 2 * FLIGHT * block, err));
        o->packed = r->blocks.data;
        o->received = o->packed + FLIGHT * block;
    }
    DTP_TRY(dtp_comm__reserve(&r->request_memory, n_requests * sizeof(MPI_Request), err));
    r->requests = r->request_memory.data;
    for (size_t i = 0; i < n_requests; i++) {
        r->requests[i] = MPI_REQUEST_NULL;
    }
    r->n_requests = (int32_t)n_requests;
    return DTP_OK;
}

static dtp_status run_single(dtp_comm__remote *r, const dtp_coll *coll, const dtp_coll_ends *ends,
                             dtp_err *err)
{
    const dtp_comm *c = r->base;
    op o = {.r = r,
            .coll = coll,
            .out = ends->out,
            .n = dtp_mesh_set_size(&c->mesh, coll->set),
            .me = dtp_mesh_set_index(&c->mesh, coll->set, c->rank),
            .width = dtp_dtype_bytes(coll->dtype),
            .reduces = dtp_coll_reduces(coll->kind)};
    dtp_coll_ends copy;
    DTP_TRY(dtp_comm__unalias(&r->copy, coll, o.n, o.me, &ends, &copy, err));
    o.in = ends->in;
    choose_segment(&o);
    DTP_TRY(reserve(&o, err));
    DTP_TRY(open_all(&o, err));
    DTP_TRY(check_same(&o, err));
    if (is_small(&o)) {
        finish_small(&o);
        return DTP_OK;
    }
    return run_segments(&o, err);
}

/* ---- buckets ---- */

/* Copies between the inputs (or outputs) of a bucket and one buffer of `parts` parts, each of which
 * has that part of every collective. */
static void pack(const dtp_coll *coll, const dtp_coll_ends *ends, bool input, int64_t n,
                 char *packed)
{
    const int64_t parts = input ? dtp_coll_parts_in(coll, n) : dtp_coll_parts_out(coll, n);
    const int64_t width = dtp_dtype_bytes(coll->dtype);
    int64_t start = 0;
    for (int64_t p = 0; p < parts; p++) {
        for (int32_t k = 0; k < coll->n_bucket; k++) {
            const dtp_coll *one = &coll->bucket[k];
            const int64_t bytes = one->count * width;
            const dtp_comm__part at = dtp_comm__part_of(one, input, n, p);
            const dtp_comm__part here = {.start = start, .run = bytes, .stride = bytes};
            if (input) {
                dtp_comm__copy(packed, here, 0, ends[k].in, at, 0, bytes);
            } else {
                dtp_comm__copy(ends[k].out, at, 0, packed, here, 0, bytes);
            }
            start += bytes;
        }
    }
}

dtp_status dtp_comm__messages_run(dtp_comm__remote *r, const dtp_coll *coll,
                                  const dtp_coll_ends *ends, dtp_err *err)
{
    const int32_t n = dtp_mesh_set_size(&r->base->mesh, coll->set);
    if (coll->n_bucket == 0) {
        return run_single(r, coll, ends, err);
    }
    int64_t in, out;
    dtp_coll one = *coll;
    one.n_bucket = 0;
    one.bucket = NULL;
    dtp_comm__elems(&one, n, &in, &out);
    const int64_t width = dtp_dtype_bytes(coll->dtype);
    DTP_TRY(dtp_comm__reserve(&r->bucket, (size_t)((in + out) * width), err));
    char *packed = r->bucket.data;
    const dtp_coll_ends whole = {.in = packed, .out = packed + in * width};
    pack(coll, ends, true, n, packed);
    DTP_TRY(run_single(r, &one, &whole, err));
    pack(coll, ends, false, n, whole.out);
    return DTP_OK;
}
