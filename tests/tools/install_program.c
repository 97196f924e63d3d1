/* A program over the public headers: plans a model for two ranks, writes the plan and reads it
 * again, trains on two virtual ranks and on one device, compares a parameter, and goes on with it
 * as a distributed tensor; plans a model with an op of its own. C17 and C++17.
 * Usage: install_program MODEL MACHINE PLAN_FILE PARAMETER */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "dtp/ops.h"
#include "dtp/planner.h"
#include "dtp/session.h"
#include "dtp/version.h"
#include "dtp/world.h"

enum { STEPS = 3 };

typedef struct training {
    const dtp_job *job;
    const char *parameter;
    float *trained; /* the parameter after the steps; rank 0 fills it */
    double loss, norm;
} training;

/* Sum of squares of a row-major array, as a distributed tensor split over all ranks. */
static dtp_status sum_of_squares(dtp_device_mesh *mesh, const float *values, int64_t n, double *out,
                                 dtp_err *err)
{
    dtp_tensor_desc desc;
    dtp_tensor t, square, sum;
    const char *split = dtp_device_mesh_size(mesh) > 1 ? "0@x" : "replicated";
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 1, &n, split, &desc, err));
    DTP_TRY(dtp_tensor_scatter(mesh, &desc, 0, values, &t, err));
    DTP_TRY(dtp_tensor_square(t, &square, err));
    DTP_TRY(dtp_tensor_sum(square, 0, NULL, false, &sum, err));
    return dtp_tensor_item(sum, out, err);
}

static dtp_status train(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    training *t = (training *)user;
    const bool first = dtp_device_mesh_rank(mesh) == 0;
    dtp_session_options options = dtp_session_options_init();
    dtp_session *session = NULL;
    dtp_step_result step;
    dtp_tensor_id id;
    dtp_ttype type;
    double norm;
    options.seed = 7;
    DTP_TRY(dtp_job_tensor(t->job, t->parameter, &id, &type, err));
    DTP_TRY(dtp_session_create(dtp_job_program(t->job), dtp_device_mesh_backend(mesh),
                               dtp_device_mesh_comm(mesh), &options, &session, err));
    for (int i = 0; i < STEPS; i++) {
        DTP_TRY(dtp_session_step(session, &step, err));
    }
    DTP_TRY(dtp_session_gather(session, id, first ? t->trained : NULL, err));
    dtp_session_destroy(session);
    DTP_TRY(sum_of_squares(mesh, t->trained, dtp_ttype_elems(&type), &norm, err));
    if (first) {
        t->loss = step.loss;
        t->norm = norm;
    }
    return DTP_OK;
}

/* The model as `options` say on the ranks of `mesh`. */
static dtp_status run(const dtp_graph *model, const dtp_job_options *options, const char *mesh,
                      training *t, dtp_err *err)
{
    dtp_job *job = NULL;
    dtp_ttype type;
    dtp_tensor_id id;
    DTP_TRY(dtp_job_create(model, options, &job, err));
    t->job = job;
    DTP_TRY(dtp_job_tensor(job, t->parameter, &id, &type, err));
    t->trained = (float *)calloc((size_t)dtp_ttype_elems(&type), sizeof *t->trained);
    if (t->trained == NULL || type.dtype != DTP_F32) {
        return DTP_FAIL(err, DTP_NOMEM, "no memory for '%s'", t->parameter);
    }
    const dtp_status s = dtp_world_run(mesh, NULL, train, t, err);
    dtp_job_destroy(job);
    return s;
}

/* Makes a plan, and reads it from its file. */
static dtp_status make_plan(const dtp_graph *model, const dtp_machine *machine, const char *file,
                            dtp_plan **out, dtp_err *err)
{
    dtp_plan_options options = dtp_plan_options_init();
    dtp_plan_result result;
    dtp_mesh mesh;
    char *text = NULL;
    DTP_TRY(dtp_mesh_parse("x:2", &mesh, err));
    options.mode = DTP_PLAN_TENSOR;
    options.mesh = &mesh;
    DTP_TRY(dtp_plan_make(model, machine, &options, &result, err));
    if (result.plan == NULL) {
        return DTP_FAIL(err, DTP_INTERNAL, "no plan");
    }
    DTP_TRY(dtp_plan_save(result.plan, model, file, err));
    DTP_TRY(dtp_plan_describe(result.plan, model, DTP_PLAN_TEXT, &text, err));
    printf("%s", text);
    free(text);
    dtp_plan_result_free(&result);
    return dtp_plan_load(file, model, out, err);
}

/* A registered op is libdtp's and the program's; the planner sees it through its handle. */
static dtp_status plan_own_op(const dtp_machine *machine, dtp_err *err)
{
    static const char model[] =
        "{\"format\": \"dtp.model/1\", \"name\": \"own\", \"dims\": {\"a\": 4096, \"b\": 64},"
        "\"inputs\": {\"x\": {\"dims\": [\"a\", \"b\"]}}, \"outputs\": [\"y\"],"
        "\"nodes\": [{\"id\": \"y\", \"op\": \"row_norm\", \"in\": [\"x\"]}]}";
    dtp_custom_op op = dtp_custom_op_init("row_norm", "ab->a");
    dtp_letter_role roles[] = {{'a', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM},
                               {'b', DTP_ROLE_REDUCED, DTP_REDUCE_SUM}};
    dtp_plan_options options = dtp_plan_options_init();
    dtp_model_options reading = dtp_model_options_init();
    dtp_op_set *ops = NULL;
    dtp_graph *graph = NULL;
    dtp_plan_result result;
    dtp_mesh mesh;
    op.n_roles = 2;
    op.roles = roles;
    DTP_TRY(dtp_op_set_create(dtp_builtin_ops(), &ops, err));
    DTP_TRY(dtp_custom_op_register(ops, &op, err));
    reading.ops = ops;
    DTP_TRY(dtp_model_parse("own", model, sizeof model - 1, &reading, &graph, err));
    DTP_TRY(dtp_mesh_parse("x:2", &mesh, err));
    options.mode = DTP_PLAN_TENSOR;
    options.mesh = &mesh;
    DTP_TRY(dtp_plan_make(graph, machine, &options, &result, err));
    const bool split = result.plan != NULL && dtp_plan_predicted(result.plan)->peak_bytes <
                                                  4096 * 64 * (int64_t)sizeof(float);
    dtp_plan_result_free(&result);
    dtp_graph_destroy(graph);
    dtp_op_set_destroy(ops);
    return split ? DTP_OK : DTP_FAIL(err, DTP_INTERNAL, "the plan does not split an own op");
}

static dtp_status compare(char **argv, dtp_err *err)
{
    dtp_graph *model = NULL;
    dtp_machine *machine = NULL;
    dtp_plan *plan = NULL;
    dtp_job_options options = dtp_job_options_init();
    training two = {NULL, argv[4], NULL, 0, 0}, one = two;
    DTP_TRY(dtp_model_read(argv[1], NULL, &model, err));
    DTP_TRY(dtp_machine_read(argv[2], &machine, err));
    DTP_TRY(plan_own_op(machine, err));
    DTP_TRY(make_plan(model, machine, argv[3], &plan, err));
    DTP_TRY(run(model, &options, "", &one, err));
    options.plan = plan;
    DTP_TRY(run(model, &options, "x:2", &two, err));
    const dtp_certificate *c = dtp_plan_certificate(plan);
    printf("dtp %s: certificate %s, gap %g; loss %.6f on two ranks, %.6f on one; squares %.6f and "
           "%.6f\n",
           dtp_version(), dtp_cert_status_name(c->status), c->gap, two.loss, one.loss, two.norm,
           one.norm);
    if (!dtp_plan_is_for_model(plan, model) || !dtp_plan_is_for_machine(plan, machine) ||
        dtp_mesh_ranks(dtp_plan_mesh(plan)) != 2 || dtp_plan_predicted(plan)->step_time_s <= 0 ||
        c->bound > c->cost) {
        return DTP_FAIL(err, DTP_INTERNAL, "the plan that was read is not the one that was made");
    }
    if (!(one.norm > 0) || fabs(two.loss - one.loss) > 1e-5 * fabs(one.loss) ||
        fabs(two.norm - one.norm) > 1e-5 * one.norm) {
        return DTP_FAIL(err, DTP_INTERNAL, "two ranks and one device differ");
    }
    options.size = 0;
    dtp_job *job = NULL;
    dtp_err refused;
    if (dtp_job_create(model, &options, &job, &refused) != DTP_INVALID) {
        return DTP_FAIL(err, DTP_INTERNAL, "options that no _init function made are taken");
    }
    free(two.trained);
    free(one.trained);
    dtp_plan_destroy(plan);
    dtp_machine_destroy(machine);
    dtp_graph_destroy(model);
    return DTP_OK;
}

int main(int argc, char **argv)
{
    dtp_err err;
    dtp_err_clear(&err);
    if (argc != 5 || compare(argv, &err) != DTP_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
