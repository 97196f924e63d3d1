/* Fused ops. An expression runs step by step over blocks of elements that stay in the first-level
 * cache, by the functions of the single ops: in f32 the values are bitwise theirs. */
#include "core/graph/ops/fused_ops.h"

#include "executor/cpu/elementwise.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/loops/halves.h"
#include "executor/device/backend.h"
#include "executor/device/fused_product.h"
#include "executor/device/linear_loss.h"

enum { BLOCK = 512, VIEWS = DTP_FUSED_OUT + DTP_FUSED_IN };

typedef struct expr_job {
    dtp_fused_expr expr;
    dtp_elementwise_fn run[DTP_FUSED_STEPS];
    dtp_nest nest; /* views: outputs, operands */
    int32_t n_in, n_out;
    void *data[VIEWS];
    int64_t step[VIEWS];
    dtp_dtype dtype[VIEWS];
} expr_job;

/* A block of n elements, from `off` on in every view. */
static void run_block(const expr_job *job, int64_t n, const int64_t off[VIEWS])
{
    float in[DTP_FUSED_IN][BLOCK], value[DTP_FUSED_STEPS][BLOCK];
    const float *at[DTP_FUSED_IN + DTP_FUSED_STEPS] = {NULL};
    int64_t step[DTP_FUSED_IN + DTP_FUSED_STEPS] = {0};
    for (int32_t i = 0; i < job->n_in; i++) {
        const int32_t v = job->n_out + i;
        at[i] = (const float *)job->data[v] + off[v];
        step[i] = job->step[v];
        if (dtp_dtype_is_half(job->dtype[v])) {
            const char *from = (const char *)job->data[v] + off[v] * dtp_dtype_bytes(job->dtype[v]);
            dtp_widen(job->dtype[v], step[i] == 0 ? 1 : n, from, step[i], in[i]);
            at[i] = in[i];
            step[i] = step[i] != 0;
        }
    }
    for (int32_t k = 0; k < job->expr.n; k++) {
        const dtp_fused_step *s = &job->expr.step[k];
        const int32_t result = k == job->expr.n - 1 ? 0 : k == job->expr.also ? 1 : -1;
        const bool direct = result >= 0 && job->dtype[result] == DTP_F32;
        float *to = direct ? (float *)job->data[result] + off[result] : &value[k][0];
        const dtp_elementwise_run run = {.n = n,
                                         .in = {at[s->arg[0]], at[s->arg[1]]},
                                         .step = {step[s->arg[0]], step[s->arg[1]]},
                                         .out = to,
                                         .a = (float)s->constant,
                                         .dtype = DTP_F32,
                                         .from = {DTP_F32, DTP_F32}};
        job->run[k](&run);
        at[DTP_FUSED_IN + k] = to;
        step[DTP_FUSED_IN + k] = 1;
        if (result >= 0 && !direct) {
            const int64_t bytes = dtp_dtype_bytes(job->dtype[result]);
            dtp_narrow(job->dtype[result], n, to, (char *)job->data[result] + off[result] * bytes,
                       1);
        }
    }
}

static void run_piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const expr_job *job = user;
    for (int64_t from = 0; from < n; from += BLOCK) {
        int64_t at[VIEWS] = {0};
        for (int32_t v = 0; v < job->n_out + job->n_in; v++) {
            at[v] = off[v] + from * job->step[v];
        }
        run_block(job, n - from < BLOCK ? n - from : BLOCK, at);
    }
}

static dtp_status expr_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    const dtp_view *views[VIEWS];
    expr_job *job;
    DTP_STATE(arena, state, job, err);
    DTP_TRY(dtp_fused_expr_of(args->call, &job->expr, err));
    for (int32_t k = 0; k < job->expr.n; k++) {
        const char *name = job->expr.step[k].op->name;
        job->run[k] = dtp_cpu_function(name);
        if (job->run[k] == NULL) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "backend cpu has no function '%s'", name);
        }
    }
    job->n_in = args->call->n_in;
    job->n_out = args->call->n_out;
    for (int32_t v = 0; v < job->n_out + job->n_in; v++) {
        views[v] = v < job->n_out ? &args->out[v] : &args->in[v - job->n_out];
        job->dtype[v] = views[v]->local.dtype;
    }
    dtp_nest_like(&job->nest, job->n_out + job->n_in, views);
    for (int32_t v = 0; v < job->n_out + job->n_in; v++) {
        job->step[v] = dtp_nest_step(&job->nest, v);
    }
    return DTP_OK;
}

static dtp_status expr_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    expr_job *job = args->state;
    (void)err;
    for (int32_t v = 0; v < job->n_out + job->n_in; v++) {
        job->data[v] = v < job->n_out ? args->out[v].data : args->in[v - job->n_out].data;
    }
    dtp_nest_each(&job->nest, args->threads, run_piece, job);
    return DTP_OK;
}

/* ---- norms: the expression, then the kernel of the norm ---- */

typedef struct parts {
    dtp_op_call expr_call, norm_call;
    dtp_ttype types[3];
    dtp_view norm_in[3]; /* the expression's result and the norm's other operands */
    dtp_bound_kernel expr, norm;
} parts;

/* Data and offsets of the norm's operands are those of this run. */
static void set_operands(parts *p, const dtp_kernel_args *args)
{
    p->norm_in[0] = args->out[args->call->n_out - 1];
    for (int32_t i = 1; i < p->norm_call.n_in; i++) {
        p->norm_in[i] = args->in[args->call->n_in - p->norm_call.n_in + i];
    }
}

static dtp_status norm_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    parts *p;
    DTP_STATE(arena, state, p, err);
    p->expr_call = dtp_fused_norm_expression(args->call);
    p->norm_call = dtp_fused_norm_call(args->call, p->types);
    set_operands(p, args);
    const dtp_kernel_args expr = {.call = &p->expr_call,
                                  .in = args->in,
                                  .out = &args->out[args->call->n_out - 1],
                                  .record = args->record};
    const dtp_kernel_args norm = {
        .call = &p->norm_call, .in = p->norm_in, .out = args->out, .record = args->record};
    DTP_TRY(dtp_backend_bind(args->backend, &expr, arena, &p->expr, err));
    return dtp_backend_bind(args->backend, &norm, arena, &p->norm, err);
}

static dtp_status norm_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    parts *p = args->state;
    set_operands(p, args);
    DTP_TRY(dtp_bound_kernel_run(&p->expr, err));
    return dtp_bound_kernel_run(&p->norm, err);
}

const dtp_kernel dtp_cpu_fused[] = {
    {"fused_elementwise", expr_kernel, expr_bind, DTP_FLOATS},
    {"fused_elementwise2", expr_kernel, expr_bind, DTP_FLOATS},
    {"fused_product", dtp_fused_product_run, dtp_fused_product_bind, DTP_FLOATS},
    {"fused_product2", dtp_fused_product_run, dtp_fused_product_bind, DTP_FLOATS},
    {"fused_product_sum", dtp_fused_product_run, dtp_fused_product_bind, DTP_FLOATS},
    {"fused_operand_sum", dtp_fused_product_run, dtp_fused_product_bind, DTP_FLOATS},
    {"fused_layer_norm", norm_kernel, norm_bind, DTP_FLOATS},
    {"fused_rms_norm", norm_kernel, norm_bind, DTP_FLOATS},
    {"linear_loss", dtp_linear_loss_run, dtp_linear_loss_bind, DTP_NUMBERS},
    {"linear_loss_grad", dtp_linear_loss_run, dtp_linear_loss_bind, DTP_NUMBERS},
    {.op = NULL}};
