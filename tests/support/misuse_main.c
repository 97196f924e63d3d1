/* A plain main: under MPI every rank is a process of its own. */
#include "tests/support/misuse_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LIMIT_S = 10 };

void misuse_progress(void)
{
    alarm(LIMIT_S);
}

static dtp_status run_mesh(const misuse_suite *suite, const char *line, dtp_err *err)
{
    dtp_mesh mesh;
    DTP_TRY(dtp_mesh_parse(line, &mesh, err));
    for (int32_t i = 0; i < suite->n; i++) {
        const char *name = suite->name(i, &mesh);
        if (name == NULL) {
            continue;
        }
        fprintf(stderr, "mesh '%s': %s\n", line, name);
        alarm(LIMIT_S);
        const dtp_status status = suite->run(i, line, err);
        alarm(0);
        if (status != DTP_OK) {
            dtp_err_prefix(err, "mesh '%s': %s", line, name);
            return status;
        }
    }
    return DTP_OK;
}

/* `keep` tells the other processes when a case fails. */
static dtp_status run_all(const misuse_suite *suite, int ranks, dtp_err *err)
{
    const dtp_mesh mesh = {.n_dims = 1, .names = {"x"}, .sizes = {ranks}};
    char line[2][32];
    dtp_comm *keep = NULL;
    (void)snprintf(line[0], sizeof line[0], "x:%d", ranks);
    (void)snprintf(line[1], sizeof line[1], "x:2;y:%d", ranks / 2);
    if (dtp_comm_in_mpi_job(environ)) {
        DTP_TRY(dtp_comm_mpi_create(&mesh, &keep, err));
    }
    dtp_status status = run_mesh(suite, line[0], err);
    status = status == DTP_OK && ranks > 1 ? run_mesh(suite, line[1], err) : status;
    if (status != DTP_OK && keep != NULL) {
        dtp_comm_abort(keep, err->msg);
    }
    dtp_comm_destroy(keep);
    return status;
}

int misuse_main(const misuse_suite *suite, int argc, char **argv)
{
    const int ranks = argc > 1 ? atoi(argv[1]) : 2;
    dtp_err err = {0};
    if (ranks != 1 && ranks != 2 && ranks != 4) {
        fprintf(stderr, "'%s' is not 1, 2 or 4 ranks\n", argv[1]);
        return 2;
    }
    if (run_all(suite, ranks, &err) != DTP_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    return 0;
}
