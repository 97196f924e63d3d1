/* Reference kernels of attention, its gradient, their parts and rope. Scores are computed again
 * whenever they are needed. */
#include <math.h>
#include <string.h>

#include "core/graph/ops/attention_split.h"
#include "core/graph/ops/sequence.h"
#include "executor/ref/index.h"
#include "executor/ref/kernels.h"

/* The pieces of one call. `q` walks everything but the feature dim; `k` is the same place with the
 * query dim replaced by a key. Packed keys and values lie in one operand, the values `v_at`
 * features in. */
typedef struct job {
    const dtp_view *vq, *vk, *vv, *mask; /* mask NULL: none */
    dtp_attention_dims d;
    dtp_dim_id v_dim; /* of the values in operand vv */
    int64_t keys, features, values, v_at;
    dtp_sequence order; /* of the whole sequence, when queries and keys are one */
} job;

static job job_of(const dtp_kernel_args *args)
{
    const dtp_op_call *call = args->call;
    job j = {.vq = &args->in[0], .vk = &args->in[1], .d = dtp_attention_dims_of(call)};
    j.vv = j.d.packed ? j.vk : &args->in[2];
    j.mask = j.d.mask < 0 ? NULL : &args->in[j.d.mask];
    j.v_dim = j.d.packed ? j.d.feature : j.d.value;
    j.keys = dtp_ref__local(j.vk, j.d.key);
    j.features = dtp_attention_features(call, &j.d);
    j.values = dtp_attention_values(call, &j.d);
    j.v_at = j.d.packed ? j.features : 0;
    j.order = dtp_sequence_of(call, dtp_ref__global(j.vk, j.d.key) *
                                        (j.d.chunk < 0 ? 1 : dtp_ref__global(j.vk, j.d.chunk)));
    return j;
}

/* Every coordinate of q but the feature. */
static dtp_ref_loop query_loop(const job *j)
{
    dtp_ttype t = {.dtype = DTP_F64};
    for (int32_t i = 0; i < j->vq->local.rank; i++) {
        if (j->vq->local.dims[i].id != j->d.feature) {
            t.dims[t.rank++] = j->vq->local.dims[i];
        }
    }
    return dtp_ref__over(&t);
}

static dtp_ref_loop key_at(const job *j, const dtp_ref_loop *q, int64_t key)
{
    dtp_ref_loop k = *q;
    dtp_ref__put(&k, j->d.key, key);
    return k;
}

/* What the mask adds to a score. */
static double mask_at(const job *j, const dtp_ref_loop *q, int64_t key)
{
    const dtp_ref_loop k = key_at(j, q, key);
    const double x = j->mask == NULL ? 0.0 : dtp_ref__get(j->mask, &k);
    const bool truth = j->mask != NULL && j->mask->local.dtype == DTP_BOOL;
    return !truth ? x : x != 0.0 ? 0.0 : -(double)INFINITY;
}

/* May the query at `q` look at local key `key`? */
static bool sees(const job *j, const dtp_ref_loop *q, int64_t key)
{
    int64_t i = dtp_ref__global_index(j->vq, q, j->d.query);
    int64_t k = dtp_ref__offset(j->vk, j->d.key) + key;
    int64_t ahead = dtp_ref__global(j->vk, j->d.key) - dtp_ref__global(j->vq, j->d.query);
    if (j->d.chunk >= 0) {
        int64_t n = dtp_ref__global(j->vq, j->d.chunk);
        int64_t c = dtp_ref__global_index(j->vq, q, j->d.chunk);
        i += c * dtp_ref__global(j->vq, j->d.query);
        k += (c - j->d.shift + n) % n * dtp_ref__global(j->vk, j->d.key);
        ahead *= n;
    }
    if (mask_at(j, q, key) == -(double)INFINITY) {
        return false;
    }
    return !j->d.causal || dtp_sequence_position(&j->order, k) <=
                               (ahead == 0 ? dtp_sequence_position(&j->order, i) : i + ahead);
}

/* Sum over dim d of a at `la` times b at `lb`. */
static double dot(const dtp_view *a, dtp_ref_loop la, const dtp_view *b, dtp_ref_loop lb,
                  dtp_dim_id d, int64_t n)
{
    double s = 0.0;
    for (int64_t f = 0; f < n; f++) {
        dtp_ref__put(&la, d, f);
        dtp_ref__put(&lb, d, f);
        s += dtp_ref__get(a, &la) * dtp_ref__get(b, &lb);
    }
    return s;
}

static double score(const job *j, const dtp_ref_loop *q, int64_t key)
{
    dtp_ref_loop k = key_at(j, q, key);
    return j->d.scale * dot(j->vq, *q, j->vk, k, j->d.feature, j->features) + mask_at(j, q, key);
}

/* exp(score - lse); 0 when no key has any weight. */
static double weight(double score, double lse)
{
    return lse == -(double)INFINITY ? 0.0 : exp(score - lse);
}

static dtp_status run_attention(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const job j = job_of(args);
    dtp_ref_loop q = query_loop(&j);
    dtp_ref__clear(&args->out[0]);
    for (bool go = dtp_ref__first(&q, 0, q.n); go; go = dtp_ref__next(&q, 0, q.n)) {
        double m = (double)-INFINITY, s = 0.0;
        for (int64_t key = 0; key < j.keys; key++) {
            m = sees(&j, &q, key) ? dtp_ref__larger(m, score(&j, &q, key)) : m;
        }
        for (int64_t key = 0; key < j.keys; key++) {
            s += sees(&j, &q, key) ? weight(score(&j, &q, key), m) : 0.0;
        }
        double lse = m + log(s);
        dtp_ref__set(&args->out[1], &q, lse);
        for (int64_t key = 0; key < j.keys; key++) {
            if (!sees(&j, &q, key)) {
                continue;
            }
            double p = weight(score(&j, &q, key), lse);
            dtp_ref_loop o = q, k = key_at(&j, &q, key);
            for (int64_t v = 0; v < j.values; v++) {
                dtp_ref__put(&o, j.d.value, v);
                dtp_ref__put(&k, j.v_dim, j.v_at + v);
                dtp_ref__accumulate(&args->out[0], &o, p * dtp_ref__get(j.vv, &k));
            }
        }
    }
    return DTP_OK;
}

/* Sum over the values of dout at the query times v at the key. */
static double dot_values(const job *j, const dtp_view *dout, dtp_ref_loop q, dtp_ref_loop k)
{
    double s = 0.0;
    for (int64_t v = 0; v < j->values; v++) {
        dtp_ref__put(&q, j->d.value, v);
        dtp_ref__put(&k, j->v_dim, j->v_at + v);
        s += dtp_ref__get(dout, &q) * dtp_ref__get(j->vv, &k);
    }
    return s;
}

/* What the pair (query at q, key) adds to dq, dk and dv. in: out, lse, dout. */
static void add_pair(const dtp_kernel_args *args, const dtp_view *in, const job *j, dtp_ref_loop q,
                     int64_t key, double delta)
{
    const dtp_view *dk = &args->out[1], *dv = j->d.packed ? dk : &args->out[2];
    dtp_ref_loop k = key_at(j, &q, key);
    double p = weight(score(j, &q, key), dtp_ref__get(&in[1], &q));
    double ds = p * (dot_values(j, &in[2], q, k) - delta);
    for (int64_t f = 0; f < j->features; f++) {
        dtp_ref__put(&q, j->d.feature, f);
        dtp_ref__put(&k, j->d.feature, f);
        dtp_ref__accumulate(&args->out[0], &q, j->d.scale * ds * dtp_ref__get(j->vk, &k));
        dtp_ref__accumulate(dk, &k, j->d.scale * ds * dtp_ref__get(j->vq, &q));
    }
    for (int64_t v = 0; v < j->values; v++) {
        dtp_ref__put(&q, j->d.value, v);
        dtp_ref__put(&k, j->v_dim, j->v_at + v);
        dtp_ref__accumulate(dv, &k, p * dtp_ref__get(&in[2], &q));
    }
}

static dtp_status run_attention_grad(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const job j = job_of(args);
    const dtp_view *in = &args->in[j.d.packed ? 2 : 3];
    dtp_ref_loop q = query_loop(&j);
    for (int32_t i = 0; i < args->call->n_out; i++) {
        dtp_ref__clear(&args->out[i]);
    }
    for (bool go = dtp_ref__first(&q, 0, q.n); go; go = dtp_ref__next(&q, 0, q.n)) {
        double delta = dot(&in[2], q, &in[0], q, j.d.value, j.values);
        for (int64_t key = 0; key < j.keys; key++) {
            if (sees(&j, &q, key)) {
                add_pair(args, in, &j, q, key, delta);
            }
        }
    }
    return DTP_OK;
}

static dtp_status run_merge(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *in = args->in, *out = args->out;
    dtp_ref_loop l = dtp_ref__over(&out[1].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        double a = dtp_ref__get(&in[1], &l), b = dtp_ref__get(&in[3], &l),
               m = dtp_ref__larger(a, b);
        dtp_ref__set(&out[1], &l, m + log(weight(a, m) + weight(b, m)));
    }
    l = dtp_ref__over(&out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        double lse = dtp_ref__get(&out[1], &l);
        double a = weight(dtp_ref__get(&in[1], &l), lse), b = weight(dtp_ref__get(&in[3], &l), lse);
        dtp_ref__set(&out[0], &l, a * dtp_ref__get(&in[0], &l) + b * dtp_ref__get(&in[2], &l));
    }
    return DTP_OK;
}

/* Radians a position of pair j, from docs/ops.md. */
static double rope_rate(const dtp_op_call *call, double j, double half)
{
    const double base = dtp_call_float(call, "base"), factor = dtp_call_float(call, "factor");
    const double low = dtp_call_float(call, "low"), high = dtp_call_float(call, "high");
    const double length = (double)dtp_call_int(call, "original"), pi = acos(-1.0);
    const double rate = pow(base, -j / half), turns = length * rate / (2.0 * pi);
    const int64_t scaling = dtp_call_int(call, "scaling");
    if (scaling < 2) { /* none, linear */
        return scaling == 0 ? rate : rate / factor;
    }
    if (scaling == 2) { /* llama3 */
        const double part = (turns - low) / (high - low);
        return turns < low    ? rate / factor
               : turns > high ? rate
                              : (1.0 - part) * rate / factor + part * rate;
    }
    double first = half * log(length / (2.0 * pi * high)) / log(base);
    double last = half * log(length / (2.0 * pi * low)) / log(base);
    if (scaling == 3) { /* yarn */
        first = floor(first);
        last = ceil(last);
    }
    first = first < 0.0 ? 0.0 : first;
    last = last > 2.0 * half - 1.0 ? 2.0 * half - 1.0 : last;
    last = first == last ? last + 0.001 : last;
    double ramp = (j - first) / (last - first);
    ramp = ramp < 0.0 ? 0.0 : ramp > 1.0 ? 1.0 : ramp;
    return rate / factor * ramp + rate * (1.0 - ramp);
}

static dtp_status run_rope(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *x = &args->in[0];
    dtp_dim_id position = dtp_call_dim(args->call, "position");
    dtp_dim_id feature = dtp_call_dim(args->call, "feature");
    double amplitude = dtp_call_float(args->call, "amplitude");
    double offset = (double)dtp_call_int(args->call, "offset");
    double sign = dtp_call_int(args->call, "inverse") != 0 ? -1.0 : 1.0;
    int64_t half = dtp_ref__local(x, feature) / 2;
    dtp_sequence order = dtp_sequence_of(args->call, dtp_ref__global(x, position));
    dtp_ref_loop l = dtp_ref__over(&x->local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        int64_t f = dtp_ref__coord(&l, feature);
        dtp_ref_loop high = l;
        if (f >= half) {
            continue;
        }
        int64_t place = dtp_ref__global_index(x, &l, position);
        double at = (double)dtp_sequence_position(&order, place) + offset;
        double angle = sign * at * rope_rate(args->call, (double)f, (double)half);
        dtp_ref__put(&high, feature, f + half);
        double a = dtp_ref__get(x, &l), b = dtp_ref__get(x, &high);
        dtp_ref__set(&args->out[0], &l, amplitude * (a * cos(angle) - b * sin(angle)));
        dtp_ref__set(&args->out[0], &high, amplitude * (a * sin(angle) + b * cos(angle)));
    }
    return DTP_OK;
}

const dtp_kernel dtp_ref__attention[] = {{.op = "attention", .run = run_attention},
                                         {.op = "attention_grad", .run = run_attention_grad},
                                         {.op = "attention_part", .run = run_attention},
                                         {.op = "attention_part_grad", .run = run_attention_grad},
                                         {.op = "attention_merge", .run = run_merge},
                                         {.op = "rope", .run = run_rope},
                                         {.op = NULL}};
