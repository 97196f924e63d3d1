/* The table of ONNX ops: the ATen op that each becomes. docs/programs-of-pytorch.md lists it. */
#include "importers/onnx/onnx_ops.h"

#include <stdlib.h>
#include <string.h>

/* clang-format off */
/* A row says its operands, and its attributes as arg_rules.h says arguments, or it does not
 * compile. */
#define ROW(name, read, least, most, aten, attrs, ...)                                             \
    {                                                                                              \
        name, dtp_onnx__##read, least, most, "aten." aten, "" attrs, {__VA_ARGS__}                 \
    }
#define OWN(name, read, least, most, aten, attrs) ROW(name, read, least, most, aten, attrs, NULL)
#define UNARY(name, aten) ROW(name, elements, 1, 1, aten ".default", "", "self")
#define BINARY(name, aten) ROW(name, elements, 2, 2, aten ".Tensor", "", "self", "other")
#define TRUTH(name, aten) ROW(name, truth, 2, 2, aten ".Tensor", "", "self", "other")
static const dtp_onnx_op ops[] = {
    BINARY("Add", "add"), BINARY("Sub", "sub"), BINARY("Max", "maximum"), BINARY("Min", "minimum"),
    BINARY("Mul", "mul"),
    ROW("Div", inverse, 2, 2, "div.Tensor", "", "self", "other"),
    ROW("Reciprocal", inverse, 1, 1, "reciprocal.default", "", "self"),
    ROW("Pow", elements, 2, 2, "pow.Tensor_Scalar", "", "self", "exponent"),
    ROW("Mod", elements, 2, 2, "remainder.Tensor", "fmod=0", "self", "other"),
    ROW("Where", where, 3, 3, "where.self", "", "condition", "self", "other"),
    TRUTH("Equal", "eq"), TRUTH("Less", "lt"), TRUTH("LessOrEqual", "le"), TRUTH("Greater", "gt"),
    TRUTH("GreaterOrEqual", "ge"), TRUTH("And", "logical_and"), TRUTH("Or", "logical_or"),
    UNARY("Not", "logical_not"), UNARY("Neg", "neg"), UNARY("Exp", "exp"), UNARY("Log", "log"),
    UNARY("Sqrt", "sqrt"), UNARY("Abs", "abs"), UNARY("Sin", "sin"), UNARY("Cos", "cos"),
    UNARY("Floor", "floor"), UNARY("Tanh", "tanh"), UNARY("Sigmoid", "sigmoid"),
    UNARY("Relu", "relu"), UNARY("Erf", "erf"), UNARY("Softplus", "softplus"),
    OWN("Gelu", gelu, 1, 1, "gelu.default", "approximate"),
    OWN("Softmax", softmax, 1, 1, "softmax.int", "axis"),
    OWN("LogSoftmax", softmax, 1, 1, "log_softmax.int", "axis"),
    OWN("IsNaN", is_nan, 1, 1, "isnan.default", ""),
    OWN("Identity", identity, 1, 1, "alias.default", ""),
    OWN("Dropout", dropout, 1, 3, "dropout.default", "seed=any"),
    OWN("Cast", cast, 1, 1, "to.dtype", "to saturate=any"),
    OWN("Shape", shape, 1, 1, "sym_size.int", "start end"),
    OWN("Constant", constant, 0, 0, "lift_fresh_copy.default",
        "value value_int value_ints value_float"),
    OWN("ConstantOfShape", filled, 1, 1, "full.default", "value"),
    OWN("Range", range, 3, 3, "arange.start_step", ""),
    OWN("Trilu", along, 1, 2, "triu.default", "upper"),
    OWN("CumSum", along, 2, 2, "cumsum.default", "exclusive=0 reverse=0"),
    OWN("Reshape", reshape, 2, 2, "view.default", "allowzero"),
    OWN("Flatten", flatten, 1, 1, "view.default", "axis"),
    OWN("Squeeze", squeeze, 1, 2, "view.default", "axes"),
    OWN("Unsqueeze", unsqueeze, 2, 2, "unsqueeze.default", ""),
    OWN("Transpose", transpose, 1, 1, "permute.default", "perm"),
    OWN("Expand", expand, 2, 2, "expand.default", ""),
    OWN("Tile", tile, 2, 2, "repeat.default", ""),
    OWN("Concat", concat, 1, INT32_MAX, "cat.default", "axis"),
    OWN("Split", split, 1, 2, "split.sizes", "axis split num_outputs=any"),
    OWN("Slice", slice, 3, 5, "slice.Tensor", ""),
    OWN("Pad", pad, 2, 4, "constant_pad_nd.default", "mode"),
    OWN("Gather", gather, 2, 2, "embedding.default", "axis"),
    OWN("GatherND", gather_nd, 2, 2, "index.Tensor", "batch_dims=0"),
    OWN("GatherElements", gather_elements, 2, 2, "gather.default", "axis"),
    OWN("ReduceMean", reduce, 1, 2, "mean.dim", "axes keepdims noop_with_empty_axes"),
    OWN("ReduceSum", reduce, 1, 2, "sum.dim_IntList", "axes keepdims noop_with_empty_axes"),
    OWN("ReduceMax", reduce, 1, 2, "amax.default", "axes keepdims noop_with_empty_axes"),
    OWN("ReduceMin", reduce, 1, 2, "amin.default", "axes keepdims noop_with_empty_axes"),
    OWN("LayerNormalization", norm, 2, 3, "layer_norm.default", "axis epsilon stash_type=1"),
    OWN("RMSNormalization", norm, 2, 2, "rms_norm.default", "axis epsilon stash_type=1"),
    OWN("SimplifiedLayerNormalization", norm, 2, 2, "rms_norm.default",
        "axis epsilon stash_type=1"),
    OWN("SoftmaxCrossEntropyLoss", loss, 2, 3, "cross_entropy_loss.default",
        "reduction ignore_index"),
    OWN("MatMul", matmul, 2, 2, "matmul.default", ""),
    OWN("Gemm", gemm, 2, 3, "linear.default", "alpha=1 beta=1 transA=0 transB"),
    OWN("Attention", attention, 3, 4, "scaled_dot_product_attention.default",
        "is_causal scale softcap=0 q_num_heads=any kv_num_heads=any qk_matmul_output_mode=any "
        "softmax_precision=any"),
    OWN("Conv", conv, 2, 3, "conv2d.default",
        "strides pads dilations group auto_pad kernel_shape=any"),
    OWN("ConvTranspose", conv_transpose, 2, 3, "conv_transpose2d.input",
        "strides pads dilations group auto_pad kernel_shape=any output_padding"),
    OWN("MaxPool", pool, 1, 1, "max_pool2d.default",
        "kernel_shape strides pads dilations ceil_mode auto_pad storage_order=0"),
    OWN("AveragePool", pool, 1, 1, "avg_pool2d.default",
        "kernel_shape strides pads dilations ceil_mode auto_pad count_include_pad"),
    OWN("GlobalAveragePool", global_pool, 1, 1, "mean.dim", ""),
    OWN("BatchNormalization", batch_norm, 5, 5, "batch_norm.default",
        "epsilon momentum=any training_mode=0 spatial=any"),
    OWN("Resize", resize, 1, 4, "upsample_bilinear2d.vec",
        "mode coordinate_transformation_mode nearest_mode antialias=0 exclude_outside=0 "
        "cubic_coeff_a=any extrapolation_value=any keep_aspect_ratio_policy=any"),
};
/* clang-format on */

const dtp_onnx_op *dtp_onnx_op_find(const dtp_onnx_node *n)
{
    const bool own = n->domain[0] == '\0' || strcmp(n->domain, "ai.onnx") == 0 ||
                     strcmp(n->domain, "com.microsoft") == 0;
    for (size_t i = 0; own && i < sizeof ops / sizeof ops[0]; i++) {
        if (strcmp(n->op, ops[i].name) == 0) {
            return &ops[i];
        }
    }
    return NULL;
}

/* The word of a list that is about a name; NULL. */
static const char *word_of(const char *words, const char *name)
{
    const size_t n = strlen(name);
    for (; *words != '\0'; words += strspn(words, " ")) {
        const size_t len = strcspn(words, " ");
        if (len >= n && strncmp(words, name, n) == 0 && (len == n || words[n] == '=')) {
            return words + n;
        }
        words += len;
    }
    return NULL;
}

dtp_status dtp_onnx_check(const dtp_onnx_node *n, const dtp_onnx_op *op, dtp_err *err)
{
    if (n->in.n < op->least || n->in.n > op->most || n->out.n < 1) {
        return DTP_FAIL(err, DTP_INVALID, "%d operands, not %d to %d, or no result", n->in.n,
                        op->least, op->most);
    }
    for (int32_t i = 0; i < n->n_attrs; i++) {
        const dtp_onnx_attr *a = &n->attrs[i];
        const char *word = word_of(op->attrs, a->name);
        const double x = (double)a->i + a->f; /* one of them is 0 */
        if (word == NULL || (*word == '=' && strncmp(word, "=any", 4) != 0 &&
                             (a->text[0] != '\0' || a->ints.n > 0 || atof(word + 1) != x))) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "attribute '%s' is %s%.9g: not supported",
                            a->name, a->text, x);
        }
    }
    return DTP_OK;
}
