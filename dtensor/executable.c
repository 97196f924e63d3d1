#include "dtensor/executable.h"

#include "core/graph/ops/op_table.h"
#include "executor/comm/communicator_internal.h"

struct dtp_executable {
    dtp_arena *arena;
    dtp_graph *graph;
    dtp_program *program;
    dtp_runner *runner;
    int32_t n_in, n_out, n_colls;
    dtp_exec_slot *in, *out;
    const dtp_coll_stat *colls;
    void *scratch;
    bool may_fail;
    dtp_err failure; /* of a kernel in the last run; its message ends with the next one */
};

static dtp_status fill_slot(const dtp_program *p, dtp_value_id v, dtp_exec_slot *out, dtp_err *err)
{
    if (v < 0 || v >= p->n_values || !p->values[v].external) {
        return DTP_FAIL(err, DTP_INTERNAL, "value %d of %d is not in a buffer of the caller", v,
                        p->n_values);
    }
    *out = (dtp_exec_slot){.value = v,
                           .type = p->values[v].type,
                           .layout = p->values[v].layout,
                           .bytes = p->values[v].bytes,
                           .shares = -1};
    return DTP_OK;
}

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

static dtp_status bind(dtp_executable *x, const dtp_value_id *in, const dtp_value_id *out,
                       dtp_backend *backend, dtp_comm *comm, dtp_err *err)
{
    const dtp_runner_options options = {.borrowed_memory = true, .failure = &x->failure};
    DTP_TRY(DTP_NEW(x->arena, x->in, x->n_in, err));
    DTP_TRY(DTP_NEW(x->arena, x->out, x->n_out, err));
    const dtp_program *p = x->program;
    int32_t fed = 0;
    for (int32_t i = 0; i < x->n_in; i++) {
        DTP_TRY(fill_slot(p, in[i], &x->in[i], err));
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        fed += p->values[v].kind == DTP_VALUE_INPUT ? 1 : 0;
    }
    DTP_TRY(fed == x->n_in
                ? DTP_OK
                : DTP_FAIL(err, DTP_INTERNAL, "%d inputs are passed, %d are read", x->n_in, fed));
    for (int32_t i = 0; i < x->n_out; i++) {
        DTP_TRY(fill_slot(x->program, out[i], &x->out[i], err));
        dtp_value_id root = dtp_value_root(x->program, out[i]);
        for (int32_t k = 0; k < x->n_in; k++) {
            x->out[i].shares = x->in[k].value == root ? k : x->out[i].shares;
        }
        x->out[i].value = root;
    }
    /* A reduction that the communicator does not have is known before anything is sent. */
    for (int32_t i = 0; i < x->program->n_instrs; i++) {
        if (x->program->instrs[i].kind == DTP_INSTR_COLLECTIVE) {
            DTP_TRY(dtp_comm__can_reduce(&x->program->instrs[i].coll, err));
        }
    }
    DTP_TRY(dtp_runner_create_with(x->program, backend, comm, &options, &x->runner, err));
    x->n_colls = dtp_runner_coll_stats(x->runner, &x->colls);
    x->may_fail = may_fail(x->program);
    return DTP_OK;
}

dtp_status dtp_executable_create(const dtp_executable_spec *spec, dtp_backend *backend,
                                 dtp_comm *comm, dtp_executable **out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_executable *x = arena != NULL ? dtp_arena_alloc(arena, 1, sizeof *x) : NULL;
    if (x == NULL) {
        dtp_arena_destroy(arena);
        dtp_program_destroy(spec->program);
        dtp_graph_destroy(spec->graph);
        return DTP_FAIL(err, DTP_NOMEM, "no memory for a compiled call");
    }
    *x = (dtp_executable){.arena = arena,
                          .graph = spec->graph,
                          .program = spec->program,
                          .n_in = spec->n_in,
                          .n_out = spec->n_out};
    dtp_status status = bind(x, spec->in, spec->out, backend, comm, err);
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
        dtp_arena_destroy(x->arena);
    }
}

int32_t dtp_executable_inputs(const dtp_executable *x, const dtp_exec_slot **out)
{
    *out = x->in;
    return x->n_in;
}

int32_t dtp_executable_outputs(const dtp_executable *x, const dtp_exec_slot **out)
{
    *out = x->out;
    return x->n_out;
}

int32_t dtp_executable_colls(const dtp_executable *x, const dtp_coll_stat **out)
{
    *out = x->colls;
    return x->n_colls;
}

bool dtp_executable_may_fail(const dtp_executable *x)
{
    return x->may_fail;
}

const dtp_program *dtp_executable_program(const dtp_executable *x)
{
    return x->program;
}

dtp_status dtp_executable_prepare(dtp_executable *x, dtp_err *err)
{
    return dtp_runner_prepare(x->runner, err);
}

int64_t dtp_executable_scratch_bytes(const dtp_executable *x)
{
    return x->program->peak_bytes;
}

void dtp_executable_set_scratch(dtp_executable *x, void *scratch)
{
    if (scratch != x->scratch) {
        x->scratch = scratch;
        dtp_runner_set_memory(x->runner, scratch);
    }
}

dtp_status dtp_executable_run(dtp_executable *x, void *const *in, void *const *out, uint64_t seed,
                              int64_t step, dtp_err *err)
{
    dtp_runner_times times;
    x->failure.code = DTP_OK;
    for (int32_t i = 0; i < x->n_in; i++) {
        dtp_runner_bind(x->runner, x->in[i].value, in[i]);
    }
    for (int32_t i = 0; i < x->n_out; i++) {
        if (x->out[i].shares < 0) {
            dtp_runner_bind(x->runner, x->out[i].value, out[i]);
        }
    }
    return dtp_runner_step(x->runner, seed, step, &times, err);
}

const dtp_err *dtp_executable_failure(const dtp_executable *x)
{
    return x->failure.code != DTP_OK ? &x->failure : NULL;
}
