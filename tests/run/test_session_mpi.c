/* Whole jobs on MPI ranks, compared with one rank; started by mpirun with the number of ranks as
 * its argument. With "fail" as second argument one rank fails in the middle of a step: the job must
 * end, with an error, and not hang. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/job_suite.h"
#include "dtp/device_mesh.h"

enum { STEPS = 6, PARAMS = 12 * 6 + 6 + 6 * 4 };

static const char *const rules[] = {"batch:x", "hidden:x", "pixels:x", ""};
enum { N_RULES = sizeof rules / sizeof *rules };

static dtp_status one_rank(const dtp_graph *g, double *losses, float *params, dtp_err *err)
{
    dtp_comm *self = NULL;
    DTP_TRY(dtp_comm_self_create(&self, err));
    job j = {.g = g,
             .mesh = "x:1",
             .rules = "",
             .backend = "cpu",
             .steps = STEPS,
             .losses = losses,
             .params = params};
    dtp_status status = job_run(self, &j, err);
    dtp_comm_destroy(self);
    return status;
}

static dtp_status compare(const job *j, const double *losses, const float *params, int steps,
                          dtp_err *err)
{
    for (int i = 0; i < steps; i++) {
        if (!(fabs(j->losses[i] - losses[i]) <= 1e-5 * fabs(losses[i]))) {
            return DTP_FAIL(err, DTP_INTERNAL, "rules '%s': loss %g at step %d, %g on one rank",
                            j->rules, j->losses[i], i, losses[i]);
        }
    }
    for (int i = 0; j->params != NULL && i < PARAMS; i++) {
        if (!(fabs((double)j->params[i] - (double)params[i]) <= 1e-4)) {
            return DTP_FAIL(err, DTP_INTERNAL, "rules '%s': parameter %d is %g, %g on one rank",
                            j->rules, i, (double)j->params[i], (double)params[i]);
        }
    }
    return DTP_OK;
}

/* Trains in one go; then in two halves over a checkpoint that changes the layout. */
static dtp_status jobs(dtp_comm *c, const char *mesh, const char *dir, const dtp_graph *g,
                       dtp_err *err)
{
    double losses[STEPS] = {0}, base[STEPS];
    float params[PARAMS] = {0}, base_params[PARAMS];
    DTP_TRY(one_rank(g, base, base_params, err));
    for (int k = 0; k < N_RULES; k++) {
        job j = {.g = g, .mesh = mesh, .rules = rules[k], .backend = "cpu", .losses = losses};
        j.steps = STEPS;
        j.params = params;
        DTP_TRY(job_run(c, &j, err));
        dtp_status status = c->rank == 0 ? compare(&j, base, base_params, STEPS, err) : DTP_OK;
        DTP_TRY(dtp_comm_agree_status(c, status, err));
        j.steps = STEPS / 2;
        j.params = NULL;
        j.save = dir;
        DTP_TRY(job_run(c, &j, err));
        j.rules = rules[(k + 1) % N_RULES];
        j.load = dir;
        j.save = NULL;
        j.params = params;
        DTP_TRY(job_run(c, &j, err));
        status = c->rank == 0 ? compare(&j, base + STEPS / 2, base_params, STEPS / 2, err) : DTP_OK;
        DTP_TRY(dtp_comm_agree_status(c, status, err));
        DTP_TRY(job_verify(c, &j, err));
    }
    return DTP_OK;
}

static const dtp_backend_ops *real_ops;

static dtp_status failing(const dtp_kernel_args *args, dtp_err *err)
{
    (void)args;
    return DTP_FAIL(err, DTP_RANGE, "on purpose");
}

static const dtp_kernel *fails_gelu(const dtp_backend *b, const char *op, int32_t i)
{
    static const dtp_kernel mine = {.op = "gelu", .run = failing};
    return strcmp(op, "gelu") == 0 && i == 0 ? &mine : real_ops->kernel(b, op, i);
}

/* The last rank fails in its first step; the others wait for it in a collective. */
static dtp_status failing_job(dtp_comm *c, const char *mesh, const dtp_graph *g, dtp_err *err)
{
    job_program p;
    dtp_backend *b = NULL;
    dtp_session *s = NULL;
    dtp_session_options o = dtp_session_options_init();
    dtp_step_result result;
    DTP_TRY(job_lower(g, mesh, "batch:x", &dtp_target_cpu, &p, err));
    DTP_TRY(dtp_backend_create("cpu", 1, &b, err));
    real_ops = b->ops;
    dtp_backend_ops mine = *real_ops;
    mine.kernel = fails_gelu;
    if (c->rank == c->size - 1) {
        b->ops = &mine;
    }
    DTP_TRY(dtp_session_create(p.program, b, c, &o, &s, err));
    DTP_TRY(dtp_session_step(s, &result, err));
    return DTP_FAIL(err, DTP_INTERNAL, "rank %d went on", c->rank);
}

static dtp_status run(int ranks, bool fail, const char *dir, dtp_err *err)
{
    char text[32];
    dtp_mesh mesh;
    dtp_comm *c = NULL;
    dtp_graph *g = NULL;
    snprintf(text, sizeof text, "x:%d", ranks);
    DTP_TRY(dtp_mesh_parse(text, &mesh, err));
    DTP_TRY(dtp_comm_mpi_create(&mesh, &c, err));
    dtp_status status = job_graph(false, &g, err);
    if (status == DTP_OK) {
        status = fail ? failing_job(c, text, g, err) : jobs(c, text, dir, g, err);
    }
    if (status != DTP_OK) {
        dtp_comm_abort(c, err->msg);
    }
    dtp_graph_destroy(g);
    dtp_comm_destroy(c);
    return status;
}

/* argv: ranks, directory for checkpoints, "fail" or nothing. */
int main(int argc, char **argv)
{
    dtp_err err = {0};
    if (argc < 3) {
        fprintf(stderr, "usage: %s RANKS DIR [fail]\n", argv[0]);
        return 2;
    }
    dtp_status status = run(atoi(argv[1]), argc > 3, argv[2], &err);
    if (status == DTP_UNSUPPORTED && strstr(err.msg, "no MPI") != NULL) {
        return 77;
    }
    if (status != DTP_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    return 0;
}
