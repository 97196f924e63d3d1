#include "nccl_data.h"

#include <cstdint>
#include <cstring>

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace emu
{

namespace
{

/* Extrema of floats drop a NaN, as fmax and fmin do. */
template <typename T> T apply(T a, T b, ncclRedOp_t op)
{
    switch (op) {
    case ncclProd:
        return static_cast<T>(a * b);
    case ncclMax:
        return a > b || b != b ? a : b;
    case ncclMin:
        return a < b || b != b ? a : b;
    default:
        return static_cast<T>(a + b);
    }
}

struct bf16 {
    static float up(unsigned short bits)
    {
        return cuda_emu_bf16_to_float(bits);
    }
    static unsigned short down(float value)
    {
        return cuda_emu_float_to_bf16(value);
    }
};
struct fp16 {
    static float up(unsigned short bits)
    {
        return cuda_emu_half_to_float(bits);
    }
    static unsigned short down(float value)
    {
        return cuda_emu_float_to_half(value);
    }
};
template <typename T> struct plain {
    static T up(T value)
    {
        return value;
    }
    static T down(T value)
    {
        return value;
    }
};

/* Elements first .. first + count - 1 of all ranks to `to`; `total` elements make the ring's parts. */
template <typename T, typename Form>
void reduce(const std::vector<const void *> &from, void *to, size_t first, size_t count,
            size_t total, ncclRedOp_t op)
{
    size_t ranks = from.size();
    size_t part = (total + ranks - 1) / ranks;
    T *out = static_cast<T *>(to);
    for (size_t i = first; i < first + count; i++) {
        size_t begin = i / part + 1;
        auto sum = Form::up(static_cast<const T *>(from[begin % ranks])[i]);
        for (size_t k = 1; k < ranks; k++) {
            auto next = Form::up(static_cast<const T *>(from[(begin + k) % ranks])[i]);
            sum = Form::up(Form::down(apply(sum, next, op)));
        }
        if (op == ncclAvg) {
            sum = static_cast<decltype(sum)>(sum / static_cast<decltype(sum)>(ranks));
        }
        out[i - first] = Form::down(sum);
    }
}

void reduce_any(const std::vector<const void *> &from, void *to, size_t first, size_t count,
                size_t total, ncclDataType_t type, ncclRedOp_t op)
{
    switch (type) {
    case ncclInt8:
        return reduce<int8_t, plain<int8_t>>(from, to, first, count, total, op);
    case ncclUint8:
        return reduce<uint8_t, plain<uint8_t>>(from, to, first, count, total, op);
    case ncclInt32:
        return reduce<int32_t, plain<int32_t>>(from, to, first, count, total, op);
    case ncclUint32:
        return reduce<uint32_t, plain<uint32_t>>(from, to, first, count, total, op);
    case ncclInt64:
        return reduce<int64_t, plain<int64_t>>(from, to, first, count, total, op);
    case ncclUint64:
        return reduce<uint64_t, plain<uint64_t>>(from, to, first, count, total, op);
    case ncclFloat16:
        return reduce<unsigned short, fp16>(from, to, first, count, total, op);
    case ncclBfloat16:
        return reduce<unsigned short, bf16>(from, to, first, count, total, op);
    case ncclFloat32:
        return reduce<float, plain<float>>(from, to, first, count, total, op);
    case ncclFloat64:
        return reduce<double, plain<double>>(from, to, first, count, total, op);
    default:
        return;
    }
}

} // namespace

size_t nccl_bytes(ncclDataType_t type)
{
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return type >= 0 && type <= ncclBfloat16 ? bytes[type] : 0;
}

void nccl_all_reduce(const std::vector<const void *> &from, const std::vector<void *> &to,
                     size_t count, ncclDataType_t type, ncclRedOp_t op)
{
    if (count == 0) {
        return;
    }
    std::vector<char> sum(count * nccl_bytes(type));
    reduce_any(from, sum.data(), 0, count, count, type, op);
    for (void *out : to) {
        memcpy(out, sum.data(), sum.size());
    }
}

void nccl_reduce_scatter(const std::vector<const void *> &from, const std::vector<void *> &to,
                         size_t count, ncclDataType_t type, ncclRedOp_t op)
{
    if (count == 0) {
        return;
    }
    size_t bytes = count * nccl_bytes(type), total = count * from.size();
    std::vector<char> sum(total * nccl_bytes(type));
    reduce_any(from, sum.data(), 0, total, total, type, op);
    for (size_t rank = 0; rank < to.size(); rank++) {
        memcpy(to[rank], sum.data() + rank * bytes, bytes);
    }
}

void nccl_all_gather(const std::vector<const void *> &from, const std::vector<void *> &to,
                     size_t bytes)
{
    if (bytes == 0) {
        return;
    }
    std::vector<char> whole(bytes * from.size());
    for (size_t rank = 0; rank < from.size(); rank++) {
        memcpy(whole.data() + rank * bytes, from[rank], bytes);
    }
    for (void *out : to) {
        memcpy(out, whole.data(), whole.size());
    }
}

void nccl_broadcast(const std::vector<const void *> &from, const std::vector<void *> &to,
                    size_t bytes, int root)
{
    for (void *out : to) {
        if (bytes > 0) {
            memmove(out, from[static_cast<size_t>(root)], bytes);
        }
    }
}

} // namespace emu
