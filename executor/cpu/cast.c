/* Conversion between element types. */
#include "executor/cpu/kernels.h"

#include <string.h>

#include "executor/device/convert.h"
#include "executor/cpu/elementwise.h"
#include "executor/cpu/simd.h"

DTP_CPU_CLONES static void f32_to_bf16(int64_t n, const float *x, uint16_t *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        uint32_t even = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
        uint32_t nan = (u >> 16) | 0x40u;
        y[i] = (uint16_t)((u & 0x7FFFFFFFu) > 0x7F800000u ? nan : even);
    }
}

DTP_CPU_CLONES static void bf16_to_f32(int64_t n, const uint16_t *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)x[i] << 16;
        memcpy(&y[i], &u, sizeof u);
    }
}

static void cast_run(const dtp_cpu_run *run)
{
    const dtp_dtype from = run->operands[0].local.dtype, to = run->dtype;
    const int64_t step = run->step[0];
    const bool ints = !dtp_dtype_is_float(from) && !dtp_dtype_is_float(to);
    if (step == 1 && from == DTP_F32 && to == DTP_BF16) {
        f32_to_bf16(run->n, run->in[0], run->out);
        return;
    }
    if (step == 1 && from == DTP_BF16 && to == DTP_F32) {
        bf16_to_f32(run->n, run->in[0], run->out);
        return;
    }
    for (int64_t i = 0; i < run->n; i++) {
        if (ints) {
            dtp_cpu_int_set(to, run->out, i, dtp_cpu_int_at(from, run->in[0], i * step));
        } else {
            dtp_element_set(to, run->out, i, dtp_element(from, run->in[0], i * step));
        }
    }
}

/* Every pair of dtypes. Not in place when elements change their size. */
static dtp_status cast_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *x = &args->in[0], *y = &args->out[0];
    if (x->local.dtype != y->local.dtype) {
        dtp_cpu_elementwise_runs(args, cast_run, 0.0f, 0.0f);
    } else if (x->data != y->data) {
        dtp_view_copy(&y->local, y, x, args->threads);
    }
    return DTP_OK;
}

static const dtp_cpu_row rows[] = {{"cast", cast_kernel, NULL}};
const dtp_cpu_family dtp_cpu_cast = {rows, sizeof rows / sizeof rows[0]};
