/* A provider of matrix products: a row of the table in gemm.c. */
#ifndef DTP_EXECUTOR_CPU_GEMM_GEMM_PROVIDER_H
#define DTP_EXECUTOR_CPU_GEMM_GEMM_PROVIDER_H

#include "executor/cpu/gemm/gemm.h"

/* A provider runs on the calling thread; plans share products between threads. */
typedef struct dtp_gemm_provider {
    const char *name;
    /* REQUIRED. Whether it multiplies these types and sizes on this processor. */
    bool (*takes)(const dtp_gemm_desc *g);
    /* OPTIONAL, with unbind. A state for products of this form, which one caller uses at a time,
     * and the bytes of scratch memory that a run needs. */
    dtp_status (*bind)(const dtp_gemm_desc *g, void **state, size_t *scratch_bytes, dtp_err *err);
    void (*unbind)(void *state);
    /* REQUIRED. */
    void (*run)(void *state, const dtp_gemm_desc *g, void *scratch);
} dtp_gemm_provider;

extern const dtp_gemm_provider dtp_gemm_openblas, dtp_gemm_onednn, dtp_gemm_widened;

/* A leading dim of at least `least` elements and 1: libraries insist also where one row is read. */
static inline int64_t dtp_gemm_ld(int64_t given, int64_t least)
{
    const int64_t v = given < least ? least : given;
    return v > 1 ? v : 1;
}

#endif
