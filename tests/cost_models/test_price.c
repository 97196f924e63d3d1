/* Prices of instructions and collectives. */
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
#include "cost_models/machine/machine_scale.h"
#include "cost_models/price.h"

/* Two levels of two, with round numbers. */
static dtp_machine *machine(void)
{
    dtp_machine *m = NULL;
    assert_int_equal(dtp_machine_create("hand", &m, NULL), DTP_OK);
    m->memory_bytes = 1;
    m->mem_bw_Bps = 100.0;
    m->launch_s = 2.0;
    m->flops[DTP_F32] = 1000.0;
    m->n_levels = 2;
    m->levels[0] = (dtp_level){.name = "inner", .size = 2, .latency_s = 1.0, .bw_Bps = 10.0};
    m->levels[1] = (dtp_level){.name = "outer", .size = 2, .latency_s = 3.0, .bw_Bps = 4.0};
    assert_int_equal(dtp_machine_index(m, NULL), DTP_OK);
    return m;
}

static dtp_pricer pricer(const dtp_machine *m, const char *mesh_text)
{
    dtp_mesh mesh;
    dtp_pricer p;
    assert_int_equal(dtp_mesh_parse(mesh_text, &mesh, NULL), DTP_OK);
    assert_int_equal(dtp_pricer_init(m, &mesh, &dtp_target_cpu, &p, NULL), DTP_OK);
    return p;
}

static double coll(const dtp_pricer *p, dtp_coll_kind kind, dtp_mesh_set set, int64_t count)
{
    dtp_coll c = {.kind = kind, .set = set, .dtype = DTP_F32, .count = count};
    return dtp_price_coll(p, &c);
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * (1.0 + fabs(want)))) {
        fail_msg("got %.17g, want %.17g", got, want);
    }
}

static void check_size_curve(const dtp_pricer *p)
{
    for (int kind = 0; kind < DTP_N_COLLS; kind++) {
        for (dtp_mesh_set set = 1; set < 1U << p->mesh.n_dims; set++) {
            double before = coll(p, (dtp_coll_kind)kind, set, 1);
            for (int64_t count = 2; count < 1 << 22; count += count / 50 + 1) {
                double here = coll(p, (dtp_coll_kind)kind, set, count);
                assert_true(here >= before);
                assert_true(here <= before * 2.0);
                before = here;
            }
        }
    }
}

static void test_price__collectives_by_hand(void **state)
{
    (void)state;
    dtp_machine *m = machine();
    dtp_pricer p = pricer(m, "x:2;y:2");
    assert_int_equal(p.groups[1].outer, 1);
    assert_int_equal(p.groups[2].outer, 0);
    /* y inside one block: latency 1, 80 bytes, 10 B/s */
    near(coll(&p, DTP_ALL_GATHER, 2, 10), 1.0 + 0.5 * 80.0 / 10.0);
    near(coll(&p, DTP_REDUCE_SCATTER, 2, 10), 1.0 + 0.5 * 80.0 / 10.0);
    /* x across: two groups share the link of a block: 2 B/s each */
    near(coll(&p, DTP_ALL_GATHER, 1, 10), 3.0 + 0.5 * 80.0 / 2.0);
    /* both, 160 bytes: a ring of four at the pace of the outer level */
    near(coll(&p, DTP_ALL_GATHER, 3, 10), 3.0 * 3.0 + 0.75 * 160.0 / 4.0);
    /* inside and outside one step each; the blocks exchange 160 bytes over 4 B/s, a device passes
     * on 1.5 times as many over 10 */
    near(coll(&p, DTP_ALL_REDUCE, 3, 40), 1.0 + 3.0 + 160.0 / 4.0);
    /* 3 peers; 160 * 2/4 * 2 members leave a block over 4 B/s, 160 * 1/4 a device over 10 */
    near(coll(&p, DTP_ALL_TO_ALL, 3, 10), 3.0 * 3.0 + 40.0);
    near(coll(&p, DTP_ALL_REDUCE, 0, 10), 0.0);
    dtp_machine_destroy(m);
}

/* Constants by kind: what one kind states another that moves bytes alike takes, and no other. */
static void test_price__levels_state_collectives(void **state)
{
    (void)state;
    dtp_machine *m = machine();
    m->levels[0].size = m->levels[1].size = 4;
    m->levels[0].rates[DTP_ALL_REDUCE] = (dtp_coll_rate){2.0, 0.5, 90.0, 0.5, 1.25};
    m->levels[0].rates[DTP_ALL_GATHER] = (dtp_coll_rate){4.0, 0.25, 0.0, 0.8, DTP_NO_SWITCH};
    m->levels[1].rates[DTP_ALL_REDUCE] = (dtp_coll_rate){7.0, 1.0, 40.0, 1.0, DTP_NO_SWITCH};
    assert_int_equal(dtp_machine_index(m, NULL), DTP_OK);
    dtp_pricer p = pricer(m, "x:4;y:4");
    /* three steps; 160 bytes, of which the switch leaves 200 instead of 240 to a link of 5 B/s */
    near(coll(&p, DTP_ALL_REDUCE, 2, 40), 2.0 + 3.0 * 0.5 + (200.0 + sqrt(200.0 * 90.0)) / 5.0);
    near(coll(&p, DTP_ALL_GATHER, 2, 10), 4.0 + 3.0 * 0.25 + 0.75 * 160.0 / 8.0);
    near(coll(&p, DTP_REDUCE_SCATTER, 2, 10), 4.0 + 3.0 * 0.25 + 0.75 * 160.0 / 8.0);
    near(coll(&p, DTP_ALL_TO_ALL, 2, 10), 3.0 * 1.0 + 0.75 * 160.0 / 10.0);
    /* four groups share the link of a block, 1 B/s and a ramp of 10 bytes each */
    near(coll(&p, DTP_ALL_REDUCE, 1, 40), 7.0 + 3.0 + 240.0 + sqrt(240.0 * 10.0));
    /* over both, starts and ramps add up, the slower level decides the rate */
    const double inner = sqrt(200.0 * 90.0) / 5.0, outer = sqrt(300.0 * 40.0) / 4.0;
    near(coll(&p, DTP_ALL_REDUCE, 3, 40), 2.0 + 1.5 + 7.0 + 3.0 + inner + outer + 300.0 / 4.0);
    const dtp_coll c = {.kind = DTP_ALL_REDUCE, .set = 3, .dtype = DTP_F32, .count = 40};
    near(dtp_price_coll_parts(&p, &c).start_s, 13.5);
    check_size_curve(&p);
    dtp_machine_destroy(m);
}

/* Each device sends through an adapter of its own, so one that crosses takes as long as all; ranks
 * on CPUs share the adapter of their host. Slower adapters reach more of their rate. */
static void test_price__messages_go_through_the_adapter_of_a_device(void **state)
{
    (void)state;
    dtp_machine *m = machine();
    m->levels[0].size = m->levels[1].size = 4;
    m->levels[1].rates[DTP_PERMUTE] = (dtp_coll_rate){5.0, 1.0, 0.0, 0.5, DTP_NO_SWITCH};
    assert_int_equal(dtp_machine_index(m, NULL), DTP_OK);
    dtp_coll one = {.kind = DTP_PERMUTE, .set = 1, .dtype = DTP_F32, .count = 10, .shift = 1};
    dtp_coll all = one;
    all.shift = 4;
    for (int32_t adapters = 0; adapters <= 1; adapters++) {
        m->kind = adapters != 0 ? "cuda" : "cpu";
        dtp_pricer p = pricer(m, "x:16"), stages = pricer(m, "x:4;y:4");
        near(dtp_price_coll(&p, &one), 6.0 + (adapters != 0 ? 4.0 : 1.0) * 40.0 / 2.0);
        near(dtp_price_coll(&p, &all), 6.0 + 4.0 * 40.0 / 2.0);
        near(dtp_price_coll(&stages, &one), 6.0 + 4.0 * 40.0 / 2.0);
    }
    const dtp_level *from = &m->levels[1];
    dtp_level slower = *from, slow = *from, faster = *from;
    slower.bw_Bps = from->bw_Bps / 1.6;
    slow.bw_Bps = from->bw_Bps / 4.0;
    faster.bw_Bps = from->bw_Bps * 2.0;
    dtp_level_borrow(&slower, from);
    dtp_level_borrow(&slow, from);
    dtp_level_borrow(&faster, from);
    near(slower.rates[DTP_PERMUTE].share, 0.8);
    near(slow.rates[DTP_PERMUTE].share, 0.97);
    near(faster.rates[DTP_PERMUTE].share, 0.25);
    dtp_machine_destroy(m);
}

/* Rings wait hop_s at each further member of a level that they go through, whatever ranks they have
 * inside; trees and what stays inside of a member do not. The slowest rank lags by a share of
 * compute for each doubling of the members. */
static void test_price__networks_fall_with_the_members_of_a_group(void **state)
{
    (void)state;
    dtp_machine *m = machine();
    m->levels[1].size = 16;
    m->levels[1].skew = 0.02;
    assert_int_equal(dtp_machine_index(m, NULL), DTP_OK);
    dtp_pricer small = pricer(m, "x:4;y:2"), large = pricer(m, "x:16;y:2"),
               inside = pricer(m, "y:2");
    const dtp_coll_kind kinds[] = {DTP_ALL_GATHER, DTP_REDUCE_SCATTER, DTP_ALL_REDUCE,
                                   DTP_ALL_TO_ALL};
    double before[4][3];
    for (int32_t more = 0; more <= 1; more++) {
        m->levels[1].hop_s = more * 7.0;
        for (int32_t k = 0; k < 4; k++) {
            const double hops = more != 0 && k < 2 ? 7.0 : 0.0;
            const double now[] = {coll(&small, kinds[k], 1, 10), coll(&large, kinds[k], 3, 10),
                                  coll(&large, kinds[k], 2, 10)};
            near(now[0], more == 0 ? now[0] : before[k][0] + 3.0 * hops);
            near(now[1], more == 0 ? now[1] : before[k][1] + 15.0 * hops);
            near(now[2], more == 0 ? now[2] : before[k][2]);
            memcpy(before[k], now, sizeof now);
        }
    }
    near(small.skew, 0.02 * 2.0);
    near(large.skew, 0.02 * 4.0);
    near(inside.skew, 0.0);
    check_size_curve(&large);
    dtp_machine_destroy(m);
}

static void test_price__dims_of_one_rank_cost_nothing(void **state)
{
    (void)state;
    dtp_machine *m = machine();
    dtp_pricer p = pricer(m, "x:4;y:1");
    near(coll(&p, DTP_ALL_REDUCE, 2, 1000), 0.0);
    near(coll(&p, DTP_ALL_GATHER, 1, 10), 39.0);
    assert_int_equal(p.groups[2].outer, -1);
    dtp_machine_destroy(m);
}

static void test_price__groups_that_straddle_a_block_cross_it(void **state)
{
    (void)state;
    dtp_machine *m = machine();
    m->levels[0].size = 4;
    assert_int_equal(dtp_machine_index(m, NULL), DTP_OK);
    dtp_pricer p = pricer(m, "x:2;y:3"); /* ranks 3 4 5: one in block 0, two in block 1 */
    assert_int_equal(p.groups[2].outer, 1);
    assert_true(coll(&p, DTP_ALL_GATHER, 2, 10) > 3.0);
    dtp_pricer inside = pricer(m, "y:3");
    assert_int_equal(inside.groups[1].outer, 0);
    dtp_machine_destroy(m);
}

static void test_price__mesh_must_fit_the_machine(void **state)
{
    (void)state;
    dtp_machine *m = machine();
    dtp_mesh mesh;
    dtp_pricer p;
    dtp_err err = {0};
    assert_int_equal(dtp_mesh_parse("x:5", &mesh, NULL), DTP_OK);
    assert_int_equal(dtp_pricer_init(m, &mesh, &dtp_target_cpu, &p, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "5 ranks"));
    assert_non_null(strstr(err.msg, "4 devices"));
    dtp_machine_destroy(m);
}

static void test_price__collectives_are_monotone_and_continuous(void **state)
{
    (void)state;
    dtp_machine *m = machine();
    dtp_pricer p = pricer(m, "x:2;y:2");
    check_size_curve(&p);
    m->levels[1].size = 9;
    assert_int_equal(dtp_machine_index(m, NULL), DTP_OK);
    dtp_pricer q = pricer(m, "x:3;y:3;z:2");
    check_size_curve(&q);
    dtp_machine_destroy(m);
}

static void test_price__work_by_hand(void **state)
{
    (void)state;
    dtp_machine *m = machine();
    dtp_work gemm = {
        .cls = DTP_WORK_GEMM, .flops = 5000.0, .bytes = 300.0, .batch = 1, .pack_bytes = 50.0};
    near(dtp_price_work(m, dtp_op_find("einsum"), DTP_F32, &gemm), 2.0 + 5.0 + 0.5);
    near(dtp_price_work(m, dtp_op_find("einsum"), DTP_TF32, &gemm),
         2.0 + 5.0 + 0.5); /* not stated: f32's */
    m->flops[DTP_TF32] = 1250.0;
    near(dtp_price_work(m, dtp_op_find("einsum"), DTP_TF32, &gemm), 2.0 + 4.0 + 0.5);
    gemm.bytes = 900.0;
    near(dtp_price_work(m, dtp_op_find("einsum"), DTP_F32, &gemm), 2.0 + 9.0 + 0.5);
    dtp_work memory = {.cls = DTP_WORK_MEMORY, .flops = 10.0, .bytes = 300.0};
    near(dtp_price_work(m, dtp_op_find("add"), DTP_F32, &memory), 2.0 + 3.0);
    dtp_work none = {.cls = DTP_WORK_NONE, .bytes = 300.0};
    near(dtp_price_work(m, dtp_op_find("relabel"), DTP_F32, &none), 0.0);
    near(dtp_price_move(m, DTP_COPY_PACK, 200.0), 4.0);

    const double x[] = {100.0, 10000.0};
    const double y[] = {1.0, 100.0};
    const dtp_curve line = {.n = 2, .x = x, .y = y};
    dtp_op_curve curves[] = {{.op = "attention", .time_s = line, .flops = 10.0},
                             {.op = "attention", .dtype = DTP_BF16, .time_s = line, .flops = 50.0},
                             {.op = "*", .time_s = line}};
    m->op_curves = curves;
    m->n_op_curves = 3;
    assert_int_equal(dtp_machine_index(m, NULL), DTP_OK);
    memory.flops = 25.0;
    near(dtp_price_work(m, dtp_op_find("attention"), DTP_F32, &memory), 3.0 + 2.5);
    memory.flops = 50.0;
    near(dtp_price_work(m, dtp_op_find("attention"), DTP_F32, &memory), 3.0 + 5.0);
    near(dtp_price_work(m, dtp_op_find("attention"), DTP_BF16, &memory), 3.0 + 1.0);
    near(dtp_price_work(m, dtp_op_find("attention"), DTP_F16, &memory), 3.0 + 5.0);
    near(dtp_price_work(m, dtp_op_find("attention"), DTP_TF32, &memory), 3.0 + 5.0);
    near(dtp_price_work(m, dtp_op_find("add"), DTP_F32, &memory), 3.0);
    near(dtp_price_move(m, DTP_COPY_PACK, 200.0), 4.0);
    dtp_machine_destroy(m);
}

/* A machine that states rates of whole ops and "*" alone: whatever a plan splits, a part costs what
 * the whole op would for its bytes and FLOPs, until the machine has a curve of the part. */
static void test_price__parts_have_the_rates_of_their_op(void **state)
{
    (void)state;
    const double x[] = {100.0, 10000.0}, fast[] = {1.0, 100.0}, slow[] = {7.0, 700.0};
    const dtp_curve whole = {.n = 2, .x = x, .y = slow}, others = {.n = 2, .x = x, .y = fast};
    const dtp_work w = {.cls = DTP_WORK_MEMORY, .flops = 25.0, .bytes = 300.0};
    int32_t parts = 0;
    for (int32_t i = 0; i < dtp_op_count(); i++) {
        const dtp_op_def *op = dtp_op_at(i);
        if (op->rates == NULL) {
            continue;
        }
        dtp_op_curve curves[] = {{.op = op->rates, .time_s = whole, .flops = 10.0},
                                 {.op = "*", .time_s = others},
                                 {.op = op->name, .time_s = others}};
        dtp_machine *m = machine();
        m->op_curves = curves;
        m->n_op_curves = 2;
        assert_int_equal(dtp_machine_index(m, NULL), DTP_OK);
        near(dtp_price_work(m, op, DTP_F32, &w), 21.0 + 2.5);
        near(dtp_price_work(m, op, DTP_BF16, &w), 21.0 + 2.5);
        near(dtp_price_work(m, dtp_op_find("exp"), DTP_F32, &w), 3.0);
        m->n_op_curves = 3;
        assert_int_equal(dtp_machine_index(m, NULL), DTP_OK);
        near(dtp_price_work(m, op, DTP_F32, &w), 3.0);
        dtp_machine_destroy(m);
        parts++;
    }
    assert_true(parts > 20);
}

static void test_price__picoseconds_round_and_saturate(void **state)
{
    (void)state;
    assert_true(dtp_picoseconds(1.4e-12) == 1);
    assert_true(dtp_picoseconds(1.6e-12) == 2);
    assert_true(dtp_picoseconds(2.0) == INT64_C(2000000000000));
}

/* Launches are priced as the runner launches: recorded where the machine says what that costs. */
static void test_price__launches_in_a_recording(void **state)
{
    (void)state;
    const double x[] = {100.0, 10000.0};
    const double y[] = {1.0, 100.0};
    dtp_op_curve curve = {.op = "add", .time_s = {.n = 2, .x = x, .y = y}};
    const dtp_work memory = {.cls = DTP_WORK_MEMORY, .flops = 10.0, .bytes = 300.0};
    const dtp_work small = {.cls = DTP_WORK_MEMORY, .bytes = 100.0};
    dtp_machine *m = machine();
    const uint64_t hash = dtp_machine_hash(m);
    m->launch_graph_s = 0.5;
    m->op_curves = &curve;
    m->n_op_curves = 1;
    assert_int_equal(dtp_machine_index(m, NULL), DTP_OK);
    assert_true(dtp_machine_hash(m) != hash);
    near(dtp_price_work(m, dtp_op_find("mul"), DTP_F32, &memory), 0.5 + 3.0);
    near(dtp_price_work(m, dtp_op_find("add"), DTP_F32, &small), 1.0);
    near(dtp_price_move(m, DTP_COPY_PACK, 200.0), 0.5 + 2.0);
    assert_int_equal(dtp_machine_unrecorded(m, NULL), DTP_OK);
    near(dtp_price_work(m, dtp_op_find("mul"), DTP_F32, &memory), 2.0 + 3.0);
    near(dtp_price_work(m, dtp_op_find("add"), DTP_F32, &small), 2.0); /* its launch is longer */
    near(dtp_price_work(m, dtp_op_find("add"), DTP_F32,
                        &(dtp_work){.cls = DTP_WORK_MEMORY, .bytes = 10000.0}),
         100.0);
    near(dtp_price_move(m, DTP_COPY_PACK, 200.0), 4.0);
    dtp_machine_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_price__collectives_by_hand),
        cmocka_unit_test(test_price__messages_go_through_the_adapter_of_a_device),
        cmocka_unit_test(test_price__networks_fall_with_the_members_of_a_group),
        cmocka_unit_test(test_price__dims_of_one_rank_cost_nothing),
        cmocka_unit_test(test_price__groups_that_straddle_a_block_cross_it),
        cmocka_unit_test(test_price__mesh_must_fit_the_machine),
        cmocka_unit_test(test_price__collectives_are_monotone_and_continuous),
        cmocka_unit_test(test_price__levels_state_collectives),
        cmocka_unit_test(test_price__work_by_hand),
        cmocka_unit_test(test_price__parts_have_the_rates_of_their_op),
        cmocka_unit_test(test_price__picoseconds_round_and_saturate),
        cmocka_unit_test(test_price__launches_in_a_recording),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
