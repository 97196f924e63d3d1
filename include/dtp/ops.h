/* Ops on distributed tensors. Every op of the op table can be called (dtp_tensor_call); the
 * functions below are the common ones by name. A call is lowered and run by the very code that runs
 * planned graphs; what it needs is kept, so that the same call again costs a table lookup. The
 * output's layout is the one the cheapest strategy leaves it in, unless `out_layout` asks for one.
 *
 * Operands are positional, as in NumPy: shapes of elementwise operands are aligned at the last dim
 * and dims of size 1 are repeated.
 */
#ifndef DTP_OPS_H
#define DTP_OPS_H

#include "dtp/tensor.h"

DTP_API_BEGIN

typedef enum dtp_arg_kind {
    DTP_ARG_INT,
    DTP_ARG_FLOAT,
    DTP_ARG_ENUM,
    DTP_ARG_DIMS,
    DTP_ARG_INTS
} dtp_arg_kind;

/* An attribute of the op by its key (docs/ops.md). */
typedef struct dtp_arg {
    const char *key;
    dtp_arg_kind kind;
    int64_t i;        /* INT, BOOL, DTYPE */
    double f;         /* FLOAT */
    const char *text; /* ENUM: the choice; DIM, DIMS: letters of `dims`; INTS: "2,1" */
} dtp_arg;

typedef struct dtp_call {
    const char *op;
    /* One letter per dim: operands, then "->", then the first output: "mk,kn->mn". Without "->" the
     * output follows from the op. NULL: elementwise with broadcasting. */
    const char *dims;
    int32_t n_in;
    const dtp_tensor *in;
    int32_t n_args;
    const dtp_arg *args;
    const dtp_layout *out_layout; /* of output 0; NULL: as the op leaves it */
    /* sizes of output dims that no operand has, by letter order of appearance; NULL: none */
    const int64_t *new_sizes;
} dtp_call;

/* Collective. `outs` has room for all outputs of the op, which the caller destroys; on failure none
 * is made. DTP_INVALID in the op's own words, DTP_RANGE for an argument out of bounds. */
dtp_status dtp_tensor_call(const dtp_call *call, dtp_tensor *outs, dtp_err *err) DTP_MUST_CHECK;

/* ---- by name ---- */

/* Axes count from 0; a negative one counts from the last dim (-1). All functions are collective;
 * `out` is a new tensor, the caller's to destroy. DTP_INVALID on shapes or element types that do
 * not fit, with the operands in the message. What each op computes: docs/ops.md. */

/* Product of the operands summed over the letters that the output lacks: "mk,kn->mn". */
dtp_status dtp_tensor_einsum(const char *dims, int32_t n_in, const dtp_tensor *in, dtp_tensor *out,
                             dtp_err *err) DTP_MUST_CHECK;
/* NumPy's: the last dim of a against the last but one of b (the only one of a vector), dims before
 * these are aligned and repeated. */
dtp_status dtp_tensor_matmul(dtp_tensor a, dtp_tensor b, dtp_tensor *out,
                             dtp_err *err) DTP_MUST_CHECK;
/* x[.., in] weight[out, in] (+ bias[out], NULL: none). */
dtp_status dtp_tensor_linear(dtp_tensor x, dtp_tensor weight, const dtp_tensor *bias,
                             dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;

/* Elementwise, with repetition of missing dims and dims of size 1; the logical ones are of bools,
 * with a bool result. */
/* ---- from the op table (tests/lint/op_texts.sh) */
dtp_status dtp_tensor_neg(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_exp(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_log(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_sqrt(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_rsqrt(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_square(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_tanh(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_sigmoid(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_relu(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_gelu(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_erf(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_gelu_erf(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_silu(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_abs(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_sign(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_floor(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_sin(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_cos(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_reciprocal(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_log1p(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_expm1(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_softplus(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_logical_not(dtp_tensor x, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_add(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_sub(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_mul(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_div(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_max(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_min(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_mod(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_logical_and(dtp_tensor a, dtp_tensor b, dtp_tensor *out,
                                  dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_logical_or(dtp_tensor a, dtp_tensor b, dtp_tensor *out,
                                 dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_logical_xor(dtp_tensor a, dtp_tensor b, dtp_tensor *out,
                                  dtp_err *err) DTP_MUST_CHECK;
/* ---- end */
/* `cmp`: "lt", "le", "gt", "ge", "eq", "ne"; the result is bool. */
dtp_status dtp_tensor_compare(const char *cmp, dtp_tensor a, dtp_tensor b, dtp_tensor *out,
                              dtp_err *err) DTP_MUST_CHECK;
/* c (bool) ? a : b. */
dtp_status dtp_tensor_select(dtp_tensor c, dtp_tensor a, dtp_tensor b, dtp_tensor *out,
                             dtp_err *err) DTP_MUST_CHECK;

dtp_status dtp_tensor_scale(dtp_tensor x, double factor, dtp_tensor *out,
                            dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_cast(dtp_tensor x, dtp_dtype dtype, dtp_tensor *out,
                           dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_pow(dtp_tensor x, double exponent, dtp_tensor *out,
                          dtp_err *err) DTP_MUST_CHECK;
/* x where it is positive, else slope x; else alpha (e^x - 1). */
dtp_status dtp_tensor_leaky_relu(dtp_tensor x, double slope, dtp_tensor *out,
                                 dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_elu(dtp_tensor x, double alpha, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
/* x limited to [low, high]. DTP_INVALID when low > high. */
dtp_status dtp_tensor_clamp(dtp_tensor x, double low, double high, dtp_tensor *out,
                            dtp_err *err) DTP_MUST_CHECK;
/* Zero with probability `rate`, else x / (1 - rate); the choice depends on (seed of the mesh,
 * stream, global element index) and nothing else: calls with one stream drop the same elements, so
 * give every call, and every training step, a stream of its own. */
dtp_status dtp_tensor_dropout(dtp_tensor x, double rate, uint32_t stream, dtp_tensor *out,
                              dtp_err *err) DTP_MUST_CHECK;

/* Over the n axes (n = 0: all); `keep`: they stay, with size 1. */
dtp_status dtp_tensor_sum(dtp_tensor x, int32_t n, const int32_t *axes, bool keep, dtp_tensor *out,
                          dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_mean(dtp_tensor x, int32_t n, const int32_t *axes, bool keep, dtp_tensor *out,
                           dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_amax(dtp_tensor x, int32_t n, const int32_t *axes, bool keep, dtp_tensor *out,
                           dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_amin(dtp_tensor x, int32_t n, const int32_t *axes, bool keep, dtp_tensor *out,
                           dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_prod(dtp_tensor x, int32_t n, const int32_t *axes, bool keep, dtp_tensor *out,
                           dtp_err *err) DTP_MUST_CHECK;
/* Over the n axes (n = 0: all), which do not stay: of bools; of floats. `order` of the norm: "1",
 * "2", "inf"; `correction` is taken off the number of elements (1: the unbiased estimate). */
dtp_status dtp_tensor_any(dtp_tensor x, int32_t n, const int32_t *axes, dtp_tensor *out,
                          dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_all(dtp_tensor x, int32_t n, const int32_t *axes, dtp_tensor *out,
                          dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_logsumexp(dtp_tensor x, int32_t n, const int32_t *axes, dtp_tensor *out,
                                dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_norm(dtp_tensor x, const char *order, int32_t n, const int32_t *axes,
                           dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_var(dtp_tensor x, int64_t correction, int32_t n, const int32_t *axes,
                          dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_std(dtp_tensor x, int64_t correction, int32_t n, const int32_t *axes,
                          dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
/* Sums of the elements up to each along an axis. */
dtp_status dtp_tensor_cumsum(dtp_tensor x, int32_t axis, dtp_tensor *out,
                             dtp_err *err) DTP_MUST_CHECK;
/* The k largest along an axis, in order, and their indices (i32). */
dtp_status dtp_tensor_topk(dtp_tensor x, int32_t axis, int64_t k, dtp_tensor *values,
                           dtp_tensor *indices, dtp_err *err) DTP_MUST_CHECK;
/* Index (i32) of the first largest, smallest element along an axis. */
dtp_status dtp_tensor_argmax(dtp_tensor x, int32_t axis, dtp_tensor *out,
                             dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_argmin(dtp_tensor x, int32_t axis, dtp_tensor *out,
                             dtp_err *err) DTP_MUST_CHECK;
/* Elements of x at ids[..] (integers) along an axis: the dims of ids take the place of the axis.
 * DTP_RANGE on an id outside the axis. */
dtp_status dtp_tensor_take(dtp_tensor x, int32_t axis, dtp_tensor ids, dtp_tensor *out,
                           dtp_err *err) DTP_MUST_CHECK;
/* The counterpart of take: zeros, `size` long along the axis (of the result), to which every piece
 * of src is added at its id. The dims of ids stand in src where the axis is in the result. */
dtp_status dtp_tensor_scatter_add(dtp_tensor src, int32_t axis, dtp_tensor ids, int64_t size,
                                  dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
/* Element i goes to place (i + shift) mod size of the axis. */
dtp_status dtp_tensor_roll(dtp_tensor x, int32_t axis, int64_t shift, dtp_tensor *out,
                           dtp_err *err) DTP_MUST_CHECK;

/* A sequence along the axis into zigzag order over `chunks` (docs/ops.md), or back. DTP_INVALID
 * unless 2 chunks divides its size. */
dtp_status dtp_tensor_reorder(dtp_tensor x, int32_t axis, int64_t chunks, bool inverse,
                              dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;

dtp_status dtp_tensor_softmax(dtp_tensor x, int32_t axis, dtp_tensor *out,
                              dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_log_softmax(dtp_tensor x, int32_t axis, dtp_tensor *out,
                                  dtp_err *err) DTP_MUST_CHECK;
/* Over the last dims, as many as gamma has; beta as gamma. */
dtp_status dtp_tensor_layer_norm(dtp_tensor x, dtp_tensor gamma, dtp_tensor beta, double eps,
                                 dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_rms_norm(dtp_tensor x, dtp_tensor gamma, double eps, dtp_tensor *out,
                               dtp_err *err) DTP_MUST_CHECK;
/* Rows of table[n, ..] at ids[..] (integers). DTP_RANGE on an id outside the table. */
dtp_status dtp_tensor_embedding(dtp_tensor table, dtp_tensor ids, dtp_tensor *out,
                                dtp_err *err) DTP_MUST_CHECK;
/* logits[.., classes], labels[..] (integers); `reduce`: "mean", "sum", "none". DTP_RANGE on a label
 * outside the classes. */
dtp_status dtp_tensor_cross_entropy(dtp_tensor logits, dtp_tensor labels, const char *reduce,
                                    dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
typedef struct dtp_cross_entropy_options {
    const char *reduce;        /* "mean" (default), "sum", "none" */
    const dtp_tensor *weights; /* [classes], of the type of the logits; NULL: all 1 */
    double smoothing;          /* share of the target spread over all classes, 0 (default) to 1 */
    bool ignore;               /* rows whose label is `ignored` do not count */
    int64_t ignored;
} dtp_cross_entropy_options;

dtp_cross_entropy_options dtp_cross_entropy_options_init(void);
/* As PyTorch's; a mean is over the weights of the labels that count. DTP_RANGE on a smoothing out
 * of bounds. No gradient for the weights. */
dtp_status dtp_tensor_cross_entropy_with(dtp_tensor logits, dtp_tensor labels,
                                         const dtp_cross_entropy_options *options, dtp_tensor *out,
                                         dtp_err *err) DTP_MUST_CHECK;
/* q[.., queries, feature], k[.., keys, feature], v[.., keys, value] -> [.., queries, value]; the
 * dims before these are the same. scale 0: 1 / sqrt(feature). Causal: the last query sees all keys,
 * the one before it all but the last, ... */
dtp_status dtp_tensor_attention(dtp_tensor q, dtp_tensor k, dtp_tensor v, bool causal, double scale,
                                dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
typedef struct dtp_attention_options {
    bool causal;         /* default true */
    double scale;        /* default 0: 1 / sqrt(feature) */
    const char *context; /* "gather" or "ring": self-attention, queries and keys are one sequence,
                            which may be split (docs/context-parallel.md); they are gathered or
                            passed around. NULL (default): two sequences; split keys are gathered */
    const char *order;   /* in which the sequences are stored, "contiguous" (default) or "zigzag" */
    int64_t chunks;      /* of the zigzag order; default 1 */
    /* The last dims of [.., queries, keys], bool or of the type of q: false and -inf hide a pair,
     * other numbers are added to its score. Not with a context. NULL (default): none. */
    const dtp_tensor *mask;
} dtp_attention_options;

dtp_attention_options dtp_attention_options_init(void);
/* As dtp_tensor_attention. DTP_INVALID also on an order that does not fit the lengths, and on a
 * mask beside a context. No gradient for the mask. */
dtp_status dtp_tensor_attention_with(dtp_tensor q, dtp_tensor k, dtp_tensor v,
                                     const dtp_attention_options *options, dtp_tensor *out,
                                     dtp_err *err) DTP_MUST_CHECK;
/* Rotates pairs (j, j + feature/2) of the last dim by position * base^(-2j/feature). */
dtp_status dtp_tensor_rope(dtp_tensor x, int32_t position_axis, double base, int64_t offset,
                           dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;

/* Dim i of the output is dim axes[i] of x; `axes` has as many as x has dims. */
dtp_status dtp_tensor_permute(dtp_tensor x, const int32_t *axes, dtp_tensor *out,
                              dtp_err *err) DTP_MUST_CHECK;
/* Swaps two dims. */
dtp_status dtp_tensor_transpose(dtp_tensor x, int32_t a, int32_t b, dtp_tensor *out,
                                dtp_err *err) DTP_MUST_CHECK;
/* Row-major; one size may be -1. A split that the new shape cannot have is redistributed first. */
dtp_status dtp_tensor_reshape(dtp_tensor x, int32_t rank, const int64_t *shape, dtp_tensor *out,
                              dtp_err *err) DTP_MUST_CHECK;
/* Merges the dims from `first` to `last`, both included. */
dtp_status dtp_tensor_flatten(dtp_tensor x, int32_t first, int32_t last, dtp_tensor *out,
                              dtp_err *err) DTP_MUST_CHECK;
/* Repeats missing dims and dims of size 1 up to the shape. */
dtp_status dtp_tensor_expand(dtp_tensor x, int32_t rank, const int64_t *shape, dtp_tensor *out,
                             dtp_err *err) DTP_MUST_CHECK;
/* Takes off a dim of size 1; puts one in at `axis` of the result. */
dtp_status dtp_tensor_squeeze(dtp_tensor x, int32_t axis, dtp_tensor *out,
                              dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_unsqueeze(dtp_tensor x, int32_t axis, dtp_tensor *out,
                                dtp_err *err) DTP_MUST_CHECK;
/* Elements [start, stop) of a dim. */
dtp_status dtp_tensor_slice(dtp_tensor x, int32_t axis, int64_t start, int64_t stop,
                            dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
/* Zeros before and after; negative numbers leave elements out. */
dtp_status dtp_tensor_pad(dtp_tensor x, int32_t axis, int64_t before, int64_t after,
                          dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_concat(int32_t n_in, const dtp_tensor *in, int32_t axis, dtp_tensor *out,
                             dtp_err *err) DTP_MUST_CHECK;
/* Along a new dim at `axis` of the result. */
dtp_status dtp_tensor_stack(int32_t n_in, const dtp_tensor *in, int32_t axis, dtp_tensor *out,
                            dtp_err *err) DTP_MUST_CHECK;
/* The pieces along a dim, without it: as many as its size. DTP_INVALID when the dim is split. */
dtp_status dtp_tensor_unbind(dtp_tensor x, int32_t axis, dtp_tensor *outs,
                             dtp_err *err) DTP_MUST_CHECK;
/* ids (integer)[..] -> f32[.., n]. */
dtp_status dtp_tensor_one_hot(dtp_tensor ids, int64_t n, dtp_tensor *out,
                              dtp_err *err) DTP_MUST_CHECK;

/* Tensors of the type and layout of t; a partial one reduces to the value. */
dtp_status dtp_tensor_full_like(dtp_tensor t, double value, dtp_tensor *out,
                                dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_zeros_like(dtp_tensor t, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_tensor_ones_like(dtp_tensor t, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;

DTP_API_END

#endif
