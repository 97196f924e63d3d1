/* Built without oneDNN: bf16 is widened. */
#include "executor/cpu/gemm/gemm_provider.h"

static bool takes(const dtp_gemm_desc *g)
{
    (void)g;
    return false;
}

const dtp_gemm_provider dtp_gemm_onednn = {.name = "onednn", .takes = takes};
