/* cuBLASLt: descriptors, checks, heuristic. An algorithm demands a workspace as large as the preference
 * allows up to a drawn size, and fills it: nobody else may use it meanwhile. */
#include <cstring>

#include "cublaslt_internal.h"

struct cublasLtContext {
    int device;
};

namespace emu
{

namespace
{
struct preference {
    uint64_t workspace;
    uint32_t alignment[4];
};

struct algorithm {
    uint64_t magic, workspace;
    uint32_t alignment[4], of_bias, of_aux;
};
constexpr uint64_t magic = 0x656d756c61746564ull;

static_assert(sizeof(layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "room");
static_assert(sizeof(description) <= sizeof(cublasLtMatmulDescOpaque_t), "room");
static_assert(sizeof(preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "room");
static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "room");

template <typename T, typename O> T read_opaque(const O *opaque)
{
    T value;
    memcpy(&value, opaque, sizeof value);
    return value;
}

template <typename T, typename O> void write_opaque(O *opaque, const T &value)
{
    memset(opaque, 0, sizeof *opaque);
    memcpy(opaque, &value, sizeof value);
}

template <typename T> bool assign(T *to, const void *from, size_t bytes)
{
    if (bytes != sizeof *to) {
        return false;
    }
    memcpy(to, from, bytes);
    return true;
}

size_t extent(const layout &l)
{
    uint64_t lines = l.order == CUBLASLT_ORDER_COL ? l.cols : l.rows;
    uint64_t length = l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols;
    uint64_t ld = static_cast<uint64_t>(l.ld), last = static_cast<uint64_t>(l.batch - 1);
    return (last * static_cast<uint64_t>(l.stride < 0 ? 0 : l.stride) + (lines - 1) * ld + length) *
           bytes_of(l.type);
}

bool known_epilogue(uint32_t e)
{
    static const uint32_t known[] = {
        CUBLASLT_EPILOGUE_DEFAULT,     CUBLASLT_EPILOGUE_RELU,          CUBLASLT_EPILOGUE_BIAS,
        CUBLASLT_EPILOGUE_RELU_BIAS,   CUBLASLT_EPILOGUE_GELU,          CUBLASLT_EPILOGUE_GELU_AUX,
        CUBLASLT_EPILOGUE_GELU_BIAS,   CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
        CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,        CUBLASLT_EPILOGUE_BGRADB};
    for (uint32_t one : known) {
        if (e == one) {
            return true;
        }
    }
    return false;
}

cublasStatus_t refuse(cublasStatus_t status, const char *text)
{
    fail(cudaErrorInvalidValue, "cublasLt: %s", text);
    return status;
}

bool layout_valid(const layout &l)
{
    uint64_t length = l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols;
    return bytes_of(l.type) > 0 && l.rows > 0 && l.cols > 0 && l.batch > 0 && l.ld > 0 &&
           static_cast<uint64_t>(l.ld) >= length &&
           (l.order == CUBLASLT_ORDER_COL || l.order == CUBLASLT_ORDER_ROW);
}

/* Shapes, types and epilogue together. */
cublasStatus_t check_shapes(const description &d, const layout &a, const layout &b, const layout &c,
                            const layout &out)
{
    for (const layout *l : {&a, &b, &c, &out}) {
        if (!layout_valid(*l)) {
            return refuse(CUBLAS_STATUS_INVALID_VALUE, "a layout with a bad size, order or type");
        }
    }
    uint64_t m = d.trans_a ? a.cols : a.rows, k = d.trans_a ? a.rows : a.cols;
    uint64_t n = d.trans_b ? b.rows : b.cols, k_of_b = d.trans_b ? b.cols : b.rows;
    if (k != k_of_b || out.rows != m || out.cols != n || c.rows != m || c.cols != n) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "shapes that do not fit");
    }
    if (a.batch != b.batch || a.batch != c.batch || a.batch != out.batch) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "batch counts that differ");
    }
    bool floats = a.type == CUDA_R_32F;
    if (a.type != b.type || c.type != out.type || (floats && out.type != CUDA_R_32F) ||
        (!floats && out.type != a.type && out.type != CUDA_R_32F)) {
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "types that do not fit");
    }
    if (d.scale != CUDA_R_32F || !known_epilogue(d.epilogue)) {
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "a scale type or an epilogue");
    }
    if (d.epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
        (out.order != CUBLASLT_ORDER_COL || c.order != CUBLASLT_ORDER_COL)) {
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "an epilogue on a row-major matrix");
    }
    if ((d.bias_type >= 0 && d.bias_type != out.type) ||
        (d.aux_type >= 0 && d.aux_type != out.type)) {
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "an epilogue in another type than D");
    }
    if ((d.epilogue & 128) &&
        (d.aux_ld < static_cast<int64_t>(m) || d.aux_ld % 8 != 0 || d.aux_stride % 8 != 0)) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE,
                      "the leading dimension or the stride of the auxiliary matrix");
    }
    if (d.compute != CUBLAS_COMPUTE_32F && d.compute != CUBLAS_COMPUTE_32F_PEDANTIC &&
        !(d.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && floats)) {
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "a compute type");
    }
    return CUBLAS_STATUS_SUCCESS;
}

bool in_range(const char *what, const void *p, size_t bytes, int device, uint32_t alignment)
{
    if (reinterpret_cast<uintptr_t>(p) % alignment != 0) {
        fail(cudaErrorMisalignedAddress, "cublasLt: %s %p is not aligned to %u bytes", what, p,
             alignment);
        return false;
    }
    return check_device_range(what, p, bytes, device, false) == cudaSuccess;
}

/* What the heuristic takes the alignment of an epilogue's operand to be. */
uint32_t alignment_of(const void *p)
{
    uintptr_t bits = reinterpret_cast<uintptr_t>(p) | 16;
    return static_cast<uint32_t>(bits & -bits);
}

bool epilogue_in_range(const product_work &w, const algorithm &algo, int device)
{
    const description &d = w.d;
    uint32_t e = d.epilogue;
    size_t m = w.ld.rows, n = w.ld.cols, batches = static_cast<size_t>(w.ld.batch - 1);
    int bias_type = d.bias_type < 0 ? w.ld.type : d.bias_type;
    int aux_type = d.aux_type < 0 ? w.ld.type : d.aux_type;
    bool bias = e & (CUBLASLT_EPILOGUE_BIAS | 16 | 256 | 512);
    size_t length = e == CUBLASLT_EPILOGUE_BGRADB ? n : m;
    if (bias &&
        !in_range("cublasLt bias", d.bias,
                  (batches * static_cast<size_t>(d.bias_stride) + length) * bytes_of(bias_type),
                  device, algo.of_bias)) {
        return false;
    }
    if (!(e & 128)) {
        return true;
    }
    return in_range("cublasLt auxiliary matrix", d.aux,
                    (batches * static_cast<size_t>(d.aux_stride) +
                     (n - 1) * static_cast<size_t>(d.aux_ld) + m) *
                        bytes_of(aux_type),
                    device, algo.of_aux < 16 ? 16 : algo.of_aux);
}

bool overlaps(const void *p, size_t n, const void *q, size_t k)
{
    const char *a = static_cast<const char *>(p), *b = static_cast<const char *>(q);
    return n > 0 && k > 0 && a < b + k && b < a + n;
}

cublasStatus_t check_ranges(const product_work &w, const algorithm &algo, size_t workspace_given,
                            int device)
{
    size_t out_bytes = extent(w.ld);
    bool uses_c = w.beta != 0 || w.alpha_device;
    if (!in_range("cublasLt A", w.a, extent(w.la), device, algo.alignment[0]) ||
        !in_range("cublasLt B", w.b, extent(w.lb), device, algo.alignment[1]) ||
        (uses_c && !in_range("cublasLt C", w.c, extent(w.lc), device, algo.alignment[2])) ||
        !in_range("cublasLt D", w.out, out_bytes, device, algo.alignment[3]) ||
        !epilogue_in_range(w, algo, device)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (overlaps(w.out, out_bytes, w.a, extent(w.la)) ||
        overlaps(w.out, out_bytes, w.b, extent(w.lb)) ||
        (uses_c && w.c != w.out && overlaps(w.out, out_bytes, w.c, extent(w.lc)))) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "D overlaps an operand");
    }
    if (workspace_given < algo.workspace) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "a workspace smaller than the algorithm needs");
    }
    if (algo.workspace > 0 &&
        (!in_range("cublasLt workspace", w.workspace, workspace_given, device, 256) ||
         overlaps(w.workspace, algo.workspace, w.out, out_bytes) ||
         overlaps(w.workspace, algo.workspace, w.a, extent(w.la)) ||
         overlaps(w.workspace, algo.workspace, w.b, extent(w.lb)))) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "the workspace");
    }
    return CUBLAS_STATUS_SUCCESS;
}

algorithm choose(const preference &p, const description &d, random_source &random)
{
    algorithm algo = {};
    algo.magic = magic;
    uint64_t most = 1024ull << random.below(12);
    algo.workspace = p.workspace < most ? p.workspace : most;
    for (int i = 0; i < 4; i++) {
        algo.alignment[i] = p.alignment[i] < 16 ? p.alignment[i] : 16;
    }
    algo.of_bias = alignment_of(d.bias);
    algo.of_aux = alignment_of(d.aux);
    return algo;
}

/* Whether addresses may be other than multiples of 16 bytes. */
bool unaligned(const algorithm &algo)
{
    bool less = algo.of_bias < 16 || algo.of_aux < 16;
    for (uint32_t bytes : algo.alignment) {
        less = less || bytes < 16;
    }
    return less;
}

} // namespace

} // namespace emu

using namespace emu;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    guard lock(all().mutex);
    cudaError_t error;
    device *d = current_device(&error);
    if (error != cudaSuccess) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    *handle = new cublasLtContext{d->index};
    all().counters.live_objects++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    guard lock(all().mutex);
    if (!handle) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    delete handle;
    all().counters.live_objects--;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

size_t cublasLtGetVersion(void)
{
    return 130000;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t opaque, size_t,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t ld)
{
    write_opaque(opaque, layout{type, CUBLASLT_ORDER_COL, rows, cols, ld, 1, 0});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *opaque, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    *opaque = new cublasLtMatrixLayoutOpaque_t;
    return cublasLtMatrixLayoutInit(*opaque, type, rows, cols, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t opaque)
{
    delete opaque;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t opaque,
                                                cublasLtMatrixLayoutAttribute_t attr,
                                                const void *buf, size_t bytes)
{
    layout l = read_opaque<layout>(opaque);
    bool done = false;
    switch (attr) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        done = assign(&l.type, buf, bytes);
        break;
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        done = assign(&l.order, buf, bytes);
        break;
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        done = assign(&l.rows, buf, bytes);
        break;
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        done = assign(&l.cols, buf, bytes);
        break;
    case CUBLASLT_MATRIX_LAYOUT_LD:
        done = assign(&l.ld, buf, bytes);
        break;
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        done = assign(&l.batch, buf, bytes);
        break;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        done = assign(&l.stride, buf, bytes);
        break;
    }
    write_opaque(opaque, l);
    return done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t opaque, size_t,
                                               cublasComputeType_t compute, cudaDataType scale)
{
    description d = {};
    d.compute = compute;
    d.scale = scale;
    d.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    d.aux_type = d.bias_type = -1;
    write_opaque(opaque, d);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *opaque, cublasComputeType_t compute,
                                        cudaDataType scale)
{
    *opaque = new cublasLtMatmulDescOpaque_t;
    return cublasLtMatmulDescInit(*opaque, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t opaque)
{
    delete opaque;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t opaque,
                                              cublasLtMatmulDescAttributes_t attr, const void *buf,
                                              size_t bytes)
{
    description d = read_opaque<description>(opaque);
    bool done = false;
    switch (attr) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
        done = assign(&d.compute, buf, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        done = assign(&d.scale, buf, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        done = assign(&d.pointer_mode, buf, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_TRANSA:
        done = assign(&d.trans_a, buf, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        done = assign(&d.trans_b, buf, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        done = assign(&d.epilogue, buf, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        done = assign(&d.bias, buf, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
        done = assign(&d.bias_stride, buf, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        done = assign(&d.aux, buf, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        done = assign(&d.aux_ld, buf, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
        done = assign(&d.aux_stride, buf, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
        done = assign(&d.aux_type, buf, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        done = assign(&d.bias_type, buf, bytes);
        break;
    }
    write_opaque(opaque, d);
    return done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *opaque)
{
    *opaque = new cublasLtMatmulPreferenceOpaque_t;
    write_opaque(*opaque, preference{0, {256, 256, 256, 256}});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t opaque)
{
    delete opaque;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t opaque,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void *buf, size_t bytes)
{
    preference p = read_opaque<preference>(opaque);
    bool done = true;
    if (attr == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        done = assign(&p.workspace, buf, bytes);
    } else if (attr >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
               attr <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES) {
        done = assign(&p.alignment[attr - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], buf, bytes);
    }
    write_opaque(opaque, p);
    return done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t pref, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *returned)
{
    guard lock(all().mutex);
    *returned = 0;
    if (!handle || requested < 1) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    cublasStatus_t status =
        check_shapes(read_opaque<description>(desc), read_opaque<layout>(a), read_opaque<layout>(b),
                     read_opaque<layout>(c), read_opaque<layout>(out));
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    if (fault_now(CUDA_EMU_NO_ALGORITHM)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    algorithm algo =
        choose(read_opaque<preference>(pref), read_opaque<description>(desc), all().random);
    const description d = read_opaque<description>(desc);
    status = refused(CUDA_EMU_REFUSE_EPILOGUES, d, read_opaque<layout>(a), read_opaque<layout>(b),
                     read_opaque<layout>(out));
    if (status == CUBLAS_STATUS_SUCCESS && unaligned(algo)) {
        status = refused(CUDA_EMU_REFUSE_UNALIGNED, d, read_opaque<layout>(a),
                         read_opaque<layout>(b), read_opaque<layout>(out));
    }
    results[0] = {};
    results[0].state = status;
    if (status == CUBLAS_STATUS_EXECUTION_FAILED) { /* a result that is none */
        *returned = 1;
        return CUBLAS_STATUS_SUCCESS;
    }
    if (status == CUBLAS_STATUS_INTERNAL_ERROR) { /* success without a result */
        return CUBLAS_STATUS_SUCCESS;
    }
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    write_opaque(&results[0].algo, algo);
    results[0].workspaceSize = algo.workspace;
    results[0].wavesCount = 1;
    *returned = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    guard lock(all().mutex);
    if (!handle || check_stream(stream) != cudaSuccess || stream->device != handle->device) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    auto what = std::make_shared<product_work>();
    what->name = "product";
    what->d = read_opaque<description>(desc);
    what->la = read_opaque<layout>(a_layout);
    what->lb = read_opaque<layout>(b_layout);
    what->lc = read_opaque<layout>(c_layout);
    what->ld = read_opaque<layout>(d_layout);
    what->a = a;
    what->b = b;
    what->c = c;
    what->out = d;
    what->workspace = workspace;
    cublasStatus_t status = check_shapes(what->d, what->la, what->lb, what->lc, what->ld);
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    algorithm chosen =
        algo ? read_opaque<algorithm>(algo)
             : choose(preference{workspace_bytes, {16, 16, 16, 16}}, what->d, all().random);
    if (chosen.magic != magic) {
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "an algorithm that no heuristic returned");
    }
    if (what->d.pointer_mode == CUBLASLT_POINTER_MODE_HOST) {
        what->alpha = *static_cast<const float *>(alpha);
        what->beta = *static_cast<const float *>(beta);
    } else if (!in_range("cublasLt alpha", alpha, 4, stream->device, 4) ||
               !in_range("cublasLt beta", beta, 4, stream->device, 4)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    } else {
        what->alpha_device = alpha;
        what->beta_device = beta;
    }
    status = check_ranges(*what, chosen, workspace_bytes, stream->device);
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    status = refused(CUDA_EMU_REFUSE_RUNS, what->d, what->la, what->lb, what->ld);
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    what->workspace_bytes = chosen.workspace;
    uint64_t k = what->d.trans_a ? what->la.rows : what->la.cols;
    what->launch_seconds = 2e-6;
    what->seconds =
        2e-6 + 2.0 * static_cast<double>(what->ld.rows * what->ld.cols * k) * what->ld.batch / 1e13;
    return submit(lock, stream, what) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                     : CUBLAS_STATUS_EXECUTION_FAILED;
}
}
