/* attention_merge: two attention results over disjoint keys become one. Rows without keys have lse
 * -inf and no share. */
#include <math.h>

#include "executor/cpu/attention.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/parallel.h"
#include "executor/cpu/simd.h"

/* Views: b, a, merged (all alike), lse of a, of b, merged. */
enum { B, A, MERGED, LSE_A, LSE_B, LSE, N_VIEWS };

typedef struct merge_job {
    dtp_nest rows; /* of lse */
    dtp_nest values;
    const float *a, *b, *lse_a, *lse_b;
    float *out, *lse;
} merge_job;

static float share_of(float part, float all)
{
    return isinf(part) ? 0.0f : expf(part - all);
}

DTP_CPU_CLONES static void blend(int64_t n, int64_t step, const float *a, const float *b,
                                 const float share[2], float *out)
{
    float sa = share[0], sb = share[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        out[i * step] = sa * a[i * step] + sb * b[i * step];
    }
}

static void merge_row(const merge_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    float la = job->lse_a[row[LSE_A]], lb = job->lse_b[row[LSE_B]], m = fmaxf(la, lb);
    float lse = isinf(m) ? m : m + logf(expf(la - m) + expf(lb - m));
    const float share[] = {share_of(la, lse), share_of(lb, lse)};
    int64_t at = row[MERGED], step = dtp_nest_step(&job->values, MERGED);
    for (int64_t r = 0; r < job->values.rows; r++) {
        int64_t off[DTP_NEST_VIEWS];
        dtp_nest_row(&job->values, r, off);
        blend(job->values.inner, step, job->a + at + off[MERGED], job->b + at + off[MERGED], share,
              job->out + at + off[MERGED]);
    }
    job->lse[row[LSE]] = lse;
}

dtp_status dtp_attention_merge_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *in = args->in, *out = args->out;
    const dtp_view *views[] = {&in[2], &in[0], &out[0], &in[1], &in[3], &out[1]};
    merge_job job = {.a = in[0].data,
                     .b = in[2].data,
                     .lse_a = in[1].data,
                     .lse_b = in[3].data,
                     .out = out[0].data,
                     .lse = out[1].data};
    dtp_tdim rest[DTP_MAX_RANK];
    int32_t n_rest = 0;
    for (int32_t i = 0; i < out[0].local.rank; i++) {
        if (dtp_ttype_find(&out[1].local, out[0].local.dims[i].id) < 0) {
            rest[n_rest++] = out[0].local.dims[i];
        }
    }
    dtp_nest_make(&job.rows, out[1].local.rank, out[1].local.dims, N_VIEWS, views);
    dtp_nest_make(&job.values, n_rest, rest, N_VIEWS, views);
    int64_t n = dtp_nest_total(&job.rows);
    int32_t team = dtp_cpu_team(args->threads, n * dtp_nest_total(&job.values));
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int64_t i = 0; i < n; i++) {
        int64_t row[DTP_NEST_VIEWS];
        dtp_nest_elem(&job.rows, i, row);
        merge_row(&job, row);
    }
    return DTP_OK;
}
