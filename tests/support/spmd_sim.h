/* A naive N-rank interpreter of SPMD programs for tests: every element is a double, every move and
 * collective is written from the words of spmd/program/program.h, one element at a time. A program
 * with a memory plan (which must be all f64) runs inside one arena per rank at the planned
 * offsets. */
#ifndef DTP_TESTS_SUPPORT_SPMD_SIM_H
#define DTP_TESTS_SUPPORT_SPMD_SIM_H

#include "spmd/program/program.h"

typedef struct spmd_sim spmd_sim;

/* Runs one KERNEL on one rank. `in` and `out` are local buffers. */
typedef void (*spmd_sim_kernel)(const spmd_sim *sim, const dtp_instr *instr, int32_t rank,
                                double *const *in, double *const *out);

struct spmd_sim {
    const dtp_program *p;
    int32_t ranks;
    spmd_sim_kernel kernel;
    double **buffers; /* by rank * n_values + root value; NULL for values inside others or arenas */
    double **arenas;  /* by rank; NULL without a memory plan; external values are not in it */
    bool late;        /* collectives run when they are waited for, else when they start */
};

spmd_sim spmd_sim_create(const dtp_program *p, spmd_sim_kernel kernel);
void spmd_sim_destroy(spmd_sim *sim);
/* Local buffer of a value at a rank. */
double *spmd_sim_data(const spmd_sim *sim, dtp_value_id v, int32_t rank);
void spmd_sim_run(spmd_sim *sim);

/* Writes the pieces of a global tensor into the value's buffers; partial values get random summands
 * (or factors, or bounds) that reduce to it. `seed` is the state of the generator. */
void spmd_sim_scatter(spmd_sim *sim, dtp_value_id v, const double *global, uint64_t *seed);
/* True when the ranks' pieces, reduced over partial mesh dims, are the global tensor everywhere;
 * `tolerance` is relative (absolute below 1), 0 = to the bit. */
bool spmd_sim_matches(const spmd_sim *sim, dtp_value_id v, const double *global, double tolerance);
/* Next number of a small generator. */
uint64_t spmd_sim_random(uint64_t *seed);

/* Decomposes a flat row-major index of a type. */
void spmd_sim_unravel(const dtp_ttype *type, int64_t flat, int64_t index[DTP_MAX_RANK]);
/* Flat index in a type, of the same rank. */
int64_t spmd_sim_ravel(const dtp_ttype *type, const int64_t index[DTP_MAX_RANK]);

#endif
