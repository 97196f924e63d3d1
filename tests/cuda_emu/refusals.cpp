/* What cuBLASLt refuses where a test wants it (cuda_emu_refuse). */
#include "cublaslt_internal.h"

namespace emu
{

cublasStatus_t refused(cuda_emu_refusal kind, const description &d, const layout &a,
                       const layout &b, const layout &out)
{
    static const cublasStatus_t statuses[] = {
        CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_EXECUTION_FAILED,
        CUBLAS_STATUS_INTERNAL_ERROR};
    state &s = all();
    if (!(s.refuse & static_cast<unsigned>(kind)) || d.epilogue == CUBLASLT_EPILOGUE_DEFAULT) {
        return CUBLAS_STATUS_SUCCESS;
    }
    random_source draw;
    for (uint64_t word : {s.refuse_seed, static_cast<uint64_t>(kind), uint64_t{d.epilogue},
                          static_cast<uint64_t>(d.trans_a), static_cast<uint64_t>(d.trans_b),
                          static_cast<uint64_t>(a.type), static_cast<uint64_t>(out.type), a.rows,
                          a.cols, b.rows, b.cols, out.rows, out.cols}) {
        draw.state = (draw.state ^ word) * 0x9e3779b97f4a7c15ull | 1;
        draw.next();
    }
    if (s.refuse_seed != 0 && draw.below(2) == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    s.counters.refusals++;
    return statuses[draw.below(4)];
}

} // namespace emu
