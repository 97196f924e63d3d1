/* Collectives through MPI calls. Contiguous buffers go to MPI whole. Everything else goes block by
 * block through scratch: strided parts are packed, exchanged and unpacked; reductions exchange the
 * contributions and combine them here in member order. So there is no limit on counts, and the bits
 * are those of transfer.c but for the all-reduce of a type that MPI knows, whose order is MPI's.
 * MPI reports errors by code; they become DTP_COMM.
 */
#include "executor/comm/mpi_internal.h"

#include <string.h>

#include "core/base/safe_int.h"

/* Bytes of the two halves of the scratch, at least one element per member. */
enum { HALF_BYTES = 1 << 20 };

dtp_status dtp_comm__mpi_check(int code, const dtp_comm__mpi *c, const char *what, dtp_err *err)
{
    if (code == MPI_SUCCESS) {
        return DTP_OK;
    }
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(code, text, &n);
    return DTP_FAIL(err, DTP_COMM, "rank %d: %s: %.*s", c->base.rank, what, n, text);
}

static MPI_Datatype type_of(dtp_dtype dtype)
{
    switch (dtype) {
    case DTP_F32:
        return MPI_FLOAT;
    case DTP_F64:
        return MPI_DOUBLE;
    case DTP_I32:
        return MPI_INT32_T;
    case DTP_I64:
        return MPI_INT64_T;
    case DTP_BOOL:
        return MPI_BYTE;
    default:
        return MPI_UINT16_T; /* bf16 and f16 are moved by MPI, never reduced */
    }
}

static MPI_Op op_of(dtp_reduce_op op)
{
    switch (op) {
    case DTP_REDUCE_PROD:
        return MPI_PROD;
    case DTP_REDUCE_MIN:
        return MPI_MIN;
    case DTP_REDUCE_MAX:
        return MPI_MAX;
    default:
        return MPI_SUM;
    }
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static char *at(void *p, int64_t bytes)
{
    return (char *)p + bytes;
}

static const char *at_const(const void *p, int64_t bytes)
{
    return (const char *)p + bytes;
}

/* ---- whole buffers ---- */

static int all_reduce(const dtp_comm__mpi *c, MPI_Comm sub, const dtp_coll *coll, const void *in,
                      void *out)
{
    int64_t width = dtp_dtype_bytes(coll->dtype);
    int code = MPI_SUCCESS;
    for (int64_t i = 0; i < coll->count && code == MPI_SUCCESS; i += c->limit) {
        int n = (int)least(c->limit, coll->count - i);
        const void *from = in == out ? MPI_IN_PLACE : at_const(in, i * width);
        code =
            MPI_Allreduce(from, at(out, i * width), n, type_of(coll->dtype), op_of(coll->op), sub);
    }
    return code;
}

static int gather_or_exchange(const dtp_comm__mpi *c, MPI_Comm sub, const dtp_coll *coll,
                              const void *in, void *out)
{
    MPI_Datatype type = type_of(coll->dtype);
    int n = (int)coll->count;
    if (coll->kind == DTP_ALL_TO_ALL) {
        return MPI_Alltoall(in, n, type, out, n, type, sub);
    }
    int64_t bytes = coll->count * dtp_dtype_bytes(coll->dtype);
    int me = dtp_mesh_set_index(&c->base.mesh, coll->set, c->base.rank);
    return MPI_Allgather(in == at(out, me * bytes) ? MPI_IN_PLACE : in, n, type, out, n, type, sub);
}

static int permute(const dtp_comm__mpi *c, MPI_Comm sub, int32_t n, const dtp_coll *coll,
                   const void *in, void *out)
{
    const dtp_mesh *mesh = &c->base.mesh;
    int32_t me = dtp_mesh_set_index(mesh, coll->set, c->base.rank);
    int32_t from = dtp_coll_source(coll, n, me), to = (int32_t)((2LL * me - from + n) % n);
    int64_t width = dtp_dtype_bytes(coll->dtype);
    int code = MPI_SUCCESS;
    for (int64_t i = 0; i < coll->count && code == MPI_SUCCESS; i += c->limit) {
        int k = (int)least(c->limit, coll->count - i);
        code = MPI_Sendrecv(at_const(in, i * width), k, type_of(coll->dtype), to, 0,
                            at(out, i * width), k, type_of(coll->dtype), from, 0, sub,
                            MPI_STATUS_IGNORE);
    }
    return code;
}

/* ---- block by block ---- */

/* Iteration over the elements of all parts at a time: `k` of each, from `start` on. Members
 * exchange blocks of k elements. */
typedef struct blocks {
    const dtp_coll *coll;
    MPI_Comm sub;
    int32_t n;
    int64_t width, start, k;
    char *send, *receive; /* n blocks each */
} blocks;

static dtp_comm__part block(const blocks *b, int64_t p)
{
    int64_t bytes = b->k * b->width;
    return (dtp_comm__part){.start = p * bytes, .run = bytes, .stride = bytes};
}

/* The current elements of the input's parts, into the blocks to send. */
static void pack(const blocks *b, const void *in)
{
    int64_t parts = dtp_coll_parts_in(b->coll, b->n);
    for (int64_t p = 0; p < parts; p++) {
        dtp_comm__copy(b->send, block(b, p), 0, in, dtp_comm__part_of(b->coll, true, b->n, p),
                       b->start * b->width, b->k * b->width);
    }
}

static int exchange(const blocks *b)
{
    MPI_Datatype type = type_of(b->coll->dtype);
    return MPI_Alltoall(b->send, (int)b->k, type, b->receive, (int)b->k, type, b->sub);
}

/* The blocks received become their sum in the first one. */
static void combine(const blocks *b)
{
    for (int32_t j = 1; j < b->n; j++) {
        dtp_comm__combine(b->coll->op, b->coll->dtype, b->receive, b->receive + j * b->k * b->width,
                          b->k);
    }
}

static int step_scatter(const blocks *b, const void *in, void *out)
{
    pack(b, in);
    int code = exchange(b);
    combine(b);
    memcpy(at(out, b->start * b->width), b->receive, (size_t)(b->k * b->width));
    return code;
}

static int step_gather_or_exchange(const blocks *b, const void *in, void *out)
{
    MPI_Datatype type = type_of(b->coll->dtype);
    pack(b, in);
    int code = b->coll->kind == DTP_ALL_TO_ALL
                   ? exchange(b)
                   : MPI_Allgather(b->send, (int)b->k, type, b->receive, (int)b->k, type, b->sub);
    /* The blocks received, into the output's parts. */
    for (int64_t p = 0; p < b->n; p++) {
        dtp_comm__copy(out, dtp_comm__part_of(b->coll, false, b->n, p), b->start * b->width,
                       b->receive, block(b, p), 0, b->k * b->width);
    }
    return code;
}

/* An all-reduce of n * k elements, the last ones padded with zeros: member p combines block p. */
static int step_reduce(const blocks *b, const void *in, void *out)
{
    MPI_Datatype type = type_of(b->coll->dtype);
    int64_t first = b->start * b->n;
    size_t bytes = (size_t)(least(b->n * b->k, b->coll->count - first) * b->width);
    memset(b->send, 0, (size_t)(b->n * b->k * b->width));
    memcpy(b->send, at_const(in, first * b->width), bytes);
    int code = exchange(b);
    if (code == MPI_SUCCESS) {
        combine(b);
        code = MPI_Allgather(b->receive, (int)b->k, type, b->send, (int)b->k, type, b->sub);
    }
    memcpy(at(out, first * b->width), b->send, bytes);
    return code;
}

static dtp_status run_blocks(dtp_comm__mpi *c, const dtp_coll *coll, int32_t n, const void *in,
                             void *out, int *code, dtp_err *err)
{
    blocks b = {
        .coll = coll, .sub = c->subs[coll->set], .n = n, .width = dtp_dtype_bytes(coll->dtype)};
    int64_t half = HALF_BYTES > n * b.width ? HALF_BYTES : n * b.width;
    DTP_TRY(dtp_comm__reserve(&c->blocks, 2 * (size_t)half, err));
    b.send = c->blocks.data;
    b.receive = b.send + half;
    int64_t most = least(HALF_BYTES / n / b.width, c->limit);
    int64_t size = most > 1 ? most : 1;
    int64_t elems = coll->kind == DTP_ALL_REDUCE ? dtp_ceil_div(coll->count, n) : coll->count;
    *code = MPI_SUCCESS;
    for (b.start = 0; b.start < elems && *code == MPI_SUCCESS; b.start += size) {
        b.k = least(size, elems - b.start);
        *code = coll->kind == DTP_ALL_REDUCE       ? step_reduce(&b, in, out)
                : coll->kind == DTP_REDUCE_SCATTER ? step_scatter(&b, in, out)
                                                   : step_gather_or_exchange(&b, in, out);
    }
    return DTP_OK;
}

dtp_status dtp_comm__mpi_call(dtp_comm__mpi *c, const dtp_coll *coll, const void *in, void *out,
                              dtp_err *err)
{
    MPI_Comm sub = c->subs[coll->set];
    int32_t n = dtp_mesh_set_size(&c->base.mesh, coll->set);
    bool copies = coll->kind == DTP_ALL_GATHER || coll->kind == DTP_ALL_TO_ALL;
    const bool whole = coll->count <= c->limit && coll->in_outer <= 1 && coll->out_outer <= 1;
    const bool reduces = coll->dtype == DTP_F32 || coll->dtype == DTP_F64 ||
                         coll->dtype == DTP_I32 || coll->dtype == DTP_I64; /* as MPI does */
    int code;
    if (coll->kind == DTP_PERMUTE) {
        code = permute(c, sub, n, coll, in, out);
    } else if (coll->kind == DTP_ALL_REDUCE && reduces) {
        code = all_reduce(c, sub, coll, in, out);
    } else if (copies && whole) {
        code = gather_or_exchange(c, sub, coll, in, out);
    } else {
        DTP_TRY(run_blocks(c, coll, n, in, out, &code, err));
    }
    return dtp_comm__mpi_check(code, c, dtp_coll_name(coll->kind), err);
}
