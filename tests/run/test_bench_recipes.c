/* What dtrun bench measures of every op. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "executor/bench/bench.h"
#include "core/graph/ops/op_table.h"
#include "executor/bench/recipes.h"
#include "executor/cpu/cpu.h"

/* Every op has a recipe that makes one node of it, or only renames. */
static void test_bench_recipes__cover_the_op_table(void **state)
{
    (void)state;
    dtp_bench_sizes sizes = dtp_bench_sizes_for(1024, 0);
    for (int32_t i = 0; i < dtp_op_count(); i++) {
        dtp_bench_recipe recipes[DTP_MAX_OP_BENCH];
        int32_t n = 0;
        dtp_err err = {0};
        if (dtp_bench_recipes_of(dtp_op_at(i), recipes, &n, &err) != DTP_OK) {
            fail_msg("%s", err.msg);
        }
        assert_true(n > 0 || (dtp_op_at(i)->flags & DTP_OP_RELABEL) != 0);
        for (int32_t r = 0; r < n; r++) {
            dtp_graph *g = NULL;
            if (dtp_bench_recipe_graph(&recipes[r], &sizes, DTP_F32, 256, &g, &err) != DTP_OK) {
                fail_msg("%s", err.msg);
            }
            assert_int_equal(g->n_nodes, 1);
            assert_ptr_equal(g->nodes[0].op, dtp_op_at(i));
            dtp_graph_destroy(g);
        }
    }
}

/* Forms follow from what an op accepts; a row comes before them. */
static void test_bench_recipes__follow_from_the_op(void **state)
{
    (void)state;
    static const char *const expected[][2] = {{"exp", "rc"},
                                              {"silu_grad", "rc rc"},
                                              {"logical_not", "?rc"},
                                              {"cumsum", "rc | dim=c"},
                                              {"logsumexp", "rc | over=c"},
                                              {"pow", "rc | exponent=2.5"}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        dtp_bench_recipe recipes[DTP_MAX_OP_BENCH];
        int32_t n = 0;
        assert_int_equal(dtp_bench_recipes_of(dtp_op_find(expected[i][0]), recipes, &n, NULL),
                         DTP_OK);
        assert_int_equal(n, 1);
        assert_string_equal(recipes[0].text, expected[i][1]);
    }
}

/* An op that takes none of the usual forms must have a row. */
static void test_bench_recipes__an_odd_op_needs_a_row(void **state)
{
    (void)state;
    const dtp_op_def odd = {.name = "odd", .min_in = 9, .max_in = 9};
    dtp_bench_recipe recipes[DTP_MAX_OP_BENCH];
    dtp_err err = {0};
    int32_t n = 0;
    assert_int_equal(dtp_bench_recipes_of(&odd, recipes, &n, &err), DTP_INTERNAL);
    assert_non_null(strstr(err.msg, "'odd'"));
}

typedef struct seen {
    int32_t kinds[DTP_N_SAMPLE_KINDS];
    double times[2];
} seen;

static dtp_status small_bench(dtp_comm *comm, void *user, dtp_err *err)
{
    dtp_backend *backend = NULL;
    dtp_bench_options options = dtp_bench_options_init(true);
    options.budget_s = 0.1;
    options.no_kernels = true;
    DTP_TRY(dtp_backend_cpu_create(1, &backend, err));
    dtp_samples samples;
    dtp_status status = dtp_bench_run(comm, backend, &options, &samples, err);
    if (status == DTP_OK) {
        seen *s = user;
        double sum = 0.0;
        for (int32_t i = 0; i < samples.n; i++) {
            sum += samples.items[i].time_s;
            if (comm->rank == 0) {
                s->kinds[samples.items[i].kind]++;
            }
        }
        s->times[comm->rank] = sum;
        dtp_bench_samples_free(&samples);
    }
    dtp_backend_destroy(backend);
    return status;
}

static void test_bench__ranks_agree_on_every_sample(void **state)
{
    (void)state;
    dtp_mesh mesh;
    dtp_err err = {0};
    seen s = {{0}, {0.0}};
    assert_int_equal(dtp_mesh_parse("x:2", &mesh, NULL), DTP_OK);
    if (dtp_comm_sim_run(&mesh, small_bench, &s, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(s.kinds[DTP_SAMPLE_MOVE], DTP_COPY_RANGE_OUT * 4);
    assert_true(s.kinds[DTP_SAMPLE_COLL] >= DTP_N_COLLS * 5);
    assert_true(s.times[0] > 0.0);
    assert_true(!(s.times[0] < s.times[1]) && !(s.times[0] > s.times[1]));
}

/* ---- a link that passes more after a pause ---- */

static const double LINK_BPS = 500e6, LINK_CREDIT_S = 0.25e-3;
static _Thread_local struct {
    const dtp_transport_ops *ops; /* of the transport below */
    double clear_s;               /* when all that was sent has passed at the rate of the link */
} rank_link;

static dtp_status link_start(dtp_transport *t, const dtp_coll *coll, const dtp_coll_ends *ends,
                             dtp_request *request, dtp_err *err)
{
    const double sent_s = (double)coll->count * (double)sizeof(float) / LINK_BPS;
    rank_link.clear_s = fmax(rank_link.clear_s, dtp_now_s() - LINK_CREDIT_S) + sent_s;
    while (dtp_now_s() < rank_link.clear_s) {
    }
    return rank_link.ops->start(t, coll, ends, request, err);
}

static dtp_status link_bench(dtp_comm *comm, void *user, dtp_err *err)
{
    dtp_transport_ops ops = *comm->transport.ops;
    dtp_backend *backend = NULL;
    dtp_samples samples = {0};
    dtp_bench_options options = dtp_bench_options_init(true);
    double *least = user; /* measured of what the link takes, on rank 0 */
    options.budget_s = 0.1;
    options.no_kernels = true;
    rank_link.ops = comm->transport.ops;
    rank_link.clear_s = 0.0;
    ops.start = link_start;
    comm->transport.ops = &ops;
    comm->transport.caps.asynchronous = true;
    DTP_TRY(dtp_backend_cpu_create(1, &backend, err));
    const dtp_status status = dtp_bench_run(comm, backend, &options, &samples, err);
    for (int32_t i = 0; i < samples.n && comm->rank == 0; i++) {
        const dtp_sample *s = &samples.items[i];
        const bool shared = s->coll != DTP_ALL_REDUCE && s->coll != DTP_PERMUTE;
        const double link_s = s->work.bytes / (shared ? s->ranks : 1) / LINK_BPS;
        if (s->kind == DTP_SAMPLE_COLL && link_s > LINK_CREDIT_S) {
            *least = fmin(*least, s->time_s / link_s);
        }
    }
    comm->transport.ops = rank_link.ops;
    dtp_bench_samples_free(&samples);
    dtp_backend_destroy(backend);
    return status;
}

/* The rate of collectives between hosts is one that the link keeps up. */
static void test_bench__a_link_is_measured_while_it_is_full(void **state)
{
    (void)state;
    dtp_mesh mesh;
    dtp_err err = {0};
    double least = 0.0;
    assert_int_equal(dtp_mesh_parse("x:2", &mesh, NULL), DTP_OK);
    for (int32_t i = 0; i < 3 && least < 0.85; i++) { /* others may disturb it */
        least = INFINITY;
        if (dtp_comm_sim_run(&mesh, link_bench, &least, &err) != DTP_OK) {
            fail_msg("%s", err.msg);
        }
    }
    if (!(least >= 0.85 && least < 1e3)) {
        fail_msg("a collective was measured in %g of what the link takes for it", least);
    }
}

/* A scale says of how many products in a call the time is measured too. */
static void test_bench__batches_of_products(void **state)
{
    (void)state;
    dtp_comm *comm = NULL;
    dtp_backend *backend = NULL;
    dtp_samples samples = {0};
    dtp_bench_scale scale = dtp_bench_scale_tiny;
    dtp_bench_options options = dtp_bench_options_init(true);
    options.budget_s = 0.1;
    options.scale = &scale;
    scale.batches = (dtp_bench_grid){2, {3, 5}};
    int32_t products[6] = {0};
    assert_int_equal(dtp_comm_self_create(&comm, NULL), DTP_OK);
    assert_int_equal(dtp_backend_cpu_create(1, &backend, NULL), DTP_OK);
    assert_int_equal(dtp_bench_run(comm, backend, &options, &samples, NULL), DTP_OK);
    for (int32_t i = 0; i < samples.n; i++) {
        const dtp_work *w = &samples.items[i].work;
        if (samples.items[i].kind == DTP_SAMPLE_GEMM) {
            assert_in_range(w->batch, 1, 5);
            products[w->batch]++;
        }
    }
    assert_true(products[1] > 0 && products[3] > 0);
    assert_int_equal(products[5], products[3]);
    assert_int_equal(products[2] + products[4], 0);
    dtp_bench_samples_free(&samples);
    dtp_backend_destroy(backend);
    dtp_comm_destroy(comm);
}

/* Products and ops are measured in every float type that the backend has, over the same grid. */
static void test_bench__every_float_type(void **state)
{
    (void)state;
    dtp_comm *comm = NULL;
    dtp_backend *backend = NULL;
    dtp_samples samples = {0};
    dtp_bench_options options = dtp_bench_options_init(true);
    options.budget_s = 0.1;
    int32_t products[DTP_N_ARITHMETICS] = {0}, ops[DTP_N_ARITHMETICS] = {0}, casts = 0;
    assert_int_equal(dtp_comm_self_create(&comm, NULL), DTP_OK);
    assert_int_equal(dtp_backend_cpu_create(1, &backend, NULL), DTP_OK);
    assert_int_equal(dtp_bench_run(comm, backend, &options, &samples, NULL), DTP_OK);
    for (int32_t i = 0; i < samples.n; i++) {
        const dtp_sample *s = &samples.items[i];
        products[s->arithmetic] += s->kind == DTP_SAMPLE_GEMM ? 1 : 0;
        ops[s->arithmetic] += s->kind == DTP_SAMPLE_OP ? 1 : 0;
        casts += strcmp(s->name, "cast") == 0 && s->arithmetic == DTP_BF16 ? 1 : 0;
    }
    assert_true(products[DTP_F32] > 100);
    assert_int_equal(products[DTP_BF16], products[DTP_F32]);
    assert_int_equal(products[DTP_F16], products[DTP_F32]);
    assert_int_equal(products[DTP_TF32], 0); /* the target has none */
    /* By the first operand: integers and booleans beside floats, once; states are f32. */
    assert_true(ops[DTP_F32] > ops[DTP_BF16] && ops[DTP_BF16] > 100 && ops[DTP_I32] > 0);
    assert_int_equal(ops[DTP_F16], ops[DTP_BF16]);
    assert_int_equal(casts, 2 * 4); /* recipes and sizes */
    dtp_bench_samples_free(&samples);
    dtp_backend_destroy(backend);
    dtp_comm_destroy(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bench_recipes__cover_the_op_table),
        cmocka_unit_test(test_bench_recipes__follow_from_the_op),
        cmocka_unit_test(test_bench_recipes__an_odd_op_needs_a_row),
        cmocka_unit_test(test_bench__ranks_agree_on_every_sample),
        cmocka_unit_test(test_bench__a_link_is_measured_while_it_is_full),
        cmocka_unit_test(test_bench__batches_of_products),
        cmocka_unit_test(test_bench__every_float_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
