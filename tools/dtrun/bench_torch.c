/* dtrun bench --as torch: the list of what is measured goes to dtp_torch_bench.py, which gives
 * times. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/arena.h"
#include "core/base/json.h"
#include "executor/bench/bench.h"
#include "executor/device/cpus.h"
#include "tools/child.h"
#include "tools/dtrun/bench_machine.h"
#include "tools/progress.h"
#include "tools/shipped.h"

enum { MAX_RESULT_BYTES = 16 << 20, NO_TORCH = 3, NOT_STARTED = 127 };

static const char script[] = "dtp_torch_bench.py", variable[] = "DTP_TORCH_PYTHON";
static const char *const KEYS[] = {"format", "torch", "device", "memory_bytes",
                                   "host_s", "times", NULL};

/* Runs the script on a list; what it printed is *text. */
static dtp_status run_script(const char *list, size_t len, char **text, size_t *n, dtp_err *err)
{
    const char *given = getenv(variable), *python = given != NULL && given[0] ? given : "python3";
    tool_path path;
    char list_path[64];
    int in = -1, out = -1, code = -1;
    pid_t child = 0;
    DTP_TRY(tool_beside_program("../share/dtp/dtp_torch_bench.py", &path, err));
    DTP_TRY(tool_unnamed_file(&in, err));
    dtp_status s = tool_unnamed_file(&out, err);
    if (s == DTP_OK && write(in, list, len) != (ssize_t)len) {
        s = DTP_FAIL(err, DTP_IO, "no room for a temporary file of %zu bytes", len);
    }
    (void)snprintf(list_path, sizeof list_path, "/proc/%ld/fd/%d", (long)getpid(), in);
    char *argv[] = {(char *)(uintptr_t)python, path.text, list_path, NULL};
    s = s == DTP_OK ? tool_child_start(python, argv, out, -1, &child, err) : s;
    const bool ended = s == DTP_OK && tool_child_wait(child, &code) == child;
    const int status = ended && WIFEXITED(code) ? WEXITSTATUS(code) : -1;
    tool_progress_end();
    if (s == DTP_OK && (status == NO_TORCH || status == NOT_STARTED)) {
        s = DTP_FAIL(err, DTP_INVALID,
                     "--as torch: '%.200s' %s; %s names an interpreter that has torch", python,
                     status == NO_TORCH ? "has no torch" : "cannot be started", variable);
    } else if (s == DTP_OK && status != 0) {
        s = DTP_FAIL(err, DTP_IO, "--as torch: '%.200s %.400s' failed (%s %d)", python, path.text,
                     status < 0 ? "signal" : "exit code",
                     status < 0 && ended && WIFSIGNALED(code) ? WTERMSIG(code) : status);
    }
    s = s == DTP_OK ? tool_unnamed_read(out, MAX_RESULT_BYTES, text, n, err) : s;
    (void)close(in);
    if (out >= 0) {
        (void)close(out);
    }
    return s;
}

/* Takes the times; `known` borrows from the arena. */
static dtp_status take(const char *text, size_t n, dtp_samples *samples, dtp_arena *arena,
                       dtp_fit_options *known, dtp_err *err)
{
    dtp_json_doc *doc = NULL;
    const char *version, *device;
    const dtp_json *times = NULL;
    DTP_TRY(dtp_json_parse(script, text, n, &doc, err));
    const dtp_json *root = dtp_json_root(doc);
    dtp_status s = dtp_json_format(root, "dtp.torch_bench/1", KEYS, err);
    s = s == DTP_OK ? dtp_json_get_string(root, "torch", &version, err) : s;
    s = s == DTP_OK ? dtp_json_get_string(root, "device", &device, err) : s;
    s = s == DTP_OK ? dtp_json_get_double(root, "host_s", &known->host_s, err) : s;
    s = s == DTP_OK
            ? dtp_json_get_int(root, "memory_bytes", 0, INT64_MAX, &known->memory_bytes, err)
            : s;
    s = s == DTP_OK ? dtp_json_get_kind(root, "times", DTP_JSON_ARRAY, &times, err) : s;
    s = s == DTP_OK ? dtp_bench_take(samples, times, err) : s;
    if (s == DTP_OK) {
        known->tool = dtp_arena_printf(arena, "dtrun bench --as torch (PyTorch %.60s)", version);
        known->device = dtp_arena_printf(arena, "%.200s", device);
        s = DTP_MEMORY(err, known->tool, known->device);
    }
    dtp_json_destroy(doc);
    return s;
}

dtp_status dtrun_bench_torch(const tool_source *source, const dtp_mesh *mesh, dtp_err *err)
{
    const bool cuda = strcmp(source->backend, "cuda") == 0;
    if (source->op != NULL || source->collective != NULL) {
        return DTP_FAIL(err, DTP_INVALID, "--as writes a machine file, --op and --collective none");
    }
    if (!cuda && strcmp(source->backend, "cpu") != 0) {
        return DTP_FAIL(err, DTP_INVALID, "--as torch is of --backend cpu or cuda, not of '%.40s'",
                        source->backend);
    }
    if (source->comm != NULL || source->transport != NULL) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--as torch has PyTorch's communication, %s: no --comm, no --transport",
                        cuda ? "nccl" : "gloo");
    }
    const int32_t ranks = dtp_mesh_ranks(mesh), each = dtp_cpus_usable() / ranks;
    dtp_bench_options options = dtp_bench_options_init(source->quick || source->tiny);
    dtp_samples samples = {0};
    dtp_json_writer w = {0};
    char *text = NULL;
    size_t n = 0;
    if (source->tiny) {
        options.scale = &dtp_bench_scale_tiny;
        options.budget_s = 1.0;
    }
    dtp_arena *arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, arena));
    const int64_t threads = source->threads > 0 ? source->threads : each > 0 ? each : 1;
    dtp_fit_options known = {.kind = source->backend, .runtime = dtp_target_torch.runtime};
    dtp_json_begin_object(&w, NULL);
    dtp_json_write_string(&w, "format", "dtp.torch_bench_list/1");
    dtp_json_write_string(&w, "device", cuda ? "cuda" : "cpu");
    dtp_json_write_int(&w, "ranks", ranks);
    dtp_json_write_int(&w, "threads", threads);
    dtp_json_write_double(&w, "budget_s", options.budget_s);
    dtp_json_write_bool(&w, "quiet", source->quiet);
    dtp_status s = dtp_bench_list(&dtp_target_torch, mesh, cuda, &options, &w, &samples, err);
    dtp_json_end_object(&w);
    samples.threads = (int32_t)threads;
    s = s == DTP_OK && w.buf.failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for the list") : s;
    s = s == DTP_OK ? run_script(w.buf.text, w.buf.len, &text, &n, err) : s;
    s = s == DTP_OK ? take(text, n, &samples, arena, &known, err) : s;
    s = s == DTP_OK ? dtrun_bench_write(source, &samples, &known, err) : s;
    free(text);
    dtp_strbuf_free(&w.buf);
    dtp_bench_samples_free(&samples);
    dtp_arena_destroy(arena);
    return s;
}
