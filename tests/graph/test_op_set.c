/* Registration of ops: what is refused, what is copied, and what follows from a description. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "dtp/op.h"
#include "core/graph/op_rules.h"
#include "core/graph/ops/op_table.h"
#include "tests/support/graph_check.h"

static dtp_status no_infer(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    (void)has_out;
    (void)err;
    out[0] = call->in[0];
    return DTP_OK;
}

static dtp_op_def legal(void)
{
    return (dtp_op_def){
        .name = "mine", .min_in = 1, .max_in = 2, .n_out = 1, .infer = no_infer, .no_grad = "no"};
}

static dtp_op_set *new_set(void)
{
    dtp_op_set *set = NULL;
    assert_int_equal(dtp_op_set_create(dtp_builtin_ops(), &set, NULL), DTP_OK);
    return set;
}

static void refused(const dtp_op_set *set, dtp_status status, const dtp_err *err, const char *why)
{
    if (status != DTP_INVALID || strstr(err->msg, why) == NULL) {
        fail_msg("status %d, message '%s', want '%s'", (int)status, err->msg, why);
    }
    assert_int_equal(dtp_op_set_count(set), 0);
}

static void test_op_set__illegal_rows_are_refused(void **state)
{
    static const char *const doubles[] = {"a", "a"}, *const illegal[] = {"A"};
    static const char *const nothing[] = {NULL};
    static const dtp_attr_spec reserved[] = {{.key = "in"}, {.key = NULL}};
    static const dtp_attr_spec twice[] = {{.key = "k"}, {.key = "k"}, {.key = NULL}};
    static const dtp_attr_spec empty[] = {{.key = "k", .kind = DTP_ATTR_ENUM, .choices = nothing},
                                          {.key = NULL}};
    dtp_op_def rows[20];
    const char *why[20];
    int32_t n = 0;
    (void)state;
#define ROW(change, text)                                                                          \
    rows[n] = legal();                                                                             \
    rows[n].change;                                                                                \
    why[n++] = (text)
    ROW(name = NULL, "a name has 1 to");
    ROW(name = "", "a name has 1 to");
    ROW(name = "Mine", "op 'Mine': a name has");
    ROW(name = "my op", "a name has 1 to");
    ROW(name = "relu", "'relu': the name is taken by a built-in op");
    ROW(name = "a234567890123456789012345678901234567890123456789", "a name has 1 to 48");
    ROW(min_in = -1, "op 'mine': -1 to 2 operands");
    ROW(min_in = 3, "3 to 2 operands");
    ROW(max_in = 99, "1 to 99 operands");
    ROW(n_out = 0, "0 outputs");
    ROW(n_out = 2, "output 1 has no legal name");
    ROW(infer = NULL, "'infer' is missing");
    ROW(no_grad = NULL, "neither a hook 'vjp' nor a reason");
    ROW(flags = 1U << 30, "unknown flags");
    ROW(rates = "add", "'rates' is 'add'; a registered op has its own");
    ROW(flags = DTP_OP_OPAQUE, "an opaque op needs the hook 'rules'");
    ROW(inplace_in[0] = 3, "inplace_in[0] is 3");
    ROW(attrs = reserved, "attribute 'in': the key is taken");
    ROW(attrs = twice, "attribute 'k': the key is taken");
    ROW(attrs = empty, "attribute 'k' has no choices");
#undef ROW
    dtp_op_set *set = new_set();
    for (int32_t i = 0; i < n; i++) {
        dtp_err err = {0};
        refused(set, dtp_op_register(set, &rows[i], &err), &err, why[i]);
    }
    dtp_op_def three = legal();
    dtp_err err = {0};
    three.n_out = 3;
    three.out_names = doubles;
    refused(set, dtp_op_register(set, &three, &err), &err, "two outputs are called 'a'");
    three.n_out = 2;
    three.out_names = illegal;
    refused(set, dtp_op_register(set, &three, &err), &err, "output 1 has no legal name");
    dtp_op_set_destroy(set);
}

static void test_op_set__rows_are_copied_and_found(void **state)
{
    (void)state;
    char name[] = "mine", key[] = "k", choice[] = "one";
    const char *choices[] = {choice, NULL};
    dtp_attr_spec attrs[] = {{.key = key, .kind = DTP_ATTR_ENUM, .choices = choices},
                             {.key = NULL}};
    dtp_op_def def = legal();
    dtp_err err = {0};
    def.name = name;
    def.attrs = attrs;
    dtp_op_set *set = new_set();
    assert_int_equal(dtp_op_register(set, &def, &err), DTP_OK);
    name[0] = key[0] = choice[0] = 'x';
    const dtp_op_def *found = dtp_op_set_find(set, "mine");
    assert_non_null(found);
    assert_ptr_equal(found, dtp_op_set_at(set, 0));
    assert_null(dtp_op_set_at(set, 1));
    assert_string_equal(found->attrs[0].key, "k");
    assert_string_equal(found->attrs[0].choices[0], "one");
    assert_null(found->attrs[1].key);
    assert_ptr_equal(dtp_op_set_find(set, "relu"), dtp_op_find("relu"));
    assert_ptr_equal(dtp_op_set_find(dtp_builtin_ops(), "relu"), dtp_op_find("relu"));
    assert_null(dtp_op_set_find(dtp_builtin_ops(), "mine"));
    assert_null(dtp_op_find("mine"));
    def.name = "mine";
    assert_int_equal(dtp_op_register(set, &def, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "taken by a registered op"));
    dtp_op_set_destroy(set);
    dtp_op_set_destroy(NULL);
}

/* ---- descriptions ---- */

static void test_op_set__bad_descriptions_are_refused(void **state)
{
    static const dtp_letter_role q = {'q', DTP_ROLE_WHOLE, DTP_REDUCE_SUM};
    static const dtp_letter_role parallel_k = {'k', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM};
    static const dtp_letter_role reduced_m = {'m', DTP_ROLE_REDUCED, DTP_REDUCE_SUM};
    static const dtp_letter_role avg_k = {'k', DTP_ROLE_REDUCED, DTP_REDUCE_AVG};
    static const dtp_letter_role inner = {'k', DTP_ROLE_INTERNAL, DTP_REDUCE_SUM};
    static const struct {
        const char *signature, *dtypes, *strategy;
        const dtp_letter_role *role;
        const char *why;
    } rows[] = {
        {NULL, NULL, NULL, NULL, "the signature is missing"},
        {"mk,kn", NULL, NULL, NULL, "expected '->' at character 6"},
        {"mk,kn->mq", NULL, NULL, NULL, "that no operand has at character 9"},
        {"mm->m", NULL, NULL, NULL, "a letter twice in one term at character 2"},
        {"m1->m", NULL, NULL, NULL, "expected a letter, ',' or '->' at character 2"},
        {"m->m->m", NULL, NULL, NULL, "expected the end at character 5"},
        {"m->...m", NULL, NULL, NULL, "dots in an output that no operand has"},
        {"abcdefghi->a", NULL, NULL, NULL, "too many dims"},
        {"a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a->a", NULL, NULL, NULL, "too many operands"},
        {"mk,kn->mn", "ff->", NULL, NULL, "dtypes 'ff->'"},
        {"mk,kn->mn", "ff->x", NULL, NULL, "dtypes 'ff->x'"},
        {"mk,kn->mn", NULL, NULL, &q, "the letter 'q', which no operand has"},
        {"mk,kn->mn", NULL, NULL, &parallel_k, "'k' is parallel but not every output has it"},
        {"mk,kn->mn", NULL, NULL, &reduced_m, "'m' is reduced: but every output has it"},
        {"mk,kn->mn", NULL, NULL, &avg_k, "by sum, prod, min or max only"},
        {"mk,kn->mn", NULL, NULL, &inner, "not parallel, reduced or whole"},
        {"mk,kn->mn", NULL, "S0,S0", NULL, "strategy 'S0,S0': '->' is missing"},
        {"mk,kn->mn", NULL, "S0->S0", NULL, "expected 2 placements"},
        {"mk,kn->mn", NULL, "S0,R,R->S0", NULL, "expected 2 placements"},
        {"mk,kn->mn", NULL, "S2,R->S0", NULL, "tensor dim 2 of a tensor of rank 2"},
        {"mk,kn->mn", NULL, "S0,R->", NULL, "expected a placement such as"},
        {"mk,kn->mn", NULL, "a@m,R->R", NULL, "expected Shard, Replicate or Partial"},
        {"...k->...k", NULL, "S0->S0", NULL, "no '...' in its signature"},
    };
    (void)state;
    dtp_op_set *set = new_set();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dtp_err err = {0};
        dtp_custom_op op = dtp_custom_op_init("mine", rows[i].signature);
        op.dtypes = rows[i].dtypes;
        op.n_roles = rows[i].role != NULL ? 1 : 0;
        op.roles = rows[i].role;
        op.n_strategies = rows[i].strategy != NULL ? 1 : 0;
        op.strategies = &rows[i].strategy;
        refused(set, dtp_custom_op_register(set, &op, &err), &err, rows[i].why);
    }
    dtp_op_set_destroy(set);
}

/* A graph of dims a=2, b=3, c=4 with f32 tensors ab, bc, abc, c and i32 ids[a]. */
static dtp_graph *graph(const dtp_op_set *set)
{
    static const struct {
        const char *name, *dims;
        dtp_dtype dtype;
    } tensors[] = {{"ab", "ab", DTP_F32}, {"bc", "bc", DTP_F32}, {"abc", "abc", DTP_F32},
                   {"c", "c", DTP_F32},   {"ids", "a", DTP_I32}, {"d", "c", DTP_F64},
                   {"ba", "ba", DTP_F32}};
    dtp_graph *g = NULL;
    assert_int_equal(dtp_graph_create("g", set, &g, NULL), DTP_OK);
    for (size_t t = 0; t < sizeof tensors / sizeof tensors[0]; t++) {
        dtp_graph_tensor spec = {.name = tensors[t].name, .kind = DTP_TENSOR_INPUT};
        dtp_tensor_id id;
        spec.type.dtype = tensors[t].dtype;
        for (const char *d = tensors[t].dims; *d != '\0'; d++) {
            const char name[] = {*d, '\0'};
            dtp_tdim *dim = &spec.type.dims[spec.type.rank++];
            dim->size = 2 + *d - 'a';
            assert_int_equal(dtp_dims_intern(&g->dims, name, dim->size, &dim->id, NULL), DTP_OK);
        }
        assert_int_equal(dtp_graph_add_tensor(g, &spec, &id, NULL), DTP_OK);
    }
    return g;
}

static dtp_status add(dtp_graph *g, const char *op, const char *a, const char *b,
                      dtp_tensor_id *outs, dtp_err *err)
{
    char name[32];
    dtp_tensor_id in[2] = {dtp_graph_find(g, a), b == NULL ? -1 : dtp_graph_find(g, b)};
    (void)snprintf(name, sizeof name, "n%d", g->n_tensors);
    dtp_node_spec spec = dtp_node_spec_init(name, op);
    spec.n_in = b == NULL ? 1 : 2;
    spec.in = in;
    return dtp_graph_add_node(g, &spec, outs, err);
}

static void expect_type(const dtp_graph *g, dtp_tensor_id t, const char *want)
{
    char text[DTP_TTYPE_TEXT_BYTES];
    dtp_ttype_print(&g->tensors[t].type, &g->dims, text);
    assert_string_equal(text, want);
}

static dtp_op_set *described(void)
{
    static const dtp_letter_role mnk[] = {{'m', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM},
                                          {'n', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM},
                                          {'k', DTP_ROLE_REDUCED, DTP_REDUCE_SUM}};
    static const dtp_letter_role both[] = {{'.', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM},
                                           {'d', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM}};
    static const char *const names[] = {"rows", "which"};
    static const char *const free_rows[] = {"S0,R->S0", "S1,S0->P", "S0,S1->R", "R,R->S1"};
    dtp_op_set *set = new_set();
    dtp_custom_op mm = dtp_custom_op_init("mm", "mk,kn->mn");
    dtp_custom_op gain = dtp_custom_op_init("gain", "...d,d->...d");
    dtp_custom_op stats = dtp_custom_op_init("stats", "...d->...d,...,...");
    dtp_custom_op take = dtp_custom_op_init("take", "i,ik->ik");
    dtp_custom_op local = dtp_custom_op_init("local", "mk,kn->mn");
    mm.n_roles = 3;
    mm.roles = mnk;
    gain.n_roles = 2;
    gain.roles = both;
    stats.n_roles = 1;
    stats.roles = both;
    mm.linear = DTP_LINEAR_EACH;
    stats.out_names = names;
    stats.dtypes = "f->ffi";
    take.dtypes = "if->f";
    local.n_strategies = 4;
    local.strategies = free_rows;
    const dtp_custom_op *all[] = {&mm, &gain, &stats, &take, &local};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(dtp_custom_op_register(set, all[i], NULL), DTP_OK);
    }
    return set;
}

static void test_op_set__shapes_follow_from_the_signature(void **state)
{
    (void)state;
    dtp_op_set *set = described();
    dtp_graph *g = graph(set);
    dtp_tensor_id outs[3];
    dtp_err err = {0};
    assert_int_equal(add(g, "mm", "ab", "bc", outs, &err), DTP_OK);
    expect_type(g, outs[0], "f32[a=2, c=4]");
    assert_int_equal(add(g, "gain", "abc", "c", outs, &err), DTP_OK);
    expect_type(g, outs[0], "f32[a=2, b=3, c=4]");
    assert_int_equal(add(g, "gain", "c", "c", outs, &err), DTP_OK);
    expect_type(g, outs[0], "f32[c=4]");
    assert_int_equal(add(g, "stats", "abc", NULL, outs, &err), DTP_OK);
    expect_type(g, outs[0], "f32[a=2, b=3, c=4]");
    expect_type(g, outs[1], "f32[a=2, b=3]");
    expect_type(g, outs[2], "i32[a=2, b=3]");
    assert_non_null(strstr(g->tensors[outs[2]].name, ".which"));
    assert_int_equal(add(g, "take", "ids", "ab", outs, &err), DTP_OK);
    expect_type(g, outs[0], "f32[a=2, b=3]");
    assert_int_equal(graph_check(g, &err), DTP_OK);

    static const struct {
        const char *op, *a, *b, *why;
    } bad[] = {
        {"mm", "ab", "abc", "mm: operand 1 has 3 dims, its signature 2"},
        {"mm", "bc", "ab", "'k' is dim 'c' (4) and dim 'a' (2)"},
        {"mm", "ab", "ba", "'m' and 'n' are both dim 'a'"},
        {"gain", "ab", "c", "'d' is dim 'b' (3) and dim 'c' (4)"},
        {"take", "c", "ab", "operand 0 is f32, an integer type is needed"},
        {"mm", "ids", "ab", "operand 0 is i32, a floating-point type is needed"},
        {"gain", "bc", "d", "operand 0 is f32 but operand 1 is f64"},
        {"mm", "ab", NULL, "takes 2 operands, got 1"},
        {"none", "ab", NULL, "unknown op 'none'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (add(g, bad[i].op, bad[i].a, bad[i].b, outs, &err) != DTP_INVALID ||
            strstr(err.msg, bad[i].why) == NULL) {
            fail_msg("'%s', want '%s'", err.msg, bad[i].why);
        }
    }
    dtp_graph_destroy(g);
    dtp_op_set_destroy(set);
}

static void rules_of(const dtp_graph *g, dtp_node_id n, dtp_sharding_rules *out)
{
    dtp_call_types types;
    const dtp_op_call call = dtp_node_call(g, &g->nodes[n], &types);
    dtp_sharding_rules_of(&call, true, out);
}

static void test_op_set__rules_follow_from_roles(void **state)
{
    (void)state;
    dtp_op_set *set = described();
    dtp_graph *g = graph(set);
    dtp_tensor_id outs[3];
    dtp_sharding_rules mine, theirs;
    assert_int_equal(add(g, "mm", "ab", "bc", outs, NULL), DTP_OK);
    assert_int_equal(add(g, "gain", "abc", "c", outs, NULL), DTP_OK);
    assert_int_equal(add(g, "stats", "abc", NULL, outs, NULL), DTP_OK);
    dtp_tensor_id in[2] = {dtp_graph_find(g, "ab"), dtp_graph_find(g, "bc")};
    dtp_node_spec spec = dtp_node_spec_init("e", "einsum");
    spec.n_in = 2;
    spec.in = in;
    const dtp_ttype out = {
        .rank = 2, .dims = {g->tensors[in[0]].type.dims[0], g->tensors[in[1]].type.dims[1]}};
    spec.out = &out;
    assert_int_equal(dtp_graph_add_node(g, &spec, NULL, NULL), DTP_OK);
    rules_of(g, 0, &mine);
    rules_of(g, 3, &theirs);
    assert_int_equal(mine.n, 6); /* replicated, m, k, n, and partial in each operand */
    assert_int_equal(mine.n, theirs.n);
    assert_memory_equal(mine.rows, theirs.rows, sizeof mine.rows[0] * (size_t)mine.n);
    rules_of(g, 1, &mine);
    assert_int_equal(mine.n, 4); /* the dims of the dots and d */
    rules_of(g, 2, &mine);
    assert_int_equal(mine.n, 3); /* a and b; d is not in every output: whole */
    dtp_graph_destroy(g);
    dtp_op_set_destroy(set);
}

static void test_op_set__opaque_rows_are_the_declared_ones(void **state)
{
    (void)state;
    dtp_op_set *set = described();
    dtp_graph *g = graph(set);
    dtp_tensor_id outs[3];
    dtp_sharding_rules rules;
    assert_int_equal(add(g, "local", "ab", "bc", outs, NULL), DTP_OK);
    rules_of(g, 0, &rules);
    assert_int_equal(rules.n, 5);
    const dtp_ttype *ab = &g->tensors[dtp_graph_find(g, "ab")].type;
    assert_int_equal(rules.rows[1].dim, ab->dims[0].id);
    assert_int_equal(rules.rows[2].dim, ab->dims[1].id);
    assert_int_equal(rules.rows[2].out[0].kind, DTP_PARTIAL);
    assert_int_equal(rules.rows[3].dim, -1); /* splits two dims */
    assert_int_equal(rules.rows[3].in[1].axis, 1);
    assert_int_equal(rules.rows[4].dim, -1); /* n is split in the output only */
    assert_false(rules.rows[3].linear);
    dtp_graph_destroy(g);
    dtp_op_set_destroy(set);
}

static void test_op_set__model_files_name_registered_ops(void **state)
{
    static const char text[] =
        "{\"format\": \"dtp.model/1\", \"name\": \"g\", \"dims\": {\"a\": 2, \"b\": 3, \"c\": 4},"
        " \"inputs\": {\"x\": {\"dims\": [\"a\", \"b\"], \"dtype\": \"f32\"},"
        "  \"y\": {\"dims\": [\"b\", \"c\"], \"dtype\": \"f32\"}},"
        " \"nodes\": [{\"id\": \"z\", \"op\": \"mm\", \"in\": [\"x\", \"y\"]}],"
        " \"outputs\": [\"z\"]}";
    (void)state;
    dtp_op_set *set = described();
    dtp_model_options options = {.size = sizeof options, .ops = set};
    dtp_graph *g = NULL;
    dtp_err err = {0};
    assert_int_equal(dtp_model_parse("m", text, sizeof text - 1, &options, &g, &err), DTP_OK);
    expect_type(g, dtp_graph_find(g, "z"), "f32[a=2, c=4]");
    dtp_graph_destroy(g);
    options.ops = NULL;
    assert_int_equal(dtp_model_parse("m", text, sizeof text - 1, &options, &g, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "there is no op 'mm'"));
    dtp_op_set_destroy(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_op_set__illegal_rows_are_refused),
        cmocka_unit_test(test_op_set__rows_are_copied_and_found),
        cmocka_unit_test(test_op_set__bad_descriptions_are_refused),
        cmocka_unit_test(test_op_set__shapes_follow_from_the_signature),
        cmocka_unit_test(test_op_set__rules_follow_from_roles),
        cmocka_unit_test(test_op_set__opaque_rows_are_the_declared_ones),
        cmocka_unit_test(test_op_set__model_files_name_registered_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
