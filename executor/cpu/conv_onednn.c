/* Convolutions on oneDNN 2 (executor/cpu/conv_library.h). A unit of work is a piece of the batch,
 * of groups and of channels of the result; a weight gradient sums the pieces of the batch in their
 * order. Pieces depend on shapes alone, so results do not depend on the number of threads. */
#include "executor/cpu/conv_library.h"

#include <stdlib.h>
#include <string.h>

#include <dnnl.h>

#include "executor/cpu/gemm/gemm.h"
#include "executor/cpu/loops/parallel.h"

enum { MOST_DIMS = 3 + DTP_CONV_AXES, SCRATCH = DTP_CONV_PARTS, SUM, N_MEMORIES };

/* What a thread works on: pieces in the order of the tensors and in that of the library, its
 * scratch memory, and a weight gradient that is added to those of the pieces before. */
typedef struct work_set {
    dnnl_stream_t stream;
    dnnl_memory_t given[DTP_CONV_PARTS], own[N_MEMORIES];
    int64_t at[N_MEMORIES]; /* bytes in the workspace */
} work_set;

struct dtp_conv_library {
    dtp_conv_plan plan;
    dnnl_engine_t engine;
    dnnl_primitive_t conv, reorder[DTP_CONV_PARTS]; /* NULL: the pieces are used where they are */
    dnnl_memory_desc_t given[DTP_CONV_PARTS], own[N_MEMORIES];
    int64_t crop;     /* of x: elements before those that windows reach */
    bool all_reached; /* by windows */
    int64_t w_bytes;  /* of a piece of w in the workspace */
    int64_t
        n_weights; /* pieces of w, at the begin of the workspace; of a weight gradient by part */
    int32_t n_sets;
    work_set set[DTP_CONV_MOST_SETS];
};

static dtp_status check(dnnl_status_t status, const char *what, dtp_err *err)
{
    return status == dnnl_success
               ? DTP_OK
               : DTP_FAIL(err, status == dnnl_out_of_memory ? DTP_NOMEM : DTP_UNSUPPORTED,
                          "oneDNN: %s failed with status %d", what, (int)status);
}

/* ---- descriptors ---- */

static dnnl_data_type_t type_of(dtp_dtype dtype)
{
    return dtype == DTP_F32 ? dnnl_f32 : dnnl_bf16;
}

/* Channels of a tensor: groups, and those of a group. */
static void channels_of(const dtp_conv_plan *p, dtp_conv_part part, int64_t *channels,
                        int64_t *stride)
{
    const dtp_conv_run *run = part == DTP_CONV_X ? &p->ins : &p->outs;
    const int64_t of_group = part == DTP_CONV_X ? p->piece.ins : p->piece.outs;
    *channels = p->piece.groups * of_group;
    *stride = run->n > 0 ? run->stride[part][0] : p->groups.n > 0 ? p->groups.stride[part][0] : 0;
}

/* A piece as it lies, and in the order that the library wants. `reached`: elements of x that
 * windows reach, per axis. */
static dtp_status describe(dtp_conv_library *l, dtp_conv_part part, int32_t axes,
                           const int64_t reached[DTP_CONV_AXES], dtp_err *err)
{
    const dtp_conv_plan *p = &l->plan;
    dnnl_dims_t dims, strides;
    int32_t n = 0;
    if (part == DTP_CONV_W) {
        const dtp_conv_run *const runs[] = {&p->groups, &p->outs, &p->ins};
        const int64_t sizes[] = {p->piece.groups, p->piece.outs, p->piece.ins};
        for (int32_t i = p->groups.total > 1 ? 0 : 1; i < 3; i++) {
            dims[n] = sizes[i];
            strides[n++] = runs[i]->n > 0 ? runs[i]->stride[part][0] : 0;
        }
    } else {
        dims[n] = p->piece.batch;
        strides[n++] = p->batch.n > 0 ? p->batch.stride[part][0] : 0;
        channels_of(p, part, &dims[n], &strides[n]);
        n++;
    }
    for (int32_t i = DTP_CONV_AXES - axes; i < DTP_CONV_AXES; i++) {
        dims[n] = part == DTP_CONV_X   ? reached[i]
                  : part == DTP_CONV_W ? p->axis[i].size
                                       : p->axis[i].out;
        strides[n++] = p->step[part][i];
    }
    int64_t most = 1;
    for (int32_t i = 0; i < n; i++) {
        most = dims[i] * strides[i] > most ? dims[i] * strides[i] : most;
    }
    for (int32_t i = 0; i < n; i++) { /* of a dim of size 1 any does */
        strides[i] = dims[i] == 1 || strides[i] == 0 ? most : strides[i];
    }
    const dnnl_data_type_t type = type_of(p->dtype[part]);
    DTP_TRY(check(dnnl_memory_desc_init_by_strides(&l->given[part], n, dims, type, strides),
                  "a memory descriptor", err));
    /* Channels that are neighbours are used where they are. */
    const bool plain = part != DTP_CONV_W && strides[1] == 1 && p->piece.all_channels;
    l->own[part] = l->given[part];
    return plain ? DTP_OK
                 : check(dnnl_memory_desc_init_by_tag(
                             &l->own[part], n, dims,
                             part == DTP_CONV_W && p->result == part ? dnnl_f32 : type,
                             dnnl_format_tag_any),
                         "a memory descriptor", err);
}

/* Sizes of x that windows reach, padding and where x begins. False where they reach nothing. */
static bool set_reach(dtp_conv_library *l, int64_t reached[DTP_CONV_AXES], dnnl_dims_t pad[2],
                      int32_t axes)
{
    const dtp_conv_plan *p = &l->plan;
    bool any = true;
    l->all_reached = true;
    l->crop = 0;
    for (int32_t i = 0; i < DTP_CONV_AXES; i++) {
        const dtp_conv_axis *a = &p->axis[i];
        const int64_t from = a->before < 0 ? -a->before : 0;
        const int64_t end = (a->out - 1) * a->stride + (a->size - 1) * a->dilation + 1 - a->before;
        const int64_t to = end < a->in ? end : a->in;
        reached[i] = to - from;
        any = any && to > from;
        l->all_reached = l->all_reached && reached[i] == a->in;
        l->crop += from * p->step[DTP_CONV_X][i];
        if (i >= DTP_CONV_AXES - axes) {
            pad[0][i - (DTP_CONV_AXES - axes)] = a->before > 0 ? a->before : 0;
            pad[1][i - (DTP_CONV_AXES - axes)] = end - to;
        }
    }
    return any;
}

static dnnl_status_t make_desc(const dtp_conv_library *l, int32_t axes, dnnl_dims_t pad[2],
                               dnnl_primitive_attr_t attr, dnnl_primitive_desc_t made[2])
{
    const dtp_conv_plan *p = &l->plan;
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    const dnnl_memory_desc_t *x = &l->own[DTP_CONV_X], *w = &l->own[DTP_CONV_W],
                             *y = &l->own[DTP_CONV_Y];
    dnnl_dims_t stride, dilation;
    for (int32_t i = 0; i < axes; i++) {
        stride[i] = p->axis[DTP_CONV_AXES - axes + i].stride;
        dilation[i] = p->axis[DTP_CONV_AXES - axes + i].dilation - 1;
    }
    dnnl_convolution_desc_t desc;
    dnnl_memory_desc_t forward_w = *w; /* the hint has one type */
    if (p->result == DTP_CONV_W) {
        forward_w.data_type = x->data_type;
    }
    dnnl_status_t s = dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_training,
                                                                 direct, x, &forward_w, NULL, y,
                                                                 stride, dilation, pad[0], pad[1]);
    s = s == dnnl_success ? dnnl_primitive_desc_create(&made[0], &desc, attr, l->engine, NULL) : s;
    if (s != dnnl_success || p->result == DTP_CONV_Y) {
        return s;
    }
    s = p->result == DTP_CONV_X
            ? dnnl_dilated_convolution_backward_data_desc_init(&desc, direct, x, w, y, stride,
                                                               dilation, pad[0], pad[1])
            : dnnl_dilated_convolution_backward_weights_desc_init(&desc, direct, x, w, NULL, y,
                                                                  stride, dilation, pad[0], pad[1]);
    return s == dnnl_success ? dnnl_primitive_desc_create(&made[1], &desc, attr, l->engine, made[0])
                             : s;
}

static dnnl_query_t query_of(dtp_conv_part result, int32_t part)
{
    static const dnnl_query_t of[] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md,
                                      dnnl_query_scratchpad_md};
    static const dnnl_query_t derivatives[] = {dnnl_query_diff_src_md, dnnl_query_diff_weights_md,
                                               dnnl_query_diff_dst_md};
    const bool derivative = part < SCRATCH && (result == (dtp_conv_part)part || part == DTP_CONV_Y);
    return result != DTP_CONV_Y && derivative ? derivatives[part] : of[part];
}

static int argument_of(dtp_conv_part result, int32_t part)
{
    static const int of[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    static const int derivatives[] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST};
    const bool derivative = part < SCRATCH && (result == (dtp_conv_part)part || part == DTP_CONV_Y);
    return result != DTP_CONV_Y && derivative ? derivatives[part] : of[part];
}

/* Those by products or plain loops are no better than ours. */
static bool is_fast(const_dnnl_primitive_desc_t desc)
{
    const char *name = NULL;
    return dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)&name) ==
               dnnl_success &&
           name != NULL && (strncmp(name, "jit", 3) == 0 || strncmp(name, "brg", 3) == 0);
}

static dtp_status make_reorder(dtp_conv_library *l, dtp_conv_part part, dtp_err *err)
{
    dnnl_primitive_desc_t desc = NULL;
    const bool result = part == l->plan.result;
    const dnnl_memory_desc_t *from = result ? &l->own[part] : &l->given[part];
    const dnnl_memory_desc_t *to = result ? &l->given[part] : &l->own[part];
    if (dnnl_memory_desc_equal(from, to) != 0) {
        return DTP_OK;
    }
    dtp_status s =
        check(dnnl_reorder_primitive_desc_create(&desc, from, l->engine, to, l->engine, NULL),
              "a reorder", err);
    s = s == DTP_OK ? check(dnnl_primitive_create(&l->reorder[part], desc), "a reorder", err) : s;
    (void)dnnl_primitive_desc_destroy(desc);
    return s;
}

/* *made says whether there is a fast kernel. */
static dtp_status make_primitives(dtp_conv_library *l, bool *made, dtp_err *err)
{
    const dtp_conv_plan *p = &l->plan;
    int64_t reached[DTP_CONV_AXES];
    dnnl_dims_t pad[2];
    dnnl_primitive_desc_t desc[2] = {NULL, NULL};
    dnnl_primitive_attr_t attr = NULL;
    int32_t axes = DTP_CONV_AXES;
    while (axes > 1 && p->axis[DTP_CONV_AXES - axes].in == 1 &&
           p->axis[DTP_CONV_AXES - axes].out == 1 && p->axis[DTP_CONV_AXES - axes].size == 1) {
        axes--;
    }
    *made = set_reach(l, reached, pad, axes);
    for (int32_t i = 0; i < DTP_CONV_PARTS && *made; i++) {
        DTP_TRY(describe(l, (dtp_conv_part)i, axes, reached, err));
    }
    if (!*made) {
        return DTP_OK;
    }
    DTP_TRY(check(dnnl_primitive_attr_create(&attr), "an attribute", err));
    dnnl_status_t s = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    s = s == dnnl_success ? make_desc(l, axes, pad, attr, desc) : s;
    const_dnnl_primitive_desc_t used = desc[p->result == DTP_CONV_Y ? 0 : 1];
    *made = s == dnnl_success && is_fast(used);
    dtp_status status = s == dnnl_out_of_memory ? check(s, "a convolution", err) : DTP_OK;
    for (int32_t i = 0; i <= SCRATCH && *made && status == DTP_OK; i++) {
        l->own[i] = *dnnl_primitive_desc_query_md(used, query_of(p->result, i), 0);
        status = i < SCRATCH ? make_reorder(l, (dtp_conv_part)i, err) : DTP_OK;
    }
    l->own[SUM] = l->own[DTP_CONV_W];
    status = *made && status == DTP_OK
                 ? check(dnnl_primitive_create(&l->conv, used), "a convolution", err)
                 : status;
    (void)dnnl_primitive_desc_destroy(desc[1]);
    (void)dnnl_primitive_desc_destroy(desc[0]);
    (void)dnnl_primitive_attr_destroy(attr);
    return status;
}

/* ---- memory ---- */

static int64_t bytes_of(const dtp_conv_library *l, int32_t part)
{
    return ((int64_t)dnnl_memory_desc_get_size(&l->own[part]) + 63) / 64 * 64;
}

/* Of a weight gradient: parts of the batch; else pieces of it; times those of channels. */
static int64_t n_units(const dtp_conv_plan *p)
{
    return (p->result == DTP_CONV_W ? p->piece.parts : p->piece.n[0]) * p->piece.n[1] *
           p->piece.n[2];
}

/* Pieces of a set lie one after the other; those of w before all. */
static dtp_status make_sets(dtp_conv_library *l, const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_conv_plan *p = &l->plan;
    const bool sums = p->result == DTP_CONV_W && p->piece.n[0] > p->piece.parts;
    l->w_bytes = bytes_of(l, DTP_CONV_W);
    l->n_weights =
        l->reorder[DTP_CONV_W] != NULL ? p->piece.parts * p->piece.n[1] * p->piece.n[2] : 0;
    int64_t at = 0, of[N_MEMORIES];
    for (int32_t i = 0; i < N_MEMORIES; i++) {
        const bool used =
            i == SCRATCH || (i == SUM ? sums : i != DTP_CONV_W && l->reorder[i] != NULL);
        of[i] = at;
        at += used ? bytes_of(l, i) : 0;
    }
    const int64_t begin = l->n_weights * l->w_bytes, left = args->workspace_bytes - begin;
    const int64_t units = n_units(p);
    while (l->n_sets < DTP_CONV_MOST_SETS && l->n_sets < args->threads && l->n_sets < units &&
           (l->n_sets + 1) * at <= left) {
        work_set *s = &l->set[l->n_sets];
        for (int32_t i = 0; i < N_MEMORIES; i++) {
            s->at[i] = begin + l->n_sets * at + of[i];
            DTP_TRY(check(dnnl_memory_create(&s->own[i], &l->own[i], l->engine, DNNL_MEMORY_NONE),
                          "a memory object", err));
            if (i < DTP_CONV_PARTS) {
                DTP_TRY(check(
                    dnnl_memory_create(&s->given[i], &l->given[i], l->engine, DNNL_MEMORY_NONE),
                    "a memory object", err));
            }
        }
        DTP_TRY(check(dnnl_stream_create(&s->stream, l->engine, dnnl_stream_default_flags),
                      "a stream", err));
        l->n_sets++;
    }
    return DTP_OK;
}

static void destroy(void *library)
{
    dtp_conv_library *l = library;
    for (int32_t k = 0; k < DTP_CONV_MOST_SETS; k++) {
        for (int32_t i = 0; i < N_MEMORIES; i++) {
            (void)dnnl_memory_destroy(l->set[k].own[i]);
            (void)dnnl_memory_destroy(i < DTP_CONV_PARTS ? l->set[k].given[i] : NULL);
        }
        (void)dnnl_stream_destroy(l->set[k].stream);
    }
    for (int32_t i = 0; i < DTP_CONV_PARTS; i++) {
        (void)dnnl_primitive_destroy(l->reorder[i]);
    }
    (void)dnnl_primitive_destroy(l->conv);
    (void)dnnl_engine_destroy(l->engine);
    free(l);
}

dtp_status dtp_conv_library_bind(const dtp_kernel_args *args, const dtp_conv_plan *plan,
                                 dtp_arena *arena, dtp_conv_library **out, dtp_err *err)
{
    const bool bf16 = plan->dtype[DTP_CONV_X] == DTP_BF16 || plan->dtype[DTP_CONV_W] == DTP_BF16;
    bool made = false;
    *out = NULL;
    if (plan->piece.bytes == 0 ||
        (bf16 && (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) !=
                     dnnl_cpu_isa_avx512_core_bf16)) {
        return DTP_OK;
    }
    dtp_conv_library *l = calloc(1, sizeof *l);
    DTP_TRY(DTP_MEMORY(err, l));
    l->plan = *plan;
    const int entered = dtp_gemm_enter(); /* a primitive is made for so many threads */
    dtp_status s = check(dnnl_engine_create(&l->engine, dnnl_cpu, 0), "an engine", err);
    s = s == DTP_OK ? make_primitives(l, &made, err) : s;
    s = s == DTP_OK && made ? make_sets(l, args, err) : s;
    dtp_gemm_leave(entered);
    if (s != DTP_OK || l->n_sets == 0) {
        destroy(l);
        return s;
    }
    *out = l;
    return dtp_arena_at_end(arena, destroy, l, err);
}

/* ---- runs ---- */

/* Numbers of a piece of the batch, of groups, of channels. */
typedef struct piece_id {
    int64_t batch, group, channel;
} piece_id;

static void *address(const dtp_conv_library *l, const dtp_kernel_args *args, dtp_conv_part part,
                     const piece_id *id)
{
    const dtp_conv_plan *p = &l->plan;
    const dtp_conv_run *cut = p->result == DTP_CONV_X ? &p->ins : &p->outs;
    const int64_t of_cut = p->result == DTP_CONV_X ? p->piece.ins : p->piece.outs;
    const int64_t at = dtp_conv_offset(&p->batch, part, id->batch * p->piece.batch) +
                       dtp_conv_offset(&p->groups, part, id->group * p->piece.groups) +
                       dtp_conv_offset(cut, part, id->channel * of_cut) +
                       (part == DTP_CONV_X ? l->crop : 0);
    const dtp_view *v = p->at[part] < 0 ? &args->out[0] : &args->in[p->at[part]];
    return (char *)(uintptr_t)v->data + at * dtp_dtype_bytes(p->dtype[part]);
}

static void reorder(const dtp_conv_library *l, const work_set *s, dtp_conv_part part, void *given,
                    void *own)
{
    const bool result = part == l->plan.result;
    (void)dnnl_memory_set_data_handle(s->given[part], given);
    (void)dnnl_memory_set_data_handle(s->own[part], own);
    const dnnl_exec_arg_t list[] = {{DNNL_ARG_FROM, result ? s->own[part] : s->given[part]},
                                    {DNNL_ARG_TO, result ? s->given[part] : s->own[part]}};
    (void)dnnl_primitive_execute(l->reorder[part], s->stream, 2, list);
}

static void add(int64_t n, const float *from, float *to)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

/* Piece i of w in the workspace. */
static void *weights_at(const dtp_conv_library *l, const dtp_kernel_args *args, int64_t i)
{
    return (char *)args->workspace + i * l->w_bytes;
}

/* The operands of a piece into the order of the library, the convolution, its result back. Of a
 * weight gradient it stays in the workspace, as piece `weights`, added to what is there unless it
 * is the `first`. */
static void run_piece(const dtp_conv_library *l, const dtp_kernel_args *args, const work_set *s,
                      const piece_id *id, int64_t weights, bool first)
{
    const dtp_conv_plan *p = &l->plan;
    const bool of_w = p->result == DTP_CONV_W;
    char *const space = args->workspace;
    dnnl_exec_arg_t list[SCRATCH + 1];
    void *own[SCRATCH + 1];
    own[SCRATCH] = space + s->at[SCRATCH];
    for (int32_t i = 0; i < SCRATCH; i++) {
        void *const given = address(l, args, (dtp_conv_part)i, id);
        own[i] = l->reorder[i] == NULL ? given
                 : i == DTP_CONV_W     ? weights_at(l, args, weights)
                                       : space + s->at[i];
        if (l->reorder[i] != NULL && i != DTP_CONV_W && (dtp_conv_part)i != p->result) {
            reorder(l, s, (dtp_conv_part)i, given, own[i]);
        }
    }
    own[DTP_CONV_W] = of_w && !first ? space + s->at[SUM] : own[DTP_CONV_W];
    for (int32_t i = 0; i <= SCRATCH; i++) {
        (void)dnnl_memory_set_data_handle(s->own[i], own[i]);
        list[i] = (dnnl_exec_arg_t){argument_of(p->result, i), s->own[i]};
    }
    (void)dnnl_primitive_execute(l->conv, s->stream, SCRATCH + 1, list);
    if (of_w && !first) {
        add(l->w_bytes / (int64_t)sizeof(float), own[DTP_CONV_W], weights_at(l, args, weights));
    }
    if (!of_w && l->reorder[p->result] != NULL) {
        reorder(l, s, p->result, address(l, args, p->result, id), own[p->result]);
    }
}

/* Unit i: a piece, or of a weight gradient those of a part of the batch. */
static void run_unit(const dtp_conv_library *l, const dtp_kernel_args *args, const work_set *s,
                     int64_t i)
{
    const dtp_conv_piece *q = &l->plan.piece;
    const int64_t of_batch = q->n[1] * q->n[2], part = i / of_batch;
    piece_id id = {part, i / q->n[2] % q->n[1], i % q->n[2]};
    if (l->plan.result != DTP_CONV_W) {
        run_piece(l, args, s, &id, i % of_batch, true);
        return;
    }
    const int64_t from = part * q->n[0] / q->parts, to = (part + 1) * q->n[0] / q->parts;
    for (id.batch = from; id.batch < to; id.batch++) {
        run_piece(l, args, s, &id, i, id.batch == from);
    }
}

/* Piece i of w: an operand into the order of the library; a result: the parts are added. */
static void run_weights(const dtp_conv_library *l, const dtp_kernel_args *args, const work_set *s,
                        int64_t i)
{
    const dtp_conv_piece *q = &l->plan.piece;
    const piece_id id = {0, i / q->n[2], i % q->n[2]};
    float *w = weights_at(l, args, i);
    for (int64_t part = 1; part < q->parts; part++) {
        add(l->w_bytes / (int64_t)sizeof(float), weights_at(l, args, part * q->n[1] * q->n[2] + i),
            w);
    }
    reorder(l, s, DTP_CONV_W, address(l, args, DTP_CONV_W, &id), w);
}

void dtp_conv_library_run(const dtp_conv_library *l, const dtp_kernel_args *args)
{
    const dtp_conv_plan *p = &l->plan;
    const bool of_w = p->result == DTP_CONV_W;
    const int64_t weights = l->reorder[DTP_CONV_W] != NULL ? p->piece.n[1] * p->piece.n[2] : 0;
    const int64_t units = n_units(p);
    const int32_t team = dtp_cpu_team_of_products(l->n_sets, p->madds);
    if (!l->all_reached && p->result == DTP_CONV_X) {
        memset(args->out[0].data, 0, (size_t)dtp_ttype_bytes(&args->out[0].local));
    }
    const int entered = dtp_gemm_enter();
#pragma omp parallel num_threads(team) if (team > 1)
    {
        const work_set *s = &l->set[dtp_cpu_thread()];
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < (of_w ? 0 : weights); i++) {
            run_weights(l, args, s, i);
        }
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < units; i++) {
            run_unit(l, args, s, i);
        }
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < (of_w ? weights : 0); i++) {
            run_weights(l, args, s, i);
        }
    }
    dtp_gemm_leave(entered);
}
