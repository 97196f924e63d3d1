/* Messages of a transport: their order on a channel, empty and long ones, collectives between. */
#include <inttypes.h>
#include <stdlib.h>

#include "tests/comm/comm_suite.h"

enum { N_MESSAGES = 12, CHANNELS = 3, LARGE = 600 };

typedef struct mail {
    dtp_message message;
    int64_t data[LARGE];
} mail;

/* Some are empty, some long. */
static int64_t elems_of(int32_t k)
{
    return k % 6 == 5 ? LARGE : k % 6 == 4 ? 0 : 1;
}

static int64_t element_of(int32_t from, int32_t to, int32_t channel, int32_t k, int64_t i)
{
    return (((int64_t)from * 64 + to) * CHANNELS + channel) * 1000000 + k * 1000 + i;
}

static dtp_status post_mail(dtp_comm *c, mail *m, bool sends, int32_t peer, int32_t channel,
                            int32_t k, dtp_err *err)
{
    for (int64_t i = 0; i < LARGE; i++) {
        m->data[i] = sends ? element_of(c->rank, peer, channel, k, i) : -1;
    }
    m->message = (dtp_message){.peer = peer,
                               .channel = channel,
                               .sends = sends,
                               .data = m->data,
                               .bytes = elems_of(k) * (int64_t)sizeof m->data[0]};
    return c->transport.ops->post(&c->transport, &m->message, err);
}

static dtp_status finish_mail(dtp_comm *c, mail *m, int32_t k, dtp_err *err)
{
    const dtp_message *message = &m->message;
    DTP_TRY(c->transport.ops->finish(&c->transport, &m->message, err));
    for (int64_t i = 0; i < LARGE && !message->sends; i++) {
        const int64_t want =
            i < elems_of(k) ? element_of(message->peer, c->rank, message->channel, k, i) : -1;
        if (m->data[i] != want) {
            return DTP_FAIL(err, DTP_INTERNAL,
                            "rank %d: message %d of channel %d from rank %d has %" PRId64
                            " at %" PRId64 ", expected %" PRId64,
                            c->rank, k, message->channel, message->peer, m->data[i], i, want);
        }
    }
    return DTP_OK;
}

static dtp_status exchange(dtp_comm *c, mail *sent, mail *got, dtp_err *err)
{
    const int32_t n = N_MESSAGES * CHANNELS * c->size;
    float sum[2] = {1.0F, 2.0F};
    const dtp_coll all = {
        .kind = DTP_ALL_REDUCE, .set = dtp_comm_all(c), .dtype = DTP_F32, .count = 2};
    for (int32_t i = 0; i < n; i++) { /* the channels and ranks in turn */
        const int32_t k = i / CHANNELS / c->size, channel = i % CHANNELS,
                      peer = i / CHANNELS % c->size;
        DTP_TRY(post_mail(c, &sent[i], true, peer, channel, k, err));
    }
    DTP_TRY(c->ops->barrier(c, err));
    for (int32_t i = 0; i < n; i++) { /* channel by channel */
        const int32_t k = i % N_MESSAGES, channel = i / N_MESSAGES % CHANNELS,
                      peer = (i / N_MESSAGES / CHANNELS + c->rank) % c->size;
        DTP_TRY(post_mail(c, &got[i], false, peer, channel, k, err));
    }
    DTP_TRY(dtp_transport_run(&c->transport, &all, sum, sum, err));
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(finish_mail(c, &got[i], i % N_MESSAGES, err));
        DTP_TRY(finish_mail(c, &sent[n - 1 - i], 0, err));
    }
    return DTP_OK;
}

dtp_status comm_suite_messages(dtp_comm *comm, void *user, dtp_err *err)
{
    (void)user;
    const size_t n = (size_t)N_MESSAGES * CHANNELS * (size_t)comm->size;
    mail *sent = calloc(n, sizeof *sent), *got = calloc(n, sizeof *got);
    dtp_status status = DTP_MEMORY(err, sent, got);
    for (int32_t k = 0; k < 3 && status == DTP_OK; k++) {
        status = exchange(comm, sent, got, err);
    }
    free(sent);
    free(got);
    return status;
}
