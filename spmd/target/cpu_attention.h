/* Workspace of the CPU kernels of attention, its gradient and their parts: one tile set per thread,
 * never the scores of a whole head. A kernel walks blocks of DTP_ATTENTION_QUERIES query rows x
 * DTP_ATTENTION_KEYS keys; the set holds two score tiles (p and its gradient) and packed blocks of
 * q, k, v, out and their gradients, in elements of 4 bytes (8 for f64):
 *   2 Q K + 2 (Q + K) (feature + value) + 4 Q
 */
#ifndef DTP_SPMD_TARGET_CPU_ATTENTION_H
#define DTP_SPMD_TARGET_CPU_ATTENTION_H

#include "core/graph/op.h"

enum { DTP_ATTENTION_QUERIES = 64, DTP_ATTENTION_KEYS = 128, DTP_ATTENTION_MAX_THREADS = 16 };

/* Elements of one thread's tile set. */
int64_t dtp_attention_tile_elems(int64_t feature, int64_t value);
/* Bytes of the tile sets of as many threads as the call keeps busy. */
int64_t dtp_attention_workspace(const dtp_op_call *call);

#endif
