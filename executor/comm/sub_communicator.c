/* A communicator for a part of the mesh: a sub-mesh or a mesh with dims joined. */
#include "executor/comm/sub_communicator.h"

#include <inttypes.h>
#include <stdlib.h>

#include "executor/comm/communicator_internal.h"

typedef struct sub_comm {
    dtp_comm base;
    dtp_comm *parent;
    dtp_mesh_set sets[DTP_MAX_MESH_DIMS]; /* by own mesh dim */
} sub_comm;

static dtp_mesh_set to_parent(const sub_comm *s, dtp_mesh_set set)
{
    dtp_mesh_set all = 0;
    for (int32_t m = 0; m < s->base.mesh.n_dims; m++) {
        all |= (set >> m & 1U) != 0 ? s->sets[m] : 0;
    }
    return all;
}

static dtp_mesh_set whole(const sub_comm *s)
{
    return to_parent(s, dtp_comm_all(&s->base));
}

/* ---- the transport ---- */

static dtp_transport *parent_of(const dtp_transport *t)
{
    return &((const sub_comm *)t->self)->parent->transport;
}

static dtp_status sub_prepare(dtp_transport *t, dtp_mesh_set set, dtp_err *err)
{
    const sub_comm *s = t->self;
    dtp_transport *parent = parent_of(t);
    DTP_TRY(dtp_comm__check_set(&s->base, set, err));
    return parent->ops->prepare(parent, to_parent(s, set), err);
}

static dtp_status sub_start(dtp_transport *t, const dtp_coll *coll, const dtp_coll_ends *ends,
                            dtp_request *request, dtp_err *err)
{
    const sub_comm *s = t->self;
    dtp_transport *parent = parent_of(t);
    dtp_coll mapped = *coll;
    DTP_TRY(dtp_comm__check_set(&s->base, coll->set, err));
    mapped.set = to_parent(s, coll->set);
    return parent->ops->start(parent, &mapped, ends, request, err);
}

static dtp_status sub_wait(dtp_transport *t, dtp_request *request, dtp_err *err)
{
    dtp_transport *parent = parent_of(t);
    return parent->ops->wait(parent, request, err);
}

static void sub_stop(dtp_transport *t, const char *why)
{
    dtp_transport *parent = parent_of(t);
    void (*stop)(dtp_transport *, const char *) = parent->ops->abort;
    if (stop != NULL) {
        stop(parent, why);
    }
}

static dtp_status sub_poll(dtp_transport *t, double waited_s, const dtp_request **at, dtp_err *err)
{
    dtp_transport *parent = parent_of(t);
    return parent->ops->poll != NULL ? parent->ops->poll(parent, waited_s, at, err) : DTP_OK;
}

static void *sub_register_memory(dtp_transport *t, size_t bytes)
{
    dtp_transport *parent = parent_of(t);
    return parent->ops->register_memory != NULL ? parent->ops->register_memory(parent, bytes)
                                                : NULL;
}

static bool sub_release_memory(dtp_transport *t, void *ptr)
{
    dtp_transport *parent = parent_of(t);
    return parent->ops->release_memory != NULL && parent->ops->release_memory(parent, ptr);
}

static const dtp_transport_ops sub_transport = {
    .name = "view",
    .prepare = sub_prepare,
    .start = sub_start,
    .wait = sub_wait,
    .abort = sub_stop,
    .poll = sub_poll,
    .register_memory = sub_register_memory,
    .release_memory = sub_release_memory,
};

/* ---- the host communicator ---- */

static dtp_status sub_run(dtp_comm *c, const dtp_coll *coll, const void *in, void *out,
                          dtp_err *err)
{
    const sub_comm *s = (const sub_comm *)c;
    dtp_coll mapped = *coll;
    DTP_TRY(dtp_comm__check_set(c, coll->set, err));
    mapped.set = to_parent(s, coll->set);
    return s->parent->ops->run(s->parent, &mapped, in, out, err);
}

/* The parent's barrier is one of all its ranks; a reduction of one number is one of its group. */
static dtp_status sub_barrier(dtp_comm *c, dtp_err *err)
{
    const sub_comm *s = (const sub_comm *)c;
    int32_t here = 1;
    dtp_coll coll = {.kind = DTP_ALL_REDUCE,
                     .set = whole(s),
                     .op = DTP_REDUCE_MIN,
                     .dtype = DTP_I32,
                     .count = 1};
    return s->parent->ops->run(s->parent, &coll, &here, &here, err);
}

static void sub_abort(dtp_comm *c, const char *why)
{
    dtp_comm_abort(((sub_comm *)c)->parent, why);
}

static void sub_destroy(dtp_comm *c)
{
    free(c);
}

static const dtp_comm_ops sub_ops = {
    .name = "view",
    .run = sub_run,
    .barrier = sub_barrier,
    .abort = sub_abort,
    .destroy = sub_destroy,
};

dtp_status dtp_sub_communicator_create(dtp_comm *parent, const dtp_mesh *mesh,
                                       const dtp_mesh_set *parent_sets, dtp_comm **out,
                                       dtp_err *err)
{
    dtp_mesh_set before = 0;
    char dims[DTP_MESH_SET_TEXT_BYTES];
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        dtp_mesh_set set = parent_sets[m];
        dtp_mesh_set below = set == 0 ? 0 : (set & (~set + 1U)) - 1U; /* all lower bits */
        if (set >> parent->mesh.n_dims != 0 ||
            dtp_mesh_set_size(&parent->mesh, set) != mesh->sizes[m]) {
            return DTP_FAIL(err, DTP_INVALID,
                            "mesh dim '%s' of size %" PRId64
                            " cannot stand for %s of a mesh of %d dims",
                            mesh->names[m], mesh->sizes[m],
                            dtp_mesh_set_words(&parent->mesh, set, dims), parent->mesh.n_dims);
        }
        if ((before & ~below) != 0 && set != 0) {
            char first[DTP_MESH_SET_TEXT_BYTES];
            return DTP_FAIL(err, DTP_INVALID,
                            "mesh dim '%s' stands for %s, which does not come after %s",
                            mesh->names[m], dtp_mesh_set_words(&parent->mesh, set, dims),
                            dtp_mesh_set_words(&parent->mesh, before, first));
        }
        before |= set;
    }
    sub_comm *s = calloc(1, sizeof *s);
    DTP_TRY(DTP_MEMORY(err, s));
    s->base = (dtp_comm){.ops = &sub_ops, .mesh = *mesh, .timeout_s = parent->timeout_s};
    s->base.transport =
        (dtp_transport){.ops = &sub_transport, .caps = parent->transport.caps, .self = s};
    s->parent = parent;
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        s->sets[m] = parent_sets[m];
    }
    s->base.rank = dtp_mesh_set_index(&parent->mesh, whole(s), parent->rank);
    s->base.size = dtp_mesh_set_size(&parent->mesh, whole(s));
    *out = &s->base;
    return DTP_OK;
}
