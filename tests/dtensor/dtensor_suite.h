/* What the tests of distributed tensors share; bodies run on every rank and report by dtp_err. */
#ifndef DTP_TESTS_DTENSOR_DTENSOR_SUITE_H
#define DTP_TESTS_DTENSOR_DTENSOR_SUITE_H

#include "core/layout/layout.h"
#include "dtp/tensor.h"
#include "dtp/world.h"

/* Next number of a small generator. */
uint64_t dt_random(uint64_t *seed);
/* A random layout of a tensor: every mesh dim replicates or splits, in any order of splits; with
 * `partial` it may also hold partial sums. */
dtp_layout dt_random_layout(const dtp_mesh *mesh, int32_t rank, bool partial, uint64_t *seed);
/* A desc without text. */
dtp_tensor_desc dt_desc(dtp_dtype dtype, int32_t rank, const int64_t *shape,
                        const dtp_layout *layout);
int64_t dt_elems(const dtp_tensor_desc *desc);
/* A global array of small random integers of a type; free it. */
void *dt_array(const dtp_tensor_desc *desc, uint64_t seed);

/* The gathered tensor has exactly these bytes; else DTP_INTERNAL naming `what` and the element. */
dtp_status dt_expect(dtp_tensor t, const void *global, const char *what, dtp_err *err);
/* The local piece is what the definition of the layout says, element by element. */
dtp_status dt_expect_local(dtp_tensor t, const void *global, const char *what, dtp_err *err);

extern char **environ;

/* Programs that run alone on virtual ranks, or inside an MPI job on its ranks: whether the mesh has
 * as many ranks as the job, if there is one. */
bool dt_fits(const char *mesh);
/* Group setup and teardown of such a program: MPI starts once per process and ends with the last
 * communicator, so one is kept. */
int dt_begin(void **state);
int dt_end(void **state);

/* One case of a suite that runs under sim and under mpi; `ranks` is the size of the job. */
typedef struct dt_case {
    const char *name;
    dtp_world_body body;
    dtp_agreement agree;
} dt_case;

/* Misuse: every rank must get a clear error, and go on. dtensor_misuse.c */
extern const dt_case dt_misuse[];
extern const int32_t dt_n_misuse;

#endif
