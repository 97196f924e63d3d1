/* Convolutions by oneDNN in its own order of channels, operands and result left in it: what
 * bench_kernels holds ours against. */
#ifndef DTP_TESTS_BENCH_BENCH_ONEDNN_H
#define DTP_TESTS_BENCH_BENCH_ONEDNN_H

#include <stdbool.h>
#include <stdint.h>

/* A square image and kernel, padded so that there are image / stride places. */
typedef struct bench_conv {
    char result; /* 'x', 'w' or 'y': that of conv_transpose, conv_weight, conv */
    bool bf16;
    int64_t batch, in, out, image, kernel, stride;
} bench_conv;

/* Best of some runs on one thread, in seconds of processor time; 0: there is none. */
double bench_onednn(const bench_conv *conv);

#endif
