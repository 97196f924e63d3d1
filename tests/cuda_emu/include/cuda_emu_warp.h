/* Barriers and warp operations. Every warp operation parks its lanes until all lanes of the mask
 * have come; the last one combines what the lanes brought. */
#ifndef CUDA_EMU_WARP_H
#define CUDA_EMU_WARP_H

enum cuda_emu_vote { cuda_emu_vote_none, cuda_emu_vote_count, cuda_emu_vote_and, cuda_emu_vote_or };

int cuda_emu_block_barrier(enum cuda_emu_vote vote, int predicate, const char *file, int line);
/* lanes[i] is what lane i brought, NULL where bit i of `present` is clear. */
typedef void (*cuda_emu_combine)(void *const *lanes, unsigned present);
void cuda_emu_warp(unsigned mask, void *mine, cuda_emu_combine combine, const char *file, int line);
int cuda_emu_lane();
/* Ends the kernel with an error. */
[[noreturn]] void cuda_emu_stop(const char *text);

#define CUDA_EMU_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(CUDA_EMU_HERE)
{
    cuda_emu_block_barrier(cuda_emu_vote_none, 0, file, line);
}
inline int __syncthreads_count(int predicate, CUDA_EMU_HERE)
{
    return cuda_emu_block_barrier(cuda_emu_vote_count, predicate, file, line);
}
inline int __syncthreads_and(int predicate, CUDA_EMU_HERE)
{
    return cuda_emu_block_barrier(cuda_emu_vote_and, predicate, file, line);
}
inline int __syncthreads_or(int predicate, CUDA_EMU_HERE)
{
    return cuda_emu_block_barrier(cuda_emu_vote_or, predicate, file, line);
}

inline void cuda_emu_combine_nothing(void *const *, unsigned)
{
}
inline void __syncwarp(unsigned mask = 0xffffffffu, CUDA_EMU_HERE)
{
    char nothing = 0;
    cuda_emu_warp(mask, &nothing, cuda_emu_combine_nothing, file, line);
}

template <typename T> struct cuda_emu_shuffle {
    T value;
    T result;
    int source;
    static void combine(void *const *lanes, unsigned present)
    {
        for (int i = 0; i < 32; i++) {
            if (!(present >> i & 1)) {
                continue;
            }
            cuda_emu_shuffle *lane = static_cast<cuda_emu_shuffle *>(lanes[i]);
            if (present >> lane->source & 1) {
                lane->result = static_cast<cuda_emu_shuffle *>(lanes[lane->source])->value;
            } else {
                memset(static_cast<void *>(&lane->result), 0xff, sizeof(T));
            }
        }
    }
};
template <typename T>
inline T cuda_emu_shuffle_from(unsigned mask, T value, int source, const char *file, int line)
{
    cuda_emu_shuffle<T> mine = {value, value, source};
    cuda_emu_warp(mask, &mine, cuda_emu_shuffle<T>::combine, file, line);
    return mine.result;
}
template <typename T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, CUDA_EMU_HERE)
{
    int segment = cuda_emu_lane() & ~(width - 1);
    return cuda_emu_shuffle_from(mask, value, segment | (source & (width - 1)), file, line);
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, CUDA_EMU_HERE)
{
    int lane = cuda_emu_lane();
    int source = lane ^ lane_mask;
    if (source >= (lane | (width - 1)) + 1 || source > 31) {
        source = lane;
    }
    return cuda_emu_shuffle_from(mask, value, source, file, line);
}
template <typename T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, CUDA_EMU_HERE)
{
    int lane = cuda_emu_lane();
    int source = lane + static_cast<int>(delta);
    return cuda_emu_shuffle_from(mask, value, source > (lane | (width - 1)) ? lane : source, file,
                                 line);
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, CUDA_EMU_HERE)
{
    int lane = cuda_emu_lane();
    int source = lane - static_cast<int>(delta);
    return cuda_emu_shuffle_from(mask, value, source < (lane & ~(width - 1)) ? lane : source, file,
                                 line);
}

struct cuda_emu_ballot {
    int predicate;
    unsigned votes;
    static void combine(void *const *lanes, unsigned present)
    {
        unsigned votes = 0;
        for (unsigned i = 0; i < 32; i++) {
            if (present >> i & 1 && static_cast<cuda_emu_ballot *>(lanes[i])->predicate) {
                votes |= 1u << i;
            }
        }
        for (unsigned i = 0; i < 32; i++) {
            if (present >> i & 1) {
                cuda_emu_ballot *lane = static_cast<cuda_emu_ballot *>(lanes[i]);
                lane->votes = votes;
                lane->predicate = votes == present;
            }
        }
    }
};
inline unsigned __ballot_sync(unsigned mask, int predicate, CUDA_EMU_HERE)
{
    cuda_emu_ballot mine = {predicate, 0};
    cuda_emu_warp(mask, &mine, cuda_emu_ballot::combine, file, line);
    return mine.votes;
}
inline int __any_sync(unsigned mask, int predicate, CUDA_EMU_HERE)
{
    return __ballot_sync(mask, predicate, file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, CUDA_EMU_HERE)
{
    cuda_emu_ballot mine = {predicate, 0};
    cuda_emu_warp(mask, &mine, cuda_emu_ballot::combine, file, line);
    return mine.predicate;
}

/* Every lane gets the reduction over the mask, or the lanes that brought the same value. */
enum cuda_emu_reduction {
    cuda_emu_reduce_add,
    cuda_emu_reduce_min,
    cuda_emu_reduce_max,
    cuda_emu_reduce_and,
    cuda_emu_reduce_or
};
template <typename T> struct cuda_emu_reduce {
    T value, result;
    cuda_emu_reduction how;
    unsigned same;
    static T apply(cuda_emu_reduction how, T a, T b)
    {
        switch (how) {
        case cuda_emu_reduce_add:
            return static_cast<T>(a + b);
        case cuda_emu_reduce_min:
            return a < b ? a : b;
        case cuda_emu_reduce_max:
            return a > b ? a : b;
        case cuda_emu_reduce_and:
            return a & b;
        default:
            return a | b;
        }
    }
    static void combine(void *const *lanes, unsigned present)
    {
        for (unsigned i = 0; i < 32; i++) {
            if (!(present >> i & 1)) {
                continue;
            }
            cuda_emu_reduce *mine = static_cast<cuda_emu_reduce *>(lanes[i]);
            mine->result = mine->value;
            mine->same = 0;
            for (unsigned k = 0; k < 32; k++) {
                if (present >> k & 1) {
                    T other = static_cast<cuda_emu_reduce *>(lanes[k])->value;
                    mine->same |= other == mine->value ? 1u << k : 0u;
                    mine->result = k == i ? mine->result : apply(mine->how, mine->result, other);
                }
            }
        }
    }
};
template <typename T>
inline cuda_emu_reduce<T> cuda_emu_reduce_over(unsigned mask, T value, cuda_emu_reduction how,
                                               const char *file, int line)
{
    cuda_emu_reduce<T> mine = {value, value, how, 0};
    cuda_emu_warp(mask, &mine, cuda_emu_reduce<T>::combine, file, line);
    return mine;
}
#define CUDA_EMU_REDUCE(T, name)                                                                   \
    inline T __reduce_##name##_sync(unsigned mask, T value, CUDA_EMU_HERE)                         \
    {                                                                                              \
        return cuda_emu_reduce_over(mask, value, cuda_emu_reduce_##name, file, line).result;       \
    }
CUDA_EMU_REDUCE(unsigned, add)
CUDA_EMU_REDUCE(unsigned, min)
CUDA_EMU_REDUCE(unsigned, max)
CUDA_EMU_REDUCE(unsigned, and)
CUDA_EMU_REDUCE(unsigned, or)
CUDA_EMU_REDUCE(int, min)
CUDA_EMU_REDUCE(int, max)
#undef CUDA_EMU_REDUCE
inline int __reduce_add_sync(unsigned mask, int value, CUDA_EMU_HERE)
{
    return static_cast<int>(__reduce_add_sync(mask, static_cast<unsigned>(value), file, line));
}
template <typename T> inline unsigned __match_any_sync(unsigned mask, T value, CUDA_EMU_HERE)
{
    return cuda_emu_reduce_over(mask, value, cuda_emu_reduce_min, file, line).same;
}

#endif
