/* Optimizer updates, one pass over parameter, gradient and slots each. Outputs may be the operands
 * themselves: element i is read before it is written. */
#include <math.h>
#include <string.h>

#include "executor/cpu/loops/halves.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/loops/nest.h"
#include "executor/cpu/loops/simd.h"
#include "executor/device/loss_scale.h"

typedef enum rule { SGD, MOMENTUM, ADAM, ADAMW, SUM, FIRST } rule;

/* Constants of one step. Adam: step = lr / (1 - beta1^t), root = 1 / sqrt(1 - beta2^t). */
typedef struct update_job {
    rule rule;
    float lr, decay, momentum, beta1, beta2, eps, step, root;
    const float *p, *g, *m, *v;
    float *p_out, *m_out, *v_out;
    bool scaled;
    float factor;    /* scaled: of the gradient */
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

/* Decoupled: the weight decay is no part of the gradient. */
DTP_CPU_INLINE void adam_either(const update_job *job, int64_t at, int64_t n, bool decoupled)
{
    const float *p = job->p + at, *g = job->g + at, *m = job->m + at, *v = job->v + at;
    float *p_out = job->p_out + at, *m_out = job->m_out + at, *v_out = job->v_out + at;
    float b1 = job->beta1, b2 = job->beta2, eps = job->eps, step = job->step, root = job->root;
    float in_gradient = job->decay, direct = job->lr * job->decay;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float pi = p[i], gi = decoupled ? g[i] : g[i] + in_gradient * pi;
        float mi = b1 * m[i] + (1.0f - b1) * gi;
        float vi = b2 * v[i] + (1.0f - b2) * gi * gi;
        float next = pi - step * mi / (sqrtf(vi) * root + eps);
        m_out[i] = mi;
        v_out[i] = vi;
        p_out[i] = decoupled ? next - direct * pi : next;
    }
}

DTP_CPU_CLONES static void adam_run(const update_job *job, int64_t at, int64_t n)
{
    adam_either(job, at, n, false);
}

DTP_CPU_CLONES static void adamw_run(const update_job *job, int64_t at, int64_t n)
{
    adam_either(job, at, n, true);
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
    case ADAM:
        adam_run(job, at, n);
        break;
    default:
        adamw_run(job, at, n);
        break;
    }
}

/* A block of 16-bit floats, or of gradients that take a factor. */
static void update_block(const update_job *job, int64_t at, int64_t n)
{
    const bool half = dtp_dtype_is_half(job->dtype);
    float from[4][DTP_HALF_BLOCK], to[3][DTP_HALF_BLOCK];
    update_job block = *job;
    const float **in[] = {&block.p, &block.g, &block.m, &block.v};
    float **out[] = {&block.p_out, &block.m_out, &block.v_out};
    void *const results[] = {job->p_out, job->m_out, job->v_out};
    for (int32_t k = 0; k < 4; k++) {
        const void *whole = *in[k];
        if (half && whole != NULL) {
            dtp_widen(job->dtype, n, (const uint16_t *)whole + at, 1, from[k]);
        }
        *in[k] = half || whole == NULL ? from[k] : *in[k] + at;
    }
    for (int32_t k = 0; k < 3; k++) {
        *out[k] = half || *out[k] == NULL ? &to[k][0] : *out[k] + at;
    }
    if (job->scaled) {
        for (int64_t i = 0; i < n; i++) {
            from[1][i] = job->factor * block.g[i];
        }
        block.g = from[1];
    }
    update_run(&block, 0, n);
    for (int32_t k = 0; k < 3 && half && results[k] != NULL; k++) {
        dtp_narrow(job->dtype, n, to[k], (uint16_t *)results[k] + at, 1);
    }
}

/* Integers, which `accumulate` alone takes. They wrap around. */
static void sum_ints(const update_job *job, int64_t at, int64_t n)
{
    const void *p = job->p, *g = job->g;
    void *out = job->p_out;
    const bool first = job->rule == FIRST;
    for (int64_t i = at; i < at + n && job->dtype == DTP_I32; i++) {
        const uint32_t sum = first ? 0 : ((const uint32_t *)p)[i];
        ((uint32_t *)out)[i] = sum + ((const uint32_t *)g)[i];
    }
    for (int64_t i = at; i < at + n && job->dtype == DTP_I64; i++) {
        const uint64_t sum = first ? 0 : ((const uint64_t *)p)[i];
        ((uint64_t *)out)[i] = sum + ((const uint64_t *)g)[i];
    }
}

static void update_piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const update_job *job = user;
    if (!dtp_dtype_is_float(job->dtype)) {
        sum_ints(job, off[0], n);
        return;
    }
    const bool blocks = job->scaled || dtp_dtype_is_half(job->dtype);
    const int64_t block = blocks ? DTP_HALF_BLOCK : n;
    for (int64_t at = 0; at < n; at += block) {
        (blocks ? update_block : update_run)(job, off[0] + at, n - at < block ? n - at : block);
    }
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

static double learning_rate(const dtp_kernel_args *args)
{
    return dtp_call_float(args->call, "lr") * args->record->lr_scale;
}

static dtp_status update(const dtp_kernel_args *args, update_job *job, dtp_err *err)
{
    (void)err;
    const dtp_op_call *call = args->call;
    job->p = args->in[0].data;
    job->g = args->in[1].data;
    job->dtype = args->in[0].local.dtype;
    job->p_out = args->out[0].data;
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
    const dtp_view *last = &args->in[call->n_in - 1];
    job->scaled = call->n_in > call->n_out + 1;
    job->factor = 1.0f;
    if (job->scaled && dtp_dtype_is_half(last->local.dtype)) {
        dtp_widen(last->local.dtype, 1, last->data, 1, &job->factor);
    } else if (job->scaled) {
        job->factor = *(const float *)last->data;
    }
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
        in[i] = (double)*(const float *)args->in[i].data;
    }
    dtp_loss_scale_next(args->call, in, out);
    for (int32_t i = 0; i < 4; i++) {
        *(float *)args->out[i].data = (float)out[i];
    }
    return DTP_OK;
}

const dtp_kernel dtp_cpu_optimizer[] = {
    {"sgd", sgd_kernel, NULL, DTP_CPU_FLOATS},
    {"momentum", momentum_kernel, NULL, DTP_CPU_FLOATS},
    {"adam", adam_kernel, NULL, DTP_CPU_FLOATS},
    {"adamw", adamw_kernel, NULL, DTP_CPU_FLOATS},
    {"accumulate", accumulate_kernel, NULL, DTP_CPU_BOTH},
    {"loss_scale", loss_scale_kernel, NULL, DTP_DTYPE_BIT(DTP_F32)},
    {.op = NULL}};
