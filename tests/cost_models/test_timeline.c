/* The simulated schedule of a step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/timeline.h"
#include "spmd/target/target.h"

enum { SEED = 77, MAX_TASKS = 40 };

static const dtp_slowdown FULL_SPEED = {1.0, 1.0}, SLOWER = {1.5, 1.5};
static const dtp_machine MACHINE = {.slowdown = {1.0, 1.0}};

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % below;
}

/* Random tasks; also their direct predecessors as a matrix. */
static int random_tasks(uint64_t *random, dtp_schedule_task *tasks, bool edge[MAX_TASKS][MAX_TASKS])
{
    int n = 1 + (int)draw(random, MAX_TASKS);
    memset(edge, 0, sizeof(bool) * MAX_TASKS * MAX_TASKS);
    int32_t count[DTP_N_LANES] = {0};
    for (int i = 0; i < n; i++) {
        const uint32_t lane = draw(random, 6);
        tasks[i] =
            (dtp_schedule_task){.lane = lane < DTP_N_LANES ? (dtp_lane)lane : DTP_LANE_COMPUTE,
                                .time_s = draw(random, 10)};
        for (int r = 0; r < DTP_N_LANES; r++) {
            tasks[i].need[r] = (int32_t)draw(random, (uint32_t)count[r] + 1);
        }
        int32_t seen[DTP_N_LANES] = {0};
        for (int j = 0; j < i; j++) {
            const dtp_lane r = tasks[j].lane;
            edge[i][j] = ++seen[r] <= tasks[i].need[r] || r == tasks[i].lane;
        }
        count[tasks[i].lane]++;
    }
    return n;
}

static bool is_comm(const dtp_schedule_task *task)
{
    return task->lane != DTP_LANE_COMPUTE;
}

/* Whether task i runs in the second that begins at `second`; times are whole seconds. */
static bool runs(const dtp_schedule_task *tasks, const double *end, int i, int second)
{
    return end[i] - tasks[i].time_s < second + 0.5 && second + 0.5 < end[i];
}

/* Seconds in which the collective runs and no compute task does: those in which it is the only one
 * to run, and all of them. */
static void exposed_seconds(int n, const dtp_schedule_task *tasks, const double *end, int i,
                            double range[2])
{
    range[0] = range[1] = 0.0;
    for (int second = (int)(end[i] - tasks[i].time_s); second < (int)end[i]; second++) {
        int others[2] = {0, 0};
        for (int j = 0; j < n; j++) {
            others[is_comm(&tasks[j])] += j != i && runs(tasks, end, j, second);
        }
        range[0] += others[0] == 0 && others[1] == 0;
        range[1] += others[0] == 0;
    }
}

static double sum_of(int n, const dtp_schedule_task *tasks)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++) {
        assert_true(tasks[i].exposed_s >= 0.0);
        sum += tasks[i].exposed_s;
    }
    return sum;
}

/* By task at full speed, and its sum also where both slow down. */
static void check_exposed(int n, const dtp_schedule_task *tasks, const double *end)
{
    dtp_schedule_task run[MAX_TASKS + 1];
    memcpy(run, tasks, (size_t)n * sizeof *run);
    run[n].exposed_s = -1.0;
    dtp_schedule_result r = dtp_schedule_run(n, run, FULL_SPEED);
    for (int i = 0; i < n; i++) {
        double range[2] = {0.0, 0.0};
        if (is_comm(&tasks[i])) {
            exposed_seconds(n, tasks, end, i, range);
        }
        assert_true(run[i].exposed_s > range[0] - 1e-9 && run[i].exposed_s < range[1] + 1e-9);
    }
    assert_true(fabs(sum_of(n, run) - r.exposed_comm_s) < 1e-9);
    r = dtp_schedule_run(n, run, SLOWER);
    assert_true(fabs(sum_of(n, run) - r.exposed_comm_s) < 1e-9);
    for (int i = 0; i < n; i++) {
        assert_true(run[i].exposed_s <= (is_comm(&tasks[i]) ? tasks[i].time_s + 1e-9 : 0.0));
    }
    assert_true(run[n].exposed_s < 0.0);
}

/* Without slow-down tasks end as late as the longest path to them says. */
static void check_ends(int n, const dtp_schedule_task *tasks, const double *end)
{
    for (int i = 0; i < n; i++) {
        assert_true(fabs(tasks[i].end_s - end[i]) < 1e-9);
        assert_true(fabs(tasks[i].begin_s - (end[i] - tasks[i].time_s)) < 1e-9);
    }
}

/* Seconds in which a compute task and a collective run. */
static double beside_compute(int n, const dtp_schedule_task *tasks, const double *end)
{
    double sum = 0.0;
    for (int second = 0; second < 10 * n; second++) {
        bool any[2] = {false, false};
        for (int i = 0; i < n; i++) {
            any[is_comm(&tasks[i])] = any[is_comm(&tasks[i])] || runs(tasks, end, i, second);
        }
        sum += any[0] && any[1];
    }
    return sum;
}

/* Without slow-down the end is the longest path. */
static void test_timeline__is_the_longest_path(void **state)
{
    (void)state;
    uint64_t random = SEED;
    print_message("seed %d\n", SEED);
    for (int round = 0; round < 500; round++) {
        static bool edge[MAX_TASKS][MAX_TASKS];
        dtp_schedule_task tasks[MAX_TASKS];
        double end[MAX_TASKS], last = 0.0, compute = 0.0;
        int n = random_tasks(&random, tasks, edge);
        for (int i = 0; i < n; i++) {
            end[i] = 0.0;
            for (int j = 0; j < i; j++) {
                end[i] = edge[i][j] ? fmax(end[i], end[j]) : end[i];
            }
            end[i] += tasks[i].time_s;
            last = fmax(last, end[i]);
            compute += is_comm(&tasks[i]) ? 0.0 : tasks[i].time_s;
        }
        dtp_schedule_result r = dtp_schedule_run(n, tasks, FULL_SPEED);
        assert_true(fabs(r.end_s - last) < 1e-9);
        assert_true(fabs(r.exposed_comm_s - (last - compute)) < 1e-9);
        assert_true(fabs(r.overlapped_s - beside_compute(n, tasks, end)) < 1e-9);
        check_ends(n, tasks, end);
        dtp_schedule_result slow = dtp_schedule_run(n, tasks, SLOWER);
        assert_true(slow.end_s >= r.end_s - 1e-9);
        assert_true(slow.end_s <= 1.5 * r.end_s + 1e-9);
        check_exposed(n, tasks, end);
    }
}

/* A task begins once it is issued; compute runs, waits for a collective or waits for the host. */
static void test_timeline__the_host_issues_before_anything_runs(void **state)
{
    (void)state;
    uint64_t random = SEED + 1;
    double waited = 0.0;
    for (int round = 0; round < 500; round++) {
        static bool edge[MAX_TASKS][MAX_TASKS];
        dtp_schedule_task tasks[MAX_TASKS];
        double end[MAX_TASKS], last = 0.0, compute = 0.0;
        const int n = random_tasks(&random, tasks, edge);
        const double host_s = 2.0 * (double)(round % 7) / 7.0;
        for (int i = 0; i < n; i++) {
            tasks[i].issued_s = (i + 1) * host_s;
            end[i] = tasks[i].issued_s;
            for (int j = 0; j < i; j++) {
                end[i] = edge[i][j] ? fmax(end[i], end[j]) : end[i];
            }
            end[i] += tasks[i].time_s;
            last = fmax(last, end[i]);
            compute += is_comm(&tasks[i]) ? 0.0 : tasks[i].time_s;
        }
        const dtp_schedule_result r = dtp_schedule_run(n, tasks, FULL_SPEED);
        assert_true(fabs(r.end_s - last) < 1e-9);
        assert_true(fabs(r.end_s - (compute + r.exposed_comm_s + r.host_s)) < 1e-9);
        assert_true(fabs(sum_of(n, tasks) - r.exposed_comm_s) < 1e-9);
        assert_true(host_s > 0.0 || !(r.host_s > 0.0));
        waited += r.host_s;
    }
    assert_true(waited > 100.0);
}

static void test_timeline__slows_both_while_they_overlap(void **state)
{
    (void)state;
    dtp_schedule_task tasks[] = {{.lane = DTP_LANE_COMPUTE, .time_s = 4.0},
                                 {.lane = DTP_LANE_COMM, .time_s = 2.0}};
    dtp_schedule_result r = dtp_schedule_run(2, tasks, (dtp_slowdown){2.0, 2.0});
    assert_true(fabs(r.end_s - 6.0) < 1e-12);
    assert_true(fabs(r.overlapped_s - 4.0) < 1e-12);
    assert_true(fabs(r.exposed_comm_s) < 1e-12);
    /* 3 s until the collective has ended, in which 2 of 4 s are computed; 2 s are left. */
    r = dtp_schedule_run(2, tasks, (dtp_slowdown){1.5, 1.5});
    assert_true(fabs(r.end_s - 5.0) < 1e-12);
    /* Compute does not notice, the collective takes twice as long. */
    r = dtp_schedule_run(2, tasks, (dtp_slowdown){1.0, 2.0});
    assert_true(fabs(r.end_s - 4.0) < 1e-12);
    assert_true(fabs(r.overlapped_s - 4.0) < 1e-12);
    /* 2 s for the collective, in which half of 4 s is computed at half the speed: 3 s are left. */
    r = dtp_schedule_run(2, tasks, (dtp_slowdown){2.0, 1.0});
    assert_true(fabs(r.end_s - 5.0) < 1e-12);
    assert_true(fabs(r.overlapped_s - 2.0) < 1e-12);
}

/* Collectives inside of a host and across hosts go on beside each other; what compute waits for is
 * exposed, not what runs beside it. */
static void test_timeline__lanes_go_on_beside_each_other(void **state)
{
    (void)state;
    dtp_schedule_task tasks[] = {{.lane = DTP_LANE_FAR, .time_s = 8.0},
                                 {.lane = DTP_LANE_COMM, .time_s = 3.0},
                                 {.lane = DTP_LANE_COMPUTE, .time_s = 2.0, .need = {0, 1, 0}},
                                 {.lane = DTP_LANE_COMPUTE, .time_s = 1.0, .need = {0, 1, 1}}};
    const dtp_schedule_result r = dtp_schedule_run(4, tasks, FULL_SPEED);
    assert_true(fabs(r.end_s - 9.0) < 1e-12);
    assert_true(fabs(tasks[1].exposed_s - 3.0) < 1e-12);
    assert_true(fabs(tasks[0].exposed_s - 3.0) < 1e-12);
    assert_true(fabs(r.exposed_comm_s - 6.0) < 1e-12);
    assert_true(fabs(r.overlapped_s - 2.0) < 1e-12);
}

static void check_by_instr(const dtp_program *p, const double *expected)
{
    double exposed[8];
    dtp_schedule_result r;
    assert_true(dtp_schedule_program(p, &MACHINE, &r, exposed));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        assert_true(fabs(exposed[i] - expected[i]) < 1e-12);
    }
}

/* A kernel, a START, a kernel beside it, its WAIT, a kernel; then a START that nothing runs beside,
 * of which compute does not wait before the end. */
static void test_timeline__compute_stops_at_waits_alone(void **state)
{
    (void)state;
    dtp_instr instrs[] = {
        {.kind = DTP_INSTR_KERNEL, .time_s = 1.0},
        {.kind = DTP_INSTR_START, .pair = 3, .time_s = 5.0},
        {.kind = DTP_INSTR_KERNEL, .time_s = 2.0},
        {.kind = DTP_INSTR_WAIT, .pair = 1},
        {.kind = DTP_INSTR_KERNEL, .time_s = 1.0},
        {.kind = DTP_INSTR_START, .pair = 6, .time_s = 1.0},
        {.kind = DTP_INSTR_WAIT, .pair = 5},
    };
    dtp_program p = {.target = &dtp_target_cpu, .n_instrs = 7, .instrs = instrs};
    dtp_schedule_task tasks[5];
    assert_int_equal(dtp_schedule_count(&p), 5);
    assert_true(dtp_schedule_tasks(&p, 0.0, tasks));
    assert_int_equal(tasks[1].need[0], 1);
    assert_int_equal(tasks[2].need[1], 0);
    assert_int_equal(tasks[3].need[1], 1);
    assert_int_equal(tasks[4].need[0], 3);
    dtp_schedule_result r;
    assert_true(dtp_schedule_program(&p, &MACHINE, &r, NULL));
    assert_true(fabs(r.end_s - 8.0) < 1e-12);
    assert_true(fabs(r.exposed_comm_s - 4.0) < 1e-12);
    check_by_instr(&p, (double[]){0.0, 3.0, 0.0, 0.0, 0.0, 1.0, 0.0});
}

/* A WAIT for the second of two collectives is one for the first: the queue runs in order. */
static void test_timeline__the_queue_runs_in_order(void **state)
{
    (void)state;
    dtp_instr instrs[] = {
        {.kind = DTP_INSTR_START, .pair = 4, .time_s = 2.0},
        {.kind = DTP_INSTR_START, .pair = 2, .time_s = 3.0},
        {.kind = DTP_INSTR_WAIT, .pair = 1},
        {.kind = DTP_INSTR_KERNEL, .time_s = 1.0},
        {.kind = DTP_INSTR_WAIT, .pair = 0},
    };
    dtp_program p = {.target = &dtp_target_cpu, .n_instrs = 5, .instrs = instrs};
    dtp_schedule_result r;
    assert_true(dtp_schedule_program(&p, &MACHINE, &r, NULL));
    assert_true(fabs(r.end_s - 6.0) < 1e-12);
    assert_true(fabs(r.exposed_comm_s - 5.0) < 1e-12);
}

/* A norm, a gather of its result, the product that reads it (value 3), a norm (value 4), the sum of
 * value 3 and `term`, and a reduce-scatter of the sum, of value 3 where term is 0; over 4 ranks. */
static double chunked_end(const dtp_target *target, double gather_s, dtp_value_id term)
{
    dtp_op_def product = {.name = "einsum", .flags = DTP_OP_CONTRACTION}, other = {.name = "norm"},
               add = {.name = "add", .linear = DTP_LINEAR_JOINT};
    const dtp_value_id value[] = {0, 1, 2, 3, 4, 5, 6}, both[] = {3, term};
    dtp_instr instrs[] = {
        {.kind = DTP_INSTR_KERNEL, .op = &other, .n_out = 1, .out = &value[0], .time_s = 1.0},
        {.kind = DTP_INSTR_START,
         .coll = {.kind = DTP_ALL_GATHER, .set = 1},
         .n_in = 1,
         .in = &value[0],
         .n_out = 1,
         .out = &value[1],
         .pair = 2,
         .time_s = gather_s},
        {.kind = DTP_INSTR_WAIT, .pair = 1},
        {.kind = DTP_INSTR_KERNEL,
         .op = &product,
         .n_in = 1,
         .in = &value[1],
         .n_out = 1,
         .out = &value[3],
         .time_s = 8.0},
        {.kind = DTP_INSTR_KERNEL,
         .op = &other,
         .n_in = 1,
         .in = &value[2],
         .n_out = 1,
         .out = &value[4],
         .time_s = 2.0},
        {.kind = DTP_INSTR_KERNEL,
         .op = &add,
         .n_in = 2,
         .in = both,
         .n_out = 1,
         .out = &value[5],
         .time_s = 1.0},
        {.kind = DTP_INSTR_START,
         .coll = {.kind = DTP_REDUCE_SCATTER, .set = 1},
         .n_in = 1,
         .in = term > 0 ? &value[5] : &value[3],
         .n_out = 1,
         .out = &value[6],
         .pair = 7,
         .time_s = 4.0},
        {.kind = DTP_INSTR_WAIT, .pair = 6},
    };
    dtp_program p = {
        .mesh = {.n_dims = 1, .sizes = {4}}, .target = target, .n_instrs = 8, .instrs = instrs};
    dtp_schedule_result r;
    double exposed[8], all = 0.0;
    assert_true(dtp_schedule_program(&p, &MACHINE, &r, exposed));
    for (int i = 0; i < 8; i++) {
        all += exposed[i];
    }
    assert_true(fabs(all - r.exposed_comm_s) < 1e-12);
    dtp_schedule_task *tasks = dtp_schedule_simulate(&p, &MACHINE, true, &r);
    assert_non_null(tasks);
    for (int t = 0, i = 0; i < 8; i++) {
        if (instrs[i].kind != DTP_INSTR_WAIT) {
            assert_int_equal(tasks[t].instr, i);
            assert_true(tasks[t++].time_s == instrs[i].time_s);
        }
    }
    free(tasks);
    return r.end_s;
}

/* By hand. In chunks the product begins after a quarter of the gather, and the next kernel after
 * all of it; a reduce-scatter runs beside what follows its last product, but for a quarter. */
static void test_timeline__chunks_run_beside_products(void **state)
{
    (void)state;
    const dtp_target *plain = &dtp_target_megatron, *chunks = &dtp_target_megatron_overlap;
    assert_true(fabs(chunked_end(plain, 4.0, 4) - (1 + 4 + 8 + 2 + 1 + 4)) < 1e-12);
    /* value 4 is made by no product: what is after the add is not known to be one's */
    assert_true(fabs(chunked_end(chunks, 4.0, 4) - (1 + 1 + 8 + 2 + 1 + 4)) < 1e-12);
    /* the gather outlasts the product */
    assert_true(fabs(chunked_end(chunks, 16.0, 4) - (1 + 16 + 2 + 1 + 4)) < 1e-12);
    /* all but the last chunk, 3 s, beside the norm and the add */
    assert_true(fabs(chunked_end(chunks, 4.0, 3) - (1 + 1 + 8 + 2 + 1 + 1)) < 1e-12);
    /* or beside the product, too */
    assert_true(fabs(chunked_end(chunks, 4.0, 0) - (1 + 1 + 8 + 2 + 1 + 1)) < 1e-12);
}

/* Where the machine does not overlap, tasks run one after the other, at full speed. */
static void test_timeline__without_overlap_is_a_sum(void **state)
{
    (void)state;
    dtp_instr instrs[] = {
        {.kind = DTP_INSTR_START, .pair = 2, .time_s = 4.0},
        {.kind = DTP_INSTR_KERNEL, .time_s = 1.0},
        {.kind = DTP_INSTR_WAIT, .pair = 0},
        {.kind = DTP_INSTR_KERNEL, .time_s = 3.0},
    };
    const dtp_graph g = {.microbatches = 2};
    const dtp_machine slow = {.slowdown = {2.0, 2.0}, .host_s = 100.0};
    dtp_program p = {.graph = &g, .target = &dtp_target_cpu, .n_instrs = 4, .instrs = instrs};
    dtp_schedule_result r;
    dtp_schedule_task *tasks = dtp_schedule_simulate(&p, &slow, false, &r);
    assert_non_null(tasks);
    assert_true(fabs(r.end_s - 16.0) < 1e-12);
    assert_true(fabs(r.exposed_comm_s - 8.0) < 1e-12);
    double now = 0.0;
    for (int i = 0; i < 6; i++) {
        assert_true(fabs(tasks[i].begin_s - now) < 1e-12);
        now = tasks[i].end_s;
    }
    free(tasks);
}

/* Three times: a collective beside the first of two kernels; then a collective. A collective of a
 * microbatch does not begin before the microbatch does. */
static void test_timeline__adds_up_runs_of_an_instruction(void **state)
{
    (void)state;
    dtp_instr instrs[] = {
        {.kind = DTP_INSTR_START, .pair = 2, .time_s = 4.0},
        {.kind = DTP_INSTR_KERNEL, .time_s = 1.0},
        {.kind = DTP_INSTR_WAIT, .pair = 0},
        {.kind = DTP_INSTR_KERNEL, .time_s = 3.0},
        {.kind = DTP_INSTR_START, .phase = DTP_UPDATE, .pair = 5, .time_s = 2.0},
        {.kind = DTP_INSTR_WAIT, .phase = DTP_UPDATE, .pair = 4},
    };
    const dtp_graph g = {.microbatches = 3};
    dtp_program p = {.graph = &g, .target = &dtp_target_cpu, .n_instrs = 6, .instrs = instrs};
    dtp_schedule_result r;
    assert_int_equal(dtp_schedule_count(&p), 10);
    assert_true(dtp_schedule_program(&p, &MACHINE, &r, NULL));
    assert_true(fabs(r.end_s - 23.0) < 1e-12);
    assert_true(fabs(r.exposed_comm_s - 11.0) < 1e-12);
    check_by_instr(&p, (double[]){9.0, 0.0, 0.0, 0.0, 2.0, 0.0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeline__is_the_longest_path),
        cmocka_unit_test(test_timeline__the_host_issues_before_anything_runs),
        cmocka_unit_test(test_timeline__slows_both_while_they_overlap),
        cmocka_unit_test(test_timeline__lanes_go_on_beside_each_other),
        cmocka_unit_test(test_timeline__compute_stops_at_waits_alone),
        cmocka_unit_test(test_timeline__the_queue_runs_in_order),
        cmocka_unit_test(test_timeline__chunks_run_beside_products),
        cmocka_unit_test(test_timeline__without_overlap_is_a_sum),
        cmocka_unit_test(test_timeline__adds_up_runs_of_an_instruction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
