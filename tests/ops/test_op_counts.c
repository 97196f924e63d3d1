/* Collectives that one op needs for operands laid out in a given way on 4 ranks, and that the
 * result is that of one device. A result that is partial is reduced in the end, which counts. Rows
 * N7 to N24 and M9 of the cases of distributed tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "executor/rule_verify/rule_subject.h"
#include "core/graph/op_rules.h"

enum { SEED = 5 };

/* How operand 0 lies and which row runs. */
typedef enum how {
    ROW,      /* the row that splits `dim`, operands and results as it says */
    LINEAR,   /* the row that passes partial sums */
    GATHER,   /* operand 0 split along its first dim, the op on replicated operands */
    GATHER_1, /* the same along its second dim */
    REDUCE    /* operand 0 a partial sum, the op on replicated operands */
} how;

typedef struct count_case {
    const char *id;
    dtp_op_case c;
    how how;
    const char *dim;
    int32_t all_reduce, all_gather;
} count_case;

static const count_case CASES[] = {
    {"N7", {.op = "cumsum", .in = {"a=3,b=5"}, .attrs = "dim=a"}, GATHER, NULL, 0, 1},
    {"N7", {.op = "cumsum", .in = {"a=3,b=5"}, .attrs = "dim=b"}, ROW, "a", 0, 0},
    {"N7", {.op = "logsumexp", .in = {"a=3,b=5"}, .attrs = "over=a"}, GATHER, NULL, 0, 1},
    {"N7", {.op = "logsumexp", .in = {"a=3,b=5"}, .attrs = "over=a"}, ROW, "a", 2, 0},
    {"N7", {.op = "logsumexp", .in = {"a=3,b=5"}, .attrs = "over=b"}, ROW, "a", 0, 0},
    {"N8", {.op = "topk", .in = {"a=12,b=8,c=8"}, .attrs = "over=a; k=3"}, GATHER, NULL, 0, 1},
    {"N8", {.op = "topk", .in = {"a=12,b=8,c=8"}, .attrs = "over=a; k=3"}, ROW, "b", 0, 0},
    {"N12", {.op = "norm", .in = {"a=2"}, .attrs = "over=a"}, REDUCE, NULL, 1, 0},
    {"N12", {.op = "norm", .in = {"a=6,b=2"}, .attrs = "over=a"}, ROW, "a", 1, 0},
    {"N17", {.op = "fill", .in = {"a=2,b=2"}, .attrs = "value=1"}, LINEAR, NULL, 0, 0},
    {"N18", {.op = "clamp", .in = {"a=4"}, .attrs = "low=0"}, REDUCE, NULL, 1, 0},
    {"N22",
     {.op = "slice", .in = {"a=8,b=16"}, .attrs = "dim=b; start=8; stop=16"},
     GATHER_1,
     NULL,
     0,
     1},
    {"N24", {.op = "stack", .in = {"a=8,b=8", "a=8,b=8"}, .attrs = "dim=s"}, ROW, "b", 0, 0},
    {"N24",
     {.op = "stack", .in = {"a=8,b=8", "a=8,b=8"}, .out = "a=8,s=2,b=8", .attrs = "dim=s"},
     ROW,
     "b",
     0,
     0},
    {"M9", {.op = "permute", .in = {"a=12,b=8"}, .out = "b=8,a=12"}, ROW, "a", 0, 0},
    {"M9", {.op = "permute", .in = {"a=12,b=8"}, .out = "b=8,a=12"}, LINEAR, NULL, 1, 0},
    {"var", {.op = "var", .in = {"a=7,b=3"}, .attrs = "over=a"}, ROW, "a", 2, 0},
    {"argmax", {.op = "argmax", .in = {"a=7,b=3"}, .attrs = "over=a"}, ROW, "a", 2, 0},
    {"any", {.op = "any", .in = {"a=7,b=3 bool"}, .attrs = "over=a"}, ROW, "a", 1, 0},
    {"nll", {.op = "gather", .in = {"a=8,v=16", "a=8 ids:16"}, .attrs = "over=v"}, ROW, "v", 1, 0},
};

static int16_t find_row(const dtp_graph *g, const count_case *k)
{
    dtp_call_types types;
    dtp_sharding_rules rules;
    dtp_op_call call = dtp_node_call(g, &g->nodes[0], &types);
    const dtp_dim_id d = k->how == ROW ? dtp_dims_find(&g->dims, k->dim) : -1;
    dtp_sharding_rules_of(&call, true, &rules);
    for (int32_t r = 1; r < rules.n; r++) {
        if (k->how == ROW ? rules.rows[r].dim == d : rules.rows[r].linear) {
            return (int16_t)r;
        }
    }
    fail_msg("%s: '%s' has no such row", k->id, k->c.op);
    return -1;
}

/* Operands and results where the case wants them. */
static void lay_out(const dtp_graph *g, const count_case *k, dtp_rule_choice *choice)
{
    if (k->how == ROW || k->how == LINEAR) {
        choice->strategies[0].row[0] = find_row(g, k);
        dtp_rule_lay_out(choice, g, 0, false);
    } else if (k->how == REDUCE) {
        choice->layouts[0].placement[0] =
            (dtp_placement){.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
    } else {
        dtp_layout_split(&choice->layouts[0], 0, k->how == GATHER ? 0 : 1);
    }
}

static int32_t count(const dtp_program *p, dtp_coll_kind kind)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *in = &p->instrs[i];
        n += in->kind == DTP_INSTR_START && in->coll.kind == kind ? 1 : 0;
    }
    return n;
}

static void check(const count_case *k)
{
    dtp_rule_target t;
    dtp_rule_subject s;
    dtp_rule_choice choice;
    dtp_program *p = NULL;
    dtp_err err = {0};
    bool applies;
    double error;
    assert_int_equal(dtp_rule_target_init(&t, "ref", NULL, SEED, NULL), DTP_OK);
    assert_int_equal(dtp_rule_subject_create(&k->c, NULL, false, &t, &s, &applies, NULL), DTP_OK);
    assert_int_equal(dtp_rule_choice_init(&choice, s.cg.g, "x:4", NULL), DTP_OK);
    lay_out(s.cg.g, k, &choice);
    if (dtp_lower(s.cg.g, &choice.sharding, &choice.options, &p, &err) != DTP_OK) {
        fail_msg("%s: %s", k->id, err.msg);
    }
    const int32_t ar = count(p, DTP_ALL_REDUCE), ag = count(p, DTP_ALL_GATHER);
    const int32_t others = count(p, DTP_REDUCE_SCATTER) + count(p, DTP_ALL_TO_ALL);
    if (ar != k->all_reduce || ag != k->all_gather || others != 0) {
        fail_msg("%s: '%s' (%s) takes %d all-reduces, %d all-gathers, %d others", k->id, k->c.op,
                 k->c.attrs == NULL ? "" : k->c.attrs, ar, ag, others);
    }
    assert_int_equal(dtp_rule_error(&s, &t, p, &error, NULL), DTP_OK);
    assert_true(error <= t.bound);
    dtp_program_destroy(p);
    dtp_rule_subject_free(&s);
}

static void test_op_counts__are_those_of_the_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        check(&CASES[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_op_counts__are_those_of_the_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
