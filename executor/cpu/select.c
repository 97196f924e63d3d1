/* compare and select, with broadcasting by name. */
#include "executor/cpu/kernels.h"

#include <string.h>

#include "executor/cpu/nest.h"
#include "executor/cpu/simd.h"

typedef enum comparison { LT, LE, GT, GE, EQ, NE } comparison;

static const char *const comparison_names[] = {"lt", "le", "gt", "ge", "eq", "ne"};

typedef struct job {
    comparison cmp;
    dtp_dtype dtype; /* of the operands compared or selected */
    int64_t step[3];
    const dtp_view *in; /* operands */
    void *out;
} job;

DTP_CPU_INLINE bool compare_floats(comparison cmp, float a, float b)
{
    switch (cmp) {
    case LT:
        return a < b;
    case LE:
        return a <= b;
    case GT:
        return a > b;
    case GE:
        return a >= b;
    case EQ:
        return a == b;
    case NE:
        return a != b;
    }
    return false;
}

static bool compare_ints(comparison cmp, int64_t a, int64_t b)
{
    switch (cmp) {
    case LT:
        return a < b;
    case LE:
        return a <= b;
    case GT:
        return a > b;
    case GE:
        return a >= b;
    case EQ:
        return a == b;
    case NE:
        return a != b;
    }
    return false;
}

static void compare_float_piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const job *j = user;
    const float *a = (const float *)j->in[0].data + off[1];
    const float *b = (const float *)j->in[1].data + off[2];
    uint8_t *y = (uint8_t *)j->out + off[0];
    for (int64_t i = 0; i < n; i++) {
        y[i] = compare_floats(j->cmp, a[i * j->step[0]], b[i * j->step[1]]);
    }
}

static void compare_int_piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const job *j = user;
    uint8_t *y = (uint8_t *)j->out + off[0];
    for (int64_t i = 0; i < n; i++) {
        int64_t a = dtp_cpu_int_at(j->in[0].local.dtype, j->in[0].data, off[1] + i * j->step[0]);
        int64_t b = dtp_cpu_int_at(j->in[1].local.dtype, j->in[1].data, off[2] + i * j->step[1]);
        y[i] = compare_ints(j->cmp, a, b);
    }
}

static dtp_status check_compare(const dtp_op_call *call, dtp_err *err)
{
    const dtp_dtype a = call->in[0].dtype, b = call->in[1].dtype;
    if (dtp_dtype_is_float(a) != dtp_dtype_is_float(b)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "compare on backend cpu: %s with %s",
                        dtp_dtype_name(a), dtp_dtype_name(b));
    }
    return dtp_cpu_check_f32(call, err);
}

static dtp_status compare_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *in = args->in;
    bool floats = in[0].local.dtype == DTP_F32;
    const dtp_view *views[] = {&args->out[0], &in[0], &in[1]};
    dtp_nest nest;
    dtp_nest_like(&nest, 3, views);
    job j = {.in = in, .out = args->out[0].data};
    const char *cmp = dtp_cpu_choice(args->call, "cmp");
    for (int32_t i = 0; i < 6; i++) {
        if (strcmp(cmp, comparison_names[i]) == 0) {
            j.cmp = (comparison)i;
        }
    }
    j.step[0] = dtp_nest_step(&nest, 1);
    j.step[1] = dtp_nest_step(&nest, 2);
    dtp_nest_each(&nest, args->threads, floats ? compare_float_piece : compare_int_piece, &j);
    return DTP_OK;
}

/* A row of select in elements of `bytes`, copied without looking at their type. */
typedef struct row3 {
    int64_t n, sc, sa, sb;
    const uint8_t *c;
    const char *a, *b;
    char *y;
} row3;

DTP_CPU_INLINE void select_row(const row3 *r, size_t bytes)
{
    for (int64_t i = 0; i < r->n; i++) {
        const char *from = r->c[i * r->sc] ? r->a + (size_t)(i * r->sa) * bytes
                                           : r->b + (size_t)(i * r->sb) * bytes;
        memcpy(r->y + (size_t)i * bytes, from, bytes);
    }
}

DTP_CPU_CLONES static void select_floats(int64_t n, const uint8_t *c, const float *a,
                                         const float *b, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float u = a[i], v = b[i];
        y[i] = c[i] != 0 ? u : v;
    }
}

static void select_piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const job *j = user;
    int64_t bytes = dtp_dtype_bytes(j->dtype);
    row3 r = {.n = n,
              .sc = j->step[0],
              .sa = j->step[1],
              .sb = j->step[2],
              .c = (const uint8_t *)j->in[0].data + off[1],
              .a = (const char *)j->in[1].data + off[2] * bytes,
              .b = (const char *)j->in[2].data + off[3] * bytes,
              .y = (char *)j->out + off[0] * bytes};
    if (j->dtype == DTP_F32 && r.sc == 1 && r.sa == 1 && r.sb == 1) {
        select_floats(n, r.c, (const float *)j->in[1].data + off[2],
                      (const float *)j->in[2].data + off[3], (float *)j->out + off[0]);
    } else if (bytes == 4) {
        select_row(&r, 4);
    } else if (bytes == 8) {
        select_row(&r, 8);
    } else if (bytes == 2) {
        select_row(&r, 2);
    } else {
        select_row(&r, 1);
    }
}

static dtp_status select_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *in = args->in;
    const dtp_view *views[] = {&args->out[0], &in[0], &in[1], &in[2]};
    dtp_nest nest;
    dtp_nest_like(&nest, 4, views);
    job j = {.dtype = args->out[0].local.dtype, .in = in, .out = args->out[0].data};
    for (int32_t i = 0; i < 3; i++) {
        j.step[i] = dtp_nest_step(&nest, i + 1);
    }
    dtp_nest_each(&nest, args->threads, select_piece, &j);
    return DTP_OK;
}

static const dtp_cpu_row rows[] = {{"compare", compare_kernel, check_compare},
                                   {"select", select_kernel, NULL}};
const dtp_cpu_family dtp_cpu_select = {rows, sizeof rows / sizeof rows[0]};
