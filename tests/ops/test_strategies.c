/* The rule verifier (executor/rule_verify): every op of the table under every sharding rule, and
 * that the verifier sees wrong rules and wrong programs.
 * Usage: test_strategies verifier|ref|cpu|bf16|f16 [seed]; bf16 and f16 on the CPU backend
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "executor/rule_verify/rule_subject.h"
#include "core/graph/op_rules.h"
#include "core/graph/ops/op_table.h"
#include "tests/support/quarter.h"

static uint64_t seed = 20240517;

/* ---- every rule of every op ---- */

static void test_strategies__every_rule(void **state)
{
    const char *part = *state;
    const bool is_backend = strcmp(part, "ref") == 0 || strcmp(part, "cpu") == 0;
    double most = 0.0;
    int64_t programs = 0, gradients = 0, refused = 0;
    for (int32_t i = 0; i < dtp_op_count(); i++) {
        if (!quarter_has(i, dtp_op_count())) {
            continue;
        }
        dtp_rule_verify_options o = dtp_rule_verify_options_init();
        dtp_rule_report r;
        dtp_err err = {0};
        o.backend = is_backend ? part : "cpu";
        o.dtype = is_backend ? NULL : part;
        o.seed = seed;
        if (dtp_rule_verify(dtp_op_at(i), &o, &r, &err) != DTP_OK) {
            fail_msg("%s", err.msg);
        }
        if (!r.pass) {
            fail_msg("%s", r.first_wrong.msg);
        }
        assert_true(r.programs > 0);
        assert_true(dtp_op_at(i)->vjp != NULL || r.gradient_programs == 0);
        programs += r.programs;
        gradients += r.gradient_programs;
        refused += r.refused;
        most = r.max_error > most ? r.max_error : most;
    }
    (void)printf("%s: %lld programs and %lld with gradients equal the unsharded op to %.2g, "
                 "%lld refused\n",
                 part, (long long)programs, (long long)gradients, most, (long long)refused);
    assert_true(gradients > quarter_of(500) && programs > 2 * refused);
}

/* ---- the verifier sees a wrong rule ---- */

/* Ways to break the rows of an op. */
typedef enum mutation {
    PARTIAL_IS_WHOLE,     /* the results of the shards are taken for the whole */
    SUM_IS_MAX,           /* sums are combined by max */
    SUM_IS_AVG,           /* sums are averaged */
    INTERNAL_IS_PARALLEL, /* the collectives inside are left out */
    N_MUTATIONS
} mutation;

static const char *const MUTATION_NAMES[N_MUTATIONS] = {"partial is whole", "sum is max",
                                                        "sum is avg", "internal is parallel"};

/* The op under mutation: hooks have no user pointer. */
static const dtp_op_def *original;
static mutation how;

static bool mutate_place(dtp_placement *p)
{
    if (p->kind != DTP_PARTIAL || p->op != DTP_REDUCE_SUM || how == INTERNAL_IS_PARALLEL) {
        return false;
    }
    *p = how == PARTIAL_IS_WHOLE
             ? (dtp_placement){0}
             : (dtp_placement){.kind = DTP_PARTIAL,
                               .op = how == SUM_IS_MAX ? DTP_REDUCE_MAX : DTP_REDUCE_AVG};
    return true;
}

/* The rows of the original, broken; returns whether that changed any. */
static bool mutate(const dtp_op_call *call, bool linear, dtp_sharding_rules *out)
{
    bool changed = false;
    dtp_op_call same = *call;
    same.op = original;
    dtp_sharding_rules_of(&same, linear, out);
    for (int32_t r = 1; r < out->n; r++) {
        if (how == INTERNAL_IS_PARALLEL && out->rows[r].internal) {
            out->rows[r].internal = false;
            changed = true;
        }
        for (int32_t i = 0; i < call->n_out; i++) {
            changed = mutate_place(&out->rows[r].out[i]) || changed;
        }
    }
    return changed;
}

static void mutated_rules(const dtp_op_call *call, bool linear, dtp_sharding_rules *out)
{
    (void)mutate(call, linear, out);
}

/* Whether the mutation changes the rows of any case of the op. */
static bool changes_something(void)
{
    bool changed = false;
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT && !changed; i++) {
        dtp_case_graph cg;
        dtp_call_types types;
        dtp_sharding_rules rows;
        if (dtp_case_is_of(&DTP_OP_CASES[i], original)) {
            assert_int_equal(dtp_case_build(&DTP_OP_CASES[i], NULL, DTP_F64, seed, &cg, NULL),
                             DTP_OK);
            dtp_op_call call = dtp_node_call(cg.g, &cg.g->nodes[cg.node], &types);
            changed = mutate(&call, true, &rows);
            dtp_case_free(&cg);
        }
    }
    return changed;
}

static void test_strategies__a_broken_rule_is_caught(void **state)
{
    (void)state;
    int32_t broken = 0;
    for (int32_t i = 0; i < dtp_op_count(); i++) {
        original = dtp_op_at(i);
        for (int32_t m = 0; m < N_MUTATIONS; m++) {
            how = (mutation)m;
            if (!changes_something()) {
                continue;
            }
            dtp_op_def wrong = *original;
            wrong.rules = mutated_rules;
            dtp_rule_verify_options o = dtp_rule_verify_options_init();
            dtp_rule_report r;
            o.seed = seed;
            assert_int_equal(dtp_rule_verify(&wrong, &o, &r, NULL), DTP_OK);
            if (r.pass) {
                fail_msg("op '%s': '%s' is not noticed", original->name, MUTATION_NAMES[m]);
            }
            broken++;
        }
    }
    (void)printf("%d broken rules are caught\n", broken);
    assert_true(broken > 20);
}

/* ---- the comparison sees a wrong program ---- */

enum { SPOIL_REDUCE_OP, SPOIL_KEEP_FIRST };

/* Replaces the first instruction of one kind by a wrong one; false when there is none. */
static bool spoil(dtp_program *p, int32_t kind)
{
    for (int32_t i = 0; i < p->n_instrs; i++) {
        dtp_instr *in = &p->instrs[i];
        if (kind == SPOIL_REDUCE_OP && in->kind == DTP_INSTR_START &&
            in->coll.kind == DTP_ALL_REDUCE) {
            in->coll.op = DTP_REDUCE_MAX;
            return true;
        }
        if (kind == SPOIL_KEEP_FIRST && in->kind == DTP_INSTR_COPY &&
            in->move.kind == DTP_COPY_KEEP_FIRST) {
            in->move.kind = DTP_COPY_WHOLE;
            return true;
        }
    }
    return false;
}

static void check_spoiled(const dtp_op_case *c, int16_t row, int32_t kind)
{
    dtp_rule_target t;
    dtp_rule_subject s;
    dtp_rule_choice pick;
    dtp_program *p = NULL;
    bool applies;
    double error;
    assert_int_equal(dtp_rule_target_init(&t, "ref", NULL, seed, NULL), DTP_OK);
    assert_int_equal(dtp_rule_subject_create(c, NULL, false, &t, &s, &applies, NULL), DTP_OK);
    assert_int_equal(dtp_rule_choice_init(&pick, s.cg.g, "x:2", NULL), DTP_OK);
    pick.strategies[0].row[0] = row;
    assert_int_equal(dtp_lower(s.cg.g, &pick.sharding, &pick.options, &p, NULL), DTP_OK);
    assert_int_equal(dtp_rule_error(&s, &t, p, &error, NULL), DTP_OK);
    assert_true(error <= t.bound);
    assert_true(spoil(p, kind));
    assert_int_equal(dtp_rule_error(&s, &t, p, &error, NULL), DTP_OK);
    assert_true(error > 1e-2);
    dtp_program_destroy(p);
    dtp_rule_subject_free(&s);
}

static void test_strategies__a_wrong_program_is_seen(void **state)
{
    (void)state;
    const dtp_op_case product = {.op = "einsum", .in = {"m=4,k=6", "k=6,n=5"}, .out = "m=4,n=5"};
    check_spoiled(&product, 2, SPOIL_REDUCE_OP);
    check_spoiled(&product, 4, SPOIL_KEEP_FIRST);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest verifier[] = {
        cmocka_unit_test(test_strategies__a_wrong_program_is_seen),
        cmocka_unit_test(test_strategies__a_broken_rule_is_caught),
    };
    if (argc < 2) {
        (void)fprintf(stderr, "usage: test_strategies verifier|ref|cpu|bf16|f16 [seed]\n");
        return 2;
    }
    const struct CMUnitTest rules[] = {
        cmocka_unit_test_prestate(test_strategies__every_rule, argv[1]),
    };
    if (argc > 2) {
        seed = strtoull(argv[2], NULL, 10);
    }
    (void)printf("seed %llu\n", (unsigned long long)seed);
    return strcmp(argv[1], "verifier") == 0 ? cmocka_run_group_tests(verifier, NULL, NULL)
                                            : cmocka_run_group_tests(rules, NULL, NULL);
}
