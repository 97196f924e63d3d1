/* The decomposition of every op that has one gives the fused op's outputs (reference backend), has
 * no rule that is internal again, and communicates as often as docs/ops.md says.
 * Usage: test_decompose [seed]
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/ops/eval.h"
#include "core/graph/ops/op_table.h"
#include "tests/ops/cases.h"
#include "core/graph/op_rules.h"
#include "executor/ref/ref.h"

static uint64_t seed = 20240517;

/* The sums over x^2 cancel against the squared mean, so the norms lose some digits. */
static const double BOUND = 1e-11;

/* Appends the decomposition of the case's node for so many parts; outs gets its outputs. */
static void decompose(dtp_case_graph *cg, int32_t parts, dtp_tensor_id outs[DTP_MAX_OP_OUT])
{
    const dtp_node node = cg->g->nodes[cg->node];
    dtp_call_types types;
    dtp_err err;
    dtp_op_call call = dtp_node_call(cg->g, &node, &types);
    call.parts = parts;
    if (node.op->decompose(cg->g, &call, node.in, outs, &err) != DTP_OK) {
        fail_msg("decomposition of '%s': %s", node.op->name, err.msg);
    }
    for (int32_t o = 0; o < node.n_out; o++) {
        assert_true(dtp_ttype_equal(&cg->g->tensors[outs[o]].type, &types.out[o]));
    }
}

static void check_values(const dtp_op_case *c, int32_t parts, dtp_backend *ref)
{
    dtp_case_graph cg;
    dtp_tensor_id outs[DTP_MAX_OP_OUT];
    eval e;
    case_build(c, DTP_F64, seed, &cg);
    decompose(&cg, parts, outs);
    eval_init(&e, cg.g, ref);
    for (int32_t i = 0; i < cg.n_in; i++) {
        eval_set(&e, i, cg.values[i]);
    }
    eval_run(&e);
    const dtp_node *node = &cg.g->nodes[cg.node];
    for (int32_t o = 0; o < node->n_out; o++) {
        double largest = 1e-3, worst = 0.0;
        for (int64_t i = 0; i < dtp_ttype_elems(&cg.g->tensors[outs[o]].type); i++) {
            double fused = eval_get(&e, node->out[o], i), split = eval_get(&e, outs[o], i);
            assert_true(isfinite(fused) && isfinite(split));
            largest = fmax(largest, fabs(fused));
            worst = fmax(worst, fabs(fused - split));
        }
        if (worst > BOUND * largest) {
            fail_msg("'%s' (%s): output %d of the decomposition into %d is off by %g, seed %llu",
                     c->op, c->attrs, o, parts, worst / largest, (unsigned long long)seed);
        }
    }
    eval_free(&e);
    dtp_case_free(&cg);
}

static bool has_partial(const dtp_sharding_rule *row)
{
    return row->out[0].kind == DTP_PARTIAL || row->out[1].kind == DTP_PARTIAL;
}

/* Nodes of the decomposition whose outputs are partial when dim d is split; no node may be internal
 * or refuse the split. */
static int32_t reductions(const dtp_op_case *c, const dtp_case_graph *cg, dtp_dim_id d)
{
    int32_t n = 0;
    for (dtp_node_id id = cg->node + 1; id < cg->g->n_nodes; id++) {
        dtp_call_types types;
        dtp_sharding_rules rules;
        dtp_op_call call = dtp_node_call(cg->g, &cg->g->nodes[id], &types);
        bool has_dim = false, has_rule = false;
        for (int32_t i = 0; i < call.n_in; i++) {
            has_dim = has_dim || dtp_ttype_find(&call.in[i], d) >= 0;
        }
        dtp_sharding_rules_of(&call, false, &rules);
        for (int32_t r = 1; r < rules.n; r++) {
            if (rules.rows[r].dim == d) {
                assert_false(rules.rows[r].internal);
                has_rule = true;
                n += has_partial(&rules.rows[r]) ? 1 : 0;
            }
        }
        if (has_dim && !has_rule) {
            fail_msg("'%s': part '%s' cannot be split", c->op, call.op->name);
        }
    }
    return n;
}

static int32_t expected_reductions(const char *op, bool over)
{
    static const struct {
        const char *op;
        int32_t n;
    } counts[] = {{"softmax", 2},
                  {"log_softmax", 2},
                  {"softmax_grad", 1},
                  {"log_softmax_grad", 1},
                  {"cross_entropy", 3},
                  {"layer_norm", 2},
                  {"layer_norm_grad", 1},
                  {"rms_norm", 1},
                  {"rms_norm_grad", 1},
                  {"logsumexp", 2},
                  {"norm", 1},
                  {"var", 2},
                  {"std", 2},
                  {"argmax", 2},
                  {"argmin", 2},
                  {"any", 1},
                  {"all", 1}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (strcmp(counts[i].op, op) == 0) {
            /* Rows of a weighted mean: the total weight, and the loss itself. */
            return over ? counts[i].n : 2;
        }
    }
    fail_msg("op '%s' has a decomposition that this test does not know", op);
    return -1;
}

/* Attention renames the split dim and passes pieces round instead of reducing. */
static bool is_attention(const dtp_op_def *op)
{
    return (op->flags & (DTP_OP_ATTENTION | DTP_OP_ATTENTION_GRAD)) != 0;
}

static bool is_over(const dtp_op_call *call, dtp_dim_id d)
{
    const dtp_attr *over = dtp_call_attr(call, "over");
    bool found = over->kind == DTP_ATTR_DIM && over->i == d;
    for (int32_t i = 0; over->kind == DTP_ATTR_DIMS && i < over->n; i++) {
        found = found || over->ids[i] == d;
    }
    return found;
}

static int32_t count_rolls(const dtp_graph *g)
{
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        n += strcmp(g->nodes[i].op->name, "roll") == 0 ? 1 : 0;
    }
    return n;
}

/* A ring of W ranks: kv moves W - 1 times, dkv W times. Where W does not divide the sequence, and
 * for gather, nothing moves. */
static void test_ops_decompose__rings_move_pieces_as_documented(void **state)
{
    (void)state;
    int32_t rings = 0;
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        for (int32_t parts = 2; parts <= 4; parts++) {
            const dtp_op_case *c = &DTP_OP_CASES[i];
            dtp_case_graph cg;
            dtp_tensor_id outs[DTP_MAX_OP_OUT];
            dtp_call_types types;
            const uint32_t flags = dtp_op_find(c->op)->flags;
            if ((flags & (DTP_OP_ATTENTION | DTP_OP_ATTENTION_GRAD)) == 0) {
                continue;
            }
            case_build(c, DTP_F32, seed, &cg);
            dtp_op_call call = dtp_node_call(cg.g, &cg.g->nodes[cg.node], &types);
            const dtp_ttype *q = &types.in[0];
            int64_t n = q->dims[dtp_ttype_find(q, dtp_call_dim(&call, "query"))].size;
            bool self = dtp_call_dim(&call, "key") < 0;
            bool ring = strstr(c->attrs, "context=ring") != NULL && n % parts == 0;
            bool grad = (flags & DTP_OP_ATTENTION_GRAD) != 0;
            if (self) {
                decompose(&cg, parts, outs);
                assert_int_equal(count_rolls(cg.g), !ring ? 0 : grad ? 2 * parts - 1 : parts - 1);
                rings += ring ? 1 : 0;
            }
            dtp_case_free(&cg);
        }
    }
    assert_true(rings >= 12);
}

static void test_ops_decompose__equals_the_fused_op(void **state)
{
    (void)state;
    dtp_backend *ref = NULL;
    int32_t n = 0;
    assert_int_equal(dtp_backend_ref_create(&ref, NULL), DTP_OK);
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        if (dtp_op_find(DTP_OP_CASES[i].op)->decompose != NULL &&
            (DTP_OP_CASES[i].attrs == NULL || strstr(DTP_OP_CASES[i].attrs, "key=") == NULL)) {
            for (int32_t parts = 2; parts <= 4; parts++) {
                check_values(&DTP_OP_CASES[i], parts, ref);
            }
            n++;
        }
    }
    assert_true(n >= 9);
    dtp_backend_destroy(ref);
}

static void test_ops_decompose__communicates_as_documented(void **state)
{
    (void)state;
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        dtp_case_graph cg;
        dtp_tensor_id outs[DTP_MAX_OP_OUT];
        dtp_call_types types;
        dtp_sharding_rules rules;
        const dtp_op_def *op = dtp_op_find(DTP_OP_CASES[i].op);
        if (op->decompose == NULL || is_attention(op)) {
            continue;
        }
        case_build(&DTP_OP_CASES[i], DTP_F32, seed, &cg);
        dtp_op_call call = dtp_node_call(cg.g, &cg.g->nodes[cg.node], &types);
        dtp_sharding_rules_of(&call, false, &rules);
        decompose(&cg, 2, outs);
        int32_t internal = 0;
        for (int32_t r = 1; r < rules.n; r++) {
            if (rules.rows[r].internal) {
                const dtp_dim_id d = rules.rows[r].dim;
                int32_t n = reductions(&DTP_OP_CASES[i], &cg, d);
                assert_int_equal(n, expected_reductions(DTP_OP_CASES[i].op, is_over(&call, d)));
                internal++;
            }
        }
        assert_true(internal > 0 || strcmp(DTP_OP_CASES[i].op, "norm") == 0);
        dtp_case_free(&cg);
    }
}

/* The backward pass of cross-entropy over a split class dim needs no communication. */
static void test_cross_entropy_grad__is_parallel_over_classes(void **state)
{
    (void)state;
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        dtp_case_graph cg;
        dtp_call_types types;
        dtp_sharding_rules rules;
        bool found = false;
        if (strcmp(DTP_OP_CASES[i].op, "cross_entropy_grad") != 0) {
            continue;
        }
        case_build(&DTP_OP_CASES[i], DTP_F32, seed, &cg);
        dtp_op_call call = dtp_node_call(cg.g, &cg.g->nodes[cg.node], &types);
        dtp_sharding_rules_of(&call, false, &rules);
        for (int32_t r = 1; r < rules.n; r++) {
            const dtp_sharding_rule *row = &rules.rows[r];
            if (row->dim == dtp_call_dim(&call, "over")) {
                found = !row->internal && row->in[0].kind == DTP_SHARD &&
                        row->in[1].kind == DTP_REPLICATE && row->in[2].kind == DTP_REPLICATE &&
                        row->in[3].kind == DTP_REPLICATE && row->out[0].kind == DTP_SHARD;
            }
        }
        assert_true(found);
        dtp_case_free(&cg);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_decompose__equals_the_fused_op),
        cmocka_unit_test(test_ops_decompose__communicates_as_documented),
        cmocka_unit_test(test_ops_decompose__rings_move_pieces_as_documented),
        cmocka_unit_test(test_cross_entropy_grad__is_parallel_over_classes),
    };
    if (argc > 1) {
        seed = strtoull(argv[1], NULL, 10);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
