#include "spmd/target/target.h"

#include <string.h>

static const dtp_target_op *find_op(const dtp_target *target, const dtp_op_def *op)
{
    const dtp_target_op *row = target->ops;
    while (row->op != NULL && strcmp(row->op, op->name) != 0) {
        row++;
    }
    return row;
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
