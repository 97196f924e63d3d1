/* A product as cuBLASLt describes it. */
#ifndef CUDA_EMU_CUBLASLT_INTERNAL_H
#define CUDA_EMU_CUBLASLT_INTERNAL_H

#include "cublasLt.h"
#include "internal.h"

namespace emu
{

struct layout {
    cudaDataType type;
    int32_t order;
    uint64_t rows, cols;
    int64_t ld;
    int32_t batch;
    int64_t stride;
};

struct description {
    cublasComputeType_t compute;
    cudaDataType scale;
    int32_t pointer_mode, trans_a, trans_b;
    uint32_t epilogue;
    void *bias;
    int64_t bias_stride;
    void *aux;
    int64_t aux_ld, aux_stride;
    int32_t aux_type, bias_type; /* -1: the type of D */
};

struct product_work final : work {
    description d;
    layout la, lb, lc, ld;
    const void *a, *b, *c;
    void *out, *workspace;
    size_t workspace_bytes = 0;
    float alpha = 0, beta = 0;
    const void *alpha_device = nullptr, *beta_device = nullptr;

    bool start(task &) override;

  private:
    /* op(X) as rows x cols floats, row by row. */
    std::vector<float> pack(const layout &l, const void *x, int32_t batch, bool transpose) const;
    void run(int32_t batch);
    void scale(std::vector<float> &sum, int32_t batch) const;
    void epilogue(std::vector<float> &sum, int32_t batch);
    /* Sums over columns (axis 1) or rows (axis 0) go to the bias pointer. */
    void reduce(const std::vector<float> &x, size_t rows, size_t cols, int axis, int32_t batch);
};

/* refusals.cpp: the status by which such a product is refused, always the same one, or SUCCESS. */
cublasStatus_t refused(cuda_emu_refusal kind, const description &d, const layout &a,
                       const layout &b, const layout &out);

size_t bytes_of(int type); /* 0: not a type of the emulated device */

} // namespace emu

#endif
