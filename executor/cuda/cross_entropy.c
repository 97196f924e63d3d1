/* cross_entropy, its gradient and the parts it decomposes into. The loss over all rows is the sum
 * of the losses of rows, in one order. */
#include "core/graph/ops/cross_entropy.h"

#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/rows/cross_entropy.h"

static dtp_cuda_numbers numbers_of(const dtp_view *view)
{
    return view == NULL ? (dtp_cuda_numbers){NULL, 0}
                        : (dtp_cuda_numbers){view->data, (int32_t)view->local.dtype};
}

/* ---- rows with labels --------------------------------------------------------------------------
 */

/* A call and the views that it walks, NULL where it has none. */
typedef struct loss_state {
    dtp_cuda_loss_call call;
    const dtp_view *views[DTP_CUDA_LOSS_VIEWS];
    dtp_loss_terms terms;
    dtp_dim_id over;
    int64_t rows; /* global */
    int32_t reduce;
} loss_state;

/* A nest over rows; views that are NULL take no part. */
static dtp_status nest_rows(dtp_cuda_nest *out, int32_t n_dims, const dtp_tdim *dims,
                            int32_t n_views, const dtp_view *const *views, dtp_err *err)
{
    const dtp_view none = {0}, *all[DTP_NEST_VIEWS];
    dtp_nest nest;
    for (int32_t v = 0; v < n_views; v++) {
        all[v] = views[v] == NULL ? &none : views[v];
    }
    dtp_nest_make(&nest, n_dims, dims, n_views, all);
    return dtp_cuda_nest_of(&nest, out, err);
}

/* Rows are those of the labels' dims. */
static dtp_status bind_loss(const dtp_kernel_args *args, const dtp_view *const *views,
                            dtp_arena *arena, void **state, dtp_err *err)
{
    const dtp_view *labels = views[DTP_CUDA_LOSS_LABELS], *logits = views[DTP_CUDA_LOSS_LOGITS];
    loss_state *s;
    DTP_CUDA_STATE(arena, state, s, err);
    s->terms = dtp_loss_terms_of(args->call);
    s->over = dtp_call_dim(args->call, "over");
    s->rows = dtp_view_global_rows(labels, labels->local.rank, labels->local.dims);
    s->reduce = DTP_LOSS_NONE;
    for (int32_t v = 0; v < DTP_CUDA_LOSS_VIEWS; v++) {
        s->views[v] = views[v];
        s->call.step[v] = views[v] == NULL ? 0 : dtp_view_stride(views[v], s->over);
    }
    s->call.operand = (int32_t)(labels - args->in);
    s->call.smoothing = s->terms.smoothing;
    s->call.ignore = s->terms.ignore;
    s->call.has_ignore = s->terms.has_ignore;
    s->call.size = INT64_MAX;
    if (logits != NULL) {
        s->call.local = dtp_ttype_size(&logits->local, s->over);
        s->call.size = dtp_view_global(logits, s->over);
    } else if (s->terms.weights >= 0) {
        s->call.size = args->in[s->terms.weights].local.dims[0].size;
    }
    return nest_rows(&s->call.rows, labels->local.rank, labels->local.dims, DTP_CUDA_LOSS_VIEWS,
                     views, err);
}

/* The call with the addresses and the offset of this run. */
static dtp_cuda_loss_call *load(const dtp_kernel_args *args)
{
    loss_state *s = args->state;
    dtp_cuda_loss_call *c = &s->call;
    for (int32_t v = 0; v < DTP_CUDA_LOSS_VIEWS; v++) {
        c->view[v] = numbers_of(s->views[v]);
    }
    c->weights = numbers_of(s->terms.weights < 0 ? NULL : &args->in[s->terms.weights]);
    c->total = numbers_of(s->terms.total < 0 ? NULL : &args->in[s->terms.total]);
    c->first = s->views[DTP_CUDA_LOSS_LOGITS] == NULL
                   ? 0
                   : dtp_view_offset(s->views[DTP_CUDA_LOSS_LOGITS], s->over);
    c->factor = s->reduce == DTP_LOSS_MEAN ? 1.0 / (double)s->rows : 1.0;
    c->error = args->error;
    return c;
}

static dtp_status cross_entropy_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                     dtp_err *err)
{
    const dtp_view *views[DTP_CUDA_LOSS_VIEWS] = {&args->in[0], &args->in[1], &args->out[1],
                                                  &args->out[0], NULL};
    DTP_TRY(bind_loss(args, views, arena, state, err));
    ((loss_state *)*state)->reduce = (int32_t)dtp_call_int(args->call, "reduce");
    return DTP_OK;
}

static dtp_status cross_entropy_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const cudaStream_t queue = dtp_cuda_stream(args);
    const loss_state *s = args->state;
    dtp_cuda_loss_call *c = load(args);
    const bool whole = s->reduce != DTP_LOSS_NONE;
    c->row_loss = whole ? args->workspace : NULL;
    c->row_weight = whole ? (float *)args->workspace + c->rows.total : NULL;
    if (c->rows.total > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_loss_forward(queue, c));
    }
    if (whole) {
        const bool weighted =
            s->reduce == DTP_LOSS_MEAN && (s->terms.weights >= 0 || s->terms.has_ignore);
        const dtp_cuda_loss_sum sum = {.rows = c->rows.total,
                                       .losses = c->row_loss,
                                       .weights = weighted ? c->row_weight : NULL,
                                       .loss = c->view[DTP_CUDA_LOSS_LOSS],
                                       .factor = weighted ? 1.0 : c->factor};
        DTP_CUDA_TRY(err, dtp_cuda_loss_total(queue, &sum));
    }
    return DTP_OK;
}

static dtp_status cross_entropy_grad_bind(const dtp_kernel_args *args, dtp_arena *arena,
                                          void **state, dtp_err *err)
{
    const dtp_view *in = args->in;
    const dtp_view *views[DTP_CUDA_LOSS_VIEWS] = {&in[0], &in[1], &in[2], &in[3], &args->out[0]};
    DTP_TRY(bind_loss(args, views, arena, state, err));
    ((loss_state *)*state)->reduce = (int32_t)dtp_call_int(args->call, "reduce");
    return DTP_OK;
}

static dtp_status cross_entropy_grad_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_cuda_loss_call *c = load(args);
    if (c->rows.total > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_loss_backward(dtp_cuda_stream(args), c));
    }
    return DTP_OK;
}

static dtp_status pick_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    const dtp_view *views[DTP_CUDA_LOSS_VIEWS] = {&args->in[0], &args->in[1], NULL, &args->out[0],
                                                  NULL};
    return bind_loss(args, views, arena, state, err);
}

static dtp_status pick_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_cuda_loss_call *c = load(args);
    if (c->rows.total > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_loss_pick(dtp_cuda_stream(args), c));
    }
    return DTP_OK;
}

static dtp_status label_weight_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                    dtp_err *err)
{
    const dtp_view *views[DTP_CUDA_LOSS_VIEWS] = {NULL, &args->in[0], NULL, &args->out[0], NULL};
    return bind_loss(args, views, arena, state, err);
}

/* Labels lie below the number of weights, if there are any. */
static dtp_status label_weight_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const cudaStream_t queue = dtp_cuda_stream(args);
    dtp_cuda_loss_call *c = load(args);
    c->row_weight = args->workspace;
    if (c->rows.total > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_loss_label_weight(queue, c));
    }
    const dtp_cuda_loss_sum sum = {.rows = c->rows.total,
                                   .losses = c->row_weight,
                                   .loss = numbers_of(&args->out[1]),
                                   .factor = 1.0};
    DTP_CUDA_TRY(err, dtp_cuda_loss_total(queue, &sum));
    return DTP_OK;
}

/* ---- finish ------------------------------------------------------------------------------------
 */

/* Operands m, s, t and perhaps a and the total weight; outputs loss, lse. */
static void finish_views(const dtp_kernel_args *args, const dtp_view *views[DTP_CUDA_FINISH_VIEWS])
{
    const bool none = dtp_call_int(args->call, "reduce") == DTP_LOSS_NONE;
    views[0] = &args->in[0];
    views[1] = &args->in[1];
    views[2] = &args->in[2];
    views[3] = args->call->n_in > 3 ? &args->in[3] : NULL;
    views[4] = &args->out[1];
    views[5] = none ? &args->out[0] : NULL;
}

static dtp_status finish_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                              dtp_err *err)
{
    const dtp_view *views[DTP_CUDA_FINISH_VIEWS];
    dtp_cuda_finish_call *c;
    DTP_CUDA_STATE(arena, state, c, err);
    finish_views(args, views);
    return nest_rows(&c->rows, views[0]->local.rank, views[0]->local.dims, DTP_CUDA_FINISH_VIEWS,
                     views, err);
}

static dtp_status finish_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const cudaStream_t queue = dtp_cuda_stream(args);
    const int64_t reduce = dtp_call_int(args->call, "reduce");
    const dtp_view *m = &args->in[0], *views[DTP_CUDA_FINISH_VIEWS];
    dtp_cuda_finish_call *c = args->state;
    finish_views(args, views);
    for (int32_t v = 0; v < DTP_CUDA_FINISH_VIEWS; v++) {
        c->view[v] = numbers_of(views[v]);
    }
    c->row_loss = reduce == DTP_LOSS_NONE ? NULL : args->workspace;
    if (c->rows.total > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_loss_finish(queue, c));
    }
    if (reduce != DTP_LOSS_NONE) {
        const bool mean = reduce == DTP_LOSS_MEAN, weighted = mean && args->call->n_in > 4;
        const double rows = (double)dtp_view_global_rows(m, m->local.rank, m->local.dims);
        const dtp_cuda_loss_sum sum = {.rows = c->rows.total,
                                       .losses = c->row_loss,
                                       .total = numbers_of(weighted ? &args->in[4] : NULL),
                                       .loss = numbers_of(&args->out[0]),
                                       .factor = mean && !weighted ? 1.0 / rows : 1.0};
        DTP_CUDA_TRY(err, dtp_cuda_loss_total(queue, &sum));
    }
    return DTP_OK;
}

const dtp_kernel dtp_cuda_cross_entropy[] = {
    {"cross_entropy", cross_entropy_kernel, cross_entropy_bind, DTP_CUDA_BOTH},
    {"cross_entropy_grad", cross_entropy_grad_kernel, cross_entropy_grad_bind, DTP_CUDA_BOTH},
    {"pick", pick_kernel, pick_bind, DTP_CUDA_BOTH},
    {"label_weight", label_weight_kernel, label_weight_bind, DTP_CUDA_BOTH},
    {"cross_entropy_finish", finish_kernel, finish_bind, DTP_CUDA_FLOATS},
    {.op = NULL}};
