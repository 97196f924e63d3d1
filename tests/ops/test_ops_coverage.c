/* The case list covers the op table: every op, every choice of every enum, both values of every
 * flag; and the table itself is complete. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/graph/ops/op_table.h"
#include "executor/device/backend.h"
#include "spmd/target/target.h"
#include "tests/ops/cases.h"
#include "tests/support/graph_check.h"

enum { SEED = 1, MAX_VALUES = 16 };

static int32_t cases_of(const dtp_op_def *op)
{
    int32_t n = 0;
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        n += dtp_case_is_of(&DTP_OP_CASES[i], op) ? 1 : 0;
    }
    return n;
}

static void test_cases__cover_every_op(void **state)
{
    (void)state;
    int32_t missing = 0;
    assert_true(dtp_op_count() > 0);
    for (int32_t i = 0; i < dtp_op_count(); i++) {
        if (cases_of(dtp_op_at(i)) == 0) {
            print_error("op '%s' has no case\n", dtp_op_at(i)->name);
            missing++;
        }
    }
    assert_int_equal(missing, 0);
}

/* Which values of an ENUM or BOOL attribute the cases of the op use, as a bit set. */
static uint32_t values_used(const dtp_op_def *op, const char *key)
{
    uint32_t seen = 0;
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        if (dtp_case_is_of(&DTP_OP_CASES[i], op)) {
            dtp_case_graph cg;
            dtp_call_types types;
            case_build(&DTP_OP_CASES[i], DTP_F64, SEED, &cg);
            dtp_op_call call = dtp_node_call(cg.g, &cg.g->nodes[cg.node], &types);
            seen |= 1U << dtp_call_int(&call, key);
            dtp_case_free(&cg);
        }
    }
    return seen;
}

static void test_cases__cover_every_choice(void **state)
{
    (void)state;
    int32_t missing = 0;
    for (int32_t i = 0; i < dtp_op_count(); i++) {
        const dtp_op_def *op = dtp_op_at(i);
        for (const dtp_attr_spec *s = op->attrs; s != NULL && s->key != NULL; s++) {
            int32_t n = s->kind == DTP_ATTR_BOOL ? 2 : 0;
            while (s->kind == DTP_ATTR_ENUM && s->choices[n] != NULL) {
                n++;
            }
            uint32_t seen = n == 0 ? 0 : values_used(op, s->key);
            for (int32_t v = 0; v < n; v++) {
                if ((seen >> v & 1U) == 0) {
                    print_error("op '%s': no case with value %d of '%s'\n", op->name, v, s->key);
                    missing++;
                }
            }
        }
    }
    assert_int_equal(missing, 0);
}

static void test_table__rows_are_complete(void **state)
{
    (void)state;
    for (int32_t i = 0; i < dtp_op_count(); i++) {
        const dtp_op_def *op = dtp_op_at(i);
        assert_ptr_equal(dtp_op_find(op->name), op);
        assert_non_null(op->summary);
        assert_non_null(op->infer);
        assert_true((op->vjp == NULL) == (op->no_grad != NULL));
        assert_in_range(op->n_out, 1, DTP_MAX_OP_OUT);
        assert_true(op->min_in <= op->max_in && op->max_in <= DTP_MAX_OP_IN);
        assert_true(op->n_out == 1 || op->out_names != NULL);
    }
}

static void test_cases__graphs_pass_the_checker(void **state)
{
    (void)state;
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        dtp_case_graph cg;
        dtp_err err;
        case_build(&DTP_OP_CASES[i], DTP_F32, SEED, &cg);
        if (graph_check(cg.g, &err) != DTP_OK) {
            fail_msg("case %d of '%s': %s", i, DTP_OP_CASES[i].op, err.msg);
        }
        dtp_case_free(&cg);
    }
}

static void check_kernels(dtp_backend *b)
{
    int32_t missing = 0;
    for (int32_t i = 0; i < dtp_op_count(); i++) {
        if (b->ops->kernel(b, dtp_op_at(i)->name, 0) == NULL) {
            print_error("backend '%s' has no kernel '%s'\n", b->ops->name, dtp_op_at(i)->name);
            missing++;
        }
    }
    assert_int_equal(missing, 0);
    assert_null(b->ops->kernel(b, "no such op", 0));
}

static void test_backends__have_every_kernel(void **state)
{
    (void)state;
    static const char *const names[] = {"ref", "cpu"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        dtp_backend *b = NULL;
        assert_int_equal(dtp_backend_create(names[i], 1, &b, NULL), DTP_OK);
        check_kernels(b);
        dtp_backend_destroy(b);
    }
}

/* What a target says of dtypes is what kernels its backend has. */
static void test_targets__take_what_their_backends_take(void **state)
{
    (void)state;
    enum { N = 4 };
    static const dtp_dtype floats[N] = {DTP_F32, DTP_F64, DTP_BF16, DTP_F16};
    int32_t refused = 0;
    for (int32_t t = 0; dtp_target_at(t) != NULL; t++) {
        const dtp_target *target = dtp_target_at(t);
        dtp_backend *b = NULL;
        if (target->backends[0] == NULL) { /* a framework runs its programs */
            continue;
        }
        if (dtp_backend_create(target->backends[0], 1, &b, NULL) == DTP_UNSUPPORTED) {
            continue;
        }
        assert_non_null(b);
        for (int32_t i = 0; i < N * DTP_OP_CASE_COUNT; i++) {
            const dtp_op_case *c = &DTP_OP_CASES[i / N];
            dtp_case_graph cg;
            dtp_call_types types;
            const dtp_kernel *kernel;
            dtp_err err;
            if (dtp_case_build(c, NULL, floats[i % N], SEED, &cg, NULL) != DTP_OK) {
                dtp_case_free(&cg); /* an operand that stays f32 for 16-bit others */
                continue;
            }
            const dtp_op_call call = dtp_node_call(cg.g, &cg.g->nodes[cg.node], &types);
            const bool takes = dtp_target_takes(target, &call, &err) == DTP_OK;
            if (takes != (dtp_backend_kernel(b, &call, &kernel, NULL) == DTP_OK)) {
                fail_msg("target '%s' %s '%s' of %s", target->name, takes ? "takes" : "refuses",
                         c->op, dtp_dtype_name(floats[i % N]));
            }
            refused += takes ? 0 : 1;
            dtp_case_free(&cg);
        }
        dtp_backend_destroy(b);
    }
    assert_true(refused > 100);
}

/* Bytes are positive, work does not shrink below zero. */
static void test_cases__work_is_sane(void **state)
{
    (void)state;
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        dtp_case_graph cg;
        dtp_call_types types;
        dtp_work work = {.flops = -1.0, .bytes = -1.0};
        case_build(&DTP_OP_CASES[i], DTP_F32, SEED, &cg);
        dtp_op_call call = dtp_node_call(cg.g, &cg.g->nodes[cg.node], &types);
        dtp_call_work(&call, &work);
        assert_true(work.flops >= 0.0);
        assert_true(work.bytes > 0.0 || work.cls == DTP_WORK_NONE);
        dtp_case_free(&cg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases__cover_every_op),
        cmocka_unit_test(test_cases__cover_every_choice),
        cmocka_unit_test(test_table__rows_are_complete),
        cmocka_unit_test(test_cases__graphs_pass_the_checker),
        cmocka_unit_test(test_backends__have_every_kernel),
        cmocka_unit_test(test_targets__take_what_their_backends_take),
        cmocka_unit_test(test_cases__work_is_sane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
