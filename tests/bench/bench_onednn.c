/* Convolutions by oneDNN in its own order of channels. */
#include "tests/bench/bench_onednn.h"

#ifdef BENCH_ONEDNN
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <dnnl.h>

enum { PARTS = 3, ROUNDS = 1000 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static dnnl_status_t describe(const bench_conv *c, dnnl_engine_t engine, dnnl_primitive_desc_t *out)
{
    const int64_t places = (c->image + c->stride - 1) / c->stride, before = c->kernel / 2;
    const int64_t after = (places - 1) * c->stride + c->kernel - c->image - before;
    const dnnl_dims_t sizes[PARTS] = {{c->batch, c->in, c->image, c->image},
                                      {c->out, c->in, c->kernel, c->kernel},
                                      {c->batch, c->out, places, places}};
    const dnnl_dims_t stride = {c->stride, c->stride}, dilation = {0, 0};
    const dnnl_dims_t pad[2] = {{before, before}, {after, after}};
    dnnl_memory_desc_t m[PARTS];
    dnnl_convolution_desc_t d;
    dnnl_primitive_desc_t forward;
    for (int i = 0; i < PARTS; i++) {
        (void)dnnl_memory_desc_init_by_tag(&m[i], 4, sizes[i], c->bf16 ? dnnl_bf16 : dnnl_f32,
                                           dnnl_format_tag_any);
    }
    dnnl_status_t s = dnnl_dilated_convolution_forward_desc_init(
        &d, dnnl_forward_training, dnnl_convolution_direct, &m[0], &m[1], NULL, &m[2], stride,
        dilation, pad[0], pad[1]);
    s = s == dnnl_success ? dnnl_primitive_desc_create(&forward, &d, NULL, engine, NULL) : s;
    *out = forward;
    if (s != dnnl_success || c->result == 'y') {
        return s;
    }
    s = c->result == 'x'
            ? dnnl_dilated_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, &m[0],
                                                               &m[1], &m[2], stride, dilation,
                                                               pad[0], pad[1])
            : dnnl_dilated_convolution_backward_weights_desc_init(&d, dnnl_convolution_direct,
                                                                  &m[0], &m[1], NULL, &m[2], stride,
                                                                  dilation, pad[0], pad[1]);
    return s == dnnl_success ? dnnl_primitive_desc_create(out, &d, NULL, engine, forward) : s;
}

double bench_onednn(const bench_conv *c)
{
    const bool x = c->result == 'x', w = c->result == 'w';
    const dnnl_query_t query[PARTS] = {x ? dnnl_query_diff_src_md : dnnl_query_src_md,
                                       w ? dnnl_query_diff_weights_md : dnnl_query_weights_md,
                                       x || w ? dnnl_query_diff_dst_md : dnnl_query_dst_md};
    const int argument[PARTS] = {x ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC,
                                 w ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS,
                                 x || w ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST};
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t list[PARTS];
    void *data[PARTS];
    double best = 0.0;
    omp_set_num_threads(1);
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) != dnnl_success ||
        describe(c, engine, &desc) != dnnl_success ||
        dnnl_primitive_create(&primitive, desc) != dnnl_success) {
        return 0.0;
    }
    for (int i = 0; i < PARTS; i++) {
        const dnnl_memory_desc_t *m = dnnl_primitive_desc_query_md(desc, query[i], 0);
        const size_t bytes = dnnl_memory_desc_get_size(m);
        data[i] = aligned_alloc(64, (bytes + 63) / 64 * 64);
        memset(data[i], 0x3f, bytes); /* 0.75 */
        list[i].arg = argument[i];
        (void)dnnl_memory_create(&list[i].memory, m, engine, data[i]);
    }
    const double start = now_s();
    for (int i = 0; i < 5 || (i < ROUNDS && now_s() - start < 0.25); i++) {
        double t = now_s();
        (void)dnnl_primitive_execute(primitive, stream, PARTS, list);
        t = now_s() - t;
        best = i == 0 || t < best ? t : best;
    }
    for (int i = 0; i < PARTS; i++) {
        (void)dnnl_memory_destroy(list[i].memory);
        free(data[i]);
    }
    (void)dnnl_primitive_destroy(primitive);
    (void)dnnl_primitive_desc_destroy(desc);
    (void)dnnl_stream_destroy(stream);
    (void)dnnl_engine_destroy(engine);
    return best;
}
#else
double bench_onednn(const bench_conv *conv)
{
    (void)conv;
    return 0.0;
}
#endif
