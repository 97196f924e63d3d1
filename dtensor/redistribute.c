/* Redistribution of a tensor: a program of one operand, compiled once per type and pair of layouts.
 */
#include <string.h>

#include "spmd/lower/lower.h"
#include "spmd/redistribute/redistribute.h"
#include "dtensor/canonical_call.h"

static const char WHAT[] = "redistribute";

static dtp_status one_tensor(const dtp_device_mesh *mesh, const dtp_ttype *type, dtp_graph **out,
                             dtp_err *err)
{
    dtp_graph *g;
    dtp_tensor_id id;
    DTP_TRY(dtp_graph_create(WHAT, mesh->options.ops, &g, err));
    dtp_graph_tensor spec = {.name = "in0", .kind = DTP_TENSOR_INPUT, .type = *type};
    dtp_status status = DTP_OK;
    for (int32_t i = 0; i < type->rank && status == DTP_OK; i++) {
        status = dtp_dims_intern(&g->dims, dtp_dims_name(&mesh->dims, i), type->dims[i].size,
                                 &spec.type.dims[i].id, err);
    }
    if (status == DTP_OK) {
        status = dtp_graph_add_tensor(g, &spec, &id, err);
    }
    if (status != DTP_OK) {
        dtp_graph_destroy(g);
        return status;
    }
    *out = g;
    return DTP_OK;
}

static dtp_status compile(dtp_device_mesh *mesh, void *user, dtp_executable **out, dtp_err *err)
{
    const dtp_tensor_key *r = user;
    dtp_graph *g;
    dtp_program *p;
    dtp_lower_options options = dtp_lower_options_init(mesh->redistributor);
    options.external = true;
    options.keep_partial = true;
    DTP_TRY(one_tensor(mesh, &r->type, &g, err));
    dtp_status status =
        dtp_lower_redistribution(g, &mesh->comm->mesh, &r->layout, &r->to, &options, &p, err);
    if (status != DTP_OK) {
        dtp_graph_destroy(g);
        return status;
    }
    const dtp_value_id in = 0, result = p->tensor_value[0];
    const dtp_executable_spec spec = {
        .program = p, .graph = g, .n_in = 1, .n_out = 1, .in = &in, .out = &result};
    return dtp_executable_create(&spec, mesh->backend, mesh->comm, out, err);
}

static void trace(const dtp_device_mesh *mesh, const dtp_tensor_key *r, const dtp_executable *x)
{
    char from[DTP_TENSOR_TEXT_BYTES], to[DTP_LAYOUT_TEXT_BYTES];
    const dtp_coll_stat *colls;
    int64_t n = 0, bytes = 0;
    for (int32_t i = dtp_executable_colls(x, &colls) - 1; i >= 0; i--) {
        n += colls[i].count;
        bytes += colls[i].bytes;
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
        status = dtp_call__run(t.mesh, x, 0, &t, out, err);
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
    if (t.mesh->options.ctx != NULL) {
        trace(t.mesh, &r, x);
    }
    return dtp_tape__record_redistribution(t, *out, err);
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
