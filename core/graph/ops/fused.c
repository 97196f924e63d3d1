/* Fused ops, which the lowering puts in the place of several kernels (spmd/lower/passes/fuse.c):
 *
 *   fused_elementwise    an expression of elementwise functions of floats of one shape. Operands may
 *                        lack dims. Arithmetic is f32 (ref: f64); results are rounded once
 *   fused_elementwise2   the same with the result of an earlier step as a second result
 *
 * Attributes: "step0" .. are function * 10^6 + arg0 * 10^4 + arg1 * 10^2 + constant, where an arg is
 * an operand, or DTP_FUSED_IN + the number of an earlier step, and constant one of "c0" ..; -1 ends
 * the list. "result" is the dtype of the results (default: of operand 0), "also" the step of the
 * second one.
 */
#include "core/graph/ops/fused_ops.h"

#include "core/graph/ops/common.h"
#include "core/graph/ops/op_table.h"

typedef struct fused_function {
    const char *op, *key;
    int32_t operands;
} fused_function;

#define FUNCTION_ROW(name, n, attribute) {#name, attribute, n},
static const fused_function FUNCTIONS[] = {DTP_FUSED_FUNCTIONS(FUNCTION_ROW)};

const dtp_op_def *dtp_fused_op(int32_t function)
{
    return dtp_op_find(FUNCTIONS[function].op);
}

int32_t dtp_fused_find(const dtp_op_def *op)
{
    int32_t f = 0;
    while (f < DTP_N_FUSED && dtp_fused_op(f) != op) {
        f++;
    }
    return f < DTP_N_FUSED ? f : -1;
}

int32_t dtp_fused_operands(int32_t function)
{
    return FUNCTIONS[function].operands;
}

const char *dtp_fused_key(int32_t function)
{
    return FUNCTIONS[function].key;
}

/* ---- attributes ---------------------------------------------------------------------------------
 */

#define STEP(k)                                                                                    \
    {                                                                                              \
        .key = "step" #k, .kind = DTP_ATTR_INT, .hidden = true, .def = -1.0                        \
    }
#define CONSTANT(k)                                                                                \
    {                                                                                              \
        .key = "c" #k, .kind = DTP_ATTR_FLOAT, .hidden = true                                      \
    }
static const dtp_attr_spec ATTRS[DTP_FUSED_ATTRS + 1] = {
    STEP(0),         STEP(1),
    STEP(2),         STEP(3),
    STEP(4),         STEP(5),
    STEP(6),         STEP(7),
    STEP(8),         STEP(9),
    STEP(10),        STEP(11),
    CONSTANT(0),     CONSTANT(1),
    CONSTANT(2),     CONSTANT(3),
    DTP_RESULT_ATTR, {.key = "also", .kind = DTP_ATTR_INT, .hidden = true, .def = -1.0},
    {.key = NULL}};

enum { CONSTANTS = DTP_FUSED_STEPS, RESULT = CONSTANTS + DTP_FUSED_CONSTANTS, ALSO };

bool dtp_fused_attrs(const dtp_fused_expr *expr, dtp_dtype dtype, dtp_attr out[DTP_FUSED_ATTRS])
{
    int32_t constants = 0;
    for (int32_t k = 0; k < DTP_FUSED_ATTRS; k++) {
        out[k] = ATTRS[k].kind == DTP_ATTR_FLOAT ? dtp_attr_float(ATTRS[k].key, 0.0)
                                                 : dtp_attr_int(ATTRS[k].key, -1);
    }
    for (int32_t k = 0; k < expr->n; k++) {
        const dtp_fused_step *s = &expr->step[k];
        int32_t c = 0;
        if (FUNCTIONS[s->function].key != NULL) {
            while (c < constants && out[CONSTANTS + c].f != s->constant) {
                c++;
            }
            if (c == DTP_FUSED_CONSTANTS) {
                return false;
            }
            out[CONSTANTS + c].f = s->constant;
            constants += c == constants ? 1 : 0;
        }
        out[k].i = s->function * 1000000 + s->arg[0] * 10000 + s->arg[1] * 100 + c;
    }
    out[RESULT] = dtp_attr_int(ATTRS[RESULT].key, (int64_t)dtype);
    out[RESULT].kind = DTP_ATTR_DTYPE;
    out[ALSO].i = expr->also;
    return true;
}

dtp_status dtp_fused_expr_of(const dtp_op_call *call, dtp_fused_expr *out, dtp_err *err)
{
    *out = (dtp_fused_expr){.also = (int32_t)call->attrs[ALSO].i};
    while (out->n < DTP_FUSED_STEPS && call->attrs[out->n].i >= 0) {
        const int64_t code = call->attrs[out->n].i, f = code / 1000000, c = code % 100;
        dtp_fused_step *s = &out->step[out->n];
        if (f >= DTP_N_FUSED || c >= DTP_FUSED_CONSTANTS) {
            return DTP_FAIL(err, DTP_INVALID, "step %d has no function", out->n);
        }
        *s = (dtp_fused_step){.function = (int32_t)f,
                              .arg = {(int32_t)(code / 10000 % 100), (int32_t)(code / 100 % 100)},
                              .constant = call->attrs[CONSTANTS + c].f};
        for (int32_t a = 0; a < FUNCTIONS[f].operands; a++) {
            const int32_t of = s->arg[a] - DTP_FUSED_IN;
            if (of < 0 ? s->arg[a] >= call->n_in : of >= out->n) {
                return DTP_FAIL(err, DTP_INVALID, "step %d has no operand %d", out->n, a);
            }
        }
        out->n++;
    }
    const bool two = call->op->n_out == 2;
    return out->n > 0 && (two ? out->also >= 0 && out->also < out->n - 1 : out->also == -1)
               ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID, "%d steps, second result %d", out->n, out->also);
}

void dtp_fused_print(const dtp_op_call *call, dtp_strbuf *out)
{
    dtp_fused_expr expr;
    if (call->op->attrs != ATTRS || dtp_fused_expr_of(call, &expr, NULL) != DTP_OK) {
        return;
    }
    for (int32_t k = 0; k < expr.n; k++) {
        dtp_strbuf_addf(out, "%s%s", k == 0 ? "(" : " ", FUNCTIONS[expr.step[k].function].op);
    }
    dtp_strbuf_add(out, ")");
}

/* ---- rows ---------------------------------------------------------------------------------------
 */

static dtp_status infer_expr(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_fused_expr expr;
    dtp_ttype want;
    DTP_TRY(dtp_fused_expr_of(call, &expr, err));
    for (int32_t i = 0; i < call->n_in; i++) {
        DTP_TRY(dtp_op__need_float(call, i, err));
    }
    DTP_TRY(dtp_op__broadcast(call, 0, &want, err));
    if (call->attrs[RESULT].i != DTP_NO_DTYPE) {
        want.dtype = (dtp_dtype)call->attrs[RESULT].i;
    }
    DTP_TRY(dtp_op__set_out(call, has_out, &want, out, err));
    if (call->op->n_out == 2) {
        out[1] = out[0];
    }
    return DTP_OK;
}

/* Every operand and result moved once. */
static void work_expr(const dtp_op_call *call, dtp_work *out)
{
    dtp_fused_expr expr;
    double flops = 0.0;
    if (dtp_fused_expr_of(call, &expr, NULL) == DTP_OK) {
        for (int32_t k = 0; k < expr.n; k++) {
            flops += dtp_fused_op(expr.step[k].function)->elem_flops;
        }
    }
    out->bytes = dtp_call_bytes(call);
    out->flops = flops * (double)dtp_ttype_elems(&call->out[0]);
}

static const char *const ALSO_NAME[] = {"also"};

#define FUSED(op, text, outs)                                                                      \
    DTP_ROW(op, text, 1, DTP_FUSED_IN, outs),                                                      \
        .attrs = ATTRS, .infer = infer_expr, .flags = DTP_OP_ELEMENTWISE | DTP_OP_INTERNAL_USE,    \
        .work = work_expr, .inplace_in = {1}, .no_grad = "the lowering makes it"

const dtp_op_def dtp_ops_fused[] = {
    {FUSED("fused_elementwise", "an expression of elementwise functions", 1),
     .bench = {"rc rc | step0=1000100 step1=17060000"}},
    {FUSED("fused_elementwise2", "the same, and the result of an earlier step", 2),
     .out_names = ALSO_NAME, .bench = {"rc c | step0=1000100 step1=17060000 also=0"}},
    {.name = NULL},
};

const dtp_op_def *dtp_fused_elementwise(int32_t n_out)
{
    return &dtp_ops_fused[n_out - 1];
}
