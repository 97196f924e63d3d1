/* Conversion between element types. */
#include "executor/cpu/kernels.h"

#include <string.h>

#include "executor/device/convert.h"
#include "executor/cpu/nest.h"
#include "executor/cpu/simd.h"

typedef struct job {
    const dtp_view *x, *y;
    int64_t step; /* of x along the inner dim */
} job;

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

static void cast_piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const job *j = user;
    const dtp_view *x = j->x, *y = j->y;
    dtp_dtype from = x->local.dtype, to = y->local.dtype;
    bool ints = !dtp_dtype_is_float(from) && !dtp_dtype_is_float(to);
    if (j->step == 1 && from == DTP_F32 && to == DTP_BF16) {
        f32_to_bf16(n, (const float *)x->data + off[1], (uint16_t *)y->data + off[0]);
        return;
    }
    if (j->step == 1 && from == DTP_BF16 && to == DTP_F32) {
        bf16_to_f32(n, (const uint16_t *)x->data + off[1], (float *)y->data + off[0]);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = off[1] + i * j->step;
        if (ints) {
            dtp_cpu_int_set(to, y->data, off[0] + i, dtp_cpu_int_at(from, x->data, at));
        } else {
            dtp_element_set(to, y->data, off[0] + i, dtp_element(from, x->data, at));
        }
    }
}

/* Every pair of dtypes. Not in place when elements change their size. */
static dtp_status cast_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *views[] = {&args->out[0], &args->in[0]};
    dtp_dtype dtype = views[0]->local.dtype;
    dtp_nest nest;
    dtp_nest_like(&nest, 2, views);
    if (dtype == views[1]->local.dtype) {
        if (views[0]->data != views[1]->data) {
            dtp_nest_copy(&nest, args->threads, views[0]->data, views[1]->data,
                          dtp_dtype_bytes(dtype));
        }
        return DTP_OK;
    }
    job j = {views[1], views[0], dtp_nest_step(&nest, 1)};
    dtp_nest_each(&nest, args->threads, cast_piece, &j);
    return DTP_OK;
}

static const dtp_cpu_row rows[] = {{"cast", cast_kernel, NULL}};
const dtp_cpu_family dtp_cpu_cast = {rows, sizeof rows / sizeof rows[0]};
