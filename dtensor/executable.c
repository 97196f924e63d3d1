/* Compiled calls. All of a mesh share the scratch memory of the largest. */
#include "dtensor/executable.h"

#include <stdlib.h>

#include "core/graph/ops/op_table.h"
#include "executor/comm/communicator_internal.h"
#include "dtensor/internal.h"

/* ---- compilation ---- */

/* Whether a kernel may refuse the values of its operands: one of a built-in op says so, any of a
 * registered op may. */
static bool may_fail(const dtp_program *p)
{
    bool found = false;
    for (int32_t i = 0; i < p->n_instrs && !found; i++) {
        const dtp_op_def *op = p->instrs[i].kind == DTP_INSTR_KERNEL ? p->instrs[i].op : NULL;
        found =
            op != NULL && ((op->flags & DTP_OP_CHECKS_DATA) != 0 || dtp_op_find(op->name) != op);
    }
    return found;
}

static dtp_status bind(dtp_executable *x, const dtp_device_mesh *mesh, dtp_err *err)
{
    const dtp_runner_options options = {
        .borrowed_memory = true, .failure = &x->failure, .no_graph = true};
    const dtp_program *p = x->program;
    for (int32_t i = 0; i < x->n_out; i++) {
        x->shares[i] = -1;
        for (int32_t k = 0; k < x->n_in; k++) {
            x->shares[i] = x->in[k] == dtp_value_root(p, x->out[i]) ? k : x->shares[i];
        }
    }
    /* A reduction that the communicator does not have is known before anything is sent. */
    for (int32_t i = 0; i < p->n_instrs; i++) {
        if (p->instrs[i].kind == DTP_INSTR_START) {
            DTP_TRY(dtp_comm__can_reduce(&p->instrs[i].coll, err));
        }
    }
    DTP_TRY(dtp_runner_create(p, mesh->backend, mesh->comm, &options, &x->runner, err));
    x->n_colls = dtp_runner_coll_stats(x->runner, &x->colls);
    x->may_fail = may_fail(p);
    return DTP_OK;
}

static dtp_status grow_scratch(dtp_device_mesh *mesh, int64_t bytes, dtp_err *err)
{
    if (bytes <= (mesh->scratch != NULL ? mesh->scratch->bytes : 0)) {
        return DTP_OK;
    }
    dtp_storage__release(mesh->scratch);
    mesh->scratch = NULL;
    return dtp_storage__create(mesh, bytes, &mesh->scratch, err);
}

/* Whether there is memory for a run: known before the ranks agree, so that a call too large for it
 * is refused by all. */
static dtp_status try_memory(dtp_device_mesh *mesh, const dtp_executable *x, dtp_err *err)
{
    dtp_storage *tried[DTP_MAX_OP_OUT] = {NULL};
    dtp_status status = grow_scratch(mesh, x->program->peak_bytes, err);
    for (int32_t i = 0; i < x->n_out && status == DTP_OK; i++) {
        if (x->shares[i] < 0) {
            const int64_t bytes = x->program->values[x->out[i]].bytes;
            status = dtp_storage__create(mesh, bytes, &tried[i], err);
        }
    }
    for (int32_t i = 0; i < x->n_out; i++) {
        dtp_storage__release(tried[i]);
    }
    return status;
}

dtp_status dtp_executable_create(dtp_device_mesh *mesh, const char *what, dtp_call_build build,
                                 const void *user, dtp_executable **out, dtp_err *err)
{
    dtp_lower_options options = dtp_lower_options_init(mesh->redistributor);
    options.external = true;
    options.keep_partial = true;
    dtp_executable *x = calloc(1, sizeof *x);
    DTP_TRY(DTP_MEMORY(err, x));
    dtp_status status = dtp_graph_create(what, mesh->options.ops, &x->graph, err);
    status = status == DTP_OK ? build(mesh, user, &options, x, err) : status;
    status = status == DTP_OK ? bind(x, mesh, err) : status;
    status = status == DTP_OK ? try_memory(mesh, x, err) : status;
    if (status != DTP_OK) {
        dtp_executable_destroy(x);
        return status;
    }
    *out = x;
    return DTP_OK;
}

void dtp_executable_destroy(dtp_executable *x)
{
    if (x != NULL) {
        dtp_runner_destroy(x->runner);
        dtp_program_destroy(x->program);
        dtp_graph_destroy(x->graph);
        free(x);
    }
}

/* ---- a run ---- */

static dtp_status count(dtp_device_mesh *mesh, const dtp_coll_stat *stat, dtp_err *err)
{
    int32_t i = 0;
    while (i < mesh->n_counts &&
           (mesh->counts[i].kind != stat->kind || mesh->counts[i].set != stat->set)) {
        i++;
    }
    if (i == mesh->cap_counts) {
        int32_t cap = mesh->cap_counts == 0 ? 16 : 2 * mesh->cap_counts;
        dtp_comm_count *grown = realloc(mesh->counts, (size_t)cap * sizeof *grown);
        DTP_TRY(DTP_MEMORY(err, grown));
        mesh->counts = grown;
        mesh->cap_counts = cap;
    }
    if (i == mesh->n_counts) {
        mesh->counts[mesh->n_counts++] = (dtp_comm_count){.kind = stat->kind, .set = stat->set};
    }
    mesh->counts[i].count += stat->count;
    mesh->counts[i].bytes += stat->bytes;
    return DTP_OK;
}

/* Makes the results, *n_made of them, and runs the program on their buffers and those of the
 * operands. */
static dtp_status run(dtp_device_mesh *mesh, dtp_executable *x, int64_t step, const dtp_tensor *in,
                      dtp_tensor *made, int32_t *n_made, dtp_err *err)
{
    const dtp_program *p = x->program;
    dtp_runner_times times;
    for (int32_t i = 0; i < x->n_out; i++) {
        const dtp_value *value = &p->values[x->out[i]];
        dtp_storage *shared = x->shares[i] >= 0 ? mesh->slots[in[x->shares[i]].slot].storage : NULL;
        dtp_ttype type = value->type;
        for (int32_t d = 0; d < type.rank; d++) {
            type.dims[d].id = d;
        }
        DTP_TRY(dtp_tensor__make(mesh, &type, &value->layout, shared, &made[i], err));
        *n_made = i + 1;
        if (shared == NULL) {
            dtp_runner_bind(x->runner, dtp_value_root(p, x->out[i]),
                            mesh->slots[made[i].slot].storage->data);
        }
    }
    for (int32_t i = 0; i < x->n_in; i++) {
        dtp_runner_bind(x->runner, x->in[i], mesh->slots[in[i].slot].storage->data);
    }
    DTP_TRY(grow_scratch(mesh, p->peak_bytes, err));
    void *const scratch = mesh->scratch != NULL ? mesh->scratch->data : NULL;
    if (scratch != x->scratch) { /* costs a pass over the views */
        x->scratch = scratch;
        dtp_runner_set_memory(x->runner, scratch);
    }
    x->failure.code = DTP_OK;
    DTP_TRY(dtp_runner_step(x->runner, mesh->options.seed, step, &times, err));
    for (int32_t i = 0; i < x->n_colls; i++) {
        DTP_TRY(count(mesh, &x->colls[i], err));
    }
    dtp_call__log(mesh, p);
    return DTP_OK;
}

/* What the ranks make of a run. One that ended early leaves the peers alone in its collectives, if
 * there are any; else the mesh goes on. A kernel that failed does not end the run, so no
 * rank waits for this one; the results are then worthless. */
static dtp_status finish(dtp_device_mesh *mesh, const dtp_executable *x, dtp_status status,
                         dtp_err *err)
{
    const bool failed = status == DTP_OK && x->failure.code != DTP_OK;
    if (status != DTP_OK && x->n_colls > 0) {
        return dtp_call__abort(mesh, status, err);
    }
    if (failed) {
        *err = x->failure;
        status = x->failure.code;
    }
    if (mesh->options.agree == DTP_AGREE_NEVER || mesh->comm->size == 1) {
        return status;
    }
    if (x->may_fail) {
        return dtp_comm_agree_status_alike(mesh->comm, status, err);
    }
    return failed ? dtp_call__abort(mesh, status, err) : status;
}

dtp_status dtp_executable_run(dtp_device_mesh *mesh, dtp_executable *x, int64_t step,
                              double lr_scale, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor made[DTP_MAX_OP_OUT];
    int32_t n_made = 0;
    dtp_err local = {0};
    err = err != NULL ? err : &local;
    dtp_runner_record(x->runner)->lr_scale = lr_scale;
    dtp_status status = run(mesh, x, step, in, made, &n_made, err);
    status = finish(mesh, x, status, err);
    for (int32_t i = 0; i < n_made; i++) {
        if (status == DTP_OK) {
            out[i] = made[i];
        } else {
            dtp_tensor_destroy(made[i]);
        }
    }
    return status;
}
