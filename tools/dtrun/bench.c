/* dtrun bench: measures this machine on real ranks and writes a machine file, or measures one op or
 * collective and prints what it reaches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "cost_models/machine/fit.h"
#include "executor/bench/bench.h"
#include "executor/cpu/gemm/blas.h"
#include "executor/run/devices.h"
#include "tools/dtrun/bench_alone.h"
#include "tools/dtrun/bench_machine.h"
#include "tools/dtrun/options.h"
#include "tools/progress.h"

typedef struct bench_command {
    tool_source source;
    tool_ranks ranks;
    double begun_s; /* of rank 0 */
} bench_command;

/* A part begins. Ranks of mpirun have no terminal of their own: they say it in lines. */
static void show_progress(void *user, const char *part, int32_t samples)
{
    const bench_command *c = user;
    const char *started = getenv(TOOL_STARTED);
    char note[64];
    (void)snprintf(note, sizeof note, "%.32s, %d samples", part, samples);
    if (isatty(STDERR_FILENO) != 0) {
        tool_progress_note(note);
    } else if (started != NULL && strcmp(started, TOOL_ON_TERMINAL) == 0) {
        (void)fprintf(stderr, "measuring %s so far, %.1f s\n", note, dtp_now_s() - c->begun_s);
    }
}

static dtp_status write_machine(const bench_command *c, const dtp_backend *backend,
                                const dtp_samples *samples, dtp_err *err)
{
    dtp_device_info device = {.kind = "cpu"};
    if (backend->ops->describe != NULL) {
        DTP_TRY(backend->ops->describe(backend, &device, err));
    }
    dtp_fit_options options = {.tool = "dtrun bench",
                               .blas =
                                   dtp_blas_load(NULL) == DTP_OK ? dtp_blas_get()->config() : "",
                               .device = device.text,
                               .kind = device.kind,
                               .memory_bytes = device.memory_bytes};
    return dtrun_bench_write(&c->source, samples, &options, err);
}

static dtp_status bench_rank(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    bench_command *c = user;
    dtp_bench_scale scale; /* of this rank: ranks may be threads */
    dtp_samples samples = {0};
    dtp_bench_options options = dtp_bench_options_init(c->source.quick || c->source.tiny);
    if (c->source.tiny) {
        options.scale = &dtp_bench_scale_tiny;
        options.budget_s = 1.0;
    }
    DTP_TRY(
        dtrun_bench_alone_options(&c->source, backend->ops->queue != NULL, &scale, &options, err));
    options.progress = comm->rank == 0 && !c->source.quiet ? show_progress : NULL;
    if (options.progress != NULL) {
        c->begun_s = dtp_now_s();
        options.user = c;
        tool_progress_begin("measuring");
    }
    dtp_status s = dtp_bench_run(comm, backend, &options, &samples, err);
    if (comm->rank == 0) {
        tool_progress_end();
    }
    if (s == DTP_OK && comm->rank == 0) {
        s = dtrun_bench_is_alone(&c->source)
                ? dtrun_bench_alone_print(&c->source, backend->ops->name, &samples, err)
                : write_machine(c, backend, &samples, err);
    }
    dtp_bench_samples_free(&samples);
    return s;
}

/* One mesh dim; on devices of modules one of size 2 after the other as far as that goes, so that
 * collectives of sub-groups are measured too. */
static void name_mesh(const bench_command *c, size_t size, char *text)
{
    const bool cards = dtp_device_builtin(c->source.backend) == NULL;
    int64_t left = c->source.n_ranks;
    size_t n = 0;
    text[0] = '\0';
    for (int32_t i = 1; left > 1; i++) {
        const bool halves = cards && i < DTP_MAX_MESH_DIMS && left % 2 == 0;
        const int64_t here = halves ? 2 : left;
        n += (size_t)snprintf(text + n, size - n, "%sranks%d:%d", n > 0 ? ";" : "", i, (int)here);
        left /= here;
    }
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    bench_command *c = command;
    (void)operands;
    char text[128];
    dtp_mesh mesh;
    DTP_TRY(dtrun_bench_alone_check(&c->source, err));
    name_mesh(c, sizeof text, text);
    DTP_TRY(dtp_mesh_parse(text, &mesh, err));
    if (c->source.as_form != NULL) {
        return dtrun_bench_torch(&c->source, &mesh, err);
    }
    return tool_run_ranks(&c->ranks, &mesh, bench_rank, c, err);
}

int dtrun_bench(int argc, char **argv)
{
    bench_command c = {0};
    const tool_call call = {TOOL_BENCH, execute, &c, &c.source, NULL};
    return tool_ranks_command(&c.ranks, &call, argc, argv);
}
