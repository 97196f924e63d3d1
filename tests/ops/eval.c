/* A single-rank executor for tests: runs every node of a graph in order on a backend. */
#include "tests/ops/eval.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/arena.h"
#include "executor/device/convert.h"
#include "executor/device/step_state.h"
#include "spmd/target/target.h"

static size_t buffer_bytes(const dtp_graph *g, dtp_tensor_id t)
{
    return (size_t)dtp_ttype_bytes(&g->tensors[t].type);
}

void eval_init(eval *e, const dtp_graph *g, dtp_backend *backend)
{
    *e = (eval){.g = g, .backend = backend};
    e->data = calloc((size_t)g->n_tensors, sizeof *e->data);
    e->host = calloc((size_t)g->n_tensors, sizeof *e->host);
    assert_non_null(e->data);
    assert_non_null(e->host);
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        size_t bytes = buffer_bytes(g, t);
        assert_int_equal(backend->ops->alloc(backend, bytes, &e->data[t], NULL), DTP_OK);
        e->host[t] = malloc(bytes + 1);
        assert_non_null(e->host[t]);
        memset(e->host[t], 0xcb, bytes);
        assert_int_equal(backend->ops->upload(backend, e->data[t], e->host[t], bytes, NULL),
                         DTP_OK);
    }
}

void eval_free(eval *e)
{
    for (dtp_tensor_id t = 0; t < e->g->n_tensors; t++) {
        e->backend->ops->free(e->backend, e->data[t], buffer_bytes(e->g, t));
        free(e->host[t]);
    }
    free(e->data);
    free(e->host);
}

void eval_set(eval *e, dtp_tensor_id t, const double *values)
{
    const dtp_ttype *type = &e->g->tensors[t].type;
    for (int64_t i = 0; i < dtp_ttype_elems(type); i++) {
        dtp_element_set(type->dtype, e->host[t], i, values[i]);
    }
    assert_int_equal(
        e->backend->ops->upload(e->backend, e->data[t], e->host[t], buffer_bytes(e->g, t), NULL),
        DTP_OK);
}

const void *eval_fetch(eval *e, dtp_tensor_id t)
{
    assert_int_equal(
        e->backend->ops->download(e->backend, e->host[t], e->data[t], buffer_bytes(e->g, t), NULL),
        DTP_OK);
    return e->host[t];
}

double eval_get(const eval *e, dtp_tensor_id t, int64_t index)
{
    return dtp_element(e->g->tensors[t].type.dtype, e->host[t], index);
}

dtp_view eval_view(const dtp_ttype *type, void *data)
{
    dtp_view v = {.local = *type, .data = data};
    for (int32_t i = 0; i < type->rank; i++) {
        v.global[i] = type->dims[i].size;
    }
    return v;
}

/* Views at other addresses than those of `from`, or at the same. */
static void place(dtp_view *views, const dtp_view *from, int32_t n, size_t apart)
{
    for (int32_t i = 0; i < n; i++) {
        views[i] = from[i];
        views[i].data = from[i].data == NULL ? NULL : (char *)from[i].data + apart;
    }
}

/* Bound at other addresses than it runs at: data of views may change from run to run. */
dtp_status eval_kernel(dtp_backend *backend, const dtp_op_call *call, const dtp_view *in,
                       const dtp_view *out, dtp_err *err)
{
    const int64_t bytes = dtp_target_workspace(dtp_target_of_backend(backend->ops->name), call);
    void *workspace = NULL;
    DTP_TRY(backend->ops->alloc(backend, (size_t)bytes, &workspace, err));
    dtp_step_state state;
    dtp_view ins[DTP_MAX_OP_IN], outs[DTP_MAX_OP_OUT];
    place(ins, in, call->n_in, 64);
    place(outs, out, call->n_out, 64);
    dtp_kernel_args args = {
        .call = call, .in = ins, .out = outs, .workspace = workspace, .workspace_bytes = bytes};
    dtp_arena *arena = dtp_arena_create();
    dtp_bound_kernel kernel;
    dtp_status s = dtp_step_state_init(&state, backend, 1, err);
    dtp_step_state_link(&state, &args);
    state.record = dtp_step_record_init(EVAL_SEED, EVAL_STEP);
    state.record.microbatch = 1; /* `accumulate` adds */
    s = s == DTP_OK ? dtp_backend_bind(backend, &args, arena, &kernel, err) : s;
    place(ins, in, call->n_in, 0);
    place(outs, out, call->n_out, 0);
    s = s == DTP_OK ? dtp_step_state_put(&state, err) : s;
    s = s == DTP_OK ? dtp_bound_kernel_run(&kernel, err) : s;
    s = s == DTP_OK ? dtp_bound_kernel_check(&kernel, err) : s;
    dtp_step_state_free(&state);
    dtp_arena_destroy(arena);
    backend->ops->free(backend, workspace, (size_t)bytes);
    return s;
}

dtp_status eval_try(eval *e, dtp_err *err)
{
    dtp_view in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
    dtp_call_types types;
    for (dtp_node_id n = 0; n < e->g->n_nodes; n++) {
        const dtp_node *node = &e->g->nodes[n];
        dtp_op_call call = dtp_node_call(e->g, node, &types);
        for (int32_t i = 0; i < node->n_in; i++) {
            in[i] = eval_view(&types.in[i], e->data[node->in[i]]);
        }
        for (int32_t i = 0; i < node->n_out; i++) {
            out[i] = eval_view(&types.out[i], e->data[node->out[i]]);
        }
        DTP_TRY(dtp_err_prefixed(eval_kernel(e->backend, &call, in, out, err), err,
                                 "node '%s' (%s)", node->name, node->op->name));
    }
    for (dtp_tensor_id t = 0; t < e->g->n_tensors; t++) {
        DTP_TRY(e->backend->ops->download(e->backend, e->host[t], e->data[t], buffer_bytes(e->g, t),
                                          err));
    }
    return DTP_OK;
}

void eval_run(eval *e)
{
    dtp_err err = {0};
    if (eval_try(e, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
}
