/* Messages of the NCCL transport. A channel has a communicator of two ranks and a queue, so nothing
 * but its earlier messages goes before a message, as NCCL runs the calls of a communicator one
 * after the other. Both ends post in the same order (transport.h). NCCL connects two ranks when
 * they first meet, and waits meanwhile: `connect` sends a byte over every channel.
 *
 * A message that compute waits for is looked at as a collective is: it is late when it has not gone
 * by the deadline after compute came to it.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "executor/cuda/comm/nccl_internal.h"

struct dtp_nccl__channel {
    int32_t peer, number;
    bool sends;
    ncclUniqueId id;
    ncclComm_t comm;
    cudaStream_t queue;
    dtp_nccl__channel *next;
};

struct dtp_nccl__end {
    const dtp_message *of;   /* the caller's; NULL: it is finished */
    dtp_message message;     /* as it was posted */
    bool alone;              /* of this rank to itself, and the other end is not posted */
    bool awaited;            /* by compute, which has not passed it */
    cudaEvent_t ready, gone; /* the memory may be read or written; the bytes have gone */
    cudaEvent_t begin;       /* compute comes to its wait */
    double since_s;          /* when it was seen to have come; 0: not yet */
    dtp_nccl__end *next;     /* of all */
    dtp_nccl__end *later;    /* awaited after it */
};

/* ---- channels ---- */

/* Every channel's identifier goes from its sender to its receiver. */
static dtp_status share_ids(dtp_nccl__mail *mail, dtp_err *err)
{
    dtp_transport *host = &mail->host;
    dtp_message *messages = calloc((size_t)mail->n_channels + 1, sizeof *messages);
    dtp_status s = DTP_MEMORY(err, messages);
    int32_t n = 0;
    for (dtp_nccl__channel *c = mail->channels; c != NULL && s == DTP_OK; c = c->next) {
        if (c->sends && mail->nccl->GetUniqueId(&c->id) != ncclSuccess) {
            s = DTP_FAIL(err, DTP_COMM, "rank %d: NCCL: ncclGetUniqueId", mail->comm->rank);
            break;
        }
        messages[n] = (dtp_message){.peer = c->peer,
                                    .channel = c->number,
                                    .sends = c->sends,
                                    .data = &c->id,
                                    .bytes = sizeof c->id};
        s = host->ops->post(host, &messages[n], err);
        n += s == DTP_OK ? 1 : 0;
    }
    for (int32_t i = 0; i < n && s == DTP_OK; i++) {
        s = host->ops->finish(host, &messages[i], err);
    }
    if (s != DTP_OK) { /* before the memory of the messages goes */
        dtp_comm_abort(mail->comm, err != NULL ? err->msg : "no channels");
    }
    free(messages);
    return s;
}

/* All at once: none waits for another one. */
static dtp_status open_channels(dtp_nccl__mail *mail, dtp_err *err)
{
    ncclResult_t code = ncclSuccess;
    char *at = NULL;
    DTP_CUDA_TRY(err, cudaMalloc(&mail->probe, (size_t)mail->n_channels + 1));
    for (dtp_nccl__channel *c = mail->channels; c != NULL; c = c->next) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        DTP_CUDA_TRY(err, cudaStreamCreateWithFlags(&c->queue, cudaStreamNonBlocking));
        code = mail->nccl->CommInitRankConfig(&c->comm, 2, c->id, c->sends ? 0 : 1, &config);
        if (code != ncclSuccess && code != ncclInProgress) {
            return dtp_nccl__settle(mail->nccl, mail->comm, c->comm, code, "ncclCommInitRankConfig",
                                    err);
        }
    }
    for (dtp_nccl__channel *c = mail->channels; c != NULL; c = c->next) {
        DTP_TRY(dtp_nccl__settle(mail->nccl, mail->comm, c->comm, ncclInProgress,
                                 "ncclCommInitRankConfig", err));
    }
    code = mail->nccl->GroupStart();
    at = mail->probe;
    for (dtp_nccl__channel *c = mail->channels; c != NULL && code == ncclSuccess; c = c->next) {
        code = c->sends ? mail->nccl->Send(at++, 1, ncclUint8, 1, c->comm, c->queue)
                        : mail->nccl->Recv(at++, 1, ncclUint8, 0, c->comm, c->queue);
        code = code == ncclInProgress ? ncclSuccess : code;
    }
    const ncclResult_t end = mail->nccl->GroupEnd();
    code = code != ncclSuccess ? code : end;
    for (dtp_nccl__channel *c = mail->channels; c != NULL; c = c->next) {
        DTP_TRY(dtp_nccl__settle(mail->nccl, mail->comm, c->comm, code, "connecting", err));
    }
    return DTP_OK;
}

dtp_status dtp_nccl__connect(dtp_nccl__mail *mail, int32_t n, const dtp_message *ends, dtp_err *err)
{
    dtp_nccl__channel **last = &mail->channels;
    for (int32_t i = 0; i < n; i++) {
        dtp_nccl__channel *c = calloc(1, sizeof *c);
        DTP_TRY(DTP_MEMORY(err, c));
        *c = (dtp_nccl__channel){
            .peer = ends[i].peer, .number = ends[i].channel, .sends = ends[i].sends};
        *last = c;
        last = &c->next;
    }
    mail->n_channels = n;
    DTP_TRY(dtp_comm_agree_status(mail->comm, share_ids(mail, err), err));
    return open_channels(mail, err);
}

/* ---- messages ---- */

static dtp_status take_end(dtp_nccl__mail *mail, dtp_nccl__end **out, dtp_err *err)
{
    dtp_nccl__end *end = mail->ends;
    while (end != NULL && (end->of != NULL || end->awaited)) {
        end = end->next;
    }
    if (end == NULL) {
        end = calloc(1, sizeof *end);
        DTP_TRY(DTP_MEMORY(err, end));
        end->next = mail->ends;
        mail->ends = end;
    }
    cudaEvent_t *events[] = {&end->ready, &end->gone, &end->begin};
    DTP_TRY(dtp_cuda_need_events(3, events, err));
    *out = end;
    return DTP_OK;
}

/* A queue waits until the memory of a message may be read or written: a receive may have that of
 * messages that are under way. */
static dtp_status await_memory(const dtp_nccl__mail *mail, const dtp_nccl__end *end,
                               cudaStream_t queue, dtp_err *err)
{
    DTP_CUDA_TRY(err, cudaStreamWaitEvent(queue, end->ready, 0));
    for (const dtp_nccl__end *e = mail->ends; e != NULL && !end->message.sends; e = e->next) {
        const bool under_way = e->of != NULL && e->message.sends && !e->alone;
        if (under_way && dtp_comm__messages_meet(&e->message, &end->message)) {
            DTP_CUDA_TRY(err, cudaStreamWaitEvent(queue, e->gone, 0));
        }
    }
    return DTP_OK;
}

/* A message of this rank to itself is a copy, by the end that is posted last. */
static dtp_status put_copy(dtp_nccl__mail *mail, dtp_nccl__end *end, dtp_err *err)
{
    dtp_nccl__end *other = NULL;
    for (dtp_nccl__end *e = mail->ends; e != NULL; e = e->next) {
        const dtp_message *m = &e->message;
        const bool fits = e->alone && m->channel == end->message.channel &&
                          m->sends != end->message.sends &&
                          (other == NULL || m->turn < other->message.turn);
        other = fits ? e : other;
    }
    end->alone = other == NULL;
    if (other == NULL) {
        return DTP_OK;
    }
    const dtp_nccl__end *from = end->message.sends ? end : other, *to = from == end ? other : end;
    if (mail->own == NULL) {
        DTP_CUDA_TRY(err, cudaStreamCreateWithFlags(&mail->own, cudaStreamNonBlocking));
    }
    DTP_TRY(await_memory(mail, from, mail->own, err));
    DTP_TRY(await_memory(mail, to, mail->own, err));
    if (from->message.bytes > 0) {
        DTP_CUDA_TRY(err, cudaMemcpyAsync(to->message.data, from->message.data,
                                          (size_t)from->message.bytes, cudaMemcpyDeviceToDevice,
                                          mail->own));
    }
    DTP_CUDA_TRY(err, cudaEventRecord(end->gone, mail->own));
    DTP_CUDA_TRY(err, cudaEventRecord(other->gone, mail->own));
    other->alone = false;
    return DTP_OK;
}

dtp_status dtp_nccl__post(dtp_nccl__mail *mail, dtp_message *m, dtp_err *err)
{
    dtp_nccl__end *end = NULL;
    const dtp_nccl__channel *c = mail->channels;
    while (c != NULL && (c->number != m->channel || c->peer != m->peer || c->sends != m->sends)) {
        c = c->next;
    }
    if (c == NULL && m->peer != mail->comm->rank) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "rank %d: NCCL: a channel that was not connected",
                        mail->comm->rank);
    }
    DTP_TRY(take_end(mail, &end, err));
    m->rank = mail->comm->rank;
    m->turn = ++mail->n_posted;
    end->message = *m;
    end->of = m;
    end->since_s = 0;
    DTP_CUDA_TRY(err, cudaEventRecord(end->ready, mail->cuda->compute));
    if (c == NULL) {
        return put_copy(mail, end, err);
    }
    DTP_TRY(await_memory(mail, end, c->queue, err));
    if (m->bytes > 0) {
        const size_t n = (size_t)m->bytes;
        const ncclResult_t code =
            m->sends ? mail->nccl->Send(m->data, n, ncclUint8, 1, c->comm, c->queue)
                     : mail->nccl->Recv(m->data, n, ncclUint8, 0, c->comm, c->queue);
        DTP_TRY(dtp_nccl__settle(mail->nccl, mail->comm, c->comm, code, "a message", err));
    }
    DTP_CUDA_TRY(err, cudaEventRecord(end->gone, c->queue));
    return DTP_OK;
}

/* Those at the head of what compute waits for that have gone leave it. */
static dtp_status retire(dtp_nccl__mail *mail, dtp_err *err)
{
    while (mail->first != NULL) {
        dtp_nccl__end *end = mail->first;
        const cudaError_t code = cudaEventQuery(end->gone);
        if (code == cudaErrorNotReady) {
            return DTP_OK;
        }
        DTP_TRY(dtp_cuda_status(code, "a message", err));
        mail->first = end->later;
        mail->last = mail->first != NULL ? mail->last : NULL;
        end->awaited = false;
    }
    return DTP_OK;
}

dtp_status dtp_nccl__finish(dtp_nccl__mail *mail, dtp_message *m, dtp_err *err)
{
    dtp_nccl__end *end = mail->ends;
    while (end->of != m) {
        end = end->next;
    }
    if (end->alone) {
        return DTP_FAIL(err, DTP_COMM, "rank %d waits for a message of its own that it never sends",
                        mail->comm->rank);
    }
    DTP_TRY(retire(mail, err));
    DTP_CUDA_TRY(err, cudaEventRecord(end->begin, mail->cuda->compute));
    DTP_CUDA_TRY(err, cudaStreamWaitEvent(mail->cuda->compute, end->gone, 0));
    end->of = NULL;
    end->awaited = true;
    end->later = NULL;
    *(mail->first != NULL ? &mail->last->later : &mail->first) = end;
    mail->last = end;
    return DTP_OK;
}

dtp_status dtp_nccl__look_at_messages(dtp_nccl__mail *mail, bool *waits, dtp_coll *late,
                                      dtp_err *err)
{
    *waits = false;
    *late = (dtp_coll){.kind = DTP_N_COLLS};
    for (const dtp_nccl__channel *c = mail->channels; c != NULL; c = c->next) {
        ncclResult_t code = ncclSuccess;
        const ncclResult_t asked = mail->nccl->CommGetAsyncError(c->comm, &code);
        code = asked != ncclSuccess ? asked : code;
        if (code != ncclSuccess && code != ncclInProgress) {
            return dtp_nccl__settle(mail->nccl, mail->comm, c->comm, code, "a message", err);
        }
    }
    DTP_TRY(retire(mail, err));
    dtp_nccl__end *end = mail->first;
    const cudaError_t begun = end != NULL ? cudaEventQuery(end->begin) : cudaErrorNotReady;
    if (begun == cudaErrorNotReady) {
        return DTP_OK;
    }
    DTP_TRY(dtp_cuda_status(begun, "a message", err));
    const double now = dtp_now_s();
    end->since_s = end->since_s > 0 ? end->since_s : now;
    *waits = true;
    if (now - end->since_s > mail->comm->timeout_s) {
        *late = dtp_comm__message_coll(&mail->comm->mesh, &end->message);
    }
    return DTP_OK;
}

/* ---- the end ---- */

void dtp_nccl__abort_messages(dtp_nccl__mail *mail)
{
    for (dtp_nccl__channel *c = mail->channels; c != NULL; c = c->next) {
        if (c->comm != NULL) {
            (void)mail->nccl->CommAbort(c->comm);
            c->comm = NULL;
        }
    }
}

void dtp_nccl__close_messages(dtp_nccl__mail *mail)
{
    while (mail->channels != NULL) {
        dtp_nccl__channel *c = mail->channels;
        if (c->comm != NULL &&
            dtp_nccl__settle(mail->nccl, mail->comm, c->comm, mail->nccl->CommFinalize(c->comm),
                             "ncclCommFinalize", NULL) == DTP_OK) {
            (void)mail->nccl->CommDestroy(c->comm);
        } else if (c->comm != NULL) {
            (void)mail->nccl->CommAbort(c->comm);
        }
        if (c->queue != NULL) {
            (void)cudaStreamDestroy(c->queue);
        }
        mail->channels = c->next;
        free(c);
    }
    while (mail->ends != NULL) {
        dtp_nccl__end *end = mail->ends;
        const cudaEvent_t events[] = {end->ready, end->gone, end->begin};
        for (int32_t i = 0; i < 3; i++) {
            if (events[i] != NULL) {
                (void)cudaEventDestroy(events[i]);
            }
        }
        mail->ends = end->next;
        free(end);
    }
    if (mail->own != NULL) {
        (void)cudaStreamDestroy(mail->own);
    }
    (void)cudaFree(mail->probe);
}
