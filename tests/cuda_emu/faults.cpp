/* Errors: messages, the last error of a thread, injected faults. */
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

namespace emu
{

namespace
{

thread_local cudaError_t last_error = cudaSuccess;
thread_local double clock_of_host = 0;

void report(cudaError_t error, const char *format, va_list arguments)
{
    char text[800];
    vsnprintf(text, sizeof text, format, arguments);
    state &s = all();
    s.message = text;
    s.counters.errors++;
    if (!s.quiet) {
        fprintf(stderr, "cuda_emu: %s (%s)\n", text, cudaGetErrorName(error));
    }
}

int load_bias(struct dl_phdr_info *info, size_t, void *bias)
{
    *static_cast<uintptr_t *>(bias) = info->dlpi_addr; /* the program comes first */
    return 1;
}

} // namespace

cudaError_t fail(cudaError_t error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report(error, format, arguments);
    va_end(arguments);
    return error;
}

void fail_device(int device, cudaError_t error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report(error, format, arguments);
    va_end(arguments);
    if (device_at(device).error == cudaSuccess) {
        device_at(device).error = error;
    }
}

bool fault_now(cuda_emu_fault fault)
{
    state &s = all();
    const bool counts =
        fault != CUDA_EMU_DROP_WAIT || s.fault_by[fault] == std::this_thread::get_id();
    return s.fault[fault] > 0 && counts && ++s.seen[fault] == s.fault[fault];
}

cudaError_t said(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady) {
        last_error = error;
    }
    return error;
}

double &host_clock()
{
    return clock_of_host;
}

/* From the symbol table of the program file. */
std::string symbol_of(const void *function)
{
    uintptr_t bias = 0;
    dl_iterate_phdr(load_bias, &bias);
    uintptr_t wanted = reinterpret_cast<uintptr_t>(function) - bias;
    std::string name = "?";
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (file < 0 || fstat(file, &info) != 0) {
        return name;
    }
    size_t bytes = static_cast<size_t>(info.st_size);
    void *map = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (map == MAP_FAILED) {
        return name;
    }
    const char *base = static_cast<const char *>(map);
    const ElfW(Ehdr) *header = reinterpret_cast<const ElfW(Ehdr) *>(base);
    const ElfW(Shdr) *sections = reinterpret_cast<const ElfW(Shdr) *>(base + header->e_shoff);
    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) {
            continue;
        }
        const ElfW(Sym) *symbols =
            reinterpret_cast<const ElfW(Sym) *>(base + sections[i].sh_offset);
        const char *names = base + sections[sections[i].sh_link].sh_offset;
        for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++) {
            if ((symbols[k].st_info & 0xf) == STT_FUNC && symbols[k].st_value == wanted) {
                int status;
                char *plain =
                    abi::__cxa_demangle(names + symbols[k].st_name, nullptr, nullptr, &status);
                name = plain ? plain : names + symbols[k].st_name;
                free(plain);
                break;
            }
        }
    }
    munmap(map, bytes);
    size_t arguments = name.rfind('(');
    return arguments > 0 ? name.substr(0, arguments) : name;
}

} // namespace emu

extern "C" {

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = emu::last_error;
    emu::last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return emu::last_error;
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
#define CUDA_EMU_TEXT(name, value, text)                                                           \
    case name:                                                                                     \
        return text;
        CUDA_EMU_ERRORS(CUDA_EMU_TEXT)
    }
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
#define CUDA_EMU_NAME(name, value, text)                                                           \
    case name:                                                                                     \
        return #name;
        CUDA_EMU_ERRORS(CUDA_EMU_NAME)
    }
    return "unrecognized error code";
}
}
