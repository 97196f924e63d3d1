/* A library for LD_PRELOAD that lets one allocation of a program fail, or all from one on.
 *
 *   DTP_ALLOC_FAIL=N    the N-th counted call fails (from 1; 0 or absent: none)
 *   DTP_ALLOC_ALL=1     ... and every counted call after it
 *   DTP_ALLOC_REPORT=F  F gets "calls K", and where the first failing call came from, one line
 *                       "at OFFSET" per frame of the program (for addr2line)
 *
 * Counted are the calls that come from the program itself, into which the project is linked, and
 * from libglpk and libz: those of libc, BLAS and MPI are not ours to mend. */
#define _GNU_SOURCE /* dl_iterate_phdr, RTLD_NEXT */

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* glibc's own entry points: safe before dlsym works. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

enum { MAX_RANGES = 16, MAX_FRAMES = 40 };

static struct {
    uintptr_t begin[MAX_RANGES], end[MAX_RANGES], program;
    int n_ranges;
    long fail_at;
    int all;
    const char *report;
    atomic_long calls;
    void *frames[MAX_FRAMES];
    int n_frames;
} state;

static int add_ranges(struct dl_phdr_info *info, size_t size, void *user)
{
    static const char *const names[] = {"libglpk", "libz.so"};
    int *first = user;
    int wanted = *first;
    (void)size;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        wanted = wanted || strstr(info->dlpi_name, names[i]) != NULL;
    }
    if (*first) {
        state.program = info->dlpi_addr;
    }
    *first = 0; /* the program itself comes first */
    for (int i = 0; wanted && i < info->dlpi_phnum && state.n_ranges < MAX_RANGES; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && (p->p_flags & PF_X) != 0) {
            state.begin[state.n_ranges] = info->dlpi_addr + p->p_vaddr;
            state.end[state.n_ranges++] = info->dlpi_addr + p->p_vaddr + p->p_memsz;
        }
    }
    return 0;
}

static long number(const char *name)
{
    const char *text = getenv(name);
    return text == NULL ? 0 : strtol(text, NULL, 10);
}

__attribute__((constructor)) static void begin(void)
{
    int first = 1;
    void *frame[1];
    (void)backtrace(frame, 1); /* the first call loads a library */
    (void)dl_iterate_phdr(add_ranges, &first);
    state.all = number("DTP_ALLOC_ALL") != 0;
    state.report = getenv("DTP_ALLOC_REPORT");
    state.fail_at = number("DTP_ALLOC_FAIL");
}

__attribute__((destructor)) static void end(void)
{
    FILE *f = state.report == NULL ? NULL : fopen(state.report, "w");
    if (f == NULL) {
        return;
    }
    (void)fprintf(f, "calls %ld\n", atomic_load(&state.calls));
    for (int i = 0; i < state.n_frames; i++) {
        (void)fprintf(f, "at %lx\n", (unsigned long)((uintptr_t)state.frames[i] - state.program));
    }
    (void)fclose(f);
}

/* Whether a call that returns to `from` fails. */
static int fails(void *from)
{
    const uintptr_t at = (uintptr_t)from;
    for (int i = 0; i < state.n_ranges; i++) {
        if (at >= state.begin[i] && at < state.end[i]) {
            const long call = atomic_fetch_add(&state.calls, 1) + 1;
            if (call == state.fail_at) {
                state.n_frames = backtrace(state.frames, MAX_FRAMES);
            }
            if (call == state.fail_at || (state.all && state.fail_at > 0 && call > state.fail_at)) {
                errno = ENOMEM;
                return 1;
            }
            return 0;
        }
    }
    return 0;
}

void *malloc(size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(p, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (fails(__builtin_return_address(0))) {
        return ENOMEM;
    }
    *out = __libc_memalign(alignment, size);
    return *out == NULL ? ENOMEM : 0;
}

static char *copy(const char *text, size_t n)
{
    char *out = __libc_malloc(n + 1);
    if (out != NULL) {
        memcpy(out, text, n);
        out[n] = '\0';
    }
    return out;
}

char *strdup(const char *text)
{
    return fails(__builtin_return_address(0)) ? NULL : copy(text, strlen(text));
}

char *strndup(const char *text, size_t n)
{
    return fails(__builtin_return_address(0)) ? NULL : copy(text, strnlen(text, n));
}
