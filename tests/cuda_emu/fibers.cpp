/* Execution of the threads of a block.
 *
 * A fiber calls the kernel for one thread after another. When a thread blocks, at a barrier or
 * in a warp operation, its fiber is parked with it and another fiber goes on. So a kernel
 * without barriers needs one fiber and no switch. Which thread goes on is drawn at every such
 * point. */
#include <cstdio>
#include <cstring>
#include <ucontext.h>
#include <sys/mman.h>

#include "cuda_runtime.h"
#include "fibers.h"
#include "internal.h"
#include "mma.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
unsigned long long cuda_emu_block_serial;
unsigned short cuda_emu_fragment_cells[3][2][256];

namespace emu
{

namespace
{

constexpr size_t stack_bytes = size_t{256} << 10;
constexpr int most_threads = 1024;

enum class at { nowhere, running, ready, barrier, warp, ended };

struct fiber {
    ucontext_t context;
    void *registers[5];
    bool entered = false;
    char *stack = nullptr;
    const void *bottom = nullptr;
    size_t bytes = 0;
    void *fake_stack = nullptr;
};

struct thread_state {
    at where = at::nowhere;
    fiber *on = nullptr;
    unsigned mask = 0;
    void *data = nullptr;
    cuda_emu_combine combine = nullptr;
    const char *file = nullptr;
    int line = 0;
};

/* The block that runs now. */
struct block_state {
    cuda_emu_call *call;
    random_source *random;
    int size, started, ended, waiting;
    uint32_t first, stride;
    thread_state threads[most_threads];
    int ready[most_threads], n_ready;
    int parked_lanes[most_threads / 32], ended_lanes[most_threads / 32]; /* per warp */
    int current;
    int votes, vote_result;
    std::string error;
    fiber main;
    fiber *active;
    std::vector<fiber *> idle;
} block;
/* Of all fibers ever made; it outlives the static objects. */
std::vector<fiber *> &pool = *new std::vector<fiber *>;

#if defined(__SANITIZE_THREAD__)
/* Two contexts of the thread sanitizer: of the main stack, and of all fibers, which never run beside
 * each other. With one per fiber it would walk the clocks of all at every switch. The calls that it
 * reports above a line of a kernel may be those of another fiber. */
void *main_context, *fiber_context;
#endif

void enter(fiber *f);

/* The first switch of a grid comes from the main stack. */
[[maybe_unused]] void note_main_stack(const void *bottom, size_t bytes)
{
    if (!block.main.bottom) {
        block.main.bottom = bottom;
        block.main.bytes = bytes;
    }
}

#define UNCHECKED                                                                                  \
    __attribute__((noinline, no_sanitize("address"), no_sanitize("thread"),                        \
                   no_sanitize("undefined")))

[[noreturn]] UNCHECKED void jump(fiber *to)
{
    __builtin_longjmp(to->registers, 1);
}

/* The built-in jumps: those of the library are replaced by the sanitizers, which take them for
 * jumps within one stack. */
UNCHECKED void swap_registers(fiber *from, fiber *to)
{
    if (__builtin_setjmp(from->registers) == 0) {
        if (!to->entered) {
            to->entered = true;
            setcontext(&to->context);
        }
        jump(to);
    }
}

/* Leaves `from`; comes back when somebody switches to it. */
void switch_fiber(fiber *from, fiber *to)
{
    block.active = to;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->bytes);
    swap_registers(from, to);
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(from->fake_stack, &bottom, &bytes);
    note_main_stack(bottom, bytes);
#else
#if defined(__SANITIZE_THREAD__)
    if (from == &block.main || to == &block.main) {
        __tsan_switch_to_fiber(to == &block.main ? main_context : fiber_context, 0);
    }
#endif
    swap_registers(from, to);
#endif
}

uint32_t common_divisor(uint32_t a, uint32_t b)
{
    while (b) {
        uint32_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* first + i * stride mod n is a permutation of 0 .. n-1. */
void draw_order(uint32_t n, uint32_t *first, uint32_t *stride)
{
    *first = block.random->below(n);
    do {
        *stride = 1 + block.random->below(n);
    } while (common_divisor(*stride, n) != 1);
}

void become(int t)
{
    block.current = t;
    block.threads[t].where = at::running;
    unsigned x = static_cast<unsigned>(t) % blockDim.x;
    unsigned rest = static_cast<unsigned>(t) / blockDim.x;
    threadIdx.x = x;
    threadIdx.y = rest % blockDim.y;
    threadIdx.z = rest / blockDim.y;
}

void make_ready(int t)
{
    block.threads[t].where = at::ready;
    block.ready[block.n_ready++] = t;
}

/* Completes the warp operation of thread t if all lanes of its mask have come. */
bool try_warp(int t)
{
    int base = t & ~31;
    thread_state &mine = block.threads[t];
    int lanes_here = block.size - base < 32 ? block.size - base : 32;
    unsigned wanted = mine.mask & (0xffffffffu >> (32 - lanes_here));
    if (block.parked_lanes[t / 32] + block.ended_lanes[t / 32] < __builtin_popcount(wanted)) {
        return false;
    }
    void *lanes[32] = {};
    unsigned present = 0;
    for (int lane = 0; lane < 32; lane++) {
        if (!(wanted >> lane & 1)) {
            continue;
        }
        const thread_state &other = block.threads[base + lane];
        if (other.where == at::ended) {
            continue;
        }
        if (other.where != at::warp || other.mask != mine.mask || other.combine != mine.combine ||
            other.line != mine.line) {
            return false;
        }
        lanes[lane] = other.data;
        present |= 1u << lane;
    }
    mine.combine(lanes, present);
    for (int lane = 0; lane < 32; lane++) {
        if (present >> lane & 1) {
            block.parked_lanes[t / 32]--;
            make_ready(base + lane);
        }
    }
    return true;
}

void try_barrier()
{
    if (block.waiting < block.size) {
        return;
    }
    const thread_state &first = block.threads[0];
    for (int t = 1; t < block.size; t++) {
        const thread_state &other = block.threads[t];
        if (other.line != first.line || strcmp(other.file, first.file) != 0) {
            char text[512];
            snprintf(text, sizeof text, "thread 0 waits at the barrier %s:%d, thread %d at %s:%d",
                     first.file, first.line, t, other.file, other.line);
            block.error = text;
            return;
        }
    }
    block.vote_result = block.votes;
    block.votes = 0;
    block.waiting = 0;
    for (int t = 0; t < block.size; t++) {
        make_ready(t);
    }
}

const char *name_of(at where)
{
    return where == at::barrier ? "barrier" : "warp operation";
}

/* No thread can go on: says who waits where. */
void describe_deadlock()
{
    int barrier = -1, warp = -1;
    for (int t = block.size - 1; t >= 0; t--) {
        if (block.threads[t].where == at::barrier) {
            barrier = t;
        } else if (block.threads[t].where == at::warp) {
            warp = t;
        }
    }
    int t = barrier >= 0 ? barrier : warp;
    const thread_state &waits = block.threads[t];
    char text[512];
    int n = snprintf(text, sizeof text, "divergence: thread %d waits at the %s %s:%d", t,
                     name_of(waits.where), waits.file, waits.line);
    if (barrier >= 0 && warp >= 0) {
        const thread_state &other = block.threads[warp];
        snprintf(text + n, sizeof text - static_cast<size_t>(n),
                 ", thread %d at the warp operation %s:%d", warp, other.file, other.line);
    } else {
        snprintf(text + n, sizeof text - static_cast<size_t>(n), "; %d of %d threads have ended",
                 block.ended, block.size);
    }
    block.error = text;
}

fiber *idle_fiber()
{
    if (block.idle.empty()) {
        fiber *f = new fiber;
        void *stack = mmap(nullptr, stack_bytes + 4096, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED || mprotect(stack, 4096, PROT_NONE) != 0) {
            fprintf(stderr, "cuda_emu: no memory for a fiber\n");
            abort();
        }
        f->stack = static_cast<char *>(stack) + 4096;
        f->bottom = f->stack;
        /* Tops at different offsets of a page, else all frames share the same few cache sets. */
        f->bytes = stack_bytes - pool.size() * 832 % 16384;
        pool.push_back(f);
        block.idle.push_back(f);
        enter(f);
    }
    fiber *f = block.idle.back();
    block.idle.pop_back();
    return f;
}

/* The calling fiber cannot go on; another one does. */
void yield_from(fiber *from)
{
    int left = block.size - block.started;
    fiber *to = &block.main;
    if (!block.error.empty()) {
        /* the grid is given up */
    } else if (block.n_ready > 0 && (left == 0 || block.random->below(2))) {
        int slot = static_cast<int>(block.random->below(static_cast<uint32_t>(block.n_ready)));
        int t = block.ready[slot];
        block.ready[slot] = block.ready[--block.n_ready];
        to = block.threads[t].on;
        become(t);
    } else if (left > 0) {
        to = idle_fiber();
    } else if (block.ended < block.size) {
        describe_deadlock();
    }
    if (to != from) {
        switch_fiber(from, to);
    }
}

/* A fiber runs threads that have not started as long as there are any. */
void fiber_main()
{
#if defined(__SANITIZE_ADDRESS__)
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    note_main_stack(bottom, bytes);
#endif
    fiber *self = block.active;
    for (;;) {
        while (block.started < block.size && block.error.empty()) {
            uint32_t n = static_cast<uint32_t>(block.size);
            int t = static_cast<int>(
                (block.first + static_cast<uint64_t>(block.started) * block.stride) % n);
            block.started++;
            block.threads[t].on = self;
            become(t);
            block.call->run();
            t = block.current;
            block.threads[t].where = at::ended;
            block.ended++;
            block.ended_lanes[t / 32]++;
            int base = t & ~31;
            for (int i = base; block.parked_lanes[t / 32] > 0 && i < base + 32 && i < block.size;
                 i++) {
                if (block.threads[i].where == at::warp && block.threads[i].mask >> (t - base) & 1) {
                    try_warp(i);
                }
            }
            if (block.n_ready > 0 && block.random->below(2)) {
                break;
            }
        }
        block.idle.push_back(self);
        yield_from(self);
    }
}

void enter(fiber *f)
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = f->bytes;
    f->context.uc_link = nullptr;
    f->entered = false;
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(f->stack, f->bytes);
#endif
    makecontext(&f->context, fiber_main, 0);
}

/* The calling thread waits; afterwards it runs again. */
void park(at where)
{
    int t = block.current;
    fiber *self = block.threads[t].on;
    block.threads[t].where = where;
    if (where == at::barrier) {
        block.waiting++;
        try_barrier();
    } else {
        block.parked_lanes[t / 32]++;
        try_warp(t);
    }
    yield_from(self);
}

void run_block()
{
    uint32_t first, stride;
    draw_order(static_cast<uint32_t>(block.size), &first, &stride);
    block.first = first;
    block.stride = stride;
    block.started = block.ended = block.waiting = 0;
    memset(block.parked_lanes, 0, sizeof block.parked_lanes);
    memset(block.ended_lanes, 0, sizeof block.ended_lanes);
    block.n_ready = block.votes = 0;
    for (int t = 0; t < block.size; t++) {
        block.threads[t].where = at::nowhere;
    }
    begin_shared();
    switch_fiber(&block.main, idle_fiber());
    std::string damage = end_shared();
    if (block.error.empty()) {
        block.error = damage;
    }
}

} // namespace

std::string run_grid(cuda_emu_call *call, dim3 grid, dim3 threads, size_t dynamic_bytes,
                     bool raised, random_source &random)
{
    block.call = call;
    block.random = &random;
    block.size = static_cast<int>(threads.x * threads.y * threads.z);
    block.error.clear();
    block.main.bottom = nullptr;
    block.main.entered = true;
#if defined(__SANITIZE_THREAD__)
    main_context = __tsan_get_current_fiber();
    fiber_context = fiber_context ? fiber_context : __tsan_create_fiber(0);
#endif
    blockDim = threads;
    gridDim = grid;
    set_dynamic_shared(dynamic_bytes, raised);
    uint64_t blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
    uint32_t n = static_cast<uint32_t>(blocks);
    uint32_t first, stride;
    draw_order(n, &first, &stride);
    for (uint64_t i = 0; i < blocks && block.error.empty(); i++) {
        uint32_t b = static_cast<uint32_t>((first + i * stride) % n);
        blockIdx.x = b % grid.x;
        blockIdx.y = b / grid.x % grid.y;
        blockIdx.z = b / grid.x / grid.y;
        run_block();
    }
    if (block.error.empty()) {
        return "";
    }
    /* Parked fibers hold frames of threads that never end. */
#if defined(__SANITIZE_THREAD__)
    __tsan_destroy_fiber(fiber_context);
    fiber_context = nullptr;
#endif
    block.idle.clear();
    for (fiber *f : pool) {
        enter(f);
        block.idle.push_back(f);
    }
    char text[128];
    snprintf(text, sizeof text, "block (%u, %u, %u): ", blockIdx.x, blockIdx.y, blockIdx.z);
    return text + block.error;
}

void stop_block(const char *text)
{
    block.error = text;
    yield_from(block.threads[block.current].on);
    abort();
}

void shuffle_fragments(random_source &random)
{
    for (auto &use : cuda_emu_fragment_cells) {
        for (uint32_t wide = 0; wide < 2; wide++) {
            uint32_t n = wide ? 256 : 128;
            for (uint32_t i = 0; i < n; i++) {
                uint32_t j = random.below(i + 1);
                use[wide][i] = use[wide][j];
                use[wide][j] = static_cast<unsigned short>(i);
            }
        }
    }
}

} // namespace emu

int cuda_emu_lane()
{
    return emu::block.current & 31;
}

int cuda_emu_block_barrier(cuda_emu_vote vote, int predicate, const char *file, int line)
{
    emu::thread_state &mine = emu::block.threads[emu::block.current];
    if (emu::barrier_dropped(file, line)) {
        return 0;
    }
    mine.file = file;
    mine.line = line;
    emu::block.votes += predicate != 0;
    emu::park(emu::at::barrier);
    int votes = emu::block.vote_result;
    return vote == cuda_emu_vote_and  ? votes == emu::block.size
           : vote == cuda_emu_vote_or ? votes > 0
                                      : votes;
}

void cuda_emu_warp(unsigned mask, void *mine, cuda_emu_combine combine, const char *file, int line)
{
    emu::thread_state &thread = emu::block.threads[emu::block.current];
    thread.mask = mask;
    thread.data = mine;
    thread.combine = combine;
    thread.file = file;
    thread.line = line;
    emu::park(emu::at::warp);
}

void cuda_emu_stop(const char *text)
{
    emu::stop_block(text);
}
