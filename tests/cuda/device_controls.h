/* The controls of the emulated device, for tests that run on a card as well (DTP_TEST_ON_CARD):
 * there they do nothing, and counts are 0. */
#ifndef DTP_TESTS_CUDA_DEVICE_CONTROLS_H
#define DTP_TESTS_CUDA_DEVICE_CONTROLS_H

#include <stdio.h>

#include "executor/device/backend.h"

#ifndef DTP_TEST_ON_CARD

#include "cuda_emu.h"

enum { ON_CARD = 0 };

#else

enum { ON_CARD = 1 };
enum cuda_emu_fault { CUDA_EMU_DROP_WAIT };
struct cuda_emu_counters {
    uint64_t event_waits, collectives, live_device, live_nccl, live_host, live_objects;
};

static inline void cuda_emu_reset(void)
{
}

static inline void cuda_emu_seed(uint64_t seed)
{
    (void)seed;
}

static inline void cuda_emu_devices(int count)
{
    (void)count;
}

static inline void cuda_emu_quiet(int on)
{
    (void)on;
}

static inline void cuda_emu_set_fault(enum cuda_emu_fault fault, uint64_t n)
{
    (void)fault;
    (void)n;
}

static inline struct cuda_emu_counters cuda_emu_count(void)
{
    return (struct cuda_emu_counters){0};
}

static inline const char *cuda_emu_message(void)
{
    return "";
}

#endif

/* The exit status of a test that cannot run, with why, where there is no card; else 0. */
static inline int skip_without_card(void)
{
    enum { SKIPPED = 77 };
    dtp_backend *b = NULL;
    dtp_err err = {0};
    const dtp_status s = dtp_backend_create("cuda", 1, &b, &err);
    if (s == DTP_OK) {
        dtp_backend_destroy(b);
        return 0;
    }
    printf("%s\n", err.msg);
    return s == DTP_UNSUPPORTED ? SKIPPED : 1;
}

#endif
