/* Products of bf16 on oneDNN 2; f32 too, to compare with. */
#include "executor/cpu/gemm/gemm_provider.h"

#include <stdlib.h>

#include <dnnl.h>

#include "core/base/status.h"

enum { A, B, C, SCRATCH, N_MEMORIES };

typedef struct product {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[N_MEMORIES];
} product;

static bool takes(const dtp_gemm_desc *g)
{
    const bool sized = g->m > 0 && g->n > 0 && g->k > 0;
    const bool bf16 = g->ab_type == DTP_BF16 && (g->c_type == DTP_BF16 || g->c_type == DTP_F32) &&
                      (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) ==
                          dnnl_cpu_isa_avx512_core_bf16;
    return sized && (bf16 || (g->ab_type == DTP_F32 && g->c_type == DTP_F32));
}

static dtp_status check(dnnl_status_t status, const char *what, dtp_err *err)
{
    return status == dnnl_success
               ? DTP_OK
               : DTP_FAIL(err, status == dnnl_out_of_memory ? DTP_NOMEM : DTP_UNSUPPORTED,
                          "oneDNN: %s failed with status %d", what, (int)status);
}

static dtp_status describe(dtp_dtype type, bool trans, const int64_t size[2], int64_t ld,
                           dnnl_memory_desc_t *out, dtp_err *err)
{
    ld = dtp_gemm_ld(ld, trans ? size[0] : size[1]);
    const dnnl_dims_t dims = {size[0], size[1]}, strides = {trans ? 1 : ld, trans ? ld : 1};
    return check(dnnl_memory_desc_init_by_strides(out, 2, dims,
                                                  type == DTP_F32 ? dnnl_f32 : dnnl_bf16, strides),
                 "a memory descriptor", err);
}

/* alpha, beta and who owns the scratch memory. */
static dtp_status set_attributes(const dtp_gemm_desc *g, dnnl_primitive_attr_t attr, dtp_err *err)
{
    dnnl_post_ops_t sum = NULL;
    dnnl_status_t s = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (s == dnnl_success && (g->alpha < 1.0f || g->alpha > 1.0f)) {
        s = dnnl_primitive_attr_set_output_scales(attr, 1, 0, &g->alpha);
    }
    if (s == dnnl_success && (g->beta < 0.0f || g->beta > 0.0f)) {
        s = dnnl_post_ops_create(&sum);
        s = s == dnnl_success ? dnnl_post_ops_append_sum(sum, g->beta) : s;
        s = s == dnnl_success ? dnnl_primitive_attr_set_post_ops(attr, sum) : s;
        (void)dnnl_post_ops_destroy(sum);
    }
    return check(s, "an attribute", err);
}

static dtp_status make(const dtp_gemm_desc *g, product *p, dnnl_primitive_attr_t attr,
                       dnnl_primitive_desc_t *desc, size_t *scratch_bytes, dtp_err *err)
{
    dnnl_memory_desc_t a, b, c;
    dnnl_matmul_desc_t matmul;
    DTP_TRY(describe(g->ab_type, g->trans_a, (int64_t[]){g->m, g->k}, g->lda, &a, err));
    DTP_TRY(describe(g->ab_type, g->trans_b, (int64_t[]){g->k, g->n}, g->ldb, &b, err));
    DTP_TRY(describe(g->c_type, false, (int64_t[]){g->m, g->n}, g->ldc, &c, err));
    DTP_TRY(set_attributes(g, attr, err));
    DTP_TRY(check(dnnl_matmul_desc_init(&matmul, &a, &b, NULL, &c), "a descriptor", err));
    DTP_TRY(check(dnnl_primitive_desc_create(desc, &matmul, attr, p->engine, NULL),
                  "a matrix product", err));
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(*desc, dnnl_query_scratchpad_md, 0);
    *scratch_bytes = dnnl_memory_desc_get_size(scratch);
    DTP_TRY(check(dnnl_primitive_create(&p->primitive, *desc), "a primitive", err));
    const dnnl_memory_desc_t *const types[N_MEMORIES] = {&a, &b, &c, scratch};
    for (int k = 0; k < N_MEMORIES; k++) {
        DTP_TRY(check(dnnl_memory_create(&p->memory[k], types[k], p->engine, DNNL_MEMORY_NONE),
                      "a memory object", err));
    }
    return check(dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags), "a stream",
                 err);
}

static void unbind(void *state)
{
    product *p = state;
    for (int k = 0; p != NULL && k < N_MEMORIES; k++) {
        (void)dnnl_memory_destroy(p->memory[k]);
    }
    if (p != NULL) {
        (void)dnnl_stream_destroy(p->stream);
        (void)dnnl_primitive_destroy(p->primitive);
        (void)dnnl_engine_destroy(p->engine);
    }
    free(p);
}

static dtp_status bind(const dtp_gemm_desc *g, void **state, size_t *scratch_bytes, dtp_err *err)
{
    product *p = calloc(1, sizeof *p);
    DTP_TRY(DTP_MEMORY(err, p));
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    const int entered = dtp_gemm_enter(); /* a primitive is made for so many threads */
    dtp_status s = check(dnnl_engine_create(&p->engine, dnnl_cpu, 0), "an engine", err);
    s = s == DTP_OK ? check(dnnl_primitive_attr_create(&attr), "an attribute", err) : s;
    s = s == DTP_OK ? make(g, p, attr, &desc, scratch_bytes, err) : s;
    dtp_gemm_leave(entered);
    (void)dnnl_primitive_desc_destroy(desc);
    (void)dnnl_primitive_attr_destroy(attr);
    if (s != DTP_OK) {
        unbind(p);
        return s;
    }
    *state = p;
    return DTP_OK;
}

static void *writable(const void *data)
{
    union {
        const void *from;
        void *to;
    } u = {data};
    return u.to;
}

static void run(void *state, const dtp_gemm_desc *g, void *scratch)
{
    static const int arguments[N_MEMORIES] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                              DNNL_ARG_SCRATCHPAD};
    product *p = state;
    void *const data[N_MEMORIES] = {writable(g->a), writable(g->b), g->c, scratch};
    dnnl_exec_arg_t list[N_MEMORIES];
    for (int k = 0; k < N_MEMORIES; k++) {
        list[k] = (dnnl_exec_arg_t){arguments[k], p->memory[k]};
        (void)dnnl_memory_set_data_handle(p->memory[k], data[k]);
    }
    (void)dnnl_primitive_execute(p->primitive, p->stream, N_MEMORIES, list);
}

const dtp_gemm_provider dtp_gemm_onednn = {
    .name = "onednn", .takes = takes, .bind = bind, .unbind = unbind, .run = run};
