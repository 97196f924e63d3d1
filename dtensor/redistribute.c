/* Redistribution of a tensor: a program of one operand, compiled once per type and pair of layouts.
 */
#include <string.h>

#include "spmd/redistribute/redistribute.h"
#include "dtensor/canonical_call.h"

static const char WHAT[] = "redistribute";

static dtp_status compile(dtp_device_mesh *mesh, const void *user,
                          const dtp_lower_options *lowering, dtp_executable *x, dtp_err *err)
{
    const dtp_tensor_key *r = user;
    dtp_tensor_id id;
    dtp_graph_tensor spec = {.name = "in0", .kind = DTP_TENSOR_INPUT, .type = r->type};
    for (int32_t i = 0; i < r->type.rank; i++) {
        DTP_TRY(dtp_dims_intern(&x->graph->dims, dtp_dims_name(&mesh->dims, i),
                                r->type.dims[i].size, &spec.type.dims[i].id, err));
    }
    DTP_TRY(dtp_graph_add_tensor(x->graph, &spec, &id, err));
    DTP_TRY(dtp_lower_redistribution(x->graph, &mesh->comm->mesh, &r->layout, &r->to, lowering,
                                     &x->program, err));
    x->n_in = x->n_out = 1;
    x->in[0] = 0;
    x->out[0] = x->program->tensor_value[id];
    return DTP_OK;
}

static void trace(const dtp_device_mesh *mesh, const dtp_tensor_key *r, const dtp_executable *x)
{
    char from[DTP_TENSOR_TEXT_BYTES], to[DTP_LAYOUT_TEXT_BYTES];
    int64_t n = 0, bytes = 0;
    for (int32_t i = 0; i < x->n_colls; i++) {
        n += x->colls[i].count;
        bytes += x->colls[i].bytes;
    }
    dtp_tensor__text(mesh, &r->type, &r->layout, from);
    dtp_layout_print(&r->to, &mesh->comm->mesh, &r->type, &mesh->dims, to);
    dtp_log(mesh->options.ctx, DTP_LOG_INFO, "tensor", WHAT,
            "from=\"%s\" to=\"%s\" collectives=%lld bytes=%lld", from, to, (long long)n,
            (long long)bytes);
}

dtp_status dtp_tensor_redistribute(dtp_tensor t, const dtp_layout *layout, dtp_tensor *out,
                                   dtp_err *err)
{
    dtp_tensor_slot *slot;
    dtp_tensor_key r;
    dtp_executable *x = NULL;
    dtp_status status = dtp_tensor__slot(t, WHAT, &slot, err);
    status = status == DTP_OK ? DTP_NOT_NULL(err, layout, out) : status;
    if (status != DTP_OK) {
        return dtp_call__refuse(t.mesh, status, WHAT, err);
    }
    dtp_call__tensor_key(WHAT, &slot->type, &slot->layout, &r);
    r.to = *layout;
    /* Layouts that the steps never lead to are refused before the ranks agree. */
    status = dtp_layout_check(&r.to, &t.mesh->comm->mesh, &r.type, err);
    for (int32_t m = 0; m < r.to.n_mesh && status == DTP_OK; m++) {
        const dtp_placement *from = &r.layout.placement[m], *to = &r.to.placement[m];
        bool same = from->kind == DTP_PARTIAL && from->op == to->op;
        if (to->kind == DTP_PARTIAL && !same && t.mesh->comm->mesh.sizes[m] > 1) {
            status =
                DTP_FAIL(err, DTP_UNSUPPORTED,
                         "it is not partial (%s) on mesh dim '%s' and cannot become so",
                         dtp_reduce_op_name((dtp_reduce_op)to->op), t.mesh->comm->mesh.names[m]);
        }
    }
    bool fits = status != DTP_INVALID;
    if (status == DTP_OK) {
        dtp_call__reads(t.mesh, 1, &t);
    }
    status = status == DTP_OK ? dtp_call__find(t.mesh, &r, sizeof r, WHAT, compile, &r, &x, err)
                              : dtp_call__refuse(t.mesh, status, WHAT, err);
    if (status == DTP_OK) {
        status = dtp_executable_run(t.mesh, x, 0, 1.0, &t, out, err);
    }
    if (status != DTP_OK) {
        /* "redistribute f32[8,8] 0@x to 1@x"; a layout that does not fit is not printed. */
        const dtp_device_mesh *mesh = t.mesh;
        char from[DTP_TENSOR_TEXT_BYTES], to[DTP_LAYOUT_TEXT_BYTES] = "a layout that does not fit";
        dtp_tensor__text(mesh, &r.type, &r.layout, from);
        if (fits) {
            dtp_layout_print(&r.to, &mesh->comm->mesh, &r.type, &mesh->dims, to);
        }
        dtp_err_prefix(err, "redistribute %.300s to %.300s", from, to);
        return status;
    }
    if (x != NULL && t.mesh->options.ctx != NULL) {
        trace(t.mesh, &r, x);
    }
    return dtp_tape__record(t.mesh->tape, NULL, 1, &t, 1, out, err);
}

dtp_status dtp_tensor__relaid(dtp_tensor t, const dtp_layout *layout, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_slot *slot;
    DTP_TRY(dtp_tensor__slot(t, WHAT, &slot, err));
    if (dtp_layout_equal(&slot->layout, layout)) {
        return dtp_tensor_share(t, out, err);
    }
    dtp_tape *const tape = t.mesh->tape;
    t.mesh->tape = NULL;
    const dtp_status status = dtp_tensor_redistribute(t, layout, out, err);
    t.mesh->tape = tape;
    return status;
}
