/* Rows of the op table: inference and its messages, sharding rules, relabel groups, work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/ops/rows.h"
#include "core/graph/ops/shape.h"
#include "core/graph/ops/op_table.h"
#include "tests/support/op_fixture.h"
#include "tests/support/graph_check.h"
#include "core/graph/op_rules.h"

enum { MAX_IN = 4 };

typedef struct op_row {
    fx_node node;
    const char *in[MAX_IN];
    const char *text; /* part of the message, or the type of output 0 */
} op_row;

static dtp_graph *fresh_graph(void)
{
    dtp_graph *g;
    assert_int_equal(dtp_graph_create("test", dtp_builtin_ops(), &g, NULL), DTP_OK);
    return g;
}

static dtp_status apply(dtp_graph *g, const op_row *row, dtp_tensor_id *outs, dtp_err *err)
{
    dtp_tensor_id in[MAX_IN];
    int32_t n = 0;
    for (; n < MAX_IN && row->in[n] != NULL; n++) {
        char name[16];
        (void)snprintf(name, sizeof name, "in%d", n);
        in[n] = fx_tensor(g, name, DTP_TENSOR_INPUT, row->in[n]);
    }
    return fx_try(g, "node", row->node, n, in, outs, err);
}

static const op_row refused[] = {
    {{"add", NULL, NULL},
     {"f32 d=768", "f32 d=512"},
     "node 'node': add: dim 'd' is 768 in operand 0 but 512 in operand 1"},
    {{"mul", NULL, NULL}, {"f32 a=2", "bf16 a=2"}, "operand 1 is bf16 but operand 0 is f32"},
    {{"add", NULL, NULL}, {"bool a=2", "bool a=2"}, "operand 0 is bool"},
    {{"div", NULL, NULL}, {"i32 a=2", "i32 a=2"}, "operand 0 is i32"},
    {{"add", NULL, NULL}, {"f32 a=2"}, "takes 2 operands, got 1"},
    {{"add", NULL, "a=2"}, {"f32 a=2", "f32 b=2"}, "'out' has 1 dims, the result has 2"},
    {{"add", NULL, "a=2 c=2"}, {"f32 a=2", "f32 b=2"}, "dim 'b' is 2 in the result"},
    {{"compare", NULL, NULL}, {"f32 a=2", "f32 a=2"}, "'cmp' is missing"},
    {{"select", NULL, NULL}, {"f32 a=2", "f32 a=2", "f32 a=2"}, "the condition must be bool"},
    {{"select", NULL, NULL}, {"bool a=3", "f32 a=2", "f32 a=2"}, "dim 'a' is 3 in operand 0"},
    {{"exp", NULL, NULL}, {"i64 a=2"}, "operand 0 is i64"},
    {{"exp", "int:x=1", NULL}, {"f32 a=2"}, "unknown attribute 'x'"},
    {{"scale", NULL, NULL}, {"f32 a=2"}, "'factor' is missing"},
    {{"relu", NULL, "a=3"}, {"f32 a=2"}, "dim 'a' is 2 in the result but 3 in 'out'"},
    {{"cast", NULL, NULL}, {"f32 a=2"}, "'dtype' is missing"},
    {{"einsum", NULL, NULL}, {"f32 a=2", "f32 a=2"}, "'out' is missing"},
    {{"einsum", NULL, "m=2"},
     {"f32 m=2 k=3", "f32 k=4"},
     "dim 'k' is 3 in operand 0 but 4 in operand 1"},
    {{"einsum", NULL, "z=2"}, {"f32 a=2", "f32 a=2"}, "'out' has dim 'z', which no operand has"},
    {{"einsum", NULL, "a=3"}, {"f32 a=2"}, "dim 'a' is 2 in operand 0 but 3 in 'out'"},
    {{"einsum", NULL, "a=2"}, {"f32 a=2", "f64 a=2"}, "operand 1 is f64"},
    {{"einsum", NULL, "a=2"}, {"i32 a=2"}, "operand 0 is i32"},
    {{"einsum", NULL, "c=2"},
     {"f32 a=1099511627776", "f32 b=1099511627776", "f32 a=1099511627776 b=4 c=2"},
     "dim 'b' is 1099511627776 in operand 1 but 4 in operand 2"},
    {{"einsum", NULL, ""},
     {"f32 a=1099511627776", "f32 b=1099511627776", "f32 a=1099511627776", "f32 b=1099511627776"},
     "is too large"},
    {{"broadcast", NULL, NULL}, {"f32 a=2"}, "'out' is missing"},
    {{"broadcast", NULL, "b=3"}, {"f32 a=2"}, "dim 'a' is 2 in the operand"},
    {{"reduce", "int:kind=0 dims:over=z", NULL}, {"f32 a=2"}, "'over' names dim 'z'"},
    {{"reduce", "int:kind=0", NULL}, {"f32 a=2"}, "'over' is missing"},
    {{"relabel", NULL, "c=9"}, {"f32 a=2 b=4"}, "the operand has 8 elements but 'out' has 9"},
    {{"relabel", NULL, NULL}, {"f32 a=2 b=4"}, "'out' is missing"},
    {{"slice", "dim:dim=a int:start=2 int:stop=6", NULL},
     {"f32 a=5"},
     "[2, 6) is not a range within dim 'a' of size 5"},
    {{"slice", "dim:dim=a int:start=2 int:stop=2", NULL}, {"f32 a=5"}, "[2, 2) is not a range"},
    {{"slice", "dim:dim=b int:start=0 int:stop=1", NULL}, {"f32 a=5"}, "'dim' names dim 'b'"},
    {{"pad", "dim:dim=a int:before=-4 int:after=-1", NULL},
     {"f32 a=5"},
     "padding of -4 and -1 leaves nothing of dim 'a' of size 5"},
    {{"pad", "dim:dim=a int:before=4000000000000000000", NULL}, {"f32 a=5"}, "does not fit"},
    {{"concat", "dim:dim=a", NULL},
     {"f32 a=2 b=3", "f32 a=2 b=4"},
     "dim 'b' of size 4 in operand 1 stands against 'b' of size 3 in operand 0"},
    {{"concat", "dim:dim=a", NULL}, {"f32 a=2 b=3", "f32 a=2"}, "operand 1 has 1 dims"},
    {{"concat", "dim:dim=c", NULL}, {"f32 a=2"}, "'dim' names dim 'c'"},
    {{"iota", "dim:dim=c", "a=2"}, {NULL}, "'dim' names 'c', which 'out' does not have"},
    {{"constant", "float:value=1", NULL}, {NULL}, "'out' is missing"},
    {{"one_hot", "dim:dim=c", NULL}, {"f32 a=2"}, "integers are needed"},
    {{"embedding", "dim:over=v int:padding=7", NULL},
     {"f32 v=7 d=4", "i32 a=2"},
     "'padding' is 7, the table f32[v=7, d=4] has rows 0 to 6"},
    {{"embedding", "dim:over=v int:padding=-1", NULL},
     {"f32 v=7 d=4", "i32 a=2"},
     "'padding' is -1"},
    {{"one_hot", "dim:dim=a", NULL}, {"i32 a=2"}, "'dim' names 'a', which operand 0 has"},
    {{"dropout", "float:rate=1", NULL}, {"f32 a=2"}, "'rate' is 1"},
    {{"uniform", "int:dtype=4", "a=2"}, {NULL}, "'dtype' is i32"},
    {{"sgd", "float:lr=1 float:weight_decay=0", NULL},
     {"f32 a=2", "f32 a=3"},
     "operand 1 has another type than the parameter"},
    {{"tanh_grad", NULL, NULL}, {"f32 a=2", "f32 b=2"}, "the two operands have different dims"},
    {{"nothing", NULL, NULL}, {"f32 a=2"}, "unknown op 'nothing'"}};

static void test_ops__refuse_operands_that_do_not_fit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        dtp_graph *g = fresh_graph();
        dtp_err err;
        dtp_err_clear(&err);
        const dtp_status s = apply(g, &refused[i], NULL, &err);
        if (!dtp_status_is_input(s) || strstr(err.msg, refused[i].text) == NULL) {
            fail_msg("row %zu (%s): status %d, '%s'", i, refused[i].node.op, (int)s, err.msg);
        }
        assert_int_equal(g->n_nodes, 0);
        dtp_graph_destroy(g);
    }
}

static void test_ops__infer_the_type_of_the_result(void **state)
{
    (void)state;
    static const op_row rows[] = {
        {{"add", NULL, NULL}, {"f32 a=2 b=3", "f32 c=4 a=2"}, "f32[a=2, b=3, c=4]"},
        {{"add", NULL, "c=4 a=2 b=3"}, {"f32 a=2 b=3", "f32 c=4 a=2"}, "f32[c=4, a=2, b=3]"},
        {{"compare", "int:cmp=0", NULL}, {"i32 a=2", "i32 b=3"}, "bool[a=2, b=3]"},
        {{"select", NULL, NULL}, {"bool a=2", "f64 a=2 b=3", "f64"}, "f64[a=2, b=3]"},
        {{"cast", "int:dtype=4", NULL}, {"f32 a=2"}, "i32[a=2]"},
        {{"einsum", NULL, "n=4 m=2"}, {"f32 m=2 k=3", "f32 k=3 n=4"}, "f32[n=4, m=2]"},
        {{"einsum", NULL, ""}, {"f32 m=2 k=3"}, "f32[]"},
        {{"broadcast", NULL, "b=3 a=2"}, {"bf16 a=2"}, "bf16[b=3, a=2]"},
        {{"reduce", "int:kind=1 dims:over=c,a", NULL}, {"f32 a=2 b=3 c=4"}, "f32[b=3]"},
        {{"relabel", NULL, "c=4 d=2"}, {"i64 a=2 b=4"}, "i64[c=4, d=2]"},
        {{"slice", "dim:dim=a int:start=1 int:stop=4", NULL}, {"f32 a=5 b=2"}, "f32[a=3, b=2]"},
        {{"pad", "dim:dim=a int:before=1 int:after=2", NULL}, {"f32 a=5"}, "f32[a=8]"},
        {{"concat", "dim:dim=a", NULL},
         {"f32 a=5 b=2", "f32 a=1 b=2", "f32 a=2 b=2"},
         "f32[a=8, b=2]"},
        {{"iota", "dim:dim=b", "a=2 b=3"}, {NULL}, "i32[a=2, b=3]"},
        {{"constant", "float:value=2 int:dtype=1", ""}, {NULL}, "f64[]"},
        {{"one_hot", "dim:dim=c", "a=2 c=7"}, {"i32 a=2"}, "f32[a=2, c=7]"},
        {{"dropout", "float:rate=0.5", NULL}, {"f32 a=2"}, "f32[a=2]"},
        {{"normal", NULL, "a=2"}, {NULL}, "f32[a=2]"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dtp_graph *g = fresh_graph();
        dtp_tensor_id outs[DTP_MAX_OP_OUT];
        dtp_err err;
        char text[DTP_TTYPE_TEXT_BYTES];
        dtp_err_clear(&err);
        if (apply(g, &rows[i], outs, &err) != DTP_OK) {
            fail_msg("row %zu: %s", i, err.msg);
        }
        dtp_ttype_print(&g->tensors[outs[0]].type, &g->dims, text);
        assert_string_equal(text, rows[i].text);
        assert_int_equal(graph_check(g, NULL), DTP_OK);
        dtp_graph_destroy(g);
    }
}

/* ---- rules ---- */

typedef struct rule_row {
    op_row op;
    int32_t n, n_linear; /* rows without and of pass-through */
} rule_row;

static void test_ops__have_the_expected_number_of_rules(void **state)
{
    (void)state;
    static const rule_row rows[] = {
        {{{"einsum", NULL, "m=2 n=4"}, {"f32 m=2 k=3", "f32 k=3 n=4"}, NULL}, 4, 2},
        {{{"einsum", NULL, "b=5 m=2 n=4"}, {"f32 b=5 m=2 k=3", "f32 b=5 k=3 n=4"}, NULL}, 5, 2},
        {{{"add", NULL, NULL}, {"f32 a=2 b=3", "f32 b=3"}, NULL}, 3, 1},
        {{{"mul", NULL, NULL}, {"f32 a=2 b=3", "f32 b=3"}, NULL}, 3, 2},
        {{{"div", NULL, NULL}, {"f32 a=2 b=3", "f32 b=3"}, NULL}, 3, 0},
        {{{"max", NULL, NULL}, {"f32 a=2 b=3", "f32 b=3"}, NULL}, 3, 0},
        {{{"select", NULL, NULL}, {"bool a=2", "f32 a=2", "f32 b=3"}, NULL}, 3, 0},
        {{{"relu", NULL, NULL}, {"f32 a=2 b=3"}, NULL}, 3, 0},
        {{{"neg", NULL, NULL}, {"f32 a=2 b=3"}, NULL}, 3, 1},
        {{{"reduce", "int:kind=0 dims:over=a", NULL}, {"f32 a=2 b=3"}, NULL}, 3, 1},
        {{{"reduce", "int:kind=2 dims:over=a", NULL}, {"f32 a=2 b=3"}, NULL}, 3, 0},
        {{{"slice", "dim:dim=a int:stop=1", NULL}, {"f32 a=2 b=3"}, NULL}, 3, 1},
        {{{"concat", "dim:dim=a", NULL}, {"f32 a=2 b=3", "f32 a=2 b=3"}, NULL}, 2, 1},
        {{{"one_hot", "dim:dim=c", "a=2 c=7"}, {"i32 a=2"}, NULL}, 3, 0},
        {{{"constant", "float:value=1", "a=2 c=7"}, {NULL}, NULL}, 3, 0},
        {{{"broadcast", NULL, "a=2 c=7"}, {"f32 a=2"}, NULL}, 3, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dtp_graph *g = fresh_graph();
        dtp_call_types types;
        dtp_sharding_rules set;
        assert_int_equal(apply(g, &rows[i].op, NULL, NULL), DTP_OK);
        const dtp_op_call call = dtp_node_call(g, &g->nodes[0], &types);
        dtp_sharding_rules_of(&call, false, &set);
        assert_int_equal(set.n, rows[i].n);
        dtp_sharding_rules_of(&call, true, &set);
        assert_int_equal(set.n, rows[i].n + rows[i].n_linear);
        for (int32_t r = 0; r < set.n; r++) {
            assert_int_equal(set.rows[r].linear, r >= rows[i].n);
        }
        dtp_graph_destroy(g);
    }
}

static void test_ops__reduced_dims_give_partial_results(void **state)
{
    (void)state;
    static const dtp_reduce_op want[] = {DTP_REDUCE_SUM, DTP_REDUCE_SUM, DTP_REDUCE_MAX,
                                         DTP_REDUCE_MIN};
    for (int32_t kind = 0; kind < 4; kind++) {
        char attrs[64];
        dtp_call_types types;
        dtp_sharding_rules set;
        dtp_graph *g = fresh_graph();
        (void)snprintf(attrs, sizeof attrs, "int:kind=%d dims:over=a", kind);
        const op_row row = {{"reduce", attrs, NULL}, {"f32 a=2 b=3"}, NULL};
        assert_int_equal(apply(g, &row, NULL, NULL), DTP_OK);
        const dtp_op_call call = dtp_node_call(g, &g->nodes[0], &types);
        dtp_sharding_rules_of(&call, false, &set);
        assert_int_equal(set.rows[1].dim, g->tensors[0].type.dims[0].id);
        assert_int_equal(set.rows[1].in[0].kind, DTP_SHARD);
        assert_int_equal(set.rows[1].out[0].kind, DTP_PARTIAL);
        assert_int_equal(set.rows[1].out[0].op, want[kind]);
        assert_int_equal(set.rows[2].in[0].axis, 1);
        assert_int_equal(set.rows[2].out[0].kind, DTP_SHARD);
        assert_int_equal(set.rows[2].out[0].axis, 0);
        dtp_graph_destroy(g);
    }
}

/* ---- relabel ---- */

typedef struct relabel_row {
    const char *in, *out;
    const char *rules; /* "a>c b>d": input dim > output dim, in order */
} relabel_row;

static void test_relabel__splits_the_outermost_dims_of_groups(void **state)
{
    (void)state;
    static const relabel_row rows[] = {
        {"f32 a=8 b=4", "c=8 b=4", "a>c b>b"},
        {"f32 c=8 b=4", "a=8 b=4", "c>a b>b"},
        {"f32 a=8 b=4", "c=8 d=4", "a>c b>d"},
        {"f32 a=4 b=2", "c=8", "a>c"},
        {"f32 b=2 a=4", "c=8", "b>c"},
        {"f32 c=8", "b=2 a=4", "c>b"},
        {"f32 E=16 B=8 C=4 M=32", "e=16 b=8 C=4 M=32", "E>e B>b C>C M>M"},
        {"f32 batch=16 length=32", "tokens=512", "batch>tokens"},
        {"f32 a=25 b=4 d=3", "x=25 y=2 z=2 d=3", "a>x b>y d>d"},
        {"f32 a=2 b=3", "c=3 d=2", "a>c"},
        {"f32 one=1 a=8", "c=8", "a>c"},
        {"f32 a=8 b=4", "a=8 one=1 b=4", "a>a b>b"},
        {"f32 a=8", "one=1 b=2 two=1 c=4", "a>b"},
        {"f32 one=1", "two=1", ""},
        {"f32", "one=1", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dtp_graph *g = fresh_graph();
        dtp_call_types types;
        dtp_sharding_rules set;
        char text[256] = "";
        const op_row row = {{"relabel", NULL, rows[i].out}, {rows[i].in}, NULL};
        assert_int_equal(apply(g, &row, NULL, NULL), DTP_OK);
        const dtp_op_call call = dtp_node_call(g, &g->nodes[0], &types);
        dtp_sharding_rules_of(&call, false, &set);
        for (int32_t r = 1; r < set.n; r++) {
            const size_t n = strlen(text);
            (void)snprintf(text + n, sizeof text - n, "%s%s>%s", r > 1 ? " " : "",
                           dtp_dims_name(&g->dims, set.rows[r].dim),
                           dtp_dims_name(&g->dims, set.rows[r].out_dim));
        }
        assert_string_equal(text, rows[i].rules);
        dtp_sharding_rules_of(&call, true, &set);
        assert_true(set.rows[set.n - 1].linear);
        dtp_graph_destroy(g);
    }
}

static uint32_t draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525U + 1013904223U;
    return (*state >> 8) % n;
}

/* Cuts `n` prime factors into a random list of dims, with dims of size 1 thrown in. */
static void draw_factors(uint32_t *state, const int64_t *primes, int32_t n, int32_t first_id,
                         dtp_ttype *out)
{
    out->rank = 0;
    for (int32_t i = 0; i < n;) {
        int64_t size = 1;
        const int32_t take = (int32_t)draw(state, 4);
        for (int32_t k = 0; k < take && i < n; k++) {
            size *= primes[i++];
        }
        if (out->rank == DTP_MAX_RANK - 1) {
            while (i < n) {
                size *= primes[i++];
            }
        }
        out->dims[out->rank] = (dtp_tdim){first_id + out->rank, size};
        out->rank++;
    }
}

/* The piece of `axis` that element `flat` lies in. */
static int64_t piece_of(const dtp_ttype *t, int32_t axis, int64_t flat, int64_t k)
{
    int64_t inner = 1;
    for (int32_t i = axis + 1; i < t->rank; i++) {
        inner *= t->dims[i].size;
    }
    const int64_t n = t->dims[axis].size;
    return flat / inner % n / ((n + k - 1) / k);
}

/* Every row is right: for every number of ranks that divides both dims, or any number when the two
 * are of one size, each element is on the same rank before and after. */
static void test_relabel__rows_keep_every_element_on_its_rank(void **state)
{
    (void)state;
    int32_t checked = 0, uneven = 0;
    for (uint32_t seed = 1; seed <= 500; seed++) {
        uint32_t rng = seed * 2654435761U;
        int64_t primes[6];
        const int32_t n = (int32_t)draw(&rng, 7);
        dtp_ttype in = {.dtype = DTP_F32}, out = {.dtype = DTP_F32};
        dtp_sharding_rules set;
        for (int32_t i = 0; i < n; i++) {
            primes[i] = draw(&rng, 3) == 0 ? 3 : 2;
        }
        draw_factors(&rng, primes, n, 0, &in);
        draw_factors(&rng, primes, n, DTP_MAX_RANK, &out);
        const dtp_op_call call = {
            .op = dtp_op_find("relabel"), .n_in = 1, .n_out = 1, .in = &in, .out = &out};
        dtp_sharding_rules_of(&call, false, &set);
        for (int32_t r = 1; r < set.n; r++) {
            const int32_t a = set.rows[r].in[0].axis, b = set.rows[r].out[0].axis;
            const int64_t na = in.dims[a].size, nb = out.dims[b].size;
            for (int64_t k = 2; k <= 6; k++) {
                if ((na % k != 0 || nb % k != 0) && na != nb) {
                    continue;
                }
                for (int64_t e = 0; e < dtp_ttype_elems(&in); e++) {
                    if (piece_of(&in, a, e, k) != piece_of(&out, b, e, k)) {
                        fail_msg("seed %u, row %d, %lld ranks: element %lld moves", seed, r,
                                 (long long)k, (long long)e);
                    }
                }
                checked++;
                uneven += na % k != 0 ? 1 : 0;
            }
        }
    }
    assert_true(checked > 300 && uneven > 100);
}

static int64_t product(const dtp_ttype *t, int32_t first, int32_t n)
{
    int64_t p = 1;
    for (int32_t i = first; i < first + n; i++) {
        p *= t->dims[i].size;
    }
    return p;
}

/* Groups cover both shapes in order, have equal products and have no common cut inside. */
static void test_relabel__groups_are_the_smallest(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 500; seed++) {
        uint32_t rng = seed * 2654435761U;
        int64_t primes[6];
        const int32_t n = (int32_t)draw(&rng, 7);
        dtp_ttype in = {.rank = 0}, out = {.rank = 0};
        dtp_relabel_group groups[DTP_MAX_RANK + 1];
        int32_t i = 0, o = 0;
        for (int32_t k = 0; k < n; k++) {
            primes[k] = draw(&rng, 3) == 0 ? 3 : 2;
        }
        draw_factors(&rng, primes, n, 0, &in);
        draw_factors(&rng, primes, n, DTP_MAX_RANK, &out);
        const int32_t n_groups = dtp_relabel_groups(&in, &out, groups);
        assert_in_range(n_groups, 0, DTP_MAX_RANK + 1);
        for (int32_t k = 0; k < n_groups; k++) {
            const dtp_relabel_group g = groups[k];
            const int64_t whole = product(&in, i, g.n_in);
            assert_true(g.in_first == i && g.out_first == o);
            assert_int_equal(product(&out, o, g.n_out), whole);
            for (int32_t a = 1; a < g.n_in; a++) {
                const int64_t part = product(&in, i, a);
                for (int32_t b = 1; b < g.n_out && part > 1 && part < whole; b++) {
                    assert_true(product(&out, o, b) != part);
                }
            }
            i += g.n_in;
            o += g.n_out;
        }
        assert_int_equal(i, in.rank);
        assert_int_equal(o, out.rank);
    }
    const dtp_ttype six = {.rank = 1, .dims = {{0, 6}}}, four = {.rank = 1, .dims = {{1, 4}}};
    dtp_relabel_group groups[DTP_MAX_RANK + 1];
    assert_int_equal(dtp_relabel_groups(&six, &four, groups), -1);
}

/* ---- the table as a whole ---- */

static void test_ops__rows_are_complete(void **state)
{
    (void)state;
    for (int32_t i = 0; i < dtp_op_count(); i++) {
        const dtp_op_def *op = dtp_op_at(i);
        assert_ptr_equal(dtp_op_find(op->name), op);
        assert_non_null(op->summary);
        assert_non_null(op->infer);
        assert_true((op->vjp == NULL) != (op->no_grad == NULL));
        assert_in_range(op->max_in, op->min_in, DTP_MAX_OP_IN);
        assert_in_range(op->n_out, 1, DTP_MAX_OP_OUT);
        assert_true(op->n_out == 1 || op->out_names != NULL);
        for (int32_t o = 0; o < op->n_out; o++) {
            assert_in_range(op->inplace_in[o], 0, op->max_in);
        }
        bool stream = false;
        for (const dtp_attr_spec *a = op->attrs; a != NULL && a->key != NULL; a++) {
            stream = stream || (strcmp(a->key, "stream") == 0 && a->hidden);
            assert_true(a->kind != DTP_ATTR_ENUM || a->choices != NULL);
        }
        assert_int_equal(stream, (op->flags & DTP_OP_RANDOM) != 0);
    }
    assert_null(dtp_op_at(dtp_op_count()));
}

/* What decompositions and the lowering make has the rates of an op of model files or of autodiff:
 * a machine file that states those prices the parts with them. */
static void test_ops__parts_name_the_op_whose_rates_they_have(void **state)
{
    (void)state;
    int32_t parts = 0;
    for (int32_t i = 0; i < dtp_op_count(); i++) {
        const dtp_op_def *op = dtp_op_at(i), *of = dtp_op_rates(op);
        const bool part = op->no_grad != NULL && (strcmp(op->no_grad, DTP_NO_PART_GRAD) == 0 ||
                                                  strcmp(op->no_grad, DTP_NO_LOWERING_GRAD) == 0);
        const bool scale = (op->flags & DTP_OP_SCALE) != 0; /* mixed precision makes it */
        if ((part || scale) != (op->rates != NULL) || of == NULL || of->rates != NULL) {
            fail_msg("%s: rates of '%s'", op->name, op->rates != NULL ? op->rates : "itself");
        }
        parts += part ? 1 : 0;
    }
    assert_true(parts > 20);
    const char *const families[][2] = {{"attention_part", "attention"},
                                       {"attention_part_grad", "attention_grad"},
                                       {"layer_norm_grad_apply", "layer_norm_grad"},
                                       {"linear_loss_grad", "einsum"},
                                       {"fused_product", "einsum"},
                                       {"fused_rms_norm", "rms_norm"}};
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        assert_string_equal(dtp_op_rates(dtp_op_find(families[i][0]))->name, families[i][1]);
    }
}

static void test_ops__einsum_work_is_that_of_its_product(void **state)
{
    (void)state;
    dtp_graph *g = fresh_graph();
    dtp_call_types types;
    dtp_work work;
    const op_row row = {
        {"einsum", NULL, "b=2 s=16 f=5"}, {"f32 b=2 s=16 d=6", "f32 f=5 d=6"}, NULL};
    assert_int_equal(apply(g, &row, NULL, NULL), DTP_OK);
    const dtp_op_call call = dtp_node_call(g, &g->nodes[0], &types);
    call.op->work(&call, &work);
    assert_int_equal(work.cls, DTP_WORK_GEMM);
    assert_true(work.flops == 2.0 * 32 * 5 * 6);
    assert_true(work.bytes == 4.0 * (32 * 6 + 5 * 6 + 32 * 5) && work.pack_bytes == 0.0);
    assert_int_equal(work.batch, 1);
    assert_int_equal(work.m, 32);
    assert_int_equal(work.n, 5);
    assert_int_equal(work.k, 6);
    types.in[0].dims[2].size = types.in[1].dims[1].size = 0; /* an empty shard */
    call.op->work(&call, &work);
    assert_int_equal(work.cls, DTP_WORK_MEMORY);
    assert_true(work.flops == 0.0);
    dtp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops__refuse_operands_that_do_not_fit),
        cmocka_unit_test(test_ops__infer_the_type_of_the_result),
        cmocka_unit_test(test_ops__have_the_expected_number_of_rules),
        cmocka_unit_test(test_ops__reduced_dims_give_partial_results),
        cmocka_unit_test(test_relabel__splits_the_outermost_dims_of_groups),
        cmocka_unit_test(test_relabel__rows_keep_every_element_on_its_rank),
        cmocka_unit_test(test_relabel__groups_are_the_smallest),
        cmocka_unit_test(test_ops__rows_are_complete),
        cmocka_unit_test(test_ops__parts_name_the_op_whose_rates_they_have),
        cmocka_unit_test(test_ops__einsum_work_is_that_of_its_product),
    };
    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
