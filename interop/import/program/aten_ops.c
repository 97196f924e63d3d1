/* The table of ATen ops: axes and nodes of ours. docs/bring-your-own-model.md lists it. */
#include <string.h>

#include "interop/import/program/aten_axes.h"
#include "interop/import/program/aten_lower.h"

/* clang-format off */
static const dtp_aten_op ops[] = {
    {"linear", dtp_axes_linear, dtp_lower_linear, NULL},
    {"matmul", dtp_axes_matmul, dtp_lower_matmul, NULL},
    {"mm", dtp_axes_matmul, dtp_lower_matmul, NULL},
    {"bmm", dtp_axes_matmul, dtp_lower_matmul, NULL},
    {"addmm", dtp_axes_addmm, dtp_lower_matmul, NULL},
    {"dtp.attention", dtp_axes_attention, dtp_lower_attention, NULL},
    {"dtp.rope", dtp_axes_same, dtp_lower_rope, NULL},
    {"dtp.rms_norm", dtp_axes_norm, dtp_lower_rms_norm, NULL},
    {"dtp.gelu_tanh", dtp_axes_same, dtp_lower_gelu, NULL},
    {"rms_norm", dtp_axes_norm, dtp_lower_rms_norm, NULL},
    {"layer_norm", dtp_axes_norm, dtp_lower_layer_norm, NULL},
    {"embedding", dtp_axes_embedding, dtp_lower_embedding, NULL},
    {"cross_entropy_loss", dtp_axes_cross_entropy, dtp_lower_cross_entropy, NULL},
    {"softmax", dtp_axes_same, dtp_lower_softmax, "softmax"},
    {"_softmax", dtp_axes_same, dtp_lower_softmax, "softmax"},
    {"log_softmax", dtp_axes_same, dtp_lower_softmax, "log_softmax"},
    {"sum", dtp_axes_reduce, dtp_lower_reduce, "sum"},
    {"mean", dtp_axes_reduce, dtp_lower_reduce, "mean"},
    {"amax", dtp_axes_reduce, dtp_lower_reduce, "max"},
    {"amin", dtp_axes_reduce, dtp_lower_reduce, "min"},
    {"prod", dtp_axes_reduce, dtp_lower_reduce, "prod"},
    {"gelu", dtp_axes_same, dtp_lower_gelu, NULL},
    {"silu", dtp_axes_same, dtp_lower_unary, "silu"},
    {"relu", dtp_axes_same, dtp_lower_unary, "relu"},
    {"tanh", dtp_axes_same, dtp_lower_unary, "tanh"},
    {"sigmoid", dtp_axes_same, dtp_lower_unary, "sigmoid"},
    {"softplus", dtp_axes_same, dtp_lower_unary, "softplus"},
    {"neg", dtp_axes_same, dtp_lower_unary, "neg"},
    {"exp", dtp_axes_same, dtp_lower_unary, "exp"},
    {"log", dtp_axes_same, dtp_lower_unary, "log"},
    {"log1p", dtp_axes_same, dtp_lower_unary, "log1p"},
    {"sqrt", dtp_axes_same, dtp_lower_unary, "sqrt"},
    {"rsqrt", dtp_axes_same, dtp_lower_unary, "rsqrt"},
    {"square", dtp_axes_same, dtp_lower_unary, "square"},
    {"reciprocal", dtp_axes_same, dtp_lower_unary, "reciprocal"},
    {"abs", dtp_axes_same, dtp_lower_unary, "abs"},
    {"sin", dtp_axes_same, dtp_lower_unary, "sin"},
    {"cos", dtp_axes_same, dtp_lower_unary, "cos"},
    {"floor", dtp_axes_same, dtp_lower_unary, "floor"},
    {"erf", dtp_axes_same, dtp_lower_unary, "erf"},
    {"logical_not", dtp_axes_same, dtp_lower_unary, "logical_not"},
    {"pow", dtp_axes_same, dtp_lower_pow, NULL},
    {"to", dtp_axes_same, dtp_lower_cast, NULL},
    {"_to_copy", dtp_axes_same, dtp_lower_cast, NULL},
    {"type_as", dtp_axes_same, dtp_lower_cast, NULL},
    {"dropout", dtp_axes_same, dtp_lower_dropout, "dropout"},
    {"add", dtp_axes_broadcast, dtp_lower_binary, "add"},
    {"sub", dtp_axes_broadcast, dtp_lower_binary, "sub"},
    {"rsub", dtp_axes_broadcast, dtp_lower_binary, "sub"},
    {"mul", dtp_axes_broadcast, dtp_lower_binary, "mul"},
    {"div", dtp_axes_broadcast, dtp_lower_binary, "div"},
    {"maximum", dtp_axes_broadcast, dtp_lower_binary, "max"},
    {"minimum", dtp_axes_broadcast, dtp_lower_binary, "min"},
    {"min", dtp_axes_broadcast, dtp_lower_binary, "min"},
    {"max", dtp_axes_broadcast, dtp_lower_binary, "max"},
    {"__and__", dtp_axes_broadcast, dtp_lower_binary, "logical_and"},
    {"__or__", dtp_axes_broadcast, dtp_lower_binary, "logical_or"},
    {"logical_and", dtp_axes_broadcast, dtp_lower_binary, "logical_and"},
    {"logical_or", dtp_axes_broadcast, dtp_lower_binary, "logical_or"},
    {"bitwise_and", dtp_axes_broadcast, dtp_lower_binary, "logical_and"},
    {"bitwise_or", dtp_axes_broadcast, dtp_lower_binary, "logical_or"},
    {"eq", dtp_axes_broadcast, dtp_lower_compare, "eq"},
    {"ne", dtp_axes_broadcast, dtp_lower_compare, "ne"},
    {"lt", dtp_axes_broadcast, dtp_lower_compare, "lt"},
    {"le", dtp_axes_broadcast, dtp_lower_compare, "le"},
    {"gt", dtp_axes_broadcast, dtp_lower_compare, "gt"},
    {"ge", dtp_axes_broadcast, dtp_lower_compare, "ge"},
    {"where", dtp_axes_broadcast, dtp_lower_select, "select"},
    {"masked_fill", dtp_axes_broadcast, dtp_lower_select, "select"},
    {"view", dtp_axes_view, dtp_lower_view, NULL},
    {"reshape", dtp_axes_view, dtp_lower_view, NULL},
    {"_unsafe_view", dtp_axes_view, dtp_lower_view, NULL},
    {"flatten", dtp_axes_view, dtp_lower_view, NULL},
    {"unflatten", dtp_axes_view, dtp_lower_view, NULL},
    {"squeeze", dtp_axes_view, dtp_lower_view, NULL},
    {"unsqueeze", dtp_axes_view, dtp_lower_view, NULL},
    {"contiguous", dtp_axes_same, dtp_lower_view, NULL},
    {"clone", dtp_axes_same, dtp_lower_view, NULL},
    {"alias", dtp_axes_same, dtp_lower_view, NULL},
    {"transpose", dtp_axes_permute, dtp_lower_permute, NULL},
    {"permute", dtp_axes_permute, dtp_lower_permute, NULL},
    {"t", dtp_axes_permute, dtp_lower_permute, NULL},
    {"expand", dtp_axes_broadcast, dtp_lower_permute, NULL},
    {"expand_as", dtp_axes_broadcast, dtp_lower_permute, NULL},
    {"cat", dtp_axes_cat, dtp_lower_cat, NULL},
    {"stack", dtp_axes_stack, dtp_lower_stack, "stack"},
    {"dtp.patches", dtp_axes_patches, dtp_lower_patches, NULL},
    {"slice", dtp_axes_slice, dtp_lower_slice, NULL},
    {"select", dtp_axes_select, dtp_lower_pieces, "slice"},
    {"split", dtp_axes_split, dtp_lower_pieces, NULL},
    {"split_with_sizes", dtp_axes_split, dtp_lower_pieces, NULL},
    {"chunk", dtp_axes_split, dtp_lower_pieces, NULL},
    {"pad", dtp_axes_pad, dtp_lower_pad, NULL},
    {"constant_pad_nd", dtp_axes_pad, dtp_lower_pad, NULL},
};
/* clang-format on */

const dtp_aten_op *dtp_aten_op_find(const char *full)
{
    const bool aten = strncmp(full, "aten.", 5) == 0;
    const char *name = aten ? full + 5 : full;
    const size_t n = aten ? strcspn(name, ".") : strlen(name);
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (strlen(ops[i].name) == n && memcmp(ops[i].name, name, n) == 0) {
            return &ops[i];
        }
    }
    return NULL;
}
