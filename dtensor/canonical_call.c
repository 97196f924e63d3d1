/* Graph nodes as canonical calls, and canonical calls as graph nodes (dtensor/canonical_call.h). */
#include "dtensor/canonical_call.h"

#include <stdio.h>
#include <string.h>

void dtp_canonical__fix_ids(dtp_canonical_call *c)
{
    for (int32_t i = 0; i < c->n_attrs; i++) {
        if (c->attrs[i].kind == DTP_ATTR_DIMS || c->attrs[i].kind == DTP_ATTR_INTS) {
            c->attrs[i].ids = &c->ids[c->first_id[i]];
        }
    }
}

void dtp_canonical__label_name(const dtp_canonical_call *c, int32_t label,
                               char out[DTP_LABEL_BYTES])
{
    if (c->function == NULL) {
        (void)snprintf(out, DTP_LABEL_BYTES, "%c", c->names[label]);
        return;
    }
    for (int32_t i = 0; i < c->n_in; i++) {
        const int32_t axis = dtp_ttype_find(&c->types[i], label);
        if (axis >= 0 && c->n_in == 1) {
            (void)snprintf(out, DTP_LABEL_BYTES, "%d", axis);
            return;
        }
        if (axis >= 0) {
            (void)snprintf(out, DTP_LABEL_BYTES, "%d of operand %d", axis, i);
            return;
        }
    }
    int32_t axis = 0;
    while (axis < c->out_rank && c->out[axis].id != label) {
        axis++;
    }
    (void)snprintf(out, DTP_LABEL_BYTES, "%d of the result", axis);
}

int64_t dtp_canonical__label_size(const dtp_canonical_call *c, int32_t label)
{
    for (int32_t i = 0; i < c->n_in; i++) {
        const int32_t axis = dtp_ttype_find(&c->types[i], label);
        if (axis >= 0) {
            return c->types[i].dims[axis].size;
        }
    }
    return 0;
}

dtp_status dtp_canonical__add_id(dtp_canonical_call *c, dtp_dim_id id, dtp_err *err)
{
    if (c->n_ids == DTP_CALL_MAX_IDS) {
        return DTP_FAIL(err, DTP_INVALID, "more than %d dims in the arguments", DTP_CALL_MAX_IDS);
    }
    c->ids[c->n_ids++] = id;
    return DTP_OK;
}

/* ---- a node of a graph ---- */

/* Label of a dim of the graph; `dims` holds those that have one. */
static dtp_status map_dim(dtp_canonical_call *c, dtp_dim_id *dims, dtp_dim_id d, dtp_dim_id *out,
                          dtp_err *err)
{
    for (int32_t i = 0; i < c->n_labels; i++) {
        if (dims[i] == d) {
            *out = i;
            return DTP_OK;
        }
    }
    if (c->n_labels == DTP_CALL_MAX_LABELS) {
        return DTP_FAIL(err, DTP_INVALID, "more than %d dims", DTP_CALL_MAX_LABELS);
    }
    c->names[c->n_labels] = (char)((c->n_labels < 26 ? 'a' : 'A' - 26) + c->n_labels);
    dims[c->n_labels] = d;
    *out = c->n_labels++;
    return DTP_OK;
}

static dtp_status map_type(dtp_canonical_call *c, dtp_dim_id *dims, const dtp_ttype *from,
                           dtp_tdim *out, dtp_err *err)
{
    for (int32_t k = 0; k < from->rank; k++) {
        out[k].size = from->dims[k].size;
        DTP_TRY(map_dim(c, dims, from->dims[k].id, &out[k].id, err));
    }
    return DTP_OK;
}

dtp_status dtp_canonical__of_node(const dtp_graph *g, const dtp_node *node, const dtp_tensor *in,
                                  dtp_canonical_call *out, dtp_err *err)
{
    dtp_dim_id dims[DTP_CALL_MAX_LABELS] = {0};
    const dtp_ttype *first = &g->tensors[node->out[0]].type;
    memset(out, 0, sizeof *out);
    out->lr_scale = 1.0;
    out->op = node->op;
    out->function = node->op->name;
    out->n_in = node->n_in;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_ttype *type = &g->tensors[node->in[i]].type;
        out->in[i] = in[i];
        out->types[i] = *type;
        DTP_TRY(map_type(out, dims, type, out->types[i].dims, err));
    }
    out->has_out = true;
    out->out_rank = first->rank;
    DTP_TRY(map_type(out, dims, first, out->out, err));
    for (int32_t i = 0; i < node->n_attrs; i++) {
        const dtp_attr *from = &node->attrs[i];
        if (out->n_attrs == DTP_CALL_MAX_ATTRS) {
            return DTP_FAIL(err, DTP_INVALID, "more than %d attributes", DTP_CALL_MAX_ATTRS);
        }
        dtp_attr *to = &out->attrs[out->n_attrs];
        out->first_id[out->n_attrs++] = out->n_ids;
        *to = *from;
        if (from->kind == DTP_ATTR_DIM && from->i >= 0) {
            dtp_dim_id id;
            DTP_TRY(map_dim(out, dims, (dtp_dim_id)from->i, &id, err));
            to->i = id;
        }
        for (int32_t k = 0; from->kind == DTP_ATTR_DIMS && k < from->n; k++) {
            dtp_dim_id id;
            DTP_TRY(map_dim(out, dims, from->ids[k], &id, err));
            DTP_TRY(dtp_canonical__add_id(out, id, err));
        }
        for (int32_t k = 0; from->kind == DTP_ATTR_INTS && k < from->n; k++) {
            DTP_TRY(dtp_canonical__add_id(out, from->ints[k], err));
        }
    }
    dtp_canonical__fix_ids(out);
    return DTP_OK;
}

/* ---- into a graph ---- */

enum { NAME_BYTES = 64 };

/* The operand with the call's dim names. */
static dtp_status name_operand(const dtp_canonical_call *c, dtp_graph *g, const char *prefix,
                               int32_t i, const dtp_dim_id *dims, dtp_tensor_id *t, dtp_err *err)
{
    const dtp_ttype *have = &g->tensors[*t].type, *want = &c->types[i];
    char name[NAME_BYTES];
    dtp_node_spec spec = dtp_node_spec_init(name, "relabel");
    dtp_ttype type = {.rank = 0};
    bool same = true;
    for (int32_t k = 0; k < want->rank; k++) {
        const int32_t label = want->dims[k].id;
        if (label >= 0) {
            type.dims[type.rank++] = (dtp_tdim){dims[label], want->dims[k].size};
        }
        same = same && label >= 0 && have->dims[k].id == dims[label];
    }
    if (same) {
        return DTP_OK;
    }
    (void)snprintf(name, sizeof name, "%s.in%d", prefix, i);
    spec.n_in = 1;
    spec.in = t;
    spec.out = &type;
    return dtp_graph_add_node(g, &spec, t, err);
}

dtp_status dtp_canonical__add(const dtp_canonical_call *c, dtp_graph *g, const char *prefix,
                              const dtp_tensor_id *in, dtp_tensor_id *outs, dtp_err *err)
{
    dtp_dim_id dims[DTP_CALL_MAX_LABELS], ids[DTP_CALL_MAX_IDS];
    dtp_tensor_id operands[DTP_MAX_OP_IN];
    dtp_attr attrs[DTP_CALL_MAX_ATTRS];
    char name[NAME_BYTES];
    for (int32_t k = 0; k < c->n_labels; k++) {
        char dim[NAME_BYTES], label[DTP_LABEL_BYTES];
        int64_t size = dtp_canonical__label_size(c, k);
        for (int32_t i = 0; i < c->out_rank && size == 0; i++) {
            size = c->out[i].id == k ? c->out[i].size : 0;
        }
        dtp_canonical__label_name(c, k, label);
        (void)snprintf(dim, sizeof dim, "%s%s", prefix, label);
        DTP_TRY(dtp_dims_intern(&g->dims, dim, size, &dims[k], err));
    }
    for (int32_t i = 0; i < c->n_in; i++) {
        operands[i] = in[i];
        DTP_TRY(name_operand(c, g, prefix, i, dims, &operands[i], err));
    }
    for (int32_t i = 0; i < c->n_attrs; i++) {
        attrs[i] = c->attrs[i];
        for (int32_t k = c->first_id[i]; k < c->first_id[i] + attrs[i].n; k++) {
            ids[k] = attrs[i].kind == DTP_ATTR_DIMS ? dims[c->ids[k]] : c->ids[k];
        }
        attrs[i].ids = &ids[c->first_id[i]];
        if (attrs[i].kind == DTP_ATTR_DIM && attrs[i].i >= 0) {
            attrs[i].i = dims[attrs[i].i];
        }
    }
    (void)snprintf(name, sizeof name, "%s%s", prefix, c->op->name);
    dtp_node_spec spec = dtp_node_spec_init(name, c->op->name);
    spec.def = c->op;
    spec.n_in = c->n_in;
    spec.in = operands;
    spec.n_attrs = c->n_attrs;
    spec.attrs = attrs;
    dtp_ttype declared = {.rank = c->out_rank};
    spec.out = c->has_out ? &declared : NULL;
    for (int32_t k = 0; k < c->out_rank; k++) {
        declared.dims[k] = (dtp_tdim){dims[c->out[k].id], c->out[k].size};
    }
    return dtp_graph_add_node(g, &spec, outs, err);
}
