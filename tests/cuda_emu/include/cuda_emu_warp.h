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

#endif
