/* Misuse of distributed tensors: a clear error on every rank. Also run under MPI.
 */
#include "tests/dtensor/dtensor_suite.h"
#include "tests/support/misuse_main.h"

static const char *name(int32_t i, const dtp_mesh *mesh)
{
    (void)mesh;
    return dt_misuse[i].name;
}

static dtp_status run(int32_t i, const char *mesh, dtp_err *err)
{
    dtp_world_options options = dtp_world_options_init();
    options.threads = 1;
    options.environment = environ;
    options.mesh.agree = dt_misuse[i].agree;
    return dtp_world_run(mesh, &options, dt_misuse[i].body, NULL, err);
}

int main(int argc, char **argv)
{
    const misuse_suite suite = {.n = dt_n_misuse, .name = name, .run = run};
    return misuse_main(&suite, argc, argv);
}
