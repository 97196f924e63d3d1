/* The staged transport: collectives of the host's transport on copies in pinned host memory. For
 * ranks that share a card and are processes, and where NCCL is not wanted. The caller waits for the
 * compute queue before START and WAIT (dtp_transport_caps.queued is false). */
#include <stdlib.h>

#include "executor/cuda/comm/comm.h"

enum { ALIGN = 64 };

/* The copies of a collective: inputs, then outputs. */
typedef struct slab {
    char *memory;
    size_t bytes;
    dtp_coll coll;
    const dtp_coll_ends *device; /* the caller's */
    dtp_coll_ends host[DTP_MAX_BUCKET];
    dtp_request request;
    bool done; /* the results are on their way to the device */
    struct slab *next;
} slab;

/* The copy of a message. */
typedef struct letter {
    char *memory;
    int64_t room;
    dtp_message host;
    const dtp_message *of; /* the caller's; NULL: it is free once `used` has passed */
    cudaEvent_t used;      /* behind the last copy out of it */
    struct letter *next;
} letter;

typedef struct staged_transport {
    dtp_cuda *cuda;
    dtp_comm *comm;
    dtp_transport host;
    slab *unused, *busy;
    letter *letters; /* all */
} staged_transport;

static size_t aligned(int64_t bytes)
{
    return ((size_t)bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Bytes of input or output k. */
static int64_t bytes_of(const staged_transport *d, const dtp_coll *coll, bool input, int32_t k)
{
    const dtp_coll *one = dtp_coll_at(coll, k);
    int64_t in, out;
    dtp_comm__elems(one, dtp_mesh_set_size(&d->comm->mesh, coll->set), &in, &out);
    return (input ? in : out) * dtp_dtype_bytes(coll->dtype);
}

/* One with room for `bytes`: the largest that is free, which grows if it has to. */
static dtp_status take(staged_transport *d, size_t bytes, slab **out, dtp_err *err)
{
    slab **best = &d->unused;
    for (slab **s = &d->unused; *s != NULL; s = &(*s)->next) {
        best = (*s)->bytes > (*best)->bytes ? s : best;
    }
    if (*best == NULL) {
        *best = calloc(1, sizeof **best);
        DTP_TRY(DTP_MEMORY(err, *best));
    }
    slab *s = *best;
    if (s->bytes < bytes) {
        void *memory = NULL;
        (void)cudaFreeHost(s->memory);
        s->memory = NULL;
        s->bytes = 0;
        DTP_CUDA_TRY(err, cudaMallocHost(&memory, bytes));
        s->memory = memory;
        s->bytes = bytes;
    }
    *best = s->next;
    *out = s;
    return DTP_OK;
}

static void give_back(staged_transport *d, slab *s)
{
    slab **at = &d->busy;
    while (*at != s) {
        at = &(*at)->next;
    }
    *at = s->next;
    s->next = d->unused;
    d->unused = s;
}

/* Waits for the host's transport and puts the results on the compute queue. */
static dtp_status finish(staged_transport *d, slab *s, dtp_err *err)
{
    if (s->done) {
        return DTP_OK;
    }
    DTP_TRY(d->host.ops->wait(&d->host, &s->request, err));
    s->done = true;
    for (int32_t k = 0; k < dtp_coll_buffers(&s->coll); k++) {
        const int64_t out = bytes_of(d, &s->coll, false, k);
        if (out > 0) {
            DTP_CUDA_TRY(err, cudaMemcpyAsync(s->device[k].out, s->host[k].out, (size_t)out,
                                              cudaMemcpyHostToDevice, d->cuda->compute));
        }
    }
    return DTP_OK;
}

/* Whether a collective reads results of an earlier one. */
static bool reads(const staged_transport *d, const dtp_coll *coll, const dtp_coll_ends *ends,
                  const slab *s)
{
    for (int32_t k = 0; k < dtp_coll_buffers(coll); k++) {
        const char *in = ends[k].in, *end = in + bytes_of(d, coll, true, k);
        for (int32_t j = 0; j < dtp_coll_buffers(&s->coll); j++) {
            const char *out = s->device[j].out;
            if (in < out + bytes_of(d, &s->coll, false, j) && out < end) {
                return true;
            }
        }
    }
    return false;
}

/* ---- the transport ---- */

static dtp_status staged_prepare(dtp_transport *t, dtp_mesh_set set, dtp_err *err)
{
    staged_transport *d = t->self;
    return d->host.ops->prepare(&d->host, set, err);
}

static dtp_status staged_start(dtp_transport *t, const dtp_coll *coll, const dtp_coll_ends *ends,
                               dtp_request *request, dtp_err *err)
{
    staged_transport *d = t->self;
    const int32_t n = dtp_coll_buffers(coll);
    const cudaStream_t queue = d->cuda->compute;
    size_t bytes = 0;
    slab *s = NULL;
    DTP_TRY(dtp_comm__check_set(d->comm, coll->set, err));
    for (slab *earlier = d->busy; earlier != NULL; earlier = earlier->next) {
        DTP_TRY(reads(d, coll, ends, earlier) ? finish(d, earlier, err) : DTP_OK);
    }
    for (int32_t k = 0; k < n; k++) {
        bytes += aligned(bytes_of(d, coll, true, k)) + aligned(bytes_of(d, coll, false, k));
    }
    DTP_TRY(take(d, bytes > 0 ? bytes : ALIGN, &s, err));
    char *at = s->memory;
    for (int32_t k = 0; k < n; k++) {
        const int64_t in = bytes_of(d, coll, true, k), out = bytes_of(d, coll, false, k);
        s->host[k] = (dtp_coll_ends){.in = at, .out = at + aligned(in)};
        if (in > 0) {
            DTP_CUDA_TRY(
                err, cudaMemcpyAsync(at, ends[k].in, (size_t)in, cudaMemcpyDeviceToHost, queue));
        }
        at += aligned(in) + aligned(out);
    }
    DTP_CUDA_TRY(err, cudaStreamSynchronize(queue));
    s->next = d->busy;
    d->busy = s;
    s->coll = *coll;
    s->device = ends;
    s->done = false;
    *request =
        (dtp_request){.coll = *coll, .ends = ends, .pending = true, .turn = (uint64_t)(uintptr_t)s};
    const dtp_status status = d->host.ops->start(&d->host, coll, s->host, &s->request, err);
    if (status != DTP_OK) { /* `ends` may be gone when the next one looks at it */
        give_back(d, s);
    }
    return status;
}

static dtp_status staged_wait(dtp_transport *t, dtp_request *request, dtp_err *err)
{
    staged_transport *d = t->self;
    slab *s = (slab *)(uintptr_t)request->turn;
    DTP_TRY(finish(d, s, err));
    request->pending = false;
    give_back(d, s); /* the next START waits for the compute queue before it writes there */
    return DTP_OK;
}

/* ---- messages ---- */

/* A free one with room for `bytes`, the smallest, else the largest, which grows; or a new one. */
static dtp_status take_letter(staged_transport *d, int64_t bytes, letter **out, dtp_err *err)
{
    letter *best = NULL;
    for (letter *l = d->letters; l != NULL; l = l->next) {
        const bool fits = l->room >= bytes, better = best != NULL && best->room >= bytes;
        if (l->of != NULL || (l->used != NULL && cudaEventQuery(l->used) != cudaSuccess)) {
            continue;
        }
        best = best == NULL || fits > better || (fits == better && (l->room < best->room) == fits)
                   ? l
                   : best;
    }
    if (best == NULL) {
        best = calloc(1, sizeof *best);
        DTP_TRY(DTP_MEMORY(err, best));
        best->next = d->letters;
        d->letters = best;
    }
    cudaEvent_t *event = &best->used;
    DTP_TRY(dtp_cuda_need_events(1, &event, err));
    if (best->room < bytes) {
        void *memory = NULL;
        (void)cudaFreeHost(best->memory);
        best->memory = NULL;
        best->room = 0;
        DTP_CUDA_TRY(err, cudaMallocHost(&memory, (size_t)bytes));
        best->memory = memory;
        best->room = bytes;
    }
    *out = best;
    return DTP_OK;
}

/* What is sent is in host memory when post returns. */
static dtp_status staged_post(dtp_transport *t, dtp_message *m, dtp_err *err)
{
    staged_transport *d = t->self;
    const cudaStream_t queue = d->cuda->compute;
    letter *l = NULL;
    DTP_TRY(take_letter(d, m->bytes, &l, err));
    l->host = (dtp_message){.peer = m->peer,
                            .channel = m->channel,
                            .sends = m->sends,
                            .data = l->memory,
                            .bytes = m->bytes};
    if (m->sends && m->bytes > 0) {
        DTP_CUDA_TRY(err, cudaMemcpyAsync(l->memory, m->data, (size_t)m->bytes,
                                          cudaMemcpyDeviceToHost, queue));
        DTP_CUDA_TRY(err, cudaStreamSynchronize(queue));
    }
    l->of = m;
    return d->host.ops->post(&d->host, &l->host, err);
}

static dtp_status staged_finish(dtp_transport *t, dtp_message *m, dtp_err *err)
{
    staged_transport *d = t->self;
    const cudaStream_t queue = d->cuda->compute;
    letter *l = d->letters;
    while (l->of != m) {
        l = l->next;
    }
    DTP_TRY(d->host.ops->finish(&d->host, &l->host, err));
    if (!m->sends && m->bytes > 0) {
        DTP_CUDA_TRY(err, cudaMemcpyAsync(m->data, l->memory, (size_t)m->bytes,
                                          cudaMemcpyHostToDevice, queue));
        DTP_CUDA_TRY(err, cudaEventRecord(l->used, queue));
    }
    l->of = NULL;
    return DTP_OK;
}

static void staged_abort(dtp_transport *t, const char *why)
{
    staged_transport *d = t->self;
    void (*stop)(dtp_transport *, const char *) = d->host.ops->abort;
    if (stop != NULL) {
        stop(&d->host, why);
    }
}

static void staged_destroy(dtp_transport *t)
{
    staged_transport *d = t->self;
    slab *lists[] = {d->unused, d->busy};
    for (int32_t i = 0; i < 2; i++) {
        while (lists[i] != NULL) {
            slab *next = lists[i]->next;
            (void)cudaFreeHost(lists[i]->memory);
            free(lists[i]);
            lists[i] = next;
        }
    }
    while (d->letters != NULL) {
        letter *next = d->letters->next;
        (void)cudaFreeHost(d->letters->memory);
        if (d->letters->used != NULL) {
            (void)cudaEventDestroy(d->letters->used);
        }
        free(d->letters);
        d->letters = next;
    }
    free(d);
}

static const dtp_transport_ops staged_ops = {
    .name = "staged",
    .prepare = staged_prepare,
    .start = staged_start,
    .wait = staged_wait,
    .abort = staged_abort,
    .destroy = staged_destroy,
    .post = staged_post,
    .finish = staged_finish,
};

dtp_status dtp_cuda_staged_create(dtp_comm *comm, dtp_cuda *cuda, dtp_transport *out, dtp_err *err)
{
    staged_transport *d = calloc(1, sizeof *d);
    DTP_TRY(DTP_MEMORY(err, d));
    *d = (staged_transport){.cuda = cuda, .comm = comm, .host = comm->transport};
    *out = (dtp_transport){.ops = &staged_ops, .caps = comm->transport.caps, .self = d};
    return DTP_OK;
}
