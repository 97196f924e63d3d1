/* Optimizer updates, one pass over parameter, gradient and slots each. Outputs may be the operands
 * themselves: element i is read before it is written. */
#include <math.h>
#include <string.h>

#include "executor/cpu/loops/halves.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/loops/nest.h"
#include "executor/cpu/loops/simd.h"
#include "executor/device/bound/update.h"
#include "executor/device/loss_scale.h"

/* Constants of one step. Adam: step = lr / (1 - beta1^t), root = 1 / sqrt(1 - beta2^t). */
typedef struct update_job {
    dtp_update_rule rule;
    float lr, decay, momentum, beta1, beta2, eps, step, root;
    const float *p, *g, *m, *v;
    float *p_out, *m_out, *v_out;
    bool first; /* accumulate: a new sum */
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
    case DTP_UPDATE_SGD:
        sgd_run(job, at, n);
        break;
    case DTP_UPDATE_MOMENTUM:
        momentum_run(job, at, n);
        break;
    case DTP_UPDATE_ACCUMULATE:
        if (job->first) {
            memcpy(job->p_out + at, job->g + at, (size_t)n * sizeof *job->g);
        } else {
            sum_run(job, at, n);
        }
        break;
    case DTP_UPDATE_ADAM:
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
    for (int64_t i = at; i < at + n && job->dtype == DTP_I32; i++) {
        const uint32_t sum = job->first ? 0 : ((const uint32_t *)p)[i];
        ((uint32_t *)out)[i] = sum + ((const uint32_t *)g)[i];
    }
    for (int64_t i = at; i < at + n && job->dtype == DTP_I64; i++) {
        const uint64_t sum = job->first ? 0 : ((const uint64_t *)p)[i];
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

static dtp_status update_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_bound_update u = dtp_update_now(args);
    const double lr = u.lr * args->record->lr_scale, t = (double)(args->record->step + 1);
    const dtp_view *out = &args->out[0], *last = &args->in[args->call->n_in - 1];
    update_job job = {.rule = u.rule,
                      .lr = (float)lr,
                      .decay = u.decay,
                      .momentum = u.momentum,
                      .beta1 = (float)u.beta1,
                      .beta2 = (float)u.beta2,
                      .eps = (float)u.eps,
                      .step = (float)(lr / (1.0 - pow(u.beta1, t))),
                      .root = (float)(1.0 / sqrt(1.0 - pow(u.beta2, t))),
                      .p = u.p,
                      .g = u.g,
                      .m = u.m,
                      .v = u.v,
                      .p_out = u.p_out,
                      .m_out = u.m_out,
                      .v_out = u.v_out,
                      .first = args->record->microbatch == 0,
                      .scaled = u.factor != NULL,
                      .factor =
                          u.factor == NULL ? 1.0f : dtp_float_at(last->local.dtype, u.factor, 0),
                      .dtype = (dtp_dtype)u.dtype};
    dtp_nest nest;
    (void)err;
    if (job.factor == 0.0f) {
        return skip(args);
    }
    dtp_nest_like(&nest, 1, &out);
    dtp_nest_each(&nest, args->threads, update_piece, &job);
    return DTP_OK;
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

#define BIND(op, rule) DTP_BIND(op, dtp_bind_update, DTP_UPDATE_##rule)
#define KERNEL(op, rule) {#op, update_kernel, op##_bind, DTP_FLOATS},

DTP_UPDATE_OPS(BIND)
BIND(accumulate, ACCUMULATE)

const dtp_kernel dtp_cpu_optimizer[] = {
    DTP_UPDATE_OPS(KERNEL){"accumulate", update_kernel, accumulate_bind, DTP_NUMBERS},
    {"loss_scale", loss_scale_kernel, NULL, DTP_DTYPE_BIT(DTP_F32)},
    {.op = NULL}};
