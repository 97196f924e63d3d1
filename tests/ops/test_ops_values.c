/* Small results that are known from the definitions of the ops, on both backends: ties, NaN,
 * bounds, positions; and which rows pass partial sums. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/ops/cases.h"
#include "tests/ops/eval.h"
#include "core/graph/op_rules.h"
#include "executor/cpu/cpu.h"
#include "executor/ref/ref.h"

enum { MOST = 8 };

typedef struct known {
    dtp_op_case c;
    double in[7][MOST];
    double out[3][MOST]; /* out[1], out[2]: of ops with more outputs */
} known;

static const known KNOWN[] = {
    {{.op = "argmax", .in = {"a=4"}, .attrs = "over=a"}, {{1, 3, 3, 2}}, {{1}}},
    {{.op = "argmax", .in = {"a=4"}, .attrs = "over=a; dtype=i64"}, {{1, NAN, 3, NAN}}, {{1}}},
    {{.op = "argmin", .in = {"b=2,a=3"}, .attrs = "over=a"}, {{2, 1, 1, 0, 5, -1}}, {{1, 2}}},
    {{.op = "arg_first", .in = {"a=4", "-"}, .attrs = "over=a"}, {{1, 3, 3, 2}, {3}}, {{1}}},
    {{.op = "arg_first", .in = {"a=2", "-"}, .attrs = "over=a"}, {{1, 3}, {2}}, {{INT32_MAX}}},
    {{.op = "topk", .in = {"a=4"}, .attrs = "over=a; k=3"}, {{2, 5, 5, 1}}, {{5, 5, 2}, {1, 2, 0}}},
    {{.op = "topk", .in = {"a=4"}, .attrs = "over=a; k=2; largest=0"},
     {{2, 5, 1, 1}},
     {{1, 1}, {2, 3}}},
    {{.op = "topk", .in = {"a=3"}, .attrs = "over=a; k=2"}, {{2, NAN, 5}}, {{NAN, 5}, {1, 2}}},
    {{.op = "clamp", .in = {"a=3"}, .attrs = "low=0"}, {{-5, 1e30, NAN}}, {{0, 1e30, NAN}}},
    {{.op = "clamp", .in = {"a=2"}, .attrs = "high=1"}, {{-INFINITY, 2}}, {{-INFINITY, 1}}},
    {{.op = "clamp_grad", .in = {"a=4", "a=4"}, .attrs = "low=0; high=1"},
     {{-1, 0, 1, 2}, {3, 3, 3, 3}},
     {{0, 3, 3, 0}}},
    {{.op = "sign", .in = {"a=4"}}, {{-2, 0, 3, NAN}}, {{-1, 0, 1, NAN}}},
    {{.op = "pow", .in = {"a=3"}, .attrs = "exponent=0"}, {{0, 2, NAN}}, {{1, 1, 1}}},
    {{.op = "erf", .in = {"a=4"}},
     {{0, 0.5, -2, NAN}},
     {{0, 0.5204998778130465, -0.9953222650189527, NAN}}},
    /* That of the tanh form is 1e-4 away at 2. */
    {{.op = "gelu_erf", .in = {"a=4"}},
     {{0, 1, -2, 2}},
     {{0, 0.8413447460685429, -0.045500263896358417, 1.9544997361036416}}},
    {{.op = "floor", .in = {"a=5"}},
     {{1.5, -1.5, -2, NAN, -INFINITY}},
     {{1, -2, -2, NAN, -INFINITY}}},
    /* As numpy: the sign of b; b where only the signs differ, 0 / 0 is none. */
    {{.op = "mod", .in = {"a=8", "a=8"}},
     {{7, -7, 7, -7, 6, -1, 5, INFINITY}, {3, 3, -3, -3, 3, INFINITY, 0, 2}},
     {{1, 2, -2, -1, 0, INFINITY, NAN, NAN}}},
    {{.op = "mod", .in = {"a=6 ids:9", "a=6 ids:9"}},
     {{7, -7, 7, -7, 5, INT32_MIN}, {3, 3, -3, -3, 0, -1}},
     {{1, 2, -2, -1, 0, 0}}},
    /* isnan(x) */
    {{.op = "compare", .in = {"a=3", "a=3"}, .attrs = "cmp=ne"},
     {{1, NAN, INFINITY}, {1, NAN, INFINITY}},
     {{0, 1, 0}}},
    {{.op = "softplus", .in = {"a=2"}}, {{500, -1000}}, {{500, 0}}},
    {{.op = "norm", .in = {"a=2"}, .attrs = "over=a"}, {{6, 4}}, {{7.211102550927978}}},
    {{.op = "norm", .in = {"a=2"}, .attrs = "over=a"}, {{10, 8}}, {{12.806248474865697}}},
    {{.op = "norm", .in = {"a=3"}, .attrs = "over=a; ord=inf"}, {{-7, 4, 6}}, {{7}}},
    {{.op = "norm", .in = {"a=3"}, .attrs = "over=a; ord=1"}, {{-7, 4, 6}}, {{17}}},
    {{.op = "var", .in = {"a=4"}, .attrs = "over=a"}, {{10001, 10002, 10003, 10006}}, {{14.0 / 3}}},
    {{.op = "std", .in = {"a=4"}, .attrs = "over=a; correction=0"}, {{1, 1, 5, 5}}, {{2}}},
    {{.op = "logsumexp", .in = {"a=2"}, .attrs = "over=a"}, {{1000, 1000}}, {{1000.6931471805599}}},
    {{.op = "logsumexp", .in = {"a=2"}, .attrs = "over=a"},
     {{-INFINITY, -INFINITY}},
     {{-INFINITY}}},
    {{.op = "cumsum", .in = {"a=2,b=3"}, .attrs = "dim=b"},
     {{1, 2, 3, 4, 5, 6}},
     {{1, 3, 6, 4, 9, 15}}},
    {{.op = "cumsum", .in = {"a=3 ids:9"}, .attrs = "dim=a; reverse=1"}, {{1, 2, 3}}, {{6, 5, 3}}},
    {{.op = "reduce", .in = {"a=3 ids:9"}, .attrs = "kind=max; over=a"}, {{-4, -2, -3}}, {{-2}}},
    {{.op = "reduce", .in = {"a=3 ids64:9"}, .attrs = "kind=prod; over=a"}, {{4, 0, 3}}, {{0}}},
    {{.op = "prod_grad", .in = {"a=3", "-"}, .attrs = "over=a"}, {{4, 0, 3}, {2}}, {{0, 24, 0}}},
    {{.op = "any", .in = {"a=2,b=2 bool"}, .attrs = "over=b"}, {{0, 0, 0, 1}}, {{0, 1}}},
    {{.op = "all", .in = {"a=2,b=2 bool"}, .attrs = "over=b"}, {{1, 1, 0, 1}}, {{1, 0}}},
    {{.op = "gather", .in = {"a=2,v=3", "k=2 ids:3"}, .attrs = "over=v"},
     {{1, 2, 3, 4, 5, 6}, {2, 0}},
     {{3, 1, 6, 4}}},
    {{.op = "gather", .in = {"a=2,v=3", "a=2,k=1 ids:3"}, .attrs = "over=v"},
     {{1, 2, 3, 4, 5, 6}, {2, 0}},
     {{3, 4}}},
    {{.op = "gather", .in = {"a=2,v=3", "a=2 ids:3"}, .attrs = "over=v"},
     {{1, 2, 3, 4, 5, 6}, {1, 1}},
     {{2, 5}}},
    {{.op = "gather", .in = {"v=3,a=2", "v=2,a=2 ids:3"}, .attrs = "over=v"},
     {{1, 2, 3, 4, 5, 6}, {0, 2, 1, 0}},
     {{1, 6, 3, 2}}},
    {{.op = "scatter_add", .in = {"k=3 ids:3", "k=3"}, .attrs = "over=v; along=k; size=3"},
     {{2, 0, 2}, {1, 2, 4}},
     {{2, 0, 5}}},
    /* The row of padding gets nothing, whatever comes. */
    {{.op = "embedding_grad", .in = {"k=4 ids:3", "k=4"}, .attrs = "over=v; size=3; skip=1"},
     {{1, 2, 1, 2}, {NAN, 3, 5, 7}},
     {{0, 0, 10}}},
    {{.op = "one_hot", .in = {"k=3 ids:9"}, .out = "k=3,c=2", .attrs = "dim=c; outside=off"},
     {{-100, 1, 2}},
     {{0, 0, 0, 1, 0, 0}}},
    {{.op = "stack", .in = {"a=2", "a=2"}, .out = "a=2,s=2", .attrs = "dim=s"},
     {{1, 2}, {3, 4}},
     {{1, 3, 2, 4}}},
    {{.op = "permute", .in = {"a=2,b=3"}, .out = "b=3,a=2"},
     {{1, 2, 3, 4, 5, 6}},
     {{1, 4, 2, 5, 3, 6}}},
    /* What is not finite, as numpy has it: np.max, np.argmax, np.sort, np.logaddexp.reduce,
     * exp(x - max) / sum, np.maximum. */
    {{.op = "reduce", .in = {"a=3"}, .attrs = "kind=max; over=a"}, {{1, NAN, 3}}, {{NAN}}},
    {{.op = "reduce", .in = {"a=3"}, .attrs = "kind=min; over=a"}, {{NAN, 1, 3}}, {{NAN}}},
    {{.op = "reduce", .in = {"a=3,b=2"}, .attrs = "kind=max; over=a"},
     {{1, 2, NAN, 3, 4, -INFINITY}},
     {{NAN, 3}}},
    {{.op = "reduce", .in = {"a=2"}, .attrs = "kind=max; over=a"},
     {{-INFINITY, -INFINITY}},
     {{-INFINITY}}},
    {{.op = "logsumexp", .in = {"a=3"}, .attrs = "over=a"}, {{1, NAN, INFINITY}}, {{NAN}}},
    {{.op = "logsumexp", .in = {"a=3"}, .attrs = "over=a"},
     {{1, INFINITY, -INFINITY}},
     {{INFINITY}}},
    {{.op = "softmax", .in = {"a=3"}, .attrs = "over=a"}, {{1, NAN, 2}}, {{NAN, NAN, NAN}}},
    {{.op = "softmax", .in = {"a=3"}, .attrs = "over=a"}, {{1, INFINITY, 2}}, {{NAN, NAN, NAN}}},
    {{.op = "softmax", .in = {"a=3"}, .attrs = "over=a"}, {{1, -INFINITY, 1}}, {{0.5, 0, 0.5}}},
    {{.op = "softmax", .in = {"a=2"}, .attrs = "over=a"}, {{-INFINITY, -INFINITY}}, {{NAN, NAN}}},
    {{.op = "log_softmax", .in = {"a=2"}, .attrs = "over=a"}, {{1, INFINITY}}, {{NAN, NAN}}},
    {{.op = "log_softmax", .in = {"a=2"}, .attrs = "over=a"}, {{-INFINITY, 7}}, {{-INFINITY, 0}}},
    {{.op = "argmax", .in = {"a=3"}, .attrs = "over=a"}, {{NAN, NAN, NAN}}, {{0}}},
    {{.op = "argmin", .in = {"a=3"}, .attrs = "over=a"}, {{1, 0, NAN}}, {{2}}},
    {{.op = "argmax", .in = {"a=3"}, .attrs = "over=a"}, {{-INFINITY, INFINITY, INFINITY}}, {{1}}},
    {{.op = "topk", .in = {"a=3"}, .attrs = "over=a; k=3; largest=0"},
     {{NAN, 2, -INFINITY}},
     {{-INFINITY, 2, NAN}, {2, 1, 0}}},
    {{.op = "topk", .in = {"a=3"}, .attrs = "over=a; k=2"}, {{NAN, 2, NAN}}, {{NAN, NAN}, {0, 2}}},
    /* Convolutions by hand: a stride and padding, groups, the transposed one with places that no
     * window reaches, "same" of an even kernel. */
    {{.op = "conv",
      .in = {"w=5", "k=3"},
      .attrs = "spatial=w; kernel=k; stride=2; before=1; after=1"},
     {{1, 2, 3, 4, 5}, {1, 10, 100}},
     {{210, 432, 54}}},
    {{.op = "conv", .in = {"c=2,w=2", "c=2,k=2"}, .attrs = "spatial=w; kernel=k; groups=c"},
     {{1, 2, 3, 4}, {1, 10, 100, 1000}},
     {{21, 4300}}},
    {{.op = "conv", .in = {"w=3", "k=2"}, .attrs = "spatial=w; kernel=k; padding=same"},
     {{1, 2, 3}, {1, 10}},
     {{21, 32, 3}}},
    {{.op = "conv_transpose",
      .in = {"w=2", "k=2"},
      .attrs = "spatial=w; kernel=k; stride=3; after=-1"},
     {{1, 2}, {5, 7}},
     {{5, 7, 0, 10, 14, 0}}},
    {{.op = "conv_weight",
      .in = {"w=4", "w=2"},
      .attrs = "spatial=w; kernel=k; stride=2",
      .out = "k=2"},
     {{1, 2, 3, 4}, {10, 100}},
     {{310, 420}}},
    /* Of equals the first; padding is no element of a maximum, and one of a mean unless
       "inside". */
    {{.op = "pool", .in = {"w=5"}, .attrs = "kind=max; spatial=w; window=3; stride=2; before=1"},
     {{-5, -7, -3, NAN, 2}},
     {{-5, NAN}}},
    {{.op = "pool", .in = {"w=3"}, .attrs = "kind=mean; spatial=w; window=2; stride=1; before=1"},
     {{2, 4, 8}},
     {{1, 3, 6}}},
    {{.op = "pool",
      .in = {"w=3"},
      .attrs = "kind=mean; spatial=w; window=2; stride=1; before=1; count=inside"},
     {{2, 4, 8}},
     {{2, 3, 6}}},
    {{.op = "pool_grad", .in = {"w=4", "w=3"}, .attrs = "kind=max; spatial=w; window=2; stride=1"},
     {{3, 3, 1, 1}, {1, 10, 100}},
     {{1, 10, 100, 0}}},
    {{.op = "relu", .in = {"a=4"}}, {{NAN, -INFINITY, INFINITY, -1}}, {{NAN, 0, INFINITY, 0}}},
    {{.op = "max", .in = {"a=2", "a=2"}}, {{NAN, 1}, {1, NAN}}, {{NAN, NAN}}},
    {{.op = "min", .in = {"a=2", "a=2"}}, {{NAN, 1}, {1, NAN}}, {{NAN, NAN}}},
    {{.op = "norm", .in = {"a=3"}, .attrs = "over=a; ord=inf"}, {{1, NAN, 2}}, {{NAN}}},
    {{.op = "cumsum", .in = {"a=3"}, .attrs = "dim=a"}, {{1, NAN, 2}}, {{1, NAN, NAN}}},
    {{.op = "cross_entropy", .in = {"a=3", "- ids:3"}, .attrs = "over=a"},
     {{1, NAN, 2}, {0}},
     {{NAN}, {NAN}}},
    {{.op = "cross_entropy", .in = {"a=2,b=2", "a=2 ids:2"}, .attrs = "over=b; ignore=1"},
     {{5, 5, NAN, NAN}, {0, 1}},
     {{0.6931471805599453}, {5.693147180559945, NAN}}},
    /* A key that is out of sight has no part, whatever it is. */
    {{.op = "attention", .in = {"s=2,f=1", "s=2,f=1", "s=2,f=1"}, .attrs = "query=s; feature=f"},
     {{1, 1}, {1, NAN}, {3, NAN}},
     {{3, NAN}, {1, NAN}}},
    {{.op = "attention",
      .in = {"s=2,f=1", "s=2,f=1", "s=2,f=1"},
      .attrs = "query=s; feature=f; causal=0"},
     {{1, 1}, {-INFINITY, 0}, {3, 4}},
     {{4, 4}, {0, 0}}},
    /* So is one that the mask hides; a query that sees none has 0. */
    {{.op = "attention",
      .in = {"s=3,f=1", "t=2,f=1", "t=2,f=1", "s=3,t=2 bool"},
      .attrs = "query=s; key=t; feature=f; causal=0"},
     {{1, 1, 1}, {1, NAN}, {3, NAN}, {1, 0, 0, 0, 0, 1}},
     {{3, 0, NAN}, {1, -INFINITY, NAN}}},
    {{.op = "attention",
      .in = {"s=2,f=1", "t=2,f=1", "t=2,f=1", "t=2,s=2"},
      .attrs = "query=s; key=t; feature=f; causal=0"},
     {{0, 0}, {5, INFINITY}, {3, INFINITY}, {1, 2, -INFINITY, -INFINITY}},
     {{3, 3}, {1, 2}}},
    /* log 3 more of one score is three times the weight. */
    {{.op = "attention",
      .in = {"s=1,f=1", "t=2,f=1", "t=2,f=1", "t=2"},
      .attrs = "query=s; key=t; feature=f; causal=0"},
     {{0}, {5, 6}, {4, 8}, {0, 1.0986122886681098}},
     {{7}, {1.3862943611198906}}},
    {{.op = "attention_grad",
      .in = {"s=2,f=1", "t=2,f=1", "t=2,f=1", "s=2,f=1", "s=2", "s=2,f=1", "t=2 bool"},
      .attrs = "query=s; key=t; feature=f; causal=0"},
     {{0, 0}, {5, NAN}, {3, INFINITY}, {3, 3}, {0, 0}, {1, 2}, {1, 0}},
     {{0, 0}, {0, 0}, {3, 0}}},
};

static void check_known(const known *k, dtp_backend *b, dtp_dtype float_dtype, double bound)
{
    dtp_case_graph cg;
    eval e;
    case_build(&k->c, float_dtype, 1, &cg);
    eval_init(&e, cg.g, b);
    for (int32_t i = 0; i < cg.n_in; i++) {
        eval_set(&e, i, k->in[i]);
    }
    eval_run(&e);
    const dtp_node *node = &cg.g->nodes[cg.node];
    for (int32_t o = 0; o < node->n_out; o++) {
        for (int64_t i = 0; i < dtp_ttype_elems(&cg.g->tensors[node->out[o]].type); i++) {
            const double want = k->out[o][i], got = eval_get(&e, node->out[o], i);
            const bool same = want == got || (isnan(want) && isnan(got));
            if (!same && !(fabs(want - got) <= bound * fabs(want))) {
                fail_msg("'%s' (%s) on '%s': element %lld of output %d is %.9g, not %.9g", k->c.op,
                         k->c.attrs == NULL ? "" : k->c.attrs, b->ops->name, (long long)i, o, got,
                         want);
            }
        }
    }
    eval_free(&e);
    dtp_case_free(&cg);
}

static void test_ops_values__follow_the_definitions(void **state)
{
    (void)state;
    dtp_backend *ref = NULL, *cpu = NULL;
    assert_int_equal(dtp_backend_ref_create(&ref, NULL), DTP_OK);
    assert_int_equal(dtp_backend_cpu_create(1, &cpu, NULL), DTP_OK);
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++) {
        check_known(&KNOWN[i], ref, DTP_F64, 1e-14);
        check_known(&KNOWN[i], cpu, DTP_F32, 1e-6);
    }
    dtp_backend_destroy(ref);
    dtp_backend_destroy(cpu);
}

/* Rows whose operand is a partial sum, and what they make of the output. */
static int32_t partial_rows(const dtp_op_case *c, dtp_placement_kind *out)
{
    dtp_case_graph cg;
    dtp_call_types types;
    dtp_sharding_rules rules;
    int32_t n = 0;
    case_build(c, DTP_F32, 1, &cg);
    dtp_op_call call = dtp_node_call(cg.g, &cg.g->nodes[cg.node], &types);
    dtp_sharding_rules_of(&call, true, &rules);
    for (int32_t r = 0; r < rules.n; r++) {
        if (rules.rows[r].in[0].kind == DTP_PARTIAL) {
            *out = (dtp_placement_kind)rules.rows[r].out[0].kind;
            n++;
        }
    }
    dtp_case_free(&cg);
    return n;
}

static void test_partial_sums__pass_where_the_op_is_linear(void **state)
{
    (void)state;
    static const struct {
        dtp_op_case c;
        int32_t rows;
        dtp_placement_kind out;
    } cases[] = {
        {{.op = "norm", .in = {"a=4"}, .attrs = "over=a"}, 0, DTP_REPLICATE},
        {{.op = "clamp", .in = {"a=4"}, .attrs = "low=0"}, 0, DTP_REPLICATE},
        {{.op = "abs", .in = {"a=4"}}, 0, DTP_REPLICATE},
        {{.op = "fill", .in = {"a=4"}, .attrs = "value=8"}, 1, DTP_REPLICATE},
        {{.op = "permute", .in = {"a=4,b=2"}, .out = "b=2,a=4"}, 1, DTP_PARTIAL},
        {{.op = "cumsum", .in = {"a=4"}, .attrs = "dim=a"}, 1, DTP_PARTIAL},
        {{.op = "stack", .in = {"a=4", "a=4"}, .attrs = "dim=s"}, 1, DTP_PARTIAL},
        {{.op = "stack", .in = {"a=4 bool", "a=4 bool"}, .attrs = "dim=s"}, 0, DTP_REPLICATE},
        {{.op = "gather", .in = {"v=4", "a=2 ids:4"}, .attrs = "over=v"}, 1, DTP_PARTIAL},
        {{.op = "topk", .in = {"a=4"}, .attrs = "over=a; k=1"}, 0, DTP_REPLICATE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_placement_kind out = DTP_REPLICATE;
        const int32_t n = partial_rows(&cases[i].c, &out);
        if (n != cases[i].rows || out != cases[i].out) {
            fail_msg("'%s' has %d rows with a partial operand", cases[i].c.op, n);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_values__follow_the_definitions),
        cmocka_unit_test(test_partial_sums__pass_where_the_op_is_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
