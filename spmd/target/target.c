/* Targets: what memory and prices must know of a backend and a transport, as plain data and host
 * functions (docs/targets.md). */
#include "spmd/target/target.h"

#include <stdio.h>
#include <string.h>

#include "core/graph/ops/op_table.h"

static const dtp_target *const targets[] = {&dtp_target_cpu,      &dtp_target_cpu_packed,
                                            &dtp_target_ref,      &dtp_target_cuda,
                                            &dtp_target_torch,    &dtp_target_torch_compile,
                                            &dtp_target_megatron, &dtp_target_megatron_overlap,
                                            &dtp_target_nanotron};

enum { LIST_BYTES = 128, N_TARGETS = sizeof targets / sizeof targets[0] };

/* ---- names ---- */

/* Appends ", name" to a list. */
static void append(char list[LIST_BYTES], const char *name)
{
    const size_t n = strlen(list);
    (void)snprintf(list + n, LIST_BYTES - n, "%s%s", n > 0 ? ", " : "", name);
}

const dtp_target *dtp_target_at(int32_t i)
{
    return i < (int32_t)N_TARGETS ? targets[i] : NULL;
}

dtp_status dtp_target_find(const char *name, const dtp_target **out, dtp_err *err)
{
    char list[LIST_BYTES] = "";
    for (size_t i = 0; i < N_TARGETS; i++) {
        if (strcmp(targets[i]->name, name) == 0) {
            *out = targets[i];
            return DTP_OK;
        }
        append(list, targets[i]->name);
    }
    return DTP_FAIL(err, DTP_INVALID, "there is no target '%.40s'; targets are %s", name, list);
}

static bool runs_on(const dtp_target *target, const char *backend)
{
    const char *const *b = target->backends;
    while (*b != NULL && strcmp(*b, backend) != 0) {
        b++;
    }
    return *b != NULL;
}

const dtp_target *dtp_target_of_backend(const char *backend)
{
    size_t i = 0;
    while (i < N_TARGETS && !runs_on(targets[i], backend)) {
        i++;
    }
    return i < N_TARGETS ? targets[i] : NULL;
}

dtp_status dtp_target_runs_on(const dtp_target *target, const char *backend, dtp_err *err)
{
    char list[LIST_BYTES] = "";
    if (runs_on(target, backend)) {
        return DTP_OK;
    }
    if (target->backends[0] == NULL) {
        return DTP_FAIL(err, DTP_INVALID,
                        "the program is for target '%s', which PyTorch runs, not backend '%s'; "
                        "plan for the target of a backend to run it here",
                        target->name, backend);
    }
    for (const char *const *b = target->backends; *b != NULL; b++) {
        append(list, *b);
    }
    return DTP_FAIL(err, DTP_INVALID,
                    "the program is for target '%s', which runs on backend %s, not on '%s'",
                    target->name, list, backend);
}

dtp_status dtp_target_runs_over(const dtp_target *target, const char *transport, bool strided,
                                bool deterministic, dtp_err *err)
{
    const char *lacks = target->strided && !strided               ? "parts that are strided"
                        : target->deterministic && !deterministic ? "deterministic reductions"
                                                                  : NULL;
    return lacks == NULL ? DTP_OK
                         : DTP_FAIL(err, DTP_INVALID,
                                    "the program is for target '%s', which has %s; the transport "
                                    "'%s' has not",
                                    target->name, lacks, transport);
}

/* ---- ops ---- */

static const dtp_target_op *find_op(const dtp_target *target, const dtp_op_def *op)
{
    const dtp_target_op *row = target->ops;
    while (row->op != NULL && (row->op[0] != op->name[0] || strcmp(row->op, op->name) != 0)) {
        row++;
    }
    return row;
}

bool dtp_target_has_workspace(const dtp_target *target, const dtp_op_def *op)
{
    return op->workspace != NULL || find_op(target, op)->workspace != NULL;
}

int64_t dtp_target_workspace(const dtp_target *target, const dtp_op_call *call)
{
    const dtp_target_op *row = find_op(target, call->op);
    return call->op->workspace != NULL ? call->op->workspace(call)
           : row->workspace != NULL    ? row->workspace(call)
                                       : 0;
}

void dtp_target_work(const dtp_target *target, const dtp_op_call *call, dtp_work *out)
{
    const dtp_target_op *row = find_op(target, call->op);
    if (row->work != NULL) {
        row->work(call, out);
    } else {
        dtp_call_work(call, out);
    }
}

dtp_ttype dtp_target_type(const dtp_target *target, const dtp_graph *g, dtp_tensor_id t)
{
    dtp_ttype type = g->tensors[t].type;
    type.dtype = target->fp8 && dtp_graph_is_quantized(g, t) ? DTP_F8 : type.dtype;
    return type;
}

dtp_status dtp_target_takes(const dtp_target *target, const dtp_op_call *call, dtp_err *err)
{
    const uint32_t free_dtypes = DTP_OP_ANY_DTYPE | DTP_OP_OPAQUE;
    if ((call->op->flags & free_dtypes) != 0 || dtp_op_find(call->op->name) != call->op) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < call->n_in + call->n_out; i++) {
        const dtp_ttype *type = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
        if (!dtp_dtype_is_float(type->dtype) || (target->floats >> type->dtype & 1U) != 0) {
            continue;
        }
        char list[LIST_BYTES] = "";
        for (int32_t d = 0; d < DTP_N_DTYPES; d++) {
            if ((target->floats >> d & 1U) != 0) {
                append(list, dtp_dtype_name((dtp_dtype)d));
            }
        }
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "target '%s' has no kernel of '%s' for %s, only for %s", target->name,
                        call->op->name, dtp_dtype_name(type->dtype), list);
    }
    return DTP_OK;
}

dtp_status dtp_target_takes_precision(const dtp_target *target, const dtp_graph *g, dtp_err *err)
{
    char list[LIST_BYTES] = "";
    if (!g->tf32 || target->tf32) {
        return DTP_OK;
    }
    for (size_t i = 0; i < N_TARGETS; i++) {
        if (targets[i]->tf32) {
            append(list, targets[i]->name);
        }
    }
    return DTP_FAIL(err, DTP_UNSUPPORTED,
                    "precision 'tf32': target '%s' has no such products, only target %s",
                    target->name, list);
}

dtp_status dtp_target_takes_graph(const dtp_target *target, const dtp_graph *g, dtp_err *err)
{
    DTP_TRY(dtp_target_takes_precision(target, g, err));
    for (int32_t n = 0; n < g->n_nodes; n++) {
        dtp_call_types types;
        const dtp_op_call call = dtp_node_call(g, &g->nodes[n], &types);
        DTP_TRY(dtp_err_prefixed(dtp_target_takes(target, &call, err), err, "node '%s'",
                                 g->nodes[n].name));
    }
    return DTP_OK;
}
