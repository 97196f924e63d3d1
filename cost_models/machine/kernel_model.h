/* Times of matrix products and attention on a device by shape, with a few constants for each
 * arithmetic and each family of attention kernels (docs/cost-model.md). models/published/parts.py
 * fits them to measurements.
 *
 * Both are of a device with S multiprocessors, whose tensor cores make R = rate * flops FLOP/s.
 *
 * A product (m x k) . (k x n), `batch` of them in one call, takes
 *   start + max(T, bytes / (memory * mem_bw)) + quantize * batch m k / (memory * mem_bw)
 *   T = least over tiles (tm, tn) and parts s = 1, 2, 4, 8 of k:
 *       ceil(batch ceil(m / tm) ceil(n / tn) s / S) * (k / s + ramp) * 2 tm tn cost S / R
 *       + split(s)
 * for tiles of 256 x 128 (cost 1), 128 x 128 and 128 x 64: smaller ones load more for each FLOP.
 * All terms descend with no size. A product that is split p ways along m, n or k takes at least
 * 1/p of the whole.
 *
 * Attention takes start + 2 pairs (products + score) / R * max(1, S / tiles) + bytes / (memory *
 * mem_bw). A tile has 128 queries of a head, which the last one is filled up to. A causal mask
 * leaves half of a tile more than half of the pairs.
 */
#ifndef DTP_COST_MODELS_KERNEL_MODEL_H
#define DTP_COST_MODELS_KERNEL_MODEL_H

#include "core/base/json.h"
#include "core/base/json_writer.h"
#include "cost_models/machine/machine.h"

/* "multiprocessors", "products" and "attention" of "device"; none without the first. */
dtp_status dtp_kernel_models_read(dtp_machine *m, const dtp_json *device,
                                  dtp_err *err) DTP_MUST_CHECK;
void dtp_kernel_models_write(dtp_json_writer *w, const dtp_machine *m);
/* h where there are none. */
uint64_t dtp_kernel_models__hash(uint64_t h, const dtp_machine *m);

/* Index of the model of a family, -1 when there is none. */
int32_t dtp_attention_model_find(const dtp_machine *m, const char *kernel);
/* The arithmetic whose model prices products: its own, of f16 and tf32 that of bf16; -1: none, or
 * no rate. */
dtp_arithmetic dtp_product_model_of(const dtp_machine *m, dtp_arithmetic arithmetic);

/* Seconds of a kernel in three parts. */
typedef struct dtp_kernel_time {
    double start_s, arithmetic_s, bytes_s; /* one of the last two may be hidden: 0 */
} dtp_kernel_time;

/* Of products in an arithmetic that has a model. */
dtp_kernel_time dtp_product_time(const dtp_machine *m, dtp_arithmetic arithmetic,
                                 const dtp_work *work);
/* Seconds of y[m, n] = x[m, k] w[k, n] that runs alone, as products are measured: its first
 * millisecond is faster by `burst`, before the device lowers its clock. */
double dtp_product_alone_s(const dtp_machine *m, dtp_arithmetic arithmetic, int64_t rows,
                           int64_t columns, int64_t inner);

/* Whether attention of this work is priced by a model: the machine is set to a runtime that names
 * one, and the work says its shape. */
bool dtp_attention_has_model(const dtp_machine *m, const dtp_work *work);
/* By a model, its index; `flops`: what the device would make if the model reached its peak. */
dtp_kernel_time dtp_attention_time(const dtp_machine *m, int32_t model, bool grad, double flops,
                                   const dtp_work *work);

#endif
