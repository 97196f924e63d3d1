/* Philox 4x32-10, a counter-based generator of random numbers. */
#include "core/base/philox.h"

#include <math.h>

static const uint32_t MULTIPLIER[2] = {0xD2511F53U, 0xCD9E8D57U};
static const uint32_t WEYL[2] = {0x9E3779B9U, 0xBB67AE85U};

void dtp_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)MULTIPLIER[0] * c0;
        const uint64_t p1 = (uint64_t)MULTIPLIER[1] * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        const uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0;
        c1 = (uint32_t)p1;
        c2 = n2;
        c3 = (uint32_t)p0;
        k0 += WEYL[0];
        k1 += WEYL[1];
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void dtp_philox_block(uint64_t seed, uint32_t stream, uint32_t step, uint64_t block,
                      uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), step, stream};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    dtp_philox(counter, key, out);
}

double dtp_uniform_at(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index)
{
    uint32_t words[4];
    dtp_philox_block(seed, stream, step, index / 4, words);
    return (double)dtp_uniform_f32(words[index % 4]);
}

/* Box-Muller on a pair of words. */
static void polar(const uint32_t pair[2], double *radius, double *angle)
{
    const double two_pi = 6.283185307179586;
    const double u1 = ((double)pair[0] + 1.0) * 0x1p-32; /* in (0, 1] */
    const double u2 = (double)pair[1] * 0x1p-32;
    *radius = sqrt(-2.0 * log(u1));
    *angle = two_pi * u2;
}

double dtp_normal_at(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index)
{
    uint32_t words[4];
    double radius, angle;
    dtp_philox_block(seed, stream, step, index / 4, words);
    polar(&words[index % 4 / 2 * 2], &radius, &angle);
    return index % 2 == 0 ? radius * cos(angle) : radius * sin(angle);
}

void dtp_normal_block(uint64_t seed, uint32_t stream, uint32_t step, uint64_t block, double out[4])
{
    uint32_t words[4];
    dtp_philox_block(seed, stream, step, block, words);
    for (int i = 0; i < 4; i += 2) {
        double radius, angle;
        polar(&words[i], &radius, &angle);
        out[i] = radius * cos(angle);
        out[i + 1] = radius * sin(angle);
    }
}

uint32_t dtp_stream_of(const char *name)
{
    uint32_t h = 0x811c9dc5U;
    for (; *name != '\0'; name++) {
        h = (h ^ (unsigned char)*name) * 0x01000193U;
    }
    return h == 0 ? 1 : h;
}
