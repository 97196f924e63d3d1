/* NVTX ranges that do nothing. C17 and C++. */
#ifndef CUDA_EMU_NVTOOLSEXT_H
#define CUDA_EMU_NVTOOLSEXT_H

static inline int nvtxRangePushA(const char *message)
{
    (void)message;
    return 0;
}
static inline int nvtxRangePop(void)
{
    return 0;
}
static inline void nvtxMarkA(const char *message)
{
    (void)message;
}
#define nvtxRangePush nvtxRangePushA
#define nvtxMark nvtxMarkA

#endif
