/* Fused ops, which the lowering puts in the place of several kernels (spmd/lower/passes/fuse.c):
 *
 *   fused_elementwise    an expression of elementwise functions of floats of one shape. Operands
 *                        may lack dims. Arithmetic is f32 (ref: f64); results are rounded once
 *   fused_elementwise2   the same with the result of an earlier step as a second result
 *   fused_layer_norm     the norm of an expression, which is its last result; the operands of the
 *   fused_rms_norm       norm behind those of the expression. Rows are whole; the norm is that of
 *                        the expression's rounded result
 *
 * Attributes: "step0" .. are row * 10^6 + arg0 * 10^4 + arg1 * 10^2 + constant. The row is that of
 * the function in the elementwise family; an arg is an operand, or DTP_FUSED_IN + the number of an
 * earlier step; the constant is one of "c0" ..; -1 ends the list. "result" is the dtype of the
 * results (default: of operand 0), "also" the step of the second one.
 */
#include "core/graph/ops/fused_ops.h"

#include <stdlib.h>
#include <string.h>

#include "core/graph/op_set.h"
#include "core/graph/ops/common.h"
#include "core/graph/ops/norm.h"
#include "core/graph/ops/rows.h"

extern const dtp_op_def dtp_ops_elementwise[], dtp_ops_norm[], dtp_ops_fused[];
extern const int32_t dtp_ops_elementwise_rows;

static const dtp_op_def *find_row(const dtp_op_def *row, const char *name)
{
    while (row->name[0] != name[0] || strcmp(row->name, name) != 0) {
        row++;
    }
    return row;
}

const dtp_op_def *dtp_fused_op(dtp_fused_function function)
{
    static const char *const names[] = {"add", "mul", "gelu", "gelu_grad"};
    return find_row(dtp_ops_elementwise, names[function]);
}

const char *dtp_fused_key(const dtp_op_def *op)
{
    const dtp_attr_spec *spec = op->attrs;
    while (spec != NULL && spec->key != NULL && spec->kind != DTP_ATTR_FLOAT) {
        spec++;
    }
    return spec != NULL ? spec->key : NULL;
}

/* ---- attributes ---- */

#define STEP(k)                                                                                    \
    {                                                                                              \
        .key = "step" #k, .kind = DTP_ATTR_INT, .hidden = true, .def = -1.0                        \
    }
#define CONSTANT(k)                                                                                \
    {                                                                                              \
        .key = "c" #k, .kind = DTP_ATTR_FLOAT, .hidden = true                                      \
    }
/* The attributes of an expression, DTP_FUSED_ATTRS of them. */
#define EXPRESSION                                                                                 \
    STEP(0), STEP(1), STEP(2), STEP(3), STEP(4), STEP(5), STEP(6), STEP(7), STEP(8), STEP(9),      \
        STEP(10), STEP(11), CONSTANT(0), CONSTANT(1), CONSTANT(2), CONSTANT(3), DTP_RESULT_ATTR,   \
    {                                                                                              \
        .key = "also", .kind = DTP_ATTR_INT, .hidden = true, .def = -1.0                           \
    }
const dtp_attr_spec dtp_fused_expression_attrs[] = {EXPRESSION, {.key = NULL}};
static const dtp_attr_spec NORM_ATTRS[] = {
    DTP_ROWS_OVER,
    {.key = "eps", .kind = DTP_ATTR_FLOAT, .required = true, .min = 0.0, .max = 1e30},
    EXPRESSION,
    {.key = NULL}};

const char *const dtp_fused_also[] = {"also"};

enum { CONSTANTS = DTP_FUSED_STEPS, RESULT = DTP_FUSED_RESULT, ALSO };

static int64_t step_code(int32_t row, int32_t a, int32_t b, int32_t constant)
{
    return (int64_t)row * 1000000 + a * 10000 + b * 100 + constant;
}

dtp_status dtp_fused_step_parse(const char *text, int64_t *out, dtp_err *err)
{
    const size_t n = strcspn(text, ":");
    const dtp_op_def *row = dtp_ops_elementwise;
    int32_t arg[3] = {0};
    const char *p = text + n + (text[n] == ':' ? 1 : 0);
    bool fits = text[n] == ':';
    while (row->name != NULL && (strlen(row->name) != n || memcmp(row->name, text, n) != 0)) {
        row++;
    }
    for (int32_t k = 0; k < 3 && *p != '\0' && fits; k++) {
        const bool step = *p == 's'; /* the result of a step, else an operand or a constant */
        char *end;
        p += step ? 1 : 0;
        const long value = strtol(p, &end, 10);
        fits = end > p && value >= 0 && value < DTP_FUSED_STEPS;
        arg[k] = (int32_t)value + (step ? DTP_FUSED_IN : 0);
        p = *end == ',' ? end + 1 : end;
    }
    if (row->name == NULL || !dtp_fused_is_function(row) || !fits || *p != '\0' ||
        arg[2] >= DTP_FUSED_CONSTANTS) {
        return DTP_FAIL(err, DTP_INVALID, "'%.60s' is no step of an expression", text);
    }
    *out = step_code((int32_t)(row - dtp_ops_elementwise), arg[0], arg[1], arg[2]);
    return DTP_OK;
}

bool dtp_fused_attrs(const dtp_fused_expr *expr, dtp_dtype dtype, dtp_attr out[DTP_FUSED_ATTRS])
{
    int32_t constants = 0;
    for (int32_t k = 0; k < DTP_FUSED_ATTRS; k++) {
        out[k] = dtp_fused_expression_attrs[k].kind == DTP_ATTR_FLOAT
                     ? dtp_attr_float(dtp_fused_expression_attrs[k].key, 0.0)
                     : dtp_attr_int(dtp_fused_expression_attrs[k].key, -1);
    }
    for (int32_t k = 0; k < expr->n; k++) {
        const dtp_fused_step *s = &expr->step[k];
        int32_t c = 0;
        if (dtp_fused_key(s->op) != NULL) {
            while (c < constants && out[CONSTANTS + c].f != s->constant) {
                c++;
            }
            if (c == DTP_FUSED_CONSTANTS) {
                return false;
            }
            out[CONSTANTS + c].f = s->constant;
            constants += c == constants ? 1 : 0;
        }
        out[k].i = step_code((int32_t)(s->op - dtp_ops_elementwise), s->arg[0], s->arg[1], c);
    }
    out[RESULT] = dtp_attr_int(dtp_fused_expression_attrs[RESULT].key, (int64_t)dtype);
    out[RESULT].kind = DTP_ATTR_DTYPE;
    out[ALSO].i = expr->also;
    return true;
}

const dtp_op_def *dtp_fused_norm_of(const dtp_op_def *op)
{
    const dtp_op_def *row = dtp_ops_fused;
    while (row->name != NULL && !dtp_op_same(row, op)) {
        row++;
    }
    return row->attrs == NORM_ATTRS ? find_row(dtp_ops_norm, row->user) : NULL;
}

/* The attributes of the expression of a fused op, behind those of a norm. */
static const dtp_attr *expression_of(const dtp_op_call *call)
{
    return call->attrs + (dtp_fused_norm_of(call->op) != NULL ? DTP_FUSED_NORM_ATTRS : 0);
}

dtp_status dtp_fused_expr_of(const dtp_op_call *call, dtp_fused_expr *out, dtp_err *err)
{
    const dtp_attr *attrs = expression_of(call);
    *out = (dtp_fused_expr){.also = (int32_t)attrs[ALSO].i};
    while (out->n < DTP_FUSED_STEPS && attrs[out->n].i >= 0) {
        const int64_t code = attrs[out->n].i, row = code / 1000000, c = code % 100;
        dtp_fused_step *s = &out->step[out->n];
        if (row >= dtp_ops_elementwise_rows || !dtp_fused_is_function(&dtp_ops_elementwise[row]) ||
            c >= DTP_FUSED_CONSTANTS) {
            return DTP_FAIL(err, DTP_INVALID, "step %d has no function", out->n);
        }
        *s = (dtp_fused_step){.op = &dtp_ops_elementwise[row],
                              .arg = {(int32_t)(code / 10000 % 100), (int32_t)(code / 100 % 100)},
                              .constant = attrs[CONSTANTS + c].f};
        for (int32_t a = 0; a < s->op->max_in; a++) {
            const int32_t of = s->arg[a] - DTP_FUSED_IN;
            if (of < 0 ? s->arg[a] >= call->n_in : of >= out->n) {
                return DTP_FAIL(err, DTP_INVALID, "step %d has no operand %d", out->n, a);
            }
        }
        out->n++;
    }
    const char *const *names = call->op->out_names;
    const bool two = names != NULL && strcmp(names[0], dtp_fused_also[0]) == 0;
    return out->n > 0 && (two ? out->also >= 0 && out->also < out->n - 1 : out->also == -1)
               ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID, "%d steps, second result %d", out->n, out->also);
}

void dtp_fused_print(const dtp_op_call *call, dtp_strbuf *out)
{
    dtp_fused_expr expr;
    if ((call->op->attrs != dtp_fused_expression_attrs && dtp_fused_norm_of(call->op) == NULL) ||
        dtp_fused_expr_of(call, &expr, NULL) != DTP_OK) {
        return;
    }
    for (int32_t k = 0; k < expr.n; k++) {
        dtp_strbuf_addf(out, "%s%s", k == 0 ? "(" : " ", expr.step[k].op->name);
    }
    dtp_strbuf_add(out, ")");
}

/* ---- rows ---- */

/* The type of the result of an expression of the first n operands. */
static dtp_status expression_type(const dtp_op_call *call, int32_t n, dtp_ttype *out, dtp_err *err)
{
    dtp_fused_expr expr;
    dtp_op_call first = *call;
    first.n_in = n;
    DTP_TRY(dtp_fused_expr_of(&first, &expr, err));
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(dtp_op__need_float(call, i, err));
    }
    DTP_TRY(dtp_op__broadcast(&first, 0, out, err));
    const int64_t dtype = expression_of(call)[RESULT].i;
    out->dtype = dtype != DTP_NO_DTYPE ? (dtp_dtype)dtype : out->dtype;
    return DTP_OK;
}

static dtp_status infer_expr(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype want;
    DTP_TRY(expression_type(call, call->n_in, &want, err));
    DTP_TRY(dtp_op__set_out(call, has_out, &want, out, err));
    if (call->op->n_out == 2) {
        out[1] = out[0];
    }
    return DTP_OK;
}

dtp_op_call dtp_fused_norm_call(const dtp_op_call *call, dtp_ttype in[3])
{
    dtp_op_call norm = *call;
    norm.op = dtp_fused_norm_of(call->op);
    norm.n_attrs = DTP_FUSED_NORM_ATTRS;
    norm.n_in = norm.op->min_in;
    norm.n_out = norm.op->n_out;
    norm.in = in;
    for (int32_t i = 1; i < norm.n_in; i++) {
        in[i] = call->in[call->n_in - norm.n_in + i];
    }
    if (call->out != NULL) {
        in[0] = call->out[call->n_out - 1];
    }
    return norm;
}

dtp_op_call dtp_fused_norm_expression(const dtp_op_call *call)
{
    dtp_op_call expr = *call;
    expr.op = dtp_fused_elementwise(1);
    expr.attrs = expression_of(call);
    expr.n_attrs = DTP_FUSED_ATTRS;
    expr.n_in = call->n_in - dtp_fused_norm_of(call->op)->min_in + 1;
    expr.n_out = 1;
    expr.out = &call->out[call->n_out - 1];
    return expr;
}

static dtp_status infer_norm(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype in[3];
    dtp_op_call untyped = *call;
    untyped.out = NULL;
    const dtp_op_call norm = dtp_fused_norm_call(&untyped, in);
    DTP_TRY(expression_type(call, call->n_in - norm.n_in + 1, &in[0], err));
    DTP_TRY(norm.op->infer(&norm, has_out, out, err));
    out[norm.n_out] = in[0];
    return DTP_OK;
}

/* Every operand and result moved once. */
static void work_expr(const dtp_op_call *call, dtp_work *out)
{
    dtp_fused_expr expr;
    double flops = 0.0;
    if (dtp_fused_expr_of(call, &expr, NULL) == DTP_OK) {
        for (int32_t k = 0; k < expr.n; k++) {
            flops += expr.step[k].op->elem_flops;
        }
    }
    if (dtp_fused_norm_of(call->op) != NULL) {
        flops += dtp_fused_norm_of(call->op)->x_flops;
    }
    out->bytes = dtp_call_bytes(call);
    out->flops = flops * (double)dtp_ttype_elems(&call->out[0]);
}

#define FUSED(op, text, outs)                                                                      \
    DTP_ROW(op, text, 1, DTP_FUSED_IN, outs),                                                      \
        .attrs = dtp_fused_expression_attrs, .infer = infer_expr,                                  \
        .flags = DTP_OP_ELEMENTWISE | DTP_OP_INTERNAL_USE, .work = work_expr, .inplace_in = {1},   \
        .no_grad = DTP_NO_LOWERING_GRAD, .rates = "add"

#define FUSED_NORM(op, of, more, outs, names)                                                      \
    DTP_ROW(op, of " of an expression", 1 + (more), DTP_FUSED_IN + (more), outs),                  \
        .user = (of), .attrs = NORM_ATTRS, .infer = infer_norm, .flags = DTP_OP_INTERNAL_USE,      \
        .role = dtp_rows__role_whole, .work = work_expr, .out_names = (names),                     \
        .no_grad = DTP_NO_LOWERING_GRAD, .rates = (of), .f32_error = 4e-6

static const char *const LAYER_NAMES[] = {"mean", "rstd", "x"}, *const RMS_NAMES[] = {"rstd", "x"};

const dtp_op_def dtp_ops_fused[] = {
    {FUSED("fused_elementwise", "an expression of elementwise functions", 1),
     .bench = {"rc rc | step0=add:0,1 step1=gelu:s0"}},
    {FUSED("fused_elementwise2", "the same, and the result of an earlier step", 2),
     .out_names = dtp_fused_also, .bench = {"rc c | step0=add:0,1 step1=gelu:s0 also=0"}},
    {FUSED_NORM("fused_layer_norm", "layer_norm", 2, 4, LAYER_NAMES), .inplace_in = {0, 0, 0, 1},
     .bench = {"rc rc c c | over=c eps=1e-5 step0=add:0,1"}},
    {FUSED_NORM("fused_rms_norm", "rms_norm", 1, 3, RMS_NAMES), .inplace_in = {0, 0, 1},
     .bench = {"rc rc c | over=c eps=1e-6 step0=add:0,1"}},
    {.name = NULL},
};

const dtp_op_def *dtp_fused_elementwise(int32_t n_out)
{
    return &dtp_ops_fused[n_out - 1];
}

const dtp_op_def *dtp_fused_norm(const dtp_op_def *norm)
{
    const dtp_op_def *op = &dtp_ops_fused[DTP_FUSED_OUT];
    while (op->name != NULL && dtp_fused_norm_of(op) != norm) {
        op++;
    }
    return op->name != NULL ? op : NULL;
}
