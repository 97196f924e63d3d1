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
    int32_t count[2] = {0, 0};
    for (int i = 0; i < n; i++) {
        tasks[i] = (dtp_schedule_task){.comm = draw(random, 3) == 0, .time_s = draw(random, 10)};
        for (int r = 0; r < 2; r++) {
            tasks[i].need[r] = (int32_t)draw(random, (uint32_t)count[r] + 1);
        }
        int32_t seen[2] = {0, 0};
        for (int j = 0; j < i; j++) {
            int r = tasks[j].comm ? 1 : 0;
            edge[i][j] = ++seen[r] <= tasks[i].need[r] || tasks[j].comm == tasks[i].comm;
        }
        count[tasks[i].comm ? 1 : 0]++;
    }
    return n;
}

/* How much of task i is communication while no compute task runs. Compute tasks do not overlap each
 * other. */
static double exposed_part(int n, const dtp_schedule_task *tasks, const double *end, int i)
{
    double part = tasks[i].comm ? tasks[i].time_s : 0.0;
    for (int j = 0; j < n && tasks[i].comm; j++) {
        const double from = fmax(end[i] - tasks[i].time_s, end[j] - tasks[j].time_s);
        part -= tasks[j].comm ? 0.0 : fmax(fmin(end[i], end[j]) - from, 0.0);
    }
    return part;
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
        assert_true(fabs(run[i].exposed_s - exposed_part(n, tasks, end, i)) < 1e-9);
    }
    assert_true(fabs(sum_of(n, run) - r.exposed_comm_s) < 1e-9);
    r = dtp_schedule_run(n, run, SLOWER);
    assert_true(fabs(sum_of(n, run) - r.exposed_comm_s) < 1e-9);
    for (int i = 0; i < n; i++) {
        assert_true(run[i].exposed_s <= (tasks[i].comm ? tasks[i].time_s + 1e-9 : 0.0));
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

/* Without slow-down the end is the longest path. */
static void test_timeline__is_the_longest_path(void **state)
{
    (void)state;
    uint64_t random = SEED;
    print_message("seed %d\n", SEED);
    for (int round = 0; round < 500; round++) {
        static bool edge[MAX_TASKS][MAX_TASKS];
        dtp_schedule_task tasks[MAX_TASKS];
        double end[MAX_TASKS], last = 0.0, compute = 0.0, total = 0.0;
        int n = random_tasks(&random, tasks, edge);
        for (int i = 0; i < n; i++) {
            end[i] = 0.0;
            for (int j = 0; j < i; j++) {
                end[i] = edge[i][j] ? fmax(end[i], end[j]) : end[i];
            }
            end[i] += tasks[i].time_s;
            last = fmax(last, end[i]);
            total += tasks[i].time_s;
            compute += tasks[i].comm ? 0.0 : tasks[i].time_s;
        }
        dtp_schedule_result r = dtp_schedule_run(n, tasks, FULL_SPEED);
        assert_true(fabs(r.end_s - last) < 1e-9);
        assert_true(fabs(r.exposed_comm_s - (last - compute)) < 1e-9);
        assert_true(fabs(r.overlapped_s - (total - last)) < 1e-9);
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
            compute += tasks[i].comm ? 0.0 : tasks[i].time_s;
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
    dtp_schedule_task tasks[] = {{.comm = false, .time_s = 4.0}, {.comm = true, .time_s = 2.0}};
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
        cmocka_unit_test(test_timeline__compute_stops_at_waits_alone),
        cmocka_unit_test(test_timeline__the_queue_runs_in_order),
        cmocka_unit_test(test_timeline__chunks_run_beside_products),
        cmocka_unit_test(test_timeline__without_overlap_is_a_sum),
        cmocka_unit_test(test_timeline__adds_up_runs_of_an_instruction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
