/* Optimizer updates, one pass over parameter, gradient and slots each. Outputs may be the operands
 * themselves: element i is read before it is written. */
#include <math.h>
#include <string.h>

#include "executor/cpu/halves.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/nest.h"
#include "executor/cpu/simd.h"
#include "executor/device/loss_scale.h"

typedef enum rule { SGD, MOMENTUM, ADAM, ADAMW, SUM, FIRST } rule;

/* Constants of one step. Adam: step = lr / (1 - beta1^t), root = 1 / sqrt(1 - beta2^t). */
typedef struct update_job {
    rule rule;
    float lr, decay, momentum, beta1, beta2, eps, step, root;
    bool scaled;
    float factor; /* of the gradient, when it is scaled */
    int32_t slots;
    const float *p, *g, *m, *v;
    float *p_out, *m_out, *v_out;
    dtp_dtype dtype; /* of all; 16-bit ones are widened before they are looked at */
} update_job;

DTP_CPU_CLONES static void sgd_run(const update_job *job, int64_t at, int64_t n)
{
    const float *p = job->p + at, *g = job->g + at;
    float *out = job->p_out + at, lr = job->lr, decay = job->decay;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        out[i] = p[i] - lr * (g[i] + decay * p[i]);
    }
}

DTP_CPU_CLONES static void momentum_run(const update_job *job, int64_t at, int64_t n)
{
    const float *p = job->p + at, *g = job->g + at, *m = job->m + at;
    float *p_out = job->p_out + at, *m_out = job->m_out + at;
    float lr = job->lr, decay = job->decay, momentum = job->momentum;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float mi = momentum * m[i] + g[i] + decay * p[i];
        m_out[i] = mi;
        p_out[i] = p[i] - lr * mi;
    }
}

DTP_CPU_CLONES static void adam_run(const update_job *job, int64_t at, int64_t n)
{
    const float *p = job->p + at, *g = job->g + at, *m = job->m + at, *v = job->v + at;
    float *p_out = job->p_out + at, *m_out = job->m_out + at, *v_out = job->v_out + at;
    float b1 = job->beta1, b2 = job->beta2, eps = job->eps, step = job->step, root = job->root;
    float in_gradient = job->rule == ADAM ? job->decay : 0.0f;
    float direct = job->rule == ADAMW ? job->lr * job->decay : 0.0f;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float pi = p[i], gi = g[i] + in_gradient * pi;
        float mi = b1 * m[i] + (1.0f - b1) * gi;
        float vi = b2 * v[i] + (1.0f - b2) * gi * gi;
        m_out[i] = mi;
        v_out[i] = vi;
        p_out[i] = pi - step * mi / (sqrtf(vi) * root + eps) - direct * pi;
    }
}

/* p: the sum so far, g: what is added. */
DTP_CPU_CLONES static void sum_run(const update_job *job, int64_t at, int64_t n)
{
    const float *p = job->p + at, *g = job->g + at;
    float *out = job->p_out + at;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        out[i] = p[i] + g[i];
    }
}

static void update_run(const update_job *job, int64_t at, int64_t n)
{
    switch (job->rule) {
    case SGD:
        sgd_run(job, at, n);
        break;
    case MOMENTUM:
        momentum_run(job, at, n);
        break;
    case SUM:
        sum_run(job, at, n);
        break;
    case FIRST:
        memcpy(job->p_out + at, job->g + at, (size_t)n * sizeof *job->g);
        break;
    default:
        adam_run(job, at, n);
        break;
    }
}

/* A block of at most DTP_HALF_BLOCK elements: 16-bit floats are widened and narrowed, and gradients
 * are multiplied by the factor. */
static void update_block(const update_job *job, int64_t at, int64_t n)
{
    const bool half = dtp_dtype_is_half(job->dtype);
    const void *const in[] = {job->p, job->g, job->m, job->v};
    void *const out[] = {job->p_out, job->m_out, job->v_out};
    float from[4][DTP_HALF_BLOCK], to[3][DTP_HALF_BLOCK];
    update_job block = *job;
    block.p = half ? from[0] : job->p + at;
    block.g = half ? from[1] : job->g + at;
    block.m = half ? from[2] : job->m + at;
    block.v = half ? from[3] : job->v + at;
    block.p_out = half ? to[0] : job->p_out + at;
    block.m_out = half ? to[1] : job->m_out + at;
    block.v_out = half ? to[2] : job->v_out + at;
    for (int32_t k = 0; half && k < 2 + job->slots; k++) {
        dtp_widen(job->dtype, n, (const uint16_t *)in[k] + at, 1, from[k]);
    }
    for (int64_t i = 0; job->scaled && i < n; i++) {
        from[1][i] = job->factor * block.g[i];
    }
    block.g = job->scaled ? from[1] : block.g;
    update_run(&block, 0, n);
    for (int32_t k = 0; half && k < 1 + job->slots; k++) {
        dtp_narrow(job->dtype, n, to[k], (uint16_t *)out[k] + at, 1);
    }
}

static void update_piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const update_job *job = user;
    if (!job->scaled && !dtp_dtype_is_half(job->dtype)) {
        update_run(job, off[0], n);
        return;
    }
    for (int64_t at = 0; at < n; at += DTP_HALF_BLOCK) {
        update_block(job, off[0] + at, n - at < DTP_HALF_BLOCK ? n - at : DTP_HALF_BLOCK);
    }
}

static double learning_rate(const dtp_kernel_args *args)
{
    return dtp_call_float(args->call, "lr") * args->record->lr_scale;
}

/* The outputs are the operands. */
static dtp_status skip(const dtp_kernel_args *args)
{
    const dtp_op_call *call = args->call;
    for (int32_t o = 0; o < call->n_out; o++) {
        const dtp_view *from = &args->in[call->op->inplace_in[o] - 1];
        if (from->data != args->out[o].data) {
            memcpy(args->out[o].data, from->data, (size_t)dtp_ttype_bytes(&from->local));
        }
    }
    return DTP_OK;
}

static dtp_status update(const dtp_kernel_args *args, update_job *job, dtp_err *err)
{
    (void)err;
    const dtp_op_call *call = args->call;
    job->p = args->in[0].data;
    job->g = args->in[1].data;
    job->dtype = args->in[0].local.dtype;
    job->p_out = args->out[0].data;
    job->m = job->v = job->p; /* where there are no slots: not read */
    job->m_out = job->v_out = job->p_out;
    if (job->rule != SUM && job->rule != FIRST) {
        job->lr = (float)learning_rate(args);
        job->decay = (float)dtp_call_float(call, "weight_decay");
    }
    if (call->n_out > 1) {
        job->m = args->in[2].data;
        job->m_out = args->out[1].data;
    }
    if (call->n_out > 2) {
        job->v = args->in[3].data;
        job->v_out = args->out[2].data;
    }
    const dtp_view *factor = &args->in[call->n_in - 1];
    job->slots = call->n_out - 1;
    job->scaled = call->n_in > call->n_out + 1;
    job->factor = job->scaled ? dtp_float_at(factor->local.dtype, factor->data, 0) : 1.0f;
    if (job->factor == 0.0f) {
        return skip(args);
    }
    const dtp_view *views[] = {&args->out[0]};
    dtp_nest nest;
    dtp_nest_like(&nest, 1, views);
    dtp_nest_each(&nest, args->threads, update_piece, job);
    return DTP_OK;
}

static dtp_status sgd_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    update_job job = {.rule = SGD};
    return update(args, &job, err);
}

static dtp_status momentum_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    update_job job = {.rule = MOMENTUM};
    job.momentum = (float)dtp_call_float(args->call, "momentum");
    return update(args, &job, err);
}

static dtp_status accumulate_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    update_job job = {.rule = args->record->microbatch == 0 ? FIRST : SUM};
    return update(args, &job, err);
}

static dtp_status run_either_adam(const dtp_kernel_args *args, bool decoupled, dtp_err *err)
{
    const dtp_op_call *call = args->call;
    double b1 = dtp_call_float(call, "beta1"), b2 = dtp_call_float(call, "beta2");
    double t = (double)(args->record->step + 1);
    update_job job = {.rule = decoupled ? ADAMW : ADAM};
    job.beta1 = (float)b1;
    job.beta2 = (float)b2;
    job.eps = (float)dtp_call_float(call, "eps");
    job.step = (float)(learning_rate(args) / (1.0 - pow(b1, t)));
    job.root = (float)(1.0 / sqrt(1.0 - pow(b2, t)));
    return update(args, &job, err);
}

static dtp_status adam_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return run_either_adam(args, false, err);
}

static dtp_status adamw_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return run_either_adam(args, true, err);
}

static dtp_status loss_scale_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    double in[4], out[4];
    for (int32_t i = 0; i < 4; i++) {
        in[i] = (double)dtp_float_at(args->in[i].local.dtype, args->in[i].data, 0);
    }
    dtp_loss_scale_next(args->call, in, out);
    for (int32_t i = 0; i < 4; i++) {
        dtp_float_put(args->out[i].local.dtype, args->out[i].data, 0, (float)out[i]);
    }
    return DTP_OK;
}

const dtp_kernel dtp_cpu_optimizer[] = {{"sgd", sgd_kernel, NULL, DTP_CPU_FLOATS},
                                        {"momentum", momentum_kernel, NULL, DTP_CPU_FLOATS},
                                        {"adam", adam_kernel, NULL, DTP_CPU_FLOATS},
                                        {"adamw", adamw_kernel, NULL, DTP_CPU_FLOATS},
                                        {"accumulate", accumulate_kernel, NULL, DTP_CPU_FLOATS},
                                        {"loss_scale", loss_scale_kernel, NULL, DTP_CPU_FLOATS},
                                        {.op = NULL}};
