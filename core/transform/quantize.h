/* Products in 8-bit floats: operands are put on the grid of an 8-bit float, at a scale of their
 * own, and multiplied. The tensors keep their type, which holds the grid's numbers exactly, so
 * every backend computes what a device with 8-bit products does (Micikevicius et al. 2022).
 */
#ifndef DTP_CORE_TRANSFORM_QUANTIZE_H
#define DTP_CORE_TRANSFORM_QUANTIZE_H

#include "core/graph/graph.h"

/* What elements of an operand share a scale. */
typedef enum dtp_scaling {
    DTP_SCALED_NOT,
    DTP_SCALED_BY_TENSOR,
    DTP_SCALED_BY_ROW /* those that one element of the result sums over (torchao's rowwise) */
} dtp_scaling;

/* A graph like g in which products read quantized operands. Each such operand has two nodes, its
 * amax, "amax.<tensor>", and "e4m3.<tensor>" or "e5m2.<tensor>", for all products that read it, by
 * rows for those that sum over the same dims: "e5m2.<tensor>.1" is over others.
 *
 *   DTP_FORWARD    products of an activation and a weight, in blocks, whose sizes 16 divides (what
 *                  cuBLASLt takes): both operands in e4m3; DTP_INVALID when there is none
 *   DTP_BACKWARD   products that read what is quantized: the gradient beside it in e5m2. What the
 *                  forward pass quantized is quantized again, "again.e4m3.<tensor>", so that the
 *                  tensor itself is what is kept (torchao's float8 linear layers) */
dtp_status dtp_graph_with_quantized(const dtp_graph *g, dtp_scaling scaling, dtp_phase phase,
                                    dtp_graph **out, dtp_err *err) DTP_MUST_CHECK;

#endif
