/* Messages of the device transport. Both ends are posted at the host communicator, whose messages
 * (executor/comm/sim_messages.c) find their partner, deadlines and ranks that are lost. The rank
 * that posts the second end puts the copy on a queue of its own for this peer and direction, behind
 * the events `ready` of both ends; the event `gone` of each end is behind the copy. So everything
 * on a queue waits for what was put on queues before, and no circle of them comes about.
 */
#include <stdlib.h>

#include "executor/cuda/comm/comm.h"

struct dtp_cuda_end {
    dtp_message host;      /* posted in its place */
    const dtp_message *of; /* the caller's; NULL: it is free */
    cudaStream_t queue;    /* of its rank, for this peer and direction */
    cudaEvent_t ready;     /* its memory may be read, or written */
    cudaEvent_t gone;
    dtp_cuda_end *next;
};

/* The queue for what goes to, or comes from, a peer; made when it is needed first. */
static dtp_status queue_of(dtp_cuda_mail *mail, const dtp_message *m, cudaStream_t *out,
                           dtp_err *err)
{
    if (mail->queues == NULL) {
        mail->queues = calloc(2 * (size_t)mail->comm->size, sizeof(cudaStream_t));
        DTP_TRY(DTP_MEMORY(err, mail->queues));
    }
    cudaStream_t *queue = &mail->queues[2 * m->peer + (m->sends ? 1 : 0)];
    if (*queue == NULL) {
        DTP_CUDA_TRY(err, cudaStreamCreateWithFlags(queue, cudaStreamNonBlocking));
    }
    *out = *queue;
    return DTP_OK;
}

static dtp_status take_end(dtp_cuda_mail *mail, dtp_cuda_end **out, dtp_err *err)
{
    dtp_cuda_end *end = mail->ends;
    while (end != NULL && end->of != NULL) {
        end = end->next;
    }
    if (end == NULL) {
        end = calloc(1, sizeof *end);
        DTP_TRY(DTP_MEMORY(err, end));
        end->next = mail->ends;
        mail->ends = end;
    }
    cudaEvent_t *events[] = {&end->ready, &end->gone};
    DTP_TRY(dtp_cuda_need_events(2, events, err));
    *out = end;
    return DTP_OK;
}

/* The copy, by the thread of the rank of `last`; then the queue of the other rank comes behind. */
static dtp_status move(dtp_message *last, dtp_message *first, dtp_err *err)
{
    dtp_cuda_end *mine = last->data, *other = first->data;
    const dtp_cuda_end *from = last->sends ? mine : other, *to = last->sends ? other : mine;
    DTP_CUDA_TRY(err, cudaStreamWaitEvent(mine->queue, mine->ready, 0));
    DTP_CUDA_TRY(err, cudaStreamWaitEvent(mine->queue, other->ready, 0));
    if (last->bytes > 0) {
        DTP_CUDA_TRY(err, cudaMemcpyAsync(to->of->data, from->of->data, (size_t)last->bytes,
                                          cudaMemcpyDefault, mine->queue));
    }
    DTP_CUDA_TRY(err, cudaEventRecord(mine->gone, mine->queue));
    DTP_CUDA_TRY(err, cudaStreamWaitEvent(other->queue, mine->gone, 0));
    DTP_CUDA_TRY(err, cudaEventRecord(other->gone, other->queue));
    return DTP_OK;
}

/* A receive begins behind what is on the compute queue, and behind messages from its memory. */
static dtp_status be_ready(dtp_cuda_mail *mail, dtp_cuda_end *end, dtp_err *err)
{
    bool behind = false;
    DTP_CUDA_TRY(err, cudaEventRecord(end->ready, mail->cuda->compute));
    for (dtp_cuda_end *e = mail->ends; e != NULL && !end->of->sends; e = e->next) {
        if (e->of == NULL || !e->of->sends || !dtp_comm__messages_meet(e->of, end->of)) {
            continue;
        }
        dtp_transport *host = &mail->host;
        DTP_TRY(host->ops->finish(host, &e->host, err)); /* its copy is on a queue */
        DTP_CUDA_TRY(err, cudaStreamWaitEvent(mail->after, e->gone, 0));
        behind = true;
    }
    if (behind) {
        DTP_CUDA_TRY(err, cudaStreamWaitEvent(mail->after, end->ready, 0));
        DTP_CUDA_TRY(err, cudaEventRecord(end->ready, mail->after));
    }
    return DTP_OK;
}

dtp_status dtp_cuda_mail_post(dtp_cuda_mail *mail, dtp_message *m, dtp_err *err)
{
    dtp_cuda_end *end = NULL;
    DTP_TRY(take_end(mail, &end, err));
    DTP_TRY(queue_of(mail, m, &end->queue, err));
    if (mail->after == NULL) {
        DTP_CUDA_TRY(err, cudaStreamCreateWithFlags(&mail->after, cudaStreamNonBlocking));
    }
    end->of = m;
    end->host = (dtp_message){.peer = m->peer,
                              .channel = m->channel,
                              .sends = m->sends,
                              .data = end,
                              .bytes = m->bytes,
                              .move = move};
    DTP_TRY(be_ready(mail, end, err));
    return mail->host.ops->post(&mail->host, &end->host, err);
}

dtp_status dtp_cuda_mail_finish(dtp_cuda_mail *mail, dtp_message *m, dtp_err *err)
{
    dtp_cuda_end *end = mail->ends;
    while (end->of != m) {
        end = end->next;
    }
    DTP_TRY(mail->host.ops->finish(&mail->host, &end->host, err));
    DTP_CUDA_TRY(err, cudaStreamWaitEvent(mail->cuda->compute, end->gone, 0));
    end->of = NULL;
    return DTP_OK;
}

void dtp_cuda_mail_close(dtp_cuda_mail *mail)
{
    for (int32_t i = 0; mail->queues != NULL && i < 2 * mail->comm->size; i++) {
        if (mail->queues[i] != NULL) {
            (void)cudaStreamDestroy(mail->queues[i]);
        }
    }
    if (mail->after != NULL) {
        (void)cudaStreamDestroy(mail->after);
    }
    while (mail->ends != NULL) {
        dtp_cuda_end *end = mail->ends;
        const cudaEvent_t events[] = {end->ready, end->gone};
        for (int32_t i = 0; i < 2; i++) {
            if (events[i] != NULL) {
                (void)cudaEventDestroy(events[i]);
            }
        }
        mail->ends = end->next;
        free(end);
    }
    free(mail->queues);
}
