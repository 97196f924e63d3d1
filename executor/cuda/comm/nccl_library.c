/* NCCL, opened when the first transport over it is made: a machine without it runs all the rest. */
#include "executor/cuda/comm/nccl_library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static const char FILE_NAME[] = "libnccl.so.2";

static const struct {
    const char *name;
    size_t at; /* in dtp_nccl */
} FUNCTIONS[] = {
#define FUNCTION(name) {"nccl" #name, offsetof(dtp_nccl, name)},
    DTP_NCCL_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

dtp_status dtp_nccl_open(dtp_nccl *out, dtp_err *err)
{
    void *library = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL) {
        const char *reason = dlerror();
        return DTP_FAIL(
            err, DTP_UNSUPPORTED,
            "transport nccl: NCCL cannot be opened: %.300s (package libnccl2 of NVIDIA, "
            "nvidia-nccl of PyPI)",
            reason != NULL ? reason : FILE_NAME);
    }
    for (size_t i = 0; i < sizeof FUNCTIONS / sizeof FUNCTIONS[0]; i++) {
        void *function = dlsym(library, FUNCTIONS[i].name);
        if (function == NULL) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "transport nccl: %s has no %s", FILE_NAME,
                            FUNCTIONS[i].name);
        }
        memcpy((char *)out + FUNCTIONS[i].at, &function, sizeof function);
    }
    return DTP_OK;
}
