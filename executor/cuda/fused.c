/* Fused ops: expressions as a nest of results and operands; norms of expressions, a block a row. */
#include "core/graph/ops/fused_ops.h"

#include <string.h>

#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/elementwise/elementwise.h"
#include "executor/cuda/kernels/elementwise/fused.h"
#include "executor/device/linear_loss.h"

#define OP_NUMBER(op, ...) {#op, DTP_CUDA_OP_##op},
static const struct {
    const char *name;
    int32_t number;
} FUNCTIONS[] = {DTP_CUDA_UNARY(OP_NUMBER) DTP_CUDA_BINARY(OP_NUMBER)
                     DTP_CUDA_ARITHMETIC(OP_NUMBER)};
enum { N_FUNCTIONS = sizeof FUNCTIONS / sizeof FUNCTIONS[0] };

/* Everything but the nest. */
static dtp_status set_steps(const dtp_op_call *call, dtp_cuda_expr *out, dtp_err *err)
{
    dtp_fused_expr expr;
    DTP_TRY(dtp_fused_expr_of(call, &expr, err));
    out->n = expr.n;
    out->also = expr.also;
    out->n_in = call->n_in;
    out->n_out = call->n_out;
    for (int32_t k = 0; k < expr.n; k++) {
        const dtp_fused_step *s = &expr.step[k];
        const bool cast = (s->op->flags & DTP_OP_CAST) != 0; /* a product with 1 */
        int32_t f = 0;
        while (f < N_FUNCTIONS && !cast && strcmp(FUNCTIONS[f].name, s->op->name) != 0) {
            f++;
        }
        if (f == N_FUNCTIONS) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "backend cuda has no function '%s'", s->op->name);
        }
        out->step[k].op = cast ? DTP_CUDA_OP_scale : FUNCTIONS[f].number;
        out->step[k].constant = cast ? 1.0f : (float)s->constant;
        for (int32_t a = 0; a < DTP_FUSED_ARGS; a++) {
            const int32_t of = s->arg[a] - DTP_FUSED_IN;
            out->step[k].arg[a] = of >= 0 ? call->n_in + of : s->arg[a];
        }
    }
    for (int32_t v = 0; v < call->n_out + call->n_in; v++) {
        out->dtype[v] = (int32_t)(v < call->n_out ? call->out[v] : call->in[v - call->n_out]).dtype;
    }
    return DTP_OK;
}

static dtp_status expr_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    const dtp_op_call *call = args->call;
    const dtp_view *views[DTP_FUSED_OUT + DTP_FUSED_IN];
    dtp_cuda_expr *e;
    dtp_nest nest;
    DTP_STATE(arena, state, e, err);
    DTP_TRY(set_steps(call, e, err));
    for (int32_t v = 0; v < call->n_out + call->n_in; v++) {
        views[v] = v < call->n_out ? &args->out[v] : &args->in[v - call->n_out];
    }
    dtp_nest_like(&nest, call->n_out + call->n_in, views);
    return dtp_cuda_nest_of(&nest, &e->nest, err);
}

static dtp_status expr_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_cuda_expr *e = args->state;
    dtp_cuda_expr_data data = {{NULL}};
    for (int32_t v = 0; v < e->n_out + e->n_in; v++) {
        data.at[v] = v < e->n_out ? args->out[v].data : args->in[v - e->n_out].data;
    }
    if (e->nest.total > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_expr_run(dtp_cuda_stream(args), e, &data));
    }
    return DTP_OK;
}

/* ---- norms ---- */

/* Views of y, gamma, rstd, beta and mean; how many there are. */
static int32_t norm_views(const dtp_kernel_args *args, const dtp_view *out[DTP_CUDA_NORM_VIEWS])
{
    const dtp_op_call *call = args->call;
    const bool centred = call->n_out == 4;
    out[DTP_CUDA_Y] = &args->out[0];
    out[DTP_CUDA_GAMMA] = &args->in[call->n_in - (centred ? 2 : 1)];
    out[DTP_CUDA_RSTD] = &args->out[call->n_out - 2];
    out[DTP_CUDA_BETA] = &args->in[call->n_in - 1];
    out[DTP_CUDA_MEAN] = &args->out[1];
    return centred ? DTP_CUDA_NORM_VIEWS : DTP_CUDA_BETA;
}

static dtp_status norm_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    const dtp_op_call expr = dtp_fused_norm_expression(args->call);
    const dtp_view *views[1 + DTP_FUSED_IN] = {&args->out[args->call->n_out - 1]};
    const dtp_view *norm[DTP_CUDA_NORM_VIEWS];
    const int32_t n_norm = norm_views(args, norm);
    dtp_view_over dims;
    dtp_cuda_fused_norm *f;
    dtp_nest nest;
    DTP_STATE(arena, state, f, err);
    DTP_TRY(set_steps(&expr, &f->expr, err));
    for (int32_t k = 0; k < expr.n_in; k++) {
        views[k + 1] = &args->in[k];
    }
    f->centred = n_norm == DTP_CUDA_NORM_VIEWS;
    f->dtype = (int32_t)args->out[0].local.dtype;
    f->eps = (float)dtp_call_float(args->call, "eps");
    dtp_view_split(args->call, "over", views[0], &dims);
    dtp_nest_make(&nest, dims.n_rows, dims.rows, 1 + expr.n_in, views);
    DTP_TRY(dtp_cuda_nest_of(&nest, &f->expr.nest, err));
    dtp_nest_make(&nest, dims.n_over, dims.over, 1 + expr.n_in, views);
    DTP_TRY(dtp_cuda_nest_of(&nest, &f->over, err));
    dtp_nest_make(&nest, dims.n_rows, dims.rows, n_norm, norm);
    DTP_TRY(dtp_cuda_nest_of(&nest, &f->norm_rows, err));
    dtp_nest_make(&nest, dims.n_over, dims.over, n_norm, norm);
    return dtp_cuda_nest_of(&nest, &f->norm_over, err);
}

static dtp_status norm_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_cuda_fused_norm *f = args->state;
    const dtp_view *norm[DTP_CUDA_NORM_VIEWS];
    const int32_t n_norm = norm_views(args, norm);
    dtp_cuda_expr_data data = {{args->out[args->call->n_out - 1].data}};
    dtp_cuda_norm_data to = {{NULL}};
    for (int32_t k = 0; k < f->expr.n_in; k++) {
        data.at[k + 1] = args->in[k].data;
    }
    for (int32_t v = 0; v < n_norm; v++) {
        to.at[v] = norm[v]->data;
    }
    if (f->expr.nest.total > 0 && f->over.total > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_fused_norm_run(dtp_cuda_stream(args), f, &data, &to));
    }
    return DTP_OK;
}

const dtp_kernel dtp_cuda_fused[] = {
    {"fused_elementwise", expr_kernel, expr_bind, DTP_FLOATS},
    {"fused_elementwise2", expr_kernel, expr_bind, DTP_FLOATS},
    {"fused_layer_norm", norm_kernel, norm_bind, DTP_FLOATS},
    {"fused_rms_norm", norm_kernel, norm_bind, DTP_FLOATS},
    {"linear_loss", dtp_linear_loss_run, dtp_linear_loss_bind, DTP_NUMBERS},
    {"linear_loss_grad", dtp_linear_loss_run, dtp_linear_loss_bind, DTP_NUMBERS},
    {.op = NULL}};
