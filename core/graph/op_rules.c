/* Sharding rules of an op on one mesh dim, derived from the roles of its dims. */
#include <assert.h>
#include <string.h>

#include "core/graph/op.h"
#include "core/graph/op_rules.h"

static dtp_placement place_of(const dtp_ttype *type, dtp_dim_id d, dtp_placement otherwise)
{
    int32_t axis = dtp_ttype_find(type, d);
    return axis < 0 ? otherwise : (dtp_placement){.kind = DTP_SHARD, .axis = (int8_t)axis};
}

dtp_dim_role dtp_role_of(const dtp_op_call *call, dtp_dim_id d)
{
    const dtp_dim_role parallel = {.role = DTP_ROLE_PARALLEL, .op = DTP_REDUCE_SUM};
    return call->op->role != NULL ? call->op->role(call, d) : parallel;
}

const dtp_dim_window *dtp_role_window(const dtp_dim_role *role, int32_t i)
{
    return i < DTP_OP_WINDOWS && role->window[i].per > 0 ? &role->window[i] : NULL;
}

int32_t dtp_role_base(const dtp_op_call *call, const dtp_dim_role *role, dtp_dim_id d)
{
    for (int32_t i = 0; i < call->n_out; i++) {
        if (dtp_ttype_find(&call->out[i], d) >= 0) {
            return call->n_in + i;
        }
    }
    int32_t i = 0;
    while (dtp_ttype_find(&call->in[i], d) < 0 || dtp_role_window(role, i) != NULL) {
        i++;
        assert(i < call->n_in);
    }
    return i;
}

/* Adds the row that follows from the role when dim d is split. */
static void add_role(dtp_sharding_rules *set, const dtp_op_call *call, dtp_dim_id d,
                     dtp_dim_role role)
{
    const dtp_placement replicate = {0};
    const dtp_placement missing = role.role == DTP_ROLE_REDUCED
                                      ? (dtp_placement){.kind = DTP_PARTIAL, .op = (int8_t)role.op}
                                      : replicate;
    if (role.role == DTP_ROLE_WHOLE) {
        return;
    }
    assert(set->n < DTP_MAX_RULES);
    dtp_sharding_rule *row = &set->rows[set->n++];
    memset(row, 0, sizeof *row);
    row->dim = row->out_dim = d;
    row->internal = role.role == DTP_ROLE_INTERNAL;
    for (int32_t i = 0; i < call->n_in; i++) {
        row->in[i] = place_of(&call->in[i], d, replicate);
        row->windows = row->windows || dtp_role_window(&role, i) != NULL;
    }
    for (int32_t i = 0; i < call->n_out; i++) {
        row->out[i] = place_of(&call->out[i], d, missing);
    }
}

void dtp_sharding_rules_add_roles(dtp_sharding_rules *set, const dtp_op_call *call)
{
    dtp_dim_id dims[DTP_MAX_OP_DIMS];
    const int32_t n = dtp_call_dims(call, dims);
    for (int32_t i = 0; i < n; i++) {
        add_role(set, call, dims[i], dtp_role_of(call, dims[i]));
    }
}

void dtp_sharding_rules_add_linear(dtp_sharding_rules *set, const dtp_op_call *call, uint32_t mask)
{
    const dtp_placement partial = {.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
    if (set->n == DTP_MAX_RULES) {
        return;
    }
    dtp_sharding_rule *row = &set->rows[set->n++];
    memset(row, 0, sizeof *row);
    row->dim = row->out_dim = -1;
    row->linear = true;
    for (int32_t i = 0; i < call->n_in; i++) {
        if ((mask >> i & 1U) != 0) {
            row->in[i] = partial;
        }
    }
    for (int32_t i = 0; i < call->n_out; i++) {
        row->out[i] = partial;
    }
}

void dtp_sharding_rules_of(const dtp_op_call *call, bool linear, dtp_sharding_rules *out)
{
    const dtp_op_def *op = call->op;
    out->n = 1;
    memset(&out->rows[0], 0, sizeof out->rows[0]);
    out->rows[0].dim = out->rows[0].out_dim = -1;
    if (op->rules != NULL) {
        op->rules(call, linear, out);
        return;
    }
    dtp_sharding_rules_add_roles(out, call);
    if (linear && op->linear == DTP_LINEAR_JOINT && call->in[0].dtype != DTP_BOOL) {
        dtp_sharding_rules_add_linear(out, call, (1U << call->n_in) - 1U);
    }
    for (int32_t i = 0; linear && i < call->n_in && op->linear == DTP_LINEAR_EACH; i++) {
        if (dtp_dtype_is_float(call->in[i].dtype)) {
            dtp_sharding_rules_add_linear(out, call, 1U << i);
        }
    }
}

bool dtp_renaming_fits(const dtp_op_call *call, const dtp_sharding_rule *row, int64_t parts)
{
    int64_t a = call->in[0].dims[row->in[0].axis].size;
    int64_t b = call->out[0].dims[row->out[0].axis].size;
    return a == b || (a % parts == 0 && b % parts == 0);
}
