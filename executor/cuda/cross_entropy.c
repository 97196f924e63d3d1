/* cross_entropy, its gradient and the parts it decomposes into. The loss over all rows is the sum
 * of the losses of rows, in one order. */
#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/rows/cross_entropy.h"

static dtp_cuda_numbers numbers_of(const dtp_view *view)
{
    return view == NULL ? (dtp_cuda_numbers){NULL, 0}
                        : (dtp_cuda_numbers){view->data, (int32_t)view->local.dtype};
}

/* ---- rows with labels ---- */

typedef struct loss_state {
    dtp_bound_labels of;
    dtp_cuda_loss_call call;
} loss_state;

/* A nest over rows; views that are NULL take no part. */
static dtp_status nest_rows(dtp_cuda_nest *out, const dtp_ttype *rows, int32_t n_views,
                            const dtp_view *const *views, dtp_err *err)
{
    const dtp_view none = {0}, *all[DTP_NEST_VIEWS];
    dtp_nest nest;
    for (int32_t v = 0; v < n_views; v++) {
        all[v] = views[v] == NULL ? &none : views[v];
    }
    dtp_nest_make(&nest, rows->rank, rows->dims, n_views, all);
    return dtp_cuda_nest_of(&nest, out, err);
}

/* Rows are those of the labels' dims. */
static dtp_status bind_loss(const dtp_kernel_args *args, dtp_label_op op, dtp_arena *arena,
                            void **state, dtp_err *err)
{
    const dtp_dim_id over = dtp_call_dim(args->call, "over");
    loss_state *s;
    DTP_STATE(arena, state, s, err);
    dtp_bind_labels(args, op, &s->of);
    const dtp_view *const *views = s->of.rows.views, *labels = views[DTP_LOSS_LABELS];
    s->call = (dtp_cuda_loss_call){.operand = (int32_t)(labels - args->in),
                                   .local = s->of.local,
                                   .size = s->of.size,
                                   .factor = s->of.factor,
                                   .smoothing = s->of.terms.smoothing,
                                   .ignore = s->of.terms.ignore,
                                   .has_ignore = s->of.terms.has_ignore};
    for (int32_t v = 0; v < DTP_LOSS_VIEWS; v++) {
        s->call.step[v] = dtp_view_stride(views[v], over);
    }
    return nest_rows(&s->call.rows, &labels->local, DTP_LOSS_VIEWS, views, err);
}

/* The call with the addresses and the offset of this run. */
static dtp_cuda_loss_call *load(const dtp_kernel_args *args)
{
    loss_state *s = args->state;
    const dtp_loss_terms *t = &s->of.terms;
    for (int32_t v = 0; v < DTP_LOSS_VIEWS; v++) {
        s->call.view[v] = numbers_of(s->of.rows.views[v]);
    }
    s->call.weights = numbers_of(t->weights < 0 ? NULL : &args->in[t->weights]);
    s->call.total = numbers_of(t->total < 0 ? NULL : &args->in[t->total]);
    s->call.first = dtp_labels_first(&s->of);
    s->call.error = args->error;
    return &s->call;
}

static dtp_status cross_entropy_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const cudaStream_t queue = dtp_cuda_stream(args);
    const dtp_bound_labels *of = &((const loss_state *)args->state)->of;
    dtp_cuda_loss_call *c = load(args);
    const bool whole = of->reduce != DTP_LOSS_NONE;
    c->row_loss = whole ? args->workspace : NULL;
    c->row_weight = whole ? (float *)args->workspace + c->rows.total : NULL;
    if (c->rows.total > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_loss_forward(queue, c));
    }
    if (whole) {
        const dtp_cuda_loss_sum sum = {.rows = c->rows.total,
                                       .losses = c->row_loss,
                                       .weights = of->weighted ? c->row_weight : NULL,
                                       .loss = c->view[DTP_LOSS_LOSS],
                                       .factor = of->weighted ? 1.0 : c->factor};
        DTP_CUDA_TRY(err, dtp_cuda_loss_total(queue, &sum));
    }
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

static dtp_status pick_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_cuda_loss_call *c = load(args);
    if (c->rows.total > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_loss_pick(dtp_cuda_stream(args), c));
    }
    return DTP_OK;
}

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

/* ---- finish ---- */

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
    DTP_STATE(arena, state, c, err);
    finish_views(args, views);
    return nest_rows(&c->rows, &views[0]->local, DTP_CUDA_FINISH_VIEWS, views, err);
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

#define BIND(op) DTP_BIND(op, bind_loss, DTP_LABEL_##op)
#define KERNEL(op) {#op, op##_kernel, op##_bind, DTP_NUMBERS},

DTP_LABEL_OPS(BIND)

const dtp_kernel dtp_cuda_cross_entropy[] = {
    DTP_LABEL_OPS(KERNEL){"cross_entropy_finish", finish_kernel, finish_bind, DTP_FLOATS},
    {.op = NULL}};
