/* compare, select and the ops on truth values (bytes of 0 or 1). */
#include <string.h>

#include "executor/cpu/elementwise.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/simd.h"

/* ---- compare: two functions per relation, of floats and of integers ---- */

#define RELATIONS(OP)                                                                              \
    OP(lt, x < y)                                                                                  \
    OP(le, x <= y)                                                                                 \
    OP(gt, x > y)                                                                                  \
    OP(ge, x >= y)                                                                                 \
    OP(eq, x == y)                                                                                 \
    OP(ne, x != y)

#define RELATION_RUNS(name, holds)                                                                 \
    static void name##_floats(const dtp_cpu_run *run)                                              \
    {                                                                                              \
        const float *a = run->in[0], *b = run->in[1];                                              \
        uint8_t *out = run->out;                                                                   \
        const int64_t n = run->n, sa = run->step[0], sb = run->step[1];                            \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const float x = a[i * sa], y = b[i * sb];                                              \
            out[i] = holds;                                                                        \
        }                                                                                          \
    }                                                                                              \
    static void name##_ints(const dtp_cpu_run *run)                                                \
    {                                                                                              \
        const dtp_dtype ta = run->operands[0].local.dtype, tb = run->operands[1].local.dtype;      \
        uint8_t *out = run->out;                                                                   \
        for (int64_t i = 0; i < run->n; i++) {                                                     \
            const int64_t x = dtp_cpu_int_at(ta, run->in[0], i * run->step[0]);                    \
            const int64_t y = dtp_cpu_int_at(tb, run->in[1], i * run->step[1]);                    \
            out[i] = holds;                                                                        \
        }                                                                                          \
    }

RELATIONS(RELATION_RUNS)

static dtp_status check_compare(const dtp_op_call *call, dtp_err *err)
{
    const dtp_dtype a = call->in[0].dtype, b = call->in[1].dtype;
    if (dtp_dtype_is_float(a) != dtp_dtype_is_float(b)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "compare on backend cpu: %s with %s",
                        dtp_dtype_name(a), dtp_dtype_name(b));
    }
    return dtp_cpu_check_f32(call, err);
}

#define RELATION_ROW(name, holds) {#name, name##_floats, name##_ints},

static dtp_status compare_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    static const struct {
        const char *name;
        dtp_cpu_run_fn floats, ints;
    } relations[] = {RELATIONS(RELATION_ROW)};
    (void)err;
    const char *cmp = dtp_cpu_choice(args->call, "cmp");
    const bool floats = args->in[0].local.dtype == DTP_F32;
    size_t i = 0;
    while (strcmp(cmp, relations[i].name) != 0) {
        i++;
    }
    dtp_cpu_elementwise_runs(args, floats ? relations[i].floats : relations[i].ints, 0.0f, 0.0f);
    return DTP_OK;
}

/* ---- select: elements are copied without looking at their type ---- */

DTP_CPU_INLINE void select_bytes(const dtp_cpu_run *run, int64_t bytes)
{
    const uint8_t *c = run->in[0];
    const char *a = run->in[1], *b = run->in[2];
    char *out = run->out;
    for (int64_t i = 0; i < run->n; i++) {
        const char *from =
            c[i * run->step[0]] ? a + i * run->step[1] * bytes : b + i * run->step[2] * bytes;
        memcpy(out + i * bytes, from, (size_t)bytes);
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

static void select_run(const dtp_cpu_run *run)
{
    const int64_t *step = run->step;
    if (run->dtype == DTP_F32 && step[0] == 1 && step[1] == 1 && step[2] == 1) {
        select_floats(run->n, run->in[0], run->in[1], run->in[2], run->out);
        return;
    }
    switch (dtp_dtype_bytes(run->dtype)) {
    case 4:
        select_bytes(run, 4);
        break;
    case 8:
        select_bytes(run, 8);
        break;
    case 2:
        select_bytes(run, 2);
        break;
    default:
        select_bytes(run, 1);
        break;
    }
}

static dtp_status select_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_cpu_elementwise_runs(args, select_run, 0.0f, 0.0f);
    return DTP_OK;
}

/* ---- truth values ---- */

#define LOGICAL(OP)                                                                                \
    OP(logical_and, x &y)                                                                          \
    OP(logical_or, x | y)                                                                          \
    OP(logical_xor, x ^ y)                                                                         \
    OP(logical_not, !x)

#define LOGICAL_FUNCTIONS(op, value)                                                               \
    static void op##_run(const dtp_cpu_run *run)                                                   \
    {                                                                                              \
        const uint8_t *a = run->in[0], *b = run->in[1];                                            \
        uint8_t *out = run->out;                                                                   \
        for (int64_t i = 0; i < run->n; i++) {                                                     \
            const uint8_t x = a[i * run->step[0]] != 0, y = b != NULL && b[i * run->step[1]] != 0; \
            (void)y;                                                                               \
            out[i] = value;                                                                        \
        }                                                                                          \
    }                                                                                              \
    static dtp_status op##_kernel(const dtp_kernel_args *args, dtp_err *err)                       \
    {                                                                                              \
        (void)err;                                                                                 \
        dtp_cpu_elementwise_runs(args, op##_run, 0.0f, 0.0f);                                      \
        return DTP_OK;                                                                             \
    }

LOGICAL(LOGICAL_FUNCTIONS)

#define LOGICAL_ROW(op, value) {#op, op##_kernel, NULL},

static const dtp_cpu_row rows[] = {{"compare", compare_kernel, check_compare},
                                   {"select", select_kernel, NULL},
                                   LOGICAL(LOGICAL_ROW)};
const dtp_cpu_family dtp_cpu_logical = {rows, sizeof rows / sizeof rows[0]};
