/* Every function of include/dtp/ops.h as a row: how to call it, and operands it takes. */
#include "tests/dtensor/eager_functions.h"

#include "core/graph/ops/elementwise.h"

dtp_status eager_function_call(const eager_function *f, const dtp_tensor *in, dtp_tensor *out,
                               dtp_err *err)
{
    if (f->unary != NULL) {
        return f->unary(in[0], out, err);
    }
    return f->binary != NULL ? f->binary(in[0], in[1], out, err) : f->fn(in, out, err);
}

/* ---- calls with arguments of their own ---- */

static dtp_status do_einsum(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_einsum("abk,kc->cab", 2, in, out, err);
}

static dtp_status do_trace_like(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_einsum("ab,bc,ca->", 3, in, out, err);
}

static dtp_status do_gram(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_einsum("mk,nk->mn", 2, (const dtp_tensor[]){in[0], in[0]}, out, err);
}

static dtp_status do_twice(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_mul(in[0], in[0], out, err);
}

static dtp_status do_linear(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_linear(in[0], in[1], &in[2], out, err);
}

static dtp_status do_linear_plain(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_linear(in[0], in[1], NULL, out, err);
}

static dtp_status do_compare(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_compare("lt", in[0], in[1], out, err);
}

static dtp_status do_select(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_select(in[0], in[1], in[2], out, err);
}

static dtp_status do_scale(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_scale(in[0], -2.5, out, err);
}

static dtp_status do_cast(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_cast(in[0], DTP_F32, out, err);
}

static dtp_status do_dropout(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_dropout(in[0], 0.25, 77, out, err);
}

static dtp_status do_sum(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_sum(in[0], 1, (const int32_t[]){-1}, false, out, err);
}

static dtp_status do_sum_all(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_sum(in[0], 0, NULL, false, out, err);
}

static dtp_status do_mean_keep(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_mean(in[0], 2, (const int32_t[]){0, 2}, true, out, err);
}

static dtp_status do_amax(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_amax(in[0], 1, (const int32_t[]){1}, false, out, err);
}

static dtp_status do_amin(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_amin(in[0], 1, (const int32_t[]){0}, true, out, err);
}

static dtp_status do_softmax(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_softmax(in[0], -1, out, err);
}

static dtp_status do_softmax0(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_softmax(in[0], 0, out, err);
}

static dtp_status do_log_softmax(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_log_softmax(in[0], 1, out, err);
}

static dtp_status do_layer_norm(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_layer_norm(in[0], in[1], in[2], 1e-5, out, err);
}

static dtp_status do_rms_norm(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_rms_norm(in[0], in[1], 1e-6, out, err);
}

static dtp_status do_cross_entropy(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_cross_entropy(in[0], in[1], "mean", out, err);
}

static dtp_status do_cross_entropy_none(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_cross_entropy(in[0], in[1], "none", out, err);
}

static dtp_status do_attention(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_attention(in[0], in[1], in[2], true, 0.0, out, err);
}

static dtp_status do_rope(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_rope(in[0], 1, 10000.0, 3, out, err);
}

static dtp_status do_permute(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_permute(in[0], (const int32_t[]){2, 0, 1}, out, err);
}

static dtp_status do_transpose(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_transpose(in[0], 0, -1, out, err);
}

static dtp_status do_merge(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_reshape(in[0], 2, (const int64_t[]){-1, 5}, out, err);
}

static dtp_status do_divide(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_reshape(in[0], 3, (const int64_t[]){2, 3, 4}, out, err);
}

static dtp_status do_mixed(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_reshape(in[0], 2, (const int64_t[]){4, 6}, out, err);
}

static dtp_status do_flatten(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_flatten(in[0], 0, 1, out, err);
}

static dtp_status do_expand(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_expand(in[0], 3, (const int64_t[]){2, 3, 5}, out, err);
}

static dtp_status do_squeeze(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_squeeze(in[0], 1, out, err);
}

static dtp_status do_unsqueeze(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_unsqueeze(in[0], -1, out, err);
}

static dtp_status do_slice(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_slice(in[0], 1, 2, 5, out, err);
}

static dtp_status do_pad(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_pad(in[0], 0, 1, 2, out, err);
}

static dtp_status do_concat(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_concat(2, in, 1, out, err);
}

static dtp_status do_stack(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_stack(3, in, 1, out, err);
}

static dtp_status do_pow(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_pow(in[0], 1.5, out, err);
}

static dtp_status do_clamp(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_clamp(in[0], -0.5, 0.25, out, err);
}

static dtp_status do_prod(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_prod(in[0], 1, (const int32_t[]){1}, false, out, err);
}

static dtp_status do_logsumexp(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_logsumexp(in[0], 1, (const int32_t[]){1}, out, err);
}

static dtp_status do_norm2(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_norm(in[0], "2", 0, NULL, out, err);
}

static dtp_status do_norm1(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_norm(in[0], "1", 1, (const int32_t[]){0}, out, err);
}

static dtp_status do_var(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_var(in[0], 1, 1, (const int32_t[]){1}, out, err);
}

static dtp_status do_deviation(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_std(in[0], 0, 2, (const int32_t[]){0, 1}, out, err);
}

static dtp_status do_cumsum(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_cumsum(in[0], 1, out, err);
}

static dtp_status do_argmax(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_argmax(in[0], 1, out, err);
}

static dtp_status do_argmin(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_argmin(in[0], 0, out, err);
}

static dtp_status do_take(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_take(in[0], 1, in[1], out, err);
}

static dtp_status do_roll(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_roll(in[0], 1, 2, out, err);
}

static dtp_status do_topk(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor indices;
    DTP_TRY(dtp_tensor_topk(in[0], 1, 3, out, &indices, err));
    dtp_tensor_destroy(indices);
    return DTP_OK;
}

static dtp_status do_one_hot(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_one_hot(in[0], 7, out, err);
}

#define UNARY_REAL(op) {.name = #op, .unary = dtp_tensor_##op, .in = {"5,6"}},
#define UNARY_POSITIVE(op) {.name = #op, .unary = dtp_tensor_##op, .in = {"5,6 pos"}},
#define UNARY_TRUTH(op)
#define UNARY(op, text, domain, ...) UNARY_##domain(op)

const eager_function EAGER_FUNCTIONS[] = {
    {.name = "add", .binary = dtp_tensor_add, .in = {"4,6", "4,6"}},
    {.name = "add, a row", .binary = dtp_tensor_add, .in = {"4,6", "6"}},
    {.name = "add, a column and a row", .binary = dtp_tensor_add, .in = {"4,1", "3,1,5"}},
    {.name = "sub, a number", .binary = dtp_tensor_sub, .in = {"4,6", ""}},
    {.name = "mul", .binary = dtp_tensor_mul, .in = {"4,6", "4,1"}},
    {.name = "mul by itself", .fn = do_twice, .in = {"4,6"}},
    {.name = "div", .binary = dtp_tensor_div, .in = {"4,6", "4,6 pos"}},
    {.name = "max", .binary = dtp_tensor_max, .in = {"4,6", "6"}},
    {.name = "min", .binary = dtp_tensor_min, .in = {"4,1", "1,6"}},
    {.name = "compare", .fn = do_compare, .in = {"4,6", "4,6"}, .no_grad = true},
    {.name = "select", .fn = do_select, .in = {"4,6 bool", "4,6", "1,6"}},
    {.name = "scale", .fn = do_scale, .in = {"4,6"}},
    {.name = "cast", .fn = do_cast, .in = {"4,6"}, .no_grad = true},
    {.name = "dropout", .fn = do_dropout, .in = {"5,7"}},
    {.name = "einsum", .fn = do_einsum, .in = {"2,3,4", "4,5"}},
    {.name = "einsum of three", .fn = do_trace_like, .in = {"3,4", "4,5", "5,3"}},
    {.name = "einsum of one with itself", .fn = do_gram, .in = {"4,6"}},
    {.name = "matmul", .binary = dtp_tensor_matmul, .in = {"4,6", "6,8"}},
    {.name = "matmul, batches", .binary = dtp_tensor_matmul, .in = {"2,4,6", "2,6,3"}},
    {.name = "matmul, repeated batch", .binary = dtp_tensor_matmul, .in = {"3,1,4,6", "2,6,3"}},
    {.name = "matmul, vector first", .binary = dtp_tensor_matmul, .in = {"6", "2,6,3"}},
    {.name = "matmul, vector last", .binary = dtp_tensor_matmul, .in = {"2,4,6", "6"}},
    {.name = "dot", .binary = dtp_tensor_matmul, .in = {"6", "6"}},
    {.name = "linear", .fn = do_linear, .in = {"2,3,4", "5,4", "5"}},
    {.name = "linear without bias", .fn = do_linear_plain, .in = {"6,4", "8,4"}},
    {.name = "sum", .fn = do_sum, .in = {"3,4,5"}},
    {.name = "sum of all", .fn = do_sum_all, .in = {"3,4"}},
    {.name = "mean", .fn = do_mean_keep, .in = {"3,4,5"}},
    {.name = "amax", .fn = do_amax, .in = {"3,4,5"}},
    {.name = "amin", .fn = do_amin, .in = {"3,4"}},
    {.name = "softmax", .fn = do_softmax, .in = {"4,6"}},
    {.name = "softmax, first axis", .fn = do_softmax0, .in = {"4,6"}},
    {.name = "log_softmax", .fn = do_log_softmax, .in = {"3,4,2"}},
    {.name = "layer_norm", .fn = do_layer_norm, .in = {"4,6", "6", "6"}},
    {.name = "layer_norm over two dims", .fn = do_layer_norm, .in = {"4,2,3", "2,3", "2,3"}},
    {.name = "rms_norm", .fn = do_rms_norm, .in = {"4,6", "6"}},
    {.name = "embedding", .binary = dtp_tensor_embedding, .in = {"7,4", "3,2 ids:7"}},
    {.name = "cross_entropy", .fn = do_cross_entropy, .in = {"4,6", "4 ids:6"}},
    {.name = "cross_entropy of rows", .fn = do_cross_entropy_none, .in = {"2,3,6", "2,3 ids:6"}},
    {.name = "attention", .fn = do_attention, .in = {"2,2,4,4", "2,2,4,4", "2,2,4,4"}},
    {.name = "rope", .fn = do_rope, .in = {"2,5,4"}},
    {.name = "permute", .fn = do_permute, .in = {"2,3,4"}},
    {.name = "transpose", .fn = do_transpose, .in = {"4,6"}},
    {.name = "reshape, merge", .fn = do_merge, .in = {"4,3,5"}},
    {.name = "reshape, split", .fn = do_divide, .in = {"6,4"}},
    {.name = "reshape, both", .fn = do_mixed, .in = {"6,4"}},
    {.name = "flatten", .fn = do_flatten, .in = {"4,3,5"}},
    {.name = "expand", .fn = do_expand, .in = {"3,1"}},
    {.name = "squeeze", .fn = do_squeeze, .in = {"4,1,6"}},
    {.name = "unsqueeze", .fn = do_unsqueeze, .in = {"4,6"}},
    {.name = "slice", .fn = do_slice, .in = {"4,6"}},
    {.name = "pad", .fn = do_pad, .in = {"4,6"}},
    {.name = "concat", .fn = do_concat, .in = {"4,3", "4,5"}},
    {.name = "stack", .fn = do_stack, .in = {"4,3", "4,3", "4,3"}},
    {.name = "pow", .fn = do_pow, .in = {"5,6 pos"}},
    {.name = "clamp", .fn = do_clamp, .in = {"5,6"}},
    {.name = "prod", .fn = do_prod, .in = {"4,6"}},
    {.name = "logsumexp", .fn = do_logsumexp, .in = {"4,6"}},
    {.name = "norm 2", .fn = do_norm2, .in = {"4,6"}},
    {.name = "norm 1", .fn = do_norm1, .in = {"4,6"}},
    {.name = "var", .fn = do_var, .in = {"4,6"}},
    {.name = "std", .fn = do_deviation, .in = {"4,6"}},
    {.name = "cumsum", .fn = do_cumsum, .in = {"4,6"}},
    {.name = "argmax", .fn = do_argmax, .in = {"4,6"}, .no_grad = true},
    {.name = "argmin", .fn = do_argmin, .in = {"4,6"}, .no_grad = true},
    {.name = "topk", .fn = do_topk, .in = {"4,6"}},
    {.name = "take", .fn = do_take, .in = {"4,6,3", "2,5 ids:6"}},
    {.name = "roll", .fn = do_roll, .in = {"4,6"}},
    {.name = "one_hot", .fn = do_one_hot, .in = {"4,3 ids:7"}, .no_grad = true},
    DTP_UNARY_OPS(UNARY)};
const int32_t EAGER_FUNCTION_COUNT = sizeof EAGER_FUNCTIONS / sizeof EAGER_FUNCTIONS[0];
