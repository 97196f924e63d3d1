/* Rules: within a group, the outermost dim of size > 1 on either side may be split together with
 * its counterpart over a mesh dim that divides both: rank r then holds the same consecutive
 * elements on both sides. In a group of one dim each that is the whole dim, so uneven splits fit
 * too. */
#include "core/graph/ops/relabel.h"

#include <string.h>

#include "core/graph/ops/common.h"
#include "core/graph/op_rules.h"

int32_t dtp_relabel_groups(const dtp_ttype *in, const dtp_ttype *out,
                           dtp_relabel_group groups[DTP_MAX_RANK + 1])
{
    int32_t i = 0, o = 0, n = 0;
    while (i < in->rank || o < out->rank) {
        dtp_relabel_group g = {.in_first = i, .out_first = o};
        int64_t a = i < in->rank ? in->dims[i++].size : 1;
        int64_t b = o < out->rank ? out->dims[o++].size : 1;
        while (a != b) {
            if (a < b && i < in->rank) {
                a *= in->dims[i++].size;
            } else if (b < a && o < out->rank) {
                b *= out->dims[o++].size;
            } else {
                return -1;
            }
        }
        while (i < in->rank && in->dims[i].size == 1 &&
               !(o < out->rank && out->dims[o].size == 1)) {
            i++;
        }
        while (o < out->rank && out->dims[o].size == 1 &&
               !(i < in->rank && in->dims[i].size == 1)) {
            o++;
        }
        g.n_in = i - g.in_first;
        g.n_out = o - g.out_first;
        groups[n++] = g;
    }
    return n;
}

static dtp_status infer_relabel(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_relabel_group groups[DTP_MAX_RANK + 1];
    DTP_TRY(dtp_op__declared(call, has_out, call->in[0].dtype, out, err));
    DTP_TRY(dtp_ttype_check_size(&out[0], err));
    const long long a = (long long)dtp_ttype_elems(&call->in[0]);
    const long long b = (long long)dtp_ttype_elems(&out[0]);
    if (a != b || dtp_relabel_groups(&call->in[0], &out[0], groups) < 0) {
        return DTP_FAIL(err, DTP_INVALID, "the operand has %lld elements but 'out' has %lld", a, b);
    }
    return DTP_OK;
}

/* Position of the first dim of size > 1 in [first, first + n), -1 when there is none. */
static int32_t outermost(const dtp_ttype *type, int32_t first, int32_t n)
{
    for (int32_t i = first; i < first + n; i++) {
        if (type->dims[i].size > 1) {
            return i;
        }
    }
    return -1;
}

static void rules_relabel(const dtp_op_call *call, bool linear, dtp_sharding_rules *out)
{
    dtp_relabel_group groups[DTP_MAX_RANK + 1];
    const int32_t n = dtp_relabel_groups(&call->in[0], &call->out[0], groups);
    for (int32_t g = 0; g < n; g++) {
        const int32_t i = outermost(&call->in[0], groups[g].in_first, groups[g].n_in);
        const int32_t o = outermost(&call->out[0], groups[g].out_first, groups[g].n_out);
        if (i < 0 || o < 0) {
            continue;
        }
        dtp_sharding_rule *row = &out->rows[out->n++];
        memset(row, 0, sizeof *row);
        row->dim = call->in[0].dims[i].id;
        row->out_dim = call->out[0].dims[o].id;
        row->in[0] = (dtp_placement){.kind = DTP_SHARD, .axis = (int8_t)i};
        row->out[0] = (dtp_placement){.kind = DTP_SHARD, .axis = (int8_t)o};
    }
    if (linear) {
        dtp_sharding_rules_add_linear(out, call, 1U);
    }
}

static void work_relabel(const dtp_op_call *call, dtp_work *out)
{
    dtp_op__memory_work(call, 0.0, out);
}

static dtp_status vjp_relabel(dtp_vjp *v, dtp_err *err)
{
    return dtp_vjp_emit(v, &(dtp_vjp_op){"relabel", 1, &v->d_out[0], 0, NULL}, v->in[0],
                        &v->d_in[0], err);
}

const dtp_op_def dtp_ops_relabel[] = {
    {.name = "relabel",
     .summary = "row-major reshape to other dim names: rename, split, merge",
     .min_in = 1,
     .max_in = 1,
     .n_out = 1,
     .flags = DTP_OP_ANY_DTYPE | DTP_OP_RELABEL | DTP_OP_RENAMES,
     .infer = infer_relabel,
     .rules = rules_relabel,
     .linear = DTP_LINEAR_EACH,
     .work = work_relabel,
     .vjp = vjp_relabel,
     .inplace_in = {1},
     .f32_error = DTP_EXACT,
     .mtf_class = "ReshapeOperation"},
    {.name = NULL},
};
