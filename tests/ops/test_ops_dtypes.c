/* Ops that move elements, fill and cast take every dtype: the cpu backend gives the bytes that the
 * reference backend gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/ops/cases.h"
#include "tests/ops/eval.h"
#include "core/graph/ops/op_table.h"
#include "executor/cpu/cpu.h"
#include "executor/ref/ref.h"

enum { SEED = 3 };

static const dtp_dtype FLOATS[] = {DTP_F32, DTP_F64, DTP_BF16, DTP_F16};
enum { N_FLOATS = sizeof FLOATS / sizeof FLOATS[0] };

static void run(const dtp_op_case *c, dtp_dtype float_dtype, dtp_backend *b, dtp_case_graph *cg,
                eval *e)
{
    case_build(c, float_dtype, SEED, cg);
    eval_init(e, cg->g, b);
    for (int32_t i = 0; i < cg->n_in; i++) {
        eval_set(e, i, cg->values[i]);
    }
    eval_run(e);
}

static void check(const dtp_op_case *c, dtp_dtype float_dtype, dtp_backend *cpu, dtp_backend *ref)
{
    dtp_case_graph a, b;
    eval x, y;
    run(c, float_dtype, cpu, &a, &x);
    run(c, float_dtype, ref, &b, &y);
    const dtp_tensor_id out = a.g->nodes[a.node].out[0];
    const size_t bytes = (size_t)dtp_ttype_bytes(&a.g->tensors[out].type);
    if (memcmp(x.data[out], y.data[out], bytes) != 0) {
        fail_msg("'%s' (%s) of %s differs", c->op, c->attrs == NULL ? "" : c->attrs,
                 dtp_dtype_name(float_dtype));
    }
    eval_free(&x);
    eval_free(&y);
    dtp_case_free(&a);
    dtp_case_free(&b);
}

static void test_moves__take_every_dtype(void **state)
{
    (void)state;
    dtp_backend *cpu = NULL, *ref = NULL;
    int32_t n = 0;
    assert_int_equal(dtp_backend_cpu_create(1, &cpu, NULL), DTP_OK);
    assert_int_equal(dtp_backend_ref_create(&ref, NULL), DTP_OK);
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        const uint32_t flags = dtp_op_find(DTP_OP_CASES[i].op)->flags;
        for (size_t k = 0; k < N_FLOATS && (flags & DTP_OP_ANY_DTYPE) != 0; k++) {
            check(&DTP_OP_CASES[i], FLOATS[k], cpu, ref);
            n++;
        }
    }
    assert_true(n > 100);
    dtp_backend_destroy(cpu);
    dtp_backend_destroy(ref);
}

static void test_cast__takes_every_pair_of_dtypes(void **state)
{
    (void)state;
    static const char *const from[] = {"a=3,b=7", "a=3,b=7 ids:9", "a=3,b=7 ids64:9",
                                       "a=3,b=7 bool"};
    dtp_backend *cpu = NULL, *ref = NULL;
    assert_int_equal(dtp_backend_cpu_create(1, &cpu, NULL), DTP_OK);
    assert_int_equal(dtp_backend_ref_create(&ref, NULL), DTP_OK);
    for (int32_t to = 0; to < DTP_N_DTYPES; to++) {
        char attrs[32];
        (void)snprintf(attrs, sizeof attrs, "dtype=%s", dtp_dtype_name((dtp_dtype)to));
        for (size_t i = 0; i < sizeof from / sizeof from[0]; i++) {
            const dtp_op_case c = {
                .op = "cast", .in = {from[i]}, .out = i == 2 ? "b=7,a=3" : NULL, .attrs = attrs};
            for (size_t k = 0; k < (i == 0 ? N_FLOATS : 1); k++) {
                check(&c, FLOATS[k], cpu, ref);
            }
        }
    }
    dtp_backend_destroy(cpu);
    dtp_backend_destroy(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moves__take_every_dtype),
        cmocka_unit_test(test_cast__takes_every_pair_of_dtypes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
