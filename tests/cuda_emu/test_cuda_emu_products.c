/* cuBLASLt of the emulated device against a plain product. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cublasLt.h"
#include "cuda_emu.h"

#define OK(call) assert_int_equal(call, 0)

enum { BATCH = 3, WORKSPACE = 1 << 16, MOST = 4096 };

static cudaStream_t stream;
static cublasLtHandle_t handle;
static void *workspace;

static int set_up(void **state)
{
    (void)state;
    cuda_emu_reset();
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cublasLtCreate(&handle));
    OK(cudaMalloc(&workspace, WORKSPACE));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    OK(cublasLtDestroy(handle));
    OK(cudaFree(workspace));
    OK(cudaStreamDestroy(stream));
    assert_int_equal(cuda_emu_count().live_objects, 0);
    return 0;
}

/* D = alpha op(A) op(B) + beta C for small integers, so that every sum is exact in any order. */
struct product {
    int m, n, k, trans_a, trans_b, row_major, batches;
    cudaDataType type, out_type;
    cublasComputeType_t compute;
    cublasLtEpilogue_t epilogue;
    float alpha, beta;
};

struct matrix {
    int rows, cols, ld;
    float host[MOST];
    float *device;
    cublasLtMatrixLayout_t layout;
};

static size_t bytes_of(cudaDataType type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

static unsigned short bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (unsigned short)(bits >> 16);
}

static int lines(const struct matrix *x, int row_major)
{
    return row_major ? x->rows : x->cols;
}

static void make(struct matrix *x, const struct product *p, int rows, int cols, cudaDataType type,
                 int spread)
{
    x->rows = rows;
    x->cols = cols;
    x->ld = (p->row_major ? cols : rows) + 8;
    int64_t stride = (int64_t)x->ld * lines(x, p->row_major);
    int n = (int)stride * p->batches;
    assert_true(n <= MOST);
    unsigned short bits[MOST];
    for (int i = 0; i < n; i++) {
        x->host[i] = (float)(i * spread % 9 - 4);
        bits[i] = bf16_of(x->host[i]);
    }
    OK(cudaMalloc((void **)&x->device, (size_t)n * bytes_of(type)));
    OK(cudaMemcpy(x->device, type == CUDA_R_32F ? (void *)x->host : (void *)bits,
                  (size_t)n * bytes_of(type), cudaMemcpyHostToDevice));
    OK(cublasLtMatrixLayoutCreate(&x->layout, type, (uint64_t)rows, (uint64_t)cols, x->ld));
    int32_t order = p->row_major ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL, batches = p->batches;
    OK(cublasLtMatrixLayoutSetAttribute(x->layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order,
                                        sizeof order));
    OK(cublasLtMatrixLayoutSetAttribute(x->layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches,
                                        sizeof batches));
    OK(cublasLtMatrixLayoutSetAttribute(x->layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                        &stride, sizeof stride));
}

static void drop(struct matrix *x)
{
    OK(cudaFree(x->device));
    OK(cublasLtMatrixLayoutDestroy(x->layout));
}

static int at(const struct matrix *x, const struct product *p, int batch, int i, int j)
{
    int first = batch * x->ld * lines(x, p->row_major);
    return first + (p->row_major ? i * x->ld + j : j * x->ld + i);
}

static float entry(const struct matrix *x, const struct product *p, int batch, int i, int j,
                   int transposed)
{
    return x->host[transposed ? at(x, p, batch, j, i) : at(x, p, batch, i, j)];
}

static float expected(const struct product *p, const struct matrix *a, const struct matrix *b,
                      const struct matrix *c, int batch, int i, int j)
{
    float sum = 0;
    for (int t = 0; t < p->k; t++) {
        sum += entry(a, p, batch, i, t, p->trans_a) * entry(b, p, batch, t, j, p->trans_b);
    }
    return p->alpha * sum + (p->beta != 0 ? p->beta * c->host[at(c, p, batch, i, j)] : 0);
}

static cublasLtMatmulDesc_t describe(const struct product *p, const void *bias, const void *aux,
                                     int64_t aux_ld)
{
    cublasLtMatmulDesc_t d;
    OK(cublasLtMatmulDescCreate(&d, p->compute, CUDA_R_32F));
    int32_t ta = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N,
            tb = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = p->epilogue;
    OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta));
    OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb));
    OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                      sizeof epilogue));
    OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux,
                                      sizeof aux));
    OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld,
                                      sizeof aux_ld));
    return d;
}

static cublasLtMatmulHeuristicResult_t choose(cublasLtMatmulDesc_t d, struct matrix *a,
                                              struct matrix *b, struct matrix *c,
                                              struct matrix *out)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    uint64_t most = WORKSPACE;
    int found;
    OK(cublasLtMatmulPreferenceCreate(&preference));
    OK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &most, sizeof most));
    OK(cublasLtMatmulAlgoGetHeuristic(handle, d, a->layout, b->layout, c->layout, out->layout,
                                      preference, 1, &result, &found));
    assert_int_equal(found, 1);
    assert_true(result.workspaceSize <= most);
    OK(cublasLtMatmulPreferenceDestroy(preference));
    return result;
}

static void fetch(float *host, const struct matrix *x, const struct product *p)
{
    int n = x->ld * lines(x, p->row_major) * p->batches;
    unsigned short bits[MOST];
    if (p->out_type == CUDA_R_32F) {
        OK(cudaMemcpy(host, x->device, (size_t)n * 4, cudaMemcpyDeviceToHost));
        return;
    }
    OK(cudaMemcpy(bits, x->device, (size_t)n * 2, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        uint32_t word = (uint32_t)bits[i] << 16;
        memcpy(host + i, &word, sizeof word);
    }
}

static void check(const struct product *p)
{
    static struct matrix a, b, c, d;
    static float got[MOST];
    make(&a, p, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, p->type, 5);
    make(&b, p, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, p->type, 7);
    make(&c, p, p->m, p->n, p->out_type, 4);
    make(&d, p, p->m, p->n, p->out_type, 1);
    cublasLtMatmulDesc_t desc = describe(p, NULL, NULL, 0);
    cublasLtMatmulHeuristicResult_t algo = choose(desc, &a, &b, &c, &d);
    OK(cublasLtMatmul(handle, desc, &p->alpha, a.device, a.layout, b.device, b.layout, &p->beta,
                      c.device, c.layout, d.device, d.layout, &algo.algo, workspace,
                      algo.workspaceSize, stream));
    OK(cudaStreamSynchronize(stream));
    fetch(got, &d, p);
    for (int batch = 0; batch < p->batches; batch++) {
        for (int i = 0; i < p->m; i++) {
            for (int j = 0; j < p->n; j++) {
                float right = expected(p, &a, &b, &c, batch, i, j);
                assert_true(got[at(&d, p, batch, i, j)] == right);
            }
        }
    }
    if (algo.workspaceSize > 0) {
        cuda_emu_quiet(1);
        assert_int_equal(cublasLtMatmul(handle, desc, &p->alpha, a.device, a.layout, b.device,
                                        b.layout, &p->beta, c.device, c.layout, d.device, d.layout,
                                        &algo.algo, workspace, algo.workspaceSize - 1, stream),
                         CUBLAS_STATUS_INVALID_VALUE);
    }
    OK(cublasLtMatmulDescDestroy(desc));
    drop(&a);
    drop(&b);
    drop(&c);
    drop(&d);
}

static void test_product__transposes_orders_types_and_batches(void **state)
{
    (void)state;
    struct product p = {13,
                        6,
                        11,
                        0,
                        0,
                        0,
                        1,
                        CUDA_R_32F,
                        CUDA_R_32F,
                        CUBLAS_COMPUTE_32F,
                        CUBLASLT_EPILOGUE_DEFAULT,
                        2,
                        0.5f};
    for (int bits = 0; bits < 32; bits++) {
        p.trans_a = bits & 1;
        p.trans_b = bits >> 1 & 1;
        p.row_major = bits >> 2 & 1;
        p.batches = bits & 8 ? BATCH : 1;
        p.beta = bits & 16 ? 0.5f : 0;
        check(&p);
    }
    p.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    check(&p);
    p.compute = CUBLAS_COMPUTE_32F;
    p.type = CUDA_R_16BF;
    check(&p);
    p.out_type = CUDA_R_16BF;
    p.alpha = 1;
    p.beta = 1;
    check(&p);
}

/* 1 and 2^-11, just below and above: to nearest, in tf32 alone. */
static void test_product__tf32_rounds_operands_to_nearest(void **state)
{
    (void)state;
    enum { N = 3 };
    static const float values[N] = {1 + 0x1p-11f - 0x1p-20f, 1 + 0x1p-11f, 1 + 0x1p-11f + 0x1p-13f};
    static const float rounded[N] = {1, 1 + 0x1p-10f, 1 + 0x1p-10f};
    static const cublasComputeType_t computes[] = {CUBLAS_COMPUTE_32F,
                                                   CUBLAS_COMPUTE_32F_FAST_TF32};
    static struct matrix a, b, c;
    for (int tf32 = 0; tf32 < 2; tf32++) {
        const struct product p = {.m = N,
                                  .n = 1,
                                  .k = 1,
                                  .batches = 1,
                                  .type = CUDA_R_32F,
                                  .out_type = CUDA_R_32F,
                                  .compute = computes[tf32],
                                  .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                                  .alpha = 1};
        const float one = 1;
        float got[N];
        make(&a, &p, N, 1, p.type, 1);
        make(&b, &p, 1, 1, p.type, 1);
        make(&c, &p, N, 1, p.type, 1);
        OK(cudaMemcpy(a.device, values, sizeof values, cudaMemcpyHostToDevice));
        OK(cudaMemcpy(b.device, &one, sizeof one, cudaMemcpyHostToDevice));
        cublasLtMatmulDesc_t desc = describe(&p, NULL, NULL, 0);
        cublasLtMatmulHeuristicResult_t algo = choose(desc, &a, &b, &c, &c);
        OK(cublasLtMatmul(handle, desc, &p.alpha, a.device, a.layout, b.device, b.layout, &p.beta,
                          c.device, c.layout, c.device, c.layout, &algo.algo, workspace,
                          algo.workspaceSize, stream));
        OK(cudaStreamSynchronize(stream));
        OK(cudaMemcpy(got, c.device, sizeof got, cudaMemcpyDeviceToHost));
        for (int i = 0; i < N; i++) {
            assert_true(got[i] == (tf32 ? rounded : values)[i]);
        }
        OK(cublasLtMatmulDescDestroy(desc));
        drop(&a);
        drop(&b);
        drop(&c);
    }
}

static float gelu(float x)
{
    return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

/* One product with bias and gelu, its input kept; then the gradient through it. */
static void test_product__gelu_with_bias_and_its_gradient(void **state)
{
    (void)state;
    struct product p = {8,
                        5,
                        3,
                        0,
                        0,
                        0,
                        1,
                        CUDA_R_32F,
                        CUDA_R_32F,
                        CUBLAS_COMPUTE_32F,
                        CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                        0.25f,
                        0};
    static struct matrix a, b, d;
    static float got[MOST], sums[8];
    float bias[8], aux[40], *bias_device, *aux_device, *sum_device;
    make(&a, &p, p.m, p.k, p.type, 5);
    make(&b, &p, p.k, p.n, p.type, 7);
    make(&d, &p, p.m, p.n, p.type, 1);
    for (int i = 0; i < 8; i++) {
        bias[i] = (float)i / 8;
    }
    OK(cudaMalloc((void **)&bias_device, sizeof bias));
    OK(cudaMalloc((void **)&aux_device, sizeof aux));
    OK(cudaMalloc((void **)&sum_device, sizeof bias));
    OK(cudaMemcpy(bias_device, bias, sizeof bias, cudaMemcpyHostToDevice));
    cublasLtMatmulDesc_t desc = describe(&p, bias_device, aux_device, 8);
    cublasLtMatmulHeuristicResult_t algo = choose(desc, &a, &b, &d, &d);
    OK(cublasLtMatmul(handle, desc, &p.alpha, a.device, a.layout, b.device, b.layout, &p.beta,
                      d.device, d.layout, d.device, d.layout, &algo.algo, workspace, WORKSPACE,
                      stream));
    OK(cudaStreamSynchronize(stream));
    fetch(got, &d, &p);
    OK(cudaMemcpy(aux, aux_device, sizeof aux, cudaMemcpyDeviceToHost));
    for (int i = 0; i < p.m; i++) {
        for (int j = 0; j < p.n; j++) {
            float x = expected(&p, &a, &b, &d, 0, i, j) + bias[i];
            assert_true(aux[j * 8 + i] == x);
            assert_true(fabsf(got[at(&d, &p, 0, i, j)] - gelu(x)) < 1e-6f);
        }
    }
    OK(cublasLtMatmulDescDestroy(desc));
    p.epilogue = CUBLASLT_EPILOGUE_DGELU_BGRAD;
    desc = describe(&p, sum_device, aux_device, 8);
    OK(cublasLtMatmul(handle, desc, &p.alpha, a.device, a.layout, b.device, b.layout, &p.beta,
                      d.device, d.layout, d.device, d.layout, NULL, NULL, 0, stream));
    OK(cudaStreamSynchronize(stream));
    fetch(got, &d, &p);
    OK(cudaMemcpy(sums, sum_device, sizeof sums, cudaMemcpyDeviceToHost));
    for (int i = 0; i < p.m; i++) {
        float sum = 0;
        for (int j = 0; j < p.n; j++) {
            float x = aux[j * 8 + i];
            float slope = (gelu(x + 1e-2f) - gelu(x - 1e-2f)) / 2e-2f;
            float right = expected(&p, &a, &b, &d, 0, i, j) * slope;
            assert_true(fabsf(got[at(&d, &p, 0, i, j)] - right) < 2e-3f * (1 + fabsf(right)));
            sum += got[at(&d, &p, 0, i, j)];
        }
        assert_true(fabsf(sums[i] - sum) < 1e-5f * (1 + fabsf(sum)));
    }
    OK(cublasLtMatmulDescDestroy(desc));
    OK(cudaFree(bias_device));
    OK(cudaFree(aux_device));
    OK(cudaFree(sum_device));
    drop(&a);
    drop(&b);
    drop(&d);
}

static void test_product__sums_of_the_operands(void **state)
{
    (void)state;
    struct product p = {
        8, 5, 3, 0, 1, 0, 1, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLASLT_EPILOGUE_BGRADA,
        1, 0};
    static struct matrix a, b, d;
    float sums[8], *device;
    make(&a, &p, p.m, p.k, p.type, 5);
    make(&b, &p, p.n, p.k, p.type, 7);
    make(&d, &p, p.m, p.n, p.type, 1);
    OK(cudaMalloc((void **)&device, sizeof sums));
    for (int which = 0; which < 2; which++) {
        p.epilogue = which ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_BGRADA;
        cublasLtMatmulDesc_t desc = describe(&p, device, NULL, 0);
        OK(cublasLtMatmul(handle, desc, &p.alpha, a.device, a.layout, b.device, b.layout, &p.beta,
                          d.device, d.layout, d.device, d.layout, NULL, NULL, 0, stream));
        OK(cudaStreamSynchronize(stream));
        OK(cudaMemcpy(sums, device, sizeof sums, cudaMemcpyDeviceToHost));
        for (int i = 0; i < (which ? p.n : p.m); i++) {
            float sum = 0;
            for (int t = 0; t < p.k; t++) {
                sum += entry(which ? &b : &a, &p, 0, i, t, 0);
            }
            assert_true(sums[i] == sum);
        }
        OK(cublasLtMatmulDescDestroy(desc));
    }
    OK(cudaFree(device));
    drop(&a);
    drop(&b);
    drop(&d);
}

static void test_product__refuses_bad_operands(void **state)
{
    (void)state;
    struct product p = {16,
                        16,
                        16,
                        0,
                        0,
                        0,
                        1,
                        CUDA_R_32F,
                        CUDA_R_32F,
                        CUBLAS_COMPUTE_32F,
                        CUBLASLT_EPILOGUE_DEFAULT,
                        1,
                        0};
    static struct matrix a, b, d;
    make(&a, &p, p.m, p.k, p.type, 5);
    make(&b, &p, p.k, p.n, p.type, 7);
    make(&d, &p, p.m, p.n, p.type, 1);
    cublasLtMatmulDesc_t desc = describe(&p, NULL, NULL, 0);
    cuda_emu_quiet(1);
    const void *bad[] = {a.device + 1, a.device + 12, d.device, a.host};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(cublasLtMatmul(handle, desc, &p.alpha, bad[i], a.layout, b.device,
                                        b.layout, &p.beta, d.device, d.layout, d.device, d.layout,
                                        NULL, workspace, WORKSPACE, stream),
                         CUBLAS_STATUS_INVALID_VALUE);
    }
    uint64_t rows = 17;
    OK(cublasLtMatrixLayoutSetAttribute(b.layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof rows));
    assert_int_equal(cublasLtMatmul(handle, desc, &p.alpha, a.device, a.layout, b.device, b.layout,
                                    &p.beta, d.device, d.layout, d.device, d.layout, NULL,
                                    workspace, WORKSPACE, stream),
                     CUBLAS_STATUS_INVALID_VALUE);
    OK(cublasLtMatmulDescDestroy(desc));
    drop(&a);
    drop(&b);
    drop(&d);
}

/* Rows of the auxiliary matrix that are no multiple of 8, a bias in another type, one that lies at
 * another alignment than the heuristic was told, and a heuristic that finds nothing. */
static void test_product__refuses_bad_epilogues(void **state)
{
    (void)state;
    struct product p = {16,
                        16,
                        16,
                        0,
                        0,
                        0,
                        1,
                        CUDA_R_32F,
                        CUDA_R_32F,
                        CUBLAS_COMPUTE_32F,
                        CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                        1,
                        0};
    static struct matrix a, b, d;
    make(&a, &p, p.m, p.k, p.type, 5);
    make(&b, &p, p.k, p.n, p.type, 7);
    make(&d, &p, p.m, p.n, p.type, 1);
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    int found;
    OK(cublasLtMatmulPreferenceCreate(&preference));
    cuda_emu_quiet(1);
    for (int i = 0; i < 4; i++) {
        const int32_t bf16 = CUDA_R_16BF;
        const int64_t stride = 12;
        cublasLtMatmulDesc_t desc = describe(&p, b.device, a.device, i == 0 ? 20 : 16);
        if (i == 1) {
            OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE,
                                              &stride, sizeof stride));
        } else if (i == 2) {
            OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bf16,
                                              sizeof bf16));
        }
        cuda_emu_set_fault(CUDA_EMU_NO_ALGORITHM, i == 3);
        assert_int_equal(cublasLtMatmulAlgoGetHeuristic(handle, desc, a.layout, b.layout, d.layout,
                                                        d.layout, preference, 1, &result, &found),
                         i < 2 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_NOT_SUPPORTED);
        assert_int_equal(found, 0);
        OK(cublasLtMatmulDescDestroy(desc));
    }
    cuda_emu_set_fault(CUDA_EMU_NO_ALGORITHM, 0);
    p.epilogue = CUBLASLT_EPILOGUE_BIAS;
    cublasLtMatmulDesc_t desc = describe(&p, b.device, NULL, 0);
    result = choose(desc, &a, &b, &d, &d);
    for (int shift = 1; shift >= 0; shift--) {
        const float *bias = b.device + shift;
        OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                          sizeof bias));
        assert_int_equal(cublasLtMatmul(handle, desc, &p.alpha, a.device, a.layout, b.device,
                                        b.layout, &p.beta, d.device, d.layout, d.device, d.layout,
                                        &result.algo, workspace, WORKSPACE, stream),
                         shift ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS);
    }
    OK(cudaStreamSynchronize(stream));
    OK(cublasLtMatmulDescDestroy(desc));
    OK(cublasLtMatmulPreferenceDestroy(preference));
    drop(&a);
    drop(&b);
    drop(&d);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_product__transposes_orders_types_and_batches),
        TEST(test_product__tf32_rounds_operands_to_nearest),
        TEST(test_product__gelu_with_bias_and_its_gradient),
        TEST(test_product__sums_of_the_operands),
        TEST(test_product__refuses_bad_operands),
        TEST(test_product__refuses_bad_epilogues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
