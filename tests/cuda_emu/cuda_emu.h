/* Control of the emulated CUDA device, for tests alone. Plain C.
 *
 * The emulated device runs CUDA sources on the CPU: kernels as fibers, streams in any order that
 * events allow. All choices follow from one seed, so a failure repeats with its seed as long as
 * one host thread issues the work.
 *
 * Costs on one core of a server: a launch 0.4 us to issue and run, 10 ns a thread, 50 to 100 ns for
 * each barrier or warp operation of a thread (150 ns under the address sanitizer), 5 to 50 us for a
 * call that waits, which opens and closes the device memory. */
#ifndef CUDA_EMU_H
#define CUDA_EMU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_emu_counters {
    uint64_t launches;       /* of kernels by the host, captured ones included */
    uint64_t kernels;        /* that ran, graphs included */
    uint64_t graph_launches; /* by the host */
    uint64_t
        host_syncs; /* calls in which the host waits for the device, blocking copies included */
    uint64_t event_waits;  /* calls of cudaStreamWaitEvent */
    uint64_t copies;       /* copies and fills that ran */
    uint64_t products;     /* cuBLASLt products that ran */
    uint64_t refusals;     /* of cuda_emu_refuse */
    uint64_t collectives;  /* NCCL operations of one rank that ran */
    uint64_t ranges;       /* of NVTX that were opened */
    uint64_t errors;       /* faults that the emulator reported */
    uint64_t live_device;  /* device allocations not freed */
    uint64_t live_nccl;    /* those of ncclMemAlloc among them */
    uint64_t live_host;    /* pinned allocations not freed */
    uint64_t live_objects; /* streams, events, graphs, communicators not destroyed; open ranges */
    size_t device_bytes;   /* allocated on all devices now */
    size_t device_peak;    /* the largest device_bytes since reset */
};

enum cuda_emu_fault {
    CUDA_EMU_DROP_WAIT,    /* the n-th cudaStreamWaitEvent of the thread that sets the fault does
                              nothing */
    CUDA_EMU_DROP_BARRIER, /* the n-th barrier line that kernels reach is passed without waiting */
    CUDA_EMU_FAIL_MALLOC,  /* the n-th cudaMalloc finds no memory */
    CUDA_EMU_FAIL_LAUNCH,  /* the n-th launch ends in cudaErrorLaunchFailure when it runs */
    CUDA_EMU_SWAP_CALLS, /* the n-th NCCL call of a rank 0 comes after the next one of its thread */
    CUDA_EMU_NO_ALGORITHM, /* the n-th heuristic of cuBLASLt finds nothing */
    CUDA_EMU_FAULTS
};

/* A program that does not call these takes CUDA_EMU_DEVICES, CUDA_EMU_SEED, CUDA_EMU_REFUSE (kinds
 * of refusals), CUDA_EMU_REFUSE_SEED and the faults CUDA_EMU_DROP_BARRIER, CUDA_EMU_FAIL_LAUNCH and
 * CUDA_EMU_NO_ALGORITHM of its environment. */
/* The state of a new process: no memory, no streams, counters zero, faults off, one device, seed
 * 1. Device memory is given up; streams, events, graphs and communicators must not be used any
 * more. */
void cuda_emu_reset(void);
/* Order of streams, blocks, threads and fragment cells from here on. */
void cuda_emu_seed(uint64_t seed);
/* Number of devices, 0 to 16; at 0 every call returns cudaErrorNoDevice. */
void cuda_emu_devices(int count);
/* Memory of each device; allocations beyond it fail. At the start 8 GiB. */
void cuda_emu_memory(size_t bytes);
/* Streams run in the order of their calls at once: what a device does that is never late. At the
 * start 0. */
void cuda_emu_in_order(int on);
/* Operations that a stream holds, a graph being one; a call that issues one more blocks until one
 * ends. 0, as at the start: any number. */
void cuda_emu_launch_queue(size_t n);
/* Count from 1; 0 turns the fault off. */
void cuda_emu_set_fault(enum cuda_emu_fault fault, uint64_t n);
/* What cuBLASLt refuses by statuses that documents allow and nobody foresees; a set. */
enum cuda_emu_refusal {
    CUDA_EMU_REFUSE_EPILOGUES = 1, /* an algorithm for a product with an epilogue */
    CUDA_EMU_REFUSE_RUNS = 2,      /* such a product when it is to run */
    CUDA_EMU_REFUSE_UNALIGNED = 4  /* an algorithm for an epilogue at addresses that are no
                                      multiples of 16 bytes */
};
/* One product in two, drawn by its shape, types and epilogue; seed 0: every one. Kinds 0, as at the
 * start: none. */
void cuda_emu_refuse(unsigned kinds, uint64_t seed);
struct cuda_emu_counters cuda_emu_count(void);
/* The last fault in words, of any thread; "" when there was none. Each one is printed to stderr
 * as well, unless quiet. */
const char *cuda_emu_message(void);
void cuda_emu_quiet(int on);
/* The range of NVTX that this thread has opened last, or so many further out; "": none. */
const char *cuda_emu_range(int outer);
/* Whether all bytes lie in one live allocation of a device. */
int cuda_emu_is_device(const void *address, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
