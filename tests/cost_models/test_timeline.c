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

enum { SEED = 77, MAX_TASKS = 40 };

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
    dtp_schedule_result r = dtp_schedule_run(n, run, 1.0);
    for (int i = 0; i < n; i++) {
        assert_true(fabs(run[i].exposed_s - exposed_part(n, tasks, end, i)) < 1e-9);
    }
    assert_true(fabs(sum_of(n, run) - r.exposed_comm_s) < 1e-9);
    r = dtp_schedule_run(n, run, 1.5);
    assert_true(fabs(sum_of(n, run) - r.exposed_comm_s) < 1e-9);
    for (int i = 0; i < n; i++) {
        assert_true(run[i].exposed_s <= (tasks[i].comm ? tasks[i].time_s + 1e-9 : 0.0));
    }
    assert_true(run[n].exposed_s < 0.0);
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
        dtp_schedule_result r = dtp_schedule_run(n, tasks, 1.0);
        assert_true(fabs(r.end_s - last) < 1e-9);
        assert_true(fabs(r.exposed_comm_s - (last - compute)) < 1e-9);
        assert_true(fabs(r.overlapped_s - (total - last)) < 1e-9);
        dtp_schedule_result slow = dtp_schedule_run(n, tasks, 1.5);
        assert_true(slow.end_s >= r.end_s - 1e-9);
        assert_true(slow.end_s <= 1.5 * r.end_s + 1e-9);
        check_exposed(n, tasks, end);
    }
}

static void test_timeline__slows_both_while_they_overlap(void **state)
{
    (void)state;
    dtp_schedule_task tasks[] = {{.comm = false, .time_s = 4.0}, {.comm = true, .time_s = 2.0}};
    dtp_schedule_result r = dtp_schedule_run(2, tasks, 2.0);
    assert_true(fabs(r.end_s - 6.0) < 1e-12);
    assert_true(fabs(r.overlapped_s - 4.0) < 1e-12);
    assert_true(fabs(r.exposed_comm_s) < 1e-12);
}

static void check_by_instr(const dtp_program *p, const double *expected)
{
    double exposed[5];
    dtp_schedule_result r;
    assert_true(dtp_schedule_program(p, 1.0, &r, exposed));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        assert_true(fabs(exposed[i] - expected[i]) < 1e-12);
    }
}

/* v0 -> kernel -> v1 -> all-reduce in place -> v1; kernel on v0 -> v2; kernel on v1, v2 -> v3; then
 * a kernel that overwrites v2 (through its child v4) after it was read. */
static void test_timeline__depends_through_buffers(void **state)
{
    (void)state;
    dtp_value values[5] = {
        {.parent = -1}, {.parent = -1}, {.parent = -1}, {.parent = -1}, {.parent = 2}};
    const dtp_value_id v0[] = {0}, v1[] = {1}, v2[] = {2}, v3[] = {3}, v4[] = {4}, v12[] = {1, 2};
    dtp_instr instrs[] = {
        {.kind = DTP_INSTR_KERNEL, .n_in = 1, .in = v0, .n_out = 1, .out = v1, .time_s = 1.0},
        {.kind = DTP_INSTR_COLLECTIVE, .n_in = 1, .in = v1, .n_out = 1, .out = v1, .time_s = 5.0},
        {.kind = DTP_INSTR_KERNEL, .n_in = 1, .in = v0, .n_out = 1, .out = v2, .time_s = 2.0},
        {.kind = DTP_INSTR_KERNEL, .n_in = 2, .in = v12, .n_out = 1, .out = v3, .time_s = 1.0},
        {.kind = DTP_INSTR_COLLECTIVE, .n_in = 1, .in = v0, .n_out = 1, .out = v4, .time_s = 1.0},
    };
    dtp_program p = {.n_values = 5, .values = values, .n_instrs = 5, .instrs = instrs};
    dtp_schedule_task tasks[5];
    assert_true(dtp_schedule_tasks(&p, tasks));
    assert_int_equal(tasks[1].need[0], 1);
    assert_int_equal(tasks[2].need[0], 0);
    assert_int_equal(tasks[2].need[1], 0);
    assert_int_equal(tasks[3].need[0], 2);
    assert_int_equal(tasks[3].need[1], 1);
    assert_int_equal(tasks[4].need[0], 3); /* v2 was written by kernel 2 and read by kernel 3 */
    dtp_schedule_result r;
    assert_true(dtp_schedule_program(&p, 1.0, &r, NULL));
    assert_true(fabs(r.end_s - 8.0) < 1e-12);
    assert_true(fabs(r.exposed_comm_s - 4.0) < 1e-12);
    check_by_instr(&p, (double[]){0.0, 3.0, 0.0, 0.0, 1.0});
}

/* Three times: a collective on v0 -> v1, a kernel v1 -> v2, a kernel v2 -> v3; then a collective on
 * v3. All of the first collective is exposed in the first run, and 1 of 4 in the others, where it
 * runs beside the second kernel of the run before. */
static void test_timeline__adds_up_runs_of_an_instruction(void **state)
{
    (void)state;
    dtp_value values[5] = {
        {.parent = -1}, {.parent = -1}, {.parent = -1}, {.parent = -1}, {.parent = -1}};
    const dtp_value_id v0[] = {0}, v1[] = {1}, v2[] = {2}, v3[] = {3}, v4[] = {4};
    dtp_instr instrs[] = {
        {.kind = DTP_INSTR_COLLECTIVE, .n_in = 1, .in = v0, .n_out = 1, .out = v1, .time_s = 4.0},
        {.kind = DTP_INSTR_KERNEL, .n_in = 1, .in = v1, .n_out = 1, .out = v2, .time_s = 1.0},
        {.kind = DTP_INSTR_KERNEL, .n_in = 1, .in = v2, .n_out = 1, .out = v3, .time_s = 3.0},
        {.kind = DTP_INSTR_COLLECTIVE,
         .phase = DTP_UPDATE,
         .n_in = 1,
         .in = v3,
         .n_out = 1,
         .out = v4,
         .time_s = 2.0},
    };
    const dtp_graph g = {.microbatches = 3};
    dtp_program p = {.graph = &g, .n_values = 5, .values = values, .n_instrs = 4, .instrs = instrs};
    dtp_schedule_result r;
    assert_int_equal(dtp_schedule_count(&p), 10);
    assert_true(dtp_schedule_program(&p, 1.0, &r, NULL));
    assert_true(fabs(r.end_s - 20.0) < 1e-12);
    assert_true(fabs(r.exposed_comm_s - 8.0) < 1e-12);
    check_by_instr(&p, (double[]){6.0, 0.0, 0.0, 2.0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeline__is_the_longest_path),
        cmocka_unit_test(test_timeline__slows_both_while_they_overlap),
        cmocka_unit_test(test_timeline__depends_through_buffers),
        cmocka_unit_test(test_timeline__adds_up_runs_of_an_instruction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
