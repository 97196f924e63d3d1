/* OpenBLAS, loaded when the first CPU backend is made.
 *
 * OpenBLAS 0.3.21 takes AVX-512 processors that it does not know for "Haswell" and runs at half
 * speed. Its kernel set can be named only while it loads, by the environment variable
 * OPENBLAS_CORETYPE; so it is not linked but loaded, with that variable set for as long as this
 * takes where the processor needs it. The user's own OPENBLAS_CORETYPE wins. A library that other
 * code of the process has loaded before is used as it is. */
#ifndef DTP_EXECUTOR_CPU_GEMM_BLAS_H
#define DTP_EXECUTOR_CPU_GEMM_BLAS_H

#include <stdbool.h>

#include <cblas.h>

#include "dtp/status.h"

typedef struct dtp_blas {
    __typeof__(cblas_sgemm) *sgemm;
    __typeof__(cblas_sgemv) *sgemv;
    __typeof__(openblas_get_corename) *corename; /* the kernel set in use, "SkylakeX" */
    __typeof__(openblas_get_config) *config;     /* version and build */
    bool found_loaded;                           /* by other code of the process */
} dtp_blas;

/* Loads the library once per process. Sets OPENBLAS_CORETYPE for the time of the load, so no other
 * thread may read the environment then. DTP_UNSUPPORTED when it is not there, on every call. */
dtp_status dtp_blas_load(dtp_err *err) DTP_MUST_CHECK;
/* The loaded library. */
const dtp_blas *dtp_blas_get(void);

/* The kernel set to ask for in place of `core`, static text; NULL: none. */
typedef const char *(*dtp_blas_preference)(const char *core);
/* What dtp_blas_load does once: opens a library by its soname. */
dtp_status dtp_blas__open(const char *soname, dtp_blas_preference preferred, dtp_blas *out,
                          dtp_err *err) DTP_MUST_CHECK;

#endif
