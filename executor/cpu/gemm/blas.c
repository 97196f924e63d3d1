/* OpenBLAS, loaded when the first CPU backend is made. */
#include "executor/cpu/gemm/blas.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/status.h"

static const char CORETYPE[] = "OPENBLAS_CORETYPE";

/* NULL with a message. */
static void *open_library(const char *soname, dtp_err *err)
{
    void *library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *reason = dlerror();
        (void)DTP_FAIL(err, DTP_UNSUPPORTED, "OpenBLAS cannot be loaded: %s",
                       reason != NULL ? reason : soname);
    }
    return library;
}

static dtp_status find_symbols(void *library, const char *soname, dtp_blas *out, dtp_err *err)
{
    const struct {
        const char *name;
        void *function; /* a pointer to one */
    } symbols[] = {{"cblas_sgemm", &out->sgemm},
                   {"cblas_sgemv", &out->sgemv},
                   {"openblas_get_corename", &out->corename},
                   {"openblas_get_config", &out->config}};
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (address == NULL) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "%s has no %s: it is not OpenBLAS", soname,
                            symbols[i].name);
        }
        memcpy(symbols[i].function, &address, sizeof address);
    }
    return DTP_OK;
}

dtp_status dtp_blas__open(const char *soname, dtp_blas_preference preferred, dtp_blas *out,
                          dtp_err *err)
{
    /* Kept: a library that is in use is never unloaded. */
    void *library = dlopen(soname, RTLD_NOW | RTLD_NOLOAD);
    *out = (dtp_blas){.found_loaded = library != NULL};
    if (library == NULL) {
        library = open_library(soname, err);
    }
    if (library == NULL) {
        return DTP_UNSUPPORTED;
    }
    dtp_status s = find_symbols(library, soname, out, err);
    const char *wanted = s != DTP_OK || out->found_loaded || getenv(CORETYPE) != NULL
                             ? NULL
                             : preferred(out->corename());
    if (wanted != NULL && setenv(CORETYPE, wanted, 0) == 0) {
        (void)dlclose(library);
        library = open_library(soname, err);
        (void)unsetenv(CORETYPE);
        s = library != NULL ? find_symbols(library, soname, out, err) : DTP_UNSUPPORTED;
    }
    if (s != DTP_OK && library != NULL) {
        (void)dlclose(library);
    }
    return s;
}

static bool has_avx512(void)
{
#if defined(__GNUC__) && defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

static const char *prefer_avx512(const char *core)
{
    static const char *const sets[] = {"SkylakeX", "Cooperlake", "Sapphirerapids"};
    bool wide = !has_avx512();
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        wide = wide || strcmp(core, sets[i]) == 0;
    }
    return wide ? NULL : sets[0];
}

/* Written once. */
static struct {
    pthread_once_t once;
    dtp_status status;
    dtp_err err;
    dtp_blas blas;
} loaded = {.once = PTHREAD_ONCE_INIT};

static void load_once(void)
{
    loaded.status = dtp_blas__open("libopenblas.so.0", prefer_avx512, &loaded.blas, &loaded.err);
}

dtp_status dtp_blas_load(dtp_err *err)
{
    (void)pthread_once(&loaded.once, load_once);
    if (loaded.status != DTP_OK && err != NULL) {
        *err = loaded.err;
    }
    return loaded.status;
}

const dtp_blas *dtp_blas_get(void)
{
    assert(loaded.blas.sgemm != NULL);
    return &loaded.blas;
}
