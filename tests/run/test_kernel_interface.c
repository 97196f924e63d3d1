/* What the runner promises to kernels: bound once, run with a record that changes from step to
 * step, found by op and dtypes, errors in data named after the kernel ran. */
#include "tests/support/job_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "dtp/device_mesh.h"
#include "dtp/model.h"
#include "executor/comm/communicator.h"
#include "executor/run/runner.h"
#include "spmd/target/target.h"

static void must(dtp_status status, const dtp_err *err)
{
    if (status != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

static dtp_graph *parse(const char *text, const dtp_op_set *ops)
{
    dtp_graph *g = NULL;
    dtp_err err = {0};
    dtp_model_options o = dtp_model_options_init();
    o.ops = ops;
    must(dtp_model_parse("test", text, strlen(text), &o, &g, &err), &err);
    return g;
}

/* ---- binding ---- */

static int32_t binds;

/* What the kernel keeps: how often it ran. */
static dtp_status bind_counting(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                dtp_err *err)
{
    (void)args;
    binds++;
    *state = dtp_kernel_alloc(arena, sizeof(int64_t));
    return *state != NULL ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "no memory");
}

/* The first element becomes runs * 10000 + seed * 1000 + step * 100 + microbatch * 10 + lr_scale.
 */
static dtp_status run_counting(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_step_record *r = args->record;
    int64_t *runs = args->state;
    (void)err;
    *(float *)args->out[0].data =
        (float)(++*runs * 10000 + (int64_t)r->seed * 1000 + r->step * 100 + r->microbatch * 10 +
                (int64_t)r->lr_scale);
    return DTP_OK;
}

static void test_kernels__are_bound_once_and_read_the_record(void **state)
{
    (void)state;
    static const char text[] =
        "{\"format\": \"dtp.model/1\", \"name\": \"m\", \"dims\": {\"a\": 1},"
        " \"inputs\": {\"x\": {\"dims\": [\"a\"]}},"
        " \"nodes\": [{\"id\": \"y\", \"op\": \"counting\", \"in\": [\"x\"]}],"
        " \"outputs\": [\"y\"]}";
    const dtp_kernel kernel = {.op = "counting", .run = run_counting, .bind = bind_counting};
    const dtp_custom_op op = dtp_custom_op_init("counting", "a->a");
    dtp_err err = {0};
    dtp_op_set *ops = NULL;
    dtp_comm *comm = NULL;
    dtp_backend *b = NULL;
    dtp_runner *runner = NULL;
    dtp_runner_times times;
    job_program p;
    must(dtp_op_set_create(dtp_builtin_ops(), &ops, &err), &err);
    must(dtp_custom_op_register(ops, &op, &err), &err);
    dtp_graph *g = parse(text, ops);
    must(job_lower(g, "", "", &dtp_target_cpu, &p, &err), &err);
    must(dtp_comm_self_create(&comm, &err), &err);
    must(dtp_backend_create("cpu", 1, &b, &err), &err);
    must(dtp_backend_add_kernels(b, &kernel, 1, &err), &err);
    binds = 0;
    must(dtp_runner_create(p.program, b, comm, NULL, &runner, &err), &err);
    const float *y = dtp_runner_view(runner, p.program->tensor_value[g->outputs[0]])->data;
    must(dtp_runner_step(runner, 1, 2, &times, &err), &err);
    assert_true(*y == 11201.0F);
    dtp_runner_record(runner)->lr_scale = 7.0;
    must(dtp_runner_step(runner, 3, 4, &times, &err), &err);
    assert_true(*y == 23407.0F);
    assert_int_equal(binds, 1);
    dtp_runner_destroy(runner);
    dtp_backend_destroy(b);
    dtp_comm_destroy(comm);
    job_program_free(&p);
    dtp_graph_destroy(g);
    dtp_op_set_destroy(ops);
}

/* ---- errors in data ---- */

/* Row 9 of a table of 4: the step fails with node and value, or, noted, goes on to its end. */
static void look_up(const char *backend, bool noted)
{
    static const char text[] =
        "{\"format\": \"dtp.model/1\", \"name\": \"m\", \"dims\": {\"v\": 4, \"d\": 2, \"t\": 3},"
        " \"inputs\": {\"ids\": {\"dims\": [\"t\"], \"dtype\": \"i32\"}},"
        " \"params\": {\"table\": {\"dims\": [\"v\", \"d\"], \"init\": \"ones\"}},"
        " \"nodes\": [{\"id\": \"rows\", \"op\": \"embedding\", \"in\": [\"table\", \"ids\"],"
        " \"over\": \"v\"}, {\"id\": \"y\", \"op\": \"neg\", \"in\": [\"rows\"]}],"
        " \"outputs\": [\"y\"]}";
    static const int32_t ids[] = {1, 9, 3};
    dtp_err err = {0}, failure = {0};
    const dtp_runner_options options = {.failure = noted ? &failure : NULL};
    dtp_comm *comm = NULL;
    dtp_backend *b = NULL;
    dtp_runner *runner = NULL;
    dtp_runner_times times;
    job_program p;
    dtp_graph *g = parse(text, NULL);
    must(job_lower(g, "", "", strcmp(backend, "ref") == 0 ? &dtp_target_ref : &dtp_target_cpu, &p,
                   &err),
         &err);
    must(dtp_comm_self_create(&comm, &err), &err);
    must(dtp_backend_create(backend, 1, &b, &err), &err);
    must(dtp_runner_create(p.program, b, comm, &options, &runner, &err), &err);
    const dtp_value_id v = p.program->tensor_value[dtp_graph_find(g, "ids")];
    memcpy(dtp_runner_view(runner, v)->data, ids, sizeof ids);
    assert_int_equal(dtp_runner_step(runner, 0, 5, &times, &err), noted ? DTP_OK : DTP_RANGE);
    const dtp_err *said = noted ? &failure : &err;
    assert_int_equal(said->code, DTP_RANGE);
    assert_non_null(strstr(said->msg, "step 5"));
    assert_non_null(strstr(said->msg, "node 'rows'"));
    assert_non_null(strstr(said->msg, "embedding: id 9 is not in [0, 4)"));
    /* The word is clear again: the next step judges its own data. */
    memset(dtp_runner_view(runner, v)->data, 0, sizeof ids);
    dtp_err_clear(&failure);
    must(dtp_runner_step(runner, 0, 6, &times, &err), &err);
    assert_int_equal(failure.code, DTP_OK);
    dtp_runner_destroy(runner);
    dtp_backend_destroy(b);
    dtp_comm_destroy(comm);
    job_program_free(&p);
    dtp_graph_destroy(g);
}

static void test_kernels__errors_in_data_name_node_and_value(void **state)
{
    (void)state;
    for (int32_t i = 0; i < 4; i++) {
        look_up((i & 1) != 0 ? "ref" : "cpu", (i & 2) != 0);
    }
}

/* ---- steps in two parts ---- */

/* Without a queue a step has run once it is started, and the next one waits until it is
 * finished. */
static void test_kernels__steps_start_and_finish(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_graph *g = NULL;
    dtp_comm *comm = NULL;
    dtp_backend *b = NULL;
    dtp_session *s = NULL;
    job_program p = {0};
    dtp_step_result first, second;
    const dtp_session_options o = dtp_session_options_init();
    must(job_graph(false, &g, &err), &err);
    must(job_lower(g, "", "", &dtp_target_cpu, &p, &err), &err);
    must(dtp_comm_self_create(&comm, &err), &err);
    must(dtp_backend_create("cpu", 1, &b, &err), &err);
    must(dtp_session_create(p.program, b, comm, &o, &s, &err), &err);
    assert_int_equal(dtp_session_ahead(s), 1);
    assert_int_equal(dtp_session_finish_step(s, &first, &err), DTP_INVALID);
    must(dtp_session_start_step(s, &err), &err);
    assert_int_equal(dtp_session_start_step(s, &err), DTP_INVALID);
    assert_int_equal(dtp_session_step(s, &second, &err), DTP_INVALID);
    assert_int_equal(dtp_session_next_step(s), 1);
    must(dtp_session_finish_step(s, &first, &err), &err);
    must(dtp_session_step(s, &second, &err), &err);
    assert_true(first.step == 0 && second.step == 1 && first.loss != second.loss);
    dtp_session_destroy(s);
    dtp_backend_destroy(b);
    dtp_comm_destroy(comm);
    job_program_free(&p);
    dtp_graph_destroy(g);
}

/* ---- dtypes ---- */

static int statuses[4];

static dtp_status session_of(dtp_comm *comm, void *user, dtp_err *err)
{
    job_program p = {0};
    dtp_backend *b = NULL;
    dtp_session *s = NULL;
    const dtp_session_options o = dtp_session_options_init();
    DTP_TRY(job_lower(user, "x:4", "a:x", &dtp_target_cpu, &p, err));
    DTP_TRY(dtp_backend_create("cpu", 1, &b, err));
    const dtp_status status = dtp_session_create(p.program, b, comm, &o, &s, err);
    statuses[comm->rank] = (int)status;
    dtp_session_destroy(s);
    dtp_backend_destroy(b);
    job_program_free(&p);
    return status;
}

static void test_kernels__a_missing_dtype_is_found_on_every_rank_before_a_step(void **state)
{
    (void)state;
    static const char text[] =
        "{\"format\": \"dtp.model/1\", \"name\": \"m\", \"dims\": {\"a\": 8},"
        " \"inputs\": {\"x\": {\"dims\": [\"a\"], \"dtype\": \"f64\"}},"
        " \"nodes\": [{\"id\": \"y\", \"op\": \"exp\", \"in\": [\"x\"]}], \"outputs\": [\"y\"]}";
    dtp_err err = {0};
    dtp_mesh mesh;
    dtp_graph *g = parse(text, NULL);
    must(dtp_mesh_parse("x:4", &mesh, &err), &err);
    assert_int_equal(dtp_comm_sim_run(&mesh, session_of, g, &err), DTP_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "node 'y'"));
    assert_non_null(strstr(err.msg, "op 'exp' on backend cpu: operand 0 has dtype f64"));
    assert_non_null(strstr(err.msg, "its kernels take f32"));
    for (int32_t r = 0; r < 4; r++) {
        assert_int_equal(statuses[r], DTP_UNSUPPORTED);
    }
    dtp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels__are_bound_once_and_read_the_record),
        cmocka_unit_test(test_kernels__steps_start_and_finish),
        cmocka_unit_test(test_kernels__errors_in_data_name_node_and_value),
        cmocka_unit_test(test_kernels__a_missing_dtype_is_found_on_every_rank_before_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
