/* A row of the op table. */
#include "core/graph/op.h"

#include <assert.h>
#include <string.h>

const dtp_attr *dtp_call_attr(const dtp_op_call *call, const char *key)
{
    for (int32_t i = 0; i < call->n_attrs; i++) {
        if (strcmp(call->attrs[i].key, key) == 0) {
            return &call->attrs[i];
        }
    }
    assert(!"the op has no such attribute");
    return NULL;
}

int32_t dtp_op_moved(const dtp_op_def *op, int32_t n)
{
    const bool list = op->max_in == DTP_MAX_OP_IN;
    return (op->flags & DTP_OP_MOVES) == 0 ? 0 : list || n < 1 ? n : 1;
}

int64_t dtp_call_int(const dtp_op_call *call, const char *key)
{
    return dtp_call_attr(call, key)->i;
}

double dtp_call_float(const dtp_op_call *call, const char *key)
{
    return dtp_call_attr(call, key)->f;
}

dtp_dim_id dtp_call_dim(const dtp_op_call *call, const char *key)
{
    return (dtp_dim_id)dtp_call_attr(call, key)->i;
}

int32_t dtp_call_entry(const dtp_op_call *call, const char *key, int32_t i)
{
    const dtp_attr *list = dtp_call_attr(call, key);
    return list->ints[list->n == 1 ? 0 : i];
}

const dtp_attr_spec *dtp_op_attr(const dtp_op_def *op, const char *key)
{
    for (const dtp_attr_spec *s = op->attrs; s != NULL && s->key != NULL; s++) {
        if (strcmp(s->key, key) == 0) {
            return s;
        }
    }
    return NULL;
}

int32_t dtp_attr_choice(const dtp_attr_spec *spec, const char *name)
{
    for (int32_t i = 0; name != NULL && spec->choices[i] != NULL; i++) {
        if (strcmp(spec->choices[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

const char *dtp_call_choice(const dtp_op_call *call, const char *key)
{
    return dtp_op_attr(call->op, key)->choices[dtp_call_int(call, key)];
}

static int32_t add_dims(const dtp_ttype *type, dtp_dim_id *out, int32_t n)
{
    for (int32_t i = 0; i < type->rank; i++) {
        bool seen = false;
        for (int32_t j = 0; j < n && !seen; j++) {
            seen = out[j] == type->dims[i].id;
        }
        if (!seen && n < DTP_MAX_OP_DIMS) {
            out[n++] = type->dims[i].id;
        }
    }
    return n;
}

int32_t dtp_call_dims(const dtp_op_call *call, dtp_dim_id out[DTP_MAX_OP_DIMS])
{
    int32_t n = 0;
    for (int32_t i = 0; i < call->n_in; i++) {
        n = add_dims(&call->in[i], out, n);
    }
    for (int32_t i = 0; i < call->n_out; i++) {
        n = add_dims(&call->out[i], out, n);
    }
    return n;
}

double dtp_call_bytes(const dtp_op_call *call)
{
    double bytes = 0.0;
    for (int32_t i = 0; i < call->n_in; i++) {
        bytes += (double)dtp_ttype_bytes(&call->in[i]);
    }
    for (int32_t i = 0; i < call->n_out; i++) {
        bytes += (double)dtp_ttype_bytes(&call->out[i]);
    }
    return bytes;
}

dtp_dtype dtp_call_dtype(const dtp_op_call *call)
{
    return call->n_in > 0 ? call->in[0].dtype : call->out[0].dtype;
}

void dtp_call_work(const dtp_op_call *call, dtp_work *out)
{
    const dtp_op_def *op = call->op;
    int64_t made = 0, most = 0;
    *out = (dtp_work){.cls = DTP_WORK_MEMORY, .batch = 1};
    if (op->work != NULL) {
        op->work(call, out);
        return;
    }
    out->bytes = dtp_call_bytes(call);
    for (int32_t i = 0; i < call->n_in + call->n_out; i++) {
        const bool is_in = i < call->n_in;
        const dtp_ttype *type = is_in ? &call->in[i] : &call->out[i - call->n_in];
        const int64_t n = dtp_ttype_elems(type);
        made += is_in ? 0 : n;
        most = n > most ? n : most;
    }
    out->flops = op->elem_flops > 0.0 ? op->elem_flops * (double)most
                 : op->x_flops > 0.0  ? op->x_flops * (double)dtp_ttype_elems(&call->in[0])
                                      : (double)made;
}
