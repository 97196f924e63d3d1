#include "tools/machines.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/strbuf.h"
#include "cost_models/machine/efficiency.h"
#include "executor/device/cpus.h"
#include "tools/child.h"
#include "tools/options.h"
#include "tools/progress.h"

enum { PATH_BYTES = 4096, RANKS_PER_CPU = 4 };

static const char suffix[] = ".json";

/* PATH beside the folder of this program: "dtrun", "../share/dtp/machines". */
static dtp_status beside(const char *path, char out[PATH_BYTES], dtp_err *err)
{
    char program[PATH_BYTES / 2];
    DTP_TRY(tool_program_path(program, sizeof program, err));
    *strrchr(program, '/') = '\0'; /* the path is absolute */
    (void)snprintf(out, PATH_BYTES, "%s/%.1000s", program, path);
    return DTP_OK;
}

dtp_status tool_shipped(const char *name, char *path, size_t size, dtp_err *err)
{
    char relative[PATH_BYTES / 2], whole[PATH_BYTES];
    (void)snprintf(relative, sizeof relative, "../share/dtp/%.200s", name);
    DTP_TRY(beside(relative, whole, err));
    return snprintf(path, size, "%s", whole) < (int)size
               ? DTP_OK
               : DTP_FAIL(err, DTP_IO, "%.100s...: the path is too long", whole);
}

/* ---- shipped machines ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void tool_machine_names_free(char **names)
{
    for (int32_t i = 0; names != NULL && names[i] != NULL; i++) {
        free(names[i]);
    }
    free(names);
}

dtp_status tool_machine_names(char ***out, dtp_err *err)
{
    char folder[PATH_BYTES];
    size_t n = 0, room = 0;
    char **names = calloc(1, sizeof *names);
    DTP_TRY(DTP_MEMORY(err, names));
    dtp_status s = beside("../share/dtp/machines", folder, err);
    DIR *dir = s == DTP_OK ? opendir(folder) : NULL;
    const struct dirent *entry;
    while (s == DTP_OK && dir != NULL && (entry = readdir(dir)) != NULL) {
        const size_t length = strlen(entry->d_name), cut = sizeof suffix - 1;
        if (length <= cut || strcmp(entry->d_name + length - cut, suffix) != 0) {
            continue;
        }
        char **more = names;
        if (n + 2 > room) {
            room = 2 * room + 8;
            more = realloc(names, room * sizeof *names);
            names = more != NULL ? more : names;
        }
        names[n] = more != NULL ? strndup(entry->d_name, length - cut) : NULL;
        s = DTP_MEMORY(err, names[n]);
        n += s == DTP_OK ? 1 : 0;
        names[n] = NULL;
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    if (s != DTP_OK) {
        tool_machine_names_free(names);
        return s;
    }
    qsort(names, n, sizeof *names, by_name);
    *out = names;
    return DTP_OK;
}

static bool is_path(const char *name)
{
    const size_t n = strlen(name), cut = sizeof suffix - 1;
    return strchr(name, '/') != NULL || (n > cut && strcmp(name + n - cut, suffix) == 0);
}

dtp_status tool_machine_read(const char *name, bool yes_units, dtp_machine **out, dtp_err *err)
{
    char path[PATH_BYTES], relative[PATH_BYTES / 2];
    if (is_path(name)) {
        return dtp_machine_read_units(name, yes_units, out, err);
    }
    (void)snprintf(relative, sizeof relative, "../share/dtp/machines/%.200s%s", name, suffix);
    DTP_TRY(beside(relative, path, err));
    if (access(path, F_OK) == 0) {
        return dtp_machine_read_units(path, yes_units, out, err);
    }
    if (access(name, F_OK) == 0) {
        return dtp_machine_read_units(name, yes_units, out, err);
    }
    char **names = NULL;
    dtp_strbuf list = {0};
    DTP_TRY(tool_machine_names(&names, err));
    for (int32_t i = 0; names[i] != NULL; i++) {
        dtp_strbuf_addf(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    const dtp_status s = DTP_FAIL(
        err, DTP_INVALID, "--machine %.100s: there is no such file and no machine of this name%s%s",
        name, list.len > 0 ? "; there are " : "", list.len > 0 ? list.text : "");
    dtp_strbuf_free(&list);
    tool_machine_names_free(names);
    return s;
}

/* ---- efficiencies ---- */

static bool same_peaks(const dtp_machine *a, const dtp_machine *b)
{
    bool same = strcmp(a->kind, b->kind) == 0;
    for (int32_t d = 0; d < DTP_N_ARITHMETICS; d++) {
        same = same && fabs(a->flops[d] - b->flops[d]) <= 1e-6 * a->flops[d];
    }
    return same;
}

dtp_status tool_machine_borrow(dtp_machine *m, dtp_err *err)
{
    char **names = NULL;
    if (m->n_efficiencies > 0 || m->runtime[0] != '\0' || strcmp(m->kind, "cpu") == 0) {
        return DTP_OK;
    }
    DTP_TRY(tool_machine_names(&names, err));
    dtp_status s = DTP_OK;
    for (int32_t i = 0; names[i] != NULL && s == DTP_OK && m->n_efficiencies == 0; i++) {
        dtp_machine *other = NULL;
        s = tool_machine_read(names[i], true, &other, err);
        if (s == DTP_OK && same_peaks(m, other)) {
            s = dtp_efficiency_borrow(m, other, err);
        }
        dtp_machine_destroy(other);
    }
    tool_machine_names_free(names);
    return s;
}

dtp_status tool_machine_runtime(dtp_machine *m, const char *name, const dtp_target *target,
                                dtp_err *err)
{
    if (name != NULL && strcmp(name, "datasheet") == 0) {
        return DTP_OK;
    }
    DTP_TRY(tool_machine_borrow(m, err));
    const char *runtime = name != NULL ? name : target->runtime;
    if (strcmp(m->runtime, runtime) == 0) { /* the file has its rates */
        return DTP_OK;
    }
    const dtp_efficiency *e = dtp_efficiency_find(m, runtime);
    if (name == NULL && (e == NULL || m->runtime[0] != '\0')) {
        const bool others = m->runtime[0] != '\0' || target->backends[0] == NULL;
        if (others && tool_speaks()) {
            (void)fprintf(stderr,
                          "%s: no rates of runtime '%s' but those of %s: times and the order of "
                          "plans may be wrong; 'dtrun bench%s' measures it\n",
                          m->place, runtime,
                          m->runtime[0] != '\0'            ? m->runtime
                          : m->n_op_curves + m->n_gemm > 0 ? "dtrun's kernels"
                                                           : "the datasheet",
                          target->backends[0] == NULL ? " --as torch" : "");
        }
        return DTP_OK;
    }
    DTP_TRY(dtp_machine_set_runtime(m, runtime, err));
    if (e != NULL && strcmp(e->how, "borrowed") == 0 && tool_speaks()) {
        (void)fprintf(stderr, "%s: the efficiency of runtime '%s' is that of %s\n", m->place,
                      runtime, e->from);
    }
    return DTP_OK;
}

/* ---- this machine ---- */

dtp_status tool_machine_cache(int32_t ranks, char *path, size_t size, dtp_err *err)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[PATH_BYTES / 2];
    const bool given = cache != NULL && cache[0] == '/';
    if (!given && (home == NULL || home[0] != '/')) {
        return DTP_FAIL(err, DTP_IO, "neither XDG_CACHE_HOME nor HOME names a folder");
    }
    (void)snprintf(folder, sizeof folder, "%.1500s%s", given ? cache : home,
                   given ? "" : "/.cache");
    (void)mkdir(folder, 0777); /* may be there; a failure shows below */
    (void)snprintf(path, size, "%s/dtp", folder);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        return DTP_FAIL(err, DTP_IO, "%s: %s", path, strerror(errno));
    }
    (void)snprintf(path, size, "%s/dtp/cpu_%d%s", folder, (int)ranks, suffix);
    return DTP_OK;
}

/* Runs `dtrun bench`, which writes to the cache. */
static dtp_status measure(int32_t ranks, dtp_err *err)
{
    char dtrun[PATH_BYTES], number[16];
    int code = -1;
    pid_t child = 0;
    DTP_TRY(beside("dtrun", dtrun, err));
    (void)snprintf(number, sizeof number, "%d", (int)ranks);
    (void)fprintf(stderr, "no --machine: measuring this machine on %s rank(s), about 20 s\n",
                  number);
    char *argv[] = {dtrun,
                    (char[]){"bench"},
                    (char[]){"--ranks"},
                    number,
                    (char[]){"--comm"},
                    (char[]){"sim"},
                    (char[]){"--quick"},
                    (char[]){"--quiet"},
                    (char[]){"--output"},
                    (char[]){"/dev/null"},
                    NULL};
    DTP_TRY(tool_child_start(dtrun, argv, -1, -1, &child, err));
    tool_progress_begin("measuring");
    const bool ended = tool_child_wait(child, &code) == child;
    tool_progress_end();
    if (!ended || code != 0) {
        return DTP_FAIL(err, DTP_IO, "'%s bench' could not measure this machine; give --machine",
                        dtrun);
    }
    return DTP_OK;
}

dtp_status tool_machine_here(int32_t ranks, dtp_machine **out, dtp_err *err)
{
    char path[PATH_BYTES];
    const int64_t most = (int64_t)dtp_cpus_usable() * RANKS_PER_CPU;
    if (ranks > most) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--machine is missing, and this machine of %d processors cannot stand for "
                        "%d devices ('dtplan machines' lists those that have a name)",
                        dtp_cpus_usable(), ranks);
    }
    DTP_TRY(tool_machine_cache(ranks, path, sizeof path, err));
    if (access(path, R_OK) != 0) {
        DTP_TRY(measure(ranks, err));
    } else {
        (void)fprintf(stderr, "no --machine: %s, measured before\n", path);
    }
    return dtp_machine_read_units(path, true, out, err); /* measured */
}
