/* Shared memory: every array of a block with a red zone on both sides, filled with 0xff bytes,
 * which are a NaN in every float type. */
#include <cstdio>
#include <cstring>

#include "cuda_runtime.h"
#include "fibers.h"
#include "internal.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace emu
{

namespace
{

constexpr size_t static_limit = 48 << 10, most_in_all = 227 << 10, zone = 64, arrays = 64;
constexpr size_t room = static_limit + most_in_all + zone * (2 * arrays + 4);

struct array {
    size_t offset, bytes;
    const char *name;
};

alignas(256) unsigned char memory[room];
array laid_out[arrays];
size_t n_arrays, used, static_bytes, dynamic_bytes, total_limit;
unsigned char *dynamic_start;
unsigned char zone_bytes[zone];
const char *dropped_file;
int dropped_line;

/* A red zone follows. */
unsigned char *lay_out(size_t bytes, const char *name)
{
    size_t rounded = (bytes + zone - 1) / zone * zone;
    unsigned char *start = memory + used;
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(start, bytes);
#endif
    memset(start, 0xff, bytes);
    memset(start + bytes, 0xa5, rounded - bytes + zone);
#if defined(__SANITIZE_ADDRESS__)
    __asan_poison_memory_region(start + bytes, rounded - bytes + zone);
#endif
    laid_out[n_arrays++] = {used, bytes, name};
    used += rounded + zone;
    return start;
}

} // namespace

void set_dynamic_shared(size_t bytes, bool raised)
{
    dynamic_bytes = bytes;
    total_limit = raised ? most_in_all : static_limit;
    memset(zone_bytes, 0xa5, zone);
}

void begin_shared()
{
    cuda_emu_block_serial++;
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(memory, used + zone);
#endif
    n_arrays = 0;
    used = zone;
    static_bytes = 0;
    dynamic_start = nullptr;
    memcpy(memory, zone_bytes, zone);
#if defined(__SANITIZE_ADDRESS__)
    __asan_poison_memory_region(memory, zone);
#endif
}

std::string end_shared()
{
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(memory, used);
#endif
    char text[160];
    for (size_t i = 0; i < n_arrays; i++) {
        const array &a = laid_out[i];
        const unsigned char *after = memory + a.offset + a.bytes;
        if (memcmp(memory + a.offset - zone, zone_bytes, zone) != 0 ||
            memcmp(after, zone_bytes, zone) != 0) {
            snprintf(text, sizeof text, "a write outside of the shared array '%s' of %zu bytes",
                     a.name, a.bytes);
            return text;
        }
    }
    return "";
}

bool barrier_dropped(const char *file, int line)
{
    state &s = all();
    if (s.fault[CUDA_EMU_DROP_BARRIER] == 0) {
        dropped_file = nullptr;
        return false;
    }
    static std::set<std::pair<std::string, int>> lines;
    if (s.seen[CUDA_EMU_DROP_BARRIER] == 0) {
        lines.clear();
        dropped_file = nullptr;
    }
    if (lines.insert({file, line}).second && fault_now(CUDA_EMU_DROP_BARRIER)) {
        dropped_file = file;
        dropped_line = line;
    }
    return dropped_file && line == dropped_line && strcmp(file, dropped_file) == 0;
}

} // namespace emu

void *cuda_emu_shared_lay_out(cuda_emu_shared_key *key, size_t bytes, const char *name)
{
    emu::static_bytes += bytes;
    if (emu::static_bytes > emu::static_limit || emu::n_arrays == emu::arrays) {
        emu::stop_block("more than 48 KiB of static shared memory, or more than 64 arrays");
    }
    if (emu::static_bytes + emu::dynamic_bytes > emu::total_limit) {
        emu::stop_block("static and dynamic shared memory are more than the limit of the kernel");
    }
    key->address = emu::lay_out(bytes, name);
    key->block = cuda_emu_block_serial;
    return key->address;
}

unsigned char *cuda_emu_dynamic_shared()
{
    if (!emu::dynamic_start) {
        emu::dynamic_start = emu::lay_out(emu::dynamic_bytes, "dynamic");
    }
    return emu::dynamic_start;
}
