/* The main program of a suite of misuses: on virtual ranks, or on those of the MPI job it runs in,
 * every case must end within 10 seconds (then the alarm ends the program). */
#ifndef DTP_TESTS_SUPPORT_MISUSE_MAIN_H
#define DTP_TESTS_SUPPORT_MISUSE_MAIN_H

#include "executor/comm/communicator.h"

extern char **environ;

typedef struct misuse_suite {
    int32_t n;
    /* The name of a case; NULL: it is not for this mesh. */
    const char *(*name)(int32_t i, const dtp_mesh *mesh);
    /* Runs a case on the ranks of a mesh. */
    dtp_status (*run)(int32_t i, const char *mesh, dtp_err *err);
} misuse_suite;

/* A case of many steps has done one: it has 10 seconds again. */
void misuse_progress(void);

/* Argument: the number of ranks N, 1, 2 or 4. The meshes are "x:N" and "x:2;y:N/2". */
int misuse_main(const misuse_suite *suite, int argc, char **argv);

#endif
