/* What every communicator offers on top of its vtable. */
#include "executor/comm/communicator.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/comm/communicator_internal.h"

void dtp_comm_destroy(dtp_comm *c)
{
    if (c != NULL) {
        c->ops->destroy(c);
    }
}

dtp_mesh_set dtp_comm_all(const dtp_comm *c)
{
    return ((dtp_mesh_set)1 << c->mesh.n_dims) - 1;
}

dtp_status dtp_comm__check_set(const dtp_comm *c, dtp_mesh_set set, dtp_err *err)
{
    char dims[DTP_MESH_SET_TEXT_BYTES];
    return set >> c->mesh.n_dims == 0
               ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID, "%s of a mesh with %d dims",
                          dtp_mesh_set_words(&c->mesh, set, dims), c->mesh.n_dims);
}

dtp_status dtp_comm_all_reduce(dtp_comm *c, dtp_reduce_op op, dtp_dtype dtype, int64_t n,
                               void *values, dtp_err *err)
{
    dtp_coll coll = {
        .kind = DTP_ALL_REDUCE, .set = dtp_comm_all(c), .op = op, .dtype = dtype, .count = n};
    return c->ops->run(c, &coll, values, values, err);
}

/* Shows the text of one rank to all: its words against the largest number of the others, the least
 * of each. */
static dtp_status show_text(dtp_comm *c, int32_t rank, const char *text,
                            char out[DTP_ERR_MSG_BYTES], dtp_err *err)
{
    int64_t words[DTP_ERR_MSG_BYTES / sizeof(int64_t)];
    const size_t n = sizeof words / sizeof words[0];
    for (size_t i = 0; i < n; i++) {
        words[i] = INT64_MAX;
    }
    if (c->rank == rank) {
        memset(words, 0, sizeof words);
        memcpy(words, text, strnlen(text, sizeof words - 1));
    }
    DTP_TRY(dtp_comm_all_reduce(c, DTP_REDUCE_MIN, DTP_I64, (int64_t)n, words, err));
    memcpy(out, words, sizeof words);
    out[DTP_ERR_MSG_BYTES - 1] = '\0';
    return DTP_OK;
}

/* Whether all ranks have one value. */
static dtp_status compare(dtp_comm *c, uint64_t value, bool *same, dtp_err *err)
{
    int64_t high = (int64_t)(value >> 32), low = (int64_t)(value & UINT32_MAX);
    int64_t v[4] = {high, low, -high, -low};
    DTP_TRY(dtp_comm_all_reduce(c, DTP_REDUCE_MIN, DTP_I64, 4, v, err));
    *same = v[0] == -v[2] && v[1] == -v[3];
    return DTP_OK;
}

/* The lowest rank whose value is not that of rank 0, where there is one. */
static dtp_status find_other(dtp_comm *c, uint64_t value, int32_t *out, dtp_err *err)
{
    int64_t halves[2] = {INT64_MAX, INT64_MAX};
    if (c->rank == 0) {
        halves[0] = (int64_t)(value >> 32);
        halves[1] = (int64_t)(value & UINT32_MAX);
    }
    DTP_TRY(dtp_comm_all_reduce(c, DTP_REDUCE_MIN, DTP_I64, 2, halves, err));
    const uint64_t first = (uint64_t)halves[0] << 32 | (uint64_t)halves[1];
    int64_t other = value != first ? c->rank : INT64_MAX;
    DTP_TRY(dtp_comm_all_reduce(c, DTP_REDUCE_MIN, DTP_I64, 1, &other, err));
    *out = (int32_t)other;
    return DTP_OK;
}

dtp_status dtp_comm_agree_words(dtp_comm *c, uint64_t value, const char *what, const char *words,
                                dtp_err *err)
{
    bool same;
    int32_t other;
    char of_first[DTP_ERR_MSG_BYTES], of_other[DTP_ERR_MSG_BYTES];
    DTP_TRY(compare(c, value, &same, err));
    if (same) {
        return DTP_OK;
    }
    DTP_TRY(find_other(c, value, &other, err));
    if (words == NULL) {
        return DTP_FAIL(err, DTP_COMM,
                        "the ranks do not agree on %s: that of rank %d is not that of rank 0", what,
                        other);
    }
    DTP_TRY(show_text(c, 0, words, of_first, err));
    DTP_TRY(show_text(c, other, words, of_other, err));
    return DTP_FAIL(err, DTP_COMM, "the ranks do not agree on %s: rank 0: %.400s; rank %d: %.400s",
                    what, of_first, other, of_other);
}

dtp_status dtp_comm_agree(dtp_comm *c, uint64_t value, const char *what, dtp_err *err)
{
    return dtp_comm_agree_words(c, value, what, NULL, err);
}

typedef struct failure {
    int32_t rank; /* -1 = none */
    dtp_status code;
    char text[DTP_ERR_MSG_BYTES];
} failure;

/* The lowest rank that failed, its code and message, the same on all ranks. */
static dtp_status find_failure(dtp_comm *c, dtp_status mine, const dtp_err *why, failure *out,
                               dtp_err *err)
{
    enum { CODE_BITS = 8 };
    int64_t first = mine == DTP_OK ? INT64_MAX : ((int64_t)c->rank << CODE_BITS) + (int64_t)mine;
    const bool worded = why != NULL && why->code != DTP_OK;
    DTP_TRY(dtp_comm_all_reduce(c, DTP_REDUCE_MIN, DTP_I64, 1, &first, err));
    if (first == INT64_MAX) {
        out->rank = -1;
        return DTP_OK;
    }
    out->rank = (int32_t)(first >> CODE_BITS);
    out->code = (dtp_status)(first & ((1 << CODE_BITS) - 1));
    return show_text(c, out->rank, worded ? why->msg : dtp_status_text(mine), out->text, err);
}

dtp_status dtp_comm_agree_status(dtp_comm *c, dtp_status mine, dtp_err *err)
{
    failure f;
    dtp_err quiet = {0}; /* a rank that failed keeps its own message */
    const dtp_status sent = find_failure(c, mine, err, &f, mine == DTP_OK ? err : &quiet);
    if (mine != DTP_OK) {
        return mine;
    }
    DTP_TRY(sent);
    return f.rank < 0 ? DTP_OK : dtp_comm__relay(err, c->rank, f.rank, f.text);
}

dtp_status dtp_comm_agree_status_alike(dtp_comm *c, dtp_status mine, dtp_err *err)
{
    failure f;
    DTP_TRY(find_failure(c, mine, err, &f, mine == DTP_OK ? err : NULL));
    return f.rank < 0 ? DTP_OK : DTP_FAIL(err, f.code, "%s", f.text);
}

dtp_status dtp_comm__relay(dtp_err *err, int32_t rank, int32_t failed, const char *why)
{
    dtp_status status = DTP_FAIL(err, DTP_COMM, "rank %d gives up because rank %d failed%s%.900s",
                                 rank, failed, why[0] != '\0' ? ": " : "", why);
    if (err != NULL) {
        err->told = true;
    }
    return status;
}

void dtp_comm_abort(dtp_comm *c, const char *why)
{
    void (*stop)(dtp_transport *, const char *) = c->transport.ops->abort;
    void (*tell)(dtp_comm *, const char *) = c->ops->abort;
    if (stop != NULL) {
        stop(&c->transport, why);
    }
    if (tell != NULL) {
        tell(c, why);
    }
}

dtp_status dtp_comm_conclude(dtp_comm *c, dtp_status mine, const dtp_comm_reporter *reporter,
                             dtp_err *err)
{
    return c->ops->conclude != NULL ? c->ops->conclude(c, mine, reporter, err) : mine;
}

dtp_status dtp_comm_alike_here(dtp_comm *c, uint64_t key, int32_t *index, int32_t *n, dtp_err *err)
{
    *index = c->rank;
    *n = c->size;
    return c->ops->alike_here != NULL ? c->ops->alike_here(c, key, index, n, err) : DTP_OK;
}

const char *dtp_comm_environment(char *const *environment, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; environment != NULL && environment[i] != NULL; i++) {
        if (strncmp(environment[i], name, n) == 0 && environment[i][n] == '=') {
            return environment[i] + n + 1;
        }
    }
    return NULL;
}

const char *dtp_comm_environment_any(char *const *environment, const char *const *names)
{
    const char *value = NULL;
    for (; *names != NULL && value == NULL; names++) {
        value = dtp_comm_environment(environment, *names);
    }
    return value;
}

const char *dtp_comm_launched_rank(char *const *environment)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID", NULL};
    return dtp_comm_environment_any(environment, names);
}

/* Whether a launcher says how MPI finds the other ranks. */
static bool has_launcher(char *const *environment)
{
    static const char *const marks[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", NULL};
    return dtp_comm_environment_any(environment, marks) != NULL;
}

/* Tasks of the step that srun started this process in. A shell inside an allocation also has
 * SLURM_PROCID, with one task and no step to join. */
static int32_t srun_tasks(char *const *environment)
{
    const char *tasks = dtp_comm_environment(environment, "SLURM_STEP_NUM_TASKS");
    const bool task = dtp_comm_environment(environment, "SLURM_PROCID") != NULL && tasks != NULL;
    return task ? (int32_t)atoi(tasks) : 0;
}

bool dtp_comm_in_mpi_job(char *const *environment)
{
    return has_launcher(environment) || srun_tasks(environment) > 1;
}

dtp_status dtp_comm_check_launcher(char *const *environment, dtp_err *err)
{
    const int32_t tasks = srun_tasks(environment);
    if (has_launcher(environment) || tasks <= 1) {
        return DTP_OK;
    }
    dtp_status status = DTP_FAIL(err, DTP_INVALID,
                                 "srun started %d tasks but does not connect them for MPI: use "
                                 "srun --mpi=pmix",
                                 tasks);
    if (err != NULL) { /* each task is alone: the first one says so */
        err->told = strcmp(dtp_comm_environment(environment, "SLURM_PROCID"), "0") != 0;
    }
    return status;
}

/* ---- what ranks do that disagree, in words ---- */

/* "rank 3: all_reduce sum over mesh dim 'x' of 8 x f32, ..."; NULL is the barrier. */
static void describe(const dtp_mesh *mesh, int32_t rank, const dtp_coll *coll, char *out,
                     size_t room)
{
    if (coll == NULL) {
        snprintf(out, room, "rank %d: barrier", rank);
        return;
    }
    const bool reduces = dtp_coll_reduces(coll->kind);
    char dims[DTP_MESH_SET_TEXT_BYTES], more[128] = "";
    size_t used = 0;
    if (coll->n_bucket > 0) {
        used += (size_t)snprintf(more, sizeof more, " in %d tensors", coll->n_bucket);
    }
    if (coll->in_outer > 0) {
        used += (size_t)snprintf(more + used, sizeof more - used,
                                 ", parts of the input in %" PRId64 " runs", coll->in_outer);
    }
    if (coll->out_outer > 0) {
        used += (size_t)snprintf(more + used, sizeof more - used,
                                 ", parts of the output in %" PRId64 " runs", coll->out_outer);
    }
    if (coll->kind == DTP_PERMUTE) {
        (void)snprintf(more + used, sizeof more - used, ", shift %d", coll->shift);
    }
    snprintf(out, room, "rank %d: %s%s%s over %s of %" PRId64 " x %s%s", rank,
             dtp_coll_name(coll->kind), reduces ? " " : "",
             reduces ? dtp_reduce_op_name(coll->op) : "", dtp_mesh_set_words(mesh, coll->set, dims),
             coll->count, dtp_dtype_name(coll->dtype), more);
}

bool dtp_comm__messages_meet(const dtp_message *a, const dtp_message *b)
{
    const char *x = a->data, *y = b->data;
    return x < y + b->bytes && y < x + a->bytes;
}

dtp_coll dtp_comm__message_coll(const dtp_mesh *mesh, const dtp_message *m)
{
    dtp_coll coll = {.kind = DTP_PERMUTE, .dtype = DTP_BOOL, .count = m->bytes}; /* bytes */
    for (int32_t d = 0; d < mesh->n_dims; d++) {
        const dtp_mesh_set set = (dtp_mesh_set)1 << d;
        const int32_t here = dtp_mesh_set_index(mesh, set, m->rank);
        const int32_t there = dtp_mesh_set_index(mesh, set, m->peer);
        coll.set |= here != there ? set : 0;
        coll.shift += here != there ? (m->sends ? there - here : here - there) : 0;
    }
    return coll;
}

/* All members run the same collective. */
static bool is_same(const dtp_coll *a, const dtp_coll *b)
{
    return a->kind == b->kind && a->set == b->set && a->op == b->op && a->dtype == b->dtype &&
           a->count == b->count && a->in_outer == b->in_outer && a->out_outer == b->out_outer &&
           a->shift == b->shift && a->n_bucket == b->n_bucket;
}

bool dtp_comm__differs(const dtp_mesh *mesh, int32_t rank, int32_t member, const dtp_coll *coll,
                       int32_t other, const dtp_coll *others, char why[DTP_ERR_MSG_BYTES])
{
    char a[384], b[384];
    if (is_same(coll, others)) {
        return false;
    }
    describe(mesh, dtp_mesh_set_member(mesh, coll->set, rank, member), coll, a, sizeof a);
    describe(mesh, dtp_mesh_set_member(mesh, coll->set, rank, other), others, b, sizeof b);
    snprintf(why, DTP_ERR_MSG_BYTES, "the ranks run different collectives: %s; %s", a, b);
    return true;
}

static bool alike(const dtp_comm__visit *a, const dtp_comm__visit *b)
{
    if (a->state != b->state || a->state != DTP_COMM_VISIT_WAITS) {
        return a->state == b->state;
    }
    return a->coll == b->coll || (a->coll != NULL && b->coll != NULL && is_same(a->coll, b->coll));
}

/* Ranks after r that are like it; -1 when one before it is. */
static int32_t count_alike(int32_t n, const dtp_comm__visit *visits, int32_t r)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        if (i != r && alike(&visits[i], &visits[r])) {
            if (i < r) {
                return -1;
            }
            count++;
        }
    }
    return count;
}

void dtp_comm__describe_waits(const dtp_mesh *mesh, int32_t n, const dtp_comm__visit *visits,
                              char out[DTP_ERR_MSG_BYTES])
{
    size_t used = (size_t)snprintf(out, DTP_ERR_MSG_BYTES, "the ranks wait for each other");
    const char *between = ": ";
    for (int32_t r = 0; r < n && used < DTP_ERR_MSG_BYTES - 432; r++) {
        int32_t more = count_alike(n, visits, r);
        if (visits[r].state == DTP_COMM_VISIT_NONE || more < 0) {
            continue;
        }
        char what[384], others[32] = "";
        if (visits[r].state == DTP_COMM_VISIT_WAITS) {
            describe(mesh, r, visits[r].coll, what, sizeof what);
        } else {
            snprintf(what, sizeof what, "rank %d: has ended", r);
        }
        if (more > 0) {
            snprintf(others, sizeof others, " (and %d alike)", more);
        }
        used +=
            (size_t)snprintf(out + used, DTP_ERR_MSG_BYTES - used, "%s%s%s", between, what, others);
        between = "; ";
    }
}

void dtp_comm__describe_late(const dtp_mesh *mesh, int32_t n, const dtp_comm__visit *visits,
                             int32_t rank, const dtp_coll *coll, double limit_s,
                             char out[DTP_ERR_MSG_BYTES])
{
    size_t used = 0;
    char what[384];
    out[0] = '\0';
    for (int32_t r = 0; r < n && used < DTP_ERR_MSG_BYTES - 432; r++) {
        const bool silent = visits[r].state == DTP_COMM_VISIT_SILENT;
        if (silent || visits[r].state == DTP_COMM_VISIT_LATE) {
            used += (size_t)snprintf(out + used, DTP_ERR_MSG_BYTES - used, "%srank %d %s",
                                     used > 0 ? "; " : "", r,
                                     silent ? "does not answer" : "has not come");
        }
    }
    describe(mesh, rank, coll, what, sizeof what);
    (void)snprintf(out + used, DTP_ERR_MSG_BYTES - used, "%s%s is not done after %g s",
                   used > 0 ? ": " : "", what, limit_s);
}
