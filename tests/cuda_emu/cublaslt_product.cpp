/* Products of column-major and row-major matrices, accumulated in float. */
#include <cmath>
#include <cstring>

#include "cublaslt_internal.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace emu
{

size_t bytes_of(int type)
{
    return type == CUDA_R_32F ? 4 : type == CUDA_R_16F || type == CUDA_R_16BF ? 2 : 0;
}

namespace
{

float get(const void *p, int type, size_t i)
{
    if (type == CUDA_R_32F) {
        return static_cast<const float *>(p)[i];
    }
    unsigned short bits = static_cast<const unsigned short *>(p)[i];
    return type == CUDA_R_16F ? cuda_emu_half_to_float(bits) : cuda_emu_bf16_to_float(bits);
}

void put(void *p, int type, size_t i, float value)
{
    if (type == CUDA_R_32F) {
        static_cast<float *>(p)[i] = value;
    } else {
        static_cast<unsigned short *>(p)[i] =
            type == CUDA_R_16F ? cuda_emu_float_to_half(value) : cuda_emu_float_to_bf16(value);
    }
}

/* Rounds to nearest, ties away from zero, as the conversion of the device does (cvt.rna). */
float to_tf32(float value)
{
    unsigned bits = cuda_emu_bits<unsigned>(value);
    return std::isfinite(value) ? cuda_emu_bits<float>((bits + 0x1000u) & 0xffffe000u) : value;
}

/* The tanh form, as cuBLASLt has it. */
constexpr float gelu_a = 0.7978845608f, gelu_b = 0.044715f;

float gelu(float x)
{
    return 0.5f * x * (1.0f + tanhf(gelu_a * (x + gelu_b * x * x * x)));
}

float gelu_slope(float x)
{
    float t = tanhf(gelu_a * (x + gelu_b * x * x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * gelu_a * (1.0f + 3.0f * gelu_b * x * x);
}
/* Strides of one step down and one step right. */
struct steps {
    size_t down, right;
};

steps steps_of(const layout &l)
{
    size_t ld = static_cast<size_t>(l.ld);
    return l.order == CUBLASLT_ORDER_COL ? steps{1, ld} : steps{ld, 1};
}

} // namespace

bool product_work::start(task &)
{
    if (lost(*this)) {
        return true;
    }
    open_memory();
    if (alpha_device) {
        alpha = *static_cast<const float *>(alpha_device);
        beta = *static_cast<const float *>(beta_device);
    }
    if (workspace_bytes > 0) {
        memset(workspace, 0xff, workspace_bytes);
    }
    for (int32_t batch = 0; batch < ld.batch; batch++) {
        run(batch);
    }
    all().counters.products++;
    return true;
}

std::vector<float> product_work::pack(const layout &l, const void *x, int32_t batch,
                                      bool transpose) const
{
    bool tf32 = d.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && l.type == CUDA_R_32F;
    steps s = steps_of(l);
    size_t rows = transpose ? l.cols : l.rows, cols = transpose ? l.rows : l.cols;
    if (transpose) {
        std::swap(s.down, s.right);
    }
    const unsigned char *base = static_cast<const unsigned char *>(x);
    base += static_cast<int64_t>(bytes_of(l.type)) * l.stride * batch;
    std::vector<float> packed(rows * cols);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            float v = get(base, l.type, i * s.down + j * s.right);
            packed[i * cols + j] = tf32 ? to_tf32(v) : v;
        }
    }
    return packed;
}

void product_work::run(int32_t batch)
{
    size_t m = ld.rows, n = ld.cols;
    size_t k = d.trans_a ? la.rows : la.cols;
    std::vector<float> x = pack(la, a, batch, d.trans_a != CUBLAS_OP_N);
    std::vector<float> y = pack(lb, b, batch, d.trans_b != CUBLAS_OP_N);
    std::vector<float> sum(m * n);
    for (size_t first = 0; first < k; first += 64) {
        size_t last = first + 64 < k ? first + 64 : k;
        for (size_t i = 0; i < m; i++) {
            float *__restrict row = sum.data() + i * n;
            for (size_t t = first; t < last; t++) {
                const float *__restrict from = y.data() + t * n;
                float factor = x[i * k + t];
                for (size_t j = 0; j < n; j++) {
                    row[j] += factor * from[j];
                }
            }
        }
    }
    scale(sum, batch);
    epilogue(sum, batch);
    if (d.epilogue == CUBLASLT_EPILOGUE_BGRADA) {
        reduce(x, m, k, 1, batch);
    } else if (d.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
        reduce(y, k, n, 0, batch);
    }
    steps s = steps_of(ld);
    unsigned char *base = static_cast<unsigned char *>(out);
    base += static_cast<int64_t>(bytes_of(ld.type)) * ld.stride * batch;
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            put(base, ld.type, i * s.down + j * s.right, sum[i * n + j]);
        }
    }
}

void product_work::scale(std::vector<float> &sum, int32_t batch) const
{
    std::vector<float> before;
    if (beta != 0) {
        before = pack(lc, c, batch, false);
    }
    for (size_t i = 0; i < sum.size(); i++) {
        sum[i] = alpha * sum[i] + (beta != 0 ? beta * before[i] : 0);
    }
}

void product_work::epilogue(std::vector<float> &sum, int32_t batch)
{
    size_t m = ld.rows, n = ld.cols;
    uint32_t e = d.epilogue;
    int bias_type = d.bias_type < 0 ? ld.type : d.bias_type;
    int aux_type = d.aux_type < 0 ? ld.type : d.aux_type;
    unsigned char *aux = static_cast<unsigned char *>(d.aux);
    if (aux) {
        aux += static_cast<int64_t>(bytes_of(aux_type)) * d.aux_stride * batch;
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            float &v = sum[i * n + j];
            size_t at = i + j * static_cast<size_t>(d.aux_ld);
            if (e & CUBLASLT_EPILOGUE_BIAS) {
                v += get(d.bias, bias_type,
                         i + static_cast<size_t>(d.bias_stride) * static_cast<size_t>(batch));
            }
            if (e & CUBLASLT_EPILOGUE_GELU) {
                if (e & 128) {
                    put(aux, aux_type, at, v);
                }
                v = gelu(v);
            } else if (e & CUBLASLT_EPILOGUE_RELU) {
                v = v > 0 ? v : 0;
            } else if (e & 64) {
                v *= gelu_slope(get(aux, aux_type, at));
            }
        }
    }
    if (e == CUBLASLT_EPILOGUE_DGELU_BGRAD) {
        reduce(sum, m, n, 1, batch);
    }
}

void product_work::reduce(const std::vector<float> &x, size_t rows, size_t cols, int axis,
                          int32_t batch)
{
    int type = d.bias_type < 0 ? ld.type : d.bias_type;
    std::vector<float> sums(axis ? rows : cols);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            sums[axis ? i : j] += x[i * cols + j];
        }
    }
    for (size_t i = 0; i < sums.size(); i++) {
        put(d.bias, type, i + static_cast<size_t>(d.bias_stride) * static_cast<size_t>(batch),
            sums[i]);
    }
}

} // namespace emu
