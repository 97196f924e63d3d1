/* CUDA C++ for the emulated device: qualifiers, built-in variables, shared memory, warp
 * operations, atomics, math and launches. In C it is the runtime API alone, as in CUDA.
 *
 * Blocks of a kernel run one after another in shuffled order, so a block must not wait for
 * another one. Threads of a block run one at a time; each runs until it reaches a barrier or a
 * warp operation. */
#ifndef CUDA_EMU_CUDA_RUNTIME_H
#define CUDA_EMU_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <cmath>
#include <limits>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __noinline__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

#include "cuda_emu_vector.h"

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

/* An array of the block. Its first use in a block lays it out and fills it with 0xff bytes. */
struct cuda_emu_shared_key {
    void *address;
    unsigned long long block;
};
extern unsigned long long cuda_emu_block_serial;
void *cuda_emu_shared_lay_out(cuda_emu_shared_key *key, size_t bytes, const char *name);
inline void *cuda_emu_shared(cuda_emu_shared_key *key, size_t bytes, const char *name)
{
    return key->block == cuda_emu_block_serial ? key->address
                                               : cuda_emu_shared_lay_out(key, bytes, name);
}
unsigned char *cuda_emu_dynamic_shared();

#define DTP_SHARED(type, name, n)                                                                  \
    static cuda_emu_shared_key name##_key;                                                         \
    type *const name = static_cast<type *>(cuda_emu_shared(&name##_key, sizeof(type) * (n), #name))
#define DTP_DYNAMIC_SHARED(name) unsigned char *const name = cuda_emu_dynamic_shared()
#define DTP_PUT_WORD(dst, word) __atomic_store_n(dst, word, __ATOMIC_SEQ_CST)

#include "cuda_emu_warp.h"
#include "cuda_emu_math.h"

#define CUDA_EMU_ATOMICS(T)                                                                        \
    inline T atomicAdd(T *address, T value)                                                        \
    {                                                                                              \
        T old = *address;                                                                          \
        *address = static_cast<T>(old + value);                                                    \
        return old;                                                                                \
    }                                                                                              \
    inline T atomicExch(T *address, T value)                                                       \
    {                                                                                              \
        T old = *address;                                                                          \
        *address = value;                                                                          \
        return old;                                                                                \
    }
#define CUDA_EMU_INTEGER_ATOMICS(T)                                                                \
    CUDA_EMU_ATOMICS(T)                                                                            \
    inline T atomicCAS(T *address, T expected, T value)                                            \
    {                                                                                              \
        T old = *address;                                                                          \
        *address = old == expected ? value : old;                                                  \
        return old;                                                                                \
    }                                                                                              \
    inline T atomicMax(T *address, T value)                                                        \
    {                                                                                              \
        T old = *address;                                                                          \
        *address = old > value ? old : value;                                                      \
        return old;                                                                                \
    }                                                                                              \
    inline T atomicMin(T *address, T value)                                                        \
    {                                                                                              \
        T old = *address;                                                                          \
        *address = old < value ? old : value;                                                      \
        return old;                                                                                \
    }                                                                                              \
    inline T atomicOr(T *address, T value)                                                         \
    {                                                                                              \
        T old = *address;                                                                          \
        *address = old | value;                                                                    \
        return old;                                                                                \
    }                                                                                              \
    inline T atomicAnd(T *address, T value)                                                        \
    {                                                                                              \
        T old = *address;                                                                          \
        *address = old & value;                                                                    \
        return old;                                                                                \
    }
CUDA_EMU_INTEGER_ATOMICS(int)
CUDA_EMU_INTEGER_ATOMICS(unsigned int)
CUDA_EMU_INTEGER_ATOMICS(unsigned long long int)
CUDA_EMU_ATOMICS(float)
CUDA_EMU_ATOMICS(double)
#undef CUDA_EMU_INTEGER_ATOMICS
#undef CUDA_EMU_ATOMICS

[[noreturn]] inline void __trap()
{
    cuda_emu_stop("trap");
}

inline void __threadfence_block()
{
}
inline void __threadfence()
{
}
inline void __threadfence_system()
{
}

template <typename T> inline T __ldg(const T *address)
{
    return *address;
}
template <typename T> inline T __ldcs(const T *address)
{
    return *address;
}
template <typename T> inline T __ldcg(const T *address)
{
    return *address;
}
template <typename T> inline void __stwb(T *address, T value)
{
    *address = value;
}
template <typename T> inline void __stcs(T *address, T value)
{
    *address = value;
}

/* A launch keeps a copy of the arguments. Pointers and structures among them are searched for host
 * addresses. */
struct cuda_emu_span {
    const void *address;
    size_t bytes;
};
struct cuda_emu_call {
    virtual void run() = 0;
    virtual ~cuda_emu_call() = default;
};
template <typename... P> struct cuda_emu_call_of final : cuda_emu_call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
    cuda_emu_span spans[sizeof...(P) + 1];
    size_t n_spans = 0;
    explicit cuda_emu_call_of(void (*k)(P...), const P &...a) : kernel(k), arguments(a...)
    {
        std::apply([this](const P &...argument) { (add(argument), ...); }, arguments);
    }
    void run() override
    {
        std::apply(kernel, arguments);
    }
    template <typename T> void add(const T &argument)
    {
        if (std::is_pointer<T>::value || std::is_class<T>::value) {
            spans[n_spans++] = {&argument, sizeof argument};
        }
    }
};
void *cuda_emu_call_storage(size_t bytes); /* zeroed, of operator new */
/* Takes the call. */
cudaError_t cuda_emu_launch(const cudaLaunchConfig_t *config, const void *kernel,
                            cuda_emu_call *call, const cuda_emu_span *spans, size_t n);

template <typename... P, typename... A>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...),
                                      A &&...args)
{
    return [&](P... converted) {
        typedef cuda_emu_call_of<P...> call_type;
        void *storage = cuda_emu_call_storage(sizeof(call_type));
        call_type *call = new (storage) call_type(kernel, converted...);
        return cuda_emu_launch(config, reinterpret_cast<const void *>(kernel), call, call->spans,
                               call->n_spans);
    }(std::forward<A>(args)...);
}

template <typename T> inline cudaError_t cudaMalloc(T **address, size_t bytes)
{
    void *p = nullptr;
    cudaError_t error = cudaMalloc(&p, bytes);
    *address = static_cast<T *>(p);
    return error;
}
template <typename T>
inline cudaError_t cudaMallocHost(T **address, size_t bytes, unsigned int flags = 0)
{
    void *p = nullptr;
    cudaError_t error = cudaHostAlloc(&p, bytes, flags);
    *address = static_cast<T *>(p);
    return error;
}
template <typename F>
inline cudaError_t cudaFuncSetAttribute(F *func, enum cudaFuncAttribute attr, int value)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(func), attr, value);
}
template <typename F>
inline cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, F *func)
{
    return cudaFuncGetAttributes(attr, reinterpret_cast<const void *>(func));
}
template <typename F>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, F *func,
                                                                 int blockSize, size_t bytes)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        numBlocks, reinterpret_cast<const void *>(func), blockSize, bytes);
}

#endif
#endif
