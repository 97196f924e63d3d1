/* Machine descriptions that are fitted to measurements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/ops/op_table.h"
#include "cost_models/machine/fit.h"
#include "cost_models/price.h"

/* The machine that the samples are made from. */
static const double LAUNCH = 2e-6, BANDWIDTH = 1e10, RATE = 5e10, ALPHA = 3e-6, LINK = 2e9;
enum { RANKS = 4, MAX_SAMPLES = 2000 };

static void add(dtp_samples *s, dtp_sample sample)
{
    assert_true(s->n < MAX_SAMPLES);
    s->items[s->n++] = sample;
}

static double ring(dtp_coll_kind kind, double ranks, double bytes)
{
    double rounds = kind == DTP_ALL_REDUCE ? 2.0 : 1.0;
    double ring = kind == DTP_PERMUTE ? 1.0 : (ranks - 1.0) / ranks;
    return rounds * ((ranks - 1.0) * ALPHA + ring * bytes / LINK);
}

static void add_gemms(dtp_samples *s, dtp_arithmetic arithmetic, double rate)
{
    for (int64_t m = 1; m <= 512; m *= 8) {
        for (int64_t n = 1; n <= 512; n *= 8) {
            for (int64_t k = 1; k <= 512; k *= 8) {
                double flops = 2.0 * (double)(m * n * k);
                dtp_work w = {
                    .cls = DTP_WORK_GEMM, .flops = flops, .batch = 1, .m = m, .n = n, .k = k};
                add(s, (dtp_sample){.kind = DTP_SAMPLE_GEMM,
                                    .name = "einsum",
                                    .work = w,
                                    .arithmetic = arithmetic,
                                    .time_s = LAUNCH + flops / rate});
            }
        }
    }
}

static void add_memory(dtp_samples *s, dtp_sample_kind kind, const char *name, dtp_dtype dtype,
                       double factor)
{
    for (double bytes = 1e3; bytes < 1e8; bytes *= 4.0) {
        add(s, (dtp_sample){.kind = kind,
                            .name = name,
                            .arithmetic = dtype,
                            .work = {.cls = DTP_WORK_MEMORY, .bytes = bytes},
                            .time_s = factor * bytes / BANDWIDTH});
    }
}

static dtp_samples synthetic(void)
{
    dtp_samples s = {.ranks = RANKS, .threads = 1};
    s.items = calloc(MAX_SAMPLES, sizeof *s.items);
    assert_non_null(s.items);
    add(&s, (dtp_sample){.kind = DTP_SAMPLE_LAUNCH, .name = "neg", .time_s = LAUNCH});
    add_gemms(&s, DTP_F32, RATE);
    add_memory(&s, DTP_SAMPLE_OP, "add", DTP_F32, 1.0);
    add_memory(&s, DTP_SAMPLE_OP, "add", DTP_BF16, 3.0);
    add_memory(&s, DTP_SAMPLE_OP, "attention", DTP_F32, 2.0);
    add_memory(&s, DTP_SAMPLE_OP, "attention", DTP_BF16, 2.0);
    add_memory(&s, DTP_SAMPLE_MOVE, "copy", DTP_F32, 1.0);
    for (int i = 1; i <= 3; i++) {
        for (int half = 0; half <= 1; half++) {
            add(&s, (dtp_sample){.kind = DTP_SAMPLE_RATE,
                                 .name = "attention",
                                 .work = {.cls = DTP_WORK_MEMORY, .flops = i * 1e6, .bytes = 1e5},
                                 .arithmetic = half ? DTP_BF16 : DTP_F32,
                                 .time_s = 2.0 * 1e5 / BANDWIDTH + i * 1e6 / (half ? 6e9 : 2e9)});
        }
    }
    for (int kind = 0; kind < DTP_N_COLLS; kind++) {
        for (double bytes = 64.0; bytes < 1e8; bytes *= 4.0) {
            add(&s, (dtp_sample){.kind = DTP_SAMPLE_COLL,
                                 .coll = (dtp_coll_kind)kind,
                                 .ranks = RANKS,
                                 .work = {.bytes = bytes},
                                 .time_s = ring((dtp_coll_kind)kind, RANKS, bytes)});
        }
    }
    return s;
}

static bool close_to(double got, double want, double tolerance)
{
    return fabs(got / want - 1.0) <= tolerance;
}

static void test_fit__recovers_the_machine_it_was_sampled_from(void **state)
{
    (void)state;
    dtp_samples s = synthetic();
    dtp_fit_options o = {.name = "synthetic", .memory_bytes = 1 << 30};
    dtp_machine *m = NULL;
    assert_int_equal(dtp_machine_fit(&s, &o, &m, NULL), DTP_OK);
    assert_true(close_to(m->launch_s, LAUNCH, 1e-12));
    assert_true(m->launch_graph_s < 0.0);
    assert_true(close_to(m->mem_bw_Bps, BANDWIDTH, 1e-9));
    assert_int_equal(m->n_levels, 1);
    assert_int_equal(m->levels[0].size, RANKS);
    assert_true(close_to(m->levels[0].bw_Bps, LINK, 0.01));
    assert_true(close_to(dtp_machine_op_curve(m, "attention", DTP_F32)->flops, 2e9, 1e-9));
    assert_true(close_to(dtp_machine_op_curve(m, "attention", DTP_BF16)->flops, 6e9, 1e-9));
    dtp_work gemm = {
        .cls = DTP_WORK_GEMM, .batch = 1, .m = 64, .n = 512, .k = 8, .flops = 2.0 * 64 * 512 * 8};
    assert_true(close_to(dtp_price_work(m, dtp_op_find("einsum"), DTP_F32, &gemm),
                         LAUNCH + gemm.flops / RATE, 1e-6));
    dtp_work mixed = {.cls = DTP_WORK_MEMORY, .flops = 7e6, .bytes = 3e5};
    assert_true(close_to(dtp_price_work(m, dtp_op_find("attention"), DTP_F32, &mixed),
                         2.0 * 3e5 / BANDWIDTH + 7e6 / 2e9, 1e-6));
    assert_true(close_to(dtp_price_work(m, dtp_op_find("attention"), DTP_BF16, &mixed),
                         2.0 * 3e5 / BANDWIDTH + 7e6 / 6e9, 1e-6));
    dtp_work memory = {.cls = DTP_WORK_MEMORY, .flops = 1.0, .bytes = 123456.0};
    assert_true(close_to(dtp_price_work(m, dtp_op_find("mul"), DTP_F32, &memory),
                         123456.0 / BANDWIDTH, 1e-9));
    assert_true(close_to(dtp_price_work(m, dtp_op_find("mul"), DTP_BF16, &memory),
                         3.0 * 123456.0 / BANDWIDTH, 1e-9));
    assert_true(close_to(dtp_price_work(m, dtp_op_find("mul"), DTP_F16, &memory),
                         123456.0 / BANDWIDTH, 1e-9));
    assert_false(m->overlap);
    dtp_machine_destroy(m);
    add(&s, (dtp_sample){.kind = DTP_SAMPLE_BESIDE, .name = "einsum", .slower = {1.125, 1.5}});
    add(&s, (dtp_sample){.kind = DTP_SAMPLE_LAUNCH_GRAPH, .name = "neg", .time_s = LAUNCH / 4.0});
    assert_int_equal(dtp_machine_fit(&s, &o, &m, NULL), DTP_OK);
    assert_true(m->overlap && close_to(m->slowdown.compute, 1.125, 1e-12));
    assert_true(close_to(m->slowdown.comm, 1.5, 1e-12));
    assert_true(close_to(m->launch_s, LAUNCH, 1e-12));
    assert_true(close_to(m->launch_graph_s, LAUNCH / 4.0, 1e-12));
    dtp_machine_destroy(m);
    free(s.items);
}

static void test_fit__prices_collectives_as_measured(void **state)
{
    (void)state;
    dtp_samples s = synthetic();
    dtp_fit_options o = {.memory_bytes = 1 << 30};
    dtp_machine *m = NULL;
    dtp_mesh mesh;
    dtp_pricer p;
    assert_int_equal(dtp_machine_fit(&s, &o, &m, NULL), DTP_OK);
    assert_int_equal(dtp_mesh_parse("x:4", &mesh, NULL), DTP_OK);
    assert_int_equal(dtp_pricer_init(m, &mesh, &dtp_target_cpu, &p, NULL), DTP_OK);
    for (int kind = 0; kind < DTP_N_COLLS; kind++) {
        for (int64_t count = 4; count < 1 << 24; count *= 2) { /* every second one was measured */
            dtp_coll c = {.kind = (dtp_coll_kind)kind,
                          .set = 1,
                          .dtype = DTP_F32,
                          .count = count,
                          .shift = 1};
            const double bytes = dtp_coll_full_bytes(c.kind, count, DTP_F32, RANKS);
            assert_true(close_to(dtp_price_coll(&p, &c), ring(c.kind, RANKS, bytes), 0.02));
        }
    }
    dtp_machine_destroy(m);
    free(s.items);
}

/* Levels from groups of several sizes, with a ramp, and a switch that adds: what the constants make
 * is found again, also for sizes that were not measured. */
static void test_fit__levels_are_found_again(void **state)
{
    (void)state;
    const dtp_coll_rate of[3] = {{5e-6, 1.5e-6, 4e6, 0.85, 1.25},
                                 {4e-6, 8e-7, 2e6, 0.7, DTP_NO_SWITCH},
                                 {8e-6, 3e-7, 1e6, 0.6, DTP_NO_SWITCH}};
    const dtp_coll_kind kinds[3] = {DTP_ALL_REDUCE, DTP_ALL_GATHER, DTP_ALL_TO_ALL};
    dtp_level level = {.name = "l", .size = 16, .latency_s = 1e-6, .bw_Bps = 4e11}, found = level;
    dtp_coll_sample samples[400];
    int32_t n = 0;
    double error = 1.0;
    for (int k = 0; k < 3; k++) {
        level.rates[kinds[k]] = of[k];
        for (int32_t ranks = 2; ranks <= 8; ranks *= 2) {
            for (double bytes = 256.0; bytes < 1e9; bytes *= 4.0) {
                samples[n] = (dtp_coll_sample){.group = {ranks, 0, {ranks}, {1.0}},
                                               .call = {kinds[k], bytes, 1}};
                const dtp_coll_time t =
                    dtp_coll_time_of(&level, &samples[n].group, &samples[n].call);
                samples[n++].time_s = t.start_s + t.transfer_s;
            }
        }
    }
    assert_int_equal(dtp_level_fit(&found, 0, n, samples, &error, NULL), DTP_OK);
    assert_true(error < 0.02);
    for (int32_t i = 0; i < n; i++) {
        dtp_coll_sample s = samples[i];
        s.group.ranks = s.group.members[0] = 6;
        s.call.bytes *= 1.7;
        const dtp_coll_time a = dtp_coll_time_of(&level, &s.group, &s.call);
        const dtp_coll_time b = dtp_coll_time_of(&found, &s.group, &s.call);
        assert_true(close_to(b.start_s + b.transfer_s, a.start_s + a.transfer_s, 0.06));
    }
    assert_true(close_to(dtp_level_rate(&found, DTP_ALL_REDUCE).in_switch, 1.25, 0.1));
    samples[3].time_s = 0.0;
    assert_int_equal(dtp_level_fit(&found, 0, n, samples, &error, NULL), DTP_INVALID);
}

static void test_fit__one_disturbed_gemm_does_not_raise_the_others(void **state)
{
    (void)state;
    dtp_samples s = synthetic();
    for (int32_t i = 0; i < s.n; i++) {
        const dtp_work *w = &s.items[i].work;
        if (s.items[i].kind == DTP_SAMPLE_GEMM && w->m == 8 && w->n == 8 && w->k == 8) {
            s.items[i].time_s *= 1000.0;
        }
    }
    dtp_fit_options o = {.memory_bytes = 1 << 30};
    dtp_machine *m = NULL;
    assert_int_equal(dtp_machine_fit(&s, &o, &m, NULL), DTP_OK);
    dtp_work gemm = {.cls = DTP_WORK_GEMM, .batch = 1, .m = 64, .n = 64, .k = 64};
    assert_true(close_to(dtp_price_work(m, dtp_op_find("einsum"), DTP_F32, &gemm),
                         LAUNCH + 2.0 * 262144.0 / RATE, 1e-6));
    dtp_machine_destroy(m);
    free(s.items);
}

/* The machine of the samples, and the one that is read from its file. */
static void fit_and_read(const dtp_samples *s, dtp_machine **m, dtp_machine **again)
{
    dtp_fit_options o = {.memory_bytes = 1 << 30};
    char *text = NULL;
    assert_int_equal(dtp_machine_fit(s, &o, m, NULL), DTP_OK);
    assert_int_equal(dtp_machine_write(*m, &text, NULL), DTP_OK);
    assert_int_equal(dtp_machine_parse("again", text, strlen(text), again, NULL), DTP_OK);
    free(text);
}

/* A batch in one call takes its own time; one that is beyond those measured, in proportion. */
static void test_fit__prices_batches_as_measured(void **state)
{
    (void)state;
    dtp_samples s = synthetic();
    dtp_work w = {.cls = DTP_WORK_GEMM, .batch = 16, .m = 64, .n = 64, .k = 64};
    const double one_s = 2.0 * 262144.0 / RATE, batch_s = 2.0 * one_s;
    add(&s, (dtp_sample){
                .kind = DTP_SAMPLE_GEMM, .name = "einsum", .work = w, .time_s = LAUNCH + batch_s});
    dtp_machine *m = NULL, *again = NULL;
    fit_and_read(&s, &m, &again);
    assert_true(dtp_machine_hash(m) == dtp_machine_hash(again));
    const struct {
        int64_t batch;
        double body_s;
    } rows[] = {{1, one_s}, {4, sqrt(one_s * batch_s)}, {16, batch_s}, {64, 4.0 * batch_s}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        w.batch = rows[i].batch;
        assert_true(close_to(dtp_price_work(again, dtp_op_find("einsum"), DTP_F32, &w),
                             LAUNCH + rows[i].body_s, 1e-6));
    }
    dtp_machine_destroy(m);
    dtp_machine_destroy(again);
    free(s.items);
}

/* An arithmetic that was measured has a grid of its own, also where its rate is another one for
 * each shape; one that was not is priced as f32. */
static void test_fit__prices_gemms_by_arithmetic(void **state)
{
    (void)state;
    dtp_samples s = synthetic();
    add_gemms(&s, DTP_BF16, 2.0 * RATE);
    s.items[s.n - 1].time_s = LAUNCH + s.items[s.n - 1].work.flops / (3.0 * RATE);
    add_gemms(&s, DTP_TF32, 4.0 * RATE);
    dtp_machine *m = NULL, *again = NULL;
    fit_and_read(&s, &m, &again);
    dtp_machine *const both[] = {m, again};
    for (int i = 0; i < 2; i++) {
        dtp_work small = {.cls = DTP_WORK_GEMM, .batch = 1, .m = 64, .n = 64, .k = 64};
        dtp_work large = {.cls = DTP_WORK_GEMM, .batch = 1, .m = 512, .n = 512, .k = 512};
        const double least = 2.0 * 262144.0 / RATE, most = 2.0 * 512 * 512 * 512 / RATE;
        const dtp_machine *at = both[i];
        assert_true(close_to(at->flops[DTP_BF16], 3.0 * RATE, 1e-6));
        assert_true(close_to(at->flops[DTP_F32], RATE, 1e-6));
        assert_true(close_to(dtp_price_work(at, dtp_op_find("einsum"), DTP_F32, &large),
                             LAUNCH + most, 1e-6));
        assert_true(close_to(dtp_price_work(at, dtp_op_find("einsum"), DTP_BF16, &small),
                             LAUNCH + least / 2.0, 1e-6));
        assert_true(close_to(dtp_price_work(at, dtp_op_find("einsum"), DTP_BF16, &large),
                             LAUNCH + most / 3.0, 1e-6));
        assert_true(close_to(at->flops[DTP_TF32], 4.0 * RATE, 1e-6));
        assert_true(close_to(dtp_price_work(at, dtp_op_find("einsum"), DTP_TF32, &small),
                             LAUNCH + least / 4.0, 1e-6));
        assert_true(close_to(dtp_price_work(at, dtp_op_find("einsum"), DTP_F16, &small),
                             LAUNCH + least, 1e-6));
        dtp_machine_destroy(both[i]);
    }
    free(s.items);
}

static void test_fit__says_what_is_missing(void **state)
{
    (void)state;
    const struct {
        dtp_sample_kind without;
        const char *says;
    } rows[] = {{DTP_SAMPLE_LAUNCH, "launch"},
                {DTP_SAMPLE_MOVE, "copy"},
                {DTP_SAMPLE_GEMM, "GEMM"},
                {DTP_SAMPLE_COLL, "4 ranks"}};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        dtp_samples s = synthetic();
        int32_t kept = 0;
        for (int32_t i = 0; i < s.n; i++) {
            if (s.items[i].kind != rows[r].without) {
                s.items[kept++] = s.items[i];
            }
        }
        s.n = kept;
        dtp_fit_options o = {.memory_bytes = 1 << 30};
        dtp_machine *m = NULL;
        dtp_err err = {0};
        assert_int_equal(dtp_machine_fit(&s, &o, &m, &err), DTP_INVALID);
        assert_non_null(strstr(err.msg, rows[r].says));
        free(s.items);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fit__recovers_the_machine_it_was_sampled_from),
        cmocka_unit_test(test_fit__prices_collectives_as_measured),
        cmocka_unit_test(test_fit__levels_are_found_again),
        cmocka_unit_test(test_fit__one_disturbed_gemm_does_not_raise_the_others),
        cmocka_unit_test(test_fit__prices_batches_as_measured),
        cmocka_unit_test(test_fit__prices_gemms_by_arithmetic),
        cmocka_unit_test(test_fit__says_what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
