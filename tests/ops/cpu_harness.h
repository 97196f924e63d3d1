/* Runs one op on the CPU backend and on the reference backend, on random operands. */
#ifndef DTP_TESTS_OPS_CPU_HARNESS_H
#define DTP_TESTS_OPS_CPU_HARNESS_H

#include "core/graph/graph.h"
#include "executor/device/backend.h"

enum { CPU_MAX = 16 };

/* Most threads that tests give a kernel. The thread sanitizer does not see the synchronisation
 * inside the OpenMP runtime. */
#if defined(__SANITIZE_THREAD__)
enum { CPU_TEAM = 1 };
#else
enum { CPU_TEAM = 4 };
#endif

/* One application of an op. Operands are described as text, dims with sizes: "b=4 d=16". */
typedef struct cpu_case {
    dtp_graph *graph; /* interned dims */
    dtp_node_spec spec;
    dtp_attr attrs[CPU_MAX];
    dtp_dim_id ids[CPU_MAX][DTP_MAX_RANK]; /* storage of DIMS attributes */
    int32_t n_in, n_out;
    dtp_ttype in[CPU_MAX], out[8];
    dtp_op_call call;
    dtp_attr filled[CPU_MAX]; /* in spec order */
    void *data[CPU_MAX];      /* operands */
    uint64_t seed, random;
    int64_t step;
} cpu_case;

void cpu_case_start(cpu_case *c, const char *op);
void cpu_case_free(cpu_case *c);
/* Attributes. `dims` is a list of names. */
void cpu_attr_int(cpu_case *c, const char *key, int64_t value);
void cpu_attr_float(cpu_case *c, const char *key, double value);
void cpu_attr_dim(cpu_case *c, const char *key, const char *name);
void cpu_attr_dims(cpu_case *c, const char *key, const char *names);
/* Operands: floats in (-1, 1), or integers in [0, below). */
void cpu_floats(cpu_case *c, const char *dims);
void cpu_ints(cpu_case *c, dtp_dtype dtype, const char *dims, int64_t below);
/* Declared output dims; infers the outputs (must be called, dims may be NULL). */
void cpu_infer(cpu_case *c, const char *out_dims);

/* Outputs of a backend with `threads` threads; each is malloc'ed. Asserts success. */
void cpu_run(const cpu_case *c, const char *backend, int32_t threads, void *out[8]);
/* The status instead. */
dtp_status cpu_try(const cpu_case *c, const char *backend, void *out[8], dtp_err *err);
void cpu_release(const cpu_case *c, void *out[8]);

/* Asserts that float outputs agree within `tolerance` times the largest magnitude, others exactly,
 * and that 1, 2 and 3 threads give the same bits (matrix products: the same within the tolerance).
 */
void cpu_check(const cpu_case *c, double tolerance);

#endif
