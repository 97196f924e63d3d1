/* OpenBLAS kernel set by processor features. */
#include "executor/cpu/blas_env.h"

#include <string.h>

static bool has_avx512(void)
{
#if defined(__GNUC__) && defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

bool dtp_blas_wants_coretype(const char **value)
{
    *value = "SkylakeX";
    /* Kernel sets of OpenBLAS that use AVX-512. */
    const char *core = dtp_blas_corename();
    return has_avx512() && strcmp(core, "SkylakeX") != 0 && strcmp(core, "Cooperlake") != 0 &&
           strcmp(core, "Sapphirerapids") != 0;
}
