/* Machine files by name: those that are shipped, and that of this machine which was measured
 * last. */
#include "tools/machines.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/strbuf.h"
#include "cost_models/machine/coll.h"
#include "cost_models/machine/efficiency.h"
#include "cost_models/machine/machine_set.h"
#include "executor/device/cpus.h"
#include "tools/child.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/shipped.h"

enum { PATH_BYTES = 4096, RANKS_PER_CPU = 4 };

/* As the file says it. */
static dtp_status read_machine(const char *name, bool yes_units, dtp_machine **out, dtp_err *err)
{
    tool_path path;
    DTP_TRY(dtp_err_prefixed(tool_shipped_find(SHIPPED_MACHINES, "machine", name, &path, err), err,
                             "--machine"));
    return dtp_machine_read_units(path.text, yes_units, out, err);
}

static bool same_peaks(const dtp_machine *a, const dtp_machine *b)
{
    bool same = strcmp(a->kind, b->kind) == 0;
    for (int32_t d = 0; d < DTP_FP8; d++) { /* the others are not of every file */
        same = same && fabs(a->flops[d] - b->flops[d]) <= 1e-6 * a->flops[d];
    }
    return same;
}

static bool states_collectives(const dtp_level *level)
{
    bool any = false;
    for (int32_t k = 0; k < DTP_N_COLLS; k++) {
        any = any || level->rates[k].share > 0.0;
    }
    return any;
}

/* Levels without constants of their own get those of levels of the same name, of the same device
 * first, else of any; not of kind cpu. */
static dtp_status complete_levels(dtp_machine *m, dtp_err *err)
{
    char **names = NULL;
    bool complete = true;
    for (int32_t l = 0; l < m->n_levels; l++) {
        complete = complete && states_collectives(&m->levels[l]);
    }
    if (complete || strcmp(m->kind, "cpu") == 0) {
        return DTP_OK;
    }
    DTP_TRY(tool_shipped_names(SHIPPED_MACHINES, &names, err));
    dtp_status s = DTP_OK;
    for (int32_t any = 0; any <= 1; any++) {
        for (int32_t i = 0; names[i] != NULL && s == DTP_OK; i++) {
            dtp_machine *other = NULL;
            s = read_machine(names[i], true, &other, err);
            const bool lends = s == DTP_OK && (any == 1 || same_peaks(m, other));
            for (int32_t pair = 0; lends && pair < m->n_levels * other->n_levels; pair++) {
                dtp_level *to = &m->levels[pair % m->n_levels];
                const dtp_level *from = &other->levels[pair / m->n_levels];
                if (strcmp(to->name, from->name) == 0 && !states_collectives(to) &&
                    states_collectives(from)) {
                    dtp_level_borrow(to, from);
                    to->from = dtp_arena_strdup(m->arena, other->name);
                    s = DTP_MEMORY(err, to->from);
                }
            }
            dtp_machine_destroy(other);
        }
    }
    tool_shipped_free(names);
    return s;
}

dtp_status tool_machine_read(const char *name, bool yes_units, dtp_machine **out, dtp_err *err)
{
    dtp_machine *m = NULL;
    DTP_TRY(read_machine(name, yes_units, &m, err));
    const dtp_status s = complete_levels(m, err);
    if (s != DTP_OK) {
        dtp_machine_destroy(m);
        return s;
    }
    *out = m;
    return DTP_OK;
}

/* Efficiencies are of the peaks that the file states, so they are borrowed before these change. */
static dtp_status set_numbers(const tool_source *source, dtp_machine **m, dtp_err *err)
{
    if (source->set.n == 0) {
        return DTP_OK;
    }
    DTP_TRY(tool_machine_borrow(*m, err));
    return dtp_machine_set(m, source->set.n, source->set.items, err);
}

dtp_status tool_machine_of(const tool_source *source, dtp_machine **out, dtp_err *err)
{
    dtp_machine *m = NULL;
    if (source->machine == NULL) {
        return source->set.n == 0
                   ? DTP_OK
                   : DTP_FAIL(err, DTP_INVALID, "--set is about a machine: --machine is missing");
    }
    DTP_TRY(tool_machine_read(source->machine, source->yes_units, &m, err));
    const dtp_status s = set_numbers(source, &m, err);
    if (s != DTP_OK) {
        dtp_machine_destroy(m);
        return s;
    }
    *out = m;
    return DTP_OK;
}

/* ---- efficiencies ---- */

dtp_status tool_machine_borrow(dtp_machine *m, dtp_err *err)
{
    char **names = NULL;
    if (m->n_efficiencies > 0 || m->runtime[0] != '\0' || strcmp(m->kind, "cpu") == 0) {
        return DTP_OK;
    }
    DTP_TRY(tool_shipped_names(SHIPPED_MACHINES, &names, err));
    dtp_status s = DTP_OK;
    for (int32_t i = 0; names[i] != NULL && s == DTP_OK && m->n_efficiencies == 0; i++) {
        dtp_machine *other = NULL;
        s = read_machine(names[i], true, &other, err);
        if (s == DTP_OK && same_peaks(m, other)) {
            s = dtp_efficiency_borrow(m, other, err);
        }
        dtp_machine_destroy(other);
    }
    tool_shipped_free(names);
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
        (void)fprintf(stderr, "%s: the efficiency of runtime '%s' is that of %s%s%s\n", m->place,
                      runtime, e->from, e->on[0] != '\0' ? ", fitted on " : "", e->on);
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
    (void)snprintf(path, size, "%s/dtp/cpu_%d.json", folder, (int)ranks);
    return DTP_OK;
}

/* Runs `dtrun bench`, which writes to the cache. */
static dtp_status measure(int32_t ranks, dtp_err *err)
{
    tool_path dtrun;
    char number[16];
    int code = -1;
    pid_t child = 0;
    DTP_TRY(tool_beside_program("dtrun", &dtrun, err));
    (void)snprintf(number, sizeof number, "%d", (int)ranks);
    (void)fprintf(stderr, "no --machine: measuring this machine on %s rank(s), about 20 s\n",
                  number);
    char *argv[] = {dtrun.text,
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
    DTP_TRY(tool_child_start(dtrun.text, argv, -1, -1, &child, err));
    tool_progress_begin("measuring");
    const bool ended = tool_child_wait(child, &code) == child;
    tool_progress_end();
    if (!ended || code != 0) {
        return DTP_FAIL(err, DTP_IO, "'%s bench' could not measure this machine; give --machine",
                        dtrun.text);
    }
    return DTP_OK;
}

dtp_status tool_machine_here(const tool_source *source, int32_t ranks, dtp_machine **out,
                             dtp_err *err)
{
    dtp_machine *m = NULL;
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
    DTP_TRY(dtp_machine_read_units(path, true, &m, err)); /* measured */
    const dtp_status s = set_numbers(source, &m, err);
    if (s != DTP_OK) {
        dtp_machine_destroy(m);
        return s;
    }
    *out = m;
    return DTP_OK;
}
