/* The calls of NVTX 3 that we use, with its signatures. C17 and C++. */
#ifndef CUDA_EMU_NVTOOLSEXT_H
#define CUDA_EMU_NVTOOLSEXT_H

#ifdef __cplusplus
extern "C" {
#endif

int nvtxRangePushA(const char *message);
int nvtxRangePop(void);

#ifdef __cplusplus
}
#endif

#endif
