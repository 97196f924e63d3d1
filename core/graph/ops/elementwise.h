/* The elementwise functions without attributes, and their gradients, a row each:
 *
 *   OP(name, summary, domain, FLOPs per element, other fields of the row)
 *
 * From a row come the op (elementwise.c, which has the macros of the fields), the function
 * dtp_tensor_<name> (dtensor/ops_elementwise.c) and the cases that the tests run. `domain`: REAL
 * numbers, POSITIVE numbers or TRUTH values; it is where operands of the cases lie. Functions
 * of numbers have the flag DTP_OP_FUSES. Kernels:
 * executor/cpu/elementwise.c, executor/ref/elementwise.c.
 */
#ifndef DTP_CORE_GRAPH_OPS_ELEMENTWISE_H
#define DTP_CORE_GRAPH_OPS_ELEMENTWISE_H

#include "core/graph/op.h"

/* Of x. Gradients: PRODUCT(op, f, of, c): dx = c op(dy, f(t)); OWN(op, of): dx = op(t, dy); t is X
 * or the result, Y. */
#define DTP_UNARY_OPS(OP)                                                                          \
    OP(neg, "-x", REAL, 1, .vjp = dtp_op__self_grad, .linear = DTP_LINEAR_EACH,                    \
       .f32_error = DTP_EXACT, .mtf_class = "ScalarMultiplyOperation")                             \
    OP(exp, "e^x", REAL, 10, PRODUCT("mul", NULL, Y, 1))                                           \
    OP(log, "natural logarithm", POSITIVE, 10, PRODUCT("div", NULL, X, 1))                         \
    OP(sqrt, "square root", POSITIVE, 1, PRODUCT("div", NULL, Y, 0.5))                             \
    OP(rsqrt, "1 / square root", POSITIVE, 1, .vjp = vjp_rsqrt)                                    \
    OP(square, "x x", REAL, 1, PRODUCT("mul", NULL, X, 2))                                         \
    OP(tanh, "hyperbolic tangent", REAL, 10, OWN("tanh_grad", Y))                                  \
    OP(sigmoid, "1 / (1 + e^-x)", REAL, 10, OWN("sigmoid_grad", Y))                                \
    OP(relu, "max(x, 0)", REAL, 1, OWN("relu_grad", X), .f32_error = DTP_EXACT)                    \
    OP(gelu, "0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))", REAL, 10, OWN("gelu_grad", X))     \
    OP(erf, "error function", REAL, 20, OWN("erf_grad", X))                                        \
    OP(gelu_erf, "0.5 x (1 + erf(x / sqrt(2)))", REAL, 20, OWN("gelu_erf_grad", X))                \
    OP(silu, "x sigmoid(x)", REAL, 10, OWN("silu_grad", X))                                        \
    OP(abs, "absolute value", REAL, 1, PRODUCT("mul", "sign", X, 1), .f32_error = DTP_EXACT)       \
    OP(sign, "-1, 0 or 1", REAL, 1, .vjp = dtp_op__zero_grad, .f32_error = DTP_EXACT)              \
    OP(floor, "the largest integer that is not above x", REAL, 1, .vjp = dtp_op__zero_grad,        \
       .f32_error = DTP_EXACT)                                                                     \
    OP(sin, "sine", REAL, 10, PRODUCT("mul", "cos", X, 1))                                         \
    OP(cos, "cosine", REAL, 10, PRODUCT("mul", "sin", X, -1))                                      \
    OP(reciprocal, "1 / x", POSITIVE, 1, PRODUCT("mul", "square", Y, -1))                          \
    OP(log1p, "log(1 + x)", POSITIVE, 10, PRODUCT("div", "exp", Y, 1))                             \
    OP(expm1, "e^x - 1", REAL, 10, PRODUCT("mul", "exp", X, 1))                                    \
    OP(softplus, "log(1 + e^x)", REAL, 10, PRODUCT("mul", "sigmoid", X, 1))                        \
    OP(logical_not, "not x", TRUTH, 1, .no_grad = DTP_NO_BOOL_GRAD, .f32_error = DTP_EXACT)

/* Of a and b, with broadcasting by name. */
#define DTP_BINARY_OPS(OP)                                                                         \
    OP(add, "a + b", REAL, 1, ARITHMETIC(vjp_add, DTP_OP_SUM), .linear = DTP_LINEAR_JOINT,         \
       .bench = {"rc rc", "rc c"}, .mtf_class = "AddOperation")                                    \
    OP(sub, "a - b", REAL, 1, ARITHMETIC(vjp_sub, 0), .linear = DTP_LINEAR_JOINT)                  \
    OP(mul, "a b", REAL, 1, ARITHMETIC(vjp_mul, 0), .linear = DTP_LINEAR_EACH)                     \
    OP(div, "a / b", POSITIVE, 1, .flags = DTP_OP_ELEMENTWISE | DTP_OP_FUSES, .infer = infer_div,  \
       .vjp = vjp_div)                                                                             \
    OP(max, "the larger", REAL, 1, ARITHMETIC(vjp_extremum, 0), .user = "gt",                      \
       .f32_error = DTP_EXACT, .mtf_class = "MinMaxOperation")                                     \
    OP(min, "the smaller", REAL, 1, ARITHMETIC(vjp_extremum, 0), .user = "lt",                     \
       .f32_error = DTP_EXACT, .mtf_class = "MinMaxOperation")                                     \
    OP(mod, "a - b floor(a / b), which has the sign of b", POSITIVE, 10, ARITHMETIC(vjp_mod, 0))   \
    OP(logical_and, "a and b", TRUTH, 1, LOGICAL)                                                  \
    OP(logical_or, "a or b", TRUTH, 1, LOGICAL)                                                    \
    OP(logical_xor, "a or b, not both", TRUTH, 1, LOGICAL)

/* Gradients that other ops cannot compose: of x, or y, and dy. OP(name, summary, FLOPs per element,
 * other fields of the row). */
#define DTP_GRADIENT_OPS(OP)                                                                       \
    OP(tanh_grad, "dy (1 - y^2)", 10, .vjp = NULL)                                                 \
    OP(sigmoid_grad, "dy y (1 - y)", 10, .vjp = NULL)                                              \
    OP(relu_grad, "dy where x > 0", 10, .f32_error = DTP_EXACT)                                    \
    OP(gelu_grad, "dy gelu'(x)", 10, .vjp = NULL)                                                  \
    OP(silu_grad, "dy silu'(x)", 10, .vjp = NULL)                                                  \
    OP(erf_grad, "dy erf'(x)", 10, .vjp = NULL)                                                    \
    OP(gelu_erf_grad, "dy gelu_erf'(x)", 20, .vjp = NULL)

#endif
