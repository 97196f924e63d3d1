/* The device transport: ranks that are threads of one process, on one card or several. Members of a
 * group meet on the host at START and put their share of the collective on their communication
 * queues: copies from the buffers of the others, and kernels that combine them in member order, so
 * that results are bitwise those of virtual ranks on the CPU (executor/comm/transfer.c).
 *
 * The share of a member begins after the event `ready` of every member and ends with its event
 * `done`; the collective ends on a member's queue after `done` of all. Members pass two gates of
 * the host (dtp_comm_ops.meet): `ready` are recorded before the first one and waited for before the
 * second one, after which `done` are waited for. So no event is recorded anew before all wait for
 * it. Messages: device_messages.c.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/safe_int.h"
#include "executor/cuda/comm/comm.h"
#include "executor/cuda/kernels/combine.h"

enum { N_SETS = 1 << DTP_MAX_MESH_DIMS };

/* Events of a rank, by set of mesh dims; NULL: not used yet. */
typedef struct member {
    cudaEvent_t ready[N_SETS], done[N_SETS];
} member;

/* What all ranks see; the last one to leave frees it. */
typedef struct team {
    atomic_int left;
    int32_t n;
    member members[];
} team;

typedef struct device_transport {
    dtp_cuda_flights flights;
    team *team; /* NULL: of a single rank */
    dtp_cuda_mail mail;
} device_transport;

/* ---- the share of a member ---- */

static char *at(const void *data, int64_t bytes)
{
    return (char *)(uintptr_t)data + bytes;
}

/* Part p of a buffer, in elements. */
static dtp_cuda_part part_of(const dtp_coll *coll, bool input, int32_t n, int32_t p)
{
    const dtp_comm__part bytes = dtp_comm__part_of(coll, input, n, p);
    const int64_t width = dtp_dtype_bytes(coll->dtype);
    return (dtp_cuda_part){bytes.start / width, bytes.run / width, bytes.stride / width};
}

/* What `source` has for this member. */
static dtp_status put_move(cudaStream_t queue, const dtp_coll *coll, int32_t n, int32_t me,
                           int32_t source, const void *in, void *out, dtp_err *err)
{
    const int64_t width = dtp_dtype_bytes(coll->dtype);
    const dtp_cuda_part from = part_of(coll, true, n, me), to = part_of(coll, false, n, source);
    const bool whole = from.run == coll->count && to.run == coll->count;
    char *const target = at(out, to.start * width), *const origin = at(in, from.start * width);
    if (!whole) {
        DTP_CUDA_TRY(err,
                     dtp_cuda_move_part(queue, (int32_t)width, coll->count, out, &to, in, &from));
    } else if (target != origin) {
        DTP_CUDA_TRY(err, cudaMemcpyAsync(target, origin, (size_t)(coll->count * width),
                                          cudaMemcpyDefault, queue));
    }
    return DTP_OK;
}

/* A chunk of an all_reduce goes to all members, a part of a reduce_scatter to this one. */
static dtp_status put_combine(cudaStream_t queue, const dtp_coll *coll, int32_t n, int32_t me,
                              const dtp_coll_ends *const *ends, int32_t k, dtp_err *err)
{
    const int64_t width = dtp_dtype_bytes(coll->dtype);
    const bool scatter = coll->kind == DTP_REDUCE_SCATTER;
    dtp_cuda_members members = {.n_in = n, .n_out = scatter ? 1 : n};
    dtp_cuda_part part = part_of(coll, true, n, me);
    int64_t start = 0, count = coll->count;
    if (!scatter) {
        dtp_chunk(coll->count, n, me, &start, &count);
        part = (dtp_cuda_part){.start = start, .run = count, .stride = 0};
    }
    for (int32_t j = 0; j < n; j++) {
        members.in[j] = ends[j][k].in;
        members.out[j] = scatter ? NULL : at(ends[j][k].out, start * width);
    }
    if (scatter) {
        members.out[0] = ends[me][k].out;
    }
    if (count > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_combine(queue, (int32_t)coll->dtype, (int32_t)coll->op, count,
                                           &part, &members));
    }
    return DTP_OK;
}

static dtp_status put_one(cudaStream_t queue, const dtp_coll *coll, int32_t n, int32_t me,
                          const dtp_coll_ends *const *ends, int32_t k, dtp_err *err)
{
    if (coll->count == 0) {
        return DTP_OK;
    }
    if (dtp_coll_reduces(coll->kind)) {
        return put_combine(queue, coll, n, me, ends, k, err);
    }
    const bool one = coll->kind == DTP_PERMUTE;
    for (int32_t j = 0; j < (one ? 1 : n); j++) {
        /* members begin with themselves, so that they do not crowd one buffer */
        const int32_t source = one ? dtp_coll_source(coll, n, me) : (me + j) % n;
        DTP_TRY(put_move(queue, coll, n, me, source, ends[source][k].in, ends[me][k].out, err));
    }
    return DTP_OK;
}

/* The communication queue waits for an event of all other members of the group. */
static dtp_status await_others(device_transport *d, const dtp_coll *coll, bool done, dtp_err *err)
{
    const dtp_comm *comm = d->flights.comm;
    const int32_t n = dtp_mesh_set_size(&comm->mesh, coll->set);
    for (int32_t j = 0; j < n; j++) {
        const int32_t rank = dtp_mesh_set_member(&comm->mesh, coll->set, comm->rank, j);
        const member *m = &d->team->members[rank];
        if (rank != comm->rank) {
            DTP_CUDA_TRY(err,
                         cudaStreamWaitEvent(d->flights.cuda->comm,
                                             done ? m->done[coll->set] : m->ready[coll->set], 0));
        }
    }
    return DTP_OK;
}

static dtp_status put_share(void *user, const dtp_coll *coll, int32_t n, int32_t me,
                            const dtp_coll_ends *const *ends, dtp_err *err)
{
    device_transport *d = user;
    const cudaStream_t queue = d->flights.cuda->comm;
    DTP_TRY(await_others(d, coll, false, err));
    for (int32_t k = 0; k < dtp_coll_buffers(coll); k++) {
        DTP_TRY(put_one(queue, dtp_coll_at(coll, k), n, me, ends, k, err));
    }
    DTP_CUDA_TRY(err,
                 cudaEventRecord(d->team->members[d->flights.comm->rank].done[coll->set], queue));
    return DTP_OK;
}

/* ---- the transport ---- */

static dtp_status device_prepare(dtp_transport *t, dtp_mesh_set set, dtp_err *err)
{
    device_transport *d = t->self;
    const dtp_comm *comm = d->flights.comm;
    DTP_TRY(dtp_comm__check_set(comm, set, err));
    const int32_t n = dtp_mesh_set_size(&comm->mesh, set);
    if (n > DTP_CUDA_MEMBERS) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "transport device: groups of %d ranks, at most %d", n,
                        DTP_CUDA_MEMBERS);
    }
    member *own = &d->team->members[comm->rank];
    cudaEvent_t *events[] = {&own->ready[set], &own->done[set]};
    return n > 1 ? dtp_cuda_need_events(2, events, err) : DTP_OK;
}

static dtp_status device_start(dtp_transport *t, const dtp_coll *coll, const dtp_coll_ends *ends,
                               dtp_request *request, dtp_err *err)
{
    device_transport *d = t->self;
    dtp_cuda_flights *f = &d->flights;
    DTP_TRY(dtp_comm__can_reduce(coll, err));
    DTP_TRY(device_prepare(t, coll->set, err));
    DTP_TRY(dtp_cuda_flight_begin(f, coll, ends, request, err));
    if (dtp_mesh_set_size(&f->comm->mesh, coll->set) == 1) {
        DTP_TRY(dtp_cuda_put_single(f->cuda, coll, ends, err));
    } else {
        const member *own = &d->team->members[f->comm->rank];
        DTP_CUDA_TRY(err, cudaEventRecord(own->ready[coll->set], f->cuda->comm));
        DTP_TRY(f->comm->ops->meet(f->comm, coll, ends, put_share, d, err));
        DTP_TRY(await_others(d, coll, true, err));
    }
    return dtp_cuda_flight_end(f, request, err);
}

static dtp_status device_wait(dtp_transport *t, dtp_request *request, dtp_err *err)
{
    device_transport *d = t->self;
    return dtp_cuda_flight_wait(&d->flights, request, err);
}

static dtp_status device_poll(dtp_transport *t, double waited_s, const dtp_request **at,
                              dtp_err *err)
{
    device_transport *d = t->self;
    char late[DTP_ERR_MSG_BYTES];
    const dtp_coll *coll;
    DTP_TRY(dtp_cuda_flights_look(&d->flights, waited_s, late, at, &coll, err));
    return late[0] == '\0' ? DTP_OK : DTP_FAIL(err, DTP_COMM, "%s", late);
}

static dtp_status device_post(dtp_transport *t, dtp_message *m, dtp_err *err)
{
    device_transport *d = t->self;
    return dtp_cuda_mail_post(&d->mail, m, err);
}

static dtp_status device_finish(dtp_transport *t, dtp_message *m, dtp_err *err)
{
    device_transport *d = t->self;
    return dtp_cuda_mail_finish(&d->mail, m, err);
}

static void leave(team *w)
{
    if (w == NULL || atomic_fetch_sub(&w->left, 1) > 1) {
        return;
    }
    for (int32_t r = 0; r < w->n; r++) {
        for (int32_t s = 0; s < N_SETS; s++) {
            const cudaEvent_t events[] = {w->members[r].ready[s], w->members[r].done[s]};
            for (int32_t i = 0; i < 2; i++) {
                if (events[i] != NULL) {
                    (void)cudaEventDestroy(events[i]);
                }
            }
        }
    }
    free(w);
}

static void device_destroy(dtp_transport *t)
{
    device_transport *d = t->self;
    dtp_cuda_flights_close(&d->flights);
    dtp_cuda_mail_close(&d->mail);
    leave(d->team);
    free(d);
}

static const dtp_transport_ops device_ops = {
    .name = "device",
    .prepare = device_prepare,
    .start = device_start,
    .wait = device_wait,
    .poll = device_poll,
    .destroy = device_destroy,
    .post = device_post,
    .finish = device_finish,
};

/* Rank 0 makes it for all. */
static dtp_status join(dtp_comm *comm, team **out, dtp_err *err)
{
    team *mine = NULL;
    if (comm->rank == 0) {
        mine = calloc(1, sizeof *mine + (size_t)comm->size * sizeof mine->members[0]);
        if (mine != NULL) {
            atomic_init(&mine->left, comm->size);
            mine->n = comm->size;
        }
    }
    int64_t address = (int64_t)(uintptr_t)mine;
    const dtp_status s = dtp_comm_all_reduce(comm, DTP_REDUCE_SUM, DTP_I64, 1, &address, err);
    if (s != DTP_OK) {
        free(mine);
        return s;
    }
    *out = (team *)(uintptr_t)address;
    return DTP_MEMORY(err, *out);
}

dtp_status dtp_cuda_reach_peers(const dtp_comm *comm, const dtp_cuda *cuda, dtp_err *err)
{
    int n = 0;
    DTP_CUDA_TRY(err, cudaGetDeviceCount(&n));
    for (int32_t peer = 0; peer < n && peer < comm->size; peer++) {
        int can = 0;
        if (peer == cuda->device) {
            continue;
        }
        DTP_CUDA_TRY(err, cudaDeviceCanAccessPeer(&can, cuda->device, peer));
        if (can == 0) {
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "transport device: device %d cannot reach the memory of device %d",
                            cuda->device, peer);
        }
        const cudaError_t code = cudaDeviceEnablePeerAccess(peer, 0);
        if (code == cudaErrorPeerAccessAlreadyEnabled) {
            (void)cudaGetLastError();
        } else {
            DTP_TRY(dtp_cuda_status(code, "cudaDeviceEnablePeerAccess", err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_cuda_device_create(dtp_comm *comm, dtp_cuda *cuda, dtp_transport *out, dtp_err *err)
{
    team *w = NULL;
    if (comm->size > 1) {
        DTP_TRY(join(comm, &w, err));
    }
    device_transport *d = calloc(1, sizeof *d);
    dtp_status s = DTP_MEMORY(err, d);
    s = s == DTP_OK ? dtp_cuda_reach_peers(comm, cuda, err) : s;
    if (s != DTP_OK) {
        leave(w);
        free(d);
        return s;
    }
    *d = (device_transport){.flights = {.cuda = cuda, .comm = comm},
                            .team = w,
                            .mail = {.cuda = cuda, .comm = comm, .host = comm->transport}};
    *out = (dtp_transport){.ops = &device_ops,
                           .caps = {.asynchronous = true,
                                    .strided = true,
                                    .deterministic = true,
                                    .queued = true,
                                    /* recordings of two ranks cannot wait for each other */
                                    .captured = comm->size == 1},
                           .self = d};
    return DTP_OK;
}
