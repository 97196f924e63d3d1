/* Rows of docs/compat-torch.md that state numbers: TensorFlow's guide to distributed matrix
 * products, norms and scales of partial sums, fills, and a product of strided shards. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "interop/counters.h"
#include "core/graph/ops/op_table.h"
#include "tests/support/context_case.h"
#include "tests/dtensor/dtensor_suite.h"
#include "tests/dtensor/eager_rows.h"
#include "tests/support/op_fixture.h"

static void check(const char *mesh, const char *what, eager_body body, const void *user)
{
    for (int torch = 0; torch < 2; torch++) {
        const eager_options o = {.seed = 1, .torch = torch == 1, .user = user, .what = what};
        (void)eager_compare(mesh, body, &o, NULL);
    }
}

/* A tensor of these numbers in the layout; on one device whole. */
static dtp_status make(eager *e, int64_t rows, int64_t columns, const char *layout,
                       const double *values, dtp_tensor *out, dtp_err *err)
{
    const int64_t shape[] = {rows, columns};
    dtp_tensor_desc desc;
    DTP_TRY(dtp_tensor_desc_init(e->mesh, DTP_F64, 2, shape, e->single ? "replicated" : layout,
                                 &desc, err));
    return dtp_tensor_from_array(e->mesh, &desc, values, out, err);
}

/* A vector that this rank holds a summand of; one device holds the sum over n ranks. */
static dtp_status make_partial(eager *e, int64_t n, const double *mine, const double *sum,
                               dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc desc;
    DTP_TRY(dtp_tensor_desc_init(e->mesh, DTP_F64, 1, &n, e->single ? "replicated" : "+sum(x)",
                                 &desc, err));
    return dtp_tensor_wrap(e->mesh, &desc, &n, e->single ? sum : mine, false, out, err);
}

/* This rank holds just these numbers. */
static dtp_status holds(dtp_tensor t, int64_t n, const double *want, dtp_err *err)
{
    dtp_local local;
    int64_t elems = 1;
    DTP_TRY(dtp_tensor_local(t, &local, err));
    for (int32_t i = 0; i < local.rank; i++) {
        elems *= local.shape[i];
    }
    for (int64_t i = 0; i < n && elems == n; i++) {
        const double got = ((const double *)local.data)[i];
        if (fabs(got - want[i]) > 1e-12 * fabs(want[i])) {
            return DTP_FAIL(err, DTP_INTERNAL, "rank %d holds %.17g, want %.17g",
                            dtp_device_mesh_rank(t.mesh), got, want[i]);
        }
    }
    return elems == n ? DTP_OK : DTP_FAIL(err, DTP_INTERNAL, "%lld numbers", (long long)elems);
}

static dtp_status whole(eager *e, dtp_tensor t, int64_t n, const double *want, dtp_err *err)
{
    dtp_tensor r;
    DTP_TRY(eager_to(e, t, "replicated", &r, err));
    DTP_TRY(holds(r, n, want, err));
    return eager_note(e, t, err);
}

static dtp_status counted(eager *e, dtp_coll_kind kind, int64_t want, dtp_err *err)
{
    int64_t all = 0;
    for (int32_t k = 0; k < DTP_N_COLLS; k++) {
        all += dtp_device_mesh_count(e->mesh, (dtp_coll_kind)k);
    }
    const int64_t n = dtp_device_mesh_count(e->mesh, kind);
    if (!e->single && (n != want || all != want)) {
        return DTP_FAIL(err, DTP_INTERNAL, "%lld %s of %lld collectives, want %lld", (long long)n,
                        dtp_coll_name(kind), (long long)all, (long long)want);
    }
    return DTP_OK;
}

/* ---- TensorFlow's products ---- */

static const double A[] = {1, 2, 3, 4, 5, 6}, B[] = {6, 5, 4, 3, 2, 1}, AB[] = {20, 14, 56, 41};

typedef struct product_row {
    const char *id, *mesh, *a, *b;
    const char *out; /* layout of the product as the call leaves it */
    int64_t all_reduces;
    const char *rules;      /* the same splits of m, k and n in a planned graph */
    double multiplications; /* over all ranks */
    /* of the product: numbers on rank r start at components[r / same % kinds] */
    int64_t n;
    int32_t same, kinds;
    double components[12];
} product_row;

static const product_row PRODUCTS[] = {
    {"G4", "x:6", "replicated", "replicated", "replicated", 0, "", 72, 4, 6, 1, {20, 14, 56, 41}},
    {"G5",
     "x:3;y:2",
     "1@x",
     "0@x",
     "+sum(x)",
     1,
     "k:x",
     24,
     4,
     2,
     3,
     {6, 5, 24, 20, 8, 6, 20, 15, 6, 3, 12, 6}},
    {"G6", "x:3;y:2", "0@y, 1@x", "0@x", "0@y, +sum(x)", 1, "m:y,k:x", 12, 0, 0, 0, {0}},
};

static dtp_status product(eager *e, dtp_err *err)
{
    const product_row *r = e->user;
    const int32_t rank = dtp_device_mesh_rank(e->mesh);
    dtp_tensor a, b, y, reduced;
    DTP_TRY(make(e, 2, 3, r->a, A, &a, err));
    DTP_TRY(make(e, 3, 2, r->b, B, &b, err));
    dtp_device_mesh_reset_counts(e->mesh);
    DTP_TRY(dtp_tensor_matmul(a, b, &y, err));
    DTP_TRY(counted(e, DTP_ALL_REDUCE, 0, err));
    if (!e->single) {
        dtp_tensor_desc d;
        dtp_layout want;
        DTP_TRY(dtp_tensor_describe(y, &d, err));
        DTP_TRY(dtp_tensor_layout(e->mesh, 2, r->out, &want, err));
        if (!dtp_layout_equal(&want, &d.layout)) {
            return DTP_FAIL(err, DTP_INTERNAL, "the product is not %s", r->out);
        }
        if (r->n > 0) {
            DTP_TRY(holds(y, r->n, &r->components[rank / r->same % r->kinds * r->n], err));
        }
    }
    DTP_TRY(eager_to(e, y, strstr(r->out, "0@y") != NULL ? "R,S0" : "replicated", &reduced, err));
    DTP_TRY(counted(e, DTP_ALL_REDUCE, r->all_reduces, err));
    if (!e->single && strstr(r->out, "0@y") != NULL) {
        DTP_TRY(holds(reduced, 2, &AB[rank % 2 * 2], err));
    }
    return whole(e, reduced, 4, AB, err);
}

static void test_values__tensorflow_products(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof PRODUCTS / sizeof PRODUCTS[0]; i++) {
        check(PRODUCTS[i].mesh, PRODUCTS[i].id, product, &PRODUCTS[i]);
    }
}

/* How many multiplications all ranks do. */
static void test_values__tensorflow_multiplications(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof PRODUCTS / sizeof PRODUCTS[0]; i++) {
        dtp_graph *g = NULL;
        dtp_counters counters;
        dtp_arena *arena = dtp_arena_create();
        assert_int_equal(dtp_graph_create("product", dtp_builtin_ops(), &g, NULL), DTP_OK);
        const dtp_tensor_id in[] = {fx_tensor(g, "a", DTP_TENSOR_INPUT, "f64 m=2 k=3"),
                                    fx_tensor(g, "b", DTP_TENSOR_INPUT, "f64 k=3 n=2")};
        const dtp_tensor_id y = fx_add(g, "y", (fx_node){"einsum", NULL, "m=2 n=2"}, 2, in);
        assert_int_equal(dtp_graph_add_output(g, y, NULL), DTP_OK);
        dtp_program *p = context_lower(g, PRODUCTS[i].mesh, PRODUCTS[i].rules);
        assert_int_equal(dtp_counters_of(p, arena, &counters, NULL), DTP_OK);
        assert_true(dtp_counters_get(&counters, "einsum") == PRODUCTS[i].multiplications);
        dtp_program_destroy(p);
        dtp_graph_destroy(g);
        dtp_arena_destroy(arena);
    }
}

/* ---- M13 ---- */

/* arange(16) as 4x4 times itself; e->user is the layout of the second operand. */
static dtp_status strided(eager *e, dtp_err *err)
{
    static const double want[] = {56,  62,  68,  74,  152, 174, 196, 218,
                                  248, 286, 324, 362, 344, 398, 452, 506};
    double range[16];
    dtp_tensor a, b, y;
    for (int i = 0; i < 16; i++) {
        range[i] = i;
    }
    DTP_TRY(make(e, 4, 4, "S1,S1", range, &a, err));
    DTP_TRY(make(e, 4, 4, e->user, range, &b, err));
    DTP_TRY(dtp_tensor_matmul(a, b, &y, err));
    return whole(e, y, 16, want, err);
}

static void test_values__strided_shards_of_a_product(void **unused)
{
    (void)unused;
    check("x:2;y:2", "M13", strided, "S0,S0");
    check("x:2;y:2", "M13 strided", strided, "SS0/2,S0");
}

/* ---- partial sums ---- */

/* N12: vectors [rank, 1] and [rank + 1, 2]. */
static dtp_status norms(eager *e, dtp_err *err)
{
    static const double sums[2][2] = {{6, 4}, {10, 8}};
    static const double want[] = {7.211102550927978, 12.806248474865697};
    const double rank = dtp_device_mesh_rank(e->mesh);
    for (int i = 0; i < 2; i++) {
        const double mine[] = {rank + i, 1.0 + i};
        dtp_tensor x, y;
        DTP_TRY(make_partial(e, 2, mine, sums[i], &x, err));
        DTP_TRY(dtp_tensor_norm(x, "2", 0, NULL, &y, err));
        DTP_TRY(whole(e, y, 1, &want[i], err));
    }
    return DTP_OK;
}

/* N13: [rank] times 2 and half of it; nothing is sent. */
static dtp_status scales(eager *e, dtp_err *err)
{
    static const double factors[] = {2, 0.5}, want[] = {12, 3}, sum[] = {6};
    const double mine[] = {dtp_device_mesh_rank(e->mesh)};
    for (int i = 0; i < 2; i++) {
        const double scaled[] = {mine[0] * factors[i]};
        dtp_tensor x, y;
        DTP_TRY(make_partial(e, 1, mine, sum, &x, err));
        dtp_device_mesh_reset_counts(e->mesh);
        DTP_TRY(dtp_tensor_scale(x, factors[i], &y, err));
        DTP_TRY(counted(e, DTP_ALL_REDUCE, 0, err));
        DTP_TRY(holds(y, 1, e->single ? &want[i] : scaled, err));
        DTP_TRY(whole(e, y, 1, &want[i], err));
    }
    return DTP_OK;
}

/* N15: ones times ones; one factor is reduced, the product stays partial with 4 on every rank. */
static dtp_status products(eager *e, dtp_err *err)
{
    static const double ones[] = {1, 1, 1, 1}, fours[] = {4, 4, 4, 4}, want[] = {16, 16, 16, 16};
    dtp_tensor x, y, z;
    DTP_TRY(make_partial(e, 4, ones, fours, &x, err));
    DTP_TRY(make_partial(e, 4, ones, fours, &y, err));
    dtp_device_mesh_reset_counts(e->mesh);
    DTP_TRY(dtp_tensor_mul(x, y, &z, err));
    DTP_TRY(counted(e, DTP_ALL_REDUCE, 1, err));
    DTP_TRY(holds(z, 4, e->single ? want : fours, err));
    return whole(e, z, 4, want, err);
}

/* N17: a tensor like a partial one reduces to the value: 8, where PyTorch's fill_ in place puts 8
 * into every summand and gets 32. */
static dtp_status fills(eager *e, dtp_err *err)
{
    static const double one[] = {1}, four[] = {4}, want[] = {8, 1, 0};
    dtp_tensor p, like[3];
    DTP_TRY(make_partial(e, 1, one, four, &p, err));
    DTP_TRY(dtp_tensor_full_like(p, 8.0, &like[0], err));
    DTP_TRY(dtp_tensor_ones_like(p, &like[1], err));
    DTP_TRY(dtp_tensor_zeros_like(p, &like[2], err));
    for (int i = 0; i < 3; i++) {
        DTP_TRY(whole(e, like[i], 1, &want[i], err));
    }
    return DTP_OK;
}

/* N18: contents never change; under `strict` a clamp, which needs the sum, is refused. */
static dtp_status clamp(eager *e, dtp_err *err)
{
    static const double mine[] = {3}, sum[] = {12}, want[] = {5};
    dtp_tensor p, y;
    dtp_err said = {0};
    DTP_TRY(make_partial(e, 1, mine, sum, &p, err));
    if (!e->single) {
        if (dtp_tensor_clamp(p, 0, 5, &y, &said) != DTP_INVALID) {
            return DTP_FAIL(err, DTP_INTERNAL, "a partial tensor was clamped");
        }
        dtp_device_mesh_set_strict(e->mesh, false);
    }
    DTP_TRY(dtp_tensor_clamp(p, 0, 5, &y, err));
    return whole(e, y, 1, want, err);
}

static void test_values__partial_sums(void **unused)
{
    (void)unused;
    check("x:4", "N12", norms, NULL);
    check("x:4", "N13", scales, NULL);
    check("x:4", "N15", products, NULL);
    check("x:4", "N17", fills, NULL);
    const eager_options o = {.seed = 1, .strict = true, .what = "N18"};
    (void)eager_compare("x:4", clamp, &o, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values__tensorflow_products),
        cmocka_unit_test(test_values__tensorflow_multiplications),
        cmocka_unit_test(test_values__strided_shards_of_a_product),
        cmocka_unit_test(test_values__partial_sums),
    };
    return cmocka_run_group_tests(tests, dt_begin, dt_end);
}
