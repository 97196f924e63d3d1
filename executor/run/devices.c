/* Devices by name. */
#include "executor/run/devices.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "executor/cpu/cpu.h"
#include "executor/ref/ref.h"
#include "spmd/target/target.h"

enum { NAME_BYTES = 32, FILE_BYTES = NAME_BYTES + 8, LIST_BYTES = 128 };

/* ---- built in ---- */

static dtp_status no_switches(const dtp_device_options *options, dtp_err *err)
{
    return options->switches == NULL
               ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID, "the backend has no switch '%.40s'", options->switches);
}

static dtp_status cpu_create(const dtp_device_options *options, dtp_backend **out, dtp_err *err)
{
    DTP_TRY(no_switches(options, err));
    return dtp_backend_cpu_create(options->threads, out, err);
}

static dtp_status ref_create(const dtp_device_options *options, dtp_backend **out, dtp_err *err)
{
    DTP_TRY(no_switches(options, err));
    return dtp_backend_ref_create(out, err);
}

static const dtp_device BUILT_IN[] = {
    {.abi = DTP_DEVICE_ABI, .layout = DTP_DEVICE_LAYOUT, .name = "cpu", .create = cpu_create},
    {.abi = DTP_DEVICE_ABI, .layout = DTP_DEVICE_LAYOUT, .name = "ref", .create = ref_create}};

const dtp_device *dtp_device_builtin(const char *name)
{
    const dtp_device *found = NULL;
    for (size_t i = 0; i < sizeof BUILT_IN / sizeof BUILT_IN[0]; i++) {
        found = strcmp(BUILT_IN[i].name, name) == 0 ? &BUILT_IN[i] : found;
    }
    return found;
}

/* ---- modules ---- */

/* Lower-case letters, digits and '_': the name becomes part of a file's. */
static bool is_name(const char *name)
{
    const size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return n > 0 && n < NAME_BYTES && name[n] == '\0';
}

/* Neither built in nor a module. */
static dtp_status fail_unknown(const char *name, dtp_err *err)
{
    char list[LIST_BYTES] = "";
    size_t n = 0;
    for (int32_t t = 0; dtp_target_at(t) != NULL; t++) {
        const char *const *b = dtp_target_at(t)->backends;
        for (; *b != NULL && n < sizeof list; b++) {
            if (dtp_target_of_backend(*b) == dtp_target_at(t)) { /* the first that names it */
                n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n > 0 ? ", " : "", *b);
            }
        }
    }
    return DTP_FAIL(err, DTP_INVALID, "no backend '%.40s'; there are: %s", name, list);
}

/* The module cannot be opened, for a reason of the dynamic linker. */
static dtp_status fail_closed(const char *name, const char *file, const char *reason, dtp_err *err)
{
    const dtp_target *target = dtp_target_of_backend(name);
    const bool missing = strncmp(reason, file, strlen(file)) == 0;
    if (target == NULL && missing) {
        return fail_unknown(name, err);
    }
    return missing ? DTP_FAIL(err, DTP_UNSUPPORTED,
                              "backend %s: its module %s is not installed with this dtp (%s)", name,
                              file, target->build)
                   : DTP_FAIL(err, DTP_UNSUPPORTED, "backend %s: %s cannot be opened: %.300s%s%s",
                              name, file, reason, target != NULL ? "; it needs " : "",
                              target != NULL ? target->needs : "");
}

static dtp_status check_module(const char *name, const char *file, const dtp_device *found,
                               dtp_err *err)
{
    if (found->abi != DTP_DEVICE_ABI || found->layout != DTP_DEVICE_LAYOUT) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "backend %s: %s is of another build: its ABI is %d (%llx), that of this "
                        "dtp %d (%llx)",
                        name, file, found->abi, (unsigned long long)found->layout, DTP_DEVICE_ABI,
                        (unsigned long long)DTP_DEVICE_LAYOUT);
    }
    return strcmp(found->name, name) == 0
               ? DTP_OK
               : DTP_FAIL(err, DTP_UNSUPPORTED, "backend %s: %s is that of backend '%.40s'", name,
                          file, found->name);
}

dtp_status dtp_device_find(const char *name, const dtp_device **out, dtp_err *err)
{
    char file[FILE_BYTES];
    const dtp_device *found = dtp_device_builtin(name);
    if (found != NULL) {
        *out = found;
        return DTP_OK;
    }
    if (!is_name(name)) {
        return fail_unknown(name, err);
    }
    (void)snprintf(file, sizeof file, "dtp_%s.so", name);
    void *module = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (module == NULL) {
        const char *reason = dlerror();
        return fail_closed(name, file, reason != NULL ? reason : file, err);
    }
    found = dlsym(module, DTP_DEVICE_SYMBOL);
    const dtp_status s = found != NULL ? check_module(name, file, found, err)
                                       : DTP_FAIL(err, DTP_UNSUPPORTED, "backend %s: %s has no %s",
                                                  name, file, DTP_DEVICE_SYMBOL);
    (void)dlclose(module); /* stays, as it was opened so */
    if (s == DTP_OK) {
        *out = found;
    }
    return s;
}
