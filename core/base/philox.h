/* Philox 4x32-10 (Salmon et al., SC 2011): a counter-based generator, so a random value depends on
 * (seed, stream, step, global element index) only and is bitwise the same under every layout. */
#ifndef DTP_CORE_BASE_PHILOX_H
#define DTP_CORE_BASE_PHILOX_H

#include <stdint.h>

/* out = philox4x32-10(counter, key). */
void dtp_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* The four words for elements 4*block .. 4*block+3 of a stream at a step. Counter = {block low,
 * block high, step, stream}, key = seed. */
void dtp_philox_block(uint64_t seed, uint32_t stream, uint32_t step, uint64_t block,
                      uint32_t out[4]);

/* Uniform in [0, 1) with 24 bits from one word. */
static inline float dtp_uniform_f32(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}
/* Uniform value of one element. */
double dtp_uniform_at(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index);
/* Standard normal value of one element (Box-Muller in double on the two words of its pair, rounded
 * by the caller): the same bits on every backend that uses this function. */
double dtp_normal_at(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index);

/* The four of elements 4*block .. 4*block+3: the same bits as dtp_normal_at, at half the cost. */
void dtp_normal_block(uint64_t seed, uint32_t stream, uint32_t step, uint64_t block, double out[4]);

/* FNV-1a of a name: the stream of a parameter or random node. */
uint32_t dtp_stream_of(const char *name);

#endif
