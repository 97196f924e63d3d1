/* Communicator and transport of one rank: every collective is a copy. */
#include "executor/comm/communicator_internal.h"

#include <stdlib.h>

static dtp_status self_run(dtp_comm *c, const dtp_coll *coll, const void *in, void *out,
                           dtp_err *err)
{
    (void)c;
    DTP_TRY(dtp_comm__can_reduce(coll, err));
    dtp_comm__single(coll, &(dtp_coll_ends){in, out});
    return DTP_OK;
}

static dtp_status self_start(dtp_transport *t, const dtp_coll *coll, const dtp_coll_ends *ends,
                             dtp_request *request, dtp_err *err)
{
    (void)t;
    request->pending = false;
    DTP_TRY(dtp_comm__can_reduce(coll, err));
    dtp_comm__single(coll, ends);
    return DTP_OK;
}

static dtp_status self_wait(dtp_transport *t, dtp_request *request, dtp_err *err)
{
    (void)t;
    (void)request;
    (void)err;
    return DTP_OK;
}

static dtp_status self_prepare(dtp_transport *t, dtp_mesh_set set, dtp_err *err)
{
    (void)t;
    (void)set;
    (void)err;
    return DTP_OK;
}

static dtp_status self_barrier(dtp_comm *c, dtp_err *err)
{
    (void)c;
    (void)err;
    return DTP_OK;
}

static void self_destroy(dtp_comm *c)
{
    free(c);
}

static const dtp_comm_ops self_ops = {
    .name = "self",
    .run = self_run,
    .barrier = self_barrier,
    .destroy = self_destroy,
};

static const dtp_transport_ops self_transport = {
    .name = "self",
    .prepare = self_prepare,
    .start = self_start,
    .wait = self_wait,
};

dtp_status dtp_comm_self_create(dtp_comm **out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, out));
    dtp_comm *c = calloc(1, sizeof *c);
    DTP_TRY(DTP_MEMORY(err, c));
    c->ops = &self_ops;
    c->size = 1;
    c->timeout_s = DTP_COMM_TIMEOUT_S;
    c->transport = (dtp_transport){
        .ops = &self_transport, .caps = {.strided = true, .deterministic = true}, .self = c};
    *out = c;
    return DTP_OK;
}
