/* wmma: matrix fragments of a warp. Which lane holds which element depends on the seed. */
#ifndef CUDA_EMU_MMA_H
#define CUDA_EMU_MMA_H

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"

#include <type_traits>

/* Element i of a lane is cell [use][elements of a lane == 8][lane * elements + i] of the matrix,
 * whose cells are numbered row by row. Uses: 0 A, 1 B, 2 accumulator. */
extern unsigned short cuda_emu_fragment_cells[3][2][256];

namespace nvcuda
{
namespace wmma
{

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
namespace precision
{
struct tf32;
}
enum layout_t { mem_row_major, mem_col_major };

template <typename T> struct stored {
    typedef T type;
};
template <> struct stored<precision::tf32> {
    typedef float type;
};

template <typename Use> struct use_index;
template <> struct use_index<matrix_a> {
    static constexpr int value = 0;
};
template <> struct use_index<matrix_b> {
    static constexpr int value = 1;
};
template <> struct use_index<accumulator> {
    static constexpr int value = 2;
};

template <typename Use, int m, int n, int k, typename T, typename Layout = void> class fragment
{
  public:
    static constexpr int rows = use_index<Use>::value == 1 ? k : m;
    static constexpr int columns = use_index<Use>::value == 0 ? k : n;
    static constexpr int num_elements = rows * columns / 32;
    static constexpr int num_storage_elements = num_elements;
    typedef typename stored<T>::type element_type;
    typedef element_type storage_element_type;
    static_assert((m == 16 && n == 16 && (k == 16 || k == 8)), "shapes of the emulated device");
    element_type x[num_elements];

    /* The tensor core ignores the low bits of a tf32 operand. */
    static float operand(element_type value)
    {
        float f = static_cast<float>(value);
        return std::is_same<T, precision::tf32>::value
                   ? cuda_emu_bits<float>(cuda_emu_bits<unsigned>(f) & 0xffffe000u)
                   : f;
    }
    static int cell(int lane, int i)
    {
        return cuda_emu_fragment_cells[use_index<Use>::value][num_elements == 8]
                                      [lane * num_elements + i];
    }
};

template <typename Use, int m, int n, int k, typename T, typename Layout, typename V>
inline void fill_fragment(fragment<Use, m, n, k, T, Layout> &f, const V &value)
{
    for (auto &element : f.x) {
        element = static_cast<typename stored<T>::type>(value);
    }
}

inline float __float_to_tf32(float value)
{
    unsigned bits = cuda_emu_bits<unsigned>(value);
    if ((bits & 0x7f800000u) == 0x7f800000u) {
        return value;
    }
    return cuda_emu_bits<float>((bits + 0x1000u) & 0xffffe000u);
}

/* What the warp's loads and stores ask of an address and a leading dimension. */
template <typename E> inline void cuda_emu_check_matrix(const E *p, unsigned ld)
{
    if (reinterpret_cast<uintptr_t>(p) % 32 != 0 || ld * sizeof(E) % 16 != 0) {
        cuda_emu_stop("wmma: an address that 32 bytes do not divide, or a leading dimension that "
                      "16 bytes do not");
    }
}

/* `E`: the type in memory. */
template <typename Use, int m, int n, int k, typename T, typename Layout, typename E>
inline void cuda_emu_load(fragment<Use, m, n, k, T, Layout> &f, const E *p, unsigned ld, bool rows,
                          const char *file, int line)
{
    typedef fragment<Use, m, n, k, T, Layout> F;
    cuda_emu_check_matrix(p, ld);
    __syncwarp(0xffffffffu, file, line);
    for (int i = 0; i < F::num_elements; i++) {
        int cell = F::cell(cuda_emu_lane(), i);
        unsigned r = static_cast<unsigned>(cell / F::columns);
        unsigned c = static_cast<unsigned>(cell % F::columns);
        f.x[i] = p[rows ? static_cast<size_t>(r) * ld + c : static_cast<size_t>(c) * ld + r];
    }
    __syncwarp(0xffffffffu, file, line);
}
template <typename Use, int m, int n, int k, typename T, typename Layout, typename E>
inline void load_matrix_sync(fragment<Use, m, n, k, T, Layout> &f, const E *p, unsigned ld,
                             CUDA_EMU_HERE)
{
    cuda_emu_load(f, p, ld, std::is_same<Layout, row_major>::value, file, line);
}
template <int m, int n, int k, typename T>
inline void load_matrix_sync(fragment<accumulator, m, n, k, T> &f, const T *p, unsigned ld,
                             layout_t layout, CUDA_EMU_HERE)
{
    cuda_emu_load(f, p, ld, layout == mem_row_major, file, line);
}
template <int m, int n, int k, typename T>
inline void store_matrix_sync(T *p, const fragment<accumulator, m, n, k, T> &f, unsigned ld,
                              layout_t layout, CUDA_EMU_HERE)
{
    cuda_emu_check_matrix(p, ld);
    __syncwarp(0xffffffffu, file, line);
    for (int i = 0; i < f.num_elements; i++) {
        int cell = f.cell(cuda_emu_lane(), i);
        unsigned r = static_cast<unsigned>(cell / n), c = static_cast<unsigned>(cell % n);
        p[layout == mem_row_major ? static_cast<size_t>(r) * ld + c
                                  : static_cast<size_t>(c) * ld + r] = f.x[i];
    }
    __syncwarp(0xffffffffu, file, line);
}

template <typename FD, typename FA, typename FB, typename FC> struct cuda_emu_mma {
    FD *d;
    const FA *a;
    const FB *b;
    const FC *c;
    template <typename F>
    static void gather(void *const *lanes, const F *cuda_emu_mma::*member, float *cells)
    {
        for (int lane = 0; lane < 32; lane++) {
            const F *f = static_cast<cuda_emu_mma *>(lanes[lane])->*member;
            for (int i = 0; i < F::num_elements; i++) {
                cells[F::cell(lane, i)] = F::operand(f->x[i]);
            }
        }
    }
    static void combine(void *const *lanes, unsigned present)
    {
        constexpr int m = FA::rows, n = FB::columns, k = FA::columns;
        float a[m * k], b[k * n], c[m * n];
        if (present != 0xffffffffu) {
            return;
        }
        gather<FA>(lanes, &cuda_emu_mma::a, a);
        gather<FB>(lanes, &cuda_emu_mma::b, b);
        gather<FC>(lanes, &cuda_emu_mma::c, c);
        for (int r = 0; r < m; r++) {
            for (int t = 0; t < k; t++) {
                for (int j = 0; j < n; j++) {
                    c[r * n + j] += a[r * k + t] * b[t * n + j];
                }
            }
        }
        for (int lane = 0; lane < 32; lane++) {
            FD *d = static_cast<cuda_emu_mma *>(lanes[lane])->d;
            for (int i = 0; i < FD::num_elements; i++) {
                d->x[i] = static_cast<typename FD::element_type>(c[FD::cell(lane, i)]);
            }
        }
    }
};
template <int m, int n, int k, typename T, typename D, typename C, typename LA, typename LB>
inline void mma_sync(fragment<accumulator, m, n, k, D> &d,
                     const fragment<matrix_a, m, n, k, T, LA> &a,
                     const fragment<matrix_b, m, n, k, T, LB> &b,
                     const fragment<accumulator, m, n, k, C> &c, CUDA_EMU_HERE)
{
    typedef cuda_emu_mma<fragment<accumulator, m, n, k, D>, fragment<matrix_a, m, n, k, T, LA>,
                         fragment<matrix_b, m, n, k, T, LB>, fragment<accumulator, m, n, k, C>>
        Lane;
    Lane mine = {&d, &a, &b, &c};
    cuda_emu_warp(0xffffffffu, &mine, Lane::combine, file, line);
}

} // namespace wmma
} // namespace nvcuda

#endif
