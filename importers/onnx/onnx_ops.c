/* The table of ONNX ops: the ATen op that each becomes. docs/programs-of-pytorch.md lists it. */
#include "importers/onnx/onnx_ops.h"

#include <string.h>

/* clang-format off */
#define UNARY(name, aten) {name, dtp_onnx__elements, 1, "aten." aten ".default", {"self"}}
#define BINARY(name, aten) {name, dtp_onnx__elements, 2, "aten." aten ".Tensor", {"self", "other"}}
#define TRUTH(name, aten) {name, dtp_onnx__truth, 2, "aten." aten ".Tensor", {"self", "other"}}
#define OWN(name, read, least, aten) {name, read, least, "aten." aten, {NULL}}
static const dtp_onnx_op ops[] = {
    BINARY("Add", "add"), BINARY("Sub", "sub"), BINARY("Max", "maximum"), BINARY("Min", "minimum"),
    BINARY("Mul", "mul"),
    {"Div", dtp_onnx__inverse, 2, "aten.div.Tensor", {"self", "other"}},
    {"Reciprocal", dtp_onnx__inverse, 1, "aten.reciprocal.default", {"self"}},
    {"Pow", dtp_onnx__elements, 2, "aten.pow.Tensor_Scalar", {"self", "exponent"}},
    {"Where", dtp_onnx__where, 3, "aten.where.self", {"condition", "self", "other"}},
    TRUTH("Equal", "eq"), TRUTH("Less", "lt"), TRUTH("LessOrEqual", "le"), TRUTH("Greater", "gt"),
    TRUTH("GreaterOrEqual", "ge"), TRUTH("And", "logical_and"), TRUTH("Or", "logical_or"),
    UNARY("Not", "logical_not"), UNARY("Neg", "neg"), UNARY("Exp", "exp"), UNARY("Log", "log"),
    UNARY("Sqrt", "sqrt"), UNARY("Abs", "abs"), UNARY("Sin", "sin"), UNARY("Cos", "cos"),
    UNARY("Floor", "floor"), UNARY("Tanh", "tanh"), UNARY("Sigmoid", "sigmoid"),
    UNARY("Relu", "relu"), UNARY("Erf", "erf"), UNARY("Softplus", "softplus"),
    OWN("Gelu", dtp_onnx__same, 1, "gelu.default"),
    OWN("Softmax", dtp_onnx__same, 1, "softmax.int"),
    OWN("LogSoftmax", dtp_onnx__same, 1, "log_softmax.int"),
    OWN("IsNaN", dtp_onnx__is_nan, 1, "isnan.default"),
    OWN("Identity", dtp_onnx__identity, 1, "alias.default"),
    OWN("Dropout", dtp_onnx__dropout, 1, "dropout.default"),
    OWN("Cast", dtp_onnx__cast, 1, "to.dtype"),
    OWN("Shape", dtp_onnx__shape, 1, "sym_size.int"),
    OWN("Constant", dtp_onnx__constant, 0, "lift_fresh_copy.default"),
    OWN("ConstantOfShape", dtp_onnx__filled, 1, "full.default"),
    OWN("Range", dtp_onnx__range, 3, "arange.start_step"),
    OWN("Trilu", dtp_onnx__along, 1, "triu.default"),
    OWN("CumSum", dtp_onnx__along, 2, "cumsum.default"),
    OWN("Reshape", dtp_onnx__reshape, 2, "view.default"),
    OWN("Flatten", dtp_onnx__flatten, 1, "view.default"),
    OWN("Squeeze", dtp_onnx__squeeze, 1, "view.default"),
    OWN("Unsqueeze", dtp_onnx__unsqueeze, 2, "unsqueeze.default"),
    OWN("Transpose", dtp_onnx__transpose, 1, "permute.default"),
    OWN("Expand", dtp_onnx__expand, 2, "expand.default"),
    OWN("Concat", dtp_onnx__concat, 1, "cat.default"),
    OWN("Split", dtp_onnx__split, 1, "split.sizes"),
    OWN("Slice", dtp_onnx__slice, 3, "slice.Tensor"),
    OWN("Pad", dtp_onnx__pad, 2, "constant_pad_nd.default"),
    OWN("Gather", dtp_onnx__gather, 2, "embedding.default"),
    OWN("GatherND", dtp_onnx__gather_nd, 2, "index.Tensor"),
    OWN("GatherElements", dtp_onnx__gather_elements, 2, "gather.default"),
    OWN("ReduceMean", dtp_onnx__reduce, 1, "mean.dim"),
    OWN("ReduceSum", dtp_onnx__reduce, 1, "sum.dim_IntList"),
    OWN("ReduceMax", dtp_onnx__reduce, 1, "amax.default"),
    OWN("ReduceMin", dtp_onnx__reduce, 1, "amin.default"),
    OWN("LayerNormalization", dtp_onnx__norm, 2, "layer_norm.default"),
    OWN("RMSNormalization", dtp_onnx__norm, 2, "rms_norm.default"),
    OWN("SimplifiedLayerNormalization", dtp_onnx__norm, 2, "rms_norm.default"),
    OWN("SoftmaxCrossEntropyLoss", dtp_onnx__loss, 2, "cross_entropy_loss.default"),
    OWN("MatMul", dtp_onnx__matmul, 2, "matmul.default"),
    OWN("Gemm", dtp_onnx__gemm, 2, "linear.default"),
    OWN("Attention", dtp_onnx__attention, 3, "scaled_dot_product_attention.default"),
    OWN("Conv", dtp_onnx__conv, 2, "conv2d.default"),
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
