/* The MPI communicator. A set of mesh dims is one MPI sub-communicator, made by its members on
 * first use (other ranks need not take part); its members are ordered as dtp_mesh_set_index says.
 */
#include "executor/comm/mpi_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The ranks of this rank's group over a set of mesh dims, in member order. */
static dtp_status group_of(const dtp_comm__mpi *c, MPI_Group all, dtp_mesh_set set, MPI_Group *out,
                           dtp_err *err)
{
    int32_t n = dtp_mesh_set_size(&c->base.mesh, set);
    int *ranks = calloc((size_t)n, sizeof *ranks);
    DTP_TRY(DTP_MEMORY(err, ranks));
    for (int32_t i = 0; i < n; i++) {
        ranks[i] = dtp_mesh_set_member(&c->base.mesh, set, c->base.rank, i);
    }
    dtp_status status =
        dtp_comm__mpi_check(MPI_Group_incl(all, n, ranks, out), c, "MPI_Group_incl", err);
    free(ranks);
    return status;
}

static dtp_status make_sub(dtp_comm__mpi *c, dtp_mesh_set set, dtp_err *err)
{
    if (c->subs[set] != MPI_COMM_NULL) {
        return DTP_OK;
    }
    MPI_Group all = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
    DTP_TRY(dtp_comm__mpi_check(MPI_Comm_group(c->world, &all), c, "MPI_Comm_group", err));
    dtp_status status = group_of(c, all, set, &members, err);
    if (status == DTP_OK) {
        status =
            dtp_comm__mpi_check(MPI_Comm_create_group(c->world, members, (int)set, &c->subs[set]),
                                c, "MPI_Comm_create_group", err);
        MPI_Group_free(&members);
    }
    MPI_Group_free(&all);
    return status;
}

/* A group that shares memory may never need MPI; then its members make the sub-communicator when
 * one of their collectives does. */
static dtp_status mpi_prepare(dtp_transport *t, dtp_mesh_set set, dtp_err *err)
{
    dtp_comm__mpi *c = t->self;
    DTP_TRY(dtp_comm__check_set(&c->base, set, err));
    bool later = c->shared != NULL && dtp_comm__shared_reaches(c->shared, set);
    return later ? DTP_OK : make_sub(c, set, err);
}

static dtp_status mpi_run(dtp_comm *base, const dtp_coll *coll, const void *in, void *out,
                          dtp_err *err)
{
    dtp_comm__mpi *c = (dtp_comm__mpi *)base;
    DTP_TRY(dtp_comm__check_set(base, coll->set, err));
    DTP_TRY(dtp_comm__can_reduce(coll, err));
    int32_t n = dtp_mesh_set_size(&base->mesh, coll->set);
    if (n == 1) {
        dtp_comm__single(coll, in, out);
        return DTP_OK;
    }
    if (coll->count == 0) {
        return DTP_OK;
    }
    const void *safe;
    DTP_TRY(dtp_comm__unalias(&c->scratch, coll, n,
                              dtp_mesh_set_index(&base->mesh, coll->set, base->rank), in, out,
                              &safe, err));
    bool ran = false;
    if (c->shared != NULL) {
        DTP_TRY(dtp_comm__shared_run(c->shared, coll, safe, out, &ran, err));
    }
    if (ran) {
        return DTP_OK;
    }
    dtp_status status = make_sub(c, coll->set, err);
    if (status == DTP_OK) {
        status = dtp_comm__mpi_call(c, coll, safe, out, err);
    }
    c->lost = c->lost || status != DTP_OK;
    return status;
}

static dtp_status mpi_start(dtp_transport *t, const dtp_coll *coll, const void *in, void *out,
                            dtp_request *request, dtp_err *err)
{
    request->pending = false;
    return mpi_run(t->self, coll, in, out, err);
}

static dtp_status mpi_wait(dtp_transport *t, dtp_request *request, dtp_err *err)
{
    (void)t;
    (void)request;
    (void)err;
    return DTP_OK;
}

static void *mpi_register_memory(dtp_transport *t, size_t bytes)
{
    dtp_comm__mpi *c = t->self;
    return c->shared != NULL ? dtp_comm__shared_alloc(c->shared, bytes) : NULL;
}

static bool mpi_release_memory(dtp_transport *t, void *ptr)
{
    dtp_comm__mpi *c = t->self;
    return c->shared != NULL && dtp_comm__shared_free(c->shared, ptr);
}

static dtp_status mpi_barrier(dtp_comm *base, dtp_err *err)
{
    dtp_comm__mpi *c = (dtp_comm__mpi *)base;
    bool ran = false;
    if (c->shared != NULL) {
        DTP_TRY(dtp_comm__shared_barrier(c->shared, &ran, err));
    }
    return ran ? DTP_OK : dtp_comm__mpi_check(MPI_Barrier(c->world), c, "MPI_Barrier", err);
}

static void end_job(const dtp_comm__mpi *c, const char *why)
{
    fprintf(stderr, "error comm abort rank=%d %s\n", c->base.rank, why);
    fflush(stderr);
    MPI_Abort(c->world, 1);
}

/* Ranks that all share memory learn of the failure when they wait for this one, and end by
 * themselves; others would wait in MPI for ever. */
static void mpi_abort(dtp_comm *base, const char *why)
{
    dtp_comm__mpi *c = (dtp_comm__mpi *)base;
    bool told = !c->lost && c->shared != NULL && dtp_comm__shared_fail(c->shared, why);
    if (!told && c->outcome == MPI_COMM_NULL) {
        end_job(c, why);
    }
}

static dtp_status mpi_conclude(dtp_comm *base, dtp_status mine, const dtp_comm_reporter *reporter,
                               dtp_err *err)
{
    dtp_comm__mpi *c = (dtp_comm__mpi *)base;
    if (c->outcome == MPI_COMM_NULL) {
        return mine; /* not of dtp_comm_mpi_join */
    }
    if (mine != DTP_OK) {
        mpi_abort(base, err->msg);
    } else if (c->shared != NULL) {
        dtp_comm__shared_end(c->shared);
    }
    c->concluded = true;
    return dtp_comm__mpi_outcome(c->outcome, mine, reporter, err);
}

/* The ranks that can share memory are those of one machine. */
static dtp_status mpi_alike_here(dtp_comm *base, uint64_t key, int32_t *n, dtp_err *err)
{
    dtp_comm__mpi *c = (dtp_comm__mpi *)base;
    MPI_Comm here = MPI_COMM_NULL, alike = MPI_COMM_NULL;
    int same = 1;
    int code =
        MPI_Comm_split_type(c->world, MPI_COMM_TYPE_SHARED, base->rank, MPI_INFO_NULL, &here);
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_split(here, (int)(key % INT_MAX), base->rank, &alike);
        MPI_Comm_free(&here);
    }
    if (code == MPI_SUCCESS) {
        MPI_Comm_size(alike, &same);
        MPI_Comm_free(&alike);
    }
    *n = same;
    return dtp_comm__mpi_check(code, c, "MPI_Comm_split", err);
}

/* MPI starts and ends once per process, so it may only end with the last communicator that was made
 * since this library started it. Their number is kept where MPI keeps it for us, without a variable
 * of our own: in the name of MPI_COMM_SELF. Returns the new number; -1 when somebody else started
 * MPI. */
static int count_users(int change, bool first)
{
    static const char prefix[] = "dtp communicators ";
    char name[MPI_MAX_OBJECT_NAME] = "";
    int len = 0, users = 0;
    MPI_Comm_get_name(MPI_COMM_SELF, name, &len);
    if (!first) {
        if (strncmp(name, prefix, sizeof prefix - 1) != 0) {
            return -1;
        }
        users = atoi(name + sizeof prefix - 1);
    }
    users += change;
    snprintf(name, sizeof name, "%s%d", prefix, users);
    MPI_Comm_set_name(MPI_COMM_SELF, name);
    return users;
}

static void mpi_destroy(dtp_comm *base)
{
    dtp_comm__mpi *c = (dtp_comm__mpi *)base;
    if (c->shared != NULL && !c->concluded && !dtp_comm__shared_leave(c->shared)) {
        end_job(c, "has failed, and not every other rank knows");
    }
    for (int32_t s = 0; s < DTP_COMM_SETS; s++) {
        if (c->subs[s] != MPI_COMM_NULL) {
            MPI_Comm_free(&c->subs[s]);
        }
    }
    if (c->outcome != MPI_COMM_NULL) {
        MPI_Comm_free(&c->outcome);
    }
    if (c->world != MPI_COMM_NULL) {
        MPI_Comm_free(&c->world);
    }
    dtp_comm__shared_destroy(c->shared);
    free(c->scratch.data);
    free(c->blocks.data);
    if (count_users(-1, false) == 0) {
        MPI_Finalize();
    }
    free(c);
}

static const dtp_comm_ops mpi_ops = {
    .name = "mpi",
    .run = mpi_run,
    .barrier = mpi_barrier,
    .conclude = mpi_conclude,
    .alike_here = mpi_alike_here,
    .abort = mpi_abort,
    .destroy = mpi_destroy,
};

static const dtp_transport_ops mpi_transport = {
    .name = "mpi",
    .prepare = mpi_prepare,
    .start = mpi_start,
    .wait = mpi_wait,
    .register_memory = mpi_register_memory,
    .release_memory = mpi_release_memory,
};

static dtp_status start_mpi(dtp_err *err)
{
    int done = 0, over = 0, provided = 0;
    MPI_Initialized(&done);
    MPI_Finalized(&over);
    if (over) {
        return DTP_FAIL(err, DTP_COMM, "MPI was already shut down in this process");
    }
    if (!done && MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
        return DTP_FAIL(err, DTP_COMM, "MPI_Init_thread failed");
    }
    count_users(1, !done);
    return DTP_OK;
}

static dtp_status dup_world(MPI_Comm *out, const dtp_comm__mpi *c, dtp_err *err)
{
    DTP_TRY(dtp_comm__mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, out), c, "MPI_Comm_dup", err));
    return dtp_comm__mpi_check(MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN), c,
                               "MPI_Comm_set_errhandler", err);
}

/* Alike on all ranks. */
static dtp_status join(dtp_comm__mpi *c, dtp_err *err)
{
    DTP_TRY(dup_world(&c->world, c, err));
    int rank = 0, size = 0;
    DTP_TRY(dtp_comm__mpi_check(MPI_Comm_rank(c->world, &rank), c, "MPI_Comm_rank", err));
    DTP_TRY(dtp_comm__mpi_check(MPI_Comm_size(c->world, &size), c, "MPI_Comm_size", err));
    c->base.rank = rank;
    c->base.size = size;
    if (size != dtp_mesh_ranks(&c->base.mesh)) {
        char text[DTP_MESH_TEXT_BYTES];
        dtp_mesh_print(&c->base.mesh, text);
        return DTP_FAIL(err, DTP_INVALID, "the mesh '%.200s' has %d ranks but the MPI job has %d%s",
                        text, dtp_mesh_ranks(&c->base.mesh), size,
                        size == 1 ? " (under srun: --mpi=pmix)" : "");
    }
    return dtp_comm__shared_create(c->world, &c->base.mesh, &c->shared, err);
}

/* MPI runs, and nothing else is there yet. */
static dtp_status create(const dtp_mesh *mesh, dtp_comm__mpi **out, dtp_err *err)
{
    dtp_comm__mpi *c = calloc(1, sizeof *c);
    *out = c;
    DTP_TRY(DTP_MEMORY(err, c));
    c->base = (dtp_comm){.ops = &mpi_ops, .mesh = *mesh};
    c->base.transport =
        (dtp_transport){.ops = &mpi_transport, .caps = {.strided = true}, .self = c};
    c->limit = INT_MAX;
    c->world = c->outcome = MPI_COMM_NULL;
    for (int32_t s = 0; s < DTP_COMM_SETS; s++) {
        c->subs[s] = MPI_COMM_NULL;
    }
    dtp_status status = start_mpi(err);
    if (status != DTP_OK) {
        free(c);
        *out = NULL;
    }
    return status;
}

/* Hands out a communicator that is complete. */
static dtp_status deliver(dtp_comm__mpi *c, dtp_status status, dtp_comm **out)
{
    if (status != DTP_OK) {
        mpi_destroy(&c->base);
        return status;
    }
    *out = &c->base;
    return DTP_OK;
}

dtp_status dtp_comm_mpi_create(const dtp_mesh *mesh, dtp_comm **out, dtp_err *err)
{
    dtp_comm__mpi *c;
    DTP_TRY(DTP_NOT_NULL(err, mesh, out));
    DTP_TRY(create(mesh, &c, err));
    return deliver(c, join(c, err), out);
}

dtp_status dtp_comm_mpi_join(const dtp_mesh *mesh, dtp_status ready,
                             const dtp_comm_reporter *reporter, dtp_comm **out, dtp_err *err)
{
    dtp_comm__mpi *c;
    dtp_err own = *err;
    DTP_TRY(create(mesh, &c, err));
    dtp_status status = dup_world(&c->outcome, c, err);
    if (status == DTP_OK) {
        *err = own;
        status = dtp_comm__mpi_outcome(c->outcome, ready, reporter, err);
    }
    if (status == DTP_OK) {
        status = dtp_comm__mpi_outcome(c->outcome, join(c, err), reporter, err);
    }
    return deliver(c, status, out);
}

void dtp_comm__mpi_limit(dtp_comm *c, int64_t max_count)
{
    ((dtp_comm__mpi *)c)->limit = max_count;
}

void dtp_comm__mpi_share(dtp_comm *c, bool share)
{
    dtp_comm__shared_use(((dtp_comm__mpi *)c)->shared, share);
}
