/* The NCCL transport: one card per rank, of one host or several. A bucket is one group of calls.
 * NCCL moves contiguous parts only and chooses the order of its sums. Its extrema drop NaN: those
 * of floats are taken over integers of the same order.
 *
 * Groups of ranks get communicators of their own, each from an identifier that its member 0 makes
 * and that goes over the host communicator: making one concerns the members alone
 * (docs/decisions/0047-cuda-transports.md). Calls do not block; where one is in progress the host
 * asks again until the deadline.
 *
 * NCCL does not tell whom a rank waits for. A rank that is late asks the ranks over the host
 * communicator which collective they are at: those that do not answer, or are at another one, are
 * named. Then it gives up its communicators.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/cuda/comm/nccl_internal.h"
#include "executor/cuda/kernels/combine.h"

enum { N_SETS = 1 << DTP_MAX_MESH_DIMS, KEY_BYTES = 1 << 20 };

typedef struct shared {
    void *memory;
    struct shared *next;
} shared;

typedef struct nccl_transport {
    dtp_cuda_flights flights;
    dtp_nccl__mail mail;
    dtp_nccl nccl;
    ncclComm_t comms[N_SETS]; /* by set of mesh dims; NULL: none yet */
    void *keys;               /* KEY_BYTES, once there is a communicator */
    bool broken;
    shared *arenas;
} nccl_transport;

/* ---- calls ---- */

/* Gives up what was started: nothing is touched any more. As a group, since NCCL waits for the
 * device: every communicator gets the order to end before one of them is waited for. */
static void stop(nccl_transport *x)
{
    x->broken = true;
    (void)x->nccl.GroupStart();
    for (int32_t s = 0; s < N_SETS; s++) {
        if (x->comms[s] != NULL) {
            (void)x->nccl.CommAbort(x->comms[s]);
            x->comms[s] = NULL;
        }
    }
    dtp_nccl__abort_messages(&x->mail);
    (void)x->nccl.GroupEnd();
}

/* ---- communicators ---- */

/* Whether a group gets a communicator: one of a single rank only where a switch says so. */
static bool needs_nccl(const nccl_transport *x, dtp_mesh_set set)
{
    return x->flights.cuda->nccl_alone || dtp_mesh_set_size(&x->flights.comm->mesh, set) > 1;
}

static dtp_status nccl_prepare(dtp_transport *t, dtp_mesh_set set, dtp_err *err)
{
    enum { WORDS = sizeof(ncclUniqueId) / sizeof(int64_t) };
    nccl_transport *x = t->self;
    dtp_comm *comm = x->flights.comm;
    DTP_TRY(dtp_comm__check_set(comm, set, err));
    const int32_t n = dtp_mesh_set_size(&comm->mesh, set);
    const int32_t me = dtp_mesh_set_index(&comm->mesh, set, comm->rank);
    if (!needs_nccl(x, set) || x->comms[set] != NULL) {
        return DTP_OK;
    }
    if (x->keys == NULL) {
        DTP_CUDA_TRY(err, cudaMalloc(&x->keys, KEY_BYTES));
    }
    ncclUniqueId id;
    ncclResult_t code = ncclSuccess;
    int64_t words[WORDS + 1] = {0}; /* the others add nothing; the last one: it was made */
    if (me == 0) {
        code = x->nccl.GetUniqueId(&id);
        memcpy(words, &id, sizeof id);
        words[WORDS] = code == ncclSuccess;
    }
    const dtp_coll share = {.kind = DTP_ALL_REDUCE,
                            .set = set,
                            .op = DTP_REDUCE_SUM,
                            .dtype = DTP_I64,
                            .count = WORDS + 1};
    DTP_TRY(comm->ops->run(comm, &share, words, words, err));
    if (words[WORDS] != 1) {
        return me == 0
                   ? dtp_nccl__fail(&x->nccl, x->flights.comm, code, "ncclGetUniqueId", NULL, err)
                   : DTP_FAIL(err, DTP_COMM, "rank %d: NCCL: member 0 made no identifier",
                              comm->rank);
    }
    memcpy(&id, words, sizeof id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    code = x->nccl.CommInitRankConfig(&x->comms[set], n, id, me, &config);
    return dtp_nccl__settle(&x->nccl, x->flights.comm, x->comms[set], code,
                            "ncclCommInitRankConfig", err);
}

/* ---- collectives ---- */

static ncclDataType_t type_of(dtp_dtype dtype)
{
    static const ncclDataType_t types[DTP_N_DTYPES] = {
        [DTP_F32] = ncclFloat32, [DTP_F64] = ncclFloat64, [DTP_BF16] = ncclBfloat16,
        [DTP_F16] = ncclFloat16, [DTP_I32] = ncclInt32,   [DTP_I64] = ncclInt64,
        [DTP_BOOL] = ncclUint8};
    return types[dtype];
}

/* Of bools, which are 0 or 1, products and minima are and, maxima are or. */
static ncclRedOp_t operation_of(dtp_reduce_op op)
{
    return op == DTP_REDUCE_SUM    ? ncclSum
           : op == DTP_REDUCE_PROD ? ncclProd
           : op == DTP_REDUCE_MIN  ? ncclMin
                                   : ncclMax;
}

/* The ranks of a collective, and this one's number among them. */
typedef struct group {
    int32_t n, me;
    ncclComm_t c;
    cudaStream_t queue;
} group;

/* all_to_all and collective_permute. */
static ncclResult_t exchange(const dtp_nccl *nccl, const group *g, const dtp_coll *coll,
                             const dtp_coll_ends *ends)
{
    const size_t count = (size_t)coll->count, bytes = count * (size_t)dtp_dtype_bytes(coll->dtype);
    const ncclDataType_t type = type_of(coll->dtype);
    const bool one = coll->kind == DTP_PERMUTE;
    const int32_t source = one ? dtp_coll_source(coll, g->n, g->me) : -1;
    ncclResult_t code = ncclSuccess;
    for (int32_t j = 0; j < g->n && code == ncclSuccess; j++) {
        const size_t at = one ? 0 : (size_t)j * bytes;
        if (!one || dtp_coll_source(coll, g->n, j) == g->me) {
            code = nccl->Send((const char *)ends->in + at, count, type, j, g->c, g->queue);
        }
        if (code == ncclSuccess && (!one || source == j)) {
            code = nccl->Recv((char *)ends->out + at, count, type, j, g->c, g->queue);
        }
    }
    return code;
}

static ncclResult_t put_one(const dtp_nccl *nccl, const group *g, const dtp_coll *coll,
                            const dtp_coll_ends *ends)
{
    const size_t count = (size_t)coll->count;
    const ncclDataType_t type = type_of(coll->dtype);
    const ncclRedOp_t op = operation_of(coll->op);
    switch (coll->kind) {
    case DTP_ALL_REDUCE:
        return nccl->AllReduce(ends->in, ends->out, count, type, op, g->c, g->queue);
    case DTP_REDUCE_SCATTER:
        return nccl->ReduceScatter(ends->in, ends->out, count, type, op, g->c, g->queue);
    case DTP_ALL_GATHER:
        return nccl->AllGather(ends->in, ends->out, count, type, g->c, g->queue);
    default:
        return exchange(nccl, g, coll, ends);
    }
}

/* Minima and maxima of floats: those of NCCL drop NaN. */
static bool has_keys(const dtp_coll *coll)
{
    return dtp_coll_reduces(coll->kind) && dtp_dtype_is_float(coll->dtype) &&
           (coll->op == DTP_REDUCE_MIN || coll->op == DTP_REDUCE_MAX);
}

/* `n` elements of such a collective from `at` on. */
static dtp_status put_keys(const nccl_transport *x, const group *g, const dtp_coll *coll,
                           const dtp_coll_ends *ends, int64_t at, int64_t n, dtp_err *err)
{
    const bool scatters = coll->kind == DTP_REDUCE_SCATTER;
    const int64_t width = dtp_dtype_bytes(coll->dtype), key = coll->dtype == DTP_F64 ? 8 : 4;
    const int32_t parts = scatters ? g->n : 1;
    const ncclDataType_t type = coll->dtype == DTP_F64 ? ncclInt64 : ncclInt32;
    const ncclRedOp_t op = operation_of(coll->op);
    char *keys = x->keys, *result = scatters ? keys + parts * n * key : keys;
    for (int32_t j = 0; j < parts; j++) {
        DTP_CUDA_TRY(err, dtp_cuda_to_keys(g->queue, (int32_t)coll->dtype, (int32_t)coll->op, n,
                                           (const char *)ends->in + (j * coll->count + at) * width,
                                           keys + j * n * key));
    }
    const ncclResult_t code =
        scatters ? x->nccl.ReduceScatter(keys, result, (size_t)n, type, op, g->c, g->queue)
                 : x->nccl.AllReduce(keys, result, (size_t)n, type, op, g->c, g->queue);
    DTP_TRY(
        dtp_nccl__settle(&x->nccl, x->flights.comm, g->c, code, dtp_coll_name(coll->kind), err));
    DTP_CUDA_TRY(err, dtp_cuda_from_keys(g->queue, (int32_t)coll->dtype, (int32_t)coll->op, n,
                                         result, (char *)ends->out + at * width));
    return DTP_OK;
}

static dtp_status put_extrema(const nccl_transport *x, const group *g, const dtp_coll *coll,
                              const dtp_coll_ends *ends, dtp_err *err)
{
    const int64_t room = KEY_BYTES / 8 / (coll->kind == DTP_REDUCE_SCATTER ? g->n + 1 : 1);
    for (int32_t k = 0; k < dtp_coll_buffers(coll); k++) {
        const dtp_coll *one = dtp_coll_at(coll, k);
        for (int64_t at = 0; at < one->count; at += room) {
            const int64_t left = one->count - at;
            DTP_TRY(put_keys(x, g, one, &ends[k], at, left < room ? left : room, err));
        }
    }
    return DTP_OK;
}

static dtp_status put_group(const nccl_transport *x, const dtp_coll *coll,
                            const dtp_coll_ends *ends, dtp_err *err)
{
    const dtp_comm *comm = x->flights.comm;
    const group g = {.n = dtp_mesh_set_size(&comm->mesh, coll->set),
                     .me = dtp_mesh_set_index(&comm->mesh, coll->set, comm->rank),
                     .c = x->comms[coll->set],
                     .queue = x->flights.cuda->comm};
    if (has_keys(coll)) {
        return put_extrema(x, &g, coll, ends, err);
    }
    ncclResult_t code = x->nccl.GroupStart();
    for (int32_t k = 0; k < dtp_coll_buffers(coll) && code == ncclSuccess; k++) {
        const dtp_coll *one = dtp_coll_at(coll, k);
        if (one->count > 0) {
            code = put_one(&x->nccl, &g, one, &ends[k]);
        }
    }
    const ncclResult_t end = x->nccl.GroupEnd();
    return dtp_nccl__settle(&x->nccl, x->flights.comm, g.c, code != ncclSuccess ? code : end,
                            dtp_coll_name(coll->kind), err);
}

static bool is_strided(const dtp_coll *coll)
{
    bool strided = false;
    for (int32_t k = 0; k < dtp_coll_buffers(coll); k++) {
        const dtp_coll *one = dtp_coll_at(coll, k);
        strided = strided || one->in_outer > 1 || one->out_outer > 1;
    }
    return strided;
}

static dtp_status nccl_start(dtp_transport *t, const dtp_coll *coll, const dtp_coll_ends *ends,
                             dtp_request *request, dtp_err *err)
{
    nccl_transport *x = t->self;
    dtp_cuda_flights *f = &x->flights;
    DTP_TRY(dtp_comm__can_reduce(coll, err));
    DTP_TRY(dtp_comm__check_set(f->comm, coll->set, err));
    const bool alone = !needs_nccl(x, coll->set);
    if (x->broken || is_strided(coll) || (!alone && x->comms[coll->set] == NULL)) {
        return DTP_FAIL(err, x->broken ? DTP_COMM : DTP_UNSUPPORTED, "rank %d: NCCL: %s",
                        f->comm->rank,
                        x->broken          ? "its communicators were given up"
                        : is_strided(coll) ? "strided parts"
                                           : "a set of mesh dims that was not prepared");
    }
    DTP_TRY(dtp_cuda_flight_begin(f, coll, ends, request, err));
    DTP_TRY(alone ? dtp_cuda_put_single(f->cuda, coll, ends, err) : put_group(x, coll, ends, err));
    return dtp_cuda_flight_end(f, request, err);
}

static dtp_status nccl_wait(dtp_transport *t, dtp_request *request, dtp_err *err)
{
    nccl_transport *x = t->self;
    return dtp_cuda_flight_wait(&x->flights, request, err);
}

/* ---- memory ---- */

/* NCCL registers buffers in such memory by itself when calls on them are recorded. Its pages are
 * large. */
static void *nccl_register_memory(dtp_transport *t, size_t bytes)
{
    enum { LARGE = 1 << 23 };
    nccl_transport *x = t->self;
    void *memory = NULL;
    const bool uses = needs_nccl(x, dtp_comm_all(x->flights.comm));
    shared *s = bytes >= LARGE && uses ? calloc(1, sizeof *s) : NULL;
    if (s == NULL || x->nccl.MemAlloc(&memory, bytes) != ncclSuccess) {
        free(s);
        return NULL;
    }
    *s = (shared){.memory = memory, .next = x->arenas};
    x->arenas = s;
    return memory;
}

static bool nccl_release_memory(dtp_transport *t, void *ptr)
{
    nccl_transport *x = t->self;
    shared **at = &x->arenas;
    while (*at != NULL && (*at)->memory != ptr) {
        at = &(*at)->next;
    }
    shared *found = *at;
    if (found == NULL) {
        return false;
    }
    *at = found->next;
    free(found);
    (void)x->nccl.MemFree(ptr);
    return true;
}

/* ---- failures ---- */

/* What another rank does while this one is late in `coll`, NULL: one of a recording. Ends with a
 * message in any case. */
static dtp_status ask(nccl_transport *x, const char *late, const dtp_coll *coll, dtp_err *err)
{
    enum { WORDS = sizeof(dtp_coll) / sizeof(int64_t), PATIENCE_S = 5 };
    dtp_comm *comm = x->flights.comm;
    const double timeout_s = comm->timeout_s;
    dtp_coll mine = {.kind = DTP_N_COLLS}, *all = calloc((size_t)comm->size, sizeof *all);
    char why[DTP_ERR_MSG_BYTES] = "the others are late, too";
    dtp_err said = {0};
    DTP_TRY(DTP_MEMORY(err, all));
    mine = coll != NULL ? *coll : mine;
    const dtp_coll gather = {
        .kind = DTP_ALL_GATHER, .set = dtp_comm_all(comm), .dtype = DTP_I64, .count = WORDS};
    comm->timeout_s = fmin(timeout_s, PATIENCE_S);
    const dtp_status s = comm->ops->run(comm, &gather, &mine, all, &said);
    comm->timeout_s = timeout_s;
    if (s != DTP_OK) {
        memcpy(why, said.msg, sizeof why);
    }
    const int32_t n = coll != NULL ? dtp_mesh_set_size(&comm->mesh, coll->set) : 0;
    const int32_t me = coll != NULL ? dtp_mesh_set_index(&comm->mesh, coll->set, comm->rank) : 0;
    bool found = false;
    for (int32_t j = 0; j < n && s == DTP_OK && !found; j++) {
        const dtp_coll *theirs = &all[dtp_mesh_set_member(&comm->mesh, coll->set, comm->rank, j)];
        found = theirs->kind != DTP_N_COLLS &&
                dtp_comm__differs(&comm->mesh, comm->rank, me, &mine, j, theirs, why);
    }
    free(all);
    return DTP_FAIL(err, DTP_COMM, "%.300s: %.700s", late, why);
}

static dtp_status nccl_poll(dtp_transport *t, double waited_s, const dtp_request **at, dtp_err *err)
{
    nccl_transport *x = t->self;
    char late[DTP_ERR_MSG_BYTES];
    const dtp_coll *coll;
    if (x->broken) {
        return DTP_OK; /* the queues run empty */
    }
    dtp_coll message;
    bool waits;
    DTP_TRY(dtp_cuda_flights_look(&x->flights, waited_s, late, at, &coll, err));
    DTP_TRY(dtp_nccl__look_at_messages(&x->mail, &waits, &message, err));
    DTP_TRY(at != NULL && (*at != NULL || waits) ? dtp_nccl__look(x->flights.comm, err) : DTP_OK);
    if (late[0] == '\0' && message.kind != DTP_N_COLLS) {
        coll = &message;
        dtp_comm__describe_late(&x->flights.comm->mesh, 0, NULL, x->flights.comm->rank, coll,
                                x->flights.comm->timeout_s, late);
    }
    for (int32_t s = 0; s < N_SETS; s++) {
        ncclResult_t code = ncclSuccess;
        if (x->comms[s] != NULL) {
            const ncclResult_t asked = x->nccl.CommGetAsyncError(x->comms[s], &code);
            code = asked != ncclSuccess ? asked : code;
        }
        if (code != ncclSuccess && code != ncclInProgress) {
            return dtp_nccl__fail(&x->nccl, x->flights.comm, code, "a collective", x->comms[s],
                                  err);
        }
    }
    return late[0] == '\0' ? DTP_OK : ask(x, late, coll, err);
}

static void nccl_abort(dtp_transport *t, const char *why)
{
    (void)why; /* the host communicator tells it */
    stop(t->self);
}

static dtp_status nccl_connect(dtp_transport *t, int32_t n, const dtp_message *ends, dtp_err *err)
{
    nccl_transport *x = t->self;
    return dtp_nccl__connect(&x->mail, n, ends, err);
}

static dtp_status nccl_post(dtp_transport *t, dtp_message *m, dtp_err *err)
{
    nccl_transport *x = t->self;
    return x->broken ? DTP_FAIL(err, DTP_COMM, "rank %d: NCCL: its communicators were given up",
                                x->flights.comm->rank)
                     : dtp_nccl__post(&x->mail, m, err);
}

static dtp_status nccl_finish(dtp_transport *t, dtp_message *m, dtp_err *err)
{
    nccl_transport *x = t->self;
    return dtp_nccl__finish(&x->mail, m, err);
}

static void nccl_destroy(dtp_transport *t)
{
    nccl_transport *x = t->self;
    for (int32_t s = 0; s < N_SETS; s++) {
        const ncclComm_t c = x->comms[s];
        if (c != NULL && dtp_nccl__settle(&x->nccl, x->flights.comm, c, x->nccl.CommFinalize(c),
                                          "ncclCommFinalize", NULL) == DTP_OK) {
            (void)x->nccl.CommDestroy(c);
            x->comms[s] = NULL;
        }
    }
    dtp_nccl__close_messages(&x->mail);
    stop(x);
    (void)cudaFree(x->keys);
    dtp_cuda_flights_close(&x->flights);
    free(x);
}

static const dtp_transport_ops nccl_ops = {
    .name = "nccl",
    .prepare = nccl_prepare,
    .start = nccl_start,
    .wait = nccl_wait,
    .abort = nccl_abort,
    .poll = nccl_poll,
    .destroy = nccl_destroy,
    .register_memory = nccl_register_memory,
    .release_memory = nccl_release_memory,
    .post = nccl_post,
    .finish = nccl_finish,
    .connect = nccl_connect,
};

dtp_status dtp_cuda_nccl_create(dtp_comm *comm, dtp_cuda *cuda, dtp_transport *out, dtp_err *err)
{
    dtp_nccl nccl;
    DTP_TRY(dtp_nccl_open(&nccl, err));
    nccl_transport *x = calloc(1, sizeof *x);
    DTP_TRY(DTP_MEMORY(err, x));
    x->flights = (dtp_cuda_flights){.cuda = cuda, .comm = comm};
    x->nccl = nccl;
    x->mail =
        (dtp_nccl__mail){.nccl = &x->nccl, .cuda = cuda, .comm = comm, .host = comm->transport};
    *out = (dtp_transport){.ops = &nccl_ops,
                           .caps = {.asynchronous = true, .queued = true, .captured = true},
                           .self = x};
    void *word = NULL;
    DTP_CUDA_TRY(err, cudaMallocHost(&word, sizeof *x->flights.at)); /* the caller destroys *out */
    x->flights.at = memset(word, 0, sizeof *x->flights.at);
    return DTP_OK;
}
