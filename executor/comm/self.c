/* The communicator of one rank: every collective is a copy. */
#include "executor/comm/communicator_internal.h"

#include <stdlib.h>

static dtp_status self_run(dtp_comm *c, const dtp_coll *coll, const void *in, void *out,
                           dtp_err *err)
{
    (void)c;
    DTP_TRY(dtp_comm__can_reduce(coll, err));
    dtp_comm__single(coll, in, out);
    return DTP_OK;
}

static dtp_status self_prepare(dtp_comm *c, dtp_mesh_set set, dtp_err *err)
{
    (void)c;
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
    .prepare = self_prepare,
    .barrier = self_barrier,
    .destroy = self_destroy,
};

dtp_status dtp_comm_self_create(dtp_comm **out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, out));
    dtp_comm *c = calloc(1, sizeof *c);
    DTP_TRY(DTP_MEMORY(err, c));
    c->ops = &self_ops;
    c->size = 1;
    *out = c;
    return DTP_OK;
}
